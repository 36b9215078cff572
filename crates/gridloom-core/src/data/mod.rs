//! The accounting of a server's store: the data in it, the readers that wait for each, and the room left.
//!
//! **Invariants**
//! - `used_bytes` is the sum of the sizes of all replicas, reserved ones included, and exceeds the limit only by
//!   results that turned out larger than announced (texts).
//! - A datum of more than [`INLINE_BYTES_MAX`] counts for at least `least_bytes`, as it takes a descriptor too: so never more data are
//!   here than the server has descriptors for.
//! - A replica that a waiting task reads, or that a peer waits for, is never dropped.
//! - A copy that is to be kept makes way for nothing of its owner, and for others only beyond its owner's share of the store.
//!
//! What it does not do: move or keep bytes (the world does), or decide where a datum comes from (the plan does).
//!
//! What a program may say of its data stands in files of its own: places (`uri`), management modes (`mode`), descriptions
//! (`description`), copies that it had put on servers (`copies`). The session acts on them.

mod catalog;
mod copies;
mod description;
mod mode;
mod transfer;
mod uri;

pub use catalog::{Catalog, Content, News, Question, Standing, Stored, VersionReport};
pub use copies::{CLIENT, Copies, Status};
pub use description::{Description, Kind};
pub use mode::Mode;
pub use transfer::{Batch, Candidate, Reader, SLICED_BYTES_MIN, Source, Spread, Verdict};
pub use uri::{InvalidData, Uri};

mod dropped;
mod evicting;

use std::collections::BTreeMap;

use dropped::Dropped;
pub use evicting::Evicted;
use gridloom_base::limits::INLINE_BYTES_MAX;
use gridloom_base::{DatumId, NodeId, Time};

/// How a replica came, or comes, to be here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A task of this server makes it: the only copy, unless others fetched it.
    Made,
    /// Copied from elsewhere, where it still is.
    Copied,
    /// The argument of a plain call: a copy that is of use to that call alone; the client has it until the call ends.
    Argument,
}

#[derive(Clone, Debug)]
struct Replica {
    /// What it counts for.
    size_bytes: u64,
    /// Its bytes, once it is here.
    own_bytes: u64,
    origin: Origin,
    here: bool,
    readers: u32,
    /// Its owner wants it to stay here, wherever else it is.
    kept: bool,
    /// It comes for a task that gives it another name, and for nothing else.
    is_passing: bool,
    released: bool,
    fetchers: Vec<Asker>,
    /// For eviction: when it was last read.
    last_used: Time,
}

/// A peer that asks for a datum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    pub peer: NodeId,
    /// How many sends it takes from where the datum is, or is made, to the peer, as planned.
    pub hops: u16,
}

/// What to do about a peer's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fetch {
    /// Send it.
    Now,
    /// It will be sent when it is here.
    Later,
    /// It was here and is no longer.
    Gone,
}

/// The replicas of one server.
#[derive(Clone, Debug)]
pub struct Replicas {
    limit_bytes: u64,
    least_bytes: u64,
    used_bytes: u64,
    replicas: BTreeMap<DatumId, Replica>,
    /// Requests for data that nothing is known of yet: the task that makes them may still be on its way here.
    unknown: BTreeMap<DatumId, Vec<(Asker, Time)>>,
    dropped: Dropped,
}

