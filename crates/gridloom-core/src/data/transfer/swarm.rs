//! `swarm`: each server receives a datum in two slices at the same time, each along a tree of its own.
//!
//! In a chain each server forwards everything it receives, and the last one is as many parts behind as there are
//! servers. A tree is only as deep as the logarithm, but a server that forwards everything to two others has half its
//! bandwidth for each. With two trees each server forwards one slice, to two others, and is a leaf of the other tree.
//! So each network interface sends and receives the datum once.
//!
//! With `s` bytes, a part of `p` bytes, links of bandwidth `b` and latency `l`, and `d` sends to the last server:
//!
//! ```text
//! end = s / b + d (l + 2 p / b)       d is about the logarithm of the number of servers to the base 2
//! ```
//! This requires that the readers are known together: readers that request it one after another can only be appended
//! to a chain. So the catalog waits a moment to collect them.
//!
//! Source: SplitStream (Castro et al., SOSP 2003): trees whose inner nodes are disjoint.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::limits::{EAGER_BYTES_MAX, PARTS};
use gridloom_base::{Method, NodeId, SLICES, slice_bytes};
use gridloom_perf::LinkEstimate;

use super::{
    BANDWIDTH_PART_MIN, DatumTransfers, Reader, Source, SourceCutoffs, TIME_FACTOR_MAX, Verdict, is_close, tree,
};

/// Smaller data are not sliced.
pub const SLICED_BYTES_MIN: u64 = 3 * EAGER_BYTES_MAX;
/// Smallest fraction of the time that `swarm` must save to be preferred to `tree`: it has more messages and more that
/// can fail.
const SAVING_PART_MIN: f64 = 0.05;

/// Servers that need a datum at about the same time.
pub struct Batch<'a> {
    pub now_s: f64,
    pub size_bytes: u64,
    pub holders: &'a [NodeId],
    pub readers: &'a [NodeId],
    pub way: &'a dyn Fn(NodeId, NodeId) -> LinkEstimate,
}

