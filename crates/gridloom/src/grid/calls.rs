//! Calls of a session. Plain calls are sent, awaited and abandoned. The ends of all calls are reported as they arrive:
//! a program may have very many calls in progress and wait for some of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, Meta, NodeId, TaskError, TaskId, Time};
use gridloom_core::call::CallLimits;
use gridloom_core::graph::Terms;
use gridloom_core::node::Command;
use gridloom_core::node::message::TaskReport;

use super::State;
use super::call_backs::Callee;
use crate::call::{Pending, Prepared, TransferLimits};
use crate::report::Ended;
use crate::{Error, Grid, Value};

/// Plain calls that the program has not collected.
#[derive(Default)]
pub(super) struct Calls {
    /// Each with its end, if it has ended.
    all: BTreeMap<TaskId, Option<Ended>>,
    /// Calls in progress whose results the program no longer wants.
    abandoned: BTreeMap<TaskId, Vec<DatumId>>,
}

/// The owner of a task that has ended.
pub(super) enum Whose {
    /// A plain call.
    Call,
    /// An abandoned plain call, with its results.
    Abandoned(Vec<DatumId>),
    /// Not a plain call: the task of a group.
    Group(TaskReport),
}

impl Calls {
    pub(super) fn on_end(&mut self, at: Time, server: Option<NodeId>, report: TaskReport) -> Whose {
        if let Some(call) = self.all.get_mut(&report.task) {
            *call = Some(Ended { at, server, report });
            return Whose::Call;
        }
        self.abandoned.remove(&report.task).map_or(Whose::Group(report), Whose::Abandoned)
    }

    /// A call that was not collected, with its end.
    pub(super) fn get(&self, task: TaskId) -> Option<Option<&Ended>> {
        self.all.get(&task).map(Option::as_ref)
    }

    /// Number of calls that have not ended.
    pub(super) fn under_way(&self) -> usize {
        self.all.values().filter(|end| end.is_none()).count() + self.abandoned.len()
    }

    /// True if the call has ended; a collected call has ended.
    fn has_ended(&self, task: TaskId) -> bool {
        self.get(task).is_none_or(|ended| ended.is_some())
    }

    /// Takes the end of a call, if it has ended.
    fn collect(&mut self, task: TaskId) -> Option<Result<Ended, Error>> {
        match self.all.get(&task) {
            Some(None) => None,
            Some(Some(_)) => self.all.remove(&task).flatten().map(Ok),
            None => Some(Err(Error::Usage("the call's result was collected already".into()))),
        }
    }

