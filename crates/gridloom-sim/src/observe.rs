//! Observers of a simulation: they are notified of processes and their states, messages, transfers and tasks.
//!
//! **Invariant:** observing changes nothing: inputs, effects and hash are the same as without an observer.
//!
//! **Not reported.** Messages between machines (agent, servers, clients).

use std::fmt;

use gridloom_base::{DatumId, NodeId, TaskId, Time};
use gridloom_core::graph::Task;
use gridloom_flow::LinkIndex;
use gridloom_platform::HostId;
use gridloom_process::{ProcessMessage, ProcessSpec};

use crate::faults::Fault;
use crate::process::ProcessId;

/// Receives the observations of a simulation.
pub trait Observer: Send {
    /// Called for each observation.
    ///
    /// # Errors
    /// A message if the observer cannot continue. The simulation then fails.
    fn observe(&mut self, at: Time, what: &Observation<'_>) -> Result<(), String>;

    /// Called once at the end of the simulation.
    ///
    /// # Errors
    /// A message if the recorded data cannot be saved.
    fn finish(&mut self, at: Time) -> Result<(), String>;
}

/// An observation.
#[derive(Clone, Copy, Debug)]
pub enum Observation<'a> {
    /// A process was created, but has not started.
    Process { process: ProcessId, spec: &'a ProcessSpec, host: HostId },
    /// The state of a process has changed.
    State { process: ProcessId, state: State<'a> },
    /// A process sends a message.
    Sent { name: MessageName, from: ProcessId, to: ProcessId, letter: &'a ProcessMessage },
    /// A message is delivered to its receiver, which may read it later.
    Received { name: MessageName, to: ProcessId, kind: &'a str },
    /// A node of a grid was created.
    Node { node: NodeId, name: &'a str, host: HostId },
    /// A server begins a task.
    TaskBegins { node: NodeId, task: &'a Task },
    /// A server ends or cancels a task.
    TaskEnds { node: NodeId, task: TaskId },
    /// A fault or repair is applied.
    Fault {
        /// Formatted as in a scenario.
        fault: &'a Fault,
    },
    /// A transfer over links begins.
    TransferBegins {
        transfer: u64,
        moved: TransferContents<'a>,
        /// Its size on the links, bytes.
        size_bytes: u64,
        /// The links of its path, in order.
        links: &'a [LinkIndex],
    },
    /// A transfer has arrived, or was lost.
    TransferEnds { transfer: u64 },
    /// A datum has arrived at a node.
    DatumArrived { transfer: u64, to: NodeId, datum: DatumId },
}

/// The state of a process.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum State<'a> {
    /// Its code runs (which takes no virtual time), it has not started, or it has ended.
    Runs,
    Computes {
        /// The name of the measured block, if it is one.
        block: Option<&'a str>,
        /// Amount of computation, floating-point operations.
        flops: f64,
    },
    Sleeps,
    /// It waits for something.
    Waits {
        /// Text of the condition for which it waits.
        what: &'a str,
    },
}

/// The contents of a transfer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TransferContents<'a> {
    /// A message between processes.
    Letter { name: MessageName, kind: &'a str },
    /// A datum between nodes.
    Datum { datum: DatumId, from: NodeId, to: NodeId },
    /// A probe of the network.
    Probe,
}

/// A lane of a connection between processes. Messages of one lane keep their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    Bulk,
    /// Its messages do not wait for those of the bulk lane.
    Urgent,
}

/// Identifies a message of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MessageName {
    pub connection: u32,
    /// The sending end of the connection, 0 or 1.
    pub end: u8,
    /// The lane on which it is sent.
    pub lane: Lane,
    /// Its number among the messages of this end and lane.
    pub number: u64,
}

/// The observer, if there is one.
#[derive(Default)]
pub(crate) struct ObserverSlot {
    observer: Option<Box<dyn Observer>>,
    /// The reason why the observer could not continue.
    failure: Option<String>,
}

impl ObserverSlot {
    pub(crate) fn begin(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.observer.is_some()
    }

    /// Notifies the observer. Without an observer, `what` is not even evaluated.
    pub(crate) fn see<'a>(&mut self, at: Time, what: impl FnOnce() -> Observation<'a>) {
        let Some(observer) = &mut self.observer else { return };
        if let Err(why) = observer.observe(at, &what()) {
            self.observer = None;
            self.failure = Some(why);
        }
    }

    /// Takes the reason why the observer could not continue, if it could not.
    pub(crate) fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    pub(crate) fn finish(&mut self, at: Time) -> Result<(), String> {
        let finished = self.observer.take().map_or(Ok(()), |mut observer| observer.finish(at));
        self.failure.take().map_or(finished, Err)
    }
}

impl fmt::Debug for ObserverSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("is_on", &self.is_on()).field("failure", &self.failure).finish()
    }
}
