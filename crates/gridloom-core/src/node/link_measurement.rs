//! Links that a node has yet to measure, each in its turn. Probes that share a network interface disturb each other,
//! so the mapper grants turns: at a time, one out of a host and one into it.
//!
//! ```text
//! node                              mapper
//!   | AskTurn ------------------------->|   once the peer is connected
//!   |<--------------------------- Turn  |   the link is measured (`probing`), if that is still needed
//!   | TurnOver ------------------------>|   measured, or the peer is gone
//! ```
//!
//! **Invariant:** a requested turn is ended, unless the mapper was lost. The owner decides what to do with a
//! measurement: the client learns from it, a server reports it.

use std::collections::BTreeSet;

use super::message::{LinkMessage, LinkToAgent};
use super::probing::{Measurement, Probing, Step};
use super::protocol::{Effect, Role};
use crate::member::Members;
use gridloom_base::limits::{PROBE_PEERS_LARGE, PROBE_PEERS_MAX, SERVERS_MAPPED_ALL_MAX};
use gridloom_base::{NodeId, Time};
use gridloom_perf::LinkEstimate;

/// Number of pings before the first probe. With a single ping, a delay by a busy processor would make the link look
/// too fast, because its round trip is subtracted from the probe's time.
const PINGS: u32 = 3;

/// Returns the number of peers that a new node measures in a grid of that many servers.
pub(super) fn peers_to_measure(servers: usize) -> usize {
    if servers > SERVERS_MAPPED_ALL_MAX { PROBE_PEERS_LARGE } else { PROBE_PEERS_MAX }
}

/// The links to measure, and the measurement in progress.
#[derive(Debug, Default)]
pub struct LinkMeasurement {
    /// Peers whose links are to be measured, in order, with their addresses.
    peers: Vec<(NodeId, String)>,
    /// Peers for which a turn was requested.
    requested: BTreeSet<NodeId>,
    /// Peers that are measured while no other link is.
    alone: BTreeSet<NodeId>,
    /// The peer whose turn it is.
    current: Option<NodeId>,
    /// Time at which its turn began.
    began: Time,
    /// Number of pings that the peer still has to answer before the last one.
    pings: u32,
    probing: Probing,
}

impl LinkMeasurement {
    /// Replaces the links to measure. Turns that were requested before are void.
    pub fn restart(&mut self, peers: Vec<(NodeId, String)>) {
        self.peers = peers;
        self.alone.clear();
        self.current = None;
        self.forget_turns();
    }

    /// Adds a link to measure.
    pub fn add(&mut self, peer: NodeId, address: String) {
        self.peers.push((peer, address));
    }

    /// Adds a link to measure while no other link is measured.
    pub fn add_alone(&mut self, peer: NodeId, address: String) {
        self.alone.insert(peer);
        self.add(peer, address);
    }

    /// Returns the peers whose links are to be measured, with their addresses.
    pub fn peers(&self) -> &[(NodeId, String)] {
        &self.peers
    }

    /// True if all links are measured.
    pub fn is_done(&self) -> bool {
        self.peers.is_empty()
    }

    /// Forgets the requested turns, because the mapper that grants turns is lost.
    pub fn forget_turns(&mut self) {
        self.requested.clear();
    }

    /// Requests a turn for each connected peer.
    pub fn request_turns(&mut self, giver: Option<NodeId>, members: &Members<Role>, out: &mut Vec<Effect>) {
        let Some(giver) = giver else { return };
        for (peer, _) in &self.peers {
            if members.is_up(*peer) && self.requested.insert(*peer) {
                out.push(Effect::Send { to: giver, message: LinkToAgent::RequestTurn { to: *peer }.into() });
            }
        }
    }

    /// True if a turn for the peer was requested and is not over.
    pub fn has_requested(&self, peer: NodeId) -> bool {
        self.requested.contains(&peer)
    }

    /// Starts the turn for a peer. Returns false if there is nothing to measure; the caller then ends the turn.
    pub fn begin(
        &mut self,
        now: Time,
        peer: NodeId,
        is_needed: bool,
        members: &mut Members<Role>,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(token) = members.ping(now, peer).filter(|_| is_needed) else { return false };
        self.current = Some(peer);
        self.began = now;
        self.pings = PINGS - 1;
        out.push(Effect::Send { to: peer, message: LinkMessage::Ping { token }.into() });
        true
    }

    /// Handles the answer to a ping; `rtt_ns` is the least round trip. If it is the peer's turn, pings it again or
    /// starts to probe it.
    pub fn answered(
        &mut self,
        now: Time,
        (peer, rtt_ns): (NodeId, u64),
        members: &mut Members<Role>,
        out: &mut Vec<Effect>,
    ) {
        if self.current != Some(peer) || self.probing.is_probing(peer) {
            return;
        }
        let again = if self.pings > 0 { members.ping(now, peer) } else { None };
        if let Some(token) = again {
            self.pings -= 1;
            out.push(Effect::Send { to: peer, message: LinkMessage::Ping { token }.into() });
        } else {
            let step = self.probing.begin(now, peer, rtt_ns, self.alone.contains(&peer));
            next(peer, step, out);
        }
    }

