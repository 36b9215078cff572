//! Plain calls of a session: sent, waited for, given up.

use std::time::Duration;

use gridloom_core::base::time::ns_to_seconds;
use gridloom_core::base::{DatumId, Meta, NodeId, TaskError, TaskId};
use gridloom_core::node::Command;

use super::call_backs::Callee;
use super::state::{EndedCall, State};
use crate::function::{Pending, Prepared};
use crate::{Error, Grid, Value};

impl Grid {
    /// `only` is the server that has to run it, if one has to; `calibrates` if it is to be measured there.
    pub(crate) fn send_call(
        &self,
        prepared: Prepared,
        limit: Option<Duration>,
        only: Option<NodeId>,
        calibrates: bool,
        callee: Option<Callee>,
    ) -> Result<Pending, Error> {
        let Prepared { task, values, outputs } = prepared;
        let mut sources = Vec::with_capacity(values.len());
        for (datum, value) in &values {
            self.put(*datum, value);
            sources.push((*datum, value.meta.clone()));
        }
        let id = task.id;
        self.state().calls.insert(id, None);
        let is_once = callee.is_some() || task.object.is_some();
        if let Some(callee) = callee {
            self.expect_call_backs(id, callee)?;
        }
        let limit_ns = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.command(Command::Call { task, sources, limit_ns, only, calibrates, is_once });
        Ok(Pending { grid: self.clone(), task: id, outputs, collected: false })
    }

    pub(crate) fn call_ended(&self, task: TaskId) -> bool {
        self.absorb();
        self.state().calls.get(&task).is_none_or(Option::is_some)
    }

    /// Waits until one of these calls has ended, or the time is up.
    pub(crate) fn await_any(&self, tasks: &[TaskId], limit: Duration) -> Result<(), Error> {
        let has_ended = |state: &State| tasks.iter().any(|task| state.calls.get(task).is_none_or(Option::is_some));
        match self.wait(Some(limit), |state| has_ended(state).then_some(())) {
            Err(Error::TimedOut { .. }) => Ok(()),
            other => other,
        }
    }

    /// Seconds that a call ran that has ended, whose results are dropped; the call itself while it is under way.
    pub(crate) fn take_seconds(&self, pending: Pending) -> Result<Result<f64, TaskError>, Pending> {
        self.absorb();
        let ended = self.state().calls.get(&pending.task).and_then(|ended| {
            ended.as_ref().map(|EndedCall { report, .. }| {
                report.outcome.as_ref().map(|_| ns_to_seconds(report.timing.run_ns.max(1))).map_err(Clone::clone)
            })
        });
        // Dropping it gives the results up.
        ended.ok_or(pending)
    }

    pub(crate) fn await_call(&self, task: TaskId, limit: Option<Duration>) -> Result<(), Error> {
        self.wait(limit, |state| state.calls.get(&task).is_none_or(Option::is_some).then_some(()))
    }

    pub(crate) fn wait_call(&self, task: TaskId, outputs: &[(DatumId, Meta)]) -> Result<Vec<Value>, Error> {
        let report = self.wait(None, |state| match state.calls.get(&task) {
            Some(Some(_)) => state.calls.remove(&task).flatten().map(Some),
            Some(None) => None,
            None => Some(None),
        })?;
        let EndedCall { report, .. } =
            report.ok_or_else(|| Error::Usage("the call's result was collected already".into()))?;
        let results = report.outcome?;
        let mut values = Vec::with_capacity(outputs.len());
        for (datum, _) in outputs {
            let described = results.iter().find(|(made, _)| made == datum).map(|(_, meta)| meta.clone());
            let value = self.0.backend.take(*datum).or_else(|| described.map(Value::placeholder));
            values.push(value.ok_or_else(|| Error::Usage(format!("result {datum} is not in the client's store")))?);
        }
        Ok(values)
    }

    pub(crate) fn abandon_call(&self, task: TaskId, outputs: &[(DatumId, Meta)]) {
        let mut state = self.state();
        state.noted.remove(&task);
        match state.calls.remove(&task) {
            Some(Some(_)) => {
                drop(state);
                outputs.iter().for_each(|(datum, _)| self.0.backend.forget(*datum));
            }
            Some(None) => {
                state.abandoned.insert(task, outputs.iter().map(|(datum, _)| *datum).collect());
            }
            None => {}
        }
    }

    pub(crate) fn cancel(&self, tasks: Vec<TaskId>) {
        self.command(Command::Cancel { tasks });
    }
}
