//! Links between hosts: learned from transfers that servers report, and probed where there are no transfers.
//!
//! Servers report the transfers that they received, and the agent learns from them, because only the agent knows which
//! other transfers shared the sender's network interface. Servers of one host share a network interface, so a link
//! measured by one of them applies to all.
//!
//! New servers measure their links in turns ([`super::turns`]). Links that share a path between sites wait until one of
//! them was measured alone ([`super::paths`]).

use std::collections::{BTreeMap, BTreeSet};

use super::paths::{Pair, Paths};
use super::registry::{Reach, Registered, Registry};
use super::relays::Relays;
use super::send;
use super::turns::{Nic, Pair as Prober, Turns};
use crate::node::AgentTimer;
use crate::node::link_measurement::peers_to_measure;
use crate::node::message::{DirectoryToServer, LinkToProber};
use crate::node::protocol::Effect;
use gridloom_base::limits::{HEARTBEAT_NS, LINK_PROBE_NS, SHARED_NIC_SERVERS_MAX};
use gridloom_base::{NodeId, Time};
use gridloom_perf::{Bottleneck, CompletedTransfer, LinkEstimate, LinkReport, Links, NextSuspects, Path};

/// Number of links among which one that needs a probe is sought at each heartbeat. If there are more, each search continues where
/// the last one ended.
const CHECKED_PER_BEAT: usize = 4096;

/// Time after which a link is probed even if it is busy, so that a grid that is always busy finds links that have changed.
const BUSY_PROBE_NS: u64 = LINK_PROBE_NS / 2;

/// The agent's knowledge of the links between hosts, and the measurements that it has requested.
#[derive(Debug)]
pub(super) struct HostLinks {
    /// Models of links by host. Each client counts as a host of its own.
    models: Links<String>,
    /// Reported transfers wait until the link models are updated from them.
    settle_timer_is_set: bool,
    /// The server whose turn it was last to be asked for a probe.
    probe_turn: NodeId,
    /// The link that was looked at last in search of those that need a probe.
    checked: Option<Pair>,
    /// Time of the last probe that disregarded busy links.
    busy_probed: Time,
    /// Turns to measure links.
    turns: Turns,
    paths: Paths,
    relays: Relays,
}

impl Default for HostLinks {
    fn default() -> HostLinks {
        let (models, turns, paths, relays) = Default::default();
        HostLinks {
            models,
            settle_timer_is_set: false,
            probe_turn: NodeId(0),
            checked: None,
            busy_probed: Time::ZERO,
            turns,
            paths,
            relays,
        }
    }
}

impl HostLinks {
    // ---- queries

    pub(super) fn models(&self) -> &Links<String> {
        &self.models
    }

    /// Returns the time until which plans wait for paths that are being measured.
    pub(super) fn awaited(&self, now: Time) -> Option<Time> {
        self.paths.awaited(now)
    }

    pub(super) fn reports(&self, now: Time, servers: &Registry) -> Vec<LinkReport> {
        let mut relays: BTreeMap<Pair, String> = BTreeMap::new();
        for (relay, pairs, _) in self.relays.all() {
            relays.extend(places_of(pairs, servers).map(|pair| (pair, relay.to_string())));
        }
        let mut reports = self.models.report(now, |place| place.clone());
        for report in &mut reports {
            report.relay = relays.get(&(report.from.clone(), report.to.clone())).cloned();
        }
        reports
    }

