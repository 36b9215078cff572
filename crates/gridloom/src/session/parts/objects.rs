//! The objects of a session, counted by server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use gridloom_base::NodeId;

/// The number of this session's objects on each server.
#[derive(Debug, Default)]
pub(crate) struct ObjectCounts(Mutex<BTreeMap<NodeId, u32>>);

impl ObjectCounts {
    pub(crate) fn add(&self, server: NodeId) {
        *self.counts().entry(server).or_insert(0) += 1;
    }

    pub(crate) fn remove(&self, server: NodeId) {
        let mut counts = self.counts();
        let count = counts.get_mut(&server).expect("an object that ends was counted");
        *count -= 1;
    }

    pub(crate) fn on(&self, server: NodeId) -> u32 {
        self.counts().get(&server).copied().unwrap_or(0)
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<NodeId, u32>> {
        self.0.lock().expect("no panic while held")
    }
}
