//! The accounting of a server's store: its data, the readers that wait for each, and the free room.
//!
//! **Invariants**
//! - `used_bytes` is the sum of the sizes of all replicas, including reserved ones, and `client_bytes` the sum for each client. `used_bytes` exceeds the limit only by
//!   results that turned out larger than announced (texts).
//! - A datum of more than [`INLINE_BYTES_MAX`] counts as at least `least_bytes`, because it takes a descriptor too. So
//!   the store never has more data than the server has descriptors for.
//! - A replica that a waiting task reads, or that a peer waits for, is never dropped.
//! - A copy that must be kept is never evicted for data of its owner, and for others only beyond its owner's share of
//!   the store.
//!
//! What it does not do: move or store bytes (the world does), or decide which source a datum is fetched from (the
//! plan does).
//!
//! A program's choices for its data have files of their own: locations (`uri`), management modes (`mode`),
//! descriptions (`description`), copies placed on servers (`copies`). The session acts on them.

mod catalog;
mod copies;
mod description;
mod mode;
mod transfer;
mod uri;

pub use catalog::{
    Catalog, CatalogUpdate, Content, IdentifierKey, RequestId, Stored, VersionReport, VersionState, check_waits,
};
pub use copies::{CLIENT, DatumStatus, PlacedCopies};
pub use description::{Description, Kind};
pub use mode::Mode;
pub use transfer::{Batch, Candidate, DatumTransfers, Reader, SLICED_BYTES_MIN, Source, Verdict};
pub use uri::{InvalidData, Uri};

mod dropped;
mod eviction;

use std::collections::BTreeMap;

use dropped::Dropped;
pub use eviction::Evicted;
use gridloom_base::limits::INLINE_BYTES_MAX;
use gridloom_base::{DatumId, NodeId, Time};

/// How a replica got here, or will get here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Produced by a task of this server: the only copy, unless others fetched it.
    Made,
    /// Copied from elsewhere, where it still is.
    Copied,
    /// The argument of a plain call: a copy that only that call uses. The client has the datum until the call ends.
    Argument,
}

#[derive(Clone, Debug)]
struct Replica {
    /// The bytes that it counts as.
    size_bytes: u64,
    /// Its actual size in bytes, once it has arrived.
    actual_bytes: u64,
    origin: Origin,
    here: bool,
    readers: u32,
    /// True if its owner wants it kept here, even if copies exist elsewhere.
    kept: bool,
    /// True if it is here only for a task that gives it another name.
    is_for_renaming: bool,
    released: bool,
    fetchers: Vec<Requester>,
    /// When it was last read, for eviction.
    last_used: Time,
}

/// A peer that requests a datum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requester {
    pub peer: NodeId,
    /// Planned number of sends from where the datum is stored or produced to the peer.
    pub hops: u16,
}

/// The response to a peer's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FetchAnswer {
    /// Send it.
    Now,
    /// Send it when it has arrived.
    Later,
    /// Refuse: it was here and has been dropped.
    Dropped,
}

/// The replicas of one server.
#[derive(Clone, Debug)]
pub struct Replicas {
    limit_bytes: u64,
    least_bytes: u64,
    used_bytes: u64,
    client_bytes: BTreeMap<NodeId, u64>,
    replicas: BTreeMap<DatumId, Replica>,
    /// Requests for unknown data: the task that produces them may still be in transfer to this server.
    unknown: BTreeMap<DatumId, Vec<(Requester, Time)>>,
    dropped: Dropped,
}

