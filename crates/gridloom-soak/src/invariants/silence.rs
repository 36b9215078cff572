//! A silent peer is noticed, and a slow one is not considered dead.
//!
//! *Noticed*: a node that has received nothing from a peer for `SILENCE_NS_MAX` and two heartbeats has closed the
//! connection. If a node's own heartbeat is more than three intervals late, the node itself was stopped and the count
//! restarts. *Not considered dead*: a node closes a connection for silence only after `SILENCE_NS_MAX`. In that time
//! the peer was stopped or gone, or the route to or from it was lost, or the peer has forgotten the connection. An
//! agent also closes the connection of a server if another server was started at its address. A server that waits for shared
//! data from another server disconnects from that server after `SOURCE_PINGS_MAX` heartbeats without an answer if other
//! servers have the data.
//!
//! DESIGN.md, 4.

use std::collections::BTreeMap;

use gridloom_base::limits::{HEARTBEAT_NS, SILENCE_NS_MAX, SOURCE_PINGS_MAX};
use gridloom_base::{NodeId, Time};
use gridloom_core::node::Role;

use super::{Invariant, InvariantCheck};
use crate::ledger::Ledger;
use gridloom_sim::Simulation;
use gridloom_sim::inspect::NodeState;
use gridloom_sim::inspect::SimEvent;

pub(crate) const INVARIANT: Invariant = Invariant {
    name: "silence is noticed, slowness is not death",
    about: "a peer silent for 12 s is considered lost; one reachable in the last 10 s (2 s for shared data) is not",
    new_check: || Box::<Silence>::default(),
};

#[derive(Default)]
struct Silence {
    heard: BTreeMap<(NodeId, NodeId), Time>,
    /// Time of the last heartbeat of each node, or of its first connection.
    beats: BTreeMap<NodeId, Time>,
    /// Time from which each node counts silence.
    since: BTreeMap<NodeId, Time>,
    noticed: u64,
}

impl InvariantCheck for Silence {
    fn observe(&mut self, sim: &Simulation, _: &Ledger, at: Time, event: &SimEvent) -> Result<(), String> {
        match *event {
            SimEvent::Up { node, peer } | SimEvent::SignOfLife { node, from: peer } => {
                self.beats.entry(node).or_insert(at);
                self.heard.insert((node, peer), at);
                Ok(())
            }
            SimEvent::Heartbeat { node } => self.on_beat(sim, at, node),
            SimEvent::HungUp { node, peer } => self.on_hung_up(sim, at, node, peer),
            _ => Ok(()),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![("a silent peer was given up", self.noticed)]
    }
}

impl Silence {
    fn on_beat(&mut self, sim: &Simulation, at: Time, node: NodeId) -> Result<(), String> {
        if self.beats.insert(node, at).is_some_and(|last| at.since(last) > 3 * HEARTBEAT_NS) {
            self.since.insert(node, at);
        }
        let since = self.since.get(&node).copied().unwrap_or(Time::ZERO);
        for peer in sim.peers(node) {
            let Some(heard) = self.heard.get(&(node, peer)) else { continue };
            let silence_ns = at.since(since.max(*heard));
            if silence_ns > SILENCE_NS_MAX + 2 * HEARTBEAT_NS {
                return Err(format!("{node} has received nothing from {peer} for {silence_ns} ns and has not noticed"));
            }
        }
        Ok(())
    }

    fn on_hung_up(&mut self, sim: &Simulation, at: Time, node: NodeId, peer: NodeId) -> Result<(), String> {
        let heir = sim.listener(sim.address(peer));
        if heir.is_some_and(|heir| heir != peer) {
            return Ok(());
        }
        let silence_ns = at.since(self.heard.get(&(node, peer)).copied().unwrap_or(Time::ZERO));
        // A server disconnects earlier from a silent server that should send it shared data.
        let are_servers = [node, peer].iter().all(|node| sim.role(*node) == Role::Server);
        let least_ns = if are_servers { u64::from(SOURCE_PINGS_MAX) * HEARTBEAT_NS } else { SILENCE_NS_MAX };
        if silence_ns <= least_ns {
            return Err(format!("{node} gives up {peer} after {silence_ns} ns"));
        }
        self.noticed += 1;
        let recent = |when: Time| when != Time::ZERO && at.since(when) <= SILENCE_NS_MAX + 2 * HEARTBEAT_NS;
        let lost = |from: NodeId, to: NodeId| {
            let (from, to) = (sim.host(from), sim.host(to));
            sim.is_lost(from, to) || sim.healed(from, to).is_some_and(recent)
        };
        let was_away = sim.state(peer) != NodeState::Running || recent(sim.resumed(peer));
        let has_forgotten = !sim.is_connected(peer, node);
        if was_away || has_forgotten || lost(node, peer) || lost(peer, node) {
            return Ok(());
        }
        Err(format!("{node} gives up {peer}, which was running and reachable"))
    }
}
