//! The timers of the machines, by role. To the world they are opaque keys: it fires a timer that was set.

use serde::{Deserialize, Serialize};

/// A timer. Setting it again replaces its time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Timer {
    Agent(AgentTimer),
    Server(ServerTimer),
    Client(ClientTimer),
    /// A client with its own agent dials servers that are not connected.
    Dial,
    /// For machines without a role in a grid, as in tests of a world.
    Numbered(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum AgentTimer {
    Heartbeat,
    /// Requests for plans stop waiting for links that are being measured.
    MeasureTimeout,
    /// Changes of the directory are sent to clients.
    DirectoryPush,
    /// All transfers that overlapped are reported by now, so link models are updated from them.
    TransfersSettled,
    /// Servers that want the same datum at about the same time have all requested it by now.
    Batches,
    /// A turn to measure a link has exceeded its time.
    Turns,
    /// A mapping has exceeded its time.
    Mapping,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ServerTimer {
    Heartbeat,
    /// Changed models are reported.
    Models,
    /// Measured transfers are reported.
    Transfers,
    /// Clients are notified of other clients' tasks that keep their own tasks waiting.
    OthersRunning,
    /// Clients are notified of their started tasks that wait.
    Pauses,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ClientTimer {
    Heartbeat,
    /// The earliest deadline of a plain call or of a request about a name.
    Deadline,
    /// Groups stop waiting for links that are being measured.
    Links,
    /// All transfers that overlapped are known by now, so link models are updated from them.
    TransfersSettled,
    /// A task may have run longer than expected: the client checks the tasks queued behind it again.
    Steal,
}

impl Timer {
    /// True if this is a machine's heartbeat.
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
