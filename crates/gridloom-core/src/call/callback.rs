//! Callbacks: a function that runs for a program calls a function of that program.

use serde::{Deserialize, Serialize};

use gridloom_base::{Meta, TaskId};

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
