//! Each copy of a version of a shared name equals the value that a client put. A value that a program finds under a
//! name was put under that name and is complete.
//!
//! docs/shared-data.md, "A name has versions".

use std::collections::BTreeSet;

use gridloom_base::{DatumId, NodeId, Time, slice_bytes};
use gridloom_core::node::Event;
use gridloom_core::node::message::CatalogAnswer;

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use crate::shared::{NameRequest, as_clients_see};
use crate::workload::first;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "versions are immutable",
    about: "each copy of shared data equals what a client put as that version of its name; found values are complete",
    new_check: || Box::<Versions>::default(),
};

#[derive(Default)]
struct Versions {
    /// Versions of which a server has had a copy.
    whole: BTreeSet<DatumId>,
    found: BTreeSet<(NodeId, DatumId)>,
    brought: u64,
    slices: u64,
}

impl InvariantCheck for Versions {
    fn observe(&mut self, sim: &Simulation, ledger: &Ledger, _: Time, event: &SimEvent) -> Result<(), String> {
        match event {
            SimEvent::Stored { datum, .. } if ledger.shared.malicious_versions.contains(&datum.whole()) => Ok(()),
            SimEvent::Stored { node, datum, value } if datum.slice().is_some() => {
                let version = ledger.shared.versions.get(&datum.whole());
                let is_slice = |number| {
                    let bytes = version.map(|version| slice_bytes(version.named.meta.size_bytes(), number));
                    let is_first = number > 0
                        || version.is_some_and(|version| value.bytes.as_deref().map(first) == Some(version.value));
                    bytes.is_some_and(|bytes| bytes.end - bytes.start == value.meta.size_bytes()) && is_first
                };
                self.slices += 1;
                match datum.slice().is_some_and(is_slice) {
                    true => Ok(()),
                    false => Err(format!("{datum} at {node} is not a slice of a datum that a client put")),
                }
            }
            SimEvent::Stored { node, datum, value } if datum.is_shared() => {
                let Some(version) = ledger.shared.versions.get(datum) else {
                    return Err(format!("{datum} is at {node}, but no client was told to put it"));
                };
                let got = value.bytes.as_ref().map_or(f64::NAN, |bytes| first(bytes));
                let is_it = got == version.value && value.meta == version.named.meta;
                if !is_it {
                    let name = &version.named.name;
                    return Err(format!("{datum} ('{name}') at {node} is {got}, but was put as {}", version.value));
                }
                if sim.server(*node).is_some() {
                    self.whole.insert(*datum);
                }
                Ok(())
            }
            SimEvent::Reported {
                node,
                event: Event::NameResult { request: ask, answer: Ok(CatalogAnswer::Found { named, .. }) },
            } => {
                let asked = ledger.shared.requests.get(&(*node, *ask)).map(|(_, asked)| asked);
                let version = ledger.shared.versions.get(&named.datum).map(|version| &version.named);
                let named = &as_clients_see(named);
                if version != Some(named) {
                    return Err(format!("{node} found {named:?}, which was put as {version:?}"));
                }
                let is_of_session = asked.is_none() && ledger.shared.sessions.contains_key(node);
                if !is_of_session && !matches!(asked, Some(NameRequest::Find { name, .. }) if *name == named.name) {
                    return Err(format!("{node} found {named:?}, but requested {asked:?}"));
                }
                if !self.whole.contains(&named.datum) {
                    return Err(format!("{node} found {named:?}, which no server has had"));
                }
                self.found.insert((*node, named.datum));
                Ok(())
            }
            SimEvent::Reported { event: Event::DatumAvailable { datum, .. }, .. } if datum.is_shared() => {
                self.brought += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("a shared version was whole", self.whole.len() as u64),
            ("a program found a shared version", self.found.len() as u64),
            ("a slice of shared data came to a server", self.slices),
            ("shared data came to a program", self.brought),
        ]
    }
}
