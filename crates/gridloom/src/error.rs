//! Errors of a session.

use gridloom_base::{NameError, TaskError};
use gridloom_chare::ChareError;
use gridloom_idl::BindError;
use gridloom_process::ProcessError;
use thiserror::Error;

use crate::difference::Difference;

/// An error of a session. Python and C mirror the variants one to one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A call does not fit its function's signature; nothing was sent.
    #[error(transparent)]
    Argument(#[from] BindError),
    /// A task returned no result.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// An argument is too large to be sent; it was not copied.
    #[error("{function}: argument '{argument}' takes {size}, more than {bound}")]
    TooLarge {
        function: String,
        argument: String,
        /// Its size, with its unit.
        size: String,
        /// The limit and the remedy.
        bound: String,
    },
    /// The grid cannot be reached or started.
    #[error("{0}")]
    Connect(String),
    /// No such function is offered.
    #[error("no server offers function '{name}'{near}")]
    UnknownFunction {
        /// The requested name.
        name: String,
        /// Similar known names, or modules that all have it; may be empty.
        near: String,
    },
    /// No such class is offered.
    #[error("no server offers class '{name}'{near}")]
    UnknownClass {
        /// The requested name.
        name: String,
        /// Similar known names; empty or starting with a semicolon.
        near: String,
    },
    /// In a group that follows its graph strictly: a call differs from the declared one and was not made, or, at the end of the
    /// group, a declared call is missing; this is the first.
    #[error("the group follows its declared graph strictly: {0}")]
    DiffersFromDeclared(Difference),
    /// Shared data could not be put, found or deleted.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A value is not of the requested type, or the session is used wrongly.
    #[error("{0}")]
    Usage(String),
    /// An interface description, platform or module that cannot be used.
    #[error("{0}")]
    Input(String),
    /// A process cannot continue, or its message was not received.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A program of chares cannot continue.
    #[error(transparent)]
    Chares(#[from] ChareError),
    /// The call was recorded, but never ran.
    #[error("the call of '{function}' never ran: {why}")]
    Discarded {
        function: String,
        /// The event that ended its group.
        why: String,
    },
    /// This program has no memory or no file descriptor left for a value.
    #[error("no memory for a value of {size_bytes} bytes in this program: {why}")]
    NoMemory {
        size_bytes: u64,
        /// The operating system's error text, with the limit and the remedy.
        why: String,
    },
    /// The wait timed out. Nothing is cancelled.
    #[error("no result within {limit_seconds} s; the call is still running: call get() again")]
    TimedOut { limit_seconds: f64 },
    /// Another thread ended the wait ([`Interrupt`](crate::Interrupt)). Nothing is cancelled.
    #[error("the wait was interrupted; nothing was cancelled")]
    Interrupted,
    /// The simulation cannot continue: no event is left.
    #[error("the simulation is stalled at {seconds:.6} s: {waiting}")]
    Stalled {
        /// Virtual time.
        seconds: f64,
        /// Name of the awaited result.
        waiting: String,
    },
}
