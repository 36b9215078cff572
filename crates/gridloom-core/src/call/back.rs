//! Callbacks: a function that runs for a program calls one of the program's.

use serde::{Deserialize, Serialize};

use gridloom_base::{Meta, TaskError, TaskId};

/// A call of the program by a task that runs for it. The task waits for the answer, so that there is one at a time of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CallBack {
    pub task: TaskId,
    /// Which of its function's callbacks.
    pub callback: u32,
    /// The values of its `IN` and `INOUT` parameters: at most [`gridloom_base::limits::CALLBACK_BYTES_MAX`] in all.
    pub values: Vec<(Meta, Vec<u8>)>,
}

/// The values of the `OUT` and `INOUT` parameters, or why there are none.
pub type CallBackAnswer = Result<Vec<(Meta, Vec<u8>)>, String>;

/// How far a worker has come with a task; `R` is what a world makes of its results.
///
/// **The contract of workers**, kept by worker processes (`gridloom_net::jobs::Jobs`, and `BlockingJobs` for one caller that
/// waits) and by bodies in simulation (`gridloom_sim::Bodies`):
/// 1. *Start.* All inputs of the task are there. It runs at most once, unless its worker died before it began; then another
///    worker starts it.
/// 2. *Offer.* While the task calls back, it waits, and other tasks may run. What the program says is offered to it, and it
///    goes on. An answer to a task that has ended has no effect.
/// 3. *Done.* A started task ends exactly once, by [`Halt::Ended`]; its results are there before that is told. One that is
///    stopped ends as cancelled.
/// 4. *Died.* A worker may die at any time and takes nothing down with it. The task that ran fails as crashed, those that
///    waited behind it go to other workers, and an object that lived in it is lost.
#[derive(Clone, PartialEq, Debug)]
pub enum Halt<R> {
    /// It has ended.
    Ended(Result<R, TaskError>),
    /// It waits for what its program says.
    CallsBack(CallBack),
}
