//! Links to the other servers: measured when the agent names them, each in its turn.

use super::*;

impl Server {
    pub(super) fn on_registered(&mut self, peers: Vec<(NodeId, String)>, out: &mut Vec<Effect>) {
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
        self.turns_asked.clear();
        self.ask_turns(out);
        self.links_done_if_so(out);
    }

    pub(super) fn on_probe_step(&mut self, peer: NodeId, step: Step, out: &mut Vec<Effect>) {
        match step {
            Step::Send(size_bytes) => out.push(Effect::SendProbe { to: peer, size_bytes }),
            Step::Done(link) => {
                if let Some(agent) = self.agent {
                    send(out, agent, Message::LinkMeasured { to: peer, link });
                }
                self.probe_over(peer, out);
            }
        }
    }

    pub(super) fn probe_over(&mut self, peer: NodeId, out: &mut Vec<Effect>) {
        self.probing.lost(peer);
        self.to_probe.retain(|(node, _)| *node != peer);
        if self.probe_turn == Some(peer) {
            self.probe_turn = None;
        }
        if let (true, Some(agent)) = (self.turns_asked.remove(&peer), self.agent) {
            send(out, agent, Message::TurnOver { to: peer });
        }
        self.links_done_if_so(out);
    }

    /// Asks the agent for a turn with each peer that is connected by now.
    pub(super) fn ask_turns(&mut self, out: &mut Vec<Effect>) {
        let Some(agent) = self.agent else { return };
        for (node, _) in &self.to_probe {
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
            None => self.probe_over(to, out),
        }
    }

    fn links_done_if_so(&mut self, out: &mut Vec<Effect>) {
        if let (Some(agent), true, false) = (self.agent, self.to_probe.is_empty(), self.links_done) {
            self.links_done = true;
            send(out, agent, Message::LinksDone);
        }
    }
}
