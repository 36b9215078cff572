//! What an observer of a simulation is told, as it happens: processes and their states, letters, transfers, tasks.
//!
//! **Invariant:** watching changes nothing: the same inputs, effects and hash as without.
//!
//! **Not done.** Messages of machines (agent, servers, clients) among one another.

use std::fmt;

use gridloom_base::{DatumId, NodeId, TaskId, Time};
use gridloom_core::graph::Task;
use gridloom_flow::LinkIndex;
use gridloom_platform::HostId;
use gridloom_process::{Letter, ProcessSpec};

use crate::faults::Fault;
use crate::process::ProcessId;

/// Is told what happens.
pub trait Observer: Send {
    /// Something has happened.
    ///
    /// # Errors
    /// In words, if it cannot watch on. The simulation has failed then.
    fn saw(&mut self, at: Time, what: &Seen<'_>) -> Result<(), String>;

    /// Nothing more will happen.
    ///
    /// # Errors
    /// In words, if what was written down cannot be kept.
    fn finish(&mut self, at: Time) -> Result<(), String>;
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// There is a process, which has not started.
    Process { process: ProcessId, spec: &'a ProcessSpec, host: HostId },
    /// A process is in another state.
    State { process: ProcessId, state: State<'a> },
    /// A process sends.
    Sent { name: LetterName, from: ProcessId, to: ProcessId, letter: &'a Letter },
    /// A letter is handed over to its receiver, which may look at it later.
    Received { name: LetterName, to: ProcessId, kind: &'a str },
    /// There is a node of a grid.
    Node { node: NodeId, name: &'a str, host: HostId },
    /// A server begins a task.
    TaskBegins { node: NodeId, task: &'a Task },
    /// A server ends a task, or gives it up.
    TaskEnds { node: NodeId, task: TaskId },
    /// A fault strikes.
    Fault {
        /// As a scenario says it.
        fault: &'a Fault,
    },
    /// Something begins to move over links.
    TransferBegins {
        transfer: u64,
        moved: Moved<'a>,
        /// Its size, as the links see it.
        size_bytes: u64,
        /// The links on its way, in order.
        links: &'a [LinkIndex],
    },
    /// A transfer has arrived, or is lost.
    TransferEnds { transfer: u64 },
    /// A datum has arrived at a node.
    DatumArrived { transfer: u64, to: NodeId, datum: DatumId },
}

/// What a process does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum State<'a> {
    /// Its code runs, which takes no time, or it has not started, or has ended.
    Runs,
    Computes {
        /// The measured block, if it is one.
        block: Option<&'a str>,
        /// How much, floating-point operations.
        flops: f64,
    },
    Sleeps,
    /// It waits for that.
    Waits {
        /// For what, in words.
        what: &'a str,
    },
}

/// What moves over links.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Moved<'a> {
    /// A letter between processes.
    Letter { name: LetterName, kind: &'a str },
    /// A datum between nodes.
    Datum { datum: DatumId, from: NodeId, to: NodeId },
    /// A probe of the network.
    Probe,
}

/// A lane of a connection between processes. Letters of one lane keep their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    Bulk,
    /// Its letters do not wait for those of the other lane.
    Urgent,
}

/// A letter of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LetterName {
    pub connection: u32,
    /// The sending end of it, 0 or 1.
    pub end: u8,
    /// By which lane it goes.
    pub lane: Lane,
    /// Its number among those of this end and lane.
    pub number: u64,
}

/// The observer, if there is one.
#[derive(Default)]
pub(crate) struct Watch {
    observer: Option<Box<dyn Observer>>,
    /// Why it could not watch on.
    failure: Option<String>,
}

impl Watch {
    pub(crate) fn begin(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.observer.is_some()
    }

    /// Without an observer `what` is not even made.
    pub(crate) fn see<'a>(&mut self, at: Time, what: impl FnOnce() -> Seen<'a>) {
        let Some(observer) = &mut self.observer else { return };
        if let Err(why) = observer.saw(at, &what()) {
            self.observer = None;
            self.failure = Some(why);
        }
    }

    /// Takes out why the observer could not watch on, if it could not.
    pub(crate) fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    pub(crate) fn finish(&mut self, at: Time) -> Result<(), String> {
        let finished = self.observer.take().map_or(Ok(()), |mut observer| observer.finish(at));
        self.failure.take().map_or(finished, Err)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("is_on", &self.is_on()).field("failure", &self.failure).finish()
    }
}
