//! Submitted calls of running groups; the program awaits their completion separately from their results. They include single calls
//! with results that stay where they are made, which are groups of one call.

use std::sync::Arc;
use std::time::Duration;

use gridloom_base::{NodeId, TaskId};
use gridloom_core::node::Command;

use super::handle::Handle;
use crate::Error;
use crate::launch::Parts;
use crate::session::{CallEnd, Session};

/// A submitted call of a group. It belongs to a declared group ([`Group::submit`](crate::Group::submit)), or is a group of its own with results
/// that stay where they are made ([`Function::submit_remote`](crate::Function::submit_remote)).
#[derive(Clone, Debug)]
pub struct Submitted {
    session: Session,
    task: TaskId,
    results: Vec<Handle>,
    /// Keeps the session's records of its group alive.
    parts: Arc<Parts>,
}

impl Submitted {
    pub(crate) fn new(session: &Session, task: TaskId, results: Vec<Handle>, parts: &Arc<Parts>) -> Submitted {
        Submitted { session: session.clone(), task, results, parts: parts.clone() }
    }

    /// Its results, in the order in which the function declares them.
    pub fn results(&self) -> &[Handle] {
        &self.results
    }

    /// The id by which [`Grid::await_ends`](crate::Grid::await_ends) reports it.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// Makes [`Grid::await_ends`](crate::Grid::await_ends) report its end, immediately if it has ended.
    pub fn note_end(&self) {
        self.session.state().note_end(self.task);
    }

    /// Returns how it ended; `None` while it is in progress. Its results may be on a server rather than here.
    pub fn end(&self) -> Option<CallEnd> {
        self.session.state_now().call_end(self.task)
    }

    /// Returns the server that runs or ran it; waits until that is decided. `None` if it failed before.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn server(&self) -> Result<Option<NodeId>, Error> {
        self.session.wait(None, |state| match state.groups.of_task(self.task) {
            None => Some(None),
            Some(group) => match group.end_of(self.task) {
                Some(ended) => Some(ended.server),
                None => group.server_of(self.task).map(Some),
            },
        })
    }

    /// Waits until it has completed or failed, but no longer than `limit`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if it has not ended by then; it keeps running. Also if the session is closed.
    pub fn wait_within(&self, limit: Option<Duration>) -> Result<(), Error> {
        // A forgotten call has ended.
        self.session.wait_unless_interrupted(limit, |state| {
            state.groups.of_task(self.task).is_none_or(|group| group.end_of(self.task).is_some()).then_some(())
        })
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// If it failed.
    pub fn wait(&self) -> Result<(), Error> {
        self.wait_within(None)?;
        let Some(error) = self.end().and_then(|end| end.error) else { return Ok(()) };
        self.session.state().groups.note_failures_read(&self.parts.ids());
        Err(error.into())
    }

    /// Requests its cancellation, unless it has ended.
    pub fn cancel(&self) {
        if self.end().is_none() {
            self.session.command(Command::Cancel { tasks: vec![self.task] });
        }
    }
}
