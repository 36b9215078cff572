//! Eviction: which copies are dropped to make room.

use gridloom_base::{DatumId, Time};

use super::{Origin, Replica, Replicas};

/// A copy that was evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evicted {
    pub datum: DatumId,
    /// Why it was stored here.
    pub origin: Origin,
    pub size_bytes: u64,
}

impl Replicas {
    /// Evicts copies until `more_bytes` fit: see [`Replicas::evict_until`].
    pub fn evict(
        &mut self,
        more_bytes: u64,
        is_kept: impl Fn(DatumId) -> bool,
        is_read: impl Fn(DatumId) -> bool,
    ) -> Vec<Evicted> {
        self.evict_until(|replicas| replicas.fits(more_bytes), is_kept, is_read)
    }

    /// Evicts copies until the rest is small enough (`fit`). Candidates exist elsewhere, are read by no admitted task here and are not
    /// kept (`is_kept`). Copies that no task will read (`is_read`) go first, and among these the least recently used.
    pub fn evict_until(
        &mut self,
        fit: impl Fn(&Replicas) -> bool,
        is_kept: impl Fn(DatumId) -> bool,
        is_read: impl Fn(DatumId) -> bool,
    ) -> Vec<Evicted> {
        let mut candidates: Vec<(bool, Time, DatumId)> = self
            .replicas
            .iter()
            .filter(|(_, r)| r.here && r.origin != Origin::Made && !r.kept && r.readers == 0 && r.fetchers.is_empty())
            .filter(|(datum, _)| !is_kept(**datum))
            .map(|(datum, r)| (is_read(*datum), r.last_used, *datum))
            .collect();
        candidates.sort_unstable();
        let mut evicted = Vec::new();
        for (_, _, datum) in candidates {
            if fit(self) {
                break;
            }
            let Replica { origin, size_bytes, .. } = self.replicas[&datum];
            self.discard(datum);
            evicted.push(Evicted { datum, origin, size_bytes });
        }
        evicted
    }
}
