//! The directory: the servers of the grid, the functions that they offer, and their models.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    LinkUse, Message, OutputPage, OutputQuery, ProgramWaits, ServerRecords, ServerStatus, UsagePage, UsageQuery,
};
use gridloom_base::{NodeId, Rules, StorageId, TaskId};
use gridloom_idl::Signature;
use gridloom_perf::{FunctionModel, LinkReport, ServerView, host_of};

/// Messages about servers and their functions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DirectoryMessage {
    ToAgent(DirectoryToAgent),
    ToServer(DirectoryToServer),
    ToClient(DirectoryToClient),
}

/// Messages from servers and clients to the agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DirectoryToAgent {
    /// A server offers its functions.
    Register(Registration),
    /// A server's measured speed of one slot, in floating-point operations per second.
    Speed { flops: f64 },
    /// A server's run time model of one of its functions has changed.
    Model { function: String, model: FunctionModel },
    /// A server offers a function but cannot run it now: a module, a library or a model server is missing there.
    CannotRun { function: String, why: String },
    /// The factor by which a server's recent calls took longer than its models predict.
    Pace { pace: f64 },
    /// A server has reported everything that it has learned, as this client requested.
    ModelsReported { client: NodeId },
    /// A client requests the servers and the functions, and then updates of both.
    Subscribe,
    /// A client requests the link measurements.
    GetLinks,
    /// A server is draining. It accepts no more calls that other servers can run, and exits when its remaining work is
    /// done.
    Draining,
    /// A server that reported [`DirectoryToAgent::CannotRun`] offers the function again.
    CanRun { function: String },
    /// A client's program has had no event for `waited_ns`, and waits for what the texts describe. With no texts, it has
    /// stopped waiting.
    Waits { waited_ns: u64, waits: Vec<String> },
    /// A client requests what the programs of all clients wait for. The agent replies with `WaitsKnown`.
    GetWaits,
    /// A server's report for the records of users. Totals are cumulative, so a lost or repeated report does no harm.
    Records(ServerRecords),
    /// A client requests the usage of users. The agent replies with `UsageKnown`.
    GetUsage(UsageQuery),
}

/// Messages to a server from the agent or from a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DirectoryToServer {
    /// The registration was accepted. The server measures its links to `peers`, which are other servers with their addresses.
    Registered {
        peers: Vec<(NodeId, String)>,
        /// Functions whose code differs from that of other servers, as text.
        differences: Vec<String>,
        /// The rules of the grid. The server accepts them only from its agent.
        #[serde(default)]
        rules: Box<Rules>,
    },
    /// The registration was refused.
    RegistrationRefused {
        why: String,
        /// The reason may be temporary: another server has the name and may be gone, although the agent has not noticed yet.
        is_temporary: bool,
    },
    /// Requests a measurement of the link to that server, if the link is idle. The server replies with `LinkMeasured`
    /// or not at all.
    MeasureLink { to: NodeId, address: String },
    /// A client that maps by itself subscribes to the reports that the agent receives.
    Subscribe,
    /// A client requests that the server report everything that it has learned to its agent and its subscribers.
    /// `ModelsReported` follows there.
    ReportModels,
    /// A client requests the server's status. The server replies with `Status`.
    GetStatus,
    /// A client requests the lines that functions have printed at the server. The server replies with `Output`.
    GetOutput(OutputQuery),
    /// An operator of the grid ends a task. It must belong to the same user, unless the operator is an administrator or the
    /// rules of the grid permit more.
    /// The server replies with `EndTaskAnswered`, and notifies the task's client that the task was cancelled.
    EndTask { task: TaskId },
    /// The agent has read other rules of the grid. They replace all that it has sent before.
    RulesChanged { rules: Box<Rules> },
    /// The users who have used up links of the rules on a day, counted from 1970-01-01. They replace the users that the
    /// agent has sent before.
    LinksUsedUp { day: u32, used_up: Vec<LinkUse> },
}

