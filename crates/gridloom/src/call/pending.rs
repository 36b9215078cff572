//! Plain calls: sent, watched, collected or abandoned.

use std::sync::Arc;
use std::time::Duration;

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, Meta, NodeId, TaskError, TaskId, Time};
use gridloom_core::call::{CallTimeouts, Deferral};
use gridloom_core::graph::{CallOptions, Task};
use gridloom_core::node::Command;
use gridloom_idl::Signature;

use super::results::Results;
use crate::report::TaskEnd;
use crate::session::{CallEnd, CallbackHandler, Session, State, expect_call_backs};
use crate::{Error, Value};

/// A checked call: the task, and the values that must be in the client's store before it is sent.
pub(crate) struct Prepared {
    pub(crate) task: Task,
    pub(crate) values: Vec<(DatumId, Value)>,
    /// Descriptions of results, in the order of their parameters.
    pub(crate) outputs: Vec<(DatumId, Meta)>,
}

/// Time limits for the transfers of a plain call; `None` means no limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TransferLimits {
    /// From sending the call to a server until its large arguments are there, including waits for room.
    pub arguments: Option<Duration>,
    /// From the end of the function until its results are here.
    pub results: Option<Duration>,
}

/// How a plain call is sent.
#[derive(Default)]
pub(super) struct SendOptions {
    /// Time limit of the whole call.
    pub(super) limit: Option<Duration>,
    pub(super) transfers: TransferLimits,
    /// The only server that may run it, if set.
    pub(super) only: Option<NodeId>,
    /// True if it measures its server.
    pub(super) calibrates: bool,
    /// Receives its callbacks, if its function has some.
    pub(super) callee: Option<CallbackHandler>,
    /// Set if it waits in the client until a server has a free slot.
    pub(super) deferral: Option<Deferral>,
}

/// A plain call in progress.
#[derive(Debug)]
pub struct PendingCall {
    session: Session,
    task: TaskId,
    signature: Arc<Signature>,
    outputs: Vec<(DatumId, Meta)>,
    /// True if it is the call of a method.
    is_method: bool,
    collected: bool,
}

impl PendingCall {
    /// Sends a plain call.
    pub(super) fn send(
        session: &Session,
        signature: &Arc<Signature>,
        prepared: Prepared,
        options: SendOptions,
    ) -> Result<PendingCall, Error> {
        let SendOptions { limit, transfers, only, calibrates, callee, deferral } = options;
        let Prepared { mut task, values, outputs } = prepared;
        let is_method = task.object().is_some();
        let mut sources = Vec::with_capacity(values.len());
        for (datum, value) in &values {
            session.put(*datum, value);
            sources.push((*datum, value.meta.clone()));
        }
        let id = task.id;
        session.state().calls.begin(id, deferral.is_some());
        let is_once = callee.is_some() || task.object().is_some() || task.options.gang > 0;
        task.options = CallOptions { bound_to: only, is_measuring: calibrates, is_once, ..task.options };
        if let Some(callee) = callee {
            expect_call_backs(session, id, callee)?;
        }
        let to_ns = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let limits = CallTimeouts {
            whole_ns: limit.map(to_ns),
            arguments_ns: transfers.arguments.map(to_ns),
            results_ns: transfers.results.map(to_ns),
        };
        session.command(Command::Call { task, sources, limits, deferral: deferral.map(Box::new) });
        let (session, signature) = (session.clone(), signature.clone());
        Ok(PendingCall { session, task: id, signature, outputs, is_method, collected: false })
    }

    /// True if it has ended.
    pub fn is_done(&self) -> bool {
        self.session.state_now().calls.has_ended(self.task)
    }

    /// Makes [`Grid::await_ends`](crate::Grid::await_ends) report its end, immediately if it has ended.
    pub fn note_end(&self) {
        self.session.state().note_end(self.task);
    }

    /// The id by which [`Grid::await_ends`](crate::Grid::await_ends) reports it.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// How it ended; `None` while it is in progress.
    pub fn end(&self) -> Option<CallEnd> {
        self.session.state_now().call_end(self.task)
    }

    /// Returns an object that waits for its end without collecting its results, independent of the call itself: a
    /// thread that is interrupted can wait again.
    pub fn watch(&self) -> Watch {
        Watch { session: self.session.clone(), task: self.task }
    }

