//! Callbacks: a function that runs for a program calls a function of that program.

use serde::{Deserialize, Serialize};

use gridloom_base::{Meta, TaskError, TaskId};

/// A callback of the program by a running task. The task waits for the answer, so each task has at most one pending
/// callback.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Callback {
    pub task: TaskId,
    /// Index among the callbacks of the task's function.
    pub callback: u32,
    /// The values of its `IN` and `INOUT` parameters: at most [`gridloom_base::limits::CALLBACK_BYTES_MAX`] bytes in
    /// all.
    pub values: Vec<(Meta, Vec<u8>)>,
}

/// The values of the `OUT` and `INOUT` parameters, or an error text.
pub type CallbackAnswer = Result<Vec<(Meta, Vec<u8>)>, String>;

/// Why a worker stopped running a task for now. `R` is the world's representation of the results.
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
    /// The task has ended.
    Ended(Result<R, TaskError>),
    /// The task waits for its program's answer to a callback.
    Callback(Callback),
}
