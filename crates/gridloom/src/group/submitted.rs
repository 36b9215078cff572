//! Calls of running groups; the program awaits their ends apart from their results. Among them are calls by themselves
//! with results that stay where they are made, which are groups of one.

use std::sync::Arc;
use std::time::Duration;

use gridloom_base::{NodeId, TaskId};

use super::{Group, Handle, Parts};
use crate::grid::CallEnd;
use crate::{Arg, Error, Function, Grid};

/// A call of a group, under way. It is one of a described group ([`Group::submit`]), or a group by itself with results
/// that stay where they are made ([`Function::submit_kept`]).
#[derive(Clone, Debug)]
pub struct Submitted {
    pub(super) grid: Grid,
    pub(super) task: TaskId,
    pub(super) results: Vec<Handle>,
    /// What the session remembers of its group stays as long as it does.
    pub(super) parts: Arc<Parts>,
}

impl Submitted {
    pub(super) fn new(group: &Group, task: TaskId, results: Vec<Handle>) -> Submitted {
        Submitted { grid: group.grid.clone(), task, results, parts: group.recorder.parts.clone() }
    }

    /// Its results, in the order of the function's.
    pub fn results(&self) -> &[Handle] {
        &self.results
    }

    /// By which [`Grid::await_ends`] tells of it.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// Has [`Grid::await_ends`] tell of its end, at once if it has ended.
    pub fn note_end(&self) {
        self.grid.note_end(self.task);
    }

    /// How it ended; `None` while it is under way. Its results may be on a server, not here.
    pub fn end(&self) -> Option<CallEnd> {
        self.grid.call_end(self.task)
    }

    /// The server that runs it, or has: waits until that is decided. `None` if it failed before.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn server(&self) -> Result<Option<NodeId>, Error> {
        self.grid.await_server(self.task)
    }

    /// Waits until it has ended, however it did, but no longer than `limit`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if it has not ended by then; it goes on. If the session is closed.
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

    /// Asks for it to be cancelled, unless it has ended.
    pub fn cancel(&self) {
        if self.end().is_none() {
            self.grid.cancel(vec![self.task]);
        }
    }
}

impl Function {
    /// Calls it without waiting, and leaves its results where they are made; arguments may be such results, too, of which a copy
    /// goes from there to where it runs. On that server, if one is named, unless that is lost.
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
