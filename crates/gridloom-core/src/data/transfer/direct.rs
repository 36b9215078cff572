//! `direct`: a server fetches a datum only from servers that have the complete datum: from the one with the earliest
//! end by the formula of [`super::tree`].

use super::{Candidate, DatumTransfers, Reader, tree};

/// Returns the holders.
pub(super) fn candidates(spread: &DatumTransfers, reader: &Reader<'_>) -> Vec<Candidate> {
    let mut candidates = tree::candidates(spread, reader);
    candidates.retain(|candidate| reader.holders.contains(&candidate.source.node));
    candidates
}
