//! Ends of calls as they come: for who has very many under way and waits for some of them.

use std::time::Duration;

use gridloom_core::base::time::ns_to_seconds;
use gridloom_core::base::{NodeId, TaskError, TaskId};

use super::state::EndedCall;
use crate::{Error, Grid};

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

impl Grid {
    pub(crate) fn note_end(&self, task: TaskId) {
        let mut state = self.state();
        let has_ended = match state.calls.get(&task) {
            Some(ended) => ended.is_some(),
            None => match state.group_record(task) {
                Some(record) => record.end_of(task).is_some(),
                None => return,
            },
        };
        match has_ended {
            true => state.ends.push(task),
            false => drop(state.noted.insert(task)),
        }
    }

    /// Waits until a call of a group has ended; one that is forgotten has.
    pub(crate) fn await_task(&self, task: TaskId, limit: Option<Duration>) -> Result<(), Error> {
        self.wait(limit, |state| {
            state.group_record(task).is_none_or(|group| group.end_of(task).is_some()).then_some(())
        })
    }

    /// Waits until a call of a group has a server, or failed without.
    pub(crate) fn await_server(&self, task: TaskId) -> Result<Option<NodeId>, Error> {
        self.wait(None, |state| match state.group_record(task) {
            None => Some(None),
            Some(group) => match group.end_of(task) {
                Some((_, server, _)) => Some(*server),
                None => group.server_of(task).map(Some),
            },
        })
    }

    /// Waits until `look` finds what it looks for: at once, and then whenever something has happened. It is given the noted
    /// ends ([`Pending::note_end`](crate::Pending::note_end)) that nobody was given yet: each is told once, to whoever
    /// looks first. It runs under the session's lock: nothing of the session may be called, nor dropped, in it.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if `limit` is over before, and if the session is closed.
    pub fn await_ends<R>(
        &self,
        limit: Option<Duration>,
        mut look: impl FnMut(&[TaskId]) -> Option<R>,
    ) -> Result<R, Error> {
        self.wait(limit, |state| {
            let ended = std::mem::take(&mut state.ends);
            look(&ended)
        })
    }

    pub(crate) fn call_end(&self, task: TaskId) -> Option<CallEnd> {
        self.absorb();
        let state = self.state();
        let (at, server, report) = match state.calls.get(&task) {
            Some(ended) => ended.as_ref().map(|EndedCall { at, server, report }| (at, server, report))?,
            None => state.group_record(task)?.end_of(task)?,
        };
        Some(CallEnd {
            server: server.and_then(|server| state.names.get(&server).cloned()),
            run_s: ns_to_seconds(report.timing.run_ns),
            ended_s: at.seconds(),
            error: report.outcome.as_ref().err().cloned(),
        })
    }
}
