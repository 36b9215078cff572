//! The data that a node holds. It has no policy: the node's state machine decides which data are stored and evicted.
//! With a disk, the store decides which data are on it ([`crate::spilling`]).
//!
//! **Invariant:** a stored datum is never replaced; only the location of its bytes may change ([`Store::segment_of`]).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridloom_base::{DatumId, Meta, NodeId, SLICES, slice_bytes};
use gridloom_core::node::DiskLimit;

use crate::cold_data::ColdData;
use crate::disk_use::{DiskRoom, DiskUse};
use crate::filling::{Filler, PartialFill};
use crate::partials::Partials;
use crate::payload::Payload;
use crate::segment::{Pool, Segment, SegmentMut};
use crate::sliced::{Sliced, joined};
use crate::transfers::Transfers;
use crate::uploads::Uploads;

/// A datum in shared memory: its description, the segment, the offset of its first byte, the number of bytes.
pub type InSegment = (Meta, Arc<Segment>, u64, u64);

/// Data by id. Can be used from any thread.
pub struct Store {
    pool: Pool,
    uploads: Uploads,
    transfers: Transfers,
    partials: Partials,
    /// Locked after `held`, if both are.
    disk: DiskUse,
    held: Mutex<Contents>,
    /// Signals that a datum was put.
    was_put: Condvar,
    /// Data being received that may be forwarded meanwhile.
    incoming: Mutex<BTreeMap<DatumId, (Meta, Arc<PartialFill>)>>,
    sliced: Sliced,
}

/// A datum being received, until this guard is dropped.
pub struct Incoming<'a> {
    store: &'a Store,
    datum: DatumId,
    filling: Arc<PartialFill>,
}

#[derive(Default)]
struct Contents {
    bytes: u64,
    /// Bytes on disk, included in `bytes`.
    disk_bytes: u64,
    /// The data in memory that may be moved to disk; empty if there is no disk.
    cold: ColdData,
    data: BTreeMap<DatumId, Stored>,
    /// Counter that increases with each use of a datum.
    uses: u64,
}

/// A stored datum.
struct Stored {
    meta: Meta,
    payload: Payload,
    last_use: u64,
}

impl Store {
    /// Creates an empty store that allocates its shared memory from `pool`.
    pub fn new(pool: Pool) -> Store {
        let (uploads, transfers, partials, disk, held, was_put, incoming, sliced) = Default::default();
        Store { pool, uploads, transfers, partials, disk, held, was_put, incoming, sliced }
    }

    /// Sets the limit on bulk data sent.
    pub fn with_uploads(self, uploads: Uploads) -> Store {
        Store { uploads, ..self }
    }

    /// Puts a datum. Returns `false` if it is already stored; the stored one is kept.
    pub fn put(&self, datum: DatumId, meta: Meta, payload: Payload) -> bool {
        let size_bytes = payload.size_bytes();
        let mut held = self.lock();
        if held.data.contains_key(&datum) {
            return false;
        }
        held.bytes += size_bytes;
        held.uses += 1;
        let last_use = held.uses;
        match &payload {
            Payload::Segment { segment, .. } if segment.is_on_disk() => {
                held.disk_bytes += size_bytes;
                segment.with_room(|room| self.disk.add(datum.client, size_bytes, room));
            }
            Payload::Segment { .. } if self.has_disk() => held.cold.insert(datum, size_bytes, last_use),
            Payload::Segment { .. } | Payload::Inline(_) | Payload::Foreign(_) => {}
        }
        held.data.insert(datum, Stored { meta, payload, last_use });
        self.was_put.notify_all();
        drop(held);
        self.partials.forget(datum);
        true
    }

    /// Returns the datum, if stored. Its bytes stay valid while the payload exists, whatever happens to the store.
    pub fn get(&self, datum: &DatumId) -> Option<(Meta, Payload)> {
        let mut held = self.lock();
        held.touch(datum);
        held.data.get(datum).map(|stored| (stored.meta.clone(), stored.payload.clone()))
    }

    /// Removes a datum. Returns `false` if it is not stored.
    pub fn remove(&self, datum: &DatumId) -> bool {
        let mut held = self.lock();
        let Some(Stored { payload, last_use, .. }) = held.data.remove(datum) else { return false };
        held.bytes -= payload.size_bytes();
        held.cold.remove(*datum, payload.size_bytes(), last_use);
        let on_disk_bytes = on_disk_bytes(&payload);
        if on_disk_bytes > 0 {
            held.disk_bytes -= on_disk_bytes;
            self.disk.remove(datum.client, on_disk_bytes);
        }
        // The memory is freed after the lock is released: unmapping gigabytes takes a while.
        drop(held);
        drop(payload);
        true
    }

