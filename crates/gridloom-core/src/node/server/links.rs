//! Links to the other servers. Each is measured in its turn when the agent names it, and again when the agent requests that.
//!
//! Updates for the agent are returned; the server sends them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ServerConfig, send};
use crate::member::Members;
use crate::node::link_measurement::LinkMeasurement;
use crate::node::message::LinkToAgent;
use crate::node::probing::Measurement;
use crate::node::protocol::{Effect, Role};
use gridloom_base::limits::{LINK_QUIET_NS, PROBE_PEERS_MAX};
use gridloom_base::{NodeId, Time};

#[derive(Debug)]
pub(super) struct Links {
    config: Arc<ServerConfig>,
    measuring: LinkMeasurement,
    /// The node that named the links to measure: the agent, or a client that maps by itself.
    measures_for: Option<NodeId>,
    /// The agent was notified that all links are measured.
    done_is_reported: bool,
    /// Time at which data were last sent to each other server.
    last_sent: BTreeMap<NodeId, Time>,
}

impl Links {
    pub(super) fn new(config: Arc<ServerConfig>) -> Links {
        Links {
            config,
            measuring: LinkMeasurement::default(),
            measures_for: None,
            done_is_reported: false,
            last_sent: BTreeMap::new(),
        }
    }

    /// Starts measuring the links that `from` requests. `from` maps onto this server and grants the turns.
    pub(super) fn registered(
        &mut self,
        from: NodeId,
        mut peers: Vec<(NodeId, String)>,
        members: &Members<Role>,
        out: &mut Vec<Effect>,
    ) -> Option<LinkToAgent> {
        self.measures_for = Some(from);
        peers.truncate(if self.config.is_stateless { 0 } else { PROBE_PEERS_MAX });
        self.done_is_reported = false;
        let unconnected = peers.iter().filter(|(node, _)| !members.is_up(*node));
        let unconnected: BTreeSet<String> = unconnected.map(|(_, address)| address.clone()).collect();
        out.extend(unconnected.into_iter().map(|address| Effect::Dial { address }));
        self.measuring.restart(peers);
        self.ask_turns(members, out);
        self.report_done()
    }

    pub(super) fn ask_turns(&mut self, members: &Members<Role>, out: &mut Vec<Effect>) {
        self.measuring.request_turns(self.measures_for, members, out);
    }

    pub(super) fn turn(
        &mut self,
        now: Time,
        from: NodeId,
        to: NodeId,
        is_needed: bool,
        members: &mut Members<Role>,
        out: &mut Vec<Effect>,
    ) -> Option<LinkToAgent> {
        if self.measures_for != Some(from) || !self.measuring.has_requested(to) {
            send(out, from, LinkToAgent::TurnOver { to });
            return None;
        }
        if self.measuring.begin(now, to, is_needed, members, out) { None } else { self.end(to, out) }
    }

    pub(super) fn answered(
        &mut self,
        now: Time,
        answer: (NodeId, u64),
        members: &mut Members<Role>,
        out: &mut Vec<Effect>,
    ) {
        self.measuring.answered(now, answer, members, out);
    }

    /// Handles the arrival of a probe at a peer. Returns the estimate if the probe was the last one.
    pub(super) fn probe_arrived(
        &mut self,
        now: Time,
        from: NodeId,
        size_bytes: u64,
        out: &mut Vec<Effect>,
    ) -> Option<Measurement> {
        let began = self.measuring.began();
        let has_data = self.last_sent.values().any(|at| *at >= began);
        self.measuring.probe_arrived(now, from, size_bytes, has_data, out)
    }

    /// Ends the turn for a link that is measured or cannot be measured.
    pub(super) fn end(&mut self, peer: NodeId, out: &mut Vec<Effect>) -> Option<LinkToAgent> {
        self.measuring.end(peer, self.measures_for, out);
        self.report_done()
    }

    pub(super) fn peer_lost(&mut self, peer: NodeId, out: &mut Vec<Effect>) -> Option<LinkToAgent> {
        self.last_sent.remove(&peer);
        self.end(peer, out)
    }

    /// Stops all measurements if the lost peer requested them.
    pub(super) fn measurer_lost(&mut self, peer: NodeId) -> Option<LinkToAgent> {
        if self.measures_for != Some(peer) {
            return None;
        }
        self.measures_for = None;
        self.measuring.restart(Vec::new());
        self.report_done()
    }

