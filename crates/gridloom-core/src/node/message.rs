//! What nodes say to one another on control connections.
//!
//! Payload never stands in a message, but for a callback's arrays, which are no data: a datum travels as a data frame (small ones on the control connection, large ones
//! on a bulk connection) and reaches the machine as [`super::Input::DatumArrived`].
//!
//! ```text
//! client                 agent                 server A               server B
//!   | MapGroup ----------->|                      |                      |
//!   |<---------- GroupMapped                      |                      |
//!   | RunTasks ---------------------------------->|                      |
//!   | RunTasks ----------------------------------------------------------->|
//!   |<---------------------------------- Fetch(a) |<------------ Fetch(ab) |   asked as soon as there is room
//!   | data a ====================================>|                      |
//!   |                                             | ab is made           |
//!   |<--------------------------------- TaskEnded | data ab ============>|
//! ```

use serde::{Deserialize, Serialize};

use crate::base::{DatumId, GroupId, Meta, NodeId, TaskError, TaskId};
use crate::call::{CallBack, CallBackAnswer};
use crate::graph::{Outline, Task};
use crate::idl::Signature;
use crate::map::{MapBy, Plan, Seen};
use crate::perf::{FunctionModel, GridView, LinkEstimate, LinkReport, host_of};

/// What a server tells the agent when it comes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Registration {
    /// Its name.
    pub name: String,
    /// Where it can be dialled.
    pub address: String,
    /// Tasks it runs at a time.
    pub slots: u32,
    /// It talks to clients only.
    pub plain: bool,
    /// Bound on its store.
    pub memory_bytes: u64,
    /// How many times as long as on its processors calls take on purpose: 1 unless it stands for a slower machine.
    pub slowdown: f64,
    /// What it offers.
    pub functions: Vec<Signature>,
}

impl Registration {
    /// The processors that it stands for: what one server learns of them holds for all that stand for the same.
    pub fn processors(&self) -> String {
        let host = host_of(&self.address);
        if self.slowdown == 1.0 { host.to_string() } else { format!("{host}, slowed down {} times", self.slowdown) }
    }
}

/// Where a datum that a server's tasks need comes from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Supply {
    /// The datum.
    pub datum: DatumId,
    /// Its description (a text or bytes result: size 0 until it is made).
    pub meta: Meta,
    /// Who sends it.
    pub from: NodeId,
    /// Where to dial them (empty for the client, which is connected already).
    pub address: String,
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
    /// The task.
    pub task: TaskId,
    /// Its results' descriptions, or why there are none.
    pub outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
    /// Its measured course.
    pub timing: Timing,
}

/// A measured transfer.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct TransferReport {
    /// The datum.
    pub datum: DatumId,
    /// Sender.
    pub from: NodeId,
    /// Receiver, who reports it.
    pub to: NodeId,
    /// Bytes moved.
    pub size_bytes: u64,
    /// Nanoseconds from the request to the arrival.
    pub run_ns: u64,
    /// Nanoseconds from the arrival until this report left.
    pub age_ns: u64,
}

/// What a plan is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// Its tasks run: their servers are promised to the group.
    Run,
    /// It will not run: nothing is promised, and what was seen comes with the plan.
    Look,
    /// Its tasks will be called one by one: their servers are promised until the group ends, and what was seen comes with the
    /// plan.
    Follow,
}

/// A transfer as its receiver saw it, for the models of links.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct SeenTransfer {
    /// Sender.
    pub from: NodeId,
    /// Bytes moved.
    pub size_bytes: u64,
    /// Nanoseconds from its first byte to its last.
    pub took_ns: u64,
    /// Nanoseconds from its arrival until this report left.
    pub age_ns: u64,
}

/// A request for a plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MapRequest {
    /// The group.
    pub group: GroupId,
    /// Number of this request among the client's: returned in the answer, so that a late one is told from the last.
    pub round: u64,
    /// The graph.
    pub outline: Outline,
    /// By what it is to be mapped.
    pub heuristic: MapBy,
    /// What for.
    pub purpose: Purpose,
    /// What the client knows of its own links: server, link.
    pub client_links: Vec<(NodeId, LinkEstimate)>,
    /// Servers not to be used.
    pub without: Vec<NodeId>,
    /// Seconds for which tasks of the group that are not mapped now keep servers busy, an entry a task.
    pub busy: Vec<(NodeId, f64)>,
}

