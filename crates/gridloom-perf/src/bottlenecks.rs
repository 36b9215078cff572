//! Bottlenecks that links share beyond the NICs of sender and receiver: a backbone, or one medium for both directions.
//!
//! Two observations of concurrent transfers over different NICs decide:
//! - **Shared**: a transfer was slower than its link, and the others moved the bytes that it missed.
//! - **Not shared**: two transfers together moved faster than either could alone. This observation weighs more, because
//!   unobserved traffic makes links look slower, never faster.
//!
//! Source: Shao, Berman, Wolski, *Using Effective Network Views to Promote Distributed Application Performance*, PDPTA 1999.
//! They send probes; this file uses transfers that happen anyway.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::model::median;
use super::traffic::{CompletedTransfer, Traffic};
use gridloom_base::limits::{BOTTLENECKS_MAX, RELATIONS_MAX};

/// A transfer is slow if it is slower than this fraction of its link.
const SLOW: f64 = 0.75;
/// A slow transfer is explained if all transfers together reach this fraction of its link.
const EXPLAINED: f64 = 0.85;
/// A transfer that moved less than this fraction of the missing bytes is not a cause.
const BLAME_PART_MIN: f64 = 0.2;
/// Number of times that two links must be slow together to count as sharing a bottleneck.
const TIMES_MIN: usize = 3;
/// Two links that together carried this multiple of the wider link's bandwidth do not share it.
const APART: f64 = 1.4;
/// A relation is discarded if the links have become faster or slower by this factor since it was learned.
const CHANGE: f64 = 2.0;

type Pair<P> = (P, P);

/// Links that share a bottleneck, and its bandwidth.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bottleneck<P> {
    /// Senders and receivers, ascending.
    pub pairs: Vec<Pair<P>>,
    /// Bytes per second for all of them together.
    pub bandwidth: f64,
}

/// Observations of two links.
#[derive(Clone, Debug, Default)]
struct Relation {
    /// Expected bandwidth of the wider link at that time.
    wider: f64,
    /// Highest sum of both rates that was more than the wider link was expected to carry, bytes per second.
    apart: f64,
    /// Sums of all transfers' rates at the last times when these two were slow together, bytes per second.
    together: VecDeque<f64>,
    /// Sequence number of the last update.
    number: u64,
}

/// All relations that one machine knows. `P` names places.
#[derive(Clone, Debug)]
pub(super) struct LinkRelations<P> {
    /// The smaller pair is first.
    relations: BTreeMap<(Pair<P>, Pair<P>), Relation>,
    count: u64,
}

impl<P> Default for LinkRelations<P> {
    fn default() -> Self {
        LinkRelations { relations: BTreeMap::new(), count: 0 }
    }
}

