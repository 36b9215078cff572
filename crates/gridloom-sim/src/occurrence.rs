//! What will happen in a simulation: occurrences at known times, and the purposes of flows.

use std::sync::Arc;

use gridloom_base::{NodeId, Time};
use gridloom_core::graph::Task;
use gridloom_core::node::{Input, Timer};
use gridloom_flow::ActionId;
use gridloom_platform::HostId;

use crate::faults::Fault;
use crate::network::{LetterFlow, Parcel};
use crate::process::ProcessId;

/// What is due at a time known in advance.
#[derive(Debug)]
pub(crate) enum Occurrence {
    /// An input from the node's own surroundings.
    Deliver {
        node: NodeId,
        input: Box<Input>,
    },
    /// A dial has come back.
    Dialled {
        dialler: NodeId,
        address: String,
        began: Time,
    },
    /// A control frame is there.
    Arrive {
        from: NodeId,
        to: NodeId,
        connection: u64,
        parcel: Box<Parcel>,
    },
    /// The peer's end of a connection is gone.
    Lost {
        node: NodeId,
        peer: NodeId,
        connection: u64,
        why: String,
    },
    /// A timer, unless it was moved or cancelled.
    Timer {
        node: NodeId,
        timer: Timer,
    },
    /// An action of the engine ended while the engine caught up.
    Completed(ActionId),
    /// A process has waited long enough.
    ProcessDue {
        process: ProcessId,
        turn: u64,
    },
    /// A process's dial has come back.
    ProcessDialled {
        process: ProcessId,
        host: HostId,
        name: String,
        port: u16,
    },
    /// An end of a connection between processes hears that the other is closed.
    ProcessClosed {
        connection: u32,
        end: u8,
    },
    ProcessKilled {
        process: ProcessId,
    },
    /// A mapping has taken its time.
    Mapped {
        node: NodeId,
        number: u64,
    },
    /// Something breaks or is mended.
    Strike(Fault),
    /// The time that the run was given is over.
    Until,
}

impl Occurrence {
    /// Whether it may let a process go on.
    pub(crate) fn is_of_process(&self) -> bool {
        match self {
            Occurrence::ProcessDue { .. }
            | Occurrence::ProcessDialled { .. }
            | Occurrence::ProcessClosed { .. }
            | Occurrence::ProcessKilled { .. } => true,
            Occurrence::Strike(fault) => fault.may_strike_process(),
            Occurrence::Deliver { .. }
            | Occurrence::Dialled { .. }
            | Occurrence::Arrive { .. }
            | Occurrence::Lost { .. }
            | Occurrence::Timer { .. }
            | Occurrence::Completed(_)
            | Occurrence::Mapped { .. }
            | Occurrence::Until => false,
        }
    }
}

/// A task that has begun on a server.
#[derive(Clone, Debug)]
pub(crate) struct StartedTask {
    pub(crate) node: NodeId,
    pub(crate) task: Arc<Task>,
}

/// What an action of the engine is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A task's files are written and read, before it computes.
    Files(StartedTask),
    Task(StartedTask),
    /// Bulk cargo of a connection between nodes, which the connection keeps.
    Bulk {
        pair: (NodeId, NodeId),
        transfer: u64,
    },
    /// A file goes to a storage, or comes from one.
    Storage(u64),
    Letter(LetterFlow),
    Computation {
        process: ProcessId,
        turn: u64,
    },
}

impl Purpose {
    pub(crate) fn is_of_process(&self) -> bool {
        matches!(self, Purpose::Letter(_) | Purpose::Computation { .. })
    }
}
