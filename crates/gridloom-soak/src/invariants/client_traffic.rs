//! No bulk datum is sent to a client unless its program requested it there. Exceptions: results of plain calls; data
//! that a server requested from the client because it cannot get them elsewhere (the client is the relay); data for
//! which a server has no room; and results of a stateless server. A relay has a reason: a stateless server, a fault,
//! or a source that evicted its copy for lack of room.
//!
//! DESIGN.md, 2.

use std::collections::BTreeSet;

use gridloom_base::{DatumId, NodeId, Time};
use gridloom_core::node::Client;

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "no bulk data through the client",
    about: "a client receives only requested data, results of calls, and data that a server can get nowhere else",
    new_check: || Box::<ClientTraffic>::default(),
};

#[derive(Default)]
struct ClientTraffic {
    wanted: BTreeSet<DatumId>,
    /// Data requested by a server.
    relayed: BTreeSet<DatumId>,
    fetched: BTreeSet<DatumId>,
    /// Clients that were asked for a copy and notified in the same step that its call was over, so that the copied
    /// datum is not known.
    unknown_copies: BTreeSet<NodeId>,
    /// Name queries whose data the program requests.
    questions: BTreeSet<(NodeId, u64)>,
    /// Clients that were notified of a failed source.
    told: BTreeSet<NodeId>,
    supplies_failed: u64,
    passed_on: u64,
    /// Data for which a server has no room.
    roomless: BTreeSet<DatumId>,
}

impl InvariantCheck for ClientTraffic {
    fn observe(&mut self, sim: &Simulation, ledger: &Ledger, _: Time, event: &SimEvent) -> Result<(), String> {
        match *event {
            SimEvent::Requests { datum, .. } => {
                self.wanted.insert(datum);
            }
            SimEvent::RequestsByName { node, ask } => _ = self.questions.insert((node, ask)),
            SimEvent::Found { node, ask, datum } if self.questions.contains(&(node, ask)) => {
                self.wanted.insert(datum);
            }
            SimEvent::MakeRoom { ref data } => self.roomless.extend(data),
            SimEvent::SupplyFailed { node } => {
                self.supplies_failed += 1;
                self.told.insert(node);
            }
            SimEvent::FetchRequested { node, datum } if sim.client(node).is_some() => {
                if sim.has_stored(node, datum) {
                    return Ok(());
                }
                // A stateless server requests copies under names of its own.
                let copied = sim.client(node).and_then(|client| client.copied(datum));
                if copied.is_none() && Client::is_copy(datum) {
                    self.unknown_copies.insert(node);
                }
                self.relayed.insert(copied.unwrap_or(datum));
            }
            SimEvent::FetchSent { node, from, datum } if sim.client(node).is_some() => {
                let has_reason =
                    !ledger.plain.is_empty() || !ledger.damage.struck().is_empty() || self.told.contains(&node);
                let is_relayed = has_reason && self.relayed.contains(&datum);
                let is_relayed = is_relayed || self.unknown_copies.contains(&node);
                if !self.wanted.contains(&datum) && !is_relayed && !self.roomless.contains(&datum) {
                    return Err(format!(
                        "client {node} fetches {datum} from {from}, which its program did not request, and has no \
                        reason to relay it"
                    ));
                }
                self.fetched.insert(datum);
            }
            SimEvent::Arrived { node, from, datum }
                if sim.client(node).is_some()
                    && !self.fetched.contains(&datum)
                    && !ledger.plain.contains(sim.name(from))
                    && !ledger.call_results.contains(&datum) =>
            {
                return Err(format!("{datum} was sent from {from} to client {node}, which did not fetch it"));
            }
            SimEvent::Forwards => self.passed_on += 1,
            _ => {}
        }
        Ok(())
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        let relayed = self.relayed.iter().filter(|datum| self.fetched.contains(datum)).count();
        vec![
            ("a client relayed a datum", relayed as u64),
            ("a source failed", self.supplies_failed),
            ("a server passed on what came to it", self.passed_on),
            ("a client took a result for which a server had no room", self.roomless.len() as u64),
        ]
    }
}
