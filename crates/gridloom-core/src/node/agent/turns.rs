//! Turns to measure links. Probes that share a host's network interface get a part of its bandwidth each, so fast
//! links would look slow, and hosts that measure few others at a time would look near.
//!
//! A host sends at most one probe at a time, and receives at most one. A path between two sites carries one at a time
//! ([`super::paths`]). If a pair of hosts was measured often enough, other servers on these hosts need not measure it
//! again. A turn that takes long no longer blocks others: either its link is slow and takes little of a network
//! interface, or the node that has the turn is silent.

use std::collections::{BTreeMap, BTreeSet};

use super::paths::{LinkState, NextStep, Pair as Hosts};
use gridloom_base::{NodeId, Time};
use gridloom_perf::Path;

/// Nanoseconds after which a turn no longer blocks others.
const TURN_NS_MAX: u64 = 1_000_000_000;
/// Number of measurements from one host to another that are enough. The best one counts.
const MEASURED_ENOUGH: u32 = 3;

/// A network interface, which probes share.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Nic {
    /// The interface of a server's host.
    Host(String),
    /// A client, whose host is not known.
    Client(NodeId),
}

/// A request of a node to probe another node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Pair {
    pub(super) prober: NodeId,
    pub(super) peer: NodeId,
}

#[derive(Debug)]
struct TurnInProgress {
    from: Nic,
    to: Nic,
    until: Time,
}

/// The turns in progress. A network interface sends at most one probe, and receives at most one.
#[derive(Debug, Default)]
struct TurnsInProgress {
    turns: BTreeMap<Pair, TurnInProgress>,
    sending: BTreeMap<Nic, Pair>,
    receiving: BTreeMap<Nic, Pair>,
    ends: BTreeSet<(Time, Pair)>,
}

impl TurnsInProgress {
    fn insert(&mut self, pair: Pair, turn: TurnInProgress) {
        self.sending.insert(turn.from.clone(), pair);
        self.receiving.insert(turn.to.clone(), pair);
        self.ends.insert((turn.until, pair));
        self.turns.insert(pair, turn);
    }

    fn remove(&mut self, pair: &Pair) -> Option<TurnInProgress> {
        let turn = self.turns.remove(pair)?;
        self.sending.remove(&turn.from);
        self.receiving.remove(&turn.to);
        self.ends.remove(&(turn.until, *pair));
        Some(turn)
    }

    fn use_either(&self, from: &Nic, to: &Nic) -> bool {
        self.sending.contains_key(from) || self.receiving.contains_key(to)
    }
}

/// The requests for turns, and the turns in progress.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Pairs that wait for each network interface, outgoing and incoming, in order of request.
    outward: BTreeMap<Nic, BTreeMap<u64, Pair>>,
    inward: BTreeMap<Nic, BTreeMap<u64, Pair>>,
    waiting: BTreeMap<Pair, (u64, Nic, Nic)>,
    in_progress: TurnsInProgress,
    measured: Measured,
    /// Pairs that are measured whatever is known of them.
    needed: BTreeSet<(Nic, Nic)>,
    asked: u64,
}

/// The numbers of measurements from one interface to another.
#[derive(Debug, Default)]
struct Measured {
    counts: BTreeMap<Nic, BTreeMap<Nic, u32>>,
    /// The interfaces from which each was measured.
    from: BTreeMap<Nic, BTreeSet<Nic>>,
}

impl Measured {
    fn count(&self, from: &Nic, to: &Nic) -> u32 {
        self.counts.get(from).and_then(|counts| counts.get(to)).copied().unwrap_or(0)
    }

    /// Returns the number of interfaces that were measured from this one.
    fn peers(&self, from: &Nic) -> usize {
        self.counts.get(from).map_or(0, BTreeMap::len)
    }

    fn add(&mut self, from: &Nic, to: &Nic) {
        let count = self.counts.entry(from.clone()).or_default().entry(to.clone()).or_default();
        *count = count.saturating_add(1);
        self.from.entry(to.clone()).or_default().insert(from.clone());
    }

