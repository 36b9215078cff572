//! Future events of a simulation: events at known times, and the purposes of flows.

use std::sync::Arc;

use gridloom_base::{NodeId, Time};
use gridloom_core::graph::Task;
use gridloom_core::node::{Input, Timer};
use gridloom_flow::ActionId;
use gridloom_platform::HostId;

use crate::faults::Fault;
use crate::network::{MessageFlow, Parcel};
use crate::process::ProcessId;

/// An event at a time known in advance.
#[derive(Debug)]
pub(crate) enum ScheduledEvent {
    /// An input from the node's own environment.
    Deliver {
        node: NodeId,
        input: Box<Input>,
    },
    /// The result of a dial is available.
    Dialled {
        dialler: NodeId,
        address: String,
        began: Time,
    },
    /// A control frame arrives.
    Arrive {
        from: NodeId,
        to: NodeId,
        connection: u64,
        parcel: Box<Parcel>,
    },
    /// The peer has closed its end of a connection.
    Lost {
        node: NodeId,
        peer: NodeId,
        connection: u64,
        why: String,
    },
    /// A timer fires, unless it was moved or cancelled.
    Timer {
        node: NodeId,
        timer: Timer,
    },
    /// An action of the engine ended while the engine caught up.
    Completed(ActionId),
    /// A process's time limit expires.
    ProcessDue {
        process: ProcessId,
        turn: u64,
    },
    /// The result of a process's dial is available.
    ProcessDialled {
        process: ProcessId,
        host: HostId,
        name: String,
        port: u16,
    },
    /// An end of a connection between processes is notified that the other is closed.
    ProcessClosed {
        connection: u32,
        end: u8,
    },
    ProcessKilled {
        process: ProcessId,
    },
    /// The duration of a mapping has passed.
    Mapped {
        node: NodeId,
        number: u64,
    },
    /// A function that waits in its session for the client's events continues, unless it has continued already.
    SessionDue {
        client: NodeId,
        wait: u64,
    },
    /// A fault or repair is applied.
    Strike(Fault),
    /// The time limit of the run is reached.
    TimeLimit,
}

impl ScheduledEvent {
    /// Reports whether the event may resume a process.
    pub(crate) fn may_resume_process(&self) -> bool {
        match self {
            ScheduledEvent::ProcessDue { .. }
            | ScheduledEvent::ProcessDialled { .. }
            | ScheduledEvent::ProcessClosed { .. }
            | ScheduledEvent::ProcessKilled { .. } => true,
            ScheduledEvent::Strike(fault) => fault.may_affect_process(),
            ScheduledEvent::Deliver { .. }
            | ScheduledEvent::Dialled { .. }
            | ScheduledEvent::Arrive { .. }
            | ScheduledEvent::Lost { .. }
            | ScheduledEvent::Timer { .. }
            | ScheduledEvent::Completed(_)
            | ScheduledEvent::Mapped { .. }
            | ScheduledEvent::SessionDue { .. }
            | ScheduledEvent::TimeLimit => false,
        }
    }
}

/// A task that has started on a server.
#[derive(Clone, Debug)]
pub(crate) struct StartedTask {
    pub(crate) node: NodeId,
    pub(crate) task: Arc<Task>,
}

/// The purpose of an action of the engine.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A task's file accesses, before it computes.
    Files(StartedTask),
    /// The exchange of pages for a task's arguments and results that are not in memory, before it computes.
    Paging(StartedTask),
    Task(StartedTask),
    /// Bulk cargo, which is stored in its connection between nodes.
    Bulk {
        pair: (NodeId, NodeId),
        transfer: u64,
    },
    /// A file transfer to or from a storage.
    Storage(u64),
    Letter(MessageFlow),
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
