//! Partly received data of broken transfers. When such a datum is requested again, only the rest is sent.
//!
//! **Invariants.** Each kept part was verified. At most [`PARTIALS_MAX`] data are kept, with together no more bytes
//! than the largest datum that the node accepts. None is kept for longer than [`KEPT_MAX`] plus one heartbeat.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridloom_base::{DatumId, Meta};

use crate::filling::Partial;

/// Maximum number of partly received data kept. More are lost at once only if a peer that was sending them one after
/// another is lost.
const PARTIALS_MAX: usize = 16;
/// Parts smaller than this are not kept: sending them again is as fast as hashing and requesting them.
const KEPT_BYTES_MIN: u64 = 1 << 20;
/// Maximum time for which a part is kept: a new source of the datum is found within this time, and a lost source is back by then.
const KEPT_MAX: Duration = Duration::from_secs(60);

/// The kept parts, by datum.
#[derive(Default)]
pub struct Partials(Mutex<BTreeMap<DatumId, Kept>>);

struct Kept {
    meta: Meta,
    partial: Partial,
    since: Instant,
}

impl Partials {
    /// Keeps the received part of a datum, if it is large enough and longer than the part already kept.
    pub fn keep(&self, datum: DatumId, meta: Meta, partial: Partial, bytes_max: u64) {
        let bytes = partial.bytes().len() as u64;
        let mut kept = self.lock();
        if bytes < KEPT_BYTES_MIN || kept.get(&datum).is_some_and(|known| known.partial.bytes().len() as u64 >= bytes) {
            return;
        }
        kept.insert(datum, Kept { meta, partial, since: Instant::now() });
        let all_bytes = |kept: &BTreeMap<DatumId, Kept>| -> u64 {
            kept.values().map(|one| one.partial.size_bytes()).fold(0, u64::saturating_add)
        };
        while kept.len() > PARTIALS_MAX || all_bytes(&kept) > bytes_max {
            let oldest = kept.iter().min_by_key(|(_, one)| one.since).map(|(datum, _)| *datum);
            let Some(oldest) = oldest else { break };
            kept.remove(&oldest);
        }
    }

    /// Returns the number of kept bytes of a datum, if any.
    pub fn bytes_of(&self, datum: DatumId) -> Option<u64> {
        self.lock().get(&datum).map(|one| one.partial.bytes().len() as u64)
    }

    /// Takes the kept part of a datum, if its description and length match.
    pub fn take(&self, datum: DatumId, meta: &Meta, bytes: u64) -> Option<Partial> {
        let mut kept = self.lock();
        let is_it = kept.get(&datum).is_some_and(|one| one.meta == *meta && one.partial.bytes().len() as u64 == bytes);
        is_it.then(|| kept.remove(&datum)).flatten().map(|one| one.partial)
    }

    /// Drops the kept part of a datum that is complete or no longer awaited.
    pub fn forget(&self, datum: DatumId) {
        // Unmapping gigabytes takes a while, so it is done without the lock.
        let forgotten = self.lock().remove(&datum);
        drop(forgotten);
    }

    /// Drops parts that nobody has requested for too long.
    pub fn forget_old(&self) {
        self.lock().retain(|_, one| one.since.elapsed() < KEPT_MAX);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<DatumId, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::NodeId;

    use super::*;
    use crate::segment::Pool;

    const META: Meta = Meta::Bytes { size_bytes: 4 * KEPT_BYTES_MIN };

    fn datum(serial: u64) -> DatumId {
        DatumId { client: NodeId(1), serial }
    }

    fn partial(bytes: u64) -> Partial {
        let mut filler = Pool::new(0).allocate(4 * KEPT_BYTES_MIN).unwrap().fill();
        filler.advance(bytes as usize);
        filler.break_off()
    }

    #[test]
    fn the_longest_is_kept_and_given_once_to_who_knows_it() {
        let partials = Partials::default();
        for bytes in [KEPT_BYTES_MIN - 1, 2 * KEPT_BYTES_MIN, KEPT_BYTES_MIN] {
            partials.keep(datum(1), META, partial(bytes), u64::MAX);
        }
        assert_eq!(partials.bytes_of(datum(1)), Some(2 * KEPT_BYTES_MIN));
        assert!(partials.take(datum(1), &META, KEPT_BYTES_MIN).is_none());
        assert!(partials.take(datum(1), &Meta::Bytes { size_bytes: 5 }, 2 * KEPT_BYTES_MIN).is_none());
        assert!(partials.take(datum(1), &META, 2 * KEPT_BYTES_MIN).is_some());
        assert_eq!(partials.bytes_of(datum(1)), None);
    }

    #[test]
    fn the_oldest_are_removed() {
        let partials = Partials::default();
        for serial in 0..20 {
            partials.keep(datum(serial), META, partial(KEPT_BYTES_MIN), u64::MAX);
        }
        let kept = |partials: &Partials| (0..20).filter(|serial| partials.bytes_of(datum(*serial)).is_some()).count();
        assert_eq!(kept(&partials), PARTIALS_MAX);
        assert!(partials.bytes_of(datum(0)).is_none() && partials.bytes_of(datum(19)).is_some());
        partials.keep(datum(20), META, partial(KEPT_BYTES_MIN), 9 * KEPT_BYTES_MIN);
        assert_eq!((kept(&partials), partials.bytes_of(datum(20))), (1, Some(KEPT_BYTES_MIN)));
        partials.forget(datum(20));
        partials.forget_old();
        assert_eq!(kept(&partials), 1);
    }
}