impl Batch<'_> {
    /// Returns the sources of each slice for each reader, or `None` if each reader should fetch the whole datum by
    /// that method.
    pub fn in_slices(&self, method: Method) -> Option<[DatumTransfers; SLICES]> {
        let is_sliced = self.size_bytes >= SLICED_BYTES_MIN && matches!(method, Method::Auto | Method::Swarm);
        // A single reader gains only if there is a second source.
        if !is_sliced || self.holders.is_empty() || self.readers.len() + self.holders.len() < 3 {
            return None;
        }
        let slices = self.slices();
        if method == Method::Auto {
            let slice_bytes = std::array::from_fn::<_, SLICES, _>(|number| slice_bytes(self.size_bytes, number));
            let takes_s = self.duration_s(slices.iter().zip(slice_bytes.map(|bytes| bytes.end - bytes.start)));
            if takes_s > self.duration_s([(&self.whole(), self.size_bytes)]) * (1.0 - SAVING_PART_MIN) {
                return None;
            }
        }
        Some(slices)
    }

    /// Returns the sources by `tree`, for the readers in their order.
    fn whole(&self) -> DatumTransfers {
        let mut spread = DatumTransfers::default();
        for server in self.readers {
            let Batch { now_s, size_bytes, holders, way, .. } = *self;
            let (is_usable, shares_storage, beside, sends_others) = (&|_| true, &|_| false, &[], &|_| 0);
            let reader = Reader {
                now_s,
                server: *server,
                size_bytes,
                holders,
                other_slices: beside,
                sends_others,
                is_usable,
                shares_storage,
                way,
            };
            if let Some(best) = spread.candidates(Method::Tree, &reader).first() {
                spread.begin(*server, best.source);
            }
        }
        spread
    }

    /// Returns the seconds until all servers have all of it, given everything that each server sends.
    fn duration_s<'s>(&self, spreads: impl IntoIterator<Item = (&'s DatumTransfers, u64)> + Clone) -> f64 {
        // For each source, its bytes and the bandwidth of its widest link.
        let mut cards: BTreeMap<NodeId, (f64, f64)> = BTreeMap::new();
        for (spread, bytes) in spreads.clone() {
            for (from, to) in spread.pairs() {
                let (sent, widest) = cards.entry(from).or_default();
                *sent += bytes as f64;
                *widest = widest.max((self.way)(from, to).bandwidth);
            }
        }
        let mut last_s = 0.0_f64;
        for (spread, bytes) in spreads {
            let mut coming: Vec<(&NodeId, &Source)> = spread.sources.iter().collect();
            coming.sort_by_key(|(server, source)| (source.hops, **server));
            let mut ends_s: BTreeMap<NodeId, f64> = BTreeMap::new();
            for (server, source) in coming {
                let (way, (sent, widest)) = ((self.way)(source.node, *server), cards[&source.node]);
                let alone_s = way.latency_s + (bytes as f64 / way.bandwidth).max(sent / widest);
                let source_s = ends_s.get(&source.node).copied().unwrap_or(0.0);
                let end_s = match PARTS.is_forwarded_early(bytes) {
                    true if source_s > 0.0 => alone_s.max(source_s + way.seconds(PARTS.part_bytes(bytes))),
                    true => alone_s,
                    false => source_s + alone_s,
                };
                ends_s.insert(*server, end_s);
                last_s = last_s.max(end_s).max(way.seconds(self.size_bytes));
            }
        }
        last_s
    }

    fn slices(&self) -> [DatumTransfers; SLICES] {
        let mut sent = BTreeMap::new();
        std::array::from_fn(|number| self.slice(number, &mut sent))
    }

    /// Builds the tree of a slice. Servers that forward the slice are added first, so that the tree is as flat as
    /// possible. `sent` is the load of each server by the slices before this one: see [`SliceTree::load`].
    fn slice(&self, number: usize, sent: &mut BTreeMap<NodeId, f64>) -> DatumTransfers {
        let readers = |of_it: bool| {
            let of = self.readers.iter().enumerate().filter(move |(at, _)| (at % SLICES == number) == of_it);
            of.map(|(_, server)| *server)
        };
        let bytes = slice_bytes(self.size_bytes, number);
        let mut growing = SliceTree {
            batch: self,
            size_bytes: bytes.end - bytes.start,
            spread: DatumTransfers::default(),
            inner: readers(true).collect(),
            open: self.holders.iter().copied().collect(),
            widest: 0.0,
            sent_by_holders: self.holders.iter().map(|holder| (*holder, 0.0)).collect(),
            sent,
        };
        readers(true).chain(readers(false)).for_each(|server| growing.add(server));
        growing.spread
    }
}

/// The tree of a slice while readers are added to it.
struct SliceTree<'a> {
    batch: &'a Batch<'a>,
    size_bytes: u64,
    spread: DatumTransfers,
    /// Readers that forward it. Others forward it only where these have narrow links.
    inner: BTreeSet<NodeId>,
    /// Nodes with spare bandwidth.
    open: BTreeSet<NodeId>,
    /// Bandwidth of the widest link used so far.
    widest: f64,
    sent_by_holders: BTreeMap<NodeId, f64>,
    sent: &'a mut BTreeMap<NodeId, f64>,
}

/// A source of a slice, and its link.
type Sender = (Source, LinkEstimate);

