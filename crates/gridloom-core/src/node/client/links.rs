//! The client's own links: probed in turn when a server is first seen, learned from what moves over them, and probed again when
//! they have fallen and nothing moves. What is told of transfers here includes all that cross the client's card.

use super::*;
use crate::base::limits::{LEARN_BYTES_MIN, MEASURE_WAIT_NS_MAX, PROBE_PEERS_MAX};
use crate::node::probing::Step;
use crate::perf::Seen;

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
                let me = self.config.id;
                if self.learned.of(&me, &peer).is_none() {
                    self.learned.met(now, me, peer, link);
                } else {
                    self.learned.probed(now, me, peer, link);
                }
                self.link_changed(now, peer, out);
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

    /// A transfer has ended: it is learned from when those that moved at the same time are known.
    pub(super) fn saw_transfer(&mut self, now: Time, report: &TransferReport, out: &mut Vec<Effect>) {
        let TransferReport { from, to, size_bytes, run_ns, age_ns, .. } = *report;
        if run_ns == 0 || size_bytes < LEARN_BYTES_MIN || ![from, to].contains(&self.config.id) {
            return;
        }
        if to == self.config.id {
            self.received.add(now, from, size_bytes, run_ns);
        }
        let end = now - age_ns;
        let settles = self.learned.saw(now, Seen { from, to, size_bytes, start: end - run_ns, end });
        if !std::mem::replace(&mut self.settling, true) {
            out.push(Effect::SetTimer { timer: SETTLED, at: settles });
        }
    }

    pub(super) fn on_settled(&mut self, now: Time, out: &mut Vec<Effect>) {
        let (changed, again) = self.learned.settle(now);
        self.settling = again.is_some();
        let transfers = self.received.take(now);
        if let Some(agent) = self.agent.filter(|_| !transfers.is_empty()) {
            send(out, agent, Message::TransfersSeen { transfers });
        }
        if let Some(at) = again {
            out.push(Effect::SetTimer { timer: SETTLED, at });
        }
        let peers: BTreeSet<NodeId> =
            changed.into_iter().map(|(from, to)| if from == self.config.id { to } else { from }).collect();
        for peer in peers {
            self.link_changed(now, peer, out);
        }
    }

    /// Plans are made with what is expected of the link now, of its two ways the worse one; those under way that were made
    /// with something else are stale.
    fn link_changed(&mut self, now: Time, peer: NodeId, out: &mut Vec<Effect>) {
        let me = self.config.id;
        let ways = [self.learned.of(&me, &peer), self.learned.of(&peer, &me)].into_iter().flatten();
        let worst = ways.filter_map(|model| Some((model, model.estimate()?)));
        let Some((model, link)) = worst.min_by(|a, b| a.1.bandwidth.total_cmp(&b.1.bandwidth)) else { return };
        let mut stale = Vec::new();
        for (group, run) in &mut self.groups {
            let Some(before) = run.remapping.links.get_mut(&peer) else { continue };
            if let Some(change) = model.change_from(*before) {
                *before *= change;
                stale.push((*group, change));
            }
        }
        self.links.insert(peer, link);
        for (group, change) in stale {
            let name = self.server_name(peer);
            let why = format!("the link to server '{name}' is {change:.2} times as fast as when it was mapped");
            self.on_stale(now, group, &why, out);
        }
    }

    /// Has one of its links probed that has fallen, while there are groups that could use it.
    pub(super) fn probe_fallen(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.groups.is_empty() || !self.to_probe.is_empty() {
            return;
        }
        let me = self.config.id;
        let is_busy = |peer: NodeId| {
            let is_there = |run: &TaskRun| run.status == Status::Sent(peer);
            self.tasks.values().any(is_there) || self.data.values().any(|run| run.fetching == Some(peer))
        };
        let suspects = self.learned.suspects().map(|(from, to)| if *from == me { *to } else { *from });
        let is_idle = |peer: &NodeId| self.members.is_up(*peer) && !is_busy(*peer);
        let due = suspects.filter(is_idle).find(|peer| self.learned.is_due(now, &(me, *peer)));
        if let Some(peer) = due {
            self.learned.ask(now, (me, peer));
            // Nobody waits for it.
            self.waited_for_links = true;
            self.to_probe.push(peer);
            self.ask_turns(out);
        }
    }
}
