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
    sending: BTreeSet<Nic>,
    receiving: BTreeSet<Nic>,
    ends: BTreeSet<(Time, Pair)>,
}

impl TurnsInProgress {
    fn insert(&mut self, pair: Pair, turn: TurnInProgress) {
        self.sending.insert(turn.from.clone());
        self.receiving.insert(turn.to.clone());
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
        self.sending.contains(from) || self.receiving.contains(to)
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
    measured: BTreeMap<(Nic, Nic), u32>,
    asked: u64,
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

    fn is_known(&self, from: &Nic, to: &Nic) -> bool {
        self.measured.get(&(from.clone(), to.clone())).is_some_and(|count| *count >= MEASURED_ENOUGH)
    }

    /// Grants turns among the requests that wait for one of these interfaces. Returns the granted pairs, each with
    /// whether it must be measured.
    pub(super) fn grant(
        &mut self,
        now: Time,
        from: &Nic,
        to: &Nic,
        standing: impl Fn(&Hosts) -> LinkState,
    ) -> Vec<(Pair, bool)> {
        let mut candidates: Vec<(u64, Pair)> = Vec::new();
        for (cards, card) in [(&self.outward, from), (&self.inward, to)] {
            candidates.extend(cards.get(card).into_iter().flatten().map(|(number, pair)| (*number, *pair)));
        }
        self.grant_among(now, candidates, standing)
    }

    /// Grants turns among all waiting requests.
    pub(super) fn grant_all(&mut self, now: Time, standing: impl Fn(&Hosts) -> LinkState) -> Vec<(Pair, bool)> {
        let candidates = self.waiting.iter().map(|(pair, (number, ..))| (*number, *pair)).collect();
        self.grant_among(now, candidates, standing)
    }

    fn grant_among(
        &mut self,
        now: Time,
        candidates: Vec<(u64, Pair)>,
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
            if standing.next == NextStep::Assume || self.is_known(from, to) {
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
            let count = self.measured.entry((from.clone(), to.clone())).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Discards the number of measurements from one interface to another.
    pub(super) fn forget_measurements(&mut self, from: Nic, to: Nic) {
        self.measured.remove(&(from, to));
    }

    /// Withdraws the requests of a lost node, and discards the measurements of its host, which may be gone, too.
    /// Returns the pairs of the node that have their turn now.
    pub(super) fn node_lost(&mut self, node: NodeId, card: &Nic) -> Vec<Pair> {
        self.measured.retain(|(from, to), _| from != card && to != card);
        let is_its = |pair: &&Pair| pair.prober == node || pair.peer == node;
        let waiting: Vec<Pair> = self.waiting.keys().filter(is_its).copied().collect();
        waiting.into_iter().for_each(|pair| _ = self.withdraw(pair));
        self.in_progress.turns.keys().filter(is_its).copied().collect()
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
        assert_eq!(turns.grant(Time(0), &host("a"), &host("b"), alone), [(pair(1, 2), true)]);
        // c and d are not involved, and b may send while it receives.
        assert_eq!(turns.grant(Time(0), &host("c"), &host("d"), alone), [(pair(3, 4), true)]);
        assert_eq!(turns.grant(Time(0), &host("b"), &host("a"), alone), [(pair(2, 1), true)]);
        turns.in_progress.remove(&pair(1, 2));
        assert_eq!(turns.grant(Time(1), &host("a"), &host("b"), alone), [(pair(1, 3), true), (pair(4, 2), true)]);
        assert_eq!((turns.waiting.len(), turns.in_progress.turns.len()), (0, 4));
    }

    #[test]
    fn a_known_pair_of_hosts_is_not_measured_again() {
        let mut turns = wanted(&[(1, 2), (1, 3)]);
        turns.measured.insert((host("a"), host("b")), MEASURED_ENOUGH);
        assert_eq!(turns.grant(Time(0), &host("a"), &host("b"), alone), [(pair(1, 2), false), (pair(1, 3), true)]);
        assert!(turns.waiting.is_empty() && turns.outward.is_empty() && turns.inward.is_empty());
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
        assert_eq!(turns.grant_all(Time(0), on_way(NextStep::Wait)), [(pair(1, 2), true)]);
        turns.in_progress = TurnsInProgress::default();
        assert_eq!(turns.grant_all(Time(0), on_way(NextStep::Measure)), [(pair(1, 3), true), (pair(4, 2), true)]);
        assert_eq!(turns.grant_all(Time(0), on_way(NextStep::Measure)), []);
        turns.in_progress.remove(&pair(1, 3));
        assert_eq!(turns.grant_all(Time(0), on_way(NextStep::Measure)), [(pair(2, 4), true)]);
        turns.request(pair(1, 4), host("a"), host("d"));
        assert_eq!(turns.grant_all(Time(0), on_way(NextStep::Measure)), [], "another probe uses the path");
        assert_eq!(turns.grant_all(Time(0), on_way(NextStep::Assume)), [(pair(1, 4), false)]);
    }
}
