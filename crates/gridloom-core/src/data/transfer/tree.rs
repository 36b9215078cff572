//! `tree`: a server fetches a datum from the source with the earliest end, including servers that are still receiving
//! it.
//!
//! With `s` bytes, a part of `p` bytes, a link of bandwidth `b` (bytes per second) and latency `l` (seconds), and a
//! source that already sends it to `u` others:
//!
//! ```text
//! alone   = l + s (u + 1) / b          the source has it, and shares its network interface among its receivers
//! behind  = end of the source + l + p / b
//! end     = max(now + alone, behind)   from 4 MiB on: parts are forwarded while others are still being received
//!         = max(now, end of the source) + alone       below
//! ```
//! Of the sources that end nearly as early, the one that sends it to the fewest others is taken, and of those the one
//! that sends the fewest other data.
//!
//! On links of equal bandwidth this forms a chain, which takes `s / b` plus one part for each server. Behind a slow
//! link only the first server of a site fetches it over that link, and the others fetch it from one another.
//!
//! Known errors: ends are computed without other concurrent data, and a source that is slower than predicted delays
//! those behind it.

use gridloom_base::NodeId;
use gridloom_base::limits::{HOPS_MAX, PARTS};
use gridloom_perf::LinkEstimate;

use super::{Candidate, DatumTransfers, Reader, Source, Verdict};

/// Returns the holders and the servers that are still receiving it.
pub(super) fn candidates(spread: &DatumTransfers, reader: &Reader<'_>) -> Vec<Candidate> {
    let Reader { now_s, server, size_bytes, holders, .. } = *reader;
    let whole = holders.iter().map(|node| (*node, now_s, 0));
    let coming = spread.sources.iter().filter(|(node, source)| !holders.contains(node) && source.hops < HOPS_MAX);
    let coming = coming.map(|(node, source)| (*node, source.end_s, source.hops));
    let sends = spread.sends(now_s, reader.other_slices);
    let is_source = spread.sources.values().any(|source| source.node == server);
    let is_behind = |node: NodeId| is_source && spread.is_behind(node, server);
    let usable = |(node, ..): &(NodeId, f64, u16)| *node != server && (reader.is_usable)(*node) && !is_behind(*node);
    let candidate = |(node, source_end_s, hops): (NodeId, f64, u16)| {
        let way = (reader.way)(node, server);
        let sends = sends.get(&node).copied().unwrap_or(0);
        let sends_others = (reader.sends_others)(node);
        let end_s = end_s(now_s, size_bytes, (sends, source_end_s), way);
        Candidate {
            link: way,
            sends,
            sends_others,
            source: Source { node, hops: hops + 1, end_s },
            verdict: Verdict::Taken,
        }
    };
    whole.chain(coming).filter(usable).map(candidate).collect()
}

/// Computes the module's formula for a source that sends it to `sends` others and has it complete at `source_end_s`.
pub(super) fn end_s(now_s: f64, size_bytes: u64, (sends, source_end_s): (u32, f64), way: LinkEstimate) -> f64 {
    let alone_s = way.seconds(size_bytes.saturating_mul(u64::from(sends) + 1));
    match PARTS.is_forwarded_early(size_bytes) {
        true => {
            let behind_s = source_end_s + way.seconds(PARTS.part_bytes(size_bytes));
            (now_s + alone_s).max(if source_end_s > now_s { behind_s } else { now_s })
        }
        false => source_end_s.max(now_s) + alone_s,
    }
}
