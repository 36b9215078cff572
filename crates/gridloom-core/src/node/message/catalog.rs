//! Shared names. Clients put, find and delete them at the catalog, which runs in the agent. Servers report which
//! shared data they hold.
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
//! A delete of durable data is answered once they are off the disks, so that they do not return after a crash:
//!
//! ```text
//! client                 catalog (agent)          server
//!   | Delete "mesh" ------->|                      |
//!   |                       |-- Release (d5) ----->|
//!   |                       |-- Sync (8) --------->| removes the record of d5 from its disk
//!   |                       |<-------- Synced (8) -|
//!   |<-- Answer (deleted) --|                      |
//! ```
//! To a server, the catalog is the owner of shared data, as a client is the owner of its own data: it receives reports
//! of copies, and it names other sources.

use serde::{Deserialize, Serialize};

use super::Message;
use crate::data::{Verdict, VersionReport};
use gridloom_base::{DatumId, Meta, Method, NameError, NamedDatum, NodeId, PutOrigin, Readers};
use gridloom_perf::LinkEstimate;

/// Messages about shared names.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CatalogMessage {
    FromClient(ClientToCatalog),
    FromServer(ServerToCatalog),
    ToClient(CatalogToClient),
    ToServer(CatalogToServer),
}

/// Messages from a client to the catalog. The client numbers its requests (`request`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ClientToCatalog {
    /// Asks where to put a datum with this description. The catalog replies with `Place`, and with `Answer` once the
    /// datum is stored there.
    Put {
        request: u64,
        name: String,
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
        /// Servers with a copy of the datum.
        holders: Vec<NodeId>,
        /// The datum's identifier in an earlier attempt, which may have failed.
        earlier_attempt: Option<DatumId>,
        /// Servers that could not take the datum, and the reasons.
        refused: Vec<(NodeId, String)>,
    },
    /// The client has sent the datum to its server, but has received no answer to its `Put`.
    CheckPut { request: u64, datum: DatumId },
    /// The datum that was to be put will not be sent.
    Withdraw { datum: DatumId },
    /// Asks for the current version of a name. With `waits`, the answer is sent as soon as a version exists.
    Find { request: u64, name: String, waits: bool },
    /// The client no longer waits for this request.
    CancelRequest { request: u64, name: String },
    /// Asks where copies of a datum are stored. The catalog replies with `Located`.
    Locate { datum: DatumId },
    /// To an agent that has just started: the data that the client still reads, and how often it has found each.
    Reads { data: Vec<(DatumId, u64)> },
    /// The client no longer reads a datum that it has found this many times.
    Release { datum: DatumId, times: u64 },
    /// Shares a name with these users, and with no others.
    Share { request: u64, name: String, users: Vec<String> },
    /// Deletes a name.
    Delete { request: u64, name: String },
    /// Lists the names that begin with `prefix` and follow `after` in order.
    List { request: u64, prefix: String, after: String },
    /// Asks where the versions of a name are stored, and how servers after `after` that have no copy would get one.
    Explain { request: u64, name: String, after: Option<NodeId> },
}

impl ClientToCatalog {
    /// Returns the number of the request, if the message has one.
    pub fn request(&self) -> Option<u64> {
        match self {
            ClientToCatalog::Put { request, .. }
            | ClientToCatalog::CheckPut { request, .. }
            | ClientToCatalog::Find { request, .. }
            | ClientToCatalog::CancelRequest { request, .. }
            | ClientToCatalog::Share { request, .. }
            | ClientToCatalog::Delete { request, .. }
            | ClientToCatalog::List { request, .. }
            | ClientToCatalog::Explain { request, .. } => Some(*request),
            ClientToCatalog::Withdraw { .. }
            | ClientToCatalog::Locate { .. }
            | ClientToCatalog::Reads { .. }
            | ClientToCatalog::Release { .. } => None,
        }
    }
}

/// Messages from the catalog to a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CatalogToClient {
    /// The server that takes the datum, and the identifier under which it is put.
    Place { request: u64, named: NamedDatum, server: NodeId, address: String },
    /// Holders of a datum. There are none if all copies are lost or the datum was deleted.
    Located { datum: DatumId, holders: Vec<(NodeId, String)>, why: String },
    /// The datum is being sent to further servers that also keep it.
    Replicating { request: u64 },
    /// The result of a request.
    Answer { request: u64, answer: Result<CatalogAnswer, NameError> },
}

