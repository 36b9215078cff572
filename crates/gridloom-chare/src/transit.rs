//! Chares that are about to leave, and records for those that have still to come.

use std::collections::BTreeMap;

use super::id::{ArrayId, Pe};
use super::record::Head;

/// What came for a chare, in the order of its coming.
type Records = Vec<(Head, Vec<u8>)>;

/// What is on the move.
#[derive(Debug, Default)]
pub(crate) struct Transit {
    /// Where the chare that runs goes when its entry method has returned.
    pub(crate) leaving: Option<Pe>,
    /// Records for chares that have still to come.
    held: BTreeMap<(ArrayId, u32), Records>,
    count: usize,
}

impl Transit {
    /// How many records are held.
    pub(crate) fn held(&self) -> usize {
        self.count
    }

    pub(crate) fn hold(&mut self, array: ArrayId, head: Head, body: &[u8]) {
        self.held.entry((array, head.number)).or_default().push((head, body.to_vec()));
        self.count += 1;
    }

    /// What was held for a chare.
    pub(crate) fn release(&mut self, array: ArrayId, number: u32) -> Records {
        let held = self.held.remove(&(array, number)).unwrap_or_default();
        self.count -= held.len();
        held
    }
}
