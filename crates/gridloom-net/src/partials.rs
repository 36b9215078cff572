//! What has come of data that broke off on their way. If they are asked for again, the rest alone is sent.
//!
//! **Invariants.** What is kept was checked part by part. There are at most [`PARTIALS_MAX`] data, of together no more bytes than the
//! node takes in one datum. None is kept for more than [`KEPT_MAX`] and a heartbeat.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridloom_base::{DatumId, Meta};

use crate::segment::Partial;

/// Data of which parts are kept: more are lost at once only with a peer that was sending them one behind the other.
const PARTIALS_MAX: usize = 16;
/// So few bytes are sent again as soon as they are hashed and asked for.
const KEPT_BYTES_MIN: u64 = 1 << 20;
/// A source of a datum is looked for so long, and one that was lost is back by then.
const KEPT_MAX: Duration = Duration::from_secs(60);

/// What a node keeps, by name.
#[derive(Default)]
pub struct Partials(Mutex<BTreeMap<DatumId, Kept>>);

struct Kept {
    meta: Meta,
    partial: Partial,
    since: Instant,
}

impl Partials {
    /// Keeps what has come of a datum, if it is worth it, and more than is kept of it.
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

    /// How many bytes of a datum are kept, if any are.
    pub fn bytes_of(&self, datum: DatumId) -> Option<u64> {
        self.lock().get(&datum).map(|one| one.partial.bytes().len() as u64)
    }

    /// Takes out the first bytes of a datum of that description, if these are what is kept.
    pub fn take(&self, datum: DatumId, meta: &Meta, bytes: u64) -> Option<Partial> {
        let mut kept = self.lock();
        let is_it = kept.get(&datum).is_some_and(|one| one.meta == *meta && one.partial.bytes().len() as u64 == bytes);
        is_it.then(|| kept.remove(&datum)).flatten().map(|one| one.partial)
    }

    /// The datum is here, or nobody waits for it.
    pub fn forget(&self, datum: DatumId) {
        // Unmapping gigabytes takes a while: after the lock.
        let forgotten = self.lock().remove(&datum);
        drop(forgotten);
    }

    /// Forgets what nobody has asked for.
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
    fn the_oldest_make_way() {
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
