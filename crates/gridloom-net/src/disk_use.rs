//! The bytes on disk of the data of each client, and how many more their users may have there.
//!
//! A transfer to disk reserves its room before it begins: otherwise several transfers of one user could each find room for
//! themselves, and exceed the limit together. The room is counted as used until the data are stored, and released if they are dropped.
//!
//! **Invariant:** room is reserved only if the stored and the reserved bytes of the user are then at most the limit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_base::NodeId;
use gridloom_core::node::DiskLimit;

/// The bytes on disk. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiskUse(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    /// Bytes of stored data by client; no entry is 0.
    stored: BTreeMap<NodeId, u64>,
    /// Bytes of reserved room by client; no entry is 0.
    reserved: BTreeMap<NodeId, u64>,
    limits: Vec<Limit>,
    /// Index in `limits` of the user of each limited client.
    limit_of: BTreeMap<NodeId, usize>,
}

/// The limit of a user.
#[derive(Debug)]
struct Limit {
    bytes: u64,
    /// Stored and reserved bytes of the user's clients.
    used: u64,
}

/// Room on disk for data of a client, reserved until they are stored or this is dropped.
#[derive(Debug)]
pub(crate) struct DiskRoom {
    disk: DiskUse,
    client: NodeId,
    bytes: u64,
}

impl DiskUse {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how many bytes of some clients' data may be on disk.
    pub(crate) fn set_limits(&self, limits: &[DiskLimit]) {
        let mut counts = self.lock();
        let of_user = |(index, limit): (usize, &DiskLimit)| -> Vec<(NodeId, usize)> {
            limit.clients.iter().map(|client| (*client, index)).collect()
        };
        counts.limit_of = limits.iter().enumerate().flat_map(of_user).collect();
        let used =
            |client: &NodeId| [&counts.stored, &counts.reserved].iter().filter_map(|of| of.get(client)).sum::<u64>();
        let limit = |limit: &DiskLimit| Limit { bytes: limit.bytes, used: limit.clients.iter().map(used).sum() };
        let limits = limits.iter().map(limit).collect();
        counts.limits = limits;
    }

    /// Returns the bytes of stored data by client.
    pub(crate) fn stored(&self) -> BTreeMap<NodeId, u64> {
        self.lock().stored.clone()
    }

    /// True if so many more bytes of a client's data may be on disk.
    pub(crate) fn has_room(&self, client: NodeId, bytes: u64) -> bool {
        self.lock().has_room(client, bytes)
    }

    /// Reserves room for data of a client; `None` if there is none.
    pub(crate) fn reserve(&self, client: NodeId, bytes: u64) -> Option<DiskRoom> {
        let mut counts = self.lock();
        if !counts.has_room(client, bytes) {
            return None;
        }
        add(&mut counts.reserved, client, bytes);
        counts.use_bytes(client, bytes);
        Some(DiskRoom { disk: self.clone(), client, bytes })
    }

    /// Counts stored data of a client. `room` is where they were received, if it was reserved.
    pub(crate) fn add(&self, client: NodeId, bytes: u64, room: Option<&mut DiskRoom>) {
        let mut counts = self.lock();
        if let Some(room) = room {
            counts.release(room, bytes);
        }
        add(&mut counts.stored, client, bytes);
        counts.use_bytes(client, bytes);
    }

    /// Counts removed data of a client.
    pub(crate) fn remove(&self, client: NodeId, bytes: u64) {
        let mut counts = self.lock();
        subtract(&mut counts.stored, client, bytes);
        counts.free_bytes(client, bytes);
    }
}

impl Counts {
    fn limit_of(&mut self, client: NodeId) -> Option<&mut Limit> {
        self.limit_of.get(&client).map(|index| &mut self.limits[*index])
    }

    fn has_room(&self, client: NodeId, bytes: u64) -> bool {
        let limit = self.limit_of.get(&client).map(|index| &self.limits[*index]);
        limit.is_none_or(|limit| limit.used.saturating_add(bytes) <= limit.bytes)
    }

    /// Releases that many bytes of reserved room, or what is left of it.
    fn release(&mut self, room: &mut DiskRoom, bytes: u64) {
        let released = bytes.min(room.bytes);
        room.bytes -= released;
        subtract(&mut self.reserved, room.client, released);
        self.free_bytes(room.client, released);
    }

    fn use_bytes(&mut self, client: NodeId, bytes: u64) {
        if let Some(limit) = self.limit_of(client) {
            limit.used += bytes;
        }
    }

    fn free_bytes(&mut self, client: NodeId, bytes: u64) {
        if let Some(limit) = self.limit_of(client) {
            limit.used -= bytes;
        }
    }
}

impl Drop for DiskRoom {
    fn drop(&mut self) {
        let disk = self.disk.clone();
        disk.lock().release(self, u64::MAX);
    }
}

fn add(counts: &mut BTreeMap<NodeId, u64>, client: NodeId, bytes: u64) {
    if bytes > 0 {
        *counts.entry(client).or_default() += bytes;
    }
}

fn subtract(counts: &mut BTreeMap<NodeId, u64>, client: NodeId, bytes: u64) {
    if bytes > 0 {
        let of_client = counts.get_mut(&client).expect("the bytes were counted");
        *of_client -= bytes;
        if *of_client == 0 {
            counts.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNA: [NodeId; 2] = [NodeId(1), NodeId(2)];

    #[test]
    fn reserved_room_counts_for_all_clients_of_the_user_until_it_is_dropped() {
        let disk = DiskUse::default();
        disk.set_limits(&[DiskLimit { clients: ANNA.into(), bytes: 10 }]);
        let first = disk.reserve(ANNA[0], 6).unwrap();
        assert!(disk.reserve(ANNA[1], 5).is_none() && disk.reserve(NodeId(3), 50).is_some());
        let second = disk.reserve(ANNA[1], 4).unwrap();
        drop(first);
        assert!(disk.reserve(ANNA[1], 7).is_none() && disk.reserve(ANNA[1], 6).is_some());
        drop(second);
        assert!(disk.has_room(ANNA[0], 10) && disk.lock().reserved.is_empty());
    }

    #[test]
    fn stored_data_take_their_reserved_room() {
        let disk = DiskUse::default();
        let mut room = disk.reserve(ANNA[0], 8).unwrap();
        // Two slices of a datum.
        for _ in 0..2 {
            disk.add(ANNA[0], 4, Some(&mut room));
            disk.set_limits(&[DiskLimit { clients: ANNA.into(), bytes: 10 }]);
            assert!(disk.has_room(ANNA[1], 2) && !disk.has_room(ANNA[1], 3));
        }
        // The datum that they form.
        disk.add(ANNA[0], 8, Some(&mut room));
        assert!(!disk.has_room(ANNA[1], 0));
        disk.remove(ANNA[0], 8);
        disk.remove(ANNA[0], 8);
        drop(room);
        assert!(disk.stored().is_empty() && disk.has_room(ANNA[1], 10));
    }
}
