//! Inputs and effects: the whole of what passes between a machine and its world, and between a client machine and the
//! program that uses it.
//!
//! **The world's contract.** Both worlds keep these promises; the conformance suite checks them.
//! 1. Inputs are handled one at a time; `now` never goes back.
//! 2. Messages and small data between two nodes arrive in the order sent, each once, until the connection is lost;
//!    large data may be overtaken by messages.
//! 3. `PeerUp` comes before the first message of a peer, `PeerLost` after the last; a `Dial` ends in exactly one of
//!    `PeerUp` and `DialFailed` of its address. It fails too if the peer that answers was up before, or comes up by
//!    another address meanwhile: perhaps another peer was meant. It then names the peer that is up.
//! 4. A `Send` or `SendDatum` to a peer that is not up vanishes: its `PeerLost` was or will be delivered.
//! 5. `StartTask` ends in exactly one `TaskEnded`, also after `StopTask`. Its results are in the store by then.
//!    The machine never has more tasks started than the node has slots times its queue depth.
//!    Between them it may say `CallsBack`, and not again before the `AnswerTask` to it.
//!    A `Map` ends in exactly one `Mapped` likewise, and a `MakeDurable` in one `MadeDurable`.
//! 6. `DatumArrived` comes when the whole datum is in the store. A datum that is there already is not replaced. `DatumBegun` may
//!    come before it, once a datum's first bytes are here. From then on, until it has arrived, has broken off or its sender is lost,
//!    the datum can be sent on: `SendDatum` sends what has come and then what comes. If it breaks off here, what was sent on breaks
//!    off too. What breaks off leaves nothing in a store. A datum that can no longer be sent breaks off at its receiver.
//!    A world may keep what has come of it, and have the rest alone sent when its node fetches the datum again, from whomever.
//!    A slice of a shared datum is sent from the whole, if that is in the store. What comes of slices is in the store as they are, and
//!    `JoinSlices` makes the whole of them.
//!    A client sends its own data alone: a connection on which it sends another's is lost, and nothing of it arrives.
//! 7. A timer fires once, not before its time; a cancelled timer does not fire.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::{CallBack, CallBackAnswer, CallLimits, Said};
use crate::graph::{Group, Task};
use crate::node::message::{
    CatalogAnswer, MapRequest, Message, Output, OutputQuery, ServerStatus, TaskReport, TransferReport,
};
use crate::node::{LogLine, Timer};
use gridloom_base::{
    DatumId, GroupId, Maker, Meta, Method, NameError, Named, NodeId, ObjectId, TaskError, TaskId, Time,
};
use gridloom_idl::Signature;
use gridloom_map::{MapBy, MapError, Plan, Seen, Stop};
use gridloom_perf::{FunctionModel, GridView, LinkReport};

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Role {
    Agent,
    Server,
    Client,
}

impl Role {
    /// Whether data of that client may come from a node of this role. Others hold only what is their own.
    pub fn may_send(self, node: NodeId, datum: DatumId) -> bool {
        self == Role::Server || datum.client == node
    }
}

/// A group that is to be mapped, and the grid as its agent knows it.
#[derive(Clone, PartialEq)]
pub struct MapJob {
    pub request: MapRequest,
    pub grid: GridView,
}

