//! What functions have printed at a server, for people who look after a grid: questions, and answers of bounded length.
//!
//! ```text
//! client                                         server
//!   | TellOutput (after 0) ------------------------>|
//!   |<----- Output (lines, after 310, there is more) |
//!   | TellOutput (after 310) ---------------------->|
//!   |<----------------------- Output (lines, after 402) |
//!   | TellOutput (after 402, waits) --------------->|   nothing yet
//!   |                                               |   a function prints
//!   |<----------------------- Output (lines, after 403) |
//! ```

use serde::{Deserialize, Serialize};

use gridloom_base::{TaskId, Time};

/// Which lines a client asks for.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct OutputQuery {
    /// Only lines with greater numbers; 0 stands for all.
    pub after: u64,
    /// Only so many of them, the last ones.
    pub last: u64,
    /// Only those of a function: `module/function`, or its name alone.
    pub function: Option<String>,
    /// Only those of a call.
    pub call: Option<TaskId>,
    /// The answer waits until there is a line.
    pub waits: bool,
}

/// The answer: lines in the order in which they were printed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Output {
    pub lines: Vec<OutputLine>,
    /// Where the next question goes on.
    pub after: u64,
    /// Not all fitted into the answer.
    pub has_more: bool,
    /// Between the number that was asked for and these lines, others had to make room.
    pub is_cut: bool,
}

/// The name of a function without its module: `f` of `m/f`, and of `module:f`, which a program sends along.
pub fn short_name(function: &str) -> &str {
    let name = function.rsplit(['/', ':']).next().unwrap_or_default();
    name.rsplit("<locals>.").next().unwrap_or_default()
}

/// A line that a call has printed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OutputLine {
    /// Rises from line to line of a server.
    pub number: u64,
    pub call: TaskId,
    pub function: String,
    /// Printed to standard error.
    pub is_error: bool,
    /// When, by the server's clock.
    pub at: Time,
    /// Without its end.
    pub text: String,
}
