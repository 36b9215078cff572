//! `storage`: a holder writes a datum once into a folder that it shares with other servers, such as one of a cluster's file system, and
//! they read it there. However many they are, the holder's card sends it once.
//!
//! Of those with which a reader shares a storage it is the holder of the least number, so that one file serves all. A server that shares
//! none, or for which that has failed, gets the datum by [`super::tree`].
//!
//! How fast a storage is nobody knows before it is used. So `auto` never takes this method, and its time is told as that of the way
//! between the two servers.

use super::{Candidate, Reader, Spread, tree};

/// One holder, or those of `tree`.
pub(super) fn candidates(spread: &Spread, reader: &Reader<'_>) -> Vec<Candidate> {
    let mut candidates = tree::candidates(spread, reader);
    let is_sharing = |one: &Candidate| reader.serves_by_storage(one.source.node);
    if let Some(holder) = candidates.iter().filter(|one| is_sharing(one)).map(|one| one.source.node).min() {
        candidates.retain(|one| one.source.node == holder);
    }
    candidates
}