impl Replicas {
    /// An empty store of that size, for so many data.
    pub fn new(limit_bytes: u64, data_max: u64) -> Replicas {
        Replicas {
            limit_bytes,
            least_bytes: limit_bytes / data_max.max(1),
            used_bytes: 0,
            replicas: BTreeMap::new(),
            unknown: BTreeMap::new(),
            dropped: Dropped::default(),
        }
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Held and reserved.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Number of replicas, reserved ones included.
    pub fn len(&self) -> usize {
        self.replicas.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.replicas.is_empty()
    }

    /// Number of data that nothing is known of and that a peer waits for.
    pub fn unknown(&self) -> usize {
        self.unknown.len()
    }

    /// Whether the datum is whole in the store.
    pub fn is_here(&self, datum: DatumId) -> bool {
        self.replicas.get(&datum).is_some_and(|replica| replica.here)
    }

    /// Bytes of a datum that is here or reserved; 0 if nothing is known of it.
    pub fn size_bytes(&self, datum: DatumId) -> u64 {
        self.replicas.get(&datum).map_or(0, |replica| replica.size_bytes)
    }

    /// Bytes of a datum that is here, which may be fewer than it counts for.
    pub fn own_bytes(&self, datum: DatumId) -> u64 {
        self.replicas.get(&datum).map_or(0, |replica| replica.own_bytes)
    }

    /// Whether it is here or reserved.
    pub fn is_known(&self, datum: DatumId) -> bool {
        self.replicas.contains_key(&datum)
    }

    /// Bytes for which a datum of that size counts.
    pub fn counted_bytes(&self, size_bytes: u64) -> u64 {
        if size_bytes > INLINE_BYTES_MAX as u64 { size_bytes.max(self.least_bytes) } else { size_bytes }
    }

    /// Whether `more_bytes` fit now.
    pub fn fits(&self, more_bytes: u64) -> bool {
        self.used_bytes.saturating_add(more_bytes) <= self.limit_bytes
    }

    /// What a place for a datum of that size would take from the room that is left.
    pub fn lacks_bytes(&self, datum: DatumId, size_bytes: u64) -> u64 {
        let size_bytes = self.counted_bytes(size_bytes);
        match self.replicas.get(&datum) {
            Some(replica) if replica.here => 0,
            Some(replica) => size_bytes.saturating_sub(replica.size_bytes),
            None => size_bytes,
        }
    }

    /// Makes a place for a datum that will come; if it has one, and a task here turns out to make it, that place grows to
    /// what the task needs. Requests that came before are remembered.
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
        self.used_bytes += size_bytes;
        self.replicas.insert(
            datum,
            Replica {
                size_bytes,
                own_bytes: 0,
                origin,
                here: false,
                readers: 0,
                kept: false,
                is_passing: false,
                released: false,
                fetchers,
                last_used: now,
            },
        );
    }

    /// Makes the place of a datum that is not here large enough.
    pub fn grow(&mut self, datum: DatumId, size_bytes: u64) {
        let size_bytes = self.counted_bytes(size_bytes);
        if let Some(replica) = self.replicas.get_mut(&datum).filter(|replica| !replica.here) {
            self.used_bytes += size_bytes.saturating_sub(replica.size_bytes);
            replica.size_bytes = replica.size_bytes.max(size_bytes);
        }
    }

    /// The datum is whole in the store. Gives the peers that wait for it. A datum that was not announced gets its place now.
    pub fn arrived(&mut self, datum: DatumId, size_bytes: u64, origin: Origin, now: Time) -> Vec<NodeId> {
        let own_bytes = size_bytes;
        let size_bytes = self.counted_bytes(size_bytes);
        self.reserve(datum, size_bytes, origin, now);
        let replica = self.replicas.get_mut(&datum).expect("reserved above");
        self.used_bytes = self.used_bytes - replica.size_bytes + size_bytes;
        (replica.size_bytes, replica.own_bytes) = (size_bytes, own_bytes);
        replica.here = true;
        replica.last_used = now;
        std::mem::take(&mut replica.fetchers).into_iter().map(|asker| asker.peer).collect()
    }

    /// It stays here until it is released.
    pub fn keep(&mut self, datum: DatumId) {
        if let Some(replica) = self.replicas.get_mut(&datum) {
            replica.kept = true;
        }
    }

    /// A task that waits, or runs, reads it; or it gives it another name.
    pub fn add_reader(&mut self, datum: DatumId, names: bool) {
        if let Some(replica) = self.replicas.get_mut(&datum) {
            replica.readers += 1;
            replica.is_passing &= names;
        }
    }

