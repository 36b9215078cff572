//! Output of a running call for its program: printed text and progress.

use serde::{Deserialize, Serialize};

use gridloom_base::TaskId;

/// A piece of output. The call continues; there is no answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum OutputItem {
    /// Text that the call printed to standard output or, with `is_error`, to standard error. Whole lines, except for
    /// the rest that is flushed at the call's end.
    Text { is_error: bool, text: String },
    /// Progress: the amount done and, if known, the total, in a unit that the function chooses.
    Progress { done: f64, total: Option<f64> },
}

/// A piece of output with its task.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TaskOutput {
    pub task: TaskId,
    pub item: OutputItem,
}
