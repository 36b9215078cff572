//! A datum of the graph: what produces it, what reads it, and where its copies are.

use std::collections::BTreeSet;

use gridloom_base::{Meta, NodeId, TaskError, TaskId};

/// A datum of the graph. Only the graph changes it.
#[derive(Debug)]
pub(in crate::node::client) struct DatumState {
    pub(super) meta: Meta,
    pub(super) producer: Option<TaskId>,
    /// Tasks that read it and are not forgotten.
    pub(super) consumers: BTreeSet<TaskId>,
    /// Number of consumers that have not ended.
    pub(super) pending: usize,
    /// Servers that hold it.
    pub(super) holders: BTreeSet<NodeId>,
    /// True if it is in the client's store.
    pub(super) here: bool,
    /// True if the program has a handle on it.
    pub(super) held: bool,
    /// True if the program will presumably want it at the client.
    pub(super) presumed: bool,
    /// True if the program requested it.
    pub(super) wanted: bool,
    /// The server from which the client has requested it.
    pub(super) fetching: Option<NodeId>,
    /// Servers that requested it from the client.
    pub(super) fetchers: BTreeSet<NodeId>,
    pub(super) error: Option<TaskError>,
    /// True if no copy may outlive its readers, not even to recompute their lost results.
    pub(super) is_fleeting: bool,
}

impl DatumState {
    /// `here` is true if the program has put it into the client's store.
    pub(super) fn new(meta: Meta, producer: Option<TaskId>, here: bool) -> DatumState {
        DatumState {
            meta,
            producer,
            consumers: BTreeSet::new(),
            pending: 0,
            holders: BTreeSet::new(),
            here,
            held: true,
            presumed: false,
            wanted: false,
            fetching: None,
            fetchers: BTreeSet::new(),
            error: None,
            is_fleeting: false,
        }
    }

    pub(in crate::node::client) fn meta(&self) -> &Meta {
        &self.meta
    }

    pub(in crate::node::client) fn size_bytes(&self) -> u64 {
        self.meta.size_bytes()
    }

    /// Returns the task that produces it, if that is not forgotten.
    pub(in crate::node::client) fn producer(&self) -> Option<TaskId> {
        self.producer
    }

    /// Returns the tasks that read it and are not forgotten.
    pub(in crate::node::client) fn consumers(&self) -> &BTreeSet<TaskId> {
        &self.consumers
    }

    /// Returns the servers that hold it.
    pub(in crate::node::client) fn holders(&self) -> &BTreeSet<NodeId> {
        &self.holders
    }

    /// True if it is in the client's store.
    pub(in crate::node::client) fn is_here(&self) -> bool {
        self.here
    }

    /// True if it is in the client's store or a server holds it.
    pub(in crate::node::client) fn has_copy(&self) -> bool {
        self.here || !self.holders.is_empty()
    }

    /// Returns the server from which the client has requested it.
    pub(in crate::node::client) fn sender(&self) -> Option<NodeId> {
        self.fetching
    }

    /// True if servers requested it from the client.
    pub(in crate::node::client) fn has_fetchers(&self) -> bool {
        !self.fetchers.is_empty()
    }

    /// True if the program or a server requested it from the client.
    pub(in crate::node::client) fn is_requested(&self) -> bool {
        self.wanted || self.has_fetchers()
    }

    /// True if it is requested, or a task that has not ended reads it.
    pub(in crate::node::client) fn is_needed(&self) -> bool {
        self.is_requested() || self.pending > 0
    }

    /// Returns the reason why it is finally lost.
    pub(in crate::node::client) fn error(&self) -> Option<&TaskError> {
        self.error.as_ref()
    }

    /// True if no copy may outlive its readers.
    pub(in crate::node::client) fn is_fleeting(&self) -> bool {
        self.is_fleeting
    }
}