impl<P: Ord + Clone> LinkRelations<P> {
    /// Learns from a transfer that arrived at `rate`. Returns the bytes that others moved meanwhile over resources that they share
    /// with it. A link that is not known to be apart shares something with it if that was observed, or if a common path of a given
    /// bandwidth (bytes per second) is `presumed`.
    pub(super) fn learn(
        &mut self,
        seen: &CompletedTransfer<P>,
        rate: f64,
        traffic: &Traffic<P>,
        (bandwidth, presumed): (impl Fn(&Pair<P>) -> Option<f64>, impl Fn(&Pair<P>) -> Option<f64>),
    ) -> f64 {
        let pair = (seen.from.clone(), seen.to.clone());
        let Some(expected) = bandwidth(&pair) else { return 0.0 };
        let seconds = seen.seconds();
        let rate = rate.min(expected);
        let others: Vec<(Pair<P>, f64, f64)> = traffic
            .bytes_over_other_nics(seen)
            .into_iter()
            .filter_map(|(other, bytes)| {
                let width = bandwidth(&other)?;
                // A single link of a path may look narrower than the path.
                let wider = width.max(expected).max(presumed(&other).unwrap_or_default());
                Some((other, (bytes / seconds).min(width), wider))
            })
            .collect();
        for (other, other_rate, wider) in &others {
            if rate + other_rate >= APART * wider {
                let relation = self.relation(&pair, other, *wider);
                relation.apart = relation.apart.max(rate + other_rate);
                relation.together.clear();
            }
        }
        let suspects = others
            .into_iter()
            .filter(|(other, _, wider)| !self.known(&pair, other, *wider).is_some_and(|r| r.is_apart(*wider)));
        let suspects: Vec<(Pair<P>, f64, f64)> = suspects.collect();
        let over_cards = rate + traffic.bytes_over_same_nics(seen) / seconds;
        let total = over_cards + suspects.iter().map(|(_, rate, _)| rate).sum::<f64>();
        let missed = expected - over_cards;
        if over_cards < SLOW * expected && total >= EXPLAINED * expected {
            for (other, _, wider) in suspects.iter().filter(|(_, rate, _)| *rate >= BLAME_PART_MIN * missed) {
                let relation = self.relation(&pair, other, *wider);
                relation.together.push_back(total);
                if relation.together.len() > TIMES_MIN {
                    relation.together.pop_front();
                }
            }
        }
        let shares = |other: &Pair<P>, wider: f64| {
            presumed(other).is_some() || self.known(&pair, other, wider).is_some_and(|r| !r.together.is_empty())
        };
        seconds
            * suspects.iter().filter(|(other, _, wider)| shares(other, *wider)).map(|(_, rate, _)| rate).sum::<f64>()
    }

    /// Returns the bottlenecks shared by links of these bandwidths. In each, every two links were slow together, except those that
    /// share a NIC.
    pub(super) fn all(&self, bandwidth: impl Fn(&Pair<P>) -> Option<f64>) -> Vec<Bottleneck<P>> {
        let wider = |a: &Pair<P>, b: &Pair<P>| Some(bandwidth(a)?.max(bandwidth(b)?));
        let shared = self.relations.iter().filter(|((a, b), relation)| {
            relation.together.len() >= TIMES_MIN && wider(a, b).is_some_and(|wider| relation.holds(wider))
        });
        let shared: BTreeMap<(&Pair<P>, &Pair<P>), &Relation> =
            shared.map(|((a, b), relation)| ((a, b), relation)).collect();
        let links: BTreeSet<&Pair<P>> = shared.keys().flat_map(|(a, b)| [*a, *b]).collect();
        let agree = |a: &Pair<P>, b: &Pair<P>| {
            // Links that share a NIC are never compared, so they are not known to be apart.
            shared.contains_key(&if a < b { (a, b) } else { (b, a) }) || a.0 == b.0 || a.1 == b.1
        };
        let mut left: BTreeSet<(&Pair<P>, &Pair<P>)> = shared.keys().copied().collect();
        let mut found = Vec::new();
        while let Some((a, b)) = left.first().copied().filter(|_| found.len() < BOTTLENECKS_MAX) {
            let mut members = vec![a, b];
            for link in &links {
                if !members.contains(link) && members.iter().all(|member| agree(member, link)) {
                    members.push(link);
                }
            }
            members.sort();
            let inside = |(a, b): &(&Pair<P>, &Pair<P>)| members.contains(a) && members.contains(b);
            let totals = shared
                .iter()
                .filter(|(both, _)| inside(both))
                .flat_map(|(_, relation)| relation.together.iter().copied());
            let widest = members.iter().filter_map(|pair| bandwidth(pair)).fold(0.0, f64::max);
            let bandwidth = median(totals.collect()).max(widest);
            left.retain(|both| !inside(both));
            found.push(Bottleneck { pairs: members.into_iter().cloned().collect(), bandwidth });
        }
        found
    }

    /// True if two of these links were observed not to share a path of that bandwidth.
    pub(super) fn are_apart(&self, links: &[Pair<P>], bandwidth: f64) -> bool {
        let links: BTreeSet<&Pair<P>> = links.iter().collect();
        let are_known = |(a, b): &(Pair<P>, Pair<P>)| links.contains(a) && links.contains(b);
        self.relations.iter().any(|(both, relation)| are_known(both) && relation.is_apart(bandwidth))
    }

