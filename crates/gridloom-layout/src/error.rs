//! Errors in messages, with their location: the message type, the field's path, and the byte of its memory.

use std::fmt;

use thiserror::Error;

use gridloom_base::size::size_text;

/// A message that cannot be written or read.
#[derive(Clone, PartialEq, Debug, Error)]
#[error("message '{message}'{}: {problem}", Location(.path, *.offset))]
pub struct LayoutError {
    /// The message type's name.
    pub message: String,
    /// The field, as a C program would write it; empty for the message as a whole.
    pub path: String,
    /// Offset of the field in the message's memory, in bytes.
    pub offset: Option<u64>,
    pub problem: Problem,
}

/// The quantity that exceeds the limit in a message that is too large.
pub(super) const BYTES_OF_MEMORY: &str = "bytes of memory";

/// The reason of a [`LayoutError`].
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The header cannot be parsed.
    #[error("malformed header: {0}")]
    Header(String),
    /// The message has no header.
    #[error(
        "raw bytes were received under its name, which is that of a typed message: send an object of that type, or use another name for bytes"
    )]
    Untyped,
    /// The message has another type.
    #[error("it is of type '{got}', expected '{expected}'")]
    OtherType {
        /// The received type.
        got: String,
        /// The expected type.
        expected: String,
    },
    /// Sender and receiver declare the type differently.
    #[error("sender and receiver declare it differently{}", differences(.0))]
    OtherDeclaration(Vec<String>),
    /// A limit is exceeded.
    #[error("{}", too_much(.what, *.count, *.limit))]
    Limit {
        /// The limited quantity.
        what: &'static str,
        /// The actual amount.
        count: u64,
        limit: u64,
    },
    /// The memory is shorter or longer than the table of blocks states.
    #[error("its blocks take {expected} bytes, but {got} were received")]
    Length {
        /// The length according to the table.
        expected: u64,
        /// The received length.
        got: u64,
    },
    /// A pointer does not point to a block.
    #[error("a pointer to {address:#x}, where there is no {target}")]
    Pointer {
        /// The address in the message, or in the sender's memory.
        address: u64,
        /// The expected target.
        target: String,
    },
    /// The target of a pointer is shorter than required.
    #[error("{available} elements of {target} where {needed} are needed")]
    Short {
        /// The available number of elements.
        available: u64,
        /// The required number of elements.
        needed: u64,
        /// The type of the elements.
        target: String,
    },
    /// A pointer that must not be null is null.
    #[error("a null pointer where {needed} elements of {target} are needed")]
    Null {
        /// The required number of elements.
        needed: u64,
        /// The type of the elements.
        target: String,
    },
    /// A string has no end.
    #[error("a string without a NUL at its end")]
    NoNul,
    /// A string contains a NUL, or is not UTF-8 where it must be.
    #[error("{0}")]
    Text(&'static str),
    /// A bool is neither 0 nor 1.
    #[error("{0} is not a bool; expected 0 or 1")]
    Bool(u8),
    /// An enum's value has no name.
    #[error("{value} is not a constant of enum '{name}'")]
    Enum { name: String, value: i64 },
    /// The length of a counted array cannot be computed.
    #[error("{0}")]
    Count(String),
    /// A number does not fit the receiver's type.
    #[error("{value} does not fit {ty}, which has {bytes} bytes on {abi}")]
    Narrow {
        value: i128,
        ty: String,
        /// The type's size there.
        bytes: u64,
        /// The receiving machine.
        abi: String,
    },
    /// A value is of another kind than the type.
    #[error("expected {expected}, got {got}")]
    Value {
        /// The expected kind.
        expected: String,
        /// The given kind.
        got: String,
    },
    /// A dynamic array has a capacity above its length, which is not allowed in a message.
    #[error("a dynamic array of length {length} has capacity {capacity}; expected the same")]
    Capacity { length: u64, capacity: u64 },
}

struct Location<'a>(&'a str, Option<u64>);

impl fmt::Display for Location<'_> {
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

/// A problem on its way up to the code that knows the message: each level prepends its part of the path. Boxed, so that a
/// successful return carries one word.
#[derive(Debug)]
pub struct Fault {
    path: String,
    offset: Option<u64>,
    problem: Problem,
}

impl Fault {
    /// Creates a fault at that byte.
    pub fn new(offset: u64, problem: Problem) -> Box<Fault> {
        Box::new(Fault { path: String::new(), offset: Some(offset), problem })
    }

    /// Creates a fault of the message as a whole.
    pub fn whole(problem: Problem) -> Box<Fault> {
        Box::new(Fault { path: String::new(), offset: None, problem })
    }

    /// Prepends a field to the path.
    #[must_use]
    pub fn field(mut self: Box<Fault>, name: &str) -> Box<Fault> {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{name}{dot}{}", self.path);
        self
    }

    /// Prepends an element to the path.
    #[must_use]
    pub fn element(self: Box<Fault>, index: u64) -> Box<Fault> {
        self.field(&format!("[{index}]"))
    }

    pub(super) fn of(self, message: &str) -> LayoutError {
        LayoutError { message: message.to_string(), path: self.path, offset: self.offset, problem: self.problem }
    }
}