    /// That task is done with it. True if the datum is to be dropped now.
    #[must_use]
    pub fn remove_reader(&mut self, datum: DatumId, now: Time) -> bool {
        if let Some(replica) = self.replicas.get_mut(&datum) {
            replica.readers = replica.readers.saturating_sub(1);
            replica.last_used = now;
        }
        self.drop_if_done(datum)
    }

    /// Its owner no longer needs it. True if the datum is to be dropped now.
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

    /// Gives up the place of a datum that is not here. Peers that wait for it wait on: another task may still make it. True
    /// if there was such a place.
    pub fn unreserve(&mut self, datum: DatumId, now: Time) -> bool {
        match self.replicas.get(&datum) {
            Some(replica) if !replica.here => {
                let replica = self.replicas.remove(&datum).expect("found above");
                self.used_bytes -= replica.size_bytes;
                if !replica.fetchers.is_empty() {
                    self.unknown.insert(datum, replica.fetchers.into_iter().map(|asker| (asker, now)).collect());
                }
                true
            }
            _ => false,
        }
    }

    /// Takes a datum out of the accounting although it may have readers: its owner is gone. True if it was here.
    pub fn discard(&mut self, datum: DatumId) -> bool {
        let Some(replica) = self.replicas.remove(&datum) else { return false };
        self.used_bytes -= replica.size_bytes;
        self.dropped.remember(datum);
        replica.here
    }

    /// It is used.
    pub fn touch(&mut self, datum: DatumId, now: Time) {
        if let Some(replica) = self.replicas.get_mut(&datum) {
            replica.last_used = now;
        }
    }

    /// A peer asks for it.
    pub fn fetch(&mut self, datum: DatumId, asker: Asker, now: Time) -> Fetch {
        match self.replicas.get_mut(&datum) {
            Some(replica) if replica.here => {
                replica.last_used = now;
                Fetch::Now
            }
            Some(replica) => {
                replica.fetchers.push(asker);
                Fetch::Later
            }
            None if self.dropped.contains(datum) => Fetch::Gone,
            None => {
                self.unknown.entry(datum).or_default().push((asker, now));
                Fetch::Later
            }
        }
    }

    /// Requests, older than `age_ns`, for data that no task here will make: they are forgotten here and must be refused.
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

    /// Peers that wait for a datum that will not be made; they are forgotten here and must be refused.
    pub fn refuse(&mut self, datum: DatumId) -> Vec<NodeId> {
        let early = self.unknown.remove(&datum).unwrap_or_default().into_iter().map(|(asker, _)| asker.peer);
        early.chain(self.take_askers(datum, |_| true)).collect()
    }

    /// Peers that wait for a datum with a place here, and that `is_one` is true of; they are forgotten here.
    pub fn take_askers(&mut self, datum: DatumId, is_one: impl Fn(&Asker) -> bool) -> Vec<NodeId> {
        let Some(replica) = self.replicas.get_mut(&datum) else { return Vec::new() };
        replica.fetchers.extract_if(.., |asker| is_one(asker)).map(|asker| asker.peer).collect()
    }

    /// A peer is gone and waits no longer. Data to drop.
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

    /// All data that are here or reserved.
    pub fn data(&self) -> impl Iterator<Item = DatumId> {
        self.replicas.keys().copied()
    }

    /// All data that a client names.
    pub fn of_client(&self, client: NodeId) -> Vec<DatumId> {
        let first = DatumId { client, serial: 0 };
        let last = DatumId { client, serial: u64::MAX };
        self.replicas.range(first..=last).map(|(datum, _)| *datum).collect()
    }

    /// Bytes held and reserved, by client.
    pub fn held_by_clients(&self) -> BTreeMap<NodeId, u64> {
        let mut held = BTreeMap::new();
        for (datum, replica) in &self.replicas {
            *held.entry(datum.client).or_default() += replica.size_bytes;
        }
        held
    }