    /// Returns the datum in shared memory. Bytes stored elsewhere are copied there once and stay there.
    ///
    /// # Errors
    /// If no shared memory is available.
    pub fn segment_of(&self, datum: &DatumId) -> io::Result<Option<InSegment>> {
        let Some((meta, payload)) = self.get(datum) else { return Ok(None) };
        if let Payload::Segment { segment, offset, size_bytes } = payload {
            return Ok(Some((meta, segment, offset, size_bytes)));
        }
        // Copied outside the lock. Two threads may both copy; the second copy is dropped.
        let mut segment = self.pool.allocate(payload.size_bytes())?;
        segment.bytes_mut().copy_from_slice(payload.bytes());
        let moved = Payload::segment(segment.freeze());
        let mut held = self.lock();
        if let Some(Stored { payload: place, last_use, .. }) = held.data.get_mut(datum) {
            if let Payload::Segment { segment, offset, size_bytes } = place {
                return Ok(Some((meta, segment.clone(), *offset, *size_bytes)));
            }
            *place = moved.clone();
            let (size_bytes, last_use) = (place.size_bytes(), *last_use);
            if self.has_disk() {
                held.cold.insert(*datum, size_bytes, last_use);
            }
        }
        drop(held);
        match moved {
            Payload::Segment { segment, offset, size_bytes } => Ok(Some((meta, segment, offset, size_bytes))),
            Payload::Inline(_) | Payload::Foreign(_) => unreachable!("it was made as a segment above"),
        }
    }

    /// Returns a datum, or a slice of one with the description of the whole.
    pub fn to_send(&self, datum: &DatumId) -> Option<(Meta, Payload)> {
        self.get(datum).or_else(|| {
            let (number, (meta, whole)) = (datum.slice()?, self.get(&datum.whole())?);
            let bytes = slice_bytes(whole.size_bytes(), number);
            Some((meta, whole.part(bytes.start, bytes.end - bytes.start)?))
        })
    }

    // ---- data received in slices

    /// Returns the memory for a slice of a datum with this description, next to the other slices.
    ///
    /// # Errors
    /// If no memory is available.
    pub fn room_of_slice(&self, slice: DatumId, meta: &Meta) -> io::Result<Filler> {
        self.sliced.room(|size_bytes| self.allocate_for(slice.client, size_bytes), slice, meta.size_bytes())
    }

    /// Puts the whole datum if all its slices are stored. The slices are copied only if they are not adjacent in memory.
    pub fn join(&self, whole: DatumId, meta: Meta) {
        let slices: Vec<Payload> = whole.slices().iter().filter_map(|slice| Some(self.get(slice)?.1)).collect();
        if slices.len() == SLICES {
            self.put(whole, meta, joined(|size_bytes| self.allocate_for(whole.client, size_bytes), &slices));
        }
        self.sliced.forget(whole);
    }

    /// Drops the memory reserved for the slices of a datum that is no longer needed.
    pub fn forget_slice(&self, slice: DatumId) {
        self.sliced.forget(slice.whole());
    }

    // ---- data on disk

    /// Returns the bytes of stored data in memory of this host, and on disk.
    pub fn placed_bytes(&self) -> (u64, u64) {
        let held = self.lock();
        (held.bytes - held.disk_bytes, held.disk_bytes)
    }

    /// Returns the bytes on disk of the data of each client.
    pub(crate) fn on_disk(&self) -> BTreeMap<NodeId, u64> {
        self.disk.stored()
    }

    /// Sets how many bytes of some clients' data may be on disk.
    pub(crate) fn limit_disk(&self, limits: &[DiskLimit]) {
        self.disk.set_limits(limits);
        // Data may be moved now.
        self.was_put.notify_all();
    }

    fn has_disk(&self) -> bool {
        self.pool.memory_bytes_max().is_some()
    }

    /// Allocates memory for data of a client that are about to be received: on disk, if there is one, memory is full, and the client may
    /// have more data there.
    ///
    /// # Errors
    /// If there is no memory, or the disk is full or fails.
    pub fn allocate_for(&self, client: NodeId, size_bytes: u64) -> io::Result<SegmentMut> {
        let room = if self.has_disk() { self.disk.reserve(client, size_bytes) } else { None };
        let Some(room) = room else { return self.pool.allocate(size_bytes) };
        let memory = self.pool.allocate_for_data(size_bytes)?;
        Ok(if memory.segment().is_on_disk() { memory.in_room(room) } else { memory })
    }

