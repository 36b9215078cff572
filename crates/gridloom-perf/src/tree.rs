//! Estimates unmeasured links from measured ones, assuming that the network is a tree.
//!
//! In a tree of links, the bandwidth between two places is that of the narrowest link of the only path between them. So a pair
//! that was not measured is given the narrowest link of the widest path over measured ones, and likewise the longest latency of
//! the path whose longest latency is smallest. If one pair of two sites is measured, all their hosts are known to be far apart.
//!
//! Source: Ramasubramanian et al., *On the treeness of internet latency and bandwidth*, SIGMETRICS 2009, sections 2 and 5: both
//! are close to tree metrics. This is the ultrametric tree of single linkage (Gower, Ross, *Minimum
//! spanning trees and single linkage cluster analysis*, Applied Statistics 18(1), 1969).

use std::collections::BTreeMap;

use super::LinkEstimate;

/// Estimates of the link between any two places. `P` names places.
#[derive(Debug)]
pub struct NetworkTree<P> {
    numbers: BTreeMap<P, usize>,
    measured: BTreeMap<(usize, usize), LinkEstimate>,
    bandwidths: Linkage,
    latencies: Linkage,
    usual: Option<LinkEstimate>,
}

impl<P: Ord + Clone> NetworkTree<P> {
    /// Builds the tree from measured links, and from guesses for places that no measured link joins.
    pub fn new(
        measured: impl IntoIterator<Item = ((P, P), LinkEstimate)>,
        guessed: impl IntoIterator<Item = ((P, P), LinkEstimate)>,
    ) -> NetworkTree<P> {
        let mut numbers: BTreeMap<P, usize> = BTreeMap::new();
        let mut number = |place: P| {
            let next = numbers.len();
            *numbers.entry(place).or_insert(next)
        };
        let measured: BTreeMap<(usize, usize), LinkEstimate> =
            measured.into_iter().map(|((from, to), link)| ((number(from), number(to)), link)).collect();
        let guessed: Vec<((usize, usize), LinkEstimate)> =
            guessed.into_iter().map(|((from, to), link)| ((number(from), number(to)), link)).collect();
        let all = || measured.iter().map(|(pair, link)| (*pair, *link)).chain(guessed.iter().copied());
        let bandwidths = Linkage::new(numbers.len(), all().map(|(pair, link)| (pair, -link.bandwidth)));
        let latencies = Linkage::new(numbers.len(), all().map(|(pair, link)| (pair, link.latency_s)));
        let usual = median(measured.values().map(|link| link.bandwidth))
            .zip(median(measured.values().map(|link| link.latency_s)));
        let usual = usual.map(|(bandwidth, latency_s)| LinkEstimate { latency_s, bandwidth });
        NetworkTree { numbers, measured, bandwidths, latencies, usual }
    }

    /// Returns the number of a place, for the other functions; `None` if none of its links is known.
    pub fn number(&self, place: &P) -> Option<usize> {
        self.numbers.get(place).copied()
    }

    /// Returns the link if it was measured. One measured in one direction only is assumed to be the same in the other.
    pub fn measured(&self, from: Option<usize>, to: Option<usize>) -> Option<LinkEstimate> {
        let (from, to) = (from?, to?);
        self.measured.get(&(from, to)).or_else(|| self.measured.get(&(to, from))).copied()
    }

    /// The median of the measured links, if there are any.
    pub fn usual(&self) -> Option<LinkEstimate> {
        self.usual
    }

