//! Submitted calls of running groups; the program awaits their completion separately from their results. They include single calls
//! with results that stay where they are made, which are groups of one call.

use std::sync::Arc;
use std::time::Duration;

use gridloom_base::{NodeId, TaskId};

use super::{Group, Handle, Parts};
use crate::grid::CallEnd;
use crate::{Arg, Error, Function, Grid};

/// A submitted call of a group. It belongs to a declared group ([`Group::submit`]), or is a group of its own with results
/// that stay where they are made ([`Function::submit_kept`]).
#[derive(Clone, Debug)]
pub struct Submitted {
    pub(super) grid: Grid,
    pub(super) task: TaskId,
    pub(super) results: Vec<Handle>,
    /// Keeps the session's records of its group alive.
    pub(super) parts: Arc<Parts>,
}

impl Submitted {
    pub(super) fn new(group: &Group, task: TaskId, results: Vec<Handle>) -> Submitted {
        Submitted { grid: group.grid.clone(), task, results, parts: group.recorder.parts.clone() }
    }

    /// Its results, in the order in which the function declares them.
    pub fn results(&self) -> &[Handle] {
        &self.results
    }

    /// The id by which [`Grid::await_ends`] reports it.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// Makes [`Grid::await_ends`] report its end, immediately if it has ended.
    pub fn note_end(&self) {
        self.grid.note_end(self.task);
    }

    /// Returns how it ended; `None` while it is in progress. Its results may be on a server rather than here.
    pub fn end(&self) -> Option<CallEnd> {
        self.grid.call_end(self.task)
    }

    /// Returns the server that runs or ran it; waits until that is decided. `None` if it failed before.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn server(&self) -> Result<Option<NodeId>, Error> {
        self.grid.await_server(self.task)
    }

    /// Waits until it has completed or failed, but no longer than `limit`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if it has not ended by then; it keeps running. Also if the session is closed.
    pub fn wait_within(&self, limit: Option<Duration>) -> Result<(), Error> {
        self.grid.await_task(self.task, limit)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// If it failed.
    pub fn wait(&self) -> Result<(), Error> {
        self.wait_within(None)?;
        let Some(error) = self.end().and_then(|end| end.error) else { return Ok(()) };
        let groups: Vec<_> = self.parts.all().iter().map(|part| part.id).collect();
        self.grid.told(&groups);
        Err(error.into())
    }

    /// Requests its cancellation, unless it has ended.
    pub fn cancel(&self) {
        if self.end().is_none() {
            self.grid.cancel(vec![self.task]);
        }
    }
}

impl Function {
    /// Calls the function without waiting, and leaves its results where they are made. Arguments may be such results too; a copy
    /// is sent from there to the server that runs the call. Runs on the given server, unless that is lost.
    ///
    /// # Errors
    /// If the arguments do not fit, or the server is not in the grid.
    pub fn submit_kept(
        &self,
        server: Option<NodeId>,
        args: &[Arg],
        named: &[(String, Arg)],
    ) -> Result<Submitted, Error> {
        let function = server.map_or_else(|| self.clone(), |server| self.clone().bound_to(server));
        let group = self.grid.group("auto");
        let results = group.call_named(&function, args, named)?;
        let task = group.recording().tasks.last().expect("it was recorded just now").id;
        group.launch()?;
        Ok(Submitted::new(&group, task, results))
    }
}
