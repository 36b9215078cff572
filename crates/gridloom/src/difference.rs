//! Differences between the calls of a declared group and its declaration.

use std::fmt;

use serde::Serialize;

/// A call that differs from the declaration, or a missing declared call. Optional calls may be missing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Number of the call within the group, from 1; `None` for a missing call.
    pub call: Option<usize>,
    /// The function that was called; for a missing call the declared one.
    pub function: String,
    /// Name of the declared call that was expected or is missing; `None` if no call was expected.
    pub described: Option<String>,
    /// The difference, as text: the argument, its value and the declared one; or that the call was never made.
    pub why: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { call, function, described, why } = self;
        match (call, described) {
            (Some(call), Some(described)) => {
                write!(f, "call {call}, of '{function}', is not '{described}' as declared: {why}")
            }
            (Some(call), None) => write!(f, "call {call}, of '{function}', was not declared: {why}"),
            (None, described) => {
                let why = why.strip_prefix("it ").unwrap_or(why);
                write!(f, "'{}', a declared call of '{function}', {why}", described.as_deref().unwrap_or_default())
            }
        }
    }
}
