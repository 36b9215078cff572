//! A stateless server keeps nothing and communicates with clients only. When it has no call, its store is empty. No
//! datum moves between it and another server, and nothing on it gets a shared name.
//!
//! See `--plain` on the page of `serve`.

use std::collections::BTreeSet;

use gridloom_base::{NodeId, Time};

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::NodeState;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "plain servers keep nothing",
    about: "a stateless server without a call holds no datum, and exchanges data with clients only",
    new_check: || Box::<PlainServers>::default(),
};

#[derive(Default)]
struct PlainServers {
    /// Stateless servers that have changed since they were last checked.
    changed: BTreeSet<NodeId>,
    calls: u64,
    results: u64,
}

impl InvariantCheck for PlainServers {
    fn observe(&mut self, sim: &Simulation, ledger: &Ledger, _: Time, event: &SimEvent) -> Result<(), String> {
        if ledger.plain.is_empty() {
            return Ok(());
        }
        let is_plain = |node: NodeId| ledger.plain.contains(sim.name(node));
        let is_server = |node: NodeId| sim.server(node).is_some();
        match event {
            SimEvent::Arrived { node, from, datum } if is_plain(*node) || is_plain(*from) => {
                if is_server(*node) && is_server(*from) {
                    return Err(format!(
                        "{datum} was sent from server {from} to server {node}, one of which is stateless"
                    ));
                }
                self.changed.insert(*node);
                self.results += u64::from(is_plain(*from) && !ledger.call_results.contains(datum));
            }
            SimEvent::Stored { node, datum, .. } if is_plain(*node) && datum.is_shared() => {
                return Err(format!("stateless server {node} has the shared datum {datum}"));
            }
            SimEvent::Started { node, task } if is_plain(*node) => {
                self.calls += u64::from(!ledger.calls.contains_key(&task.id));
            }
            SimEvent::Ended { node, .. } | SimEvent::SignOfLife { node, .. } if is_plain(*node) => {
                self.changed.insert(*node);
            }
            _ => {}
        }
        Ok(())
    }

    fn step(&mut self, sim: &Simulation, ledger: &Ledger) -> Result<(), String> {
        for node in std::mem::take(&mut self.changed).into_iter().filter(|node| sim.server(*node).is_some()) {
            let (calls, counted) = sim.server(node).map_or((0, 0), |server| server.load());
            let (name, held) = (sim.name(node), sim.stored_bytes(node));
            let is_judged = sim.state(node) == NodeState::Running && ledger.plain.contains(name) && calls == 0;
            if is_judged && held + counted > 0 {
                return Err(format!(
                    "stateless server '{name}' holds {held} bytes without a call, and accounts for {counted}"
                ));
            }
        }
        Ok(())
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("a call of a group ran on a plain server", self.calls),
            ("a result came home from a plain server", self.results),
        ]
    }
}
