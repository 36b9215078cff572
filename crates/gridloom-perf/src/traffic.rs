//! Completed transfers, kept for a while to find out which of them moved at the same time over the same NIC.

use std::collections::{BTreeMap, VecDeque};

use gridloom_base::Time;
use gridloom_base::limits::{TRAFFIC_NS_MAX, TRAFFIC_SEEN_MAX};
use gridloom_base::time::ns_to_seconds;

/// A completed transfer. `P` names places: hosts or nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompletedTransfer<P> {
    /// Sender.
    pub from: P,
    /// Receiver.
    pub to: P,
    /// Bytes moved.
    pub size_bytes: u64,
    /// Arrival of its first byte.
    pub start: Time,
    /// Arrival of its last byte.
    pub end: Time,
}

impl<P> CompletedTransfer<P> {
    pub fn seconds(&self) -> f64 {
        ns_to_seconds(self.end.since(self.start))
    }

    /// Bytes of it that moved while `other` did, assuming a constant rate.
    pub fn bytes_during(&self, other: &CompletedTransfer<P>) -> f64 {
        let both_ns = self.end.min(other.end).since(self.start.max(other.start));
        self.size_bytes as f64 * both_ns as f64 / self.end.since(self.start).max(1) as f64
    }
}

#[derive(Clone, Debug)]
pub struct Traffic<P> {
    /// In the order in which they were reported.
    transfers: VecDeque<CompletedTransfer<P>>,
}

impl<P> Default for Traffic<P> {
    fn default() -> Self {
        Traffic { transfers: VecDeque::new() }
    }
}

impl<P: Ord + Clone> Traffic<P> {
    /// Adds a transfer, and forgets those that ended too long ago to overlap with one that ends now.
    pub fn add(&mut self, now: Time, seen: CompletedTransfer<P>) {
        let is_old = |old: &CompletedTransfer<P>| now.since(old.end) > TRAFFIC_NS_MAX;
        while self.transfers.len() >= TRAFFIC_SEEN_MAX || self.transfers.front().is_some_and(is_old) {
            self.transfers.pop_front();
        }
        self.transfers.push_back(seen);
    }

    /// Bytes that others moved while `seen` did, over its sender's NIC or its receiver's: the larger of the two.
    pub fn bytes_over_same_nics(&self, seen: &CompletedTransfer<P>) -> f64 {
        let others = |is_there: fn(&CompletedTransfer<P>, &CompletedTransfer<P>) -> bool| {
            let there = self.transfers.iter().filter(|other| *other != seen && is_there(other, seen));
            there.map(|other| other.bytes_during(seen)).sum::<f64>()
        };
        others(|other, seen| other.from == seen.from).max(others(|other, seen| other.to == seen.to))
    }

    /// Bytes that others moved while `seen` did, over other NICs, by sender and receiver.
    pub fn bytes_over_other_nics(&self, seen: &CompletedTransfer<P>) -> BTreeMap<(P, P), f64> {
        let mut moved = BTreeMap::new();
        for other in self.transfers.iter().filter(|other| other.from != seen.from && other.to != seen.to) {
            let bytes = other.bytes_during(seen);
            if bytes > 0.0 {
                *moved.entry((other.from.clone(), other.to.clone())).or_default() += bytes;
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::time::SECOND_NS;

    fn seen(from: u32, to: u32, size_bytes: u64, start_s: u64, end_s: u64) -> CompletedTransfer<u32> {
        CompletedTransfer { from, to, size_bytes, start: Time(start_s * SECOND_NS), end: Time(end_s * SECOND_NS) }
    }

    #[test]
    fn what_others_move_over_the_same_card_meanwhile_is_counted() {
        let mut traffic = Traffic::default();
        let all = [
            seen(1, 2, 100, 0, 10),
            // Half of it overlaps, from the same sender.
            seen(1, 3, 60, 5, 15),
            // All of it overlaps, to the same receiver.
            seen(4, 2, 50, 2, 4),
            // Elsewhere, at another time, and in the opposite direction.
            seen(6, 5, 1000, 0, 10),
            seen(1, 2, 70, 10, 12),
            seen(2, 1, 80, 0, 10),
        ];
        all.iter().for_each(|one| traffic.add(one.end, one.clone()));
        assert_eq!(traffic.bytes_over_same_nics(&all[0]), 50.0);
        assert_eq!(traffic.bytes_over_same_nics(&all[3]), 0.0);
        // Two seconds of ten, and five of its own ten.
        assert_eq!(traffic.bytes_over_same_nics(&all[1]), 50.0 + 70.0);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut traffic = Traffic::default();
        (0..10_000).for_each(|n| traffic.add(Time(n), seen(1, 2, 1, 0, 0)));
        assert_eq!(traffic.transfers.len(), TRAFFIC_SEEN_MAX);
        traffic.add(Time(TRAFFIC_NS_MAX + 2), seen(1, 2, 1, 0, 1));
        assert_eq!(traffic.transfers.len(), 1);
    }
}
