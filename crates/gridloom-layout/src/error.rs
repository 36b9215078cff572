//! What is wrong with a message, and where: the message type, the field's path, and the byte of its memory.

use std::fmt;

use thiserror::Error;

use gridloom_base::size::size_text;

/// A message that cannot be written or read.
#[derive(Clone, PartialEq, Debug, Error)]
#[error("message '{message}'{}: {problem}", Where(.path, *.offset))]
pub struct LayoutError {
    /// The message type's name.
    pub message: String,
    /// The field, as a C program would write it; empty for the message as a whole.
    pub path: String,
    /// Where the field lies in the message's memory, in bytes.
    pub offset: Option<u64>,
    pub problem: Problem,
}

/// What there is too much of in a message that is too large.
pub(super) const BYTES_OF_MEMORY: &str = "bytes of memory";

/// What is wrong.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The header does not parse.
    #[error("malformed header: {0}")]
    Header(String),
    /// It has no header.
    #[error("bytes came under its name, which is a typed message's: send an object of it, or bytes by another name")]
    Untyped,
    /// It is of another type.
    #[error("it is of type '{got}', expected '{expected}'")]
    OtherType {
        /// The type that came.
        got: String,
        /// The type that was expected.
        expected: String,
    },
    /// Sender and receiver declare the type differently.
    #[error("sender and receiver declare it differently{}", differences(.0))]
    OtherDeclaration(Vec<String>),
    /// More than a limit allows.
    #[error("{}", too_much(.what, *.count, *.limit))]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        count: u64,
        limit: u64,
    },
    /// The memory is shorter or longer than the table of blocks says.
    #[error("its blocks take {expected} bytes, and {got} came")]
    Length {
        /// By the table.
        expected: u64,
        /// What came.
        got: u64,
    },
    /// A pointer into nothing.
    #[error("a pointer to {address:#x}, where there is no {target}")]
    Pointer {
        /// The address in the message, or in the sender's memory.
        address: u64,
        /// What should be there.
        target: String,
    },
    /// A pointer to less than its length.
    #[error("{available} elements of {target} where {needed} are needed")]
    Short {
        /// What there is.
        available: u64,
        /// What there should be.
        needed: u64,
        /// Of what.
        target: String,
    },
    /// A null pointer to something that must be there.
    #[error("a null pointer where {needed} elements of {target} are needed")]
    Null {
        /// How many.
        needed: u64,
        /// Of what.
        target: String,
    },
    /// A string without its end.
    #[error("a string without a NUL at its end")]
    NoNul,
    /// A string with a NUL inside, or that is no UTF-8 where it must be.
    #[error("{0}")]
    Text(&'static str),
    /// A bool that is neither.
    #[error("{0} is no bool; expected 0 or 1")]
    Bool(u8),
    /// An enum's value that has no name.
    #[error("{value} is no constant of enum '{name}'")]
    Enum { name: String, value: i64 },
    /// The length of a counted array has no value.
    #[error("{0}")]
    Count(String),
    /// A number that the receiver's type cannot hold.
    #[error("{value} does not fit {ty}, which has {bytes} bytes on {abi}")]
    Narrow {
        value: i128,
        ty: String,
        /// Its size there.
        bytes: u64,
        /// The receiving machine.
        abi: String,
    },
    /// A value of another kind than the type.
    #[error("expected {expected}, got {got}")]
    Value {
        /// What the type needs.
        expected: String,
        /// What was given.
        got: String,
    },
    /// A dynamic array with room that a message does not have.
    #[error("a dynamic array of length {length} has capacity {capacity}; expected the same")]
    Capacity { length: u64, capacity: u64 },
}

struct Where<'a>(&'a str, Option<u64>);

impl fmt::Display for Where<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() {
            write!(f, ", field '{}'", self.0)?;
        }
        match self.1 {
            Some(offset) => write!(f, ", byte {offset}"),
            None => Ok(()),
        }
    }
}

fn too_much(what: &str, count: u64, limit: u64) -> String {
    match what {
        BYTES_OF_MEMORY => format!(
            "{} of memory; at most {} in one message: send it in parts, or use a grid's data",
            size_text(count),
            size_text(limit)
        ),
        _ => format!("{count} {what}, at most {limit} are allowed"),
    }
}

fn differences(found: &[String]) -> String {
    if found.is_empty() {
        return "; let both use one declaration (or let the sender describe its messages to see where they differ)"
            .into();
    }
    format!(": {}", found.join("; "))
}

/// A problem on its way up to the code that knows the message: each level puts its part before the path. Boxed, so that a
/// successful return carries one word.
#[derive(Debug)]
pub struct Fault {
    path: String,
    offset: Option<u64>,
    problem: Problem,
}

impl Fault {
    /// At that byte.
    pub fn new(offset: u64, problem: Problem) -> Box<Fault> {
        Box::new(Fault { path: String::new(), offset: Some(offset), problem })
    }

    /// Of no byte in particular.
    pub fn whole(problem: Problem) -> Box<Fault> {
        Box::new(Fault { path: String::new(), offset: None, problem })
    }

    /// As a part of that field.
    #[must_use]
    pub fn field(mut self: Box<Fault>, name: &str) -> Box<Fault> {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{name}{dot}{}", self.path);
        self
    }

    /// As a part of that element.
    #[must_use]
    pub fn element(self: Box<Fault>, index: u64) -> Box<Fault> {
        self.field(&format!("[{index}]"))
    }

    pub(super) fn of(self, message: &str) -> LayoutError {
        LayoutError { message: message.to_string(), path: self.path, offset: self.offset, problem: self.problem }
    }
}