impl MapJob {
    /// Maps it.
    ///
    /// # Errors
    /// Those of [`MapBy::map`].
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

/// What can happen to a machine.
#[derive(Clone, PartialEq, Debug)]
pub enum Input {
    /// The node begins.
    Start,
    /// A control connection stands: the peer's identity was checked in the handshake.
    PeerUp {
        peer: NodeId,
        /// What it is.
        role: Role,
        name: String,
        /// The address that was dialled, or where it can be dialled (empty if it cannot).
        address: String,
        /// The highest [version](crate::node::version) that both ends speak.
        version: u16,
    },
    /// A control connection is lost.
    PeerLost {
        peer: NodeId,
        /// How it was noticed.
        why: String,
    },
    /// A dial did not succeed.
    DialFailed {
        address: String,
        why: String,
        /// The peer that answers there, if it is up.
        connected: Option<NodeId>,
    },
    /// A message came.
    Received { from: NodeId, message: Message },
    /// The first bytes of a large datum have come.
    DatumBegun { from: NodeId, datum: DatumId },
    /// A datum is now whole in the store.
    DatumArrived {
        from: NodeId,
        datum: DatumId,
        meta: Meta,
        /// Nanoseconds from its first byte to its last, 0 if it came in one piece.
        took_ns: u64,
    },
    /// A datum broke off on its way here, or found no room.
    DatumBroken {
        from: NodeId,
        datum: DatumId,
        /// This node has no memory for it.
        no_memory: bool,
        why: String,
    },
    /// A shared datum will outlive the node, or why it will not.
    MadeDurable { datum: DatumId, outcome: Result<(), String> },
    /// A bandwidth probe came.
    ProbeArrived { from: NodeId, size_bytes: u64 },
    /// A timer fired.
    Timer(Timer),
    /// A started task ended.
    TaskEnded {
        task: TaskId,
        /// Its results' true descriptions (they are in the store), or why there are none.
        outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
        /// Nanoseconds that the function ran.
        run_ns: u64,
    },
    /// A started task calls its program back.
    CallsBack(CallBack),
    /// A started task says something.
    Said(Said),
    /// A started task waits for calls that it made itself, or goes on.
    Calling { task: TaskId, waits: bool },
    /// A mapping has ended.
    Mapped { number: u64, outcome: Result<Plan, MapError> },
    /// Speed of one slot, floating-point operations per second.
    SpeedMeasured { flops: f64 },
    /// The program asks the client for something.
    Command(Command),
}

/// What a machine can ask of its world.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Connect to that address.
    Dial { address: String },
    /// Close the connection to a peer (`PeerLost` does not follow).
    HangUp { peer: NodeId },
    /// Send a message.
    Send { to: NodeId, message: Message },
    /// Send a datum of the store or a slice of one, or one that has begun to come.
    SendDatum { to: NodeId, datum: DatumId },
    /// The same, of the store, by the storage that this server shares with that one: as a file, once for all that ask. What cannot be
    /// written is sent as by `SendDatum`.
    StoreDatum { to: NodeId, datum: DatumId },
    /// Send so many bytes the way data go, to measure it.
    SendProbe {
        to: NodeId,
        /// How many.
        size_bytes: u64,
    },
    /// Remove a datum from the store.
    DropDatum { datum: DatumId },
    /// A datum of the store is another one as well: the bytes are the same, and are not copied.
    NameDatum { datum: DatumId, named: DatumId },
    /// Bytes of a datum of the store, from that one on, are a datum of that description as well. They are not copied if they are many.
    TakePart { datum: DatumId, from_byte: u64, part: DatumId, meta: Meta },
    /// All slices of a datum of that description are in the store: the whole is in it, too, from now on. They are not copied if their
    /// memory lies side by side.
    JoinSlices { datum: DatumId, meta: Meta },
    /// Write a shared datum of the store to the disk, where it outlives the node. It ends in exactly one `MadeDurable`. The place of its
    /// bytes may change.
    MakeDurable { named: Box<Named> },
    /// A datum that was written there is not to outlive the node any more. `DropDatum` says so, too.
    MakeTransient { datum: DatumId },
    /// Run a task: its inputs are in the store.
    StartTask { task: Arc<Task> },
    /// Kill a started task (`TaskEnded` follows).
    StopTask { task: TaskId },
    /// End a started task as cancelled if its function has not begun: several short ones may be queued in a worker. No effect
    /// else.
    WithdrawTask { task: TaskId },
    /// Tell a started task, which has called its program back, what the program says.
    AnswerTask { task: TaskId, answer: CallBackAnswer },
    /// End an object's process and its state. No effect on one that is not there; a method of it that runs has ended or is
    /// being stopped.
    EndObject { object: ObjectId },
    /// Fire at that time.
    SetTimer {
        /// The timer; setting it again moves it.
        timer: Timer,
        at: Time,
    },
    /// Do not fire.
    CancelTimer { timer: Timer },
    /// Map a group: takes long. It ends in exactly one `Mapped`, also after `StopMapping`.
    Map { number: u64, job: Arc<MapJob> },
    /// End a mapping with the best plan that it has.
    StopMapping { number: u64 },
    /// Measure the speed of one slot with a short calibrated kernel.
    MeasureSpeed,
    /// Tell the program, the log and the trace.
    Emit(Event),
    /// The node ends.
    Exit { why: String },
}

