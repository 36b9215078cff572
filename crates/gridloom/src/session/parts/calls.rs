//! Plain calls that the program has not collected, with their ends.

use std::collections::BTreeMap;

use gridloom_base::{DatumId, NodeId, TaskError, TaskId, Time};
use gridloom_core::node::message::TaskReport;

use crate::Error;
use crate::report::TaskEnd;

/// Plain calls that the program has not collected.
#[derive(Default)]
pub(crate) struct Calls {
    /// Each with its end, if it has ended.
    all: BTreeMap<TaskId, Option<TaskEnd>>,
    /// Times at which deferred calls were sent; `None` for those that wait for a free slot.
    deferred: BTreeMap<TaskId, Option<Time>>,
    /// Calls that threads try to cancel before they are sent.
    cancelling: BTreeMap<TaskId, Cancelling>,
    /// Calls in progress whose results the program no longer wants.
    abandoned: BTreeMap<TaskId, Vec<DatumId>>,
}

/// An attempt to cancel a call before it is sent. Another thread may collect the call meanwhile.
#[derive(Default)]
struct Cancelling {
    threads: usize,
    is_cancelled: bool,
}

/// The owner of a task that has ended.
pub(crate) enum Owner {
    /// A plain call.
    Call,
    /// An abandoned plain call, with its results.
    Abandoned(Vec<DatumId>),
    /// A task of a group, not a plain call.
    Group(TaskReport),
}

impl Calls {
    /// Notes a call that is about to be made.
    pub(crate) fn begin(&mut self, task: TaskId, is_deferred: bool) {
        self.all.insert(task, None);
        if is_deferred {
            self.deferred.insert(task, None);
        }
    }

    /// Notes that a deferred call was sent to a server.
    pub(crate) fn on_sent(&mut self, at: Time, task: TaskId) {
        if let Some(sent) = self.deferred.get_mut(&task) {
            *sent = Some(at);
        }
    }

    /// When a deferred call that was not collected was sent, if it was.
    pub(crate) fn sent_at(&self, task: TaskId) -> Option<Time> {
        self.deferred.get(&task).copied().flatten()
    }

    /// Notes that a thread is about to cancel a call if it was not sent.
    pub(crate) fn begin_cancel(&mut self, task: TaskId) {
        let is_cancelled = self.all.get(&task).and_then(Option::as_ref).is_some_and(is_cancelled_unsent);
        let cancelling = self.cancelling.entry(task).or_default();
        cancelling.threads += 1;
        cancelling.is_cancelled |= is_cancelled;
    }

    /// Returns true if the call was cancelled and not sent.
    pub(crate) fn end_cancel(&mut self, task: TaskId) -> bool {
        let Some(cancelling) = self.cancelling.get_mut(&task) else { return false };
        cancelling.threads -= 1;
        let is_cancelled = cancelling.is_cancelled;
        if cancelling.threads == 0 {
            self.cancelling.remove(&task);
        }
        is_cancelled
    }

    pub(crate) fn on_end(&mut self, at: Time, server: Option<NodeId>, report: TaskReport) -> Owner {
        if let Some(call) = self.all.get_mut(&report.task) {
            let end = call.insert(TaskEnd { at, server, report });
            if let Some(cancelling) = self.cancelling.get_mut(&end.report.task) {
                cancelling.is_cancelled = is_cancelled_unsent(end);
            }
            return Owner::Call;
        }
        self.abandoned.remove(&report.task).map_or(Owner::Group(report), Owner::Abandoned)
    }

    /// A call that was not collected, with its end.
    pub(crate) fn get(&self, task: TaskId) -> Option<Option<&TaskEnd>> {
        self.all.get(&task).map(Option::as_ref)
    }

    /// Number of calls that have not ended.
    pub(crate) fn under_way(&self) -> usize {
        self.all.values().filter(|end| end.is_none()).count() + self.abandoned.len()
    }

    /// True if the call has ended; a collected call has ended.
    pub(crate) fn has_ended(&self, task: TaskId) -> bool {
        self.get(task).is_none_or(|ended| ended.is_some())
    }

    /// Takes the end of a call, if it has ended.
    pub(crate) fn collect(&mut self, task: TaskId) -> Option<Result<TaskEnd, Error>> {
        match self.all.get(&task) {
            Some(None) => None,
            Some(Some(_)) => {
                self.deferred.remove(&task);
                self.all.remove(&task).flatten().map(Ok)
            }
            None => Some(Err(Error::Usage("the call's result was collected already".into()))),
        }
    }

    /// Abandons a call. Returns the results that have already arrived.
    pub(crate) fn abandon(&mut self, task: TaskId, outputs: Vec<DatumId>) -> Vec<DatumId> {
        self.deferred.remove(&task);
        match self.all.remove(&task) {
            Some(Some(_)) => outputs,
            Some(None) => {
                self.abandoned.insert(task, outputs);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    pub(crate) fn check(&self) {
        let is_one = |task: &TaskId| !self.all.contains_key(task);
        assert!(self.deferred.keys().all(|task| self.all.contains_key(task)), "a deferred call is not collected");
        assert!(self.abandoned.keys().all(is_one), "a call that was given up is not waited for");
    }
}

/// True if a call was cancelled and no server had it.
fn is_cancelled_unsent(end: &TaskEnd) -> bool {
    end.server.is_none() && matches!(end.report.outcome, Err(TaskError::Cancelled))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_core::node::message::TaskTimes;

    #[test]
    fn a_call_is_collected_once_and_results_of_one_abandoned_are_dropped() {
        let client = NodeId(1);
        let (kept, given_up) = (TaskId { client, serial: 1 }, TaskId { client, serial: 2 });
        let made = DatumId { client, serial: 3 };
        let ended = |task| TaskReport { task, outcome: Ok(Vec::new()), timing: TaskTimes { run_ns: 0, age_ns: 0 } };
        let mut calls = Calls::default();
        calls.begin(kept, true);
        calls.begin(given_up, false);
        assert!(calls.collect(kept).is_none());
        assert!(calls.abandon(given_up, vec![made]).is_empty(), "its result is not here yet");
        calls.check();
        calls.begin_cancel(kept);
        assert!(matches!(calls.on_end(Time::default(), None, ended(kept)), Owner::Call));
        assert!(!calls.end_cancel(kept), "it has ended");
        assert!(matches!(calls.on_end(Time::default(), None, ended(given_up)), Owner::Abandoned(all) if all == [made]));
        assert!(matches!(calls.on_end(Time::default(), None, ended(given_up)), Owner::Group(_)));
        assert!(calls.collect(kept).is_some_and(|ended| ended.is_ok()));
        assert!(calls.collect(kept).is_some_and(|again| again.is_err()));
    }

    #[test]
    fn a_call_that_was_not_sent_is_cancelled_even_if_another_thread_collects_it() {
        let (client, task) = (NodeId(1), TaskId { client: NodeId(1), serial: 1 });
        let cancelled =
            TaskReport { task, outcome: Err(TaskError::Cancelled), timing: TaskTimes { run_ns: 0, age_ns: 0 } };
        for (server, is_unsent) in [(None, true), (Some(client), false)] {
            let mut calls = Calls::default();
            calls.begin(task, true);
            calls.begin_cancel(task);
            calls.begin_cancel(task);
            assert!(matches!(calls.on_end(Time::default(), server, cancelled.clone()), Owner::Call));
            assert!(calls.collect(task).is_some_and(|ended| ended.is_ok()));
            assert_eq!([calls.end_cancel(task), calls.end_cancel(task)], [is_unsent; 2]);
            assert!(calls.cancelling.is_empty());
        }
    }
}
