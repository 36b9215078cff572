//! What the graph returns after the client has reported a fact, such as the loss of a server.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::graph::Task;
use gridloom_base::{DatumId, GroupId, Meta, NodeId, TaskError, TaskId};

/// A copy, datum or group that is no longer needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node::client) enum Unneeded {
    /// The copy in the client's store.
    OwnCopy(DatumId),
    /// The copy that a server holds.
    Copy(DatumId, NodeId),
    /// A datum, which is forgotten.
    Datum(DatumId),
    /// A group, which is forgotten.
    Group(GroupId),
}

/// The answer to the program's request for a datum.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::node::client) enum Availability {
    /// It is in the client's store.
    Here(Meta),
    /// It was requested now, and will arrive later.
    Awaited,
    /// It will not arrive, for this reason.
    Lost(TaskError),
}

/// A task that has failed.
#[derive(Debug)]
pub(in crate::node::client) struct FailedTask {
    pub(in crate::node::client) task: Arc<Task>,
    pub(in crate::node::client) group: GroupId,
    /// The server to which it had been sent.
    pub(in crate::node::client) server: Option<NodeId>,
}

/// The servers and the program that wait for a datum that will not arrive.
#[derive(Debug, Default)]
pub(in crate::node::client) struct Waiters {
    /// Servers that requested it from the client.
    pub(in crate::node::client) servers: BTreeSet<NodeId>,
    /// True if the program waits for it.
    pub(in crate::node::client) program: bool,
}

/// The parts of the graph that a lost server affects, each in order of identifier.
#[derive(Debug, Default)]
pub(in crate::node::client) struct ServerLoss {
    /// Tasks that had been sent to it.
    pub(in crate::node::client) stopped: Vec<TaskId>,
    /// Tasks in `stopped` that can run elsewhere.
    pub(in crate::node::client) again: Vec<TaskId>,
    /// Tasks that cannot run any more.
    pub(in crate::node::client) hopeless: Vec<TaskId>,
    /// Groups with tasks that cannot run any more and had not been mapped yet.
    pub(in crate::node::client) unplanned: BTreeSet<GroupId>,
    /// Data that it was sending to the client.
    pub(in crate::node::client) broken_off: Vec<DatumId>,
    /// Data that it had requested from the client.
    pub(in crate::node::client) unasked: Vec<DatumId>,
}
