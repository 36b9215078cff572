//! How a shared datum spreads: from whom each server gets it, when several want it.
//!
//! A server gets it from where it is whole there earliest, by this prediction. With `s` bytes, a part of `p` bytes, a way of bandwidth
//! `b` (bytes a second) and latency `l` (seconds), and a source that sends it to `u` others already:
//!
//! ```text
//! alone   = l + s (u + 1) / b          the source has it, and shares its card among those it sends to
//! behind  = end of the source + l + p / b
//! end     = max(now + alone, behind)   from 4 MiB on: what still comes is passed on part by part
//!         = max(now, end of the source) + alone       below
//! ```
//! Predictions are no better than what is known of links. So of sources that end nearly as early ([`NEAR_EARLIEST`]), those with
//! narrow ways are left out ([`NEAR_WIDEST`]): a narrow way, as between two sites, is shared by more than is known here. Of the rest, the
//! one is taken that sends it to the fewest others.
//!
//! On links of equal bandwidth this makes a chain, which takes `s / b` and a part for each server; behind a slow link only the first
//! server of a site gets it over that link, and the others from one another.
//!
//! **Invariant:** no server gets it from one that gets it from this one, however far behind.
//!
//! Where it is wrong: it knows nothing of other data on the way, and a source that is slower than predicted keeps those behind it.

use std::collections::BTreeMap;

use gridloom_base::NodeId;
use gridloom_base::limits::{HOPS_MAX, PARTS};
use gridloom_perf::LinkEstimate;
use serde::{Deserialize, Serialize};

/// Times as long as the earliest source takes.
const NEAR_EARLIEST: f64 = 1.25;
/// Part of the widest way's bandwidth. Above a half: the way between two sites often has half the width of cards, or a third, and what is
/// known of both is off by a tenth.
const NEAR_WIDEST: f64 = 0.7;

/// The node from which a server gets a datum.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Source {
    pub node: NodeId,
    /// Sends from a server that has it to this one.
    pub hops: u16,
    /// When it will be whole, seconds.
    pub end_s: f64,
}

/// A source that a server may take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    pub source: Source,
    /// The way from there.
    pub way: LinkEstimate,
    /// To how many others it sends it already.
    pub sends: u32,
    pub verdict: Verdict,
}

/// Why a source is taken, or is not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Verdict {
    Taken,
    /// The one that is taken ends earlier, or has fewer hops, or a lesser number.
    Behind,
    /// It sends it to more others.
    Busier,
    /// Its way is much narrower.
    Narrower,
    /// It ends much later.
    Later,
}

/// One datum on its way to servers.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    coming: BTreeMap<NodeId, Source>,
}

impl Spread {
    /// Whether it is on its way to nobody.
    pub fn is_empty(&self) -> bool {
        self.coming.is_empty()
    }

    /// It is whole at a server, or does not come there any more.
    pub fn ended(&mut self, server: NodeId) {
        self.coming.remove(&server);
    }

    /// The senders and receivers of what is on its way.
    pub fn moving(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.coming.iter().map(|(server, source)| (source.node, *server))
    }

    /// The node from which it is on its way to a server.
    pub fn coming(&self, server: NodeId) -> Option<Source> {
        self.coming.get(&server).copied()
    }

    /// A server gets it from there from now on.
    pub fn begin(&mut self, server: NodeId, source: Source) {
        self.coming.insert(server, source);
    }

    /// From whom a server may get it that it is not on its way to: from `holders`, or servers that it is on its way to, where they
    /// are usable. The one to take is first; none, if there is none.
    pub fn candidates(
        &self,
        now_s: f64,
        server: NodeId,
        size_bytes: u64,
        holders: &[NodeId],
        is_usable: impl Fn(NodeId) -> bool,
        way: impl Fn(NodeId, NodeId) -> LinkEstimate,
    ) -> Vec<Candidate> {
        let whole = holders.iter().map(|node| (*node, now_s, 0));
        let coming = self.coming.iter().filter(|(node, source)| !holders.contains(node) && source.hops < HOPS_MAX);
        let coming = coming.map(|(node, source)| (*node, source.end_s, source.hops));
        let sends = self.sends(now_s);
        let is_source = self.coming.values().any(|source| source.node == server);
        let is_behind = |node: NodeId| is_source && self.is_behind(node, server);
        let usable = |(node, ..): &(NodeId, f64, u16)| *node != server && is_usable(*node) && !is_behind(*node);
        let predicted = whole.chain(coming).filter(usable).map(|(node, source_end_s, hops)| {
            let way = way(node, server);
            let sends = sends.get(&node).copied().unwrap_or(0);
            let end_s = end_s(now_s, size_bytes, (sends, source_end_s), way);
            Candidate { way, sends, source: Source { node, hops: hops + 1, end_s }, verdict: Verdict::Taken }
        });
        judged(now_s, predicted.collect())
    }

