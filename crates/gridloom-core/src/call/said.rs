//! What a running call says to its program: lines that it prints, and how far it has come.

use serde::{Deserialize, Serialize};

use gridloom_base::TaskId;

/// What a call says. It goes on; there is no answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Saying {
    /// Printed to standard output or, with `is_error`, to standard error: whole lines, or what a line has so far when it is flushed
    /// at the call's end.
    Text { is_error: bool, text: String },
    /// So much is done, of so much in all if that is known, in a unit of the function's.
    Progress { done: f64, total: Option<f64> },
}

/// The same, with its task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Said {
    pub task: TaskId,
    pub saying: Saying,
}