    /// Returns the least recently used datum that is in memory and not in use, and for which there is room on disk, with that room.
    pub(crate) fn coldest(&self) -> Option<(DatumId, Payload, DiskRoom)> {
        let held = self.lock();
        let can_move = |datum: DatumId| {
            let Some(Payload::Segment { segment, size_bytes, .. }) =
                held.data.get(&datum).map(|stored| &stored.payload)
            else {
                return false;
            };
            Arc::strong_count(segment) == 1 && self.disk.has_room(datum.client, *size_bytes)
        };
        let datum = held.cold.coldest(can_move)?;
        let payload = held.data.get(&datum)?.payload.clone();
        let room = self.disk.reserve(datum.client, payload.size_bytes())?;
        Some((datum, payload, room))
    }

    /// Records the new location on disk of a datum's bytes, if the datum has not changed meanwhile.
    pub(crate) fn set_location(&self, datum: &DatumId, from: &Payload, to: Arc<Segment>) {
        let mut held = self.lock();
        let Some(stored) = held.data.get_mut(datum) else { return };
        let is_same = |a: &Payload, b: &Payload| match (a, b) {
            (Payload::Segment { segment: a, offset: at, .. }, Payload::Segment { segment: b, offset: bt, .. }) => {
                Arc::ptr_eq(a, b) && at == bt
            }
            _ => false,
        };
        if is_same(&stored.payload, from) {
            let (size_bytes, last_use) = (from.size_bytes(), stored.last_use);
            to.with_room(|room| self.disk.add(datum.client, size_bytes, room));
            stored.payload = Payload::segment(to);
            held.disk_bytes += size_bytes;
            held.cold.remove(*datum, size_bytes, last_use);
        }
    }

    /// Waits until a datum is put, at most for `limit`.
    pub(crate) fn wait_for_more(&self, limit: Duration) {
        let waited = self.was_put.wait_timeout(self.lock(), limit);
        drop(waited);
    }

    /// Registers a datum being received, unless it is stored or being received already.
    pub fn begin(&self, datum: DatumId, meta: &Meta, filling: &Arc<PartialFill>) -> Option<Incoming<'_>> {
        if self.lock().data.contains_key(&datum) {
            return None;
        }
        match self.lock_coming().entry(datum) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => {
                place.insert((meta.clone(), filling.clone()));
                Some(Incoming { store: self, datum, filling: filling.clone() })
            }
        }
    }

    /// Returns a datum that is being received.
    pub fn incoming(&self, datum: &DatumId) -> Option<(Meta, Arc<PartialFill>)> {
        self.lock_coming().get(datum).cloned()
    }

    /// Removes the registration of a datum being received: it is stored, or no longer needed.
    pub fn end_incoming(&self, datum: &DatumId, is_it: impl Fn(&PartialFill) -> bool) {
        let mut coming = self.lock_coming();
        if coming.get(datum).is_some_and(|(_, filling)| is_it(filling)) {
            coming.remove(datum);
        }
    }

    /// Returns the bytes of all stored data.
    pub fn held_bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Returns the limit on bulk data sent.
    pub fn uploads(&self) -> &Uploads {
        &self.uploads
    }

    /// Returns the transfers over sockets to and from this store.
    pub fn transfers(&self) -> &Transfers {
        &self.transfers
    }

    /// Returns the kept parts of data whose transfer broke off.
    pub fn partials(&self) -> &Partials {
        &self.partials
    }

    /// Returns the pool of shared memory.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_coming(&self) -> MutexGuard<'_, BTreeMap<DatumId, (Meta, Arc<PartialFill>)>> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn touch(&mut self, datum: &DatumId) {
        let Some(stored) = self.data.get_mut(datum) else { return };
        self.uses += 1;
        let before = std::mem::replace(&mut stored.last_use, self.uses);
        let size_bytes = stored.payload.size_bytes();
        if self.cold.remove(*datum, size_bytes, before) {
            self.cold.insert(*datum, size_bytes, self.uses);
        }
    }
}

fn on_disk_bytes(payload: &Payload) -> u64 {
    match payload {
        Payload::Segment { segment, size_bytes, .. } if segment.is_on_disk() => *size_bytes,
        _ => 0,
    }
}

impl Incoming<'_> {
    /// Keeps a complete datum registered until it is in the store ([`Store::end_incoming`]).
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        self.store.end_incoming(&self.datum, |filling| std::ptr::eq(filling, &*self.filling));
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::Dtype;

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