    /// To how many others each source sends it.
    fn sends(&self, now_s: f64) -> BTreeMap<NodeId, u32> {
        let mut sends = BTreeMap::new();
        for source in self.coming.values().filter(|source| source.end_s > now_s) {
            *sends.entry(source.node).or_default() += 1;
        }
        sends
    }

    /// Whether a server gets it from another, perhaps through more.
    fn is_behind(&self, server: NodeId, other: NodeId) -> bool {
        let mut at = server;
        for _ in 0..=self.coming.len() {
            match self.coming.get(&at) {
                Some(source) if source.node == other => return true,
                Some(source) => at = source.node,
                None => return false,
            }
        }
        true
    }
}

/// Gives each candidate its verdict. The best is first.
fn judged(now_s: f64, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let earliest_s = candidates.iter().map(|one| one.source.end_s - now_s).min_by(f64::total_cmp).unwrap_or(0.0);
    let is_late = |one: &Candidate| one.source.end_s - now_s > earliest_s * NEAR_EARLIEST;
    let in_time = candidates.iter().filter(|one| !is_late(one));
    let widest = in_time.map(|one| one.way.bandwidth).max_by(f64::total_cmp).unwrap_or(0.0);
    for one in &mut candidates {
        one.verdict = match (is_late(one), one.way.bandwidth < widest * NEAR_WIDEST) {
            (true, _) => Verdict::Later,
            (false, true) => Verdict::Narrower,
            (false, false) => Verdict::Taken,
        };
    }
    candidates.sort_by(|a, b| {
        let by_end = a.sends.cmp(&b.sends).then(a.source.end_s.total_cmp(&b.source.end_s));
        let by_source = by_end.then((a.source.hops, a.source.node).cmp(&(b.source.hops, b.source.node)));
        a.verdict.cmp(&b.verdict).then(by_source)
    });
    let fewest = candidates.first().map_or(0, |best| best.sends);
    for one in candidates.iter_mut().skip(1).filter(|one| one.verdict == Verdict::Taken) {
        one.verdict = if one.sends > fewest { Verdict::Busier } else { Verdict::Behind };
    }
    candidates
}

