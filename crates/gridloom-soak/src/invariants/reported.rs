//! A program that requests a datum gets an answer before everything is quiet. A datum that it was given stays with the
//! client until the program releases it, and is never reported lost afterwards.
//!
//! DESIGN.md, 1.

use std::collections::BTreeSet;

use gridloom_base::{DatumId, NodeId, Time};
use gridloom_core::node::Event;

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "what was reported stays",
    about: "a requested datum is delivered or reported lost; a delivered one stays until released",
    new_check: || Box::<Reported>::default(),
};

#[derive(Default)]
struct Reported {
    asked: BTreeSet<(NodeId, DatumId)>,
    given: BTreeSet<(NodeId, DatumId)>,
    released: BTreeSet<(NodeId, DatumId)>,
    lost: u64,
}

impl InvariantCheck for Reported {
    fn observe(&mut self, sim: &Simulation, ledger: &Ledger, _: Time, event: &SimEvent) -> Result<(), String> {
        match event {
            SimEvent::Requests { node, datum } => {
                self.asked.insert((*node, *datum));
            }
            SimEvent::Released { node, data } => {
                self.released.extend(data.iter().map(|datum| (*node, *datum)));
                // A cancelled function no longer waits for its requests.
                if ledger.shared.sessions.contains_key(node) {
                    self.asked.retain(|(by, datum)| by != node || !data.contains(datum));
                }
            }
            SimEvent::RemovedFromStore { node, datum } => {
                let is_kept = self.is_kept(*node, *datum);
                if is_kept && sim.client(*node).is_some() {
                    return Err(format!("{datum} was delivered to {node} and dropped without being released"));
                }
            }
            SimEvent::Reported { node, event: Event::DatumAvailable { datum, .. } } => {
                self.asked.remove(&(*node, *datum));
                if !sim.has_stored(*node, *datum) && !self.released.contains(&(*node, *datum)) {
                    return Err(format!("{datum} was delivered to {node} but is not in its store"));
                }
                self.given.insert((*node, *datum));
            }
            SimEvent::Reported { node, event: Event::DatumLost { datum, .. } } => {
                self.asked.remove(&(*node, *datum));
                self.lost += 1;
                if self.is_kept(*node, *datum) {
                    return Err(format!("{datum} was delivered to {node} but is now reported lost"));
                }
            }
            SimEvent::Reported { node, event: Event::TaskEnded { report, .. } } if report.outcome.is_ok() => {
                let results = ledger.calls.get(&report.task).into_iter().flatten();
                for datum in results {
                    if !sim.has_stored(*node, *datum) {
                        return Err(format!("the call {} ended without its result {datum}", report.task));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, _: &Simulation, ledger: &Ledger) -> Result<(), String> {
        match self.asked.iter().find(|(node, _)| !ledger.killed.contains(node)) {
            None => Ok(()),
            Some((node, datum)) => Err(format!("{node} requested {datum} and got no answer")),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![("a datum was given", self.given.len() as u64), ("a datum was said to be lost", self.lost)]
    }
}

impl Reported {
    fn is_kept(&self, node: NodeId, datum: DatumId) -> bool {
        self.given.contains(&(node, datum)) && !self.released.contains(&(node, datum))
    }
}
