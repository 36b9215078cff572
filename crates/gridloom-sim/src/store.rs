//! The data that a node holds: descriptions, and bytes where they matter.
//!
//! **Invariant:** a datum that is there is never replaced: data are immutable.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use gridloom_base::{DatumId, Meta};

/// A value: its bytes are `None` where only its size counts.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct StoredValue {
    pub(crate) meta: Meta,
    pub(crate) bytes: Option<Arc<[u8]>>,
}

/// What one node holds.
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

    /// Sum of the sizes of its values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The first few of its data.
    pub(crate) fn some(&self) -> String {
        self.values.keys().take(4).map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn value(&self, datum: DatumId) -> Option<&StoredValue> {
        self.values.get(&datum)
    }

    pub(crate) fn remove(&mut self, datum: DatumId) {
        if let Some(value) = self.values.remove(&datum) {
            self.bytes -= value.meta.size_bytes();
        }
    }
}
