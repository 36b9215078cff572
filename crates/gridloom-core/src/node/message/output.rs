//! The lines that functions have printed at a server, for operators of a grid: queries, and answers of bounded length.
//!
//! ```text
//! client                                         server
//!   | GetOutput (after 0) ------------------------->|
//!   |<----- Output (lines, after 310, there is more) |
//!   | GetOutput (after 310) ----------------------->|
//!   |<----------------------- Output (lines, after 402) |
//!   | GetOutput (after 402, waits) ---------------->|   nothing yet
//!   |                                               |   a function prints
//!   |<----------------------- Output (lines, after 403) |
//! ```

use serde::{Deserialize, Serialize};

use gridloom_base::{NodeId, Program, TaskId, Time};

/// The lines that a client requests.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct OutputQuery {
    /// Selects only lines with greater numbers; 0 selects all.
    pub after: u64,
    /// Maximum number of lines; the last ones are returned.
    pub last: u64,
    /// Selects only lines of this function: `module/function`, or its name alone.
    pub function: Option<String>,
    /// Selects only lines of this call.
    pub call: Option<TaskId>,
    /// The server delays its answer until there is a line.
    pub wait: bool,
}

/// The answer: lines in the order in which they were printed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct OutputPage {
    pub lines: Vec<OutputLine>,
    /// The programs that made the calls.
    pub programs: Vec<Program>,
    /// Value of [`OutputQuery::after`] for the next query.
    pub after: u64,
    /// More lines match than fitted into the answer.
    pub has_more: bool,
    /// Lines between the requested number and the first returned one were evicted.
    pub has_gap: bool,
}

impl OutputPage {
    /// Returns the program that made the call which printed a line; `None` if the server does not know it.
    pub fn program_of(&self, line: &OutputLine) -> Option<&Program> {
        self.programs.iter().find(|program| program.client == line.program)
    }
}

/// Returns the name of a function without its module: `f` for `m/f`, and for `module:f`, a function whose code the
/// program sends with the call.
pub fn short_name(function: &str) -> &str {
    let name = function.rsplit(['/', ':']).next().unwrap_or_default();
    name.rsplit("<locals>.").next().unwrap_or_default()
}

/// A line that a call has printed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OutputLine {
    /// Increases from line to line of a server.
    pub number: u64,
    pub call: TaskId,
    pub function: String,
    /// The client of the program that made the call.
    pub program: NodeId,
    /// Printed to standard error.
    pub is_error: bool,
    /// Time at which it was printed, by the server's clock.
    pub at: Time,
    /// The text without its line ending.
    pub text: String,
}