    /// Data that are here, that no admitted task reads and no peer waits for.
    pub fn idle(&self) -> impl Iterator<Item = DatumId> {
        let is_idle = |r: &Replica| r.here && r.readers == 0 && r.fetchers.is_empty();
        self.replicas.iter().filter(move |(_, replica)| is_idle(replica)).map(|(datum, _)| *datum)
    }

    /// Its owner wants it to stay here.
    pub fn is_kept(&self, datum: DatumId) -> bool {
        self.replicas.get(&datum).is_some_and(|replica| replica.kept)
    }

    /// Whether an admitted task reads a datum that is here or reserved.
    pub fn is_read(&self, datum: DatumId) -> bool {
        self.replicas.get(&datum).is_some_and(|replica| replica.readers > 0)
    }

    /// Places of data that are not here and that no admitted task reads.
    pub fn idle_places(&self) -> impl Iterator<Item = DatumId> {
        self.replicas.iter().filter(|(_, replica)| !replica.here && replica.readers == 0).map(|(datum, _)| *datum)
    }

    /// Data that are nowhere else, and that no admitted task reads and no peer waits for, with their sizes; those to be kept, and
    /// shared ones, do not count.
    pub fn only_copies(&self) -> impl Iterator<Item = (DatumId, u64)> {
        let copies =
            self.replicas.iter().filter(|(datum, replica)| self.is_only_copy(**datum) && replica.size_bytes > 0);
        copies.map(|(datum, replica)| (*datum, replica.size_bytes))
    }

    /// A datum that comes for a task which gives it another name.
    pub fn set_passing(&mut self, datum: DatumId) {
        if let Some(replica) = self.replicas.get_mut(&datum) {
            replica.is_passing = true;
        }
    }

    /// Whether it came for a task that gives it another name, and for nothing else.
    pub fn is_passing(&self, datum: DatumId) -> bool {
        self.replicas.get(&datum).is_some_and(|replica| replica.is_passing)
    }

    /// Whether it is a copy that one task reads, that nobody else waits for, and that need not stay.
    pub fn is_spare_copy(&self, datum: DatumId) -> bool {
        let is_spare =
            |r: &Replica| r.here && r.origin != Origin::Made && r.readers == 1 && r.fetchers.is_empty() && !r.kept;
        !datum.is_shared() && self.replicas.get(&datum).is_some_and(is_spare)
    }

    /// See [`Replicas::only_copies`].
    pub fn is_only_copy(&self, datum: DatumId) -> bool {
        self.replicas.get(&datum).is_some_and(|r| {
            let is_idle = r.readers == 0 && r.fetchers.is_empty() && !r.released && !r.kept;
            r.here && r.origin == Origin::Made && is_idle && !datum.is_shared()
        })
    }

    /// It is elsewhere, too.
    pub fn copied(&mut self, datum: DatumId) {
        if let Some(replica) = self.replicas.get_mut(&datum).filter(|replica| replica.here) {
            replica.origin = Origin::Copied;
        }
    }

    /// Whether it needs no place here once no task here reads it.
    pub fn may_go(&self, datum: DatumId) -> bool {
        self.replicas.get(&datum).is_some_and(|replica| replica.released || replica.origin != Origin::Made)
    }

    fn drop_if_done(&mut self, datum: DatumId) -> bool {
        let done =
            self.replicas.get(&datum).is_some_and(|r| r.released && r.readers == 0 && r.fetchers.is_empty() && r.here);
        done && self.discard(datum)
    }

    /// What must hold between handlings.
    ///
    /// # Errors
    /// The sentence that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let bytes: u64 = self.replicas.values().map(|replica| replica.size_bytes).sum();
        if bytes != self.used_bytes {
            return Err(format!("replicas take {bytes} bytes, and {} are counted", self.used_bytes));
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