    /// The estimate of a link, measured or not; [`LinkEstimate::UNMEASURED`] if nothing joins the two.
    pub fn link(&self, from: Option<usize>, to: Option<usize>) -> LinkEstimate {
        let supposed = || {
            let (from, to) = (from?, to?);
            let bandwidth = -self.bandwidths.between(from, to)?;
            Some(LinkEstimate { latency_s: self.latencies.between(from, to)?, bandwidth })
        };
        self.measured(from, to).or_else(supposed).unwrap_or(LinkEstimate::UNMEASURED)
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Clusters of places, joined in ascending order of the values that join them. The tree is built by union by size, so its height
/// is small.
#[derive(Debug)]
struct Linkage {
    /// The place that each place was joined to, and the joining value.
    joined: Vec<Option<(usize, f64)>>,
}

impl Linkage {
    fn new(count: usize, edges: impl Iterator<Item = ((usize, usize), f64)>) -> Linkage {
        let mut edges: Vec<((usize, usize), f64)> = edges.collect();
        edges.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut linkage = Linkage { joined: vec![None; count] };
        let mut sizes = vec![1_usize; count];
        for ((a, b), by) in edges {
            let (a, b) = (linkage.root(a), linkage.root(b));
            if a != b {
                let (small, large) = if sizes[a] < sizes[b] { (a, b) } else { (b, a) };
                linkage.joined[small] = Some((large, by));
                sizes[large] += sizes[small];
            }
        }
        linkage
    }

    fn root(&self, mut place: usize) -> usize {
        while let Some((above, _)) = self.joined[place] {
            place = above;
        }
        place
    }

    /// The value that joined the clusters of two places; `None` if nothing did.
    fn between(&self, mut a: usize, mut b: usize) -> Option<f64> {
        let mut last = f64::NEG_INFINITY;
        // Later joins have larger values: move up the place that was joined first.
        while a != b {
            let next = match (self.joined[a], self.joined[b]) {
                (Some((above, by)), Some((_, other))) if by <= other => (above, b, by),
                (Some((above, by)), None) => (above, b, by),
                (_, Some((above, by))) => (a, above, by),
                (None, None) => return None,
            };
            (a, b) = (next.0, next.1);
            last = last.max(next.2);
        }
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(bandwidth: f64, latency_s: f64) -> LinkEstimate {
        LinkEstimate { latency_s, bandwidth }
    }

    #[test]
    fn hosts_of_two_sites_are_far_apart_if_one_pair_is() {
        let near = [(0, 1), (1, 2), (10, 11), (11, 12), (12, 13)].map(|pair| (pair, link(1e8, 1e-4)));
        let tree =
            NetworkTree::new(near.into_iter().chain([((2, 10), link(2e5, 0.15)), ((0, 11), link(1e5, 0.2))]), []);
        let between = |from, to| tree.link(tree.number(&from), tree.number(&to));
        assert_eq!((between(0, 1), between(2, 0)), (link(1e8, 1e-4), link(1e8, 1e-4)));
        assert_eq!((between(0, 13), between(13, 0)), (link(2e5, 0.15), link(2e5, 0.15)));
        assert_eq!((between(11, 0), between(0, 99)), (link(1e5, 0.2), LinkEstimate::UNMEASURED));
        assert_eq!(tree.usual(), Some(link(1e8, 1e-4)), "five of seven are so");
        assert!(tree.measured(tree.number(&11), tree.number(&0)).is_some());
        assert!(tree.measured(tree.number(&0), tree.number(&2)).is_none());
    }

    #[test]
    fn a_guess_joins_what_nothing_better_joins_and_is_not_measured() {
        let measured = [((0, 1), link(1e8, 1e-4)), ((2, 3), link(1e7, 1e-3))];
        let tree = NetworkTree::new(measured, [((0, 2), link(4e5, 0.08)), ((0, 1), link(1e5, 0.08))]);
        let number = |place| tree.number(&place);
        assert_eq!(tree.link(number(1), number(3)), link(4e5, 0.08));
        assert_eq!(tree.link(number(0), number(1)), link(1e8, 1e-4));
        assert!(tree.measured(number(0), number(2)).is_none());
    }

    #[test]
    fn the_way_found_is_the_widest_one() {
        // A ring with one narrow link, and a chord: by brute force over all paths (Floyd, Warshall).
        let edges = [(0, 1, 9.0), (1, 2, 8.0), (2, 3, 1.0), (3, 4, 7.0), (4, 5, 6.0), (5, 0, 3.0), (1, 4, 2.0)];
        let tree = NetworkTree::new(edges.map(|(a, b, w)| ((a, b), link(w, 1.0 / w))), []);
        let mut widest = [[0.0_f64; 6]; 6];
        for (a, b, w) in edges {
            (widest[a][b], widest[b][a]) = (w, w);
        }
        for via in 0..6 {
            for a in 0..6 {
                for b in 0..6 {
                    widest[a][b] = widest[a][b].max(widest[a][via].min(widest[via][b]));
                }
            }
        }
        let measured = |a, b| edges.iter().any(|(x, y, _)| (*x, *y) == (a, b) || (*x, *y) == (b, a));
        for (a, row) in widest.iter().enumerate() {
            for (b, width) in row.iter().enumerate().filter(|(b, _)| *b != a && !measured(a, *b)) {
                let found = tree.link(tree.number(&a), tree.number(&b));
                assert_eq!((found.bandwidth, found.latency_s), (*width, 1.0 / width), "{a} to {b}");
            }
        }
    }
}