    /// Waits until one of these calls has ended, or the time is over.
    pub(crate) fn await_any(session: &Session, calls: &[TaskId], limit: Duration) -> Result<(), Error> {
        let has_ended = |state: &State| calls.iter().any(|call| state.calls.has_ended(*call));
        match session.wait(Some(limit), |state| has_ended(state).then_some(())) {
            Err(Error::TimedOut { .. }) => Ok(()),
            other => other,
        }
    }

    /// Returns the run time in seconds of a call that has ended, and drops its results. Returns the call itself while
    /// it is in progress.
    pub(crate) fn take_seconds(self) -> Result<Result<f64, TaskError>, PendingCall> {
        let seconds = |ended: &TaskEnd| {
            let seconds = ns_to_seconds(ended.report.timing.run_ns.max(1));
            ended.report.outcome.as_ref().map(|_| seconds).map_err(Clone::clone)
        };
        let ended = self.session.state_now().calls.get(self.task).flatten().map(seconds);
        // Dropping the call abandons its results.
        ended.ok_or(self)
    }

    /// True if it is the call of a method of an object.
    pub fn is_method(&self) -> bool {
        self.is_method
    }

    /// Waits for its results.
    ///
    /// # Errors
    /// If the call failed.
    pub fn wait(mut self) -> Result<Results<Value>, Error> {
        self.collected = true;
        let ended = self.session.wait(None, |state| state.calls.collect(self.task))??;
        let results = ended.report.outcome?;
        let mut values = Vec::with_capacity(self.outputs.len());
        for (datum, _) in &self.outputs {
            let described = results.iter().find(|(made, _)| made == datum).map(|(_, meta)| meta.clone());
            let value = self.session.value(*datum).or_else(|| described.map(Value::placeholder));
            self.session.forget_values(vec![*datum]);
            values.push(value.ok_or_else(|| Error::Usage(format!("result {datum} is not in the client's store")))?);
        }
        Ok(Results::new(&self.signature, values))
    }

    /// Requests its cancellation; [`PendingCall::wait`] then returns [`gridloom_base::TaskError::Cancelled`].
    pub fn cancel(&self) {
        self.session.command(Command::Cancel { tasks: vec![self.task] });
    }
}

/// Observes the end of a plain call without collecting its results, or requests its cancellation.
#[derive(Clone, Debug)]
pub struct Watch {
    session: Session,
    task: TaskId,
}

impl Watch {
    /// True if the call has ended.
    pub fn is_done(&self) -> bool {
        self.session.state_now().calls.has_ended(self.task)
    }

    /// Waits until the call has completed or failed, but no longer than `limit`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if it has not ended by then; it keeps running. Also if the session is closed.
    pub fn wait(&self, limit: Option<Duration>) -> Result<(), Error> {
        self.session.wait(limit, |state| state.calls.has_ended(self.task).then_some(()))
    }

    /// Requests the call's cancellation like [`PendingCall::cancel`], unless it has ended.
    pub fn cancel(&self) {
        if !self.is_done() {
            self.session.command(Command::Cancel { tasks: vec![self.task] });
        }
    }

    /// When it was sent to a server, by the session's clock ([`Grid::now`](crate::Grid::now)); `None` while it waits for a free
    /// slot, and for a call that does not wait for one ([`Function::deferred`](crate::Function::deferred)).
    pub fn sent_s(&self) -> Option<f64> {
        self.session.state_now().calls.sent_at(self.task).map(Time::seconds)
    }

    /// Cancels a deferred call that was not sent to a server. Returns true if it is cancelled.
    pub fn cancel_unsent(&self) -> bool {
        self.session.state().calls.begin_cancel(self.task);
        self.session.command(Command::CancelUnsent { tasks: vec![self.task] });
        self.session.state_now().calls.end_cancel(self.task)
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if !self.collected {
            let mut state = self.session.state();
            state.ends.forget(self.task);
            let outputs = self.outputs.iter().map(|(datum, _)| *datum).collect();
            let here = state.calls.abandon(self.task, outputs);
            drop(state);
            self.session.forget_values(here);
        }
    }
}