    /// Forgets a place that has left.
    pub(super) fn forget(&mut self, place: &P) {
        let is_other = |pair: &Pair<P>| pair.0 != *place && pair.1 != *place;
        self.relations.retain(|(a, b), _| is_other(a) && is_other(b));
    }

    fn known(&self, a: &Pair<P>, b: &Pair<P>, wider: f64) -> Option<&Relation> {
        let key = if a < b { (a.clone(), b.clone()) } else { (b.clone(), a.clone()) };
        self.relations.get(&key).filter(|relation| relation.holds(wider))
    }

    /// Returns the relation of two links for an update: a new one if there is none, or if the links have changed.
    fn relation(&mut self, a: &Pair<P>, b: &Pair<P>, wider: f64) -> &mut Relation {
        self.count += 1;
        let number = self.count;
        let key = if a < b { (a.clone(), b.clone()) } else { (b.clone(), a.clone()) };
        if self.relations.len() >= RELATIONS_MAX && !self.relations.contains_key(&key) {
            let oldest = self.relations.iter().min_by_key(|(_, relation)| relation.number).map(|(key, _)| key.clone());
            oldest.map(|key| self.relations.remove(&key));
        }
        let relation = self.relations.entry(key).or_default();
        if !relation.holds(wider) {
            *relation = Relation { wider, ..Relation::default() };
        }
        relation.number = number;
        relation
    }
}

impl Relation {
    /// A link that turns out to be wider may have carried both.
    fn is_apart(&self, wider: f64) -> bool {
        self.holds(wider) && self.apart >= APART * wider
    }

