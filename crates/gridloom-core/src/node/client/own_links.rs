//! The client's own links: probed in turn when a server is first seen, learned from transfers over them, and probed
//! again when they have degraded and are idle. All transfers through the client's network interface are observed here.
//!
//! **Invariant:** estimates are finite and positive.

use std::collections::{BTreeMap, BTreeSet};

use crate::member::Members;
use crate::node::ClientTimer;
use crate::node::data_paths::DataPaths;
use crate::node::link_measurement::{LinkMeasurement, peers_to_measure};
use crate::node::message::{LinkToAgent, TransferReport};
use crate::node::probing::Measurement;
use crate::node::protocol::{Effect, Role};
use crate::node::unreported::UnreportedTransfers;
use gridloom_base::limits::{LEARN_BYTES_MIN, MEASURE_WAIT_NS_MAX};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{NodeId, Time};
use gridloom_perf::{CompletedTransfer, GridView, LinkEstimate, LinkModel, Links};

#[derive(Debug)]
pub(super) struct OwnLinks {
    me: NodeId,
    measuring: LinkMeasurement,
    /// True if links should be measured.
    is_wanted: bool,
    /// Servers to which links were measured or will be.
    probed: BTreeSet<NodeId>,
    /// True once the time for which groups wait for measurements has passed.
    has_waited: bool,
    /// Estimates used for plans, the same for both directions.
    estimates: BTreeMap<NodeId, LinkEstimate>,
    /// Servers whose estimates are guessed from the round trip because the links are not measured yet.
    guessed: BTreeSet<NodeId>,
    /// Observations that the estimates are learned from.
    learned: Links<NodeId>,
    /// Received transfers, reported to the agent, which sees concurrent ones.
    received: UnreportedTransfers,
    /// True if transfers wait to be learned from.
    is_settling: bool,
    paths: DataPaths,
}

impl OwnLinks {
    pub(super) fn new(me: NodeId, is_wanted: bool) -> OwnLinks {
        OwnLinks {
            me,
            measuring: LinkMeasurement::default(),
            is_wanted,
            probed: BTreeSet::new(),
            has_waited: false,
            estimates: BTreeMap::new(),
            guessed: BTreeSet::new(),
            learned: Links::default(),
            received: UnreportedTransfers::default(),
            is_settling: false,
            paths: DataPaths::default(),
        }
    }

    pub(super) fn estimates(&self) -> &BTreeMap<NodeId, LinkEstimate> {
        &self.estimates
    }

    /// True if enough is known about the links to map groups.
    pub(super) fn are_known(&self) -> bool {
        self.are_measured() || self.has_waited
    }

    pub(super) fn are_measured(&self) -> bool {
        self.measuring.is_done()
    }

    // ---- measuring

    /// Requests that links are measured from now on. Returns false if they were already.
    pub(super) fn request_measuring(&mut self) -> bool {
        !std::mem::replace(&mut self.is_wanted, true)
    }

    /// Schedules measurements of the links to new servers, if measuring was requested.
    pub(super) fn probe_new_servers(&mut self, grid: &GridView, members: &Members<Role>, out: &mut Vec<Effect>) {
        let count = peers_to_measure(grid.servers.len());
        for server in &grid.servers {
            if !self.is_wanted || self.probed.len() >= count {
                break;
            }
            if self.probed.insert(server.node) {
                self.has_waited = false;
                if !members.is_up(server.node) {
                    out.push(Effect::Dial { address: server.address.clone() });
                }
                self.measuring.add(server.node, server.address.clone());
            }
        }
    }

    pub(super) fn ask_turns(&mut self, agent: Option<NodeId>, members: &Members<Role>, out: &mut Vec<Effect>) {
        self.measuring.request_turns(agent, members, out);
    }

    /// Forgets the turns that a lost agent gave.
    pub(super) fn forget_turns(&mut self) {
        self.measuring.forget_turns();
    }

    /// Handles a turn given by the agent. Returns true if there is nothing to measure, so that the turn must be ended.
    pub(super) fn on_turn(
        &mut self,
        now: Time,
        to: NodeId,
        is_needed: bool,
        members: &mut Members<Role>,
        agent: Option<NodeId>,
        out: &mut Vec<Effect>,
    ) -> bool {
        if !self.measuring.has_requested(to) {
            let message = LinkToAgent::TurnOver { to }.into();
            out.extend(agent.map(|agent| Effect::Send { to: agent, message }));
            return false;
        }
        !self.measuring.begin(now, to, is_needed, members, out)
    }

    pub(super) fn on_pong(
        &mut self,
        now: Time,
        (from, rtt_ns): (NodeId, u64),
        members: &mut Members<Role>,
        out: &mut Vec<Effect>,
    ) {
        self.measuring.answered(now, (from, rtt_ns), members, out);
        if self.is_to_be_measured(from) && !self.estimates.contains_key(&from) {
            self.estimates.insert(from, LinkEstimate::of_round_trip(ns_to_seconds(rtt_ns.max(1))));
            self.guessed.insert(from);
        }
    }