    fn remove(&mut self, from: &Nic, to: &Nic) {
        if let Some(counts) = self.counts.get_mut(from) {
            counts.remove(to);
            if counts.is_empty() {
                self.counts.remove(from);
            }
        }
        if let Some(all) = self.from.get_mut(to) {
            all.remove(from);
            if all.is_empty() {
                self.from.remove(to);
            }
        }
    }

    fn forget(&mut self, card: &Nic) {
        let to: Vec<Nic> = self.counts.get(card).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        to.iter().for_each(|to| self.remove(card, to));
        let from: Vec<Nic> = self.from.get(card).into_iter().flatten().cloned().collect();
        from.iter().for_each(|from| self.remove(from, card));
    }
}

impl Turns {
    /// Adds a request, unless the pair waits or has its turn already.
    pub(super) fn request(&mut self, pair: Pair, from: Nic, to: Nic) {
        if self.waiting.contains_key(&pair) || self.in_progress.turns.contains_key(&pair) {
            return;
        }
        let number = self.asked;
        self.asked += 1;
        self.outward.entry(from.clone()).or_default().insert(number, pair);
        self.inward.entry(to.clone()).or_default().insert(number, pair);
        self.waiting.insert(pair, (number, from, to));
    }

    /// Removes a request.
    fn withdraw(&mut self, pair: Pair) -> Option<(Nic, Nic)> {
        let (number, from, to) = self.waiting.remove(&pair)?;
        for (cards, card) in [(&mut self.outward, &from), (&mut self.inward, &to)] {
            if let Some(pairs) = cards.get_mut(card) {
                pairs.remove(&number);
                if pairs.is_empty() {
                    cards.remove(card);
                }
            }
        }
        Some((from, to))
    }

    /// Reports whether a pair need not be measured: it was measured often enough, or enough others were from this interface.
    fn is_known(&self, from: &Nic, to: &Nic, peers_max: usize) -> bool {
        if self.measured.count(from, to) >= MEASURED_ENOUGH {
            return true;
        }
        self.measured.peers(from) >= peers_max && !self.needed.contains(&(from.clone(), to.clone()))
    }

    /// Grants turns among the requests that wait for one of these interfaces. Returns the granted pairs, each with
    /// whether it must be measured. `peers_max`: the number of peers that are enough for one node.
    pub(super) fn grant(
        &mut self,
        now: Time,
        (from, to): (&Nic, &Nic),
        peers_max: usize,
        standing: impl Fn(&Hosts) -> LinkState,
    ) -> Vec<(Pair, bool)> {
        let mut candidates: Vec<(u64, Pair)> = Vec::new();
        for (cards, card) in [(&self.outward, from), (&self.inward, to)] {
            candidates.extend(cards.get(card).into_iter().flatten().map(|(number, pair)| (*number, *pair)));
        }
        self.grant_among(now, candidates, peers_max, standing)
    }

    /// Grants turns among all waiting requests.
    pub(super) fn grant_all(
        &mut self,
        now: Time,
        peers_max: usize,
        standing: impl Fn(&Hosts) -> LinkState,
    ) -> Vec<(Pair, bool)> {
        let candidates = self.waiting.iter().map(|(pair, (number, ..))| (*number, *pair)).collect();
        self.grant_among(now, candidates, peers_max, standing)
    }

