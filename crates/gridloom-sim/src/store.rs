//! The data in a node's store: descriptions, and bytes if they are simulated.
//!
//! **Invariant:** data are immutable: a stored datum is never replaced.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridloom_base::{DatumId, Meta, NodeId, slice_bytes};
use gridloom_core::node::DiskLimit;

use crate::memory::HeldBytes;

/// A value. Its bytes are `None` if only its size matters.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredValue {
    pub meta: Meta,
    pub bytes: Option<Arc<[u8]>>,
}

impl StoredValue {
    /// Joins the bytes of slices to a value with that description.
    pub(crate) fn joined(meta: Meta, slices: &[StoredValue]) -> StoredValue {
        let bytes: Option<Vec<&[u8]>> = slices.iter().map(|slice| slice.bytes.as_deref()).collect();
        StoredValue { meta, bytes: bytes.map(|bytes| bytes.concat().into()) }
    }

    /// Returns a part of the value from a given byte on, with that description, if it is within the value.
    pub(crate) fn part(&self, from_byte: u64, meta: &Meta) -> Option<StoredValue> {
        let end = from_byte.checked_add(meta.size_bytes()).filter(|end| *end <= self.meta.size_bytes())?;
        let part = |bytes: &Arc<[u8]>| bytes[from_byte as usize..end as usize].into();
        Some(StoredValue { meta: meta.clone(), bytes: self.bytes.as_ref().map(part) })
    }
}

/// The store of one node.
#[derive(Debug, Default)]
pub(crate) struct Store {
    values: BTreeMap<DatumId, StoredValue>,
    bytes: u64,
    disk: Option<Disk>,
    /// The bytes that the host holds, if it pages.
    held: Option<HeldBytes>,
}

/// The disk of a node, for values that do not fit into its memory. Reading and writing it takes no time.
#[derive(Debug, Default)]
struct Disk {
    /// Bytes of values that stay in memory.
    memory_bytes: u64,
    values: BTreeSet<DatumId>,
    bytes: BTreeMap<NodeId, u64>,
    limits: Vec<DiskLimit>,
    /// True if `bytes` has changed since it was taken.
    has_changed: bool,
}

impl Disk {
    /// Returns the bytes of all values on it.
    fn used(&self) -> u64 {
        self.bytes.values().sum()
    }

    /// True if this client may have so many more bytes on it.
    fn has_room(&self, client: NodeId, more: u64) -> bool {
        let limit = self.limits.iter().find(|limit| limit.clients.contains(&client));
        limit.is_none_or(|DiskLimit { clients, bytes }| {
            let used = clients.iter().filter_map(|client| self.bytes.get(client)).sum::<u64>();
            used.saturating_add(more) <= *bytes
        })
    }
}

impl Store {
    /// Adds a value, unless the datum is there already.
    pub(crate) fn put(&mut self, datum: DatumId, value: StoredValue) {
        if let Entry::Vacant(place) = self.values.entry(datum) {
            let size_bytes = value.meta.size_bytes();
            self.bytes += size_bytes;
            self.held.iter().for_each(|held| held.add(size_bytes));
            place.insert(value);
            self.spill();
        }
    }

    /// Counts its bytes among those that the host holds.
    pub(crate) fn count_in(&mut self, held: HeldBytes) {
        held.add(self.bytes);
        self.held = Some(held);
    }

    /// Ends the count of its bytes among those that the host holds, because its node has ended.
    pub(crate) fn release_memory(&mut self) {
        self.held.take().iter().for_each(|held| held.remove(self.bytes));
    }

    /// Sets how many bytes stay in memory, if there is a disk for the others.
    pub(crate) fn set_memory(&mut self, memory_bytes: Option<u64>) {
        self.disk = memory_bytes.map(|memory_bytes| Disk { memory_bytes, ..Disk::default() });
    }

    pub(crate) fn limit_disk(&mut self, limits: Vec<DiskLimit>) {
        if let Some(disk) = &mut self.disk {
            disk.limits = limits;
        }
        self.spill();
    }

    /// Returns the bytes of each client that are on disk, if they have changed.
    pub(crate) fn take_on_disk(&mut self) -> Option<Vec<(NodeId, u64)>> {
        let disk = self.disk.as_mut().filter(|disk| disk.has_changed)?;
        disk.has_changed = false;
        Some(disk.bytes.iter().map(|(client, bytes)| (*client, *bytes)).collect())
    }

    /// Moves values to disk, by identifier, until the others fit into memory, as far as the limits permit.
    fn spill(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        let mut excess = self.bytes.saturating_sub(disk.used()).saturating_sub(disk.memory_bytes);
        for (datum, value) in &self.values {
            if excess == 0 {
                break;
            }
            let (client, size_bytes) = (datum.client, value.meta.size_bytes());
            if size_bytes > 0 && !disk.values.contains(datum) && disk.has_room(client, size_bytes) {
                disk.values.insert(*datum);
                *disk.bytes.entry(client).or_default() += size_bytes;
                disk.has_changed = true;
                excess = excess.saturating_sub(size_bytes);
            }
        }
    }

    /// Returns the sum of the sizes of its values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Iterates over its data.
    pub(crate) fn data(&self) -> impl ExactSizeIterator<Item = DatumId> + '_ {
        self.values.keys().copied()
    }

    pub(crate) fn value(&self, datum: DatumId) -> Option<&StoredValue> {
        self.values.get(&datum)
    }

    /// Returns a value, or a slice of a stored value.
    pub(crate) fn value_to_send(&self, datum: DatumId) -> Option<StoredValue> {
        let sliced = || {
            let (whole, number) = (self.values.get(&datum.whole())?, datum.slice()?);
            let bytes = slice_bytes(whole.meta.size_bytes(), number);
            whole.part(bytes.start, &Meta::Bytes { size_bytes: bytes.end - bytes.start })
        };
        self.values.get(&datum).cloned().or_else(sliced)
    }

    pub(crate) fn remove(&mut self, datum: DatumId) {
        if let Some(value) = self.values.remove(&datum) {
            let size_bytes = value.meta.size_bytes();
            self.bytes -= size_bytes;
            self.held.iter().for_each(|held| held.remove(size_bytes));
            if let Some(disk) = &mut self.disk
                && disk.values.remove(&datum)
            {
                let bytes = disk.bytes.get_mut(&datum.client).expect("one of its values is there");
                *bytes -= size_bytes;
                if *bytes == 0 {
                    disk.bytes.remove(&datum.client);
                }
                disk.has_changed = true;
            }
        }
    }
}
