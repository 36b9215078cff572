//! A task of the graph and its state.

use std::sync::Arc;

use crate::graph::{Failures, Task};
use gridloom_base::{GroupId, NodeId, TaskError, TaskId, Time};

/// The state of a task of a group.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::node::client) enum Status {
    /// The task is not mapped, or about to be mapped again.
    Unmapped,
    /// The task was sent to this server.
    Sent(NodeId),
    /// Its results have been produced.
    Done,
    /// It will not produce results.
    Failed(TaskError),
}

/// A lost server, for error messages and events.
#[derive(Clone, Debug)]
pub(in crate::node::client) struct LostServer {
    pub(in crate::node::client) node: NodeId,
    pub(in crate::node::client) name: String,
    pub(in crate::node::client) why: String,
}

/// A task of the graph. Only the graph changes it.
#[derive(Debug)]
pub(in crate::node::client) struct TaskState {
    pub(super) task: Arc<Task>,
    pub(super) group: GroupId,
    pub(super) status: Status,
    /// How often it was sent without having ended.
    pub(super) attempts: u32,
    /// The server that was last lost with it or with the only copy of a result. Used in the error if no other server
    /// can run it.
    pub(super) lost_with: Option<LostServer>,
    pub(super) failures: Failures,
    /// When it began to run, if the client has requested that.
    pub(super) since: Option<Time>,
    /// Number of its inputs that had not been produced when it was sent and have not been since.
    pub(super) missing: u32,
}

impl TaskState {
    pub(super) fn new(task: Arc<Task>, group: GroupId) -> TaskState {
        TaskState {
            task,
            group,
            status: Status::Unmapped,
            attempts: 0,
            lost_with: None,
            failures: Failures::default(),
            since: None,
            missing: 0,
        }
    }

    pub(in crate::node::client) fn task(&self) -> &Arc<Task> {
        &self.task
    }

    pub(in crate::node::client) fn id(&self) -> TaskId {
        self.task.id
    }

    pub(in crate::node::client) fn group(&self) -> GroupId {
        self.group
    }

    pub(in crate::node::client) fn status(&self) -> &Status {
        &self.status
    }

    /// Returns the server to which it was sent, if it has not ended.
    pub(in crate::node::client) fn server(&self) -> Option<NodeId> {
        match self.status {
            Status::Sent(server) => Some(server),
            Status::Unmapped | Status::Done | Status::Failed(_) => None,
        }
    }

    /// True if it was sent to that server and has not ended.
    pub(in crate::node::client) fn is_at(&self, server: NodeId) -> bool {
        self.server() == Some(server)
    }

    pub(in crate::node::client) fn is_unmapped(&self) -> bool {
        self.status == Status::Unmapped
    }

    /// True if it has not ended.
    pub(in crate::node::client) fn is_open(&self) -> bool {
        matches!(self.status, Status::Unmapped | Status::Sent(_))
    }

    pub(in crate::node::client) fn lost_with(&self) -> Option<&LostServer> {
        self.lost_with.as_ref()
    }

    pub(in crate::node::client) fn failures(&self) -> &Failures {
        &self.failures
    }

    pub(in crate::node::client) fn since(&self) -> Option<Time> {
        self.since
    }

    /// True if it was sent before all its inputs were produced, and they still are not.
    pub(in crate::node::client) fn awaits_inputs(&self) -> bool {
        self.missing > 0
    }
}