    /// Handles the arrival of a probe at a peer. Returns the estimate if the probe was the last one. If the node `has_data` to
    /// send and the link is measured alone, every probe is the last one, because another would delay the data.
    pub fn probe_arrived(
        &mut self,
        now: Time,
        peer: NodeId,
        size_bytes: u64,
        has_data: bool,
        out: &mut Vec<Effect>,
    ) -> Option<Measurement> {
        let step = self.probing.probe_arrived(now, peer, size_bytes, has_data)?;
        next(peer, step, out)
    }

    /// Returns the time at which the last turn began.
    pub fn began(&self) -> Time {
        self.began
    }

    /// Returns the peer whose turn it is, and the current estimate of its link.
    pub fn estimate(&self, now: Time) -> Option<(NodeId, LinkEstimate)> {
        let peer = self.current?;
        Some((peer, self.probing.estimate(now, peer)?))
    }

    /// Ends the turn for a peer whose link is measured, no longer needs measuring, or cannot be measured.
    pub fn end(&mut self, peer: NodeId, giver: Option<NodeId>, out: &mut Vec<Effect>) {
        self.probing.lost(peer);
        self.peers.retain(|(node, _)| *node != peer);
        self.alone.remove(&peer);
        if self.current == Some(peer) {
            self.current = None;
        }
        if let (true, Some(giver)) = (self.requested.remove(&peer), giver) {
            out.push(Effect::Send { to: giver, message: LinkToAgent::TurnOver { to: peer }.into() });
        }
    }
}

fn next(peer: NodeId, step: Step, out: &mut Vec<Effect>) -> Option<Measurement> {
    match step {
        Step::Send(size_bytes) => {
            out.push(Effect::SendProbe { to: peer, size_bytes });
            None
        }
        Step::Done(measurement) => Some(measurement),
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Message;
    use super::*;

    const AGENT: NodeId = NodeId(1);
    const PEER: NodeId = NodeId(2);

    fn sent(out: &[Effect], message: LinkToAgent) -> bool {
        let message = &Message::from(message);
        out.iter().any(|effect| matches!(effect, Effect::Send { to, message: sent } if *to == AGENT && sent == message))
    }

    /// Returns a machine with a connected peer for which a turn was requested.
    fn asked() -> (LinkMeasurement, Members<Role>) {
        let (mut measuring, mut members, mut out) = (LinkMeasurement::default(), Members::default(), Vec::new());
        measuring.add(PEER, "there:1".into());
        measuring.request_turns(Some(AGENT), &members, &mut out);
        assert_eq!(out, [], "it is not connected yet");
        members.add(Time(0), PEER, Role::Server);
        measuring.request_turns(None, &members, &mut out);
        assert_eq!(out, [], "no mapper is known");
        for _ in 0..2 {
            measuring.request_turns(Some(AGENT), &members, &mut out);
        }
        assert_eq!(out, [Effect::Send { to: AGENT, message: LinkToAgent::RequestTurn { to: PEER }.into() }]);
        (measuring, members)
    }

    #[test]
    fn a_turn_is_measured_and_ended() {
        let (mut measuring, mut members) = asked();
        let mut out = Vec::new();
        measuring.answered(Time(5), (PEER, 2_000_000), &mut members, &mut out);
        assert_eq!(out, [], "it is not its turn");
        assert!(measuring.begin(Time(10), PEER, true, &mut members, &mut out));
        for _ in 0..PINGS {
            let ping = out.pop();
            assert!(matches!(ping, Some(Effect::Send { to: PEER, .. })), "{ping:?}");
            measuring.answered(Time(10), (PEER, 2_000_000), &mut members, &mut out);
        }
        let mut now = 10;
        let link = loop {
            let Some(Effect::SendProbe { to: PEER, size_bytes }) = out.pop() else { panic!("no probe: {out:?}") };
            now += 2_000_000 + size_bytes * 1000;
            let measurement = measuring.probe_arrived(Time(now), PEER, size_bytes, false, &mut out);
            if let Some(Measurement::Measured(link)) = measurement {
                break link;
            }
        };
        assert!((link.bandwidth / 1e6 - 1.0).abs() < 0.01, "{link:?}");
        measuring.end(PEER, Some(AGENT), &mut out);
        assert!(
            sent(&out, LinkToAgent::TurnOver { to: PEER }) && measuring.is_done() && !measuring.has_requested(PEER)
        );
    }

    #[test]
    fn a_turn_that_is_not_needed_ends_at_once() {
        let (mut measuring, mut members) = asked();
        let mut out = Vec::new();
        assert!(!measuring.begin(Time(1), PEER, false, &mut members, &mut out));
        assert_eq!((out.as_slice(), measuring.estimate(Time(2))), (&[][..], None));
    }

    #[test]
    fn turns_are_requested_again_from_a_new_mapper() {
        let (mut measuring, members) = asked();
        measuring.forget_turns();
        let mut out = Vec::new();
        measuring.request_turns(Some(AGENT), &members, &mut out);
        assert!(sent(&out, LinkToAgent::RequestTurn { to: PEER }));
    }
}
