//! Why a call does not fit its function. Every text names the function, the argument, what was expected and what came,
//! and the remedy where there is one.

use thiserror::Error;

/// Why a call does not fit its function's signature.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// Too many arguments by position.
    #[error("{function}: {got} arguments given by position, expected {expected}; the function is {signature}")]
    Count {
        function: String,
        /// The numbers that are possible, in words.
        expected: String,
        /// The number given.
        got: usize,
        /// The function's signature.
        signature: String,
    },
    /// Another number of arguments or results than the function has.
    #[error(
        "{function}: expected {} arguments and {} results, got {} and {}", .expected.0, .expected.1, .got.0, .got.1
    )]
    Parts {
        function: String,
        /// Its numbers of inputs and outputs.
        expected: (usize, usize),
        /// Those of the call.
        got: (usize, usize),
    },
    /// Arguments are not given and do not follow from others.
    #[error("{function}: missing {missing}; the function is {signature}")]
    Missing {
        function: String,
        /// Their names, in words.
        missing: String,
        /// The function's signature.
        signature: String,
    },
    /// No input has that name.
    #[error("{function}: unknown argument '{name}'{near}; the function is {signature}")]
    UnknownName {
        function: String,
        /// The name given.
        name: String,
        /// Names like it, empty or starting with a semicolon.
        near: String,
        /// The function's signature.
        signature: String,
    },
    /// One argument is given twice.
    #[error("{function}: argument '{name}' is given twice")]
    Twice { function: String, name: String },
    /// A value of the wrong kind or element type.
    #[error("{function}: argument '{param}' is {got}, expected {expected}{remedy}")]
    Type {
        function: String,
        param: String,
        /// The kind and type wanted.
        expected: String,
        /// The kind and type given.
        got: String,
        /// What to write instead, empty or starting with a semicolon.
        remedy: String,
    },
    /// A number that changes when converted.
    #[error("{function}: argument '{param}' is {got}, which is not exactly a value of type {expected}{remedy}")]
    NotExact {
        function: String,
        param: String,
        /// The type wanted.
        expected: String,
        /// The value and type given.
        got: String,
        /// What to write instead, empty or starting with a semicolon.
        remedy: String,
    },
    /// Wrong extents or number of dimensions.
    #[error("{function}: argument '{param}' has shape {got}, expected {expected}")]
    Shape {
        function: String,
        param: String,
        /// The extents wanted, as expressions and as numbers, and where these come from.
        expected: String,
        /// The extents given.
        got: String,
    },
    /// A size or the work needs a number that is still on a server.
    #[error(
        "{function}: the value of argument '{param}' is needed now, for a size or the work, and is still remote; \
         fetch it first"
    )]
    NeedsValue { function: String, param: String },
    /// A size or the work has no value.
    #[error("{function}: {what}: {why}")]
    Value {
        function: String,
        /// What has no value, such as `extent 2 of 'c'`.
        what: String,
        why: String,
    },
    /// An argument's bytes do not fit its description: a mistake of the program that describes it.
    #[error("{function}: argument '{param}' is described wrongly: {why}")]
    Malformed { function: String, param: String, why: String },
}

impl BindError {
    /// The text without the function, for an error that names it already.
    pub fn reason(&self, function: &str) -> String {
        let text = self.to_string();
        text.strip_prefix(function).and_then(|rest| rest.strip_prefix(": ")).map_or(text.clone(), str::to_owned)
    }
}
