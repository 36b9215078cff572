//! What can go wrong in a session.

use gridloom_base::{NameError, TaskError};
use gridloom_chare::ChareError;
use gridloom_idl::BindError;
use gridloom_process::ProcessError;
use thiserror::Error;

use crate::described::Difference;

/// An error of a session. Python and C mirror the variants one to one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A call does not fit its function's signature; nothing was sent.
    #[error(transparent)]
    Argument(#[from] BindError),
    /// A task gave no result.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// An argument cannot be sent because of its size; it was not copied.
    #[error("{function}: argument '{argument}' takes {size}, more than {bound}")]
    TooLarge {
        function: String,
        argument: String,
        /// Its size, with its unit.
        size: String,
        /// The bound and the remedy.
        bound: String,
    },
    /// The grid cannot be reached or started.
    #[error("{0}")]
    Connect(String),
    /// No such function is offered.
    #[error("no server offers function '{name}'{near}")]
    UnknownFunction {
        /// The name asked for.
        name: String,
        /// Known names like it, or modules that all have it; may be empty.
        near: String,
    },
    /// No such class is offered.
    #[error("no server offers class '{name}'{near}")]
    UnknownClass {
        /// The name asked for.
        name: String,
        /// Known names like it, empty or starting with a semicolon.
        near: String,
    },
    /// Of a group that follows its graph strictly: a call is not as it was described, and was not made; or, at the end of the
    /// group, a described call never came, of which this is the first.
    #[error("the described graph is followed strictly: {0}")]
    Differs(Difference),
    /// Shared data were not put, found or deleted.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A value is not of the type asked for, or the session is used wrongly.
    #[error("{0}")]
    Usage(String),
    /// An interface description, platform or module that cannot be used.
    #[error("{0}")]
    Input(String),
    /// A process cannot go on, or its message was not received.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A program of chares cannot go on.
    #[error(transparent)]
    Chares(#[from] ChareError),
    /// The call was recorded, but never ran.
    #[error("the call of '{function}' never ran: {why}")]
    Discarded {
        function: String,
        /// What became of its group.
        why: String,
    },
    /// What was waited for did not come in time. Nothing is cancelled.
    #[error("no result within {limit_seconds} s; the call goes on, and a later get() finds what it gives")]
    TimedOut { limit_seconds: f64 },
    /// Another thread ended the wait ([`Interrupt`](crate::Interrupt)). Nothing is cancelled.
    #[error("the wait was interrupted; what it waited for goes on")]
    Interrupted,
    /// The simulation cannot go on: nothing is left that could happen.
    #[error("the simulation stands still at {seconds:.6} s: {waiting}")]
    Stalled {
        /// Virtual time.
        seconds: f64,
        /// What was waited for.
        waiting: String,
    },
}
