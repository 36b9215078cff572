//! A version that existed when its name was deleted is not found any more, whichever nodes are lost or restart later.
//!
//! Servers are notified of a deletion a moment after the client. A server that a fault keeps from the notification may
//! register the name with a new agent. So only deletions before the first fault are checked, against finds at any
//! time.
//!
//! docs/shared-data.md, "A name has versions".

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::HEARTBEAT_NS;
use gridloom_base::{DatumId, Time};
use gridloom_core::node::Event;
use gridloom_core::node::message::CatalogAnswer;

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use crate::shared::NameRequest;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "what was deleted is not found",
    about: "a version that existed when its name was deleted is not found any more",
    new_check: || Box::<Deleted>::default(),
};

#[derive(Default)]
struct Deleted {
    /// Versions that no longer exist, with the time since which they do not.
    gone: BTreeMap<DatumId, Time>,
    /// Their names.
    names: BTreeSet<String>,
    judged: u64,
}

impl InvariantCheck for Deleted {
    fn observe(&mut self, _: &Simulation, ledger: &Ledger, now: Time, event: &SimEvent) -> Result<(), String> {
        let SimEvent::Reported { node, event: Event::NameResult { request: ask, answer } } = event else {
            return Ok(());
        };
        let Some((asked_at, asked)) = ledger.shared.requests.get(&(*node, *ask)) else { return Ok(()) };
        match (asked, answer) {
            (NameRequest::Delete { name }, Ok(CatalogAnswer::Deleted)) if ledger.damage.is_none_by(now) => {
                self.deleted(ledger, *asked_at, now, name);
            }
            (NameRequest::Find { name, .. }, answer) => {
                self.judged += u64::from(self.names.contains(name));
                let Ok(CatalogAnswer::Found { named, .. }) = answer else { return Ok(()) };
                let since = self.gone.get(&named.datum).filter(|since| **since < *asked_at);
                if let Some(since) = since.filter(|since| ledger.damage.is_none_by(**since + HEARTBEAT_NS)) {
                    return Err(format!("{node} found {named:?}, which was deleted at {since}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![("a shared version was deleted", self.gone.len() as u64), ("a find came after a deletion", self.judged)]
    }
}

impl Deleted {
    /// Records the deletion of a name between `asked_at` and `now`: versions put before no longer exist.
    fn deleted(&mut self, ledger: &Ledger, asked_at: Time, now: Time, name: &str) {
        let versions = ledger.shared.versions.values().filter(|version| version.named.name == name);
        let was_put = |ask| ledger.shared.answered.get(ask).is_some_and(|(at, is_ok)| *is_ok && *at < asked_at);
        for version in versions.filter(|version| was_put(&version.ask)) {
            self.gone.entry(version.named.datum).or_insert(now);
            self.names.insert(name.into());
        }
    }
}
