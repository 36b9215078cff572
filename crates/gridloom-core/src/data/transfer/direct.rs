//! `direct`: a server fetches a datum only from servers that have the complete datum: from the one with the earliest
//! end by the formula of [`super::tree`].

use super::{Candidate, Reader, Spread, tree};

/// Returns the holders.
pub(super) fn candidates(spread: &Spread, reader: &Reader<'_>) -> Vec<Candidate> {
    let mut candidates = tree::candidates(spread, reader);
    candidates.retain(|candidate| reader.holders.contains(&candidate.source.node));
    candidates
}