    /// Returns the bottlenecks that links between nodes at these places share, by index.
    pub(super) fn bottlenecks(
        &self,
        places: impl Iterator<Item = String>,
        servers: &Registry,
    ) -> Vec<Bottleneck<usize>> {
        let mut at: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        places.enumerate().for_each(|(index, place)| at.entry(place).or_default().push(index));
        let mut found = self.models.bottlenecks();
        found.extend(self.models.inter_site_paths(&at.keys().cloned().collect()));
        found.extend(self.shared_nics(&at));
        found.extend(self.shared_relays(servers));
        let numbered = found.into_iter().map(|one| {
            let indices = |place: &String| at.get(place).into_iter().flatten().copied();
            let of_pair = |(from, to): &(String, String)| {
                let to: Vec<usize> = indices(to).collect();
                indices(from).flat_map(move |from| to.clone().into_iter().map(move |to| (from, to))).collect::<Vec<_>>()
            };
            Bottleneck { pairs: one.pairs.iter().flat_map(of_pair).collect(), bandwidth: one.bandwidth }
        });
        numbered.filter(|one| one.pairs.len() > 1).collect()
    }

    /// Returns the network interfaces of hosts with several servers, outgoing and incoming. Each is assumed to be as
    /// fast as its fastest link.
    fn shared_nics(&self, at: &BTreeMap<String, Vec<usize>>) -> Vec<Bottleneck<String>> {
        let several = at.iter().filter(|(_, servers)| (2..=SHARED_NIC_SERVERS_MAX).contains(&servers.len()));
        let cards = several.flat_map(|(host, _)| {
            let others = || at.keys().filter(move |other| *other != host);
            let out = others().map(|other| (host.clone(), other.clone())).collect::<Vec<_>>();
            let into = others().map(|other| (other.clone(), host.clone())).collect();
            [out, into]
        });
        let cards = cards.filter_map(|pairs: Vec<Pair>| {
            let known = pairs.iter().filter_map(|(from, to)| Some(self.models.of(from, to)?.estimate()?.bandwidth));
            let bandwidth = known.max_by(f64::total_cmp)?;
            Some(Bottleneck { pairs, bandwidth })
        });
        cards.collect()
    }

    /// Returns the relays. Each is assumed to be as fast as the fastest link through it, or as all transfers together that it
    /// was seen to carry at one time.
    fn shared_relays(&self, servers: &Registry) -> impl Iterator<Item = Bottleneck<String>> {
        self.relays.all().filter_map(|(_, pairs, observed)| {
            let pairs: BTreeSet<Pair> = places_of(pairs, servers).collect();
            let known = pairs.iter().filter_map(|(from, to)| Some(self.models.of(from, to)?.estimate()?.bandwidth));
            let bandwidth = known.fold(observed, f64::max);
            (bandwidth > 0.0).then(|| Bottleneck { pairs: pairs.into_iter().collect(), bandwidth })
        })
    }

    // ---- measurements and transfers

    /// Records the path of data from one node to another: through a relay, or direct.
    pub(super) fn set_path(&mut self, pair: (NodeId, NodeId), relay: Option<String>) {
        self.relays.set_path(pair, relay);
    }

    /// Learns how fast a relay is, if the transfer passed through one.
    pub(super) fn add_relayed_transfer(&mut self, seen: &CompletedTransfer<NodeId>) {
        self.relays.add_transfer(seen);
    }

    /// Forgets the paths from and to a node that is gone.
    pub(super) fn forget_paths(&mut self, node: NodeId) {
        self.relays.forget(node);
    }

    /// Records a server's measurement of the link between two hosts. `moving` contains the pairs of hosts between which
    /// transfers may be in progress. Returns true if plans may depend on the link.
    pub(super) fn measured(
        &mut self,
        now: Time,
        (from, to): (NodeId, NodeId),
        pair: &Pair,
        (link, was_measured): (LinkEstimate, bool),
        moving: &BTreeSet<Pair>,
    ) -> bool {
        // On hosts with several servers, another pair of servers may have sent the first probe.
        let is_first = !was_measured && !self.models.is_awaited(pair);
        self.turns.count_measurement(Prober { prober: from, peer: to });
        match is_first {
            true => self.models.add_concurrent_first_probe(now, pair.clone(), link, moving),
            false => self.models.add_probe(now, pair.clone(), link, moving),
        }
        !is_first
    }

