//! Methods of transfer: from whom each server gets a shared datum, when several want it.
//!
//! One file each. A method is arithmetic: bytes, holders, readers and ways go in, and sources come out. Nothing moves here, and nothing
//! is known of time but what is given.
//!
//! | method | file | servers get it |
//! |---|---|---|
//! | `direct` | [`direct`] | from servers that have it |
//! | `tree` | [`tree`] | also from servers that it comes to |
//! | `swarm` | [`swarm`] | in two slices, each along a tree of its own |
//! | `storage` | [`storage`] | from a folder that they share with one that has it |
//! | `auto` | here | by `swarm` where that ends earlier for all that want it at about the same time, else by `tree` |
//!
//! Predictions are no better than what is known of links. So sources that are much farther than others are left out, unless they end
//! in less than a third of the time ([`NEAR_CLOSE`]): a long way, as between two sites, is shared by more than is known here. What is known of
//! bandwidths cannot tell a site, as a link that was measured beside other data looks narrow; its latency stays. Of the others
//! that end nearly as early ([`NEAR_EARLIEST`]), those with narrow ways are left out likewise ([`NEAR_WIDEST`]).
//!
//! **Invariant:** no server gets a datum, or a slice of it, from one that gets that from this one, however far behind.

mod direct;
mod storage;
mod swarm;
mod tree;

use std::collections::BTreeMap;

use gridloom_base::{Method, NodeId};
use gridloom_perf::LinkEstimate;
use serde::{Deserialize, Serialize};
pub use swarm::{Batch, SLICED_BYTES_MIN};

/// Times as long as the earliest source takes.
const NEAR_EARLIEST: f64 = 1.25;
/// A closer source may take so many times as long.
const NEAR_CLOSE: f64 = 3.0;
/// Latencies that differ by less than that are of one site, or by less than this factor.
const CLOSE_S: f64 = 3e-3;
const CLOSE: f64 = 4.0;
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
    /// How many other data it sends.
    pub sends_others: u32,
    pub verdict: Verdict,
}

/// Why a source is taken, or is not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Verdict {
    Taken,
    /// The one that is taken ends earlier, or has fewer hops, or a lesser number.
    Behind,
    /// It sends it to more others, or more other data.
    Busier,
    /// Its way is much narrower.
    Narrower,
    /// Its way is much longer.
    Farther,
    /// It ends much later.
    Later,
}

/// A server that wants a datum, or a slice of one.
pub struct Reader<'a> {
    pub now_s: f64,
    pub server: NodeId,
    pub size_bytes: u64,
    /// Servers that have it.
    pub holders: &'a [NodeId],
    /// Other slices of it on their way, which take the same cards.
    pub beside: &'a [&'a Spread],
    /// How many transfers of other data leave a server.
    pub sends_others: &'a dyn Fn(NodeId) -> u32,
    pub is_usable: &'a dyn Fn(NodeId) -> bool,
    /// Whether it shares a storage with that one.
    pub shares_storage: &'a dyn Fn(NodeId) -> bool,
    pub way: &'a dyn Fn(NodeId, NodeId) -> LinkEstimate,
}

impl Reader<'_> {
    /// Whether it gets the datum from that one by a storage, if its method is that.
    fn serves_by_storage(&self, node: NodeId) -> bool {
        self.holders.contains(&node) && (self.shares_storage)(node)
    }
}

/// One datum, or a slice of one, on its way to servers.
#[derive(Clone, PartialEq, Debug, Default)]
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

    /// From whom a server that it is not on its way to may get it by a method. The one to take is first; none, if there is none.
    pub fn candidates(&self, method: Method, reader: &Reader<'_>) -> Vec<Candidate> {
        let candidates = match method {
            Method::Direct => direct::candidates(self, reader),
            Method::Storage => storage::candidates(self, reader),
            // What comes in slices comes by the method's own plan; a server that has to be named another source takes the best there is.
            Method::Auto | Method::Tree | Method::Swarm => tree::candidates(self, reader),
        };
        judged(reader.now_s, candidates)
    }

    /// To how many others each source sends it, or a slice beside it.
    fn sends(&self, now_s: f64, beside: &[&Spread]) -> BTreeMap<NodeId, u32> {
        let mut sends = BTreeMap::new();
        let all = beside.iter().flat_map(|spread| spread.coming.values()).chain(self.coming.values());
        for source in all.filter(|source| source.end_s > now_s) {
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
    let weighed = Weighed::new(candidates.iter().map(|one| (one.source.end_s - now_s, one.way)));
    for one in &mut candidates {
        one.verdict = weighed.verdict(one.source.end_s - now_s, one.way);
    }
    candidates.sort_by(|a, b| {
        // Servers that all want the same data share the work evenly, though each datum by itself could come from the first.
        let by_sends = (a.sends, a.sends_others).cmp(&(b.sends, b.sends_others));
        let by_end = by_sends.then(a.source.end_s.total_cmp(&b.source.end_s));
        let by_source = by_end.then((a.source.hops, a.source.node).cmp(&(b.source.hops, b.source.node)));
        a.verdict.cmp(&b.verdict).then(by_source)
    });
    let fewest = candidates.first().map_or((0, 0), |best| (best.sends, best.sends_others));
    for one in candidates.iter_mut().skip(1).filter(|one| one.verdict == Verdict::Taken) {
        one.verdict = if (one.sends, one.sends_others) > fewest { Verdict::Busier } else { Verdict::Behind };
    }
    candidates
}

/// What sources are held against.
struct Weighed {
    /// Least latency of those that are not much too late.
    closest_s: f64,
    /// When the first of the close ones ends.
    earliest_s: f64,
    /// The widest way of those that are close and end about then, bytes per second.
    widest: f64,
}

impl Weighed {
    /// By their ends, seconds from now, and their ways.
    fn new(sources: impl Iterator<Item = (f64, LinkEstimate)> + Clone) -> Weighed {
        let least = |values: &mut dyn Iterator<Item = f64>| values.min_by(f64::total_cmp).unwrap_or(0.0);
        let limit_s = NEAR_CLOSE * least(&mut sources.clone().map(|(end_s, _)| end_s));
        let in_time = sources.clone().filter(|(end_s, _)| *end_s <= limit_s);
        let closest_s = least(&mut in_time.map(|(_, way)| way.latency_s));
        let close = sources.filter(|(_, way)| is_close(way.latency_s, closest_s));
        let earliest_s = least(&mut close.clone().map(|(end_s, _)| end_s));
        let wide = close.filter(|(end_s, _)| *end_s <= earliest_s * NEAR_EARLIEST);
        let widest = wide.map(|(_, way)| way.bandwidth).max_by(f64::total_cmp).unwrap_or(0.0);
        Weighed { closest_s, earliest_s, widest }
    }

    fn verdict(&self, end_s: f64, way: LinkEstimate) -> Verdict {
        if end_s > self.earliest_s * NEAR_EARLIEST {
            Verdict::Later
        } else if !is_close(way.latency_s, self.closest_s) {
            Verdict::Farther
        } else if way.bandwidth < self.widest * NEAR_WIDEST {
            Verdict::Narrower
        } else {
            Verdict::Taken
        }
    }
}

fn is_close(latency_s: f64, closest_s: f64) -> bool {
    latency_s <= closest_s + CLOSE_S || latency_s <= closest_s * CLOSE
}

#[cfg(test)]
mod tests;
