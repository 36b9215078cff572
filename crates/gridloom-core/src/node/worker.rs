//! A worker's reports about the task that it runs, and a function's requests to its session in a simulation.
//!
//! For real, a function that opens a session becomes a client of the grid, with connections of its own. In a simulation the
//! client is a simulated node on the host of the function's server. The function sends it requests, and waits for the
//! answers:
//!
//! ```text
//!  function                        simulation
//!     |-- Open ----------------------->|  starts the client
//!     |<-- Opened ---------------------|
//!     |-- Put, Commands -------------->|  the client's store and machine
//!     |-- Wait ----------------------->|  virtual time passes until the client has events
//!     |<-- Events ---------------------|
//! ```

use gridloom_base::{DatumId, Meta, NodeId, TaskError, Time};
use serde::{Deserialize, Serialize};

use super::{Command, Event, NameCommand};
use crate::call::Callback;

/// The event that ends or pauses a task on its worker. `R` is the world's representation of the results.
///
/// **The contract of workers**, which worker processes (`gridloom_net::jobs::Jobs`, and `BlockingJobs` for a single
/// caller that waits) and task bodies in simulation (`gridloom_sim::Bodies`) fulfil:
/// 1. *Start.* All inputs of the task are in the store. The task runs at most once, unless its worker dies before it
///    begins; then another worker starts it.
/// 2. *Callback.* While a task waits for the answer to a callback, other tasks may run. The task continues when it is
///    given the program's answer. An answer to a task that has ended has no effect.
/// 3. *End.* A started task ends exactly once, by [`WorkerEvent::Ended`]. Its results are stored before that is reported. A
///    task that is stopped ends as cancelled.
/// 4. *Death.* A worker may die at any time without affecting others. The task that it was running fails as crashed,
///    the tasks queued behind it are moved to other workers, and an object that lived in it is lost.
#[derive(Clone, PartialEq, Debug)]
pub enum WorkerEvent<R> {
    Ended(Result<R, TaskError>),
    /// The task waits for its program's answer to a callback.
    Callback(Callback),
    /// In a simulation: the task waits for the answer to a request of its session, which may have the bytes of a value.
    Session(Box<SessionRequest>, Vec<u8>),
}

/// A request of a function to the client of its session.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SessionRequest {
    /// The client; `None` if it is to be started.
    pub client: Option<NodeId>,
    /// Values to remove from the client's store first.
    pub removed: Vec<DatumId>,
    pub action: SessionAction,
}

/// The action that a function requests.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum SessionAction {
    Open,
    /// Put a value into the client's store. Its bytes are sent with the request.
    Put {
        datum: DatumId,
        meta: Meta,
    },
    /// Return a value of the client's store.
    Value {
        datum: DatumId,
    },
    Commands(Vec<Command>),
    /// Wait until the client has events, for at most this time.
    Wait {
        limit_ns: Option<u64>,
    },
    /// End the client.
    Close,
}

impl SessionAction {
    /// True if the action publishes results: it puts or deletes shared data.
    pub fn shows_results(&self) -> bool {
        let shows = |command: &Command| {
            matches!(command, Command::Name { command: NameCommand::Put { .. } | NameCommand::Delete { .. }, .. })
        };
        matches!(self, SessionAction::Commands(commands) if commands.iter().any(shows))
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SessionAnswer {
    pub now: Time,
    pub result: SessionResult,
}

/// The result of a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum SessionResult {
    Done,
    Opened {
        client: NodeId,
    },
    /// The description of a value, whose bytes are sent with the answer; `None` if the client does not have it.
    Value(Option<Meta>),
    /// The client's new events; none if the time limit was reached.
    Events(Vec<Event>),
    Ended {
        why: String,
    },
}
