//! Links to the other servers: measured when the agent names them, each in its turn, and again when it asks. What comes here is told
//! to the agent, who learns from it.

use super::*;
use crate::base::limits::LINK_QUIET_NS;

impl Server {
    /// `from` maps onto this server: it has these measured, and gives turns.
    pub(super) fn on_registered(&mut self, from: NodeId, mut peers: Vec<(NodeId, String)>, out: &mut Vec<Effect>) {
        self.refused_since = None;
        self.measures_for = Some(from);
        peers.truncate(if self.config.plain { 0 } else { PROBE_PEERS_MAX });
        self.links_done = false;
        let unconnected = peers.iter().filter(|(node, _)| !self.members.is_up(*node));
        let unconnected: BTreeSet<String> = unconnected.map(|(_, address)| address.clone()).collect();
        out.extend(unconnected.into_iter().map(|address| Effect::Dial { address }));
        self.measuring.restart(peers);
        self.ask_turns(out);
        self.links_done_if_so(out);
    }

    pub(super) fn probe_over(&mut self, peer: NodeId, out: &mut Vec<Effect>) {
        self.measuring.end(peer, self.measures_for, out);
        self.links_done_if_so(out);
    }

    pub(super) fn ask_turns(&mut self, out: &mut Vec<Effect>) {
        self.measuring.ask_turns(self.measures_for, &self.members, out);
    }

    pub(super) fn on_turn(&mut self, now: Time, from: NodeId, to: NodeId, is_needed: bool, out: &mut Vec<Effect>) {
        if self.measures_for != Some(from) || !self.measuring.has_asked(to) {
            send(out, from, Message::TurnOver { to });
        } else if !self.measuring.begin(now, to, is_needed, &mut self.members, out) {
            self.probe_over(to, out);
        }
    }

    /// Who has links measured is gone.
    pub(super) fn measurer_lost(&mut self, out: &mut Vec<Effect>) {
        self.measures_for = None;
        self.measuring.restart(Vec::new());
        self.links_done_if_so(out);
    }

    /// Measures a link, unless something moves over it as far as is known here.
    pub(super) fn on_measure_link(
        &mut self,
        now: Time,
        from: NodeId,
        to: NodeId,
        address: String,
        out: &mut Vec<Effect>,
    ) {
        if !self.measuring.is_done() && self.measures_for != Some(from) {
            return;
        }
        self.measures_for = Some(from);
        let is_quiet = self.last_sent.get(&to).is_none_or(|at| now.since(*at) >= LINK_QUIET_NS)
            && !self.awaited.values().any(|awaited| awaited.from == to && awaited.asked);
        let peers = self.measuring.peers();
        let is_known = peers.iter().any(|(node, _)| *node == to);
        if self.config.plain || to == self.config.id || is_known || !is_quiet || peers.len() >= PROBE_PEERS_MAX {
            return;
        }
        if !self.members.is_up(to) {
            out.push(Effect::Dial { address: address.clone() });
        }
        self.measuring.add(to, address);
        self.ask_turns(out);
    }

    /// Remembers to whom data go.
    pub(super) fn sent_to_servers(&mut self, now: Time, effects: &[Effect]) {
        for effect in effects {
            if let Effect::SendDatum { to, .. } = effect
                && self.members.get(*to).is_some_and(|peer| peer.about == Role::Server)
            {
                self.last_sent.insert(*to, now);
            }
        }
    }

    /// A transfer has ended here: the agent and the owner of the datum are told soon, with others.
    pub(super) fn saw_transfer(&mut self, now: Time, report: &TransferReport, out: &mut Vec<Effect>) {
        let TransferReport { from, size_bytes, run_ns: took_ns, .. } = *report;
        if !self.seen.add(now, from, size_bytes, took_ns) {
            return;
        }
        if !std::mem::replace(&mut self.transfers_timer, true) {
            out.push(Effect::SetTimer { timer: TRANSFERS, at: now + RATE_REPORT_NS });
        }
    }

    pub(super) fn report_seen(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.transfers_timer = false;
        let transfers = self.seen.take(now);
        if !transfers.is_empty() {
            self.tell(Message::TransfersSeen { transfers }, out);
        }
        for client in self.transfers.keys().copied().collect::<Vec<_>>() {
            self.report_transfers(now, client, out);
        }
    }

    fn links_done_if_so(&mut self, out: &mut Vec<Effect>) {
        if self.measuring.is_done() && !self.links_done {
            self.links_done = true;
            self.tell(Message::LinksDone, out);
        }
    }
}
