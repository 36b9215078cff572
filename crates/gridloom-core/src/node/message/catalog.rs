//! Shared names: clients put, find and delete them at the catalog, which runs in the agent; servers tell what they hold.
//!
//! ```text
//! client                 catalog (agent)          server
//!   | Put "mesh" ---------->|                      |
//!   |                       |-- Expect (d5, c) --->|
//!   |<---- Place (d5, s) ---|                      |
//!   | RunTasks (publish d17 as d5) --------------->|
//!   |<------------------------------- Fetch (d17) -|
//!   | data d17 ====================================>|
//!   |                       |<------- Stored (d5) -|
//!   |<------- Answer (put) -|                      |
//! another client            |                      |
//!   | Find "mesh" --------->|                      |
//!   |<- Answer (d5, at s) --|                      |
//!   | Fetch (d5) --------------------------------->|
//! ```
//! To a server the catalog is the owner of shared data, as a client is of its own: it hears of copies, and names other sources.

use serde::{Deserialize, Serialize};

use super::Message;
use crate::data::{Verdict, VersionReport};
use gridloom_base::{DatumId, Maker, Meta, Method, NameError, Named, NodeId};
use gridloom_perf::LinkEstimate;

/// What concerns shared names.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CatalogMessage {
    FromClient(ClientToCatalog),
    FromServer(ServerToCatalog),
    ToClient(CatalogToClient),
    ToServer(CatalogToServer),
}

/// From a client. It numbers what it asks for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ClientToCatalog {
    /// Where shall a datum of that description be put? `Place` follows, and `Answer` once it is there.
    Put {
        ask: u64,
        name: String,
        meta: Meta,
        /// A name that exists gets a new version.
        replaces: bool,
        /// So many servers are to keep it.
        replicas: u16,
        /// They are to keep it also when they end.
        is_durable: bool,
        /// How it gets to servers.
        method: Method,
        /// Which call puts it, if a function does.
        made_by: Option<Maker>,
        /// Servers with a copy of it.
        at: Vec<NodeId>,
        /// What it has been put as before, perhaps in vain.
        before: Option<DatumId>,
        /// Servers that could not take it, and why not.
        refused: Vec<(NodeId, String)>,
    },
    /// It has taken that to its server, and has no answer to its `Put`.
    AskPut { ask: u64, datum: DatumId },
    /// What was to be put there will not come.
    Withdraw { datum: DatumId },
    /// The current version of a name; with `waits`, as soon as there is one.
    Find { ask: u64, name: String, waits: bool },
    /// It waits for that no longer.
    Forget { ask: u64, name: String },
    /// Where are copies of a datum? `Located` follows.
    Locate { datum: DatumId },
    /// To a new agent: it has found these so often, and reads them still.
    Reads { data: Vec<(DatumId, u64)> },
    /// It reads no longer what it has found so often.
    Release { datum: DatumId, times: u64 },
    /// Gives up a name.
    Delete { ask: u64, name: String },
    /// The names that begin so, and come after `after`.
    List { ask: u64, prefix: String, after: String },
    /// Where versions of a name are, and what servers after `after` without a copy would do to get one.
    Explain { ask: u64, name: String, after: Option<NodeId> },
}

impl ClientToCatalog {
    /// The number of the question, if it is one.
    pub fn ask(&self) -> Option<u64> {
        match self {
            ClientToCatalog::Put { ask, .. }
            | ClientToCatalog::AskPut { ask, .. }
            | ClientToCatalog::Find { ask, .. }
            | ClientToCatalog::Forget { ask, .. }
            | ClientToCatalog::Delete { ask, .. }
            | ClientToCatalog::List { ask, .. }
            | ClientToCatalog::Explain { ask, .. } => Some(*ask),
            ClientToCatalog::Withdraw { .. }
            | ClientToCatalog::Locate { .. }
            | ClientToCatalog::Reads { .. }
            | ClientToCatalog::Release { .. } => None,
        }
    }
}