impl Replicas {
    /// Creates an empty store of that size for at most `data_max` data.
    pub fn new(limit_bytes: u64, data_max: u64) -> Replicas {
        Replicas {
            limit_bytes,
            least_bytes: limit_bytes / data_max.max(1),
            used_bytes: 0,
            client_bytes: BTreeMap::new(),
            replicas: BTreeMap::new(),
            unknown: BTreeMap::new(),
            dropped: Dropped::default(),
        }
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns the stored and reserved bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Returns the number of replicas, including reserved ones.
    pub fn len(&self) -> usize {
        self.replicas.len()
    }

    /// True if there is no replica.
    pub fn is_empty(&self) -> bool {
        self.replicas.is_empty()
    }

    /// Returns the number of unknown data that a peer waits for.
    pub fn unknown(&self) -> usize {
        self.unknown.len()
    }

    /// True if the complete datum is in the store.
    pub fn is_here(&self, datum: DatumId) -> bool {
        self.replicas.get(&datum).is_some_and(|replica| replica.here)
    }

    /// Returns the bytes that a stored or reserved datum counts as; 0 if it is unknown.
    pub fn size_bytes(&self, datum: DatumId) -> u64 {
        self.replicas.get(&datum).map_or(0, |replica| replica.size_bytes)
    }

    /// Returns the actual size of a stored datum, which may be less than it counts as.
    pub fn actual_bytes(&self, datum: DatumId) -> u64 {
        self.replicas.get(&datum).map_or(0, |replica| replica.actual_bytes)
    }

    /// True if it is stored or reserved.
    pub fn is_known(&self, datum: DatumId) -> bool {
        self.replicas.contains_key(&datum)
    }

    /// Returns the bytes that a datum of that size counts as.
    pub fn counted_bytes(&self, size_bytes: u64) -> u64 {
        if size_bytes > INLINE_BYTES_MAX as u64 { size_bytes.max(self.least_bytes) } else { size_bytes }
    }

    /// True if `more_bytes` fit now.
    pub fn fits(&self, more_bytes: u64) -> bool {
        self.used_bytes.saturating_add(more_bytes) <= self.limit_bytes
    }

    /// Returns the free room that a reservation for a datum of that size would take.
    pub fn lacks_bytes(&self, datum: DatumId, size_bytes: u64) -> u64 {
        let size_bytes = self.counted_bytes(size_bytes);
        match self.replicas.get(&datum) {
            Some(replica) if replica.here => 0,
            Some(replica) => size_bytes.saturating_sub(replica.size_bytes),
            None => size_bytes,
        }
    }

    /// Reserves room for a datum. If it is already reserved and a task here turns out to produce it, the reservation
    /// grows to what the task needs. Earlier requests for the datum are kept.
    pub fn reserve(&mut self, datum: DatumId, size_bytes: u64, origin: Origin, now: Time) {
        let size_bytes = self.counted_bytes(size_bytes);
        if let Some(replica) = self.replicas.get_mut(&datum) {
            if !replica.here && origin == Origin::Made {
                replica.origin = origin;
                self.grow(datum, size_bytes);
            }
            return;
        }
        self.dropped.forget(datum);
        let fetchers =
            self.unknown.remove(&datum).unwrap_or_default().into_iter().map(|(asker, _)| asker).collect::<Vec<_>>();
        self.recount(datum, 0, size_bytes);
        self.replicas.insert(
            datum,
            Replica {
                size_bytes,
                actual_bytes: 0,
                origin,
                here: false,
                readers: 0,
                kept: false,
                is_for_renaming: false,
                released: false,
                fetchers,
                last_used: now,
            },
        );
    }

    /// Enlarges the reservation of a datum that has not arrived.
    pub fn grow(&mut self, datum: DatumId, size_bytes: u64) {
        let size_bytes = self.counted_bytes(size_bytes);
        if let Some(replica) = self.replicas.get_mut(&datum).filter(|replica| !replica.here) {
            let before = replica.size_bytes;
            replica.size_bytes = before.max(size_bytes);
            self.recount(datum, before, before.max(size_bytes));
        }
    }

    /// Records that the complete datum is in the store. Returns the peers that wait for it. A datum that was not
    /// announced gets its room now.
    pub fn arrived(&mut self, datum: DatumId, size_bytes: u64, origin: Origin, now: Time) -> Vec<NodeId> {
        let own_bytes = size_bytes;
        let size_bytes = self.counted_bytes(size_bytes);
        self.reserve(datum, size_bytes, origin, now);
        let replica = self.replicas.get_mut(&datum).expect("reserved above");
        let before = replica.size_bytes;
        (replica.size_bytes, replica.actual_bytes) = (size_bytes, own_bytes);
        replica.here = true;
        replica.last_used = now;
        let waiting = std::mem::take(&mut replica.fetchers);
        self.recount(datum, before, size_bytes);
        waiting.into_iter().map(|asker| asker.peer).collect()
    }

    /// Updates the counts after the size of a datum has changed.
    fn recount(&mut self, datum: DatumId, before: u64, after: u64) {
        self.used_bytes = self.used_bytes - before + after;
        let of_client = self.client_bytes.entry(datum.client).or_default();
        *of_client = *of_client - before + after;
        if *of_client == 0 {
            self.client_bytes.remove(&datum.client);
        }
    }

    /// Keeps it here until it is released.
    pub fn keep(&mut self, datum: DatumId) {
        if let Some(replica) = self.replicas.get_mut(&datum) {
            replica.kept = true;
        }
    }

    /// Records that a waiting or running task reads it. `names` is true if the task gives it another name.
    pub fn add_reader(&mut self, datum: DatumId, names: bool) {
        if let Some(replica) = self.replicas.get_mut(&datum) {
            replica.readers += 1;
            replica.is_for_renaming &= names;
        }
    }

    /// Records that a task no longer reads it. Returns true if the datum must be dropped now.
    #[must_use]
    pub fn remove_reader(&mut self, datum: DatumId, now: Time) -> bool {
        if let Some(replica) = self.replicas.get_mut(&datum) {
            replica.readers = replica.readers.saturating_sub(1);
            replica.last_used = now;
        }
        self.drop_if_done(datum)
    }

    /// Records that its owner no longer needs it. Returns true if the datum must be dropped now.
    #[must_use]
    pub fn release(&mut self, datum: DatumId) -> bool {
        match self.replicas.get_mut(&datum) {
            Some(replica) => {
                replica.released = true;
                self.drop_if_done(datum)
            }
            None => {
                self.unknown.remove(&datum);
                self.dropped.remember(datum);
                false
            }
        }
    }

    /// Cancels the reservation of a datum that has not arrived. Peers that wait for it keep waiting, because another
    /// task may still produce it. Returns true if there was a reservation.
    pub fn unreserve(&mut self, datum: DatumId, now: Time) -> bool {
        match self.replicas.get(&datum) {
            Some(replica) if !replica.here => {
                let replica = self.replicas.remove(&datum).expect("found above");
                self.recount(datum, replica.size_bytes, 0);
                if !replica.fetchers.is_empty() {
                    self.unknown.insert(datum, replica.fetchers.into_iter().map(|asker| (asker, now)).collect());
                }
                true
            }
            _ => false,
        }
    }

    /// Removes a datum even if it has readers, because its owner is gone. Returns true if it was stored here.
    pub fn discard(&mut self, datum: DatumId) -> bool {
        let Some(replica) = self.replicas.remove(&datum) else { return false };
        self.recount(datum, replica.size_bytes, 0);
        self.dropped.remember(datum);
        replica.here
    }

    /// Marks it as used now.
    pub fn touch(&mut self, datum: DatumId, now: Time) {
        if let Some(replica) = self.replicas.get_mut(&datum) {
            replica.last_used = now;
        }
    }

    /// Handles a peer's request for it.
    pub fn fetch(&mut self, datum: DatumId, asker: Requester, now: Time) -> FetchAnswer {
        match self.replicas.get_mut(&datum) {
            Some(replica) if replica.here => {
                replica.last_used = now;
                FetchAnswer::Now
            }
            Some(replica) => {
                replica.fetchers.push(asker);
                FetchAnswer::Later
            }
            None if self.dropped.contains(datum) => FetchAnswer::Dropped,
            None => {
                self.unknown.entry(datum).or_default().push((asker, now));
                FetchAnswer::Later
            }
        }
    }

    /// Removes and returns the requests older than `age_ns` for data that no task here will produce. The caller must
    /// refuse them.
    pub fn expire(&mut self, now: Time, age_ns: u64, makes: impl Fn(DatumId) -> bool) -> Vec<(DatumId, NodeId)> {
        let mut refused = Vec::new();
        self.unknown.retain(|datum, waiting| {
            if makes(*datum) {
                return true;
            }
            waiting.retain(|(asker, since)| {
                let keep = now.since(*since) < age_ns;
                if !keep {
                    refused.push((*datum, asker.peer));
                }
                keep
            });
            !waiting.is_empty()
        });
        refused
    }

    /// Removes and returns the peers that wait for a datum that will not be produced. The caller must refuse their
    /// requests.
    pub fn refuse(&mut self, datum: DatumId) -> Vec<NodeId> {
        let early = self.unknown.remove(&datum).unwrap_or_default().into_iter().map(|(asker, _)| asker.peer);
        early.chain(self.take_requesters(datum, |_| true)).collect()
    }

    /// Removes and returns the peers that wait for a stored or reserved datum and for which `is_one` returns true.
    pub fn take_requesters(&mut self, datum: DatumId, is_one: impl Fn(&Requester) -> bool) -> Vec<NodeId> {
        let Some(replica) = self.replicas.get_mut(&datum) else { return Vec::new() };
        replica.fetchers.extract_if(.., |asker| is_one(asker)).map(|asker| asker.peer).collect()
    }

    /// Removes the requests of a lost peer. Returns the data to drop.
    pub fn forget_peer(&mut self, peer: NodeId) -> Vec<DatumId> {
        self.unknown.retain(|_, waiting| {
            waiting.retain(|(asker, _)| asker.peer != peer);
            !waiting.is_empty()
        });
        let touched: Vec<DatumId> = self
            .replicas
            .iter_mut()
            .filter_map(|(datum, replica)| {
                let before = replica.fetchers.len();
                replica.fetchers.retain(|asker| asker.peer != peer);
                (replica.fetchers.len() != before).then_some(*datum)
            })
            .collect();
        touched.into_iter().filter(|datum| self.drop_if_done(*datum)).collect()
    }

    /// Returns all data that are stored or reserved.
    pub fn data(&self) -> impl Iterator<Item = DatumId> {
        self.replicas.keys().copied()
    }

    /// Returns all data named by a client.
    pub fn of_client(&self, client: NodeId) -> Vec<DatumId> {
        let first = DatumId { client, serial: 0 };
        let last = DatumId { client, serial: u64::MAX };
        self.replicas.range(first..=last).map(|(datum, _)| *datum).collect()
    }

    /// Returns the stored and reserved bytes by client.
    pub fn held_by_clients(&self) -> &BTreeMap<NodeId, u64> {
        &self.client_bytes
    }

    /// Returns the stored data that no admitted task reads and no peer waits for.
    pub fn idle(&self) -> impl Iterator<Item = DatumId> {
        let is_idle = |r: &Replica| r.here && r.readers == 0 && r.fetchers.is_empty();
        self.replicas.iter().filter(move |(_, replica)| is_idle(replica)).map(|(datum, _)| *datum)
    }

    /// True if its owner wants it kept here.
    pub fn is_kept(&self, datum: DatumId) -> bool {
        self.replicas.get(&datum).is_some_and(|replica| replica.kept)
    }

    /// True if an admitted task reads a datum that is stored or reserved.
    pub fn is_read(&self, datum: DatumId) -> bool {
        self.replicas.get(&datum).is_some_and(|replica| replica.readers > 0)
    }

    /// Returns the reserved data that have not arrived and that no admitted task reads.
    pub fn idle_reservations(&self) -> impl Iterator<Item = DatumId> {
        self.replicas.iter().filter(|(_, replica)| !replica.here && replica.readers == 0).map(|(datum, _)| *datum)
    }

    /// Returns the data that exist nowhere else and that no admitted task reads and no peer waits for, with their
    /// sizes. Excludes kept and shared data.
    pub fn only_copies(&self) -> impl Iterator<Item = (DatumId, u64)> {
        let copies =
            self.replicas.iter().filter(|(datum, replica)| self.is_only_copy(**datum) && replica.size_bytes > 0);
        copies.map(|(datum, replica)| (*datum, replica.size_bytes))
    }

    /// Marks a datum as needed only for a task that gives it another name.
    pub fn set_for_renaming(&mut self, datum: DatumId) {
        if let Some(replica) = self.replicas.get_mut(&datum) {
            replica.is_for_renaming = true;
        }
    }

    /// True if it is here only for a task that gives it another name.
    pub fn is_for_renaming(&self, datum: DatumId) -> bool {
        self.replicas.get(&datum).is_some_and(|replica| replica.is_for_renaming)
    }

    /// True if it is a copy that only one task reads, that no peer waits for and that need not be kept.
    pub fn is_spare_copy(&self, datum: DatumId) -> bool {
        let is_spare =
            |r: &Replica| r.here && r.origin != Origin::Made && r.readers == 1 && r.fetchers.is_empty() && !r.kept;
        !datum.is_shared() && self.replicas.get(&datum).is_some_and(is_spare)
    }

    /// True for the data of [`Replicas::only_copies`].
    pub fn is_only_copy(&self, datum: DatumId) -> bool {
        self.replicas.get(&datum).is_some_and(|r| {
            let is_idle = r.readers == 0 && r.fetchers.is_empty() && !r.released && !r.kept;
            r.here && r.origin == Origin::Made && is_idle && !datum.is_shared()
        })
    }

    /// Records that it exists elsewhere too.
    pub fn mark_copied(&mut self, datum: DatumId) {
        if let Some(replica) = self.replicas.get_mut(&datum).filter(|replica| replica.here) {
            replica.origin = Origin::Copied;
        }
    }

    /// True if it needs no room here once no task here reads it.
    pub fn is_droppable(&self, datum: DatumId) -> bool {
        self.replicas.get(&datum).is_some_and(|replica| replica.released || replica.origin != Origin::Made)
    }

    fn drop_if_done(&mut self, datum: DatumId) -> bool {
        let done =
            self.replicas.get(&datum).is_some_and(|r| r.released && r.readers == 0 && r.fetchers.is_empty() && r.here);
        done && self.discard(datum)
    }

    /// Checks the invariants that hold between inputs.
    ///
    /// # Errors
    /// The invariant that is violated.
    pub fn check(&self) -> Result<(), String> {
        let bytes: u64 = self.replicas.values().map(|replica| replica.size_bytes).sum();
        if bytes != self.used_bytes {
            return Err(format!("replicas take {bytes} bytes, and {} are counted", self.used_bytes));
        }
        let mut by_client: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (datum, replica) in self.replicas.iter().filter(|(_, replica)| replica.size_bytes > 0) {
            *by_client.entry(datum.client).or_default() += replica.size_bytes;
        }
        if by_client != self.client_bytes {
            return Err(format!("the clients hold {by_client:?}, and {:?} is counted", self.client_bytes));
        }
        for (datum, replica) in &self.replicas {
            if self.unknown.contains_key(datum) {
                return Err(format!("{datum} has a place, and requests for it wait as if it had none"));
            }
            if replica.here && !replica.fetchers.is_empty() {
                return Err(format!("{datum} is here, and was not sent to {:?}", replica.fetchers));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
