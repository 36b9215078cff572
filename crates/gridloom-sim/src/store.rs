//! The data in a node's store: descriptions, and bytes if they are simulated.
//!
//! **Invariant:** data are immutable: a stored datum is never replaced.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use gridloom_base::{DatumId, Meta, slice_bytes};

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
}

impl Store {
    /// Adds a value, unless the datum is there already.
    pub(crate) fn put(&mut self, datum: DatumId, value: StoredValue) {
        if let Entry::Vacant(place) = self.values.entry(datum) {
            self.bytes += value.meta.size_bytes();
            place.insert(value);
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
            self.bytes -= value.meta.size_bytes();
        }
    }
}