    /// Measures a link, unless this server knows of a transfer over it. `is_awaited`: data from that server are awaited.
    pub(super) fn measure(
        &mut self,
        now: Time,
        from: NodeId,
        (to, address): (NodeId, String),
        is_awaited: bool,
        members: &Members<Role>,
        out: &mut Vec<Effect>,
    ) {
        if !self.measuring.is_done() && self.measures_for != Some(from) {
            return;
        }
        self.measures_for = Some(from);
        let is_quiet = !is_awaited && self.last_sent.get(&to).is_none_or(|at| now.since(*at) >= LINK_QUIET_NS);
        let peers = self.measuring.peers();
        let is_known = peers.iter().any(|(node, _)| *node == to);
        if self.config.is_stateless || to == self.config.id || is_known || !is_quiet || peers.len() >= PROBE_PEERS_MAX {
            return;
        }
        if !members.is_up(to) {
            out.push(Effect::Dial { address: address.clone() });
        }
        self.measuring.add_alone(to, address);
        self.ask_turns(members, out);
    }

    /// Returns the servers to measure at an address that cannot be reached.
    pub(super) fn unreachable(&self, address: &str, members: &Members<Role>) -> Vec<NodeId> {
        let is_there = |(node, known): &&(NodeId, String)| known == address && !members.is_up(*node);
        self.measuring.peers().iter().filter(is_there).map(|(node, _)| *node).collect()
    }

    /// Records the servers to which data are sent.
    pub(super) fn sent(&mut self, now: Time, effects: &[Effect], members: &Members<Role>) {
        for effect in effects {
            if let Effect::SendDatum { to, .. } = effect
                && members.get(*to).is_some_and(|peer| peer.data == Role::Server)
            {
                self.last_sent.insert(*to, now);
            }
        }
    }

    fn report_done(&mut self) -> Option<LinkToAgent> {
        let is_news = self.measuring.is_done() && !self.done_is_reported;
        self.done_is_reported |= is_news;
        is_news.then_some(LinkToAgent::LinksDone)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.measures_for.is_none() && !self.measuring.is_done() {
            return Err("links wait to be measured, but no node grants turns".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::server::tests::offering_nothing;

    const AGENT: NodeId = NodeId(2);
    const OTHER: NodeId = NodeId(3);

    #[test]
    fn completion_is_reported_once() {
        let (mut links, mut members) = (Links::new(Arc::new(offering_nothing())), Members::default());
        let mut out = Vec::new();
        assert_eq!(links.registered(AGENT, vec![(OTHER, "there:1".into())], &members, &mut out), None);
        assert_eq!(out, [Effect::Dial { address: "there:1".into() }]);
        members.add(Time(0), OTHER, Role::Server);
        links.ask_turns(&members, &mut out);
        assert_eq!(links.turn(Time(1), AGENT, OTHER, false, &mut members, &mut out), Some(LinkToAgent::LinksDone));
        assert_eq!(links.peer_lost(OTHER, &mut out), None);
        links.check().unwrap();
    }

    #[test]
    fn a_measurement_ends_when_data_are_sent() {
        let sent_by = |sends: bool| {
            let (mut links, mut members) = (Links::new(Arc::new(offering_nothing())), Members::default());
            let mut out = Vec::new();
            members.add(Time(0), OTHER, Role::Server);
            links.measure(Time(1), AGENT, (OTHER, "there:1".into()), false, &members, &mut out);
            links.turn(Time(1), AGENT, OTHER, true, &mut members, &mut out);
            (0..3).for_each(|_| links.answered(Time(2), (OTHER, 2_000_000), &mut members, &mut out));
            let datum = gridloom_base::DatumId { client: NodeId(9), serial: 1 };
            if sends {
                links.sent(Time(3), &[Effect::SendDatum { to: OTHER, datum }], &members);
            }
            let (mut probes, mut now) = (0, 10_000_000);
            while let Some(Effect::SendProbe { size_bytes, .. }) = out.pop() {
                (probes, now) = (probes + 1, now + 10 * size_bytes);
                links.probe_arrived(Time(now), OTHER, size_bytes, &mut out);
            }
            probes
        };
        assert_eq!((sent_by(false) > 2, sent_by(true)), (true, 1));
    }

    #[test]
    fn a_busy_link_is_not_measured() {
        let (mut links, mut members) = (Links::new(Arc::new(offering_nothing())), Members::default());
        members.add(Time(0), OTHER, Role::Server);
        let datum = gridloom_base::DatumId { client: NodeId(9), serial: 1 };
        links.sent(Time(5), &[Effect::SendDatum { to: OTHER, datum }], &members);
        let mut out = Vec::new();
        let there = || (OTHER, "there:1".to_string());
        links.measure(Time(6), AGENT, there(), false, &members, &mut out);
        links.measure(Time(5 + LINK_QUIET_NS), AGENT, there(), true, &members, &mut out);
        assert_eq!(out, []);
        links.measure(Time(5 + LINK_QUIET_NS), AGENT, there(), false, &members, &mut out);
        assert_eq!(out.len(), 1, "a turn is requested: {out:?}");
    }
}
