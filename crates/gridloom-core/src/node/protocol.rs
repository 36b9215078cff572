//! Inputs and effects: the complete interface between a machine and its world, and between a client machine and the
//! program that uses it.
//!
//! **The world's contract.** Both worlds keep these guarantees, and the conformance suite checks them.
//! 1. Inputs are handled one at a time; `now` never goes back. In the real world, it counts from the beginning of 1970.
//! 2. Messages and small data between two nodes arrive in the order sent, each once, until the connection is lost.
//!    Messages may overtake large data.
//! 3. `PeerUp` precedes the first message of a peer, and `PeerLost` follows the last one. A `Dial` ends in exactly one
//!    of `PeerUp` and `DialFailed` for its address. It also fails if the peer that answers was already up, or comes up
//!    through another address meanwhile, because another peer may have been meant. `DialFailed` then names the peer
//!    that is up.
//! 4. A `Send` or `SendDatum` to a peer that is not up is dropped: its `PeerLost` was or will be delivered.
//! 5. `StartTask` ends in exactly one `TaskEnded`, also after `StopTask`. The task's results are in the store by then.
//!    The machine never starts more tasks at a time than the node's slots times its queue depth. Before `TaskEnded`,
//!    the task may produce `CallsBack`, but not a second one before the `AnswerTask` to the first. Likewise, a `Map`
//!    ends in exactly one `Mapped`, a `MakeDurable` in one `MadeDurable`, and a `SyncDurable` in one `DurableSynced`.
//! 6. `DatumArrived` is delivered when the complete datum is in the store. A datum that is already there is not
//!    replaced. `DatumBegun` may precede it, once the first bytes of a datum have arrived. From then on, until the
//!    datum has arrived, its transfer has broken off or its sender is lost, the datum can be forwarded: `SendDatum`
//!    sends the bytes received so far and then the bytes that follow. If the transfer breaks off here, forwarding
//!    breaks off too. A transfer that breaks off leaves nothing in a store. If a datum can no longer be sent, its
//!    transfer breaks off at the receiver. A world may keep the bytes received before a break, and request only the
//!    rest when its node fetches the datum again from any source. A slice of a shared datum is sent from the complete
//!    datum if that is in the store. Received slices are stored individually, and `JoinSlices` makes the complete
//!    datum from them. A client sends only its own data: if it sends another client's datum, the connection is closed
//!    and nothing of that datum is delivered.
//! 7. A timer fires once, not before its time. A cancelled timer does not fire.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::{CallTimeouts, Callback, CallbackAnswer, Deferral, TaskOutput};
use crate::graph::{Group, Task};
use crate::node::message::{
    AuditRecord, CatalogAnswer, MapRequest, Message, OutputPage, OutputQuery, ProgramWaits, ServerStatus, TaskReport,
    TransferReport, UsagePage, UsageQuery, UserUsage,
};
use crate::node::{LogLine, Timer};
use gridloom_base::dial::ConnectionFault;
use gridloom_base::{
    DatumId, GroupId, Meta, Method, NameError, NamedDatum, NodeId, ObjectId, Origin, PutOrigin, Rules, TaskError,
    TaskId, Time,
};
use gridloom_idl::Signature;
use gridloom_map::{MapError, MapperInput, MappingMethod, Plan, Stop};
use gridloom_perf::{FunctionModel, GridView, LinkReport};

/// The role of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Role {
    Agent,
    Server,
    Client,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Agent => "agent",
            Role::Server => "server",
            Role::Client => "client",
        }
    }

    /// True if a node of this role may send the datum. Clients and agents hold only their own data.
    pub fn may_send(self, node: NodeId, datum: DatumId) -> bool {
        self == Role::Server || datum.client == node
    }
}

/// A group to map, and the agent's view of the grid.
#[derive(Clone, PartialEq)]
pub struct MapJob {
    pub request: MapRequest,
    pub grid: GridView,
}

impl MapJob {
    /// Maps the group.
    ///
    /// # Errors
    /// Those of [`MappingMethod::map`].
    pub fn map(&self, stop: Stop) -> Result<Plan, MapError> {
        let MapRequest { group, outline, heuristic, .. } = &self.request;
        heuristic.map(outline, &self.grid, group.client, stop)
    }
}

impl fmt::Debug for MapJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MapRequest { group, round, outline, heuristic, .. } = &self.request;
        let (tasks, servers) = (outline.tasks.len(), self.grid.servers.len());
        write!(f, "MapJob({group}, round {round}, {tasks} tasks, {servers} servers, {heuristic})")
    }
}