    /// Updates the paths after a link was measured, and requests measurements of unknown paths. Returns true if waiting
    /// plans may have what they wait for.
    pub(super) fn update_paths(&mut self, now: Time, servers: &Registry, pair: &Pair, out: &mut Vec<Effect>) -> bool {
        if !self.paths.update(pair, &self.models) {
            return false;
        }
        // Most links in the opposite direction were never measured.
        let measured = |pair: &Pair| self.models.of(&pair.0, &pair.1).and_then(|_| measured_between(servers, pair));
        for (pair, (from, to)) in self.paths.unknown(measured) {
            self.models.request_probe(now, pair.clone());
            self.paths.record_request(now, pair);
            self.send_measure_link(servers, from, to, out);
        }
        self.grant_all_turns(now, servers, out);
        true
    }

    /// Adds a transfer from which the models are updated later.
    pub(super) fn add_transfer(&mut self, now: Time, seen: CompletedTransfer<String>, out: &mut Vec<Effect>) {
        let settles = self.models.add_transfer(now, seen);
        if !std::mem::replace(&mut self.settle_timer_is_set, true) {
            out.push(Effect::SetTimer { timer: AgentTimer::TransfersSettled.into(), at: settles });
        }
    }

    /// Updates the models from transfers that have settled. Returns the pairs whose models have changed.
    pub(super) fn learn(&mut self, now: Time, out: &mut Vec<Effect>) -> Vec<Pair> {
        let (changed, again) = self.models.learn_waiting(now);
        self.settle_timer_is_set = again.is_some();
        out.extend(again.map(|at| Effect::SetTimer { timer: AgentTimer::TransfersSettled.into(), at }));
        changed
    }

    /// Records a client's estimate of its link to a server. The path to and from the client is learned from the client's
    /// transfers.
    pub(super) fn client_measured(&mut self, now: Time, client: String, server: String, link: LinkEstimate) {
        self.models.add_first_probe(now, client.clone(), server.clone(), link);
        self.models.add_first_probe(now, server, client, link);
    }

    /// Forgets a host that is gone.
    pub(super) fn forget(&mut self, place: &str) {
        let links = self.models.forget(&place.to_string());
        self.paths.forget(place, links);
    }

    // ---- probes

    /// Requests a measurement of one link that has not been measured for a long time; doubtful links come first. Only
    /// one link is measured at a time, so that probes do not disturb one another, and servers take turns.
    ///
    /// A probe slows down a transfer that runs at the same time, and is inaccurate. So links that share bandwidth with transfers of shared data (`moving`)
    /// or of a plan are rarely measured. A doubtful link is probed during a plan's transfers, because plans wait for its recovery.
    pub(super) fn request_probe(
        &mut self,
        now: Time,
        servers: &Registry,
        (moving, planned): (BTreeSet<Pair>, impl Iterator<Item = Pair>),
        out: &mut Vec<Effect>,
    ) {
        let is_overdue = now.since(self.busy_probed) >= BUSY_PROBE_NS;
        let (moving, planned) = match is_overdue {
            true => Default::default(),
            false => (self.busy_parts(moving.iter().cloned()), self.busy_parts(planned.chain(moving))),
        };
        let NextSuspects { doubtful, narrow, last } =
            self.models.next_suspects(self.checked.as_ref(), CHECKED_PER_BEAT);
        self.checked = last;
        let is_idle = |pair: &Pair, busy: &Busy| !busy.affects(pair, &self.paths);
        let doubtful = doubtful.into_iter().filter(|pair| self.models.is_due(now, pair) && is_idle(pair, &moving));
        let narrow = narrow.into_iter().filter(|pair| now.since(self.models.last(pair)) >= HEARTBEAT_NS);
        let narrow = narrow.filter(|pair| is_idle(pair, &planned));
        let mut suspects: Vec<Pair> = doubtful.chain(narrow).collect();
        suspects.sort_by_key(|pair| self.models.last(pair));
        // Clients probe the links to and from themselves.
        let on_both = |(from, to): Pair| Some((servers.on_host(&from)?, servers.on_host(&to)?));
        let suspect = suspects.into_iter().find_map(on_both);
        let Some((from, to)) = suspect.or_else(|| self.next_due_link(now, servers, &planned)) else { return };
        let pair = (servers.location(from), servers.location(to));
        if planned.is_empty() {
            self.busy_probed = now;
        }
        self.models.request_probe(now, pair);
        self.send_measure_link(servers, from, to, out);
    }

