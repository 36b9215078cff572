//! Links to the other servers: measured one after the other when the agent names them.

use super::*;

impl Server {
    pub(super) fn on_registered(&mut self, now: Time, peers: Vec<(NodeId, String)>, out: &mut Vec<Effect>) {
        self.refused_since = None;
        self.to_probe = peers;
        self.to_probe.truncate(PROBE_PEERS_MAX);
        if self.config.plain {
            self.to_probe.clear();
        }
        self.links_done = false;
        let unconnected: BTreeSet<String> = self
            .to_probe
            .iter()
            .filter(|(node, _)| !self.members.is_up(*node))
            .map(|(_, address)| address.clone())
            .collect();
        out.extend(unconnected.into_iter().map(|address| Effect::Dial { address }));
        self.probe_turn = None;
        self.probe_next(now, out);
        self.links_done_if_so(out);
    }

    pub(super) fn on_probe_step(&mut self, now: Time, peer: NodeId, step: Step, out: &mut Vec<Effect>) {
        match step {
            Step::Send(size_bytes) => out.push(Effect::SendProbe { to: peer, size_bytes }),
            Step::Done(link) => {
                self.tell(Message::LinkMeasured { to: peer, link }, out);
                self.probe_over(now, peer, out);
            }
        }
    }

    pub(super) fn probe_over(&mut self, now: Time, peer: NodeId, out: &mut Vec<Effect>) {
        self.probing.lost(peer);
        self.to_probe.retain(|(node, _)| *node != peer);
        if self.probe_turn == Some(peer) {
            self.probe_turn = None;
        }
        self.probe_next(now, out);
        self.links_done_if_so(out);
    }

    pub(super) fn probe_next(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.probe_turn.is_some() {
            return;
        }
        let next = self.to_probe.iter().map(|(node, _)| *node).find(|node| self.members.is_up(*node));
        if let Some(token) = next.and_then(|node| self.members.ping(now, node)) {
            self.probe_turn = next;
            send(out, next.expect("it was pinged"), Message::Ping { token });
        }
    }

    fn links_done_if_so(&mut self, out: &mut Vec<Effect>) {
        if self.to_probe.is_empty() && !self.links_done {
            self.links_done = true;
            self.tell(Message::LinksDone, out);
        }
    }
}