/// An event that a machine handles.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    /// The node starts.
    Start,
    /// A control connection is established. The handshake has checked the peer's identity.
    PeerUp {
        peer: NodeId,
        role: Role,
        /// Name of the agent or server, or of a client's program.
        name: String,
        origin: Origin,
        /// The address that was dialled, or the address at which the peer can be dialled (empty if it cannot).
        address: String,
        /// The highest [version](crate::node::version) that both ends support.
        version: u16,
    },
    /// A control connection is lost.
    PeerLost {
        peer: NodeId,
        fault: ConnectionFault,
        /// How the loss was detected.
        why: String,
    },
    /// A dial failed.
    DialFailed {
        address: String,
        fault: ConnectionFault,
        why: String,
        /// The peer that answered there, if it is up.
        connected: Option<NodeId>,
    },
    /// A message arrived.
    Received { from: NodeId, message: Message },
    /// The first bytes of a large datum arrived.
    DatumBegun { from: NodeId, datum: DatumId },
    /// A complete datum is now in the store.
    DatumArrived {
        from: NodeId,
        datum: DatumId,
        meta: Meta,
        /// Nanoseconds from its first byte to its last; 0 if it arrived in one piece.
        duration_ns: u64,
    },
    /// The transfer of a datum to this node broke off, or there was no memory for the datum.
    DatumBroken {
        from: NodeId,
        datum: DatumId,
        /// This node has no memory for it.
        no_memory: bool,
        why: String,
    },
    /// A shared datum was made durable, or the reason why it was not.
    MadeDurable { datum: DatumId, outcome: Result<(), String> },
    /// The answer to `SyncDurable`.
    DurableSynced { number: u64 },
    /// Bytes of the store that are on disk now, by the client to whom the data belong. Durable data are left out.
    OnDisk { clients: Vec<(NodeId, u64)> },
    /// Large data and probes from a peer arrive through this relay, or directly, from now on.
    DataPath { from: NodeId, relay: Option<String> },
    /// A bandwidth probe arrived.
    ProbeArrived { from: NodeId, size_bytes: u64 },
    /// A timer fired.
    Timer(Timer),
    /// A started task ended.
    TaskEnded {
        task: TaskId,
        /// Actual descriptions of its results (they are in the store), or the reason why there are none.
        outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
        /// Nanoseconds for which the function ran.
        run_ns: u64,
    },
    /// A started task calls its program back.
    CallsBack(Callback),
    /// Output of a started task.
    CallOutput(TaskOutput),
    /// A started task waits for calls that it made itself, or resumes.
    Paused { task: TaskId, waits: bool },
    /// A mapping ended.
    Mapped { number: u64, outcome: Result<Plan, MapError> },
    /// The measured speed of one slot, in floating-point operations per second.
    SpeedMeasured { flops: f64 },
    /// A command from the program to its client machine.
    Command(Command),
}

/// The part of a server's disk that the data of some clients may take: those of one user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskLimit {
    pub clients: Vec<NodeId>,
    pub bytes: u64,
}