    /// Abandons a call. Returns the results that have already arrived.
    fn abandon(&mut self, task: TaskId, outputs: Vec<DatumId>) -> Vec<DatumId> {
        match self.all.remove(&task) {
            Some(Some(_)) => outputs,
            Some(None) => {
                self.abandoned.insert(task, outputs);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    pub(super) fn check(&self) {
        let is_one = |task: &TaskId| !self.all.contains_key(task);
        assert!(self.abandoned.keys().all(is_one), "a call that was given up is not waited for");
    }
}

/// Calls whose ends have to be reported.
#[derive(Default)]
pub(super) struct Ends {
    /// Calls in progress.
    noted: BTreeSet<TaskId>,
    /// Calls that have ended and are not reported yet.
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

    pub(super) fn note(&mut self, task: TaskId, has_ended: bool) {
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
    /// Run time of the function, seconds; 0 if it did not run.
    pub run_s: f64,
    /// When the client received its report, by the session's clock ([`Grid::now`]).
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

/// Returns the end of a call, plain or in a group. `None` while it is in progress, and for a call that the session does not know.
fn end_of(state: &State, task: TaskId) -> Option<&Ended> {
    match state.calls.get(task) {
        Some(call) => call,
        None => state.groups.of_task(task)?.end_of(task),
    }
}

impl Grid {
    /// Sends a plain call. `only` is the server that has to run it, if there is one; `calibrates` is set if the call
    /// measures that server.
    pub(crate) fn send_call(
        &self,
        prepared: Prepared,
        (limit, transfers): (Option<Duration>, TransferLimits),
        only: Option<NodeId>,
        calibrates: bool,
        callee: Option<Callee>,
    ) -> Result<Pending, Error> {
        let Prepared { mut task, values, outputs } = prepared;
        let mut sources = Vec::with_capacity(values.len());
        for (datum, value) in &values {
            self.put(*datum, value);
            sources.push((*datum, value.meta.clone()));
        }
        let id = task.id;
        self.state().calls.all.insert(id, None);
        let is_once = callee.is_some() || task.object().is_some() || task.terms.gang > 0;
        task.terms = Terms { only, calibrates, is_once, ..task.terms };
        if let Some(callee) = callee {
            self.expect_call_backs(id, callee)?;
        }
        let to_ns = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let limits = CallLimits {
            whole_ns: limit.map(to_ns),
            arguments_ns: transfers.arguments.map(to_ns),
            results_ns: transfers.results.map(to_ns),
        };
        self.command(Command::Call { task, sources, limits });
        Ok(Pending { grid: self.clone(), task: id, outputs, collected: false })
    }

    pub(crate) fn call_ended(&self, task: TaskId) -> bool {
        self.absorb();
        self.state().calls.has_ended(task)
    }

    /// Waits until one of these calls has ended, or the time is over.
    pub(crate) fn await_any(&self, tasks: &[TaskId], limit: Duration) -> Result<(), Error> {
        let has_ended = |state: &State| tasks.iter().any(|task| state.calls.has_ended(*task));
        match self.wait(Some(limit), |state| has_ended(state).then_some(())) {
            Err(Error::TimedOut { .. }) => Ok(()),
            other => other,
        }
    }

    /// Returns the run time in seconds of a call that has ended, and drops its results. Returns the call itself while
    /// it is in progress.
    pub(crate) fn take_seconds(&self, pending: Pending) -> Result<Result<f64, TaskError>, Pending> {
        self.absorb();
        let seconds = |ended: &Ended| {
            let seconds = ns_to_seconds(ended.report.timing.run_ns.max(1));
            ended.report.outcome.as_ref().map(|_| seconds).map_err(Clone::clone)
        };
        let ended = self.state().calls.get(pending.task).flatten().map(seconds);
        // Dropping the call abandons its results.
        ended.ok_or(pending)
    }

    pub(crate) fn await_call(&self, task: TaskId, limit: Option<Duration>) -> Result<(), Error> {
        self.wait(limit, |state| state.calls.has_ended(task).then_some(()))
    }

    pub(crate) fn wait_call(&self, task: TaskId, outputs: &[(DatumId, Meta)]) -> Result<Vec<Value>, Error> {
        let ended = self.wait(None, |state| state.calls.collect(task))??;
        let results = ended.report.outcome?;
        let mut values = Vec::with_capacity(outputs.len());
        for (datum, _) in outputs {
            let described = results.iter().find(|(made, _)| made == datum).map(|(_, meta)| meta.clone());
            let value = self.0.backend.value(*datum).or_else(|| described.map(Value::placeholder));
            self.0.backend.forget(*datum);
            values.push(value.ok_or_else(|| Error::Usage(format!("result {datum} is not in the client's store")))?);
        }
        Ok(values)
    }

    pub(crate) fn abandon_call(&self, task: TaskId, outputs: &[(DatumId, Meta)]) {
        let mut state = self.state();
        state.ends.forget(task);
        let here = state.calls.abandon(task, outputs.iter().map(|(datum, _)| *datum).collect());
        drop(state);
        self.forget_values(here);
    }

    pub(crate) fn cancel(&self, tasks: Vec<TaskId>) {
        self.command(Command::Cancel { tasks });
    }

    pub(crate) fn note_end(&self, task: TaskId) {
        let mut state = self.state();
        let has_ended = match state.calls.get(task) {
            Some(ended) => ended.is_some(),
            None => match state.groups.of_task(task) {
                Some(group) => group.end_of(task).is_some(),
                None => return,
            },
        };
        state.ends.note(task, has_ended);
    }

    /// Waits until a call of a group has ended; a forgotten call has ended.
    pub(crate) fn await_task(&self, task: TaskId, limit: Option<Duration>) -> Result<(), Error> {
        self.wait_unless_interrupted(limit, |state| {
            state.groups.of_task(task).is_none_or(|group| group.end_of(task).is_some()).then_some(())
        })
    }

    /// Waits until a call of a group has a server, or has failed without one.
    pub(crate) fn await_server(&self, task: TaskId) -> Result<Option<NodeId>, Error> {
        self.wait(None, |state| match state.groups.of_task(task) {
            None => Some(None),
            Some(group) => match group.end_of(task) {
                Some(ended) => Some(ended.server),
                None => group.server_of(task).map(Some),
            },
        })
    }

    /// Waits until `look` returns a result. It is called immediately, and then after every event. Its argument are the
    /// noted ends ([`Pending::note_end`](crate::Pending::note_end)) that were not reported yet: each is reported once,
    /// to the first thread that looks. It runs under the session's lock, so it must not call or drop anything of the
    /// session.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after `limit`; also if the session is closed.
    pub fn await_ends<R>(
        &self,
        limit: Option<Duration>,
        mut look: impl FnMut(&[TaskId]) -> Option<R>,
    ) -> Result<R, Error> {
        self.wait(limit, |state| look(&std::mem::take(&mut state.ends.untold)))
    }

    /// Like [`Grid::await_ends`], for a thread that only watches for ends: a function that makes calls keeps its slot meanwhile,
    /// since it may compute in another thread.
    ///
    /// # Errors
    /// As for [`Grid::await_ends`].
    pub fn watch_ends<R>(
        &self,
        limit: Option<Duration>,
        mut look: impl FnMut(&[TaskId]) -> Option<R>,
    ) -> Result<R, Error> {
        self.wait_by(limit, || None::<()>, |state| look(&std::mem::take(&mut state.ends.untold)))
    }

    /// Started calls, plain or in groups, that wait for results of other calls: they occupy no slots.
    pub fn paused(&self) -> Vec<TaskId> {
        self.absorb();
        self.state().paused.iter().copied().collect()
    }

    pub(crate) fn call_end(&self, task: TaskId) -> Option<CallEnd> {
        self.absorb();
        let state = self.state();
        end_of(&state, task).map(|ended| CallEnd::new(ended, state.directory.names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_core::node::message::Timing;

    #[test]
    fn a_call_is_collected_once_and_results_of_one_given_up_are_dropped() {
        let client = NodeId(1);
        let (kept, given_up) = (TaskId { client, serial: 1 }, TaskId { client, serial: 2 });
        let made = DatumId { client, serial: 3 };
        let ended = |task| TaskReport { task, outcome: Ok(Vec::new()), timing: Timing { run_ns: 0, age_ns: 0 } };
        let mut calls = Calls::default();
        calls.all.insert(kept, None);
        calls.all.insert(given_up, None);
        assert!(calls.collect(kept).is_none());
        assert!(calls.abandon(given_up, vec![made]).is_empty(), "its result is not here yet");
        calls.check();
        assert!(matches!(calls.on_end(Time::default(), None, ended(kept)), Whose::Call));
        assert!(matches!(calls.on_end(Time::default(), None, ended(given_up)), Whose::Abandoned(all) if all == [made]));
        assert!(matches!(calls.on_end(Time::default(), None, ended(given_up)), Whose::Group(_)));
        assert!(calls.collect(kept).is_some_and(|ended| ended.is_ok()));
        assert!(calls.collect(kept).is_some_and(|again| again.is_err()));
    }
}