    fn grant_among(
        &mut self,
        now: Time,
        candidates: Vec<(u64, Pair)>,
        peers_max: usize,
        standing: impl Fn(&Hosts) -> LinkState,
    ) -> Vec<(Pair, bool)> {
        let between = |from: &Nic, to: &Nic| match (from, to) {
            (Nic::Host(from), Nic::Host(to)) => standing(&(from.clone(), to.clone())),
            _ => LinkState::default(),
        };
        let with_standing = |(number, pair): (u64, Pair)| {
            let (_, from, to) = &self.waiting[&pair];
            (number, pair, between(from, to))
        };
        let mut candidates: Vec<(u64, Pair, LinkState)> = candidates.into_iter().map(with_standing).collect();
        // Links on a path between sites are first, since other links wait for that path.
        candidates.sort_unstable_by_key(|(number, pair, standing)| (standing.path.is_none(), *number, *pair));
        candidates.dedup();
        let has_paths = candidates.first().is_some_and(|(.., standing)| standing.path.is_some());
        let in_progress = self.in_progress.turns.values().filter(|_| has_paths);
        let mut used_paths: BTreeSet<Path> =
            in_progress.filter_map(|held| between(&held.from, &held.to).path).collect();
        let mut granted = Vec::new();
        for (_, pair, standing) in candidates {
            let (_, from, to) = &self.waiting[&pair];
            if standing.next == NextStep::Assume || self.is_known(from, to, peers_max) {
                self.withdraw(pair);
                granted.push((pair, false));
                continue;
            }
            let is_free =
                !self.in_progress.use_either(from, to) && standing.path.is_none_or(|path| !used_paths.contains(&path));
            if standing.next == NextStep::Measure && is_free {
                used_paths.extend(standing.path);
                let (from, to) = self.withdraw(pair).expect("it waits");
                self.in_progress.insert(pair, TurnInProgress { from, to, until: now + TURN_NS_MAX });
                granted.push((pair, true));
            }
        }
        granted
    }

    /// Ends the turn of a pair, or withdraws its request. Returns the interfaces that a turn in progress used.
    pub(super) fn end(&mut self, pair: Pair) -> Option<(Nic, Nic)> {
        self.withdraw(pair);
        self.in_progress.remove(&pair).map(|TurnInProgress { from, to, .. }| (from, to))
    }

    /// Counts a measurement by a server, if that has its turn.
    pub(super) fn count_measurement(&mut self, pair: Pair) {
        if let Some(TurnInProgress { from, to, .. }) = self.in_progress.turns.get(&pair) {
            self.measured.add(from, to);
            self.needed.remove(&(from.clone(), to.clone()));
        }
    }

    /// Has a pair measured when its turn is requested next, whatever is known of it.
    pub(super) fn must_measure(&mut self, from: Nic, to: Nic) {
        self.measured.remove(&from, &to);
        self.needed.insert((from, to));
    }

    /// Withdraws the requests of a lost node, and discards the measurements of its host, which may be gone, too.
    /// Returns the pairs of the node that have their turn now.
    pub(super) fn node_lost(&mut self, node: NodeId, card: &Nic) -> Vec<Pair> {
        self.measured.forget(card);
        self.needed.retain(|(from, to)| from != card && to != card);
        let waiting = [&self.outward, &self.inward].map(|cards| cards.get(card).into_iter().flat_map(BTreeMap::values));
        let is_its = |pair: &&Pair| pair.prober == node || pair.peer == node;
        let waiting: BTreeSet<Pair> = waiting.into_iter().flatten().filter(is_its).copied().collect();
        waiting.into_iter().for_each(|pair| _ = self.withdraw(pair));
        let turns = [&self.in_progress.sending, &self.in_progress.receiving].map(|turns| turns.get(card));
        let turns: BTreeSet<Pair> = turns.into_iter().flatten().filter(is_its).copied().collect();
        turns.into_iter().collect()
    }

    /// Returns the pairs whose turn has taken too long.
    pub(super) fn overdue(&self, now: Time) -> Vec<Pair> {
        let mut overdue: Vec<Pair> =
            self.in_progress.ends.iter().take_while(|(until, _)| *until <= now).map(|(_, pair)| *pair).collect();
        overdue.sort_unstable();
        overdue
    }

