//! `tree`: a server gets a datum from where it is whole there earliest, also from servers that it is only on its way to.
//!
//! With `s` bytes, a part of `p` bytes, a way of bandwidth `b` (bytes a second) and latency `l` (seconds), and a source that sends it to
//! `u` others already:
//!
//! ```text
//! alone   = l + s (u + 1) / b          the source has it, and shares its card among those it sends to
//! behind  = end of the source + l + p / b
//! end     = max(now + alone, behind)   from 4 MiB on: what still comes is passed on part by part
//!         = max(now, end of the source) + alone       below
//! ```
//! Of sources that end nearly as early, the one is taken that sends it to the fewest others, and of those the one that sends the
//! fewest other data.
//!
//! On links of equal bandwidth this makes a chain, which takes `s / b` and a part for each server; behind a slow link only the first
//! server of a site gets it over that link, and the others from one another.
//!
//! Where it is wrong: ends are reckoned without other data on the way, and a source that is slower than predicted keeps those behind it.

use gridloom_base::NodeId;
use gridloom_base::limits::{HOPS_MAX, PARTS};
use gridloom_perf::LinkEstimate;

use super::{Candidate, Reader, Source, Spread, Verdict};

/// Holders, and servers that it is on its way to.
pub(super) fn candidates(spread: &Spread, reader: &Reader<'_>) -> Vec<Candidate> {
    let Reader { now_s, server, size_bytes, holders, .. } = *reader;
    let whole = holders.iter().map(|node| (*node, now_s, 0));
    let coming = spread.coming.iter().filter(|(node, source)| !holders.contains(node) && source.hops < HOPS_MAX);
    let coming = coming.map(|(node, source)| (*node, source.end_s, source.hops));
    let sends = spread.sends(now_s, reader.beside);
    let is_source = spread.coming.values().any(|source| source.node == server);
    let is_behind = |node: NodeId| is_source && spread.is_behind(node, server);
    let usable = |(node, ..): &(NodeId, f64, u16)| *node != server && (reader.is_usable)(*node) && !is_behind(*node);
    let candidate = |(node, source_end_s, hops): (NodeId, f64, u16)| {
        let way = (reader.way)(node, server);
        let sends = sends.get(&node).copied().unwrap_or(0);
        let sends_others = (reader.sends_others)(node);
        let end_s = end_s(now_s, size_bytes, (sends, source_end_s), way);
        Candidate { way, sends, sends_others, source: Source { node, hops: hops + 1, end_s }, verdict: Verdict::Taken }
    };
    whole.chain(coming).filter(usable).map(candidate).collect()
}

/// The formula of the module, for a source that sends it to so many others, and has it whole at that time.
pub(super) fn end_s(now_s: f64, size_bytes: u64, (sends, source_end_s): (u32, f64), way: LinkEstimate) -> f64 {
    let alone_s = way.seconds(size_bytes.saturating_mul(u64::from(sends) + 1));
    match PARTS.passes_on(size_bytes) {
        true => {
            let behind_s = source_end_s + way.seconds(PARTS.of(size_bytes));
            (now_s + alone_s).max(if source_end_s > now_s { behind_s } else { now_s })
        }
        false => source_end_s.max(now_s) + alone_s,
    }
}
