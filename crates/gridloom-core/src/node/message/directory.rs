//! Which servers there are, what they offer, and what is known of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Message, Output, OutputQuery, ServerStatus};
use gridloom_base::{NodeId, StorageId, TaskId};
use gridloom_idl::Signature;
use gridloom_perf::{FunctionModel, LinkReport, ServerView, host_of};

/// What concerns servers and their functions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DirectoryMessage {
    ToAgent(DirectoryToAgent),
    ToServer(DirectoryToServer),
    ToClient(DirectoryToClient),
}

/// From servers and clients to the agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DirectoryToAgent {
    /// A server offers its functions.
    Register(Registration),
    /// A server's measured speed of one slot, floating-point operations per second.
    Speed { flops: f64 },
    /// A server's model of the time of one of its functions has changed.
    Model { function: String, model: FunctionModel },
    /// A server offers a function and cannot run it: a module or a library is missing there.
    CannotRun { function: String, why: String },
    /// A server's calls take so many times as long as its models say, of late.
    Pace { pace: f64 },
    /// A server has told all that it has learned, as that client asked.
    ModelsTold { client: NodeId },
    /// A client asks for the grid and the functions, and to be told of changes.
    Subscribe,
    /// A client asks what is known of links.
    AskLinks,
    /// A server takes no more calls that others can take, and ends when it has done what it has.
    Drains,
}

/// To a server, from the agent or from a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DirectoryToServer {
    /// The registration was taken. The links to these other servers (with their addresses) are to be measured.
    Registered {
        peers: Vec<(NodeId, String)>,
        /// Functions with other code than those of other servers, in words.
        differences: Vec<String>,
    },
    /// The registration was refused.
    RegistrationRefused {
        why: String,
        /// The reason may pass: another server has the name, and may be gone although the agent has not noticed yet.
        may_pass: bool,
    },
    /// Measure the link to that server, if nothing moves over it: `LinkMeasured` follows, or nothing.
    MeasureLink { to: NodeId, address: String },
    /// A client that maps by itself asks to be told what the agent is told.
    Subscribe,
    /// A client asks the server to tell all that it has learned to its agent and subscribers: `ModelsTold` follows there.
    TellModels,
    /// A client asks what the server does: `Status` follows.
    TellStatus,
    /// A client asks what functions have printed at the server: `Output` follows.
    TellOutput(OutputQuery),
    /// Somebody who looks after the grid ends a task, whoever's it is: its client hears that it was cancelled.
    EndTask { task: TaskId },
}

/// From the agent to a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum DirectoryToClient {
    /// The servers and functions, whole at first, then what has changed.
    News(DirectoryNews),
    /// What that server has learned stands in the directory, which was sent before.
    ModelsKnown { server: NodeId },
    /// The answer to `AskLinks`: a line for each ordered pair.
    LinksKnown { links: Vec<LinkReport> },
    /// The answer of a server to `TellStatus`.
    Status { status: ServerStatus },
    /// The answer of a server to `TellOutput`.
    Output(Output),
}

/// What has changed among servers and functions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DirectoryNews {
    /// These are all servers: what was told before holds no more.
    pub is_whole: bool,
    /// New ones, and those of which something has changed.
    pub servers: Vec<ServerView>,
    pub gone: Vec<NodeId>,
    /// Signatures of all functions offered, in order of name; `None` if unchanged.
    pub functions: Option<Vec<Signature>>,
}

impl DirectoryNews {
    /// What makes the one list of servers into the other.
    pub fn between(before: &[ServerView], after: &[ServerView], functions: Option<Vec<Signature>>) -> DirectoryNews {
        let known: BTreeMap<NodeId, &ServerView> = before.iter().map(|server| (server.node, server)).collect();
        let there: BTreeSet<NodeId> = after.iter().map(|server| server.node).collect();
        let servers = after.iter().filter(|server| known.get(&server.node) != Some(server)).cloned().collect();
        let gone = known.into_keys().filter(|node| !there.contains(node)).collect();
        DirectoryNews { is_whole: false, servers, gone, functions }
    }

    pub fn is_empty(&self) -> bool {
        !self.is_whole && self.servers.is_empty() && self.gone.is_empty() && self.functions.is_none()
    }

    /// Brings servers, which are in order of name, up to date; gives the functions if they have changed.
    pub fn apply(self, servers: &mut Vec<ServerView>) -> Option<Vec<Signature>> {
        let replaced: BTreeSet<NodeId> = self.servers.iter().map(|server| server.node).chain(self.gone).collect();
        servers.retain(|server| !self.is_whole && !replaced.contains(&server.node));
        servers.extend(self.servers);
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        self.functions
    }
}

/// What a server tells the agent when it comes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Registration {
    pub name: String,
    /// Where other nodes can dial it.
    pub address: String,
    /// Tasks it runs at a time.
    pub slots: u32,
    /// It talks to clients only, and keeps nothing between calls.
    pub plain: bool,
    /// Bound on its store.
    pub memory_bytes: u64,
    /// It keeps shared data also when it ends.
    pub is_durable: bool,
    /// It shares that with other servers.
    pub storage: Option<StorageId>,
    /// How many times as long as on its processors calls take on purpose: 1 unless it stands for a slower machine.
    pub slowdown: f64,
    pub functions: Vec<Signature>,
    /// Fingerprints of the code behind some of them, by name: two servers should run the same.
    pub codes: BTreeMap<String, u64>,
    /// The release of Gridloom that it runs; empty if it does not say.
    #[serde(default)]
    pub release: String,
}

impl Registration {
    /// The processors that it stands for: what one server learns of them holds for all that stand for the same.
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
