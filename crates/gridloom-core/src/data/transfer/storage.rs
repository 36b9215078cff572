//! `storage`: a holder writes a datum once into a folder that it shares with other servers, such as a cluster file
//! system, and they read it there. However many readers there are, the holder's network interface sends the datum
//! once.
//!
//! Of the holders that share a storage with a reader, the one with the lowest number is taken, so that one file serves
//! all readers. A server that shares none, or for which this method failed, fetches the datum by [`super::tree`].
//!
//! The speed of a storage is unknown before it is used. So `auto` never takes this method, and the predicted time is
//! that of the link between the two servers.

use super::{Candidate, DatumTransfers, Reader, tree};

/// Returns one holder, or the candidates of `tree`.
pub(super) fn candidates(spread: &DatumTransfers, reader: &Reader<'_>) -> Vec<Candidate> {
    let mut candidates = tree::candidates(spread, reader);
    let is_sharing = |one: &Candidate| reader.serves_by_storage(one.source.node);
    if let Some(holder) = candidates.iter().filter(|one| is_sharing(one)).map(|one| one.source.node).min() {
        candidates.retain(|one| one.source.node == holder);
    }
    candidates
}