    fn holds(&self, wider: f64) -> bool {
        (1.0 / CHANGE..=CHANGE).contains(&(wider / self.wider))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::Time;
    use gridloom_base::time::SECOND_NS;

    /// Each (from, to, rate) moves for ten seconds over links of 100 bytes per second; all are learned from.
    fn moves(bottlenecks: &mut LinkRelations<u32>, from_s: u64, rates: &[(u32, u32, u64)]) -> Vec<f64> {
        let mut traffic = Traffic::default();
        let all: Vec<CompletedTransfer<u32>> = rates
            .iter()
            .map(|(from, to, rate)| CompletedTransfer {
                from: *from,
                to: *to,
                size_bytes: 10 * rate,
                start: Time(from_s * SECOND_NS),
                end: Time((from_s + 10) * SECOND_NS),
            })
            .collect();
        all.iter().for_each(|seen| traffic.add(seen.end, seen.clone()));
        let learned = all.iter().zip(rates).map(|(seen, (_, _, rate))| {
            bottlenecks.learn(seen, *rate as f64, &traffic, (|_: &Pair<u32>| Some(100.0), |_: &Pair<u32>| None))
        });
        learned.collect()
    }

    fn all(bottlenecks: &LinkRelations<u32>) -> Vec<(Vec<Pair<u32>>, f64)> {
        bottlenecks.all(|_| Some(100.0)).into_iter().map(|one| (one.pairs, one.bandwidth)).collect()
    }

    #[test]
    fn two_links_that_are_slow_together_share_something() {
        let mut bottlenecks = LinkRelations::default();
        // Each of the two is learned from, so two rounds give four observations.
        assert_eq!(moves(&mut bottlenecks, 0, &[(1, 3, 50), (2, 4, 50)]), [500.0; 2]);
        assert_eq!(all(&bottlenecks), []);
        moves(&mut bottlenecks, 20, &[(1, 3, 50), (2, 4, 50)]);
        assert_eq!(all(&bottlenecks), [(vec![(1, 3), (2, 4)], 100.0)]);
        // Observations at another time, or of links that have changed, do not count.
        assert!(bottlenecks.all(|_| Some(300.0)).is_empty());
        bottlenecks.forget(&4);
        assert_eq!(all(&bottlenecks), []);
    }

    #[test]
    fn a_link_that_is_wider_than_was_thought_may_carry_both() {
        let mut bottlenecks = LinkRelations::default();
        moves(&mut bottlenecks, 0, &[(1, 3, 75), (2, 4, 75)]);
        let links = [(1, 3), (2, 4)];
        assert!(bottlenecks.are_apart(&links, 100.0));
        assert!(!bottlenecks.are_apart(&links, 150.0));
        assert!(!bottlenecks.are_apart(&links[..1], 100.0));
    }

    #[test]
    fn who_is_fast_together_shares_nothing_whatever_came_before() {
        let mut bottlenecks = LinkRelations::default();
        for at in [0, 20, 40] {
            moves(&mut bottlenecks, at, &[(1, 3, 50), (2, 4, 50)]);
        }
        moves(&mut bottlenecks, 60, &[(1, 3, 90), (2, 4, 90)]);
        assert_eq!(all(&bottlenecks), []);
        // Slow, but for other reasons: the other transfer is not the cause.
        for at in [80, 100, 120] {
            assert_eq!(moves(&mut bottlenecks, at, &[(1, 3, 50), (2, 4, 50)]), [0.0; 2]);
        }
        assert_eq!(all(&bottlenecks), []);
    }

    #[test]
    fn a_slow_transfer_is_ignored_unless_others_explain_the_missing_bandwidth() {
        let mut bottlenecks = LinkRelations::default();
        for at in [0, 20, 40, 60] {
            assert_eq!(moves(&mut bottlenecks, at, &[(1, 3, 20), (2, 4, 20)]), [0.0; 2]);
        }
        assert_eq!(all(&bottlenecks), []);
    }

    #[test]
    fn a_shared_card_is_no_bottleneck_of_its_own() {
        let mut bottlenecks = LinkRelations::default();
        for at in [0, 20, 40] {
            moves(&mut bottlenecks, at, &[(1, 3, 50), (1, 4, 50)]);
            moves(&mut bottlenecks, at + 10, &[(1, 3, 50), (2, 3, 50)]);
        }
        assert_eq!(all(&bottlenecks), []);
    }

    #[test]
    fn a_backbone_holds_all_ways_between_two_sites_in_one() {
        let mut bottlenecks = LinkRelations::default();
        for at in [0, 20, 40] {
            moves(&mut bottlenecks, at, &[(1, 3, 60), (2, 4, 60)]);
            moves(&mut bottlenecks, at + 10, &[(1, 4, 60), (2, 3, 60), (5, 6, 95)]);
        }
        // 5 → 6 was fast beside them.
        assert_eq!(all(&bottlenecks), [(vec![(1, 3), (1, 4), (2, 3), (2, 4)], 120.0)]);
    }

    #[test]
    fn a_way_that_both_directions_share_is_one() {
        let mut bottlenecks = LinkRelations::default();
        for at in [0, 20] {
            moves(&mut bottlenecks, at, &[(1, 2, 45), (2, 1, 55)]);
        }
        assert_eq!(all(&bottlenecks), [(vec![(1, 2), (2, 1)], 100.0)]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut bottlenecks = LinkRelations::default();
        for n in 0..RELATIONS_MAX as u32 + 100 {
            moves(&mut bottlenecks, u64::from(n) * 20, &[(1, 2, 50), (10 + n, 9, 50)]);
        }
        assert_eq!(bottlenecks.relations.len(), RELATIONS_MAX);
        for n in 0..2 * BOTTLENECKS_MAX as u32 {
            let (at, a, b) = (u64::from(n) * 40, 10_000 + 4 * n, 10_002 + 4 * n);
            (0..2).for_each(|again| drop(moves(&mut bottlenecks, at + 20 * again, &[(a, a + 1, 50), (b, b + 1, 50)])));
        }
        assert_eq!(all(&bottlenecks).len(), BOTTLENECKS_MAX);
    }
}
