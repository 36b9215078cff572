//! What the owner of a run of processes decides while it goes on.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::process::WaitStatus;

use crate::error::Error;
use crate::spec::{Deployed, Launch};

/// What a run decides while it goes on.
pub trait Changes {
    /// A process has ended by itself: what comes of it.
    ///
    /// # Errors
    /// If that cannot be said.
    fn ended(&mut self, launch: &Launch, end: End) -> Result<Then, Error>;

    /// Further processes, asked for whenever something has happened. Each starts once no other of its label runs.
    ///
    /// # Errors
    /// If that cannot be said.
    fn more(&mut self) -> Result<Vec<Deployed>, Error>;

    /// When a process is to be ended that is not needed any more, if it has not ended by then.
    fn to_end(&self, launch: &Launch) -> Option<Instant>;

    /// Is to be read once there may be more.
    fn bell(&self) -> Option<BorrowedFd<'_>>;
}

/// What comes of the end of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The run ends with its status, if it is the first that is not 0.
    Counts,
    /// Another one takes its place, and its end counts for nothing.
    StartsAgain,
    /// It is not needed any more, so its end counts for nothing.
    IsDone,
}

/// The processes stay those that they are.
pub(super) struct Unchanged;

impl Changes for Unchanged {
    fn ended(&mut self, _: &Launch, _: End) -> Result<Then, Error> {
        Ok(Then::Counts)
    }

    fn more(&mut self) -> Result<Vec<Deployed>, Error> {
        Ok(Vec::new())
    }

    fn to_end(&self, _: &Launch) -> Option<Instant> {
        None
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Status(i32),
    Signal(i32),
}

impl End {
    pub(super) fn of(status: WaitStatus) -> End {
        let signal = || End::Signal(status.terminating_signal().unwrap_or(0));
        status.exit_status().map_or_else(signal, End::Status)
    }
}
