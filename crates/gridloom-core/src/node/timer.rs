//! The timers of the machines, by role. The world knows them only by name: it fires the one that was set.

use serde::{Deserialize, Serialize};

/// A timer. Setting it again moves it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Timer {
    Agent(AgentTimer),
    Server(ServerTimer),
    Client(ClientTimer),
    /// A client with an agent of its own dials servers that are not connected.
    Dial,
    /// Of machines that have no role in a grid, as in tests of a world.
    Numbered(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum AgentTimer {
    Heartbeat,
    /// Requests for plans no longer wait for links that are being measured.
    Measured,
    /// Changes of the directory are told to clients.
    Directory,
    /// Transfers that moved at the same time are all reported: links are learned from them.
    Settled,
    /// Servers that want the same datum at about the same time have asked for it.
    Batches,
    /// A turn to measure a link has taken long.
    Turns,
    /// A mapping has taken long.
    Mapping,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ServerTimer {
    Heartbeat,
    /// Models that have changed are reported.
    Models,
    /// Transfers that were seen are reported.
    Transfers,
    /// Clients hear of tasks of others that keep theirs waiting.
    Waits,
    /// Clients hear of tasks of theirs that have begun and wait.
    Pauses,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ClientTimer {
    Heartbeat,
    /// The earliest deadline of a plain call, or of a question about a name.
    Deadline,
    /// Groups no longer wait for links that are being measured.
    Links,
    /// Transfers that moved at the same time are all known: links are learned from them.
    Settled,
    /// Something may have run longer than was expected: what waits behind it is looked at again.
    Steal,
}

impl Timer {
    /// Whether this is a machine's heartbeat.
    pub fn is_heartbeat(self) -> bool {
        use Timer::{Agent, Client, Server};
        matches!(self, Agent(AgentTimer::Heartbeat) | Server(ServerTimer::Heartbeat) | Client(ClientTimer::Heartbeat))
    }
}

impl From<AgentTimer> for Timer {
    fn from(timer: AgentTimer) -> Timer {
        Timer::Agent(timer)
    }
}

impl From<ServerTimer> for Timer {
    fn from(timer: ServerTimer) -> Timer {
        Timer::Server(timer)
    }
}

impl From<ClientTimer> for Timer {
    fn from(timer: ClientTimer) -> Timer {
        Timer::Client(timer)
    }
}