    /// Returns the server whose turn it is, and the server at the other end of its link that is due for a probe and was
    /// measured longest ago.
    fn next_due_link(&mut self, now: Time, servers: &Registry, busy: &Busy) -> Option<(NodeId, NodeId)> {
        let is_usable = |server: &Registered| !server.is_stateless() && server.links_done;
        let mut in_order = servers.after(Some(self.probe_turn)).chain(servers.iter());
        let (from, sender) = in_order.find(|(_, server)| is_usable(server))?;
        let here = servers.location(from);
        // In a large grid, only known links are measured again, so that their number grows with that of the servers only.
        let known = self.models.measured_from(&here).flat_map(|host| servers.all_on_host(host));
        let known = known.filter_map(|node| Some((node, servers.get(node)?)));
        let all = servers.iter().filter(|_| !servers.is_large());
        let receivers = all.chain(known.filter(|_| servers.is_large())).filter(|(_, server)| is_usable(server));
        let due = receivers.filter_map(|(to, receiver)| {
            let pair = (here.clone(), servers.location(to));
            let is_broken = [sender.reach(to), receiver.reach(from)].contains(&Reach::Broken);
            let is_due = pair.0 != pair.1 && !is_broken && self.models.is_due(now, &pair);
            let is_due = is_due && !busy.affects(&pair, &self.paths);
            is_due.then(|| (self.models.last(&pair), to))
        });
        let oldest = due.min();
        self.probe_turn = from;
        oldest.map(|(_, to)| (from, to))
    }

    /// Returns the parts of the network that transfers between these pairs use.
    fn busy_parts(&self, moving: impl Iterator<Item = Pair>) -> Busy {
        let mut busy = Busy::default();
        for pair in moving.filter(|(from, to)| from != to) {
            busy.paths.extend(self.paths.path_of(&pair));
            busy.senders.insert(pair.0);
            busy.receivers.insert(pair.1);
        }
        busy
    }

    /// Has a server measure its link to another one alone.
    fn send_measure_link(&mut self, servers: &Registry, from: NodeId, to: NodeId, out: &mut Vec<Effect>) {
        self.turns.must_measure(nic(servers, from), nic(servers, to));
        send(out, from, DirectoryToServer::MeasureLink { to, address: servers.address(to) });
    }

    // ---- turns

    pub(super) fn turn_requested(
        &mut self,
        now: Time,
        servers: &Registry,
        (prober, peer): (NodeId, NodeId),
        out: &mut Vec<Effect>,
    ) {
        // A server that is gone or was never known. This bounds the number of waiting requests by the number of pairs.
        if !servers.has(peer) {
            return send(out, prober, LinkToProber::Turn { to: peer, is_needed: false });
        }
        let (from, to) = (nic(servers, prober), nic(servers, peer));
        self.turns.request(Prober { prober, peer }, from.clone(), to.clone());
        self.grant_turns(now, servers, (&from, &to), out);
    }

    pub(super) fn turn_ended(
        &mut self,
        now: Time,
        servers: &Registry,
        (prober, peer): (NodeId, NodeId),
        out: &mut Vec<Effect>,
    ) {
        let Some((from, to)) = self.turns.end(Prober { prober, peer }) else { return };
        if let (Nic::Host(from), Nic::Host(to)) = (&from, &to)
            && self.paths.is_shared(&(from.clone(), to.clone()))
        {
            self.grant_all_turns(now, servers, out);
        } else {
            self.grant_turns(now, servers, (&from, &to), out);
        }
    }

