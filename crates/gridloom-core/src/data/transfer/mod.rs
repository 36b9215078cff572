//! Transfer methods: from whom each server fetches a shared datum when several need it.
//!
//! Each method has a file. A method is pure arithmetic: it computes sources from sizes, holders, readers and links. It
//! moves nothing and knows no time except its inputs.
//!
//! | method | file | servers fetch the datum |
//! |---|---|---|
//! | `direct` | [`direct`] | from servers that have it |
//! | `tree` | [`tree`] | also from servers that are still receiving it |
//! | `swarm` | [`swarm`] | in two slices, each along a tree of its own |
//! | `storage` | [`storage`] | from a folder that they share with a server that has it |
//! | `auto` | here | by `swarm` if that ends earlier for all servers that request it at about the same time, else by `tree` |
//!
//! Predictions are only as good as the knowledge of the links. So sources that are much farther away than others are
//! excluded, unless they end in less than a third of the time ([`CLOSE_TIME_FACTOR`]): a long link, such as one between two
//! sites, is shared by more traffic than is known here. Bandwidth cannot identify a site, because a link that was
//! measured during other transfers looks narrow; its latency does not change. Of the remaining sources that end nearly
//! as early as the earliest ([`TIME_FACTOR_MAX`]), those with narrow links are excluded likewise ([`BANDWIDTH_PART_MIN`]).
//!
//! **Invariant:** no server fetches a datum or slice from a server that gets it from the first one, directly or
//! indirectly.

mod direct;
mod storage;
mod swarm;
mod tree;

use std::collections::BTreeMap;

use gridloom_base::{Method, NodeId};
use gridloom_perf::LinkEstimate;
use serde::{Deserialize, Serialize};
pub use swarm::{Batch, SLICED_BYTES_MIN};

/// Largest time of an acceptable source, as a multiple of that of the earliest.
const TIME_FACTOR_MAX: f64 = 1.25;
/// Largest time of a closer source, as a multiple of that of the earliest.
const CLOSE_TIME_FACTOR: f64 = 3.0;
/// Latencies that differ by less than this, in seconds, or by less than the factor below are attributed to the same
/// site.
const CLOSE_LATENCY_S: f64 = 3e-3;
const CLOSE_LATENCY_FACTOR: f64 = 4.0;
/// Smallest acceptable fraction of the widest link's bandwidth. It is above a half because the link between two sites
/// often has half or a third of the bandwidth of network interfaces, and both are known to within a tenth.
const BANDWIDTH_PART_MIN: f64 = 0.7;

/// The node from which a server fetches a datum.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Source {
    pub node: NodeId,
    /// Number of sends from a server that has the datum to this one.
    pub hops: u16,
    /// Predicted time at which it has the complete datum, in seconds.
    pub end_s: f64,
}

/// A possible source for a server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    pub source: Source,
    /// The link from there.
    pub link: LinkEstimate,
    /// Number of other servers to which it already sends the datum.
    pub sends: u32,
    /// Number of other data that it sends.
    pub sends_others: u32,
    pub verdict: Verdict,
}

/// Why a source is taken or not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Verdict {
    Taken,
    /// The taken source ends earlier, has fewer hops, or has a lower number.
    NotBest,
    /// It sends the datum to more other servers, or sends more other data.
    Busier,
    /// Its link is much narrower.
    Narrower,
    /// Its link is much longer.
    Farther,
    /// It ends much later.
    Later,
}

/// A server that needs a datum or a slice of one.
pub struct Reader<'a> {
    pub now_s: f64,
    pub server: NodeId,
    pub size_bytes: u64,
    /// Servers that have it.
    pub holders: &'a [NodeId],
    /// Other slices of it in transfer, which use the same network interfaces.
    pub other_slices: &'a [&'a DatumTransfers],
    /// Returns the number of transfers of other data that a server sends.
    pub sends_others: &'a dyn Fn(NodeId) -> u32,
    pub is_usable: &'a dyn Fn(NodeId) -> bool,
    /// True if it shares a storage with that node.
    pub shares_storage: &'a dyn Fn(NodeId) -> bool,
    pub way: &'a dyn Fn(NodeId, NodeId) -> LinkEstimate,
}

impl Reader<'_> {
    /// True if it can fetch the datum from that node through a storage, if that is its method.
    fn serves_by_storage(&self, node: NodeId) -> bool {
        self.holders.contains(&node) && (self.shares_storage)(node)
    }
}

/// The transfers of one datum, or of a slice of one, to servers.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DatumTransfers {
    sources: BTreeMap<NodeId, Source>,
}

impl DatumTransfers {
    /// True if there are no transfers.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Removes the transfer to a server, which has completed or was cancelled.
    pub fn ended(&mut self, server: NodeId) {
        self.sources.remove(&server);
    }

    /// Returns the sender and receiver of each transfer.
    pub fn pairs(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.sources.iter().map(|(server, source)| (source.node, *server))
    }

    /// Returns the source of the transfer to a server.
    pub fn source_of(&self, server: NodeId) -> Option<Source> {
        self.sources.get(&server).copied()
    }

