//! Ends of calls as they come: for programs that have very many under way and wait for some of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{NodeId, TaskError, TaskId};

use super::state::State;
use crate::report::Ended;
use crate::{Error, Grid};

/// Calls with ends that are to be told.
#[derive(Default)]
pub(super) struct Ends {
    /// Under way.
    noted: BTreeSet<TaskId>,
    /// Ended, and not told yet.
    untold: Vec<TaskId>,
}

impl Ends {
    pub(super) fn on_end(&mut self, task: TaskId) {
        if self.noted.remove(&task) {
            self.untold.push(task);
        }
    }

    pub(super) fn forget(&mut self, task: TaskId) {
        self.noted.remove(&task);
    }

    fn note(&mut self, task: TaskId, has_ended: bool) {
        match has_ended {
            true => self.untold.push(task),
            false => drop(self.noted.insert(task)),
        }
    }

    pub(super) fn check(&self) {
        assert!(self.untold.iter().all(|task| !self.noted.contains(task)), "a call that has ended is not under way");
    }
}

/// How a call ended.
#[derive(Clone, Debug)]
pub struct CallEnd {
    /// The server that had it last, if one had.
    pub server: Option<String>,
    /// Seconds that the function ran, 0 if it did not.
    pub run_s: f64,
    /// When the client learned of it, by the session's clock ([`Grid::now`]).
    pub ended_s: f64,
    /// Why it failed, if it did.
    pub error: Option<TaskError>,
}

impl CallEnd {
    fn new(ended: &Ended, names: &BTreeMap<NodeId, String>) -> CallEnd {
        let Ended { at, server, report } = ended;
        CallEnd {
            server: server.and_then(|server| names.get(&server).cloned()),
            run_s: ns_to_seconds(report.timing.run_ns),
            ended_s: at.seconds(),
            error: report.outcome.as_ref().err().cloned(),
        }
    }
}

/// The end of a call, by itself or in a group. `None` while it is under way, and of a call that the session does not know.
fn end_of(state: &State, task: TaskId) -> Option<&Ended> {
    match state.calls.get(task) {
        Some(call) => call,
        None => state.groups.of_task(task)?.end_of(task),
    }
}

impl Grid {
    pub(crate) fn note_end(&self, task: TaskId) {
        let mut state = self.state();
        if state.calls.get(task).is_some() || state.groups.of_task(task).is_some() {
            let has_ended = end_of(&state, task).is_some();
            state.ends.note(task, has_ended);
        }
    }

    /// Waits until a call of a group has ended; one that is forgotten has.
    pub(crate) fn await_task(&self, task: TaskId, limit: Option<Duration>) -> Result<(), Error> {
        self.wait(limit, |state| {
            state.groups.of_task(task).is_none_or(|group| group.end_of(task).is_some()).then_some(())
        })
    }

    /// Waits until a call of a group has a server, or failed without.
    pub(crate) fn await_server(&self, task: TaskId) -> Result<Option<NodeId>, Error> {
        self.wait(None, |state| match state.groups.of_task(task) {
            None => Some(None),
            Some(group) => match group.end_of(task) {
                Some(ended) => Some(ended.server),
                None => group.server_of(task).map(Some),
            },
        })
    }

    /// Waits until `look` finds what it looks for: at once, and then whenever something has happened. It is given the noted
    /// ends ([`Pending::note_end`](crate::Pending::note_end)) that were not told yet: each is told once, to the first thread
    /// that looks. It runs under the session's lock: nothing of the session may be called, nor dropped, in it.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if `limit` is over before, and if the session is closed.
    pub fn await_ends<R>(
        &self,
        limit: Option<Duration>,
        mut look: impl FnMut(&[TaskId]) -> Option<R>,
    ) -> Result<R, Error> {
        self.wait(limit, |state| look(&std::mem::take(&mut state.ends.untold)))
    }

    pub(crate) fn call_end(&self, task: TaskId) -> Option<CallEnd> {
        self.absorb();
        let state = self.state();
        end_of(&state, task).map(|ended| CallEnd::new(ended, state.directory.names()))
    }
}
