//! The data that a node holds: descriptions, and bytes where they matter.
//!
//! **Invariant:** a datum that is there is never replaced: data are immutable.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom_core::base::{DatumId, Meta};

/// A value: its bytes are `None` where only its size counts.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Value {
    pub(crate) meta: Meta,
    pub(crate) bytes: Option<Arc<[u8]>>,
}

/// What one node holds.
#[derive(Debug, Default)]
pub(crate) struct Store {
    values: BTreeMap<DatumId, Value>,
}

impl Store {
    /// Adds a value, unless the datum is there already.
    pub(crate) fn put(&mut self, datum: DatumId, value: Value) {
        self.values.entry(datum).or_insert(value);
    }

    pub(crate) fn value(&self, datum: DatumId) -> Option<&Value> {
        self.values.get(&datum)
    }

    pub(crate) fn remove(&mut self, datum: DatumId) {
        self.values.remove(&datum);
    }
}
