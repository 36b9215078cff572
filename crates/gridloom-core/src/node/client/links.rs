//! The client's own links: probed in turn when a server is first seen, refined by what moves over them.

use super::*;
use crate::base::limits::{MEASURE_WAIT_NS_MAX, PROBE_PEERS_MAX};
use crate::node::probing::Step;

/// Smaller transfers say more of latency than of bandwidth.
const LEARN_BYTES_MIN: u64 = 1 << 20;

impl Client {
    pub(super) fn probe_new_servers(&mut self, out: &mut Vec<Effect>) {
        let new: Vec<(NodeId, String)> = self
            .grid
            .servers
            .iter()
            .filter(|server| !self.probed.contains(&server.node))
            .map(|server| (server.node, server.address.clone()))
            .collect();
        for (node, address) in new {
            if self.probed.len() >= PROBE_PEERS_MAX {
                break;
            }
            self.probed.insert(node);
            self.waited_for_links = false;
            self.to_probe.push(node);
            if !self.members.is_up(node) {
                out.push(Effect::Dial { address });
            }
        }
        self.ask_turns(out);
    }

    /// Asks the agent for a turn with each server that is connected by now: probes that share a card disturb each other.
    pub(super) fn ask_turns(&mut self, out: &mut Vec<Effect>) {
        let Some(agent) = self.agent else { return };
        for node in &self.to_probe {
            if self.members.is_up(*node) && self.turns_asked.insert(*node) {
                send(out, agent, Message::AskTurn { to: *node });
            }
        }
    }

    pub(super) fn on_turn(&mut self, now: Time, to: NodeId, is_needed: bool, out: &mut Vec<Effect>) {
        if !self.turns_asked.contains(&to) {
            if let Some(agent) = self.agent {
                send(out, agent, Message::TurnOver { to });
            }
            return;
        }
        match self.members.ping(now, to).filter(|_| is_needed) {
            Some(token) => {
                self.probe_turn = Some(to);
                send(out, to, Message::Ping { token });
            }
            None => self.probe_over(now, to, out),
        }
    }

    /// Whether groups can be mapped with knowledge of the links.
    pub(super) fn links_known(&self) -> bool {
        self.to_probe.is_empty() || self.waited_for_links
    }

    pub(super) fn wait_for_links(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer { timer: LINKS, at: now + MEASURE_WAIT_NS_MAX });
    }

    /// The links were given time enough: groups are mapped with what is known. Measuring goes on.
    pub(super) fn on_links_timer(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.waited_for_links = true;
        if let Some(peer) = self.probe_turn
            && let Some(link) = self.probing.estimate(now, peer)
        {
            self.links.entry(peer).or_insert(link);
        }
        // Those whose turn has not come wait behind a slow one; they are taken to be no better than the worst known.
        let worst = self.links.values().copied().min_by(|a, b| a.bandwidth.total_cmp(&b.bandwidth));
        if let Some(worst) = worst {
            for node in &self.to_probe {
                self.links.entry(*node).or_insert(worst);
            }
        }
        self.map_waiting(now, out);
    }

    pub(super) fn on_pong(&mut self, now: Time, from: NodeId, token: u64, out: &mut Vec<Effect>) {
        if let Some(rtt_ns) = self.members.pong(now, from, token)
            && self.probe_turn == Some(from)
            && !self.probing.is_probing(from)
        {
            let step = self.probing.begin(now, from, rtt_ns);
            self.on_step(now, from, step, out);
        }
    }

    pub(super) fn on_probe_arrived(&mut self, now: Time, from: NodeId, size_bytes: u64, out: &mut Vec<Effect>) {
        if let Some(step) = self.probing.arrived(now, from, size_bytes) {
            self.on_step(now, from, step, out);
        }
    }

    fn on_step(&mut self, now: Time, peer: NodeId, step: Step, out: &mut Vec<Effect>) {
        match step {
            Step::Send(size_bytes) => out.push(Effect::SendProbe { to: peer, size_bytes }),
            Step::Done(link) => {
                self.links.insert(peer, link);
                self.probe_over(now, peer, out);
            }
        }
    }

    pub(super) fn probe_over(&mut self, now: Time, peer: NodeId, out: &mut Vec<Effect>) {
        self.probing.lost(peer);
        self.to_probe.retain(|node| *node != peer);
        if self.probe_turn == Some(peer) {
            self.probe_turn = None;
        }
        if let (true, Some(agent)) = (self.turns_asked.remove(&peer), self.agent) {
            send(out, agent, Message::TurnOver { to: peer });
        }
        if self.to_probe.is_empty() {
            self.map_waiting(now, out);
        }
    }

    pub(super) fn learn_link(&mut self, peer: NodeId, size_bytes: u64, took_ns: u64) {
        if size_bytes < LEARN_BYTES_MIN || took_ns == 0 {
            return;
        }
        if let Some(link) = self.links.get_mut(&peer) {
            let measured = size_bytes as f64 / ns_to_seconds(took_ns);
            link.bandwidth += 0.5 * (measured - link.bandwidth);
        }
    }
}
