//! How many objects a session has on each server.

use gridloom_core::base::{NodeId, ObjectId};

use crate::Grid;

impl Grid {
    pub(crate) fn new_object(&self) -> ObjectId {
        ObjectId { client: self.0.client, serial: self.next_serial() }
    }

    /// One more there, or one less.
    pub(crate) fn note_object(&self, server: NodeId, change: i32) {
        *self.state().objects.entry(server).or_insert(0) += change;
    }

    pub(crate) fn objects_on(&self, server: NodeId) -> i32 {
        self.state().objects.get(&server).copied().unwrap_or(0)
    }
}