    /// True if the link to a server still has to be measured.
    pub(super) fn is_to_be_measured(&self, server: NodeId) -> bool {
        self.measuring.peers().iter().any(|(node, _)| *node == server)
    }

    /// Returns the servers whose links are guessed because they are not measured yet.
    pub(super) fn guessed(&self) -> &BTreeSet<NodeId> {
        &self.guessed
    }

    /// Handles a peer's confirmation of a probe. Returns true if the measurement of its link has ended.
    pub(super) fn on_probe_arrived(&mut self, now: Time, from: NodeId, size_bytes: u64, out: &mut Vec<Effect>) -> bool {
        match self.measuring.probe_arrived(now, from, size_bytes, false, out) {
            None => return false,
            Some(Measurement::Inconclusive) => {}
            Some(Measurement::Measured(link)) if self.learned.of(&self.me, &from).is_none() => {
                self.learned.add_first_probe(now, self.me, from, link);
            }
            Some(Measurement::Measured(link)) => {
                self.learned.add_probe(now, (self.me, from), link, &BTreeSet::new());
            }
        }
        true
    }

    /// Ends the measurement of the link to a peer, because it is no longer needed or impossible.
    pub(super) fn end_measuring(&mut self, peer: NodeId, agent: Option<NodeId>, out: &mut Vec<Effect>) {
        self.measuring.end(peer, agent, out);
    }