/// An action that a machine requests from its world.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Connect to an address.
    Dial { address: String },
    /// Close the connection to a peer (`PeerLost` does not follow).
    Disconnect { peer: NodeId },
    /// Send a message.
    Send { to: NodeId, message: Message },
    /// Send a datum of the store, a slice of one, or a datum that is still being received.
    SendDatum { to: NodeId, datum: DatumId },
    /// Send a datum of the store through the storage that both servers share: it is written to a file once for all
    /// receivers. A datum that cannot be written is sent as by `SendDatum`.
    SendByStorage { to: NodeId, datum: DatumId },
    /// Send a probe of this size over the same path as data, to measure the path.
    SendProbe { to: NodeId, size_bytes: u64 },
    /// Remove a datum from the store.
    DropDatum { datum: DatumId },
    /// Make a datum of the store available under a second identifier. The bytes are the same and are not copied.
    AliasDatum { datum: DatumId, named: DatumId },
    /// Make a range of bytes of a stored datum, beginning at `from_byte`, available as a datum with this description.
    /// Large ranges are not copied.
    MakePart { datum: DatumId, from_byte: u64, part: DatumId, meta: Meta },
    /// Join the slices of a datum with this description, all of which are in the store: from now on the complete datum
    /// is in the store, too. The bytes are not copied if the slices are contiguous in memory.
    JoinSlices { datum: DatumId, meta: Meta },
    /// Write a shared datum of the store to disk, where it outlives the node. Ends in exactly one `MadeDurable`. The
    /// memory of its bytes may be replaced.
    MakeDurable { named: Box<NamedDatum> },
    /// Replace the description of a datum on disk. No effect if it is not on disk.
    UpdateDurable { named: Box<NamedDatum> },
    /// A datum on disk no longer needs to outlive the node. `DropDatum` implies this.
    MakeTransient { datum: DatumId },
    /// Report once the data of all earlier `MakeTransient` and `DropDatum` are removed from disk, so that they do not
    /// return after the node is killed. Ends in exactly one `DurableSynced`.
    SyncDurable { number: u64 },
    /// Store no more bytes of these clients' data on disk than this, in addition to durable data. Replaces all earlier limits. Data that
    /// are on disk already stay there.
    LimitDisk { limits: Vec<DiskLimit> },
    /// Run a task: its inputs are in the store.
    StartTask { task: Arc<Task> },
    /// Kill a started task (`TaskEnded` follows).
    StopTask { task: TaskId },
    /// End a started task as cancelled if its function has not begun: several short ones may be queued in a worker.
    /// Otherwise no effect.
    WithdrawTask { task: TaskId },
    /// Send a started task that called its program back the program's answer.
    AnswerTask { task: TaskId, answer: CallbackAnswer },
    /// End an object's process and drop its state. No effect if there is no such object. The caller ensures that a
    /// running method of the object has ended or is being stopped.
    EndObject { object: ObjectId },
    /// Set a timer that fires at this time.
    SetTimer {
        /// The timer. Setting it again replaces its time.
        timer: Timer,
        at: Time,
    },
    /// Cancel a timer.
    CancelTimer { timer: Timer },
    /// Map a group, which may take long. Ends in exactly one `Mapped`, also after `StopMapping`.
    Map { number: u64, job: Arc<MapJob> },
    /// End a mapping with the best plan found so far.
    StopMapping { number: u64 },
    /// Measure the speed of one slot with a short calibrated kernel.
    MeasureSpeed,
    /// Report an event to the program, the log and the trace.
    Emit(Event),
    /// The node exits.
    Exit { why: String },
}

