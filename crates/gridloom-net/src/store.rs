//! The data that a node holds. No policy: its machine says what comes, stays and goes.
//!
//! **Invariant:** a datum that is there is not replaced; only the place of its bytes may change
//! ([`Store::segment_of`]).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_base::{DatumId, Meta};

use crate::moving::Moving;
use crate::payload::Payload;
use crate::segment::{Filling, Pool, Segment};

/// A datum in shared memory: its description, the memory, the first byte there, the number of bytes.
pub type InSegment = (Meta, Arc<Segment>, u64, u64);

/// Data by name; may be used from any thread.
pub struct Store {
    pool: Pool,
    moving: Moving,
    held: Mutex<Held>,
    /// What comes and may be passed on meanwhile.
    coming: Mutex<BTreeMap<DatumId, (Meta, Arc<Filling>)>>,
}

/// A datum comes, until this is dropped.
pub struct Coming<'a> {
    store: &'a Store,
    datum: DatumId,
    filling: Arc<Filling>,
}

#[derive(Default)]
struct Held {
    bytes: u64,
    data: BTreeMap<DatumId, (Meta, Payload)>,
}

impl Store {
    /// An empty store that takes its shared memory from `pool`.
    pub fn new(pool: Pool) -> Store {
        Store { pool, moving: Moving::default(), held: Mutex::default(), coming: Mutex::default() }
    }

    /// Puts a datum; `false` if it is there already and stays as it is.
    pub fn put(&self, datum: DatumId, meta: Meta, payload: Payload) -> bool {
        let size_bytes = payload.size_bytes();
        let mut held = self.lock();
        match held.data.entry(datum) {
            Entry::Occupied(_) => return false,
            Entry::Vacant(place) => place.insert((meta, payload)),
        };
        held.bytes += size_bytes;
        true
    }

    /// The datum, if it is there; its bytes stay while the payload lives, whatever becomes of the store.
    pub fn get(&self, datum: &DatumId) -> Option<(Meta, Payload)> {
        self.lock().data.get(datum).cloned()
    }

    /// Removes a datum; `false` if it is not there.
    pub fn remove(&self, datum: &DatumId) -> bool {
        let mut held = self.lock();
        let Some((_, payload)) = held.data.remove(datum) else { return false };
        held.bytes -= payload.size_bytes();
        // The memory is freed after the lock: unmapping gigabytes takes a while.
        drop(held);
        drop(payload);
        true
    }

    /// The datum in shared memory. What lies elsewhere is copied there once,
    /// and stays there.
    ///
    /// # Errors
    /// If there is no shared memory for it.
    pub fn segment_of(&self, datum: &DatumId) -> io::Result<Option<InSegment>> {
        let Some((meta, payload)) = self.get(datum) else { return Ok(None) };
        if let Payload::Segment { segment, offset, size_bytes } = payload {
            return Ok(Some((meta, segment, offset, size_bytes)));
        }
        // Copied outside the lock. Two threads may both copy: the second copy is dropped.
        let mut segment = self.pool.allocate(payload.size_bytes())?;
        segment.bytes_mut().copy_from_slice(payload.bytes());
        let moved = Payload::segment(segment.freeze());
        let mut held = self.lock();
        if let Some((_, place)) = held.data.get_mut(datum) {
            if let Payload::Segment { segment, offset, size_bytes } = place {
                return Ok(Some((meta, segment.clone(), *offset, *size_bytes)));
            }
            *place = moved.clone();
        }
        drop(held);
        match moved {
            Payload::Segment { segment, offset, size_bytes } => Ok(Some((meta, segment, offset, size_bytes))),
            Payload::Inline(_) | Payload::Foreign(_) => unreachable!("it was made as a segment above"),
        }
    }

    /// A datum has begun to come, unless it is here or comes already.
    pub fn begin(&self, datum: DatumId, meta: &Meta, filling: &Arc<Filling>) -> Option<Coming<'_>> {
        if self.lock().data.contains_key(&datum) {
            return None;
        }
        match self.lock_coming().entry(datum) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => {
                place.insert((meta.clone(), filling.clone()));
                Some(Coming { store: self, datum, filling: filling.clone() })
            }
        }
    }

    /// A datum that comes.
    pub fn coming(&self, datum: &DatumId) -> Option<(Meta, Arc<Filling>)> {
        self.lock_coming().get(datum).cloned()
    }

    /// It comes no longer by that stream: it is here, or of no use.
    pub fn end_coming(&self, datum: &DatumId, is_it: impl Fn(&Filling) -> bool) {
        let mut coming = self.lock_coming();
        if coming.get(datum).is_some_and(|(_, filling)| is_it(filling)) {
            coming.remove(datum);
        }
    }

    /// Bytes of all data held.
    pub fn held_bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// What comes into it and goes out of it over sockets.
    pub fn moving(&self) -> &Moving {
        &self.moving
    }

    /// Where shared memory comes from.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_coming(&self) -> MutexGuard<'_, BTreeMap<DatumId, (Meta, Arc<Filling>)>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Coming<'_> {
    /// It is whole, and comes until it is in the store ([`Store::end_coming`]).
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.store.end_coming(&self.datum, |filling| std::ptr::eq(filling, &*self.filling));
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::{Dtype, NodeId};

    use super::*;

    fn datum(serial: u64) -> DatumId {
        DatumId { client: NodeId(1), serial }
    }

    #[test]
    fn a_datum_is_not_replaced() {
        let store = Store::new(Pool::new(0));
        let meta = Meta::array(Dtype::Uint8, &[3]);
        assert!(store.put(datum(1), meta.clone(), Payload::copied(&[1, 2, 3])));
        assert!(!store.put(datum(1), meta.clone(), Payload::copied(&[4, 5, 6])));
        assert_eq!(store.get(&datum(1)).unwrap().1.bytes(), [1, 2, 3]);
        assert_eq!(store.held_bytes(), 3);
        assert!(store.remove(&datum(1)) && !store.remove(&datum(1)));
        assert_eq!(store.held_bytes(), 0);
    }

    #[test]
    fn foreign_memory_moves_into_a_segment_once() {
        struct Heap(Vec<u8>);
        impl crate::payload::Foreign for Heap {
            fn bytes(&self) -> &[u8] {
                &self.0
            }
        }
        let store = Store::new(Pool::new(0));
        let meta = Meta::array(Dtype::Uint8, &[2]);
        store.put(datum(1), meta.clone(), Payload::Foreign(Arc::new(Heap(vec![8, 9]))));
        let (_, segment, offset, size_bytes) = store.segment_of(&datum(1)).unwrap().unwrap();
        assert_eq!((segment.bytes(), offset, size_bytes), (&[8u8, 9][..], 0, 2));
        let (_, again, ..) = store.segment_of(&datum(1)).unwrap().unwrap();
        assert!(Arc::ptr_eq(&segment, &again));
        assert!(store.segment_of(&datum(2)).unwrap().is_none());
    }
}