    /// Ends the turns of a lost node, which must not be removed from `servers` yet.
    pub(super) fn node_lost(&mut self, now: Time, servers: &Registry, node: NodeId, out: &mut Vec<Effect>) {
        for Prober { prober, peer } in self.turns.node_lost(node, &nic(servers, node)) {
            self.turn_ended(now, servers, (prober, peer), out);
        }
    }

    /// Ends the turns that have taken too long.
    pub(super) fn end_overdue_turns(&mut self, now: Time, servers: &Registry, out: &mut Vec<Effect>) {
        for Prober { prober, peer } in self.turns.overdue(now) {
            self.turn_ended(now, servers, (prober, peer), out);
        }
        // Some links may have waited long enough for their path.
        self.grant_all_turns(now, servers, out);
    }

    fn grant_turns(&mut self, now: Time, servers: &Registry, (from, to): (&Nic, &Nic), out: &mut Vec<Effect>) {
        let (paths, models) = (&self.paths, &self.models);
        let granted =
            self.turns.grant(now, (from, to), peers_max(servers), |hosts| paths.link_state(now, hosts, models));
        self.send_turns(now, servers, granted, out);
    }

    /// Grants turns after an update of the paths that links share.
    fn grant_all_turns(&mut self, now: Time, servers: &Registry, out: &mut Vec<Effect>) {
        let (paths, models) = (&self.paths, &self.models);
        let granted = self.turns.grant_all(now, peers_max(servers), |hosts| paths.link_state(now, hosts, models));
        self.send_turns(now, servers, granted, out);
    }

    fn send_turns(&mut self, now: Time, servers: &Registry, granted: Vec<(Prober, bool)>, out: &mut Vec<Effect>) {
        for (Prober { prober, peer }, is_needed) in granted {
            send(out, prober, LinkToProber::Turn { to: peer, is_needed });
            let pair = (servers.location(prober), servers.location(peer));
            if let Some(link) = self.paths.assumed(&pair).filter(|_| !is_needed) {
                self.models.expect(now, pair, link);
            }
        }
        let due = self.turns.due().into_iter().chain(self.paths.due(now).filter(|_| self.turns.has_waiting()));
        out.extend(due.min().map(|at| Effect::SetTimer { timer: AgentTimer::Turns.into(), at }));
    }
}

/// The network interfaces and paths that transfers use.
#[derive(Debug, Default)]
struct Busy {
    senders: BTreeSet<String>,
    receivers: BTreeSet<String>,
    paths: BTreeSet<Path>,
}

impl Busy {
    fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Reports whether a link shares bandwidth with one of the transfers.
    fn affects(&self, pair: &Pair, paths: &Paths) -> bool {
        self.senders.contains(&pair.0)
            || self.receivers.contains(&pair.1)
            || paths.path_of(pair).is_some_and(|path| self.paths.contains(&path))
    }
}

/// Returns the number of peers that are enough for one host to have measured. When a grid becomes large, servers that have
/// begun to measure their links to more of them stop early.
fn peers_max(servers: &Registry) -> usize {
    if servers.is_large() { peers_to_measure(servers.len()) } else { usize::MAX }
}

/// Returns the places of nodes, for pairs that are not on one host.
fn places_of(pairs: BTreeSet<(NodeId, NodeId)>, servers: &Registry) -> impl Iterator<Item = Pair> {
    let places = pairs.into_iter().map(|(from, to)| (servers.location(from), servers.location(to)));
    places.filter(|(from, to)| from != to)
}

/// Returns the network interface of a node.
fn nic(servers: &Registry, node: NodeId) -> Nic {
    servers.get(node).map_or(Nic::Client(node), |server| Nic::Host(server.host().to_string()))
}

/// Returns servers of these two hosts, the first of which has measured its link to the second.
fn measured_between(servers: &Registry, (from, to): &Pair) -> Option<(NodeId, NodeId)> {
    servers
        .all_on_host(from)
        .find_map(|node| Some((node, servers.get(node)?.measured_peers().find(|peer| servers.is_on_host(*peer, to))?)))
}
