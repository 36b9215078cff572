//! Calls and tasks of groups: a client hands them to servers, and servers report how they end and what they hold.

use serde::{Deserialize, Serialize};

use super::Message;
use crate::call::{CallBack, CallBackAnswer, Said};
use crate::graph::Task;
use gridloom_base::{DatumId, GroupId, Meta, NodeId, TaskError, TaskId};

/// What concerns tasks, and data on their account.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum TaskMessage {
    ToServer(TaskToServer),
    ToClient(TaskToClient),
}

/// From a client to a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum TaskToServer {
    /// Run this by itself (plain GridRPC): send the results here when they are made, then forget all of it. Data
    /// arguments come from the client: small ones unasked right behind this message, large ones when they are asked for.
    Call {
        task: Task,
        /// Its data arguments.
        supplies: Vec<(DatumId, Meta)>,
    },
    /// Run these, in this order of priority, as their inputs come.
    RunTasks {
        tasks: Vec<Task>,
        /// Where the inputs come from that no task of this server makes.
        supplies: Vec<Supply>,
    },
    /// Take these data from there instead, and ask again.
    Resupply { supplies: Vec<Supply> },
    /// Forget these tasks; kill those that run.
    Cancel { tasks: Vec<TaskId> },
    /// What the program answers to `CallsBack`.
    CalledBack { task: TaskId, answer: CallBackAnswer },
    /// Give back these tasks, except those that run. Those of a group are mapped again; without one, they go to an idle server.
    Recall { group: Option<GroupId>, tasks: Vec<TaskId> },
    /// These data are no longer needed.
    Release { data: Vec<DatumId> },
    /// The client has copies of these, as `MakeRoom` wants.
    HasCopies { data: Vec<DatumId> },
    /// The client cannot have copies of these.
    HasNoCopies { data: Vec<DatumId> },
}

/// From a server to a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum TaskToClient {
    /// The answer to `Recall`.
    Recalled {
        group: Option<GroupId>,
        /// Tasks given back: they will not run here.
        tasks: Vec<TaskId>,
        /// Tasks that run, and for how many nanoseconds.
        running: Vec<(TaskId, u64)>,
    },
    /// A task of the client's calls it back, and waits for `CalledBack`.
    CallsBack(CallBack),
    /// A task of the client's says something.
    Said(Said),
    /// A task of the client's has begun and waits for what other tasks make, or goes on. It takes no slot meanwhile.
    Paused { task: TaskId, waits: bool },
    /// Tasks that ended and transfers that were measured since the last report.
    TasksEnded {
        reports: Vec<TaskReport>,
        transfers: Vec<TransferReport>,
        /// Tasks of other clients that are at the server.
        others: u32,
    },
    /// Tasks of the client wait for slots while those of others run, for so long by now. None, if it was told of some before: none
    /// waits any more.
    OthersRun { elapsed_ns: Vec<u64> },
    /// The server's store is full: the client is to have copies of these, so that they can make way.
    MakeRoom { data: Vec<DatumId> },
    /// Copies that this server no longer has.
    Dropped { data: Vec<DatumId> },
    /// A datum that the server's tasks wait for cannot be had from where it was to come.
    SupplyFailed {
        datum: DatumId,
        /// The source that failed.
        from: NodeId,
        /// In what respect.
        fault: SupplyFault,
        /// How, in words.
        why: String,
    },
}

/// Where a datum that a server's tasks need comes from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Supply {
    pub datum: DatumId,
    /// Its description (a text or bytes result: size 0 until it is made).
    pub meta: Meta,
    /// The node that sends it.
    pub from: NodeId,
    /// Where to dial that node (empty for the client, which is connected already).
    pub address: String,
    /// How many sends it takes from where the datum is, or is made, to the server: above 1, that node waits for it too. A node
    /// that waits for a copy lets only nodes with more hops wait behind it, so that no two wait for one another.
    pub hops: u16,
    /// It comes by a storage that both share.
    pub by_storage: bool,
}

impl Supply {
    /// It comes over the network.
    pub fn direct(datum: DatumId, meta: Meta, from: NodeId, address: String, hops: u16) -> Supply {
        Supply { datum, meta, from, address, hops, by_storage: false }
    }
}

/// In what respect a source failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SupplyFault {
    /// It does not have the datum, or not any more.
    Gone,
    /// It cannot be reached from there.
    Unreachable,
    /// The datum broke off on its way.
    Broken,
    /// The server has no memory for it.
    NoMemory,
}

/// A task's measured course.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// Nanoseconds from the start of the function to its end.
    pub run_ns: u64,
    /// Nanoseconds from its end until this report left, so that the receiver can tell when it ended.
    pub age_ns: u64,
}

/// How a task ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TaskReport {
    pub task: TaskId,
    /// Its results' descriptions, or why there are none.
    pub outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
    pub timing: Timing,
}

/// A measured transfer. Its receiver reports it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct TransferReport {
    pub datum: DatumId,
    pub from: NodeId,
    pub to: NodeId,
    pub size_bytes: u64,
    /// Nanoseconds from the request to the arrival.
    pub run_ns: u64,
    /// Nanoseconds from the arrival until this report left.
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
