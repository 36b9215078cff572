//! Calls and tasks of groups. Clients send them to servers, and servers report their results and the data that they hold.

use serde::{Deserialize, Serialize};

use super::Message;
use crate::call::{Callback, CallbackAnswer, TaskOutput};
use crate::graph::Task;
use gridloom_base::{DatumId, GroupId, Meta, NodeId, TaskError, TaskId};

/// Messages about tasks and their data.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "see `TaskToServer`")]
pub enum TaskMessage {
    ToServer(TaskToServer),
    ToClient(TaskToClient),
}

/// Messages from a client to a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "a box for the task would cost each call an allocation")]
pub enum TaskToServer {
    /// A plain GridRPC call: run this task by itself, send the results back, then forget all of it. The client sends
    /// the data arguments: small ones unasked right after this message, large ones when the server requests them.
    Call {
        task: Task,
        /// The call's data arguments.
        supplies: Vec<(DatumId, Meta)>,
    },
    /// Run these tasks in this order of priority, as their inputs arrive.
    RunTasks {
        tasks: Vec<Task>,
        /// Sources of the inputs that no task of this server produces.
        supplies: Vec<Supply>,
    },
    /// Use these sources instead of the previous ones, and request the data again.
    Resupply { supplies: Vec<Supply> },
    /// Forget these tasks, and kill the running ones.
    Cancel { tasks: Vec<TaskId> },
    /// The program's answer to `CallsBack`.
    CalledBack { task: TaskId, answer: CallbackAnswer },
    /// Return these tasks to the client, except running ones. Tasks of a group are mapped again; other tasks are sent
    /// to an idle server.
    Recall { group: Option<GroupId>, tasks: Vec<TaskId> },
    /// These data are no longer needed.
    Release { data: Vec<DatumId> },
    /// The client has copies of these data, as `MakeRoom` requested.
    HasCopies { data: Vec<DatumId> },
    /// The client cannot take copies of these data.
    CannotCopy { data: Vec<DatumId> },
}

/// Messages from a server to a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum TaskToClient {
    /// The answer to `Recall`.
    Recalled {
        group: Option<GroupId>,
        /// Tasks returned to the client: they will not run here.
        tasks: Vec<TaskId>,
        /// Running tasks, with the nanoseconds that each has run.
        running: Vec<(TaskId, u64)>,
    },
    /// A task of the client calls the program back, and waits for `CalledBack`.
    CallsBack(Callback),
    /// Output of one of the client's tasks.
    CallOutput(TaskOutput),
    /// A started task of the client waits for results of other tasks, or resumes. It occupies no slot while it waits.
    Paused { task: TaskId, waits: bool },
    /// Tasks that ended and transfers that were measured since the previous report.
    TasksEnded {
        reports: Vec<TaskReport>,
        transfers: Vec<TransferReport>,
        /// Number of tasks of other clients at the server.
        other_tasks: u32,
    },
    /// Tasks of the client wait for slots while tasks of other clients run. Contains the time that each of those has
    /// run so far. Empty after an earlier report: no task of the client waits any more.
    OtherTasksRunning { elapsed_ns: Vec<u64> },
    /// The server's store is full. It asks the client to fetch copies of these data, so that it can evict them.
    MakeRoom { data: Vec<DatumId> },
    /// Data that this server no longer holds.
    Dropped { data: Vec<DatumId> },
    /// A datum that the server's tasks wait for cannot be obtained from its source.
    SupplyFailed {
        datum: DatumId,
        /// The source that failed.
        from: NodeId,
        /// The kind of failure.
        fault: SupplyFault,
        /// The failure as text.
        why: String,
    },
}

/// The source of a datum that a server's tasks need.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Supply {
    pub datum: DatumId,
    /// Its description (for a text or bytes result, the size is 0 until the result exists).
    pub meta: Meta,
    /// The node that sends it.
    pub from: NodeId,
    /// Address of that node (empty for the client, which is already connected).
    pub address: String,
    /// Number of sends from the node that has or produces the datum to the server. Above 1, the sending node waits for
    /// the datum itself. A node that waits for a copy lets only nodes with more hops wait for it, so that no two nodes
    /// wait for each other.
    pub hops: u16,
    /// The datum is transferred through a storage that both nodes share.
    pub by_storage: bool,
}

impl Supply {
    /// Returns a supply over the network.
    pub fn direct(datum: DatumId, meta: Meta, from: NodeId, address: String, hops: u16) -> Supply {
        Supply { datum, meta, from, address, hops, by_storage: false }
    }
}

/// How a source failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SupplyFault {
    /// The source does not have the datum, or no longer has it.
    Gone,
    /// The server cannot reach the source.
    Unreachable,
    /// The transfer broke off.
    Broken,
    /// The server has no memory for it.
    NoMemory,
}

/// Measured times of a task.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct TaskTimes {
    /// Nanoseconds from the start of the function to its end.
    pub run_ns: u64,
    /// Nanoseconds from the end of the function until this report was sent, from which the receiver computes the time of the end.
    pub age_ns: u64,
}

/// How a task ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TaskReport {
    pub task: TaskId,
    /// Descriptions of its results, or the reason why there are none.
    pub outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
    pub timing: TaskTimes,
}

/// A measured transfer, reported by its receiver.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct TransferReport {
    pub datum: DatumId,
    pub from: NodeId,
    pub to: NodeId,
    pub size_bytes: u64,
    /// Nanoseconds from the request to the arrival.
    pub run_ns: u64,
    /// Nanoseconds from the arrival until this report was sent.
    pub age_ns: u64,
}

impl From<TaskToServer> for Message {
    fn from(message: TaskToServer) -> Message {
        Message::Task(TaskMessage::ToServer(message))
    }
}

impl From<TaskToClient> for Message {
    fn from(message: TaskToClient) -> Message {
        Message::Task(TaskMessage::ToClient(message))
    }
}
