//! Decisions of the owner of a run of processes while it is running.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::process::WaitStatus;

use crate::error::Error;
use crate::spec::{Deployed, Launch};

/// Decides about the processes of a run while it is running.
pub trait RunController {
    /// Decides what follows the end of a process that has ended by itself.
    ///
    /// # Errors
    /// If this cannot be determined.
    fn ended(&mut self, launch: &Launch, end: ExitCause) -> Result<AfterEnd, Error>;

    /// Returns further processes; called whenever something has happened. Each starts once no other process with its label runs.
    ///
    /// # Errors
    /// If they cannot be determined.
    fn more(&mut self) -> Result<Vec<Deployed>, Error>;

    /// Returns the time at which a process that is no longer needed must be ended, if it has not ended by then.
    fn to_end(&self, launch: &Launch) -> Option<Instant>;

    /// Returns a descriptor that becomes readable when `more` may return processes.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Action after the end of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterEnd {
    /// The run ends with the status of the process, if it is the first that is not 0.
    Counts,
    /// Another process replaces it, and its end is ignored.
    Restarts,
    /// The process is no longer needed, so its end is ignored.
    IsDone,
}

/// Leaves the processes unchanged.
pub(super) struct Unchanged;

impl RunController for Unchanged {
    fn ended(&mut self, _: &Launch, _: ExitCause) -> Result<AfterEnd, Error> {
        Ok(AfterEnd::Counts)
    }

    fn more(&mut self) -> Result<Vec<Deployed>, Error> {
        Ok(Vec::new())
    }

    fn to_end(&self, _: &Launch) -> Option<Instant> {
        None
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitCause {
    Status(i32),
    Signal(i32),
}

impl ExitCause {
    pub(super) fn of(status: WaitStatus) -> ExitCause {
        let signal = || ExitCause::Signal(status.terminating_signal().unwrap_or(0));
        status.exit_status().map_or_else(signal, ExitCause::Status)
    }
}