/// The result of a successful request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CatalogAnswer {
    /// The datum is stored, and every client finds it.
    Put,
    Found {
        named: NamedDatum,
        /// Servers with a copy, and the addresses to dial.
        holders: Vec<(NodeId, String)>,
    },
    Deleted,
    Shared,
    Listed {
        /// At most [`gridloom_base::limits::SHARED_DATA_PER_MESSAGE`], in order of name.
        names: Vec<NameEntry>,
        has_more: bool,
    },
    Explained {
        /// Newest first.
        versions: Vec<VersionReport>,
        /// Some of the servers without a copy of the current version, ordered by node.
        copies: Vec<CopyReport>,
        has_more: bool,
    },
}

/// How a server gets a copy, or would get it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CopyReport {
    pub server: NodeId,
    /// The copy is being transferred to the server.
    pub is_in_transfer: bool,
    /// Number of servers that could send the copy.
    pub count: u32,
    /// The best candidates; the server tries the first of them first. During a transfer: the sources in use, one for each slice.
    pub candidates: Vec<CandidateReport>,
}

/// A server from which another may get a copy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CandidateReport {
    pub from: NodeId,
    /// Number of sends from a server that has the datum.
    pub hops: u16,
    /// Estimated time until the copy is complete, seconds.
    pub seconds: f64,
    pub link: LinkEstimate,
    pub basis: LinkBasis,
    /// Number of other servers to which this server is sending the datum.
    pub sends: u32,
    pub verdict: Verdict,
}

/// The source of a link estimate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LinkBasis {
    /// Both ends are on one host.
    SameHost,
    Measured,
    /// Derived from measured links between other hosts.
    Others,
    /// No data: a local network is assumed.
    Unknown,
    /// One end could not reach the other.
    Broken,
}

/// An entry of a list of names.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NameEntry {
    pub named: NamedDatum,
    /// The user to whom it belongs.
    pub owner: String,
    /// Servers with a copy.
    pub holders: Vec<NodeId>,
}

/// A version that was put at a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StoredVersion {
    pub named: NamedDatum,
    /// Requests for the name find this version, as far as the server knows.
    pub is_current: bool,
}

/// A durable version whose file a server found damaged.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DamagedVersion {
    pub named: NamedDatum,
    /// The file, its damage, and the remedy.
    pub why: String,
}

/// Messages from a server to the catalog.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ServerToCatalog {
    /// The client has put the datum at this server.
    Stored { datum: DatumId, client: NodeId },
    /// Sent at registration: the versions that were put at this server.
    StoredVersions { data: Vec<StoredVersion> },
    /// Sent at registration: the shared data of which this server has copies.
    HasCopies { data: Vec<DatumId> },
    /// Sent at registration: the durable versions whose files the server found damaged when it started.
    Damaged { data: Vec<DamagedVersion> },
    /// A server that should send these shared data does not respond. The catalog replies with `LeaveSource` if it knows
    /// another source for each of them.
    SourceSilent { from: NodeId, data: Vec<DatumId> },
    /// All that the catalog released or superseded before its `Sync` with this number is removed from the disk.
    Synced { number: u64 },
}

/// Messages from the catalog to a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CatalogToServer {
    /// The client may put this version at the server. No other client may put it, and this client may put nothing else.
    Expect { named: NamedDatum, client: NodeId },
    /// The datum is no longer the current version of its name, but clients still read it.
    Superseded { datum: DatumId },
    /// The owner has changed the users with whom the datum is shared.
    Readers { datum: DatumId, readers: Readers },
    /// The datum is lost or was deleted. Tasks that read it fail.
    Lost { datum: DatumId, why: String },
    /// Disconnect from a server that does not respond: other servers have the data that it should send.
    LeaveSource { from: NodeId },
    /// Reply with `Synced` once the durable data that earlier messages released or superseded are removed from the
    /// disk.
    Sync { number: u64 },
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