/// A command of a program to its client machine. Values are put into the client's store before the command that refers to them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Call one function now (plain GridRPC): it is mapped alone, and its results are sent back to the client.
    Call {
        /// The task. `sources` describes its data arguments.
        task: Task,
        /// Descriptions of its data arguments, all of which are stored at the client.
        sources: Vec<(DatumId, Meta)>,
        /// Timeouts of the call.
        limits: CallTimeouts,
        /// Set if it waits in the client until a server has a free slot. Its sending is reported by `CallSent`.
        deferral: Option<Box<Deferral>>,
    },
    /// Hold back deferred calls that were not sent, or stop that; calls that were sent are not affected.
    Hold { tasks: Vec<TaskId>, is_held: bool },
    /// The answer to `Event::CallsBack`.
    CalledBack {
        /// The server that called back.
        server: NodeId,
        task: TaskId,
        answer: CallbackAnswer,
    },
    /// Map a group and run it.
    Run {
        group: Group,
        /// The heuristic to use.
        heuristic: MappingMethod,
    },
    /// Map a group without running it. Ends in `GroupPlanned` or `GroupNotMapped`. If the group is followed, its
    /// remaining tasks may be mapped again.
    Plan {
        group: Group,
        /// The heuristic to use.
        heuristic: MappingMethod,
        /// The tasks of the group are submitted one by one with `RunPlanned`. Their servers are reserved for the group
        /// until `EndPlan`.
        is_incremental: bool,
    },
    /// Run tasks at the server that an earlier plan assigned, without a new mapping unless that fails. Tasks that only
    /// bring data to a server ([`Task::is_replicate`]) run there or fail.
    RunPlanned {
        /// The tasks, as a group of their own.
        group: Group,
        /// The server that runs them.
        server: NodeId,
        /// Sources of the tasks' inputs, for those inputs for which the plan names one.
        from: BTreeMap<DatumId, NodeId>,
        /// The heuristic to use if they cannot run there.
        heuristic: MappingMethod,
        /// The planned group, if these tasks are part of its plan.
        plan: Option<GroupId>,
    },
    /// No more tasks of a planned and followed group will be submitted.
    EndPlan { group: GroupId },
    /// Bring a datum to the client. Ends in `DatumAvailable` or `DatumLost`.
    Get { datum: DatumId },
    /// The program no longer needs these data.
    Release { data: Vec<DatumId> },
    /// Like `Release` for one datum, but no copy may remain. Readers that already have the datum keep it. A reader
    /// whose results are lost later fails.
    Erase { datum: DatumId },
    /// The copy of a datum at this node is not needed if there are other copies.
    DropCopy {
        datum: DatumId,
        /// A server, or the client itself.
        at: NodeId,
    },
    /// Cancel a call, or all tasks of a group that have not ended.
    Cancel { tasks: Vec<TaskId> },
    /// Cancel those of the deferred calls that were not sent.
    CancelUnsent { tasks: Vec<TaskId> },
    /// Request the agent's link measurements. Ends in `Links`.
    Links,
    /// Request what the programs of all clients wait for. Ends in `Waits`.
    Waits,
    /// Request the usage of users from the agent. Ends in `Usage`.
    Usage(UsageQuery),
    /// Have a server report everything that it has learned to the agent. Ends in a `Directory` that contains it,
    /// followed by `ModelsKnown`.
    CollectModels { server: NodeId },
    /// Request the status of a server. Ends in `Status`, unless the server is lost.
    Status { server: NodeId },
    /// Request the lines that functions have printed at a server. Ends in `Output`, unless the server is lost.
    Output { server: NodeId, query: OutputQuery },
    /// Have a server end a task of any client. Ends in `EndTaskAnswered`, unless the server is lost.
    EndTask { server: NodeId, task: TaskId },
    /// To a server, from its own process: accept no more calls that other servers can run, and exit when nothing is
    /// left here.
    Drain,
    /// To a server, from its own process: the process is about to end. Reports the usage so far to the agent.
    Stop,
    /// To a node, from its own process: log what it waits for. An agent logs what the programs of its clients wait for, and a
    /// server logs its calls.
    LogWaits,
    /// To an agent, from its own process: these are the rules of the grid from now on.
    SetRules { rules: Box<Rules> },
    /// The program is a function that this server runs. Data that it puts are stored at that server, and data that it
    /// gets are fetched from there if possible.
    RunsAt { server: NodeId },
    /// A command about shared names. Ends in `Named` with the same number, unless it is `Forget`.
    Name { request: u64, command: NameCommand },
}

/// A command of a program to its client machine about shared names.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum NameCommand {
    /// Give a datum of the client a shared name: a copy is sent to a server and stays there, whatever happens to the client.
    Put {
        name: String,
        datum: DatumId,
        meta: Meta,
        /// If the name exists, it gets a new version.
        replaces: bool,
        /// Number of servers that keep the datum.
        replicas: u16,
        /// The servers keep the datum even after they exit.
        is_durable: bool,
        /// How the datum is sent to servers that read it.
        method: Method,
        /// The call that puts the datum, if a function does.
        made_by: Option<PutOrigin>,
        /// Identifiers of the task that brings the datum to the server, and of its group.
        task: TaskId,
        group: GroupId,
    },
    /// Find the current version of a name. With `waits`, wait until there is one. The client reads the datum until it
    /// has released it as often as it found it.
    Find { name: String, waits: bool },
    /// Wait until a name has a current version, for at most `limit_ns`. With `brings`, the datum is sent here at once,
    /// as by `Get`.
    Await { name: String, limit_ns: Option<u64>, gets_data: bool },
    /// Stop waiting for a name, or cancel a put. A put may already be too far to be cancelled.
    CancelWait,
    /// Share a name with these users, and with no others.
    Share { name: String, users: Vec<String> },
    /// Delete a name. Its datum is dropped when nobody reads it any more.
    Delete { name: String },
    /// List the names that begin with `prefix` and follow `after` in order.
    List { prefix: String, after: String },
    /// Explain where the versions of a name are stored, and how servers after `after` that have no copy would get one.
    Explain { name: String, after: Option<NodeId> },
}