    /// Records that a server fetches it from that source from now on.
    pub fn begin(&mut self, server: NodeId, source: Source) {
        self.sources.insert(server, source);
    }

    /// Returns the possible sources for a server that has no transfer yet, by a method. The one to take is first.
    /// Empty if there is none.
    pub fn candidates(&self, method: Method, reader: &Reader<'_>) -> Vec<Candidate> {
        let candidates = match method {
            Method::Direct => direct::candidates(self, reader),
            Method::Storage => storage::candidates(self, reader),
            // Transfers in slices follow the method's own plan. A server that needs a replacement source takes the
            // best one there is.
            Method::Auto | Method::Tree | Method::Swarm => tree::candidates(self, reader),
        };
        with_verdicts(reader.now_s, candidates)
    }

    /// Returns the number of servers to which each source sends it, or another slice.
    fn sends(&self, now_s: f64, beside: &[&DatumTransfers]) -> BTreeMap<NodeId, u32> {
        let mut sends = BTreeMap::new();
        let all = beside.iter().flat_map(|spread| spread.sources.values()).chain(self.sources.values());
        for source in all.filter(|source| source.end_s > now_s) {
            *sends.entry(source.node).or_default() += 1;
        }
        sends
    }

    /// True if a server gets it from `other`, directly or indirectly.
    fn is_behind(&self, server: NodeId, other: NodeId) -> bool {
        let mut at = server;
        for _ in 0..=self.sources.len() {
            match self.sources.get(&at) {
                Some(source) if source.node == other => return true,
                Some(source) => at = source.node,
                None => return false,
            }
        }
        true
    }
}

/// Sets the verdict of each candidate and puts the best first.
fn with_verdicts(now_s: f64, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let weighed = SourceCutoffs::new(candidates.iter().map(|one| (one.source.end_s - now_s, one.link)));
    for one in &mut candidates {
        one.verdict = weighed.verdict(one.source.end_s - now_s, one.link);
    }
    candidates.sort_by(|a, b| {
        // Servers that all need the same data share the work evenly, though the first would be the best source for
        // each datum alone.
        let by_sends = (a.sends, a.sends_others).cmp(&(b.sends, b.sends_others));
        let by_end = by_sends.then(a.source.end_s.total_cmp(&b.source.end_s));
        let by_source = by_end.then((a.source.hops, a.source.node).cmp(&(b.source.hops, b.source.node)));
        a.verdict.cmp(&b.verdict).then(by_source)
    });
    let fewest = candidates.first().map_or((0, 0), |best| (best.sends, best.sends_others));
    for one in candidates.iter_mut().skip(1).filter(|one| one.verdict == Verdict::Taken) {
        one.verdict = if (one.sends, one.sends_others) > fewest { Verdict::Busier } else { Verdict::NotBest };
    }
    candidates
}

/// The thresholds for sources.
struct SourceCutoffs {
    /// Lowest latency among the sources that are not much too late.
    closest_s: f64,
    /// Earliest end among the close sources.
    earliest_s: f64,
    /// Highest bandwidth among the close sources that end nearly as early, in bytes per second.
    widest: f64,
}

impl SourceCutoffs {
    /// Computes the thresholds from the sources' ends, in seconds from now, and links.
    fn new(sources: impl Iterator<Item = (f64, LinkEstimate)> + Clone) -> SourceCutoffs {
        let least = |values: &mut dyn Iterator<Item = f64>| values.min_by(f64::total_cmp).unwrap_or(0.0);
        let limit_s = CLOSE_TIME_FACTOR * least(&mut sources.clone().map(|(end_s, _)| end_s));
        let in_time = sources.clone().filter(|(end_s, _)| *end_s <= limit_s);
        let closest_s = least(&mut in_time.map(|(_, way)| way.latency_s));
        let close = sources.filter(|(_, way)| is_close(way.latency_s, closest_s));
        let earliest_s = least(&mut close.clone().map(|(end_s, _)| end_s));
        let wide = close.filter(|(end_s, _)| *end_s <= earliest_s * TIME_FACTOR_MAX);
        let widest = wide.map(|(_, way)| way.bandwidth).max_by(f64::total_cmp).unwrap_or(0.0);
        SourceCutoffs { closest_s, earliest_s, widest }
    }

    fn verdict(&self, end_s: f64, way: LinkEstimate) -> Verdict {
        if end_s > self.earliest_s * TIME_FACTOR_MAX {
            Verdict::Later
        } else if !is_close(way.latency_s, self.closest_s) {
            Verdict::Farther
        } else if way.bandwidth < self.widest * BANDWIDTH_PART_MIN {
            Verdict::Narrower
        } else {
            Verdict::Taken
        }
    }
}

fn is_close(latency_s: f64, closest_s: f64) -> bool {
    latency_s <= closest_s + CLOSE_LATENCY_S || latency_s <= closest_s * CLOSE_LATENCY_FACTOR
}

#[cfg(test)]
mod tests;