/// What a program can ask of its client machine. Values are put into the client's store before the command that names
/// them.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Call one function now, by itself: mapped alone, results back to the client (plain GridRPC).
    Call {
        /// The task; its data arguments are in `sources`.
        task: Task,
        /// Descriptions of its data arguments, all of them at the client.
        sources: Vec<(DatumId, Meta)>,
        /// Times after which the call fails.
        limits: CallLimits,
    },
    /// The answer to `Event::CallsBack`.
    CalledBack {
        /// The server that called back.
        server: NodeId,
        task: TaskId,
        answer: CallBackAnswer,
    },
    /// Map a group and run it.
    Run {
        group: Group,
        /// By what it is mapped.
        heuristic: MapBy,
    },
    /// Only map a group: ends in `GroupPlanned` or `GroupNotMapped`. One that is followed may be mapped again, as what is left of
    /// it.
    Plan {
        group: Group,
        /// By what it is mapped.
        heuristic: MapBy,
        /// Its tasks will come one by one, by `Follow`: their servers are promised to it until `EndPlan`.
        is_followed: bool,
    },
    /// Run tasks where a plan that was made before has them; nobody is asked, unless that cannot be. Tasks that only take
    /// data to a server ([`Task::is_replicate`]) run there or fail.
    Follow {
        /// The tasks, as a group of their own.
        group: Group,
        /// Where they run.
        server: NodeId,
        /// Where what they read is to come from, of what the plan says that for.
        from: BTreeMap<DatumId, NodeId>,
        /// By what they are mapped if they cannot run there.
        heuristic: MapBy,
        /// The group that was planned, if they take their places in its plan.
        plan: Option<GroupId>,
    },
    /// No more tasks will come of a group that was planned to be followed.
    EndPlan { group: GroupId },
    /// Bring a datum to the client; ends in `DatumHere` or `DatumLost`.
    Get { datum: DatumId },
    /// The program no longer needs these data.
    Release { data: Vec<DatumId> },
    /// The same of one datum, but no copy is to be left. A reader fails then if its results are lost.
    /// Readers that have the datum by now have it still.
    Erase { datum: DatumId },
    /// The copy of a datum at that node is not needed, if there are others.
    GiveUp {
        datum: DatumId,
        /// A server, or the client itself.
        at: NodeId,
    },
    /// Cancel a call or all of a group's tasks that have not ended.
    Cancel { tasks: Vec<TaskId> },
    /// Ask the agent what is known of links; ends in `Links`.
    Links,
    /// Have a server tell the agent all that it has learned; ends in a `Directory` that has it and `ModelsKnown`.
    Models { server: NodeId },
    /// Ask a server what it does; ends in `Status`, unless it is lost.
    Status { server: NodeId },
    /// Ask a server what functions have printed there; ends in `Output`, unless it is lost.
    Output { server: NodeId, query: OutputQuery },
    /// Have a server end a task, whoever's it is.
    EndTask { server: NodeId, task: TaskId },
    /// To a server, from its own process: take no more calls that others can take, and end when nothing is left here.
    Drain,
    /// The program is a function that this server runs: what it puts goes there, and what it gets comes from there, if it is there.
    Near { server: NodeId },
    /// Something of shared names; ends in `Named` with that number, unless it is `Forget`.
    Name { ask: u64, command: NameCommand },
}

/// What a program can ask of its client machine about shared names.
#[derive(Clone, PartialEq, Debug)]
pub enum NameCommand {
    /// Give a datum of the client's a shared name: a copy of it goes to a server, where it stays whatever becomes of the client.
    Put {
        name: String,
        datum: DatumId,
        meta: Meta,
        /// A name that exists gets a new version.
        replaces: bool,
        /// So many servers are to keep it.
        replicas: u16,
        /// They are to keep it also when they end.
        is_durable: bool,
        /// How it gets to servers that read it.
        method: Method,
        /// Which call puts it, if a function does.
        made_by: Option<Maker>,
        /// Names for the task that takes it there, and for its group.
        task: TaskId,
        group: GroupId,
    },
    /// The current version of a name; with `waits`, as soon as there is one. The client reads it until it is released as often as it
    /// was found.
    Find { name: String, waits: bool },
    /// The current version of a name as soon as there is one, within that time; if it `brings` the datum, it comes here at once, as by
    /// `Get`.
    Await { name: String, limit_ns: Option<u64>, brings: bool },
    /// The program waits for a name no longer, or wants a datum not to be put. A put may be beyond that.
    Forget,
    /// Give up a name: its datum goes when nobody reads it any more.
    Delete { name: String },
    /// The names that begin so, and come after `after`.
    List { prefix: String, after: String },
    /// Where versions of a name are, and what servers after `after` without a copy would do to get one.
    Explain { name: String, after: Option<NodeId> },
}

