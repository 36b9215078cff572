//! Updates about shared data for clients and servers.

use gridloom_base::{DatumId, NodeId};

/// A client's request, by the client's number for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RequestId {
    pub client: NodeId,
    pub number: u64,
}

/// The meaning of a server's report that it stores a datum.
#[derive(Clone, PartialEq, Debug)]
pub enum Stored {
    /// The version is complete. `by` put it, and `waiting` waited for it.
    Whole { by: RequestId, waiting: Vec<RequestId> },
    /// One more copy, or other replicas are still missing.
    Copy,
    /// Nobody needs the datum: the server must drop it.
    Unknown,
}

/// An update to send.
#[derive(Clone, PartialEq, Debug)]
pub enum CatalogUpdate {
    /// Nobody needs the version any more.
    Dropped { datum: DatumId, holders: Vec<NodeId> },
    /// The version is no longer the current one of its name, but is still read.
    Superseded { datum: DatumId, holders: Vec<NodeId> },
    /// A durable version of the name was dropped or superseded: its servers report when it is off their disks.
    Sync { name: String, holders: Vec<NodeId> },
    /// The version is shared with other users than before.
    Readers { datum: DatumId, at: Vec<NodeId> },
    /// These servers are to keep it too.
    Keep { datum: DatumId, at: Vec<NodeId> },
    /// The joined puts of the same call end with this put if `is_put`. Otherwise it failed, and they must be retried.
    Joined { name: String, place: NodeId, joined: Vec<RequestId>, is_put: bool },
    /// The version is being put, and a server assigned to it will not keep it.
    KeeperMissing { datum: DatumId },
}