    /// Limits the time for which groups wait for measurements.
    pub(super) fn wait(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer { timer: ClientTimer::Links.into(), at: now + MEASURE_WAIT_NS_MAX });
    }

    /// Ends the wait for measurements, which continue.
    pub(super) fn end_wait(&mut self, now: Time) {
        self.has_waited = true;
        if let Some((peer, link)) = self.measuring.estimate(now) {
            let known = self.estimates.get(&peer).filter(|known| known.bandwidth < link.bandwidth);
            self.estimates.insert(peer, known.copied().unwrap_or(link));
            self.guessed.insert(peer);
        }
        // Servers that have not answered at all are assumed to have a link like the worst known one.
        let worst = self.estimates.values().copied().min_by(|a, b| a.bandwidth.total_cmp(&b.bandwidth));
        if let Some(worst) = worst {
            for (node, _) in self.measuring.peers() {
                self.estimates.entry(*node).or_insert_with(|| {
                    self.guessed.insert(*node);
                    worst
                });
            }
        }
    }

    /// Records the path over which a server's data arrive, and reports it to the agent.
    pub(super) fn set_path(
        &mut self,
        from: NodeId,
        relay: Option<String>,
        agent: Option<NodeId>,
        out: &mut Vec<Effect>,
    ) {
        let report = self.paths.set(from, relay).zip(agent);
        out.extend(report.map(|(path, to)| Effect::Send { to, message: path.into() }));
    }

    /// Reports all paths through relays to an agent that does not know them.
    pub(super) fn report_paths(&self, to: NodeId, out: &mut Vec<Effect>) {
        out.extend(self.paths.reports().map(|path| Effect::Send { to, message: path.into() }));
    }

    // ---- learning

    /// Records a finished transfer. It is learned from when concurrent ones are known.
    pub(super) fn record_transfer(&mut self, now: Time, report: &TransferReport, out: &mut Vec<Effect>) {
        let TransferReport { from, to, size_bytes, run_ns, age_ns, .. } = *report;
        if run_ns == 0 || size_bytes < LEARN_BYTES_MIN || ![from, to].contains(&self.me) {
            return;
        }
        if to == self.me {
            self.received.add(now, from, size_bytes, run_ns);
        }
        let end = now - age_ns;
        let settles =
            self.learned.add_transfer(now, CompletedTransfer { from, to, size_bytes, start: end - run_ns, end });
        if !std::mem::replace(&mut self.is_settling, true) {
            out.push(Effect::SetTimer { timer: ClientTimer::TransfersSettled.into(), at: settles });
        }
    }

    /// Learns from transfers. Returns the peers whose links have changed.
    pub(super) fn settle(&mut self, now: Time, agent: Option<NodeId>, out: &mut Vec<Effect>) -> BTreeSet<NodeId> {
        let (changed, again) = self.learned.learn_waiting(now);
        self.is_settling = again.is_some();
        let transfers = self.received.take(now);
        if let Some(to) = agent.filter(|_| !transfers.is_empty()) {
            out.push(Effect::Send { to, message: LinkToAgent::TransfersReceived { transfers }.into() });
        }
        if let Some(at) = again {
            out.push(Effect::SetTimer { timer: ClientTimer::TransfersSettled.into(), at });
        }
        changed.into_iter().map(|(from, to)| if from == self.me { to } else { from }).collect()
    }

    /// Updates the estimate of a changed link to the worse of its two directions. Returns that direction's model.
    pub(super) fn update_estimate(&mut self, peer: NodeId) -> Option<&LinkModel> {
        let ways = [self.learned.of(&self.me, &peer), self.learned.of(&peer, &self.me)].into_iter().flatten();
        let worst = ways.filter_map(|model| Some((model, model.estimate()?)));
        let (model, link) = worst.min_by(|a, b| a.1.bandwidth.total_cmp(&b.1.bandwidth))?;
        self.estimates.insert(peer, link);
        self.guessed.remove(&peer);
        Some(model)
    }

    /// Returns a peer whose link has degraded and is due to be probed.
    pub(super) fn degraded(&self, now: Time, is_idle: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let suspects = self.learned.suspects().map(|(from, to)| if *from == self.me { *to } else { *from });
        suspects.filter(|peer| is_idle(*peer)).find(|peer| self.learned.is_due(now, &(self.me, *peer)))
    }

    /// Schedules another probe of such a link, for which no group waits.
    pub(super) fn probe_again(&mut self, now: Time, peer: NodeId, address: String) {
        self.learned.request_probe(now, (self.me, peer));
        self.has_waited = true;
        self.measuring.add(peer, address);
    }

    pub(super) fn forget(&mut self, server: NodeId) {
        self.guessed.remove(&server);
        self.learned.forget(&server);
    }

    /// Panics if an invariant is violated.
    pub(super) fn check(&self) {
        assert!(self.estimates.values().all(LinkEstimate::is_sane), "{:?}", self.estimates);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::DatumId;
    use gridloom_perf::ServerView;

    const ME: NodeId = NodeId(1);
    const SERVER: NodeId = NodeId(2);

    fn transfer(size_bytes: u64) -> TransferReport {
        let datum = DatumId { client: ME, serial: 1 };
        TransferReport { datum, from: SERVER, to: ME, size_bytes, run_ns: 1_000_000, age_ns: 0 }
    }

    #[test]
    fn a_link_is_learned_from_what_moves_over_it() {
        let (mut links, mut out) = (OwnLinks::new(ME, true), Vec::new());
        links.record_transfer(Time(2_000_000), &transfer(LEARN_BYTES_MIN - 1), &mut out);
        assert_eq!(out, [], "it is too small to be learned from");
        links.record_transfer(Time(2_000_000), &transfer(1 << 20), &mut out);
        let Some(Effect::SetTimer { at, .. }) = out.pop() else { panic!("it settles after a while") };
        assert_eq!(links.settle(at, None, &mut out), BTreeSet::from([SERVER]));
        assert!(links.update_estimate(SERVER).is_some());
        let bandwidth = links.estimates()[&SERVER].bandwidth;
        assert!((bandwidth / (f64::from(1 << 20) * 1e3) - 1.0).abs() < 0.1, "{bandwidth}");
        links.check();
    }

    #[test]
    fn a_link_that_is_not_measured_is_guessed_from_its_round_trip() {
        let (mut links, mut members, mut out) = (OwnLinks::new(ME, true), Members::default(), Vec::new());
        links.on_pong(Time(1), (SERVER, 300_000_000), &mut members, &mut out);
        assert!(links.estimates().is_empty(), "nothing is to be measured");
        links.measuring.add(SERVER, "there:1".into());
        links.on_pong(Time(1), (SERVER, 300_000_000), &mut members, &mut out);
        let guessed = links.estimates()[&SERVER];
        assert!((guessed.latency_s - 0.15).abs() < 1e-9 && (2.1e5..2.2e5).contains(&guessed.bandwidth), "{guessed:?}");
        links.on_pong(Time(2), (SERVER, 1), &mut members, &mut out);
        assert!(links.estimates()[&SERVER] == guessed && links.guessed().contains(&SERVER));
        links.record_transfer(Time(2_000_000), &transfer(1 << 20), &mut out);
        let Some(Effect::SetTimer { at, .. }) = out.pop() else { panic!("it settles after a while") };
        links.settle(at, None, &mut out);
        links.update_estimate(SERVER);
        assert!(links.estimates()[&SERVER].bandwidth > 1e8 && !links.guessed().contains(&SERVER));
        links.check();
    }

    #[test]
    fn groups_wait_for_new_links_but_not_for_ever() {
        let mut links = OwnLinks::new(ME, true);
        assert!(links.are_known(), "there is none");
        links.measuring.add(SERVER, "there:1".into());
        assert!(!links.are_known());
        links.end_wait(Time(1));
        assert!(links.are_known() && !links.are_measured());
    }
    #[test]
    fn links_that_are_not_wanted_yet_are_not_measured() {
        let (members, mut out) = (Members::default(), Vec::new());
        let mut links = OwnLinks::new(ME, false);
        let server = ServerView {
            node: SERVER,
            name: "there".into(),
            address: "there:1".into(),
            slots: 1,
            stateless: false,
            memory_bytes: 1 << 30,
            speed_flops: None,
            pace: 1.0,
            functions: BTreeMap::new(),
            busy_s: vec![0.0],
            release: String::new(),
            protocol: 0,
        };
        let grid = GridView { servers: vec![server], ..GridView::default() };
        links.probe_new_servers(&grid, &members, &mut out);
        assert!(out.is_empty() && links.are_measured() && !links.is_to_be_measured(SERVER));
        assert!(links.request_measuring() && !links.request_measuring());
        links.probe_new_servers(&grid, &members, &mut out);
        assert!(!links.are_measured() && links.is_to_be_measured(SERVER));
    }
}
