//! The client's own links: probed in turn when a server is first seen, learned from what moves over them, and probed again when
//! they have fallen and nothing moves. What is told of transfers here includes all that cross the client's card.

use super::*;
use crate::base::limits::{LEARN_BYTES_MIN, MEASURE_WAIT_NS_MAX, PROBE_PEERS_MAX};
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
            if !self.members.is_up(node) {
                out.push(Effect::Dial { address: address.clone() });
            }
            self.measuring.add(node, address);
        }
        self.ask_turns(out);
    }

    pub(super) fn ask_turns(&mut self, out: &mut Vec<Effect>) {
        self.measuring.ask_turns(self.agent, &self.members, out);
    }

    pub(super) fn on_turn(&mut self, now: Time, to: NodeId, is_needed: bool, out: &mut Vec<Effect>) {
        if !self.measuring.has_asked(to) {
            if let Some(agent) = self.agent {
                send(out, agent, Message::TurnOver { to });
            }
        } else if !self.measuring.begin(now, to, is_needed, &mut self.members, out) {
            self.probe_over(now, to, out);
        }
    }

    /// Whether groups can be mapped with knowledge of the links.
    pub(super) fn links_known(&self) -> bool {
        self.measuring.is_done() || self.waited_for_links
    }

    pub(super) fn wait_for_links(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer { timer: LINKS, at: now + MEASURE_WAIT_NS_MAX });
    }

    /// The links were given time enough: groups are mapped with what is known. Measuring goes on.
    pub(super) fn on_links_timer(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.waited_for_links = true;
        if let Some((peer, link)) = self.measuring.estimate(now) {
            self.links.entry(peer).or_insert(link);
        }
        // Those whose turn has not come wait behind a slow one; they are taken to be no better than the worst known.
        let worst = self.links.values().copied().min_by(|a, b| a.bandwidth.total_cmp(&b.bandwidth));
        if let Some(worst) = worst {
            for (node, _) in self.measuring.peers() {
                self.links.entry(*node).or_insert(worst);
            }
        }
        self.map_waiting(now, out);
    }

    pub(super) fn on_pong(&mut self, now: Time, from: NodeId, token: u64, out: &mut Vec<Effect>) {
        if let Some(rtt_ns) = self.members.pong(now, from, token) {
            self.measuring.answered(now, from, rtt_ns, out);
        }
    }

    pub(super) fn on_probe_arrived(&mut self, now: Time, from: NodeId, size_bytes: u64, out: &mut Vec<Effect>) {
        let Some(link) = self.measuring.probe_arrived(now, from, size_bytes, out) else { return };
        let me = self.config.id;
        if self.learned.of(&me, &from).is_none() {
            self.learned.met(now, me, from, link);
        } else {
            self.learned.probed(now, me, from, link);
        }
        self.link_changed(now, from, out);
        self.probe_over(now, from, out);
    }

    pub(super) fn probe_over(&mut self, now: Time, peer: NodeId, out: &mut Vec<Effect>) {
        self.measuring.end(peer, self.agent, out);
        if self.measuring.is_done() {
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
        if self.groups.is_empty() || !self.measuring.is_done() {
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
            self.measuring.add(peer, self.addresses.get(&peer).cloned().unwrap_or_default());
            self.ask_turns(out);
        }
    }
}
