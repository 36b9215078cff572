//! `direct`: a server gets a datum from one that has it, and from no others: of those, from where it is whole there earliest, by the
//! formula of [`super::tree`].

use super::{Candidate, Reader, Spread, tree};

/// Holders.
pub(super) fn candidates(spread: &Spread, reader: &Reader<'_>) -> Vec<Candidate> {
    let mut candidates = tree::candidates(spread, reader);
    candidates.retain(|candidate| reader.holders.contains(&candidate.source.node));
    candidates
}
