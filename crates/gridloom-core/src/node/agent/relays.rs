//! Paths of data through relays, which the receivers report, and how fast each relay is.
//!
//! All data that pass through a relay share its network interface. Its bandwidth is at least that of the fastest path through
//! it, and at least the total rate of the transfers that it carried at the same time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gridloom_base::NodeId;
use gridloom_base::limits::{ADDRESS_CHARS_MAX, RELAYED_PATHS_MAX, TRAFFIC_NS_MAX};
use gridloom_base::time::MILLISECOND_NS;
use gridloom_perf::CompletedTransfer;

/// Transfers that took less time than this say little about rates, because of buffers on their path.
const RATE_NS_MIN: u64 = 50 * MILLISECOND_NS;
/// Maximum number of transfers per relay that are kept to find those that overlap.
const TRANSFERS_MAX: usize = 256;

/// The paths through relays, and what was observed of each relay.
#[derive(Debug, Default)]
pub(super) struct Relays {
    /// The relay between each sender and receiver.
    paths: BTreeMap<(NodeId, NodeId), String>,
    /// The same pairs, with the receiver first.
    by_receiver: BTreeSet<(NodeId, NodeId)>,
    /// The relays of these paths.
    used: BTreeMap<String, UsedRelay>,
}

#[derive(Debug, Default)]
struct UsedRelay {
    /// Number of paths through it.
    paths: usize,
    observed: Observed,
}

/// The transfers that were observed through a relay.
#[derive(Debug, Default)]
struct Observed {
    /// The latest transfers through it.
    transfers: VecDeque<CompletedTransfer<NodeId>>,
    /// The highest total rate of concurrent transfers, bytes per second.
    rate: f64,
}

impl Relays {
    /// Records the path that data take, or have begun to take; `None` is a direct path.
    pub(super) fn set_path(&mut self, pair: (NodeId, NodeId), relay: Option<String>) {
        match relay.filter(|relay| relay.len() <= ADDRESS_CHARS_MAX) {
            Some(relay) if self.paths.get(&pair) == Some(&relay) => {}
            Some(relay) if self.paths.len() < RELAYED_PATHS_MAX || self.paths.contains_key(&pair) => {
                self.remove(pair);
                self.used.entry(relay.clone()).or_default().paths += 1;
                self.by_receiver.insert((pair.1, pair.0));
                self.paths.insert(pair, relay);
            }
            Some(_) => {}
            None => self.remove(pair),
        }
    }

    /// Removes a path, and its relay if no other path uses it.
    fn remove(&mut self, (from, to): (NodeId, NodeId)) {
        let Some(relay) = self.paths.remove(&(from, to)) else { return };
        self.by_receiver.remove(&(to, from));
        let used = self.used.get_mut(&relay).expect("a path uses it");
        used.paths -= 1;
        if used.paths == 0 {
            self.used.remove(&relay);
        }
    }

    /// Records a transfer. If it passed through a relay, it updates the relay's observed rate.
    pub(super) fn add_transfer(&mut self, seen: &CompletedTransfer<NodeId>) {
        let Some(relay) = self.paths.get(&(seen.from, seen.to)) else { return };
        let observed = &mut self.used.get_mut(relay).expect("a path uses it").observed;
        let is_old = |one: &CompletedTransfer<NodeId>| seen.end.since(one.end) > TRAFFIC_NS_MAX;
        while observed.transfers.len() >= TRANSFERS_MAX || observed.transfers.front().is_some_and(is_old) {
            observed.transfers.pop_front();
        }
        if seen.end.since(seen.start) >= RATE_NS_MIN {
            let bytes: f64 = observed.transfers.iter().map(|other| other.bytes_during(seen)).sum();
            observed.rate = observed.rate.max((bytes + seen.size_bytes as f64) / seen.seconds());
        }
        observed.transfers.push_back(seen.clone());
    }

