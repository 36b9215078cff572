//! A server's store stays within its limit.
//!
//! After every step, the sum of the sizes of its values is at most the limit. So is the size that the server accounts
//! for, including room reserved for incoming data. Exception: while a node is stopped, arguments of plain calls that
//! are sent without a request (at most `EAGER_BYTES_MAX` each) are in its store before it can refuse them; it is
//! checked again when it resumes. Within a step, the store may hold a value that the server drops in the same step.
//!
//! DESIGN.md, 3.

use std::collections::BTreeSet;

use gridloom_base::{NodeId, Time};

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::NodeState;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "stores stay within their bounds",
    about: "the size of a server's store, actual and accounted, is at most its limit after every step",
    new_check: || Box::<StoreBound>::default(),
};

#[derive(Default)]
struct StoreBound {
    /// Servers whose stores have grown since they were last checked.
    grown: BTreeSet<NodeId>,
    evictions: u64,
}

impl InvariantCheck for StoreBound {
    fn observe(&mut self, sim: &Simulation, _: &Ledger, _: Time, event: &SimEvent) -> Result<(), String> {
        match event {
            SimEvent::Stored { node, .. } | SimEvent::SignOfLife { node, .. } if sim.server(*node).is_some() => {
                self.grown.insert(*node);
            }
            SimEvent::Evicted => self.evictions += 1,
            _ => {}
        }
        Ok(())
    }

    fn step(&mut self, sim: &Simulation, ledger: &Ledger) -> Result<(), String> {
        let mut stopped = BTreeSet::new();
        for node in std::mem::take(&mut self.grown) {
            if sim.state(node) != NodeState::Running {
                stopped.insert(node);
                continue;
            }
            let (name, held) = (sim.name(node), sim.stored_bytes(node));
            let bound = ledger.bounds[name];
            let accounted = sim.server(node).map_or(0, |server| server.load().1);
            if held > bound || accounted > bound {
                return Err(format!("'{name}' holds {held} bytes and accounts for {accounted} of {bound}"));
            }
        }
        self.grown = stopped;
        Ok(())
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![("a copy was given up for lack of room", self.evictions)]
    }
}
