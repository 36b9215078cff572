//! What clients and servers are to hear of shared data.

use gridloom_base::{DatumId, NodeId};

/// A client, and its number for something that it asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Question {
    pub client: NodeId,
    pub ask: u64,
}

/// What a server's report of a datum means.
#[derive(Clone, PartialEq, Debug)]
pub enum Stored {
    /// The version is whole. `by` put it, and these have waited for it.
    Whole { by: Question, waiting: Vec<Question> },
    /// One more copy, or others are still to come.
    Copy,
    /// Nobody needs it: the server is to drop it.
    Unknown,
}

/// What servers with copies are to hear.
#[derive(Clone, PartialEq, Debug)]
pub enum News {
    /// Nobody needs the version any more.
    GivenUp { datum: DatumId, holders: Vec<NodeId> },
    /// It is not the current one of its name any more, and still read.
    Former { datum: DatumId, holders: Vec<NodeId> },
    /// These are to keep it, too.
    Keep { datum: DatumId, at: Vec<NodeId> },
    /// Puts of the call that has put it end with it; or they are to be tried again, as it will not be put.
    Joined { name: String, place: NodeId, joined: Vec<Question>, is_put: bool },
    /// It is being put, and a server that was to keep it will not.
    Short { datum: DatumId },
}
