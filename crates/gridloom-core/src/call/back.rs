//! Callbacks: a function that runs for a program calls one of the program's.

use serde::{Deserialize, Serialize};

use crate::base::{Meta, TaskId};

/// A call of the program by a task that runs for it. The task waits for the answer, so that there is one at a time of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CallBack {
    /// The task.
    pub task: TaskId,
    /// Which of its function's callbacks.
    pub callback: u32,
    /// The values of its `IN` and `INOUT` parameters: at most [`crate::base::limits::CALLBACK_BYTES_MAX`] in all.
    pub values: Vec<(Meta, Vec<u8>)>,
}

/// The values of the `OUT` and `INOUT` parameters, or why there are none.
pub type CallBackAnswer = Result<Vec<(Meta, Vec<u8>)>, String>;