/// The messages.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    // ---- any to any
    /// Liveness and latency.
    Ping {
        /// Returned unchanged.
        token: u64,
    },
    /// Answer to `Ping`.
    Pong {
        /// From the ping.
        token: u64,
    },
    /// The receiver of a bandwidth probe has it all.
    ProbeArrived {
        /// Its size.
        size_bytes: u64,
    },

    // ---- server to agent
    /// A server offers its functions.
    Register(Registration),
    /// A server's measured speed of one slot, floating-point operations per second.
    Speed {
        /// The speed.
        flops: f64,
    },
    /// A server measured its link to another.
    LinkMeasured {
        /// The other.
        to: NodeId,
        /// The measure.
        link: LinkEstimate,
    },
    /// What came to a server since the last report.
    TransfersSeen {
        /// The transfers: at most [`crate::base::limits::SEEN_PER_REPORT`], the largest.
        transfers: Vec<SeenTransfer>,
    },
    /// A server cannot reach another.
    LinkBroken {
        /// The other.
        to: NodeId,
    },
    /// What a server knows of the time of one of its functions has changed.
    Model {
        /// The function.
        function: String,
        /// Its model there.
        model: FunctionModel,
    },

    /// A server's calls take so many times as long as its models say, of late.
    Pace {
        /// The factor.
        pace: f64,
    },

    /// A server has measured its links: it can be mapped onto with knowledge.
    LinksDone,

    // ---- whoever measures links, and agent
    /// A server or client that is connected to a peer wants to measure the link.
    AskTurn {
        /// The peer.
        to: NodeId,
    },
    /// No other measures a link of these hosts now.
    Turn {
        /// The peer.
        to: NodeId,
        /// Whether it is to be measured: others may have done so between these hosts.
        is_needed: bool,
    },
    /// The turn, or the wish for it, is over.
    TurnOver {
        /// The peer.
        to: NodeId,
    },

    // ---- agent to server
    /// The registration was taken; measure the links to these.
    Registered {
        /// Other servers: identifier and address.
        peers: Vec<(NodeId, String)>,
    },
    /// The registration was refused.
    RegistrationRefused {
        /// Why.
        why: String,
        /// The reason may pass: another server has the name, which may be gone without the agent's having noticed yet.
        may_pass: bool,
    },

    /// Measure the link to that server, if nothing moves over it: `LinkMeasured` follows, or nothing.
    MeasureLink {
        /// The other server.
        to: NodeId,
        /// Where it can be dialled.
        address: String,
    },

    // ---- client and agent
    /// A client asks what is known of links.
    AskLinks,
    /// The answer.
    LinksKnown {
        /// A line for each ordered pair.
        links: Vec<LinkReport>,
    },
    /// A client asks for the grid and the functions, and to be told of changes. A server that it asks tells it what it tells
    /// its agent.
    Subscribe,
    /// The grid as known.
    Directory {
        /// Rises with each change of the functions or servers.
        version: u64,
        /// The servers; `links` is empty.
        grid: GridView,
        /// Signatures of all functions offered, in order of name; `None` if unchanged since the last one sent.
        functions: Option<Vec<Signature>>,
    },
    /// A client asks for a group to be mapped.
    MapGroup(MapRequest),
    /// The plan, with the grid that it was made for.
    GroupMapped {
        /// The group.
        group: GroupId,
        /// From the request.
        round: u64,
        /// The plan.
        plan: Plan,
        /// Where its servers can be dialled.
        addresses: Vec<(NodeId, String)>,
        /// What it was made of, if it was only to be planned.
        seen: Option<Box<Seen>>,
    },
    /// What the group's plan rests on has changed much: it may pay to map again what is left.
    Stale {
        /// The group.
        group: GroupId,
        /// What has changed, in words.
        why: String,
    },
    /// The group cannot be mapped.
    GroupNotMapped {
        /// The group.
        group: GroupId,
        /// From the request.
        round: u64,
        /// Why.
        why: String,
    },
    /// The group has ended: what it was promised is free again.
    GroupEnded {
        /// The group.
        group: GroupId,
    },

    // ---- client, server and agent
    /// A client asks a server to tell whoever maps onto it all that it has learned: `ModelsTold` follows there.
    TellModels,
    /// A server has told all that it has learned.
    ModelsTold {
        /// Who asked for that.
        client: NodeId,
    },
    /// What that server has learned stands in the directory, which was sent before.
    ModelsKnown {
        /// The server.
        server: NodeId,
    },

    // ---- client to server
    /// Run this by itself (plain GridRPC): send the results here when they are made, then forget all of it. Data
    /// arguments come from the client: small ones unasked right behind this message, large ones when they are asked for.
    Call {
        /// The task.
        task: Task,
        /// Its data arguments.
        supplies: Vec<(DatumId, Meta)>,
        /// It is to be measured: it runs only while nothing else does, and gives way to what comes.
        calibrates: bool,
    },
    /// Run these, in this order of priority, as their inputs come.
    RunTasks {
        /// The tasks.
        tasks: Vec<Task>,
        /// Where the inputs come from that no task of this server makes.
        supplies: Vec<Supply>,
    },
    /// Take these data from there instead, and ask again.
    Resupply {
        /// The new sources.
        supplies: Vec<Supply>,
    },
    /// Forget these tasks; kill those that run.
    Cancel {
        /// The tasks.
        tasks: Vec<TaskId>,
    },
    /// What the program says to `CallsBack`.
    CalledBack {
        /// The task.
        task: TaskId,
        /// The answer.
        answer: CallBackAnswer,
    },
    /// Give back these tasks of a group, but those that run: they are mapped again.
    Recall {
        /// The group.
        group: GroupId,
        /// The tasks.
        tasks: Vec<TaskId>,
    },
    /// These data are no longer needed.
    Release {
        /// The data.
        data: Vec<DatumId>,
    },

    // ---- server to client
    /// The answer to `Recall`.
    Recalled {
        /// The group.
        group: GroupId,
        /// Tasks given back: they will not run here.
        tasks: Vec<TaskId>,
        /// Tasks that run, and for how many nanoseconds.
        running: Vec<(TaskId, u64)>,
    },
    /// A task of the client's calls it back, and waits for `CalledBack`.
    CallsBack(CallBack),
    /// Tasks that ended since the last report.
    TasksEnded {
        /// Their reports.
        reports: Vec<TaskReport>,
        /// Transfers measured since the last report.
        transfers: Vec<TransferReport>,
    },
    /// Copies that this server no longer has.
    Dropped {
        /// The data.
        data: Vec<DatumId>,
    },
    /// A datum that the server's tasks wait for cannot be had from where it was to come.
    SupplyFailed {
        /// The datum.
        datum: DatumId,
        /// The source that failed.
        from: NodeId,
        /// In what respect.
        fault: SupplyFault,
        /// How, in words.
        why: String,
    },

    // ---- any holder
    /// Send the datum as soon as you have it.
    Fetch {
        /// The datum.
        datum: DatumId,
    },
    /// The datum will not come from here.
    FetchRefused {
        /// The datum.
        datum: DatumId,
        /// Why.
        why: String,
    },
}