/// A report of a machine to the program, the log and the trace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// The client has received the agent's directory, or a change of it.
    Directory {
        /// The grid as the client knows it.
        grid: Arc<GridView>,
        /// Functions offered.
        functions: Arc<Vec<Signature>>,
    },
    /// The status of a server.
    Status { server: NodeId, status: ServerStatus },
    /// Whether a server ends a task, as an operator requested; otherwise the reason why it does not.
    EndTaskAnswered { server: NodeId, task: TaskId, answer: Result<(), String> },
    /// Lines that functions have printed at a server.
    Output { server: NodeId, output: OutputPage },
    /// The agent is gone, or never answered.
    AgentLost {
        /// The agent's address.
        address: String,
        fault: ConnectionFault,
        /// How the loss was detected.
        why: String,
    },
    /// A client without an agent has reached one of its configured servers.
    ServerReached { address: String, server: NodeId },
    /// A client without an agent cannot use one of its configured servers for now.
    ServerNotReached { address: String, why: String },
    /// The agent's link measurements; empty if there is no agent.
    Links {
        /// An entry for each ordered pair.
        links: Vec<LinkReport>,
    },
    /// What the programs of all clients wait for, the longest waits first; empty if there is no agent.
    Waits { programs: Vec<ProgramWaits> },
    /// The usage of users, or why the agent does not report it.
    Usage { query: UsageQuery, answer: Result<UsagePage, String> },
    /// To the world of an agent: users of a server have used this much since it started, as reported on that day. The world
    /// stores it with [`UsageTable::report`](crate::node::UsageTable::report).
    UsageReported { day: u32, server: NodeId, users: Vec<UserUsage> },
    /// To the world of an agent: a record for the audit log.
    Audit(Box<AuditRecord>),
    /// The directory contains everything that the server had learned at the time of the request.
    ModelsKnown { server: NodeId },
    /// A server has updated its model of one of its functions.
    ModelLearned {
        function: String,
        /// The updated model.
        model: FunctionModel,
    },
    /// A group was mapped (reported before its first task starts), or its remaining tasks were mapped again.
    GroupPlanned {
        at: Time,
        group: GroupId,
        plan: Arc<Plan>,
        /// Tasks of the group that it covers, in the plan's order.
        tasks: Vec<TaskId>,
        /// Data of the plan's outline.
        data: Vec<DatumId>,
        /// Names of the shared data, by their position in the outline.
        names: BTreeMap<u32, String>,
        /// Nanoseconds from the request for the plan until its arrival.
        map_ns: u64,
        /// The inputs of the mapping, if the group was only to be planned.
        seen: Option<Arc<MapperInput>>,
    },
    /// The assumptions behind the plan of a static graph have changed: its remaining tasks may be mapped again.
    PlanStale { group: GroupId, why: String },
    /// A group that was only to be planned cannot be mapped.
    GroupNotMapped { group: GroupId, error: TaskError },
    /// A task ended for good: with a result, or with a failure that is not retried. The results of a plain call are in
    /// the client's store by then.
    TaskEnded {
        /// Time at which it ended, as far as the client knows.
        at: Time,
        /// The server; `None` if the task was never sent to one.
        server: Option<NodeId>,
        report: TaskReport,
    },
    /// A deferred call was sent to a server for the first time.
    CallSent { at: Time, task: TaskId },
    /// A running call calls the program back, which answers with `Command::CalledBack`.
    CallsBack {
        /// The server that runs the call.
        server: NodeId,
        /// The called function and its arguments.
        call: Callback,
    },
    /// Output of a running call.
    CallOutput {
        /// The name of its server.
        server: String,
        function: String,
        said: TaskOutput,
    },
    /// A datum was transferred between servers, or to or from the client.
    Transferred {
        /// Time at which it arrived, as far as the client knows.
        at: Time,
        /// The measurement.
        report: TransferReport,
    },
    /// All tasks of a group have ended.
    GroupEnded { at: Time, group: GroupId },
    /// A datum that the program requested is in the client's store.
    DatumAvailable { datum: DatumId, meta: Meta },
    /// A datum that the program requested, or still holds, is lost.
    DatumLost { datum: DatumId, error: TaskError },
    /// The result of a command about shared names.
    NameResult { request: u64, answer: Result<CatalogAnswer, NameError> },
    /// A server that ran part of a group is lost. Its unfinished tasks and lost results are assigned to other servers.
    ServerLost {
        server: NodeId,
        name: String,
        /// How the loss was detected.
        why: String,
        /// Tasks that have to run (again) elsewhere.
        rerun: Vec<TaskId>,
    },
    /// A line for the log.
    Log(LogLine),
}

impl From<LogLine> for Effect {
    fn from(line: LogLine) -> Effect {
        Effect::Emit(Event::Log(line))
    }
}