    /// Returns each relay with the ordered pairs of nodes between which it passes data, and the highest rate that was
    /// observed, in bytes per second. In a direction of which nothing is known, data are assumed to take the same path.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, BTreeSet<(NodeId, NodeId)>, f64)> {
        let mut pairs: BTreeMap<&str, BTreeSet<(NodeId, NodeId)>> = BTreeMap::new();
        for ((from, to), relay) in &self.paths {
            let opposite = (!self.paths.contains_key(&(*to, *from))).then_some((*to, *from));
            pairs.entry(relay).or_default().extend([(*from, *to)].into_iter().chain(opposite));
        }
        let rate = |relay: &str| self.used.get(relay).map_or(0.0, |used| used.observed.rate);
        pairs.into_iter().map(move |(relay, pairs)| (relay, pairs, rate(relay)))
    }

    /// Forgets a node that is gone.
    pub(super) fn forget(&mut self, node: NodeId) {
        let all = (node, NodeId(0))..=(node, NodeId(u64::MAX));
        let to_others: Vec<_> = self.paths.range(all.clone()).map(|(pair, _)| *pair).collect();
        let from_others: Vec<_> = self.by_receiver.range(all).map(|(to, from)| (*from, *to)).collect();
        to_others.into_iter().chain(from_others).for_each(|pair| self.remove(pair));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::Time;
    use gridloom_base::time::SECOND_NS;

    const RELAY: &str = "relay:443";

    fn seen(from: u64, to: u64, start_s: u64, end_s: u64) -> CompletedTransfer<NodeId> {
        let (start, end) = (Time(start_s * SECOND_NS), Time(end_s * SECOND_NS));
        CompletedTransfer { from: NodeId(from), to: NodeId(to), size_bytes: 1000, start, end }
    }

    #[test]
    fn transfers_at_one_time_show_how_fast_a_relay_is() {
        let mut relays = Relays::default();
        relays.set_path((NodeId(1), NodeId(2)), Some(RELAY.into()));
        relays.set_path((NodeId(3), NodeId(4)), Some(RELAY.into()));
        // The last one does not pass through the relay.
        for one in [seen(1, 2, 0, 10), seen(3, 4, 5, 10), seen(5, 6, 0, 1)] {
            relays.add_transfer(&one);
        }
        let all: Vec<_> = relays.all().collect();
        let pairs = [(1, 2), (2, 1), (3, 4), (4, 3)].map(|(from, to)| (NodeId(from), NodeId(to)));
        assert_eq!(all, [(RELAY, BTreeSet::from(pairs), 300.0)]);
    }

    #[test]
    fn paths_are_forgotten_with_their_nodes_and_when_they_become_direct() {
        let mut relays = Relays::default();
        let direct = |relays: &mut Relays| relays.set_path((NodeId(1), NodeId(2)), None);
        let lost = |relays: &mut Relays| relays.forget(NodeId(2));
        for forget in [direct as fn(&mut Relays), lost] {
            relays.set_path((NodeId(1), NodeId(2)), Some(RELAY.into()));
            relays.add_transfer(&seen(1, 2, 0, 1));
            forget(&mut relays);
            assert_eq!((relays.all().count(), relays.used.len(), relays.by_receiver.len()), (0, 0, 0));
        }
    }

    #[test]
    fn a_relay_is_forgotten_with_the_last_of_its_paths() {
        let mut relays = Relays::default();
        let pairs = [(1, 2), (2, 3), (3, 1)].map(|(from, to)| (NodeId(from), NodeId(to)));
        pairs.into_iter().for_each(|pair| relays.set_path(pair, Some(RELAY.into())));
        relays.add_transfer(&seen(1, 2, 0, 1));
        relays.set_path(pairs[0], Some("other:443".into()));
        // The same path again changes nothing.
        relays.set_path(pairs[1], Some(RELAY.into()));
        let paths =
            |relays: &Relays| relays.used.iter().map(|(relay, used)| (relay.clone(), used.paths)).collect::<Vec<_>>();
        assert_eq!(paths(&relays), [("other:443".to_string(), 1), (RELAY.to_string(), 2)]);
        assert_eq!(relays.used[RELAY].observed.rate, 1000.0);
        relays.forget(NodeId(2));
        assert_eq!(paths(&relays), [(RELAY.to_string(), 1)]);
        relays.forget(NodeId(1));
        assert!(relays.used.is_empty() && relays.paths.is_empty() && relays.by_receiver.is_empty());
    }

    /// Earlier, each report of a path walked over all paths.
    #[test]
    fn many_reports_of_many_paths_take_little_time() {
        let mut relays = Relays::default();
        let paths = RELAYED_PATHS_MAX as u64;
        (0..paths).for_each(|n| relays.set_path((NodeId(n), NodeId(paths)), Some(RELAY.into())));
        relays.add_transfer(&seen(1, paths, 0, 1));
        for n in 0..paths {
            relays.set_path((NodeId(n), NodeId(paths)), Some(format!("relay {}", n % 2)));
        }
        (0..paths).for_each(|n| relays.forget(NodeId(n)));
        assert!(relays.used.is_empty() && relays.by_receiver.is_empty());
    }

    #[test]
    fn a_node_cannot_fill_the_memory_with_paths() {
        let mut relays = Relays::default();
        (0..2 * RELAYED_PATHS_MAX as u64).for_each(|n| relays.set_path((NodeId(n), NodeId(1)), Some(RELAY.into())));
        relays.set_path((NodeId(1), NodeId(2)), Some("x".repeat(ADDRESS_CHARS_MAX + 1)));
        assert_eq!(relays.paths.len(), RELAYED_PATHS_MAX);
    }
}