/// What a machine tells the program, the log and the trace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// The client has the agent's directory (again).
    Directory {
        /// The grid as known.
        grid: Arc<GridView>,
        /// Functions offered.
        functions: Arc<Vec<Signature>>,
    },
    /// What a server does.
    Status { server: NodeId, status: ServerStatus },
    /// What functions have printed at a server.
    Output { server: NodeId, output: Output },
    /// The agent is gone, or never answered.
    AgentLost {
        /// Where it was.
        address: String,
        /// How it was noticed.
        why: String,
    },
    /// A server that a client without an agent was given answers.
    Reached { address: String, server: NodeId },
    /// A server that a client without an agent was given cannot be used, for now.
    NotReached { address: String, why: String },
    /// What the agent knows of links; nothing, if there is no agent.
    Links {
        /// A line for each ordered pair.
        links: Vec<LinkReport>,
    },
    /// The directory has what that server had learned when it was asked to tell.
    ModelsKnown { server: NodeId },
    /// A server has learned about one of its functions.
    Learned {
        function: String,
        /// What it knows now.
        model: FunctionModel,
    },
    /// A group was mapped (comes before its first task starts), or what is left of it was mapped again.
    GroupPlanned {
        at: Time,
        group: GroupId,
        plan: Arc<Plan>,
        /// Tasks of the group that it covers, in the plan's order.
        tasks: Vec<TaskId>,
        /// Data of the plan's outline.
        data: Vec<DatumId>,
        /// Names of those that are shared, by their place there.
        names: BTreeMap<u32, String>,
        /// Nanoseconds from the request for the plan to its arrival.
        map_ns: u64,
        /// What it was made of, if the group was only to be planned.
        seen: Option<Arc<Seen>>,
    },
    /// What the plan of a described group rests on has changed: what has not come of it may be mapped again.
    PlanStale { group: GroupId, why: String },
    /// A group that was only to be planned cannot be mapped.
    GroupNotMapped { group: GroupId, error: TaskError },
    /// A task ended (for good: with a result, or without hope of one). A plain call's results are in the client's store
    /// by then.
    TaskEnded {
        /// When it ended, as far as the client can tell.
        at: Time,
        /// The server; `None` if it never got to one.
        server: Option<NodeId>,
        report: TaskReport,
    },
    /// A call under way calls the program back, which answers by `Command::CalledBack`.
    CallsBack {
        /// Where it runs.
        server: NodeId,
        /// What is called.
        call: CallBack,
    },
    /// A call under way says something.
    Said {
        /// The name of its server.
        server: String,
        function: String,
        said: Said,
    },
    /// A call under way waits for what others make, and takes no slot; or it goes on.
    Paused { task: TaskId, waits: bool },
    /// A datum moved between servers, or came to or left the client.
    Transferred {
        /// When it arrived, as far as the client can tell.
        at: Time,
        /// What was measured.
        report: TransferReport,
    },
    /// All tasks of a group have ended.
    GroupEnded { at: Time, group: GroupId },
    /// A datum that the program asked for is in the client's store.
    DatumHere { datum: DatumId, meta: Meta },
    /// A datum that the program asked for, or still holds, cannot be had.
    DatumLost { datum: DatumId, error: TaskError },
    /// What became of something that the program asked for about shared names.
    Named { ask: u64, answer: Result<CatalogAnswer, NameError> },
    /// A server that ran part of a group is gone; its unfinished tasks and lost results go elsewhere.
    ServerLost {
        server: NodeId,
        name: String,
        /// How it was noticed.
        why: String,
        /// Tasks that have to run (again) elsewhere.
        again: Vec<TaskId>,
    },
    /// A line for the log.
    Log(LogLine),
}

impl From<LogLine> for Effect {
    fn from(line: LogLine) -> Effect {
        Effect::Emit(Event::Log(line))
    }
}