/// From the catalog to a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CatalogToClient {
    /// What it wants to put is to go there, as that datum.
    Place { ask: u64, named: Named, server: NodeId, address: String },
    /// Copies of a datum are there: none, if all are lost or it was given up.
    Located { datum: DatumId, holders: Vec<(NodeId, String)>, why: String },
    /// What it has put goes on to other servers, which are to keep it, too.
    BeingKept { ask: u64 },
    /// What became of what it asked for.
    Answer { ask: u64, answer: Result<CatalogAnswer, NameError> },
}

/// What a client asked the catalog for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CatalogAnswer {
    /// It is there, and everybody finds it.
    Put,
    Found {
        named: Named,
        /// Servers with a copy, and where to dial them.
        holders: Vec<(NodeId, String)>,
    },
    Deleted,
    Listed {
        /// At most [`gridloom_base::limits::SHARED_DATA_TOLD_MAX`], in order of name.
        names: Vec<Listed>,
        has_more: bool,
    },
    Explained {
        /// The last one first.
        versions: Vec<VersionReport>,
        /// Servers without a copy of the current version, in order of node; some of them.
        copies: Vec<CopyReport>,
        has_more: bool,
    },
}

/// How a server gets a copy, or would get it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CopyReport {
    pub server: NodeId,
    /// It is on its way there.
    pub is_coming: bool,
    /// From how many servers it may get it.
    pub count: u32,
    /// The best of them, the one that it gets it from first. If it is on its way, those that it comes from: one of each slice.
    pub candidates: Vec<CandidateReport>,
}

/// A server from which another may get a copy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CandidateReport {
    pub from: NodeId,
    /// Sends from a server that has it.
    pub hops: u16,
    /// In how many seconds the copy would be whole.
    pub seconds: f64,
    pub link: LinkEstimate,
    pub basis: Basis,
    /// To how many others it is being sent from there.
    pub sends: u32,
    pub verdict: Verdict,
}

/// What the estimate of a link rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Basis {
    /// Both ends are on one host.
    SameHost,
    Measured,
    /// Measured links of other hosts.
    Others,
    /// Nothing: a local network is assumed.
    Unknown,
    /// One end could not reach the other.
    Broken,
}

/// A name in a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Listed {
    pub named: Named,
    /// Servers with a copy.
    pub holders: Vec<NodeId>,
}

/// A version that was put at a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Held {
    pub named: Named,
    /// Requests for the name found it, as far as the server was told.
    pub is_current: bool,
}

/// From a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ServerToCatalog {
    /// That client has put it here.
    Stored { datum: DatumId, client: NodeId },
    /// It registers, and these were put there.
    Holds { data: Vec<Held> },
    /// It registers, and has copies of these.
    HasCopies { data: Vec<DatumId> },
}

/// From the catalog to a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CatalogToServer {
    /// That client is to put that there. No other may, nor anything else.
    Expect { named: Named, client: NodeId },
    /// That datum is not what its name stands for any more, and is still read.
    Former { datum: DatumId },
    /// That datum is lost, or was given up: tasks that read it fail.
    Gone { datum: DatumId, why: String },
}

impl From<ClientToCatalog> for Message {
    fn from(message: ClientToCatalog) -> Message {
        Message::Catalog(CatalogMessage::FromClient(message))
    }
}

impl From<ServerToCatalog> for Message {
    fn from(message: ServerToCatalog) -> Message {
        Message::Catalog(CatalogMessage::FromServer(message))
    }
}

impl From<CatalogToClient> for Message {
    fn from(message: CatalogToClient) -> Message {
        Message::Catalog(CatalogMessage::ToClient(message))
    }
}

impl From<CatalogToServer> for Message {
    fn from(message: CatalogToServer) -> Message {
        Message::Catalog(CatalogMessage::ToServer(message))
    }
}