impl SliceTree<'_> {
    fn add(&mut self, server: NodeId) {
        let open = self.best(server, &mut self.open.iter().copied());
        // A busy source is preferred to one behind a narrow or long link.
        let is_wide = |(_, way): &Sender| way.bandwidth >= self.widest * BANDWIDTH_PART_MIN;
        let is_near = |sender: &Sender| is_wide(sender) && self.is_near(server, sender.1.latency_s);
        let Some((source, way)) = open.filter(is_near).or_else(|| self.best(server, &mut self.placed().into_iter()))
        else {
            return;
        };
        self.spread.begin(server, source);
        // A transfer within a host does not use a network interface.
        let bandwidth = if way.bandwidth.is_finite() { way.bandwidth } else { 0.0 };
        self.widest = self.widest.max(bandwidth);
        let load = if bandwidth > 0.0 { bandwidth / self.widest } else { 0.0 };
        self.sent_by_holders.entry(source.node).and_modify(|sent| *sent += load);
        *self.sent.entry(source.node).or_default() += load;
        if !self.has_bandwidth(source.node) {
            self.open.remove(&source.node);
        }
        if self.has_bandwidth(server) {
            self.open.insert(server);
        }
    }

    /// True if no other node has a much shorter link to the server.
    fn is_near(&self, server: NodeId, latency_s: f64) -> bool {
        let mut others = self.batch.holders.iter().chain(self.spread.sources.keys()).filter(|node| **node != server);
        // Most links are short, which makes the check of all other nodes unnecessary.
        is_close(latency_s, 0.0) || others.all(|node| is_close(latency_s, (self.batch.way)(*node, server).latency_s))
    }

    fn placed(&self) -> BTreeSet<NodeId> {
        self.batch.holders.iter().chain(self.spread.sources.keys()).copied().collect()
    }

    /// Returns the load of a server's network interface relative to the widest link: 1 for each slice that it sends
    /// over such a link, less for a slice over a narrow one. A holder sends each slice once, while others send one
    /// slice twice.
    fn load(&self, node: NodeId) -> f64 {
        match self.sent_by_holders.get(&node) {
            Some(sent) => SLICES as f64 * sent,
            None => self.sent.get(&node).copied().unwrap_or(0.0),
        }
    }

    /// True if one more send would end about when the node has the complete datum. A node behind a slow link has time
    /// for many.
    fn has_bandwidth(&self, node: NodeId) -> bool {
        if self.widest == 0.0 {
            return true;
        }
        let takes_s = self.size_bytes as f64 * (self.load(node) + 1.0) / self.widest;
        let comes_s = self.spread.source_of(node).map(|source| source.end_s - self.batch.now_s);
        takes_s <= TIME_FACTOR_MAX * comes_s.unwrap_or(self.batch.size_bytes as f64 / self.widest)
    }

    /// Returns the source with the fewest hops among those that are close, have wide links and end nearly as early as
    /// the earliest.
    fn best(&self, server: NodeId, nodes: &mut dyn Iterator<Item = NodeId>) -> Option<Sender> {
        let all: Vec<Sender> = nodes.filter(|node| *node != server).map(|node| self.sender(node, server)).collect();
        let takes_s = |(source, _): &Sender| source.end_s - self.batch.now_s;
        let weighed = SourceCutoffs::new(all.iter().map(|sender| (takes_s(sender), sender.1)));
        let best = all.iter().filter(|sender| weighed.verdict(takes_s(sender), sender.1) == Verdict::Taken);
        let is_leaf = |node| self.spread.source_of(node).is_some() && !self.inner.contains(&node);
        let rank = |source: &Source| (is_leaf(source.node), source.hops);
        let last = |source: &Source| (self.sent.get(&source.node).copied().unwrap_or(0.0), source.node);
        best.min_by(|(a, _), (b, _)| {
            let by_end = rank(a).cmp(&rank(b)).then(a.end_s.total_cmp(&b.end_s));
            let ((sent, node), (other_sent, other)) = (last(a), last(b));
            by_end.then(sent.total_cmp(&other_sent)).then(node.cmp(&other))
        })
        .copied()
    }

    fn sender(&self, node: NodeId, server: NodeId) -> Sender {
        let Batch { now_s, way, size_bytes: whole_bytes, .. } = *self.batch;
        let way = way(node, server);
        let coming = self.spread.source_of(node);
        let (source_end_s, hops) = coming.map_or((now_s, 0), |source| (source.end_s, source.hops));
        let sends = self.load(node).round() as u32;
        let end_s = tree::end_s(now_s, self.size_bytes, (sends, source_end_s), way);
        // The other slices use the same network interface.
        let end_s = end_s.max(now_s + way.seconds(whole_bytes));
        (Source { node, hops: hops + 1, end_s }, way)
    }
}
