//! Why a call does not fit its function. Every message names the function, the argument, the expected and the given value,
//! and the remedy if there is one.

use thiserror::Error;

/// Why a call does not fit its function's signature.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// Too many arguments by position.
    #[error("{function}: {got} arguments given by position, expected {expected}; the function is {signature}")]
    Count {
        function: String,
        /// The accepted numbers, in words.
        expected: String,
        /// The number given.
        got: usize,
        /// The function's signature.
        signature: String,
    },
    /// The numbers of arguments and results differ from those of the function.
    #[error(
        "{function}: expected {} arguments and {} results, got {} and {}", .expected.0, .expected.1, .got.0, .got.1
    )]
    Parts {
        function: String,
        /// Its numbers of inputs and outputs.
        expected: (usize, usize),
        /// The numbers of the call.
        got: (usize, usize),
    },
    /// Arguments are not given and cannot be inferred from others.
    #[error("{function}: missing {missing}; the function is {signature}")]
    Missing {
        function: String,
        /// Their names, in words.
        missing: String,
        /// The function's signature.
        signature: String,
    },
    /// There is no input of that name.
    #[error("{function}: unknown argument '{name}'{near}; the function is {signature}")]
    UnknownName {
        function: String,
        /// The name given.
        name: String,
        /// Similar names, empty or starting with a semicolon.
        near: String,
        /// The function's signature.
        signature: String,
    },
    /// One argument is given twice.
    #[error("{function}: argument '{name}' is given twice")]
    GivenTwice { function: String, name: String },
    /// A value has the wrong kind or element type.
    #[error("{function}: argument '{param}' is {got}, expected {expected}{remedy}")]
    Type {
        function: String,
        param: String,
        /// The expected kind and type.
        expected: String,
        /// The given kind and type.
        got: String,
        /// What to write instead, empty or starting with a semicolon.
        remedy: String,
    },
    /// A number cannot be converted without changing its value.
    #[error("{function}: argument '{param}' is {got}, which is not exactly a value of type {expected}{remedy}")]
    NotExact {
        function: String,
        param: String,
        /// The expected type.
        expected: String,
        /// The given value and type.
        got: String,
        /// What to write instead, empty or starting with a semicolon.
        remedy: String,
    },
    /// An array has the wrong extents or number of dimensions.
    #[error("{function}: argument '{param}' has shape {got}, expected {expected}")]
    Shape {
        function: String,
        param: String,
        /// The expected extents, as expressions and as numbers, and where these are from.
        expected: String,
        /// The given extents.
        got: String,
    },
    /// A size or the work depends on a number that is still on a server.
    #[error(
        "{function}: the value of argument '{param}' is needed now, for a size or the work, and is still remote; \
         fetch it first"
    )]
    NeedsValue { function: String, param: String },
    /// A size or the work cannot be computed.
    #[error("{function}: {what}: {why}")]
    Value {
        function: String,
        /// The quantity without a value, such as `extent 2 of 'c'`.
        what: String,
        why: String,
    },
    /// An argument's bytes do not match its description: a bug in the program that describes it.
    #[error("{function}: argument '{param}' is described wrongly: {why}")]
    Malformed { function: String, param: String, why: String },
}

impl BindError {
    /// The message without the function, for an error that names it already.
    pub fn reason(&self, function: &str) -> String {
        let text = self.to_string();
        text.strip_prefix(function).and_then(|rest| rest.strip_prefix(": ")).map_or(text.clone(), str::to_owned)
    }
}