/// The formula of the module, for a source that sends it to so many others, and has it whole at that time.
fn end_s(now_s: f64, size_bytes: u64, (sends, source_end_s): (u32, f64), way: LinkEstimate) -> f64 {
    let alone_s = way.seconds(size_bytes.saturating_mul(u64::from(sends) + 1));
    match PARTS.passes_on(size_bytes) {
        true => {
            let behind_s = source_end_s + way.seconds(PARTS.of(size_bytes));
            (now_s + alone_s).max(if source_end_s > now_s { behind_s } else { now_s })
        }
        false => source_end_s.max(now_s) + alone_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 64 << 20;

    /// All sources are usable.
    fn all(_: NodeId) -> bool {
        true
    }

    fn equal(_: NodeId, _: NodeId) -> LinkEstimate {
        LinkEstimate { bandwidth: 12.5e6, latency_s: 1e-4 }
    }

    /// Hosts of two sites: those of even numbers and the others. One link between them is ten times as slow.
    fn sites(a: NodeId, b: NodeId) -> LinkEstimate {
        let bandwidth = if a.0 % 2 == b.0 % 2 { 12.5e6 } else { 1.25e6 };
        LinkEstimate { bandwidth, latency_s: 1e-4 }
    }

    impl Spread {
        /// Has a server get it.
        fn choose(
            &mut self,
            now_s: f64,
            server: NodeId,
            size_bytes: u64,
            holders: &[NodeId],
            is_usable: impl Fn(NodeId) -> bool,
            way: impl Fn(NodeId, NodeId) -> LinkEstimate,
        ) -> Option<Source> {
            self.ended(server);
            let source = self.candidates(now_s, server, size_bytes, holders, is_usable, way).first()?.source;
            self.begin(server, source);
            Some(source)
        }
    }

    fn spread(size_bytes: u64, readers: u64, way: fn(NodeId, NodeId) -> LinkEstimate) -> Vec<Source> {
        let mut spread = Spread::default();
        (2..readers + 2)
            .map(|reader| spread.choose(0.0, NodeId(reader), size_bytes, &[NodeId(1)], all, way).unwrap())
            .collect()
    }

    #[test]
    fn each_source_has_a_verdict() {
        // 2 sends it to 8 and 4 to 6, the way from 1 is narrow, and those from 9 and 11 are long.
        let mut spread = Spread::default();
        let holders = [1, 2, 4, 9, 11].map(NodeId);
        for (server, node, end_s) in [(6, 4, 100.0), (8, 2, 5.0)] {
            spread.begin(NodeId(server), Source { node: NodeId(node), hops: 1, end_s });
        }
        let way = |from: NodeId, _| LinkEstimate {
            bandwidth: if from == NodeId(1) { 6e6 } else { 12.5e6 },
            latency_s: if holders[3..].contains(&from) { 1.0 } else { 1e-4 },
        };
        let candidates = spread.candidates(0.0, NodeId(10), 10 << 20, &holders, all, way);
        let verdicts: Vec<(u64, Verdict)> = candidates.iter().map(|one| (one.source.node.0, one.verdict)).collect();
        let expected = [
            (9, Verdict::Taken),
            (11, Verdict::Behind),
            (2, Verdict::Busier),
            (4, Verdict::Busier),
            (1, Verdict::Narrower),
            (8, Verdict::Later),
            (6, Verdict::Later),
        ];
        assert_eq!(verdicts, expected);
    }

    #[test]
    fn on_equal_links_a_large_datum_goes_along_a_chain() {
        let sources = spread(SIZE, 16, equal);
        assert_eq!(sources.iter().map(|source| source.node.0).collect::<Vec<_>>(), (1..=16).collect::<Vec<_>>());
        let alone_s = SIZE as f64 / 12.5e6;
        assert!(sources.last().unwrap().end_s < 1.25 * alone_s);
    }

    #[test]
    fn a_small_datum_goes_along_a_tree() {
        let sources = spread(1 << 19, 15, equal);
        assert_eq!(sources.iter().map(|source| source.hops).max(), Some(4));
        let alone_s = f64::from(1 << 19) / 12.5e6;
        assert!(sources.iter().map(|source| source.end_s).fold(0.0, f64::max) < 5.1 * alone_s);
    }

    #[test]
    fn a_slow_link_is_crossed_once() {
        let sources = spread(SIZE, 15, sites);
        let crossings = (2..).zip(&sources).filter(|(reader, source)| reader % 2 != source.node.0 % 2).count();
        assert_eq!(crossings, 1);
    }

    #[test]
    fn a_link_of_about_half_the_width_is_crossed_once() {
        // As measured: the link between the sites has 6.25 MB/s.
        let measured = |a: NodeId, b: NodeId| LinkEstimate {
            bandwidth: if a.0 % 2 == b.0 % 2 { 11.9e6 } else { 6.4e6 },
            latency_s: if a.0 % 2 == b.0 % 2 { 2e-4 } else { 1e-2 },
        };
        let sources = spread(SIZE, 15, measured);
        let crossings = (2..).zip(&sources).filter(|(reader, source)| reader % 2 != source.node.0 % 2).count();
        assert_eq!(crossings, 1);
    }

    #[test]
    fn no_circle_closes_when_a_source_fails() {
        let mut spread = Spread::default();
        for reader in 2..5 {
            spread.choose(0.0, NodeId(reader), SIZE, &[NodeId(1)], all, equal);
        }
        // 2 had it from 1, 3 from 2, 4 from 3.
        let again = spread.choose(1.0, NodeId(2), SIZE, &[NodeId(1)], |node| node != NodeId(1), equal);
        assert_eq!(again, None, "all others are behind it");
        spread.choose(1.0, NodeId(2), SIZE, &[NodeId(1)], all, equal).unwrap();
        let again = spread.choose(1.0, NodeId(3), SIZE, &[NodeId(1)], |node| node != NodeId(2), equal).unwrap();
        assert_eq!((again.node, again.hops), (NodeId(1), 1));
        spread.ended(NodeId(2));
        assert_eq!(spread.choose(1.0, NodeId(9), SIZE, &[], all, equal).unwrap().node, NodeId(4));
        assert_eq!(Spread::default().choose(1.0, NodeId(9), SIZE, &[], all, equal), None);
    }
}