/// Messages from the agent to a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DirectoryToClient {
    /// The servers and functions: all of them in the first message, changes only in later ones.
    Update(DirectoryUpdate),
    /// The directory that was sent before contains everything that the server has learned.
    ModelsKnown { server: NodeId },
    /// The answer to `GetLinks`: an entry for each ordered pair.
    LinksKnown { links: Vec<LinkReport> },
    /// A server's answer to `GetStatus`.
    Status { status: ServerStatus },
    /// A server's answer to `EndTask`: whether it ends the task, or why it does not.
    EndTaskAnswered { task: TaskId, answer: Result<(), String> },
    /// A server's answer to `GetOutput`.
    Output(OutputPage),
    /// The answer to `GetWaits`: the longest waits first.
    WaitsKnown { programs: Vec<ProgramWaits> },
    /// The answer to `GetUsage`, or why there is none.
    UsageKnown { query: UsageQuery, answer: Result<UsagePage, String> },
}

/// A change of the servers and functions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DirectoryUpdate {
    /// `servers` is the complete list and replaces everything that was sent before.
    pub is_full: bool,
    /// New servers and changed servers.
    pub servers: Vec<ServerView>,
    pub removed: Vec<NodeId>,
    /// Signatures of all functions offered, ordered by name. `None` if unchanged.
    pub functions: Option<Vec<Signature>>,
}

impl DirectoryUpdate {
    pub fn is_empty(&self) -> bool {
        !self.is_full && self.servers.is_empty() && self.removed.is_empty() && self.functions.is_none()
    }

    /// Applies the change to a list of servers that is sorted by name. Returns the functions if they have changed.
    pub fn apply(self, servers: &mut Vec<ServerView>) -> Option<Vec<Signature>> {
        let replaced: BTreeSet<NodeId> = self.servers.iter().map(|server| server.node).chain(self.removed).collect();
        servers.retain(|server| !self.is_full && !replaced.contains(&server.node));
        servers.extend(self.servers);
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        self.functions
    }
}

/// A server's registration with the agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Registration {
    pub name: String,
    /// Where other nodes can dial it.
    pub address: String,
    /// Number of tasks that it runs at a time.
    pub slots: u32,
    /// A stateless server: it communicates with clients only, and keeps nothing between calls.
    pub is_stateless: bool,
    /// Size limit of its store, bytes.
    pub memory_bytes: u64,
    /// It keeps shared data even after it exits.
    pub is_durable: bool,
    /// The storage that it shares with other servers.
    pub storage: Option<StorageId>,
    /// Factor by which its calls are deliberately slowed down: 1 unless the server emulates a slower machine.
    pub slowdown: f64,
    pub functions: Vec<Signature>,
    /// Fingerprints of the code of some functions, by name. Servers should run the same code.
    pub code_hashes: BTreeMap<String, u64>,
    /// Its Gridloom release; empty if unknown.
    #[serde(default)]
    pub release: String,
    /// True if the server was registered before; since then, the agent has restarted or the connection was lost.
    #[serde(default)]
    pub was_registered: bool,
}

impl Registration {
    /// Returns a label of the processors that the server emulates. Measurements of one server apply to all servers
    /// with the same label.
    pub fn processors(&self) -> String {
        let host = host_of(&self.address);
        if self.slowdown == 1.0 { host.to_string() } else { format!("{host}, slowed down {} times", self.slowdown) }
    }
}

impl From<DirectoryToAgent> for Message {
    fn from(message: DirectoryToAgent) -> Message {
        Message::Directory(DirectoryMessage::ToAgent(message))
    }
}

impl From<DirectoryToServer> for Message {
    fn from(message: DirectoryToServer) -> Message {
        Message::Directory(DirectoryMessage::ToServer(message))
    }
}

impl From<DirectoryToClient> for Message {
    fn from(message: DirectoryToClient) -> Message {
        Message::Directory(DirectoryMessage::ToClient(message))
    }
}