    /// Returns the time at which the first current turn no longer blocks others.
    pub(super) fn due(&self) -> Option<Time> {
        self.in_progress.ends.first().map(|(until, _)| *until)
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: usize = 16;

    fn host(name: &str) -> Nic {
        Nic::Host(name.into())
    }

    fn pair(prober: u64, peer: u64) -> Pair {
        Pair { prober: NodeId(prober), peer: NodeId(peer) }
    }

    fn alone(_: &Hosts) -> LinkState {
        LinkState::default()
    }

    /// Returns the turns requested by nodes 1 to 4 on hosts a to d.
    fn wanted(pairs: &[(u64, u64)]) -> Turns {
        let mut turns = Turns::default();
        for (prober, peer) in pairs {
            let card = |node: u64| host(["a", "b", "c", "d"][node as usize - 1]);
            turns.request(pair(*prober, *peer), card(*prober), card(*peer));
        }
        turns
    }

    #[test]
    fn a_host_sends_and_receives_one_probe_at_a_time() {
        let mut turns = wanted(&[(1, 2), (1, 3), (4, 2), (2, 1), (3, 4)]);
        assert_eq!(turns.grant(Time(0), (&host("a"), &host("b")), PEERS, alone), [(pair(1, 2), true)]);
        // c and d are not involved, and b may send while it receives.
        assert_eq!(turns.grant(Time(0), (&host("c"), &host("d")), PEERS, alone), [(pair(3, 4), true)]);
        assert_eq!(turns.grant(Time(0), (&host("b"), &host("a")), PEERS, alone), [(pair(2, 1), true)]);
        turns.in_progress.remove(&pair(1, 2));
        assert_eq!(
            turns.grant(Time(1), (&host("a"), &host("b")), PEERS, alone),
            [(pair(1, 3), true), (pair(4, 2), true)]
        );
        assert_eq!((turns.waiting.len(), turns.in_progress.turns.len()), (0, 4));
    }

    #[test]
    fn a_known_pair_of_hosts_is_not_measured_again() {
        let mut turns = wanted(&[(1, 2), (1, 3)]);
        (0..MEASURED_ENOUGH).for_each(|_| turns.measured.add(&host("a"), &host("b")));
        assert_eq!(
            turns.grant(Time(0), (&host("a"), &host("b")), PEERS, alone),
            [(pair(1, 2), false), (pair(1, 3), true)]
        );
        assert!(turns.waiting.is_empty() && turns.outward.is_empty() && turns.inward.is_empty());
    }

    #[test]
    fn a_host_that_has_measured_enough_peers_measures_only_what_it_must() {
        let mut turns = wanted(&[(1, 3), (1, 4)]);
        turns.measured.add(&host("a"), &host("b"));
        turns.must_measure(host("a"), host("d"));
        let granted = turns.grant(Time(0), (&host("a"), &host("c")), 1, alone);
        assert_eq!(granted, [(pair(1, 3), false), (pair(1, 4), true)]);
        turns.count_measurement(pair(1, 4));
        assert!(turns.needed.is_empty());
        assert_eq!(turns.node_lost(NodeId(1), &host("a")), [pair(1, 4)]);
        turns.end(pair(1, 4));
        assert!(turns.measured.counts.is_empty() && turns.measured.from.is_empty() && turns.needed.is_empty());
    }

    #[test]
    fn a_shared_path_carries_one_probe_at_a_time() {
        let mut turns = wanted(&[(1, 3), (2, 4), (1, 2), (4, 2)]);
        // a and b are one site, c and d the other.
        let site = |host: &str| usize::from(host > "b");
        let on_way = |next: NextStep| {
            move |(from, to): &Hosts| match (site(from), site(to)) {
                (from, to) if from == to => LinkState::default(),
                way => LinkState { path: Some(way), next },
            }
        };
        assert_eq!(turns.grant_all(Time(0), PEERS, on_way(NextStep::Wait)), [(pair(1, 2), true)]);
        turns.in_progress = TurnsInProgress::default();
        assert_eq!(
            turns.grant_all(Time(0), PEERS, on_way(NextStep::Measure)),
            [(pair(1, 3), true), (pair(4, 2), true)]
        );
        assert_eq!(turns.grant_all(Time(0), PEERS, on_way(NextStep::Measure)), []);
        turns.in_progress.remove(&pair(1, 3));
        assert_eq!(turns.grant_all(Time(0), PEERS, on_way(NextStep::Measure)), [(pair(2, 4), true)]);
        turns.request(pair(1, 4), host("a"), host("d"));
        assert_eq!(turns.grant_all(Time(0), PEERS, on_way(NextStep::Measure)), [], "another probe uses the path");
        assert_eq!(turns.grant_all(Time(0), PEERS, on_way(NextStep::Assume)), [(pair(1, 4), false)]);
    }
}
