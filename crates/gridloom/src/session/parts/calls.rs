//! Plain calls that the program has not collected, with their ends.

use std::collections::BTreeMap;

use gridloom_base::{DatumId, NodeId, TaskId, Time};
use gridloom_core::node::message::TaskReport;

use crate::Error;
use crate::report::TaskEnd;

/// Plain calls that the program has not collected.
#[derive(Default)]
pub(crate) struct Calls {
    /// Each with its end, if it has ended.
    all: BTreeMap<TaskId, Option<TaskEnd>>,
    /// Calls in progress whose results the program no longer wants.
    abandoned: BTreeMap<TaskId, Vec<DatumId>>,
}

/// The owner of a task that has ended.
pub(crate) enum Owner {
    /// A plain call.
    Call,
    /// An abandoned plain call, with its results.
    Abandoned(Vec<DatumId>),
    /// Not a plain call: the task of a group.
    Group(TaskReport),
}

impl Calls {
    /// Notes a call that is about to be sent.
    pub(crate) fn begin(&mut self, task: TaskId) {
        self.all.insert(task, None);
    }

    pub(crate) fn on_end(&mut self, at: Time, server: Option<NodeId>, report: TaskReport) -> Owner {
        if let Some(call) = self.all.get_mut(&report.task) {
            *call = Some(TaskEnd { at, server, report });
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
            Some(Some(_)) => self.all.remove(&task).flatten().map(Ok),
            None => Some(Err(Error::Usage("the call's result was collected already".into()))),
        }
    }

    /// Abandons a call. Returns the results that have already arrived.
    pub(crate) fn abandon(&mut self, task: TaskId, outputs: Vec<DatumId>) -> Vec<DatumId> {
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
        assert!(self.abandoned.keys().all(is_one), "a call that was given up is not waited for");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_core::node::message::TaskTimes;

    #[test]
    fn a_call_is_collected_once_and_results_of_one_given_up_are_dropped() {
        let client = NodeId(1);
        let (kept, given_up) = (TaskId { client, serial: 1 }, TaskId { client, serial: 2 });
        let made = DatumId { client, serial: 3 };
        let ended = |task| TaskReport { task, outcome: Ok(Vec::new()), timing: TaskTimes { run_ns: 0, age_ns: 0 } };
        let mut calls = Calls::default();
        calls.begin(kept);
        calls.begin(given_up);
        assert!(calls.collect(kept).is_none());
        assert!(calls.abandon(given_up, vec![made]).is_empty(), "its result is not here yet");
        calls.check();
        assert!(matches!(calls.on_end(Time::default(), None, ended(kept)), Owner::Call));
        assert!(matches!(calls.on_end(Time::default(), None, ended(given_up)), Owner::Abandoned(all) if all == [made]));
        assert!(matches!(calls.on_end(Time::default(), None, ended(given_up)), Owner::Group(_)));
        assert!(calls.collect(kept).is_some_and(|ended| ended.is_ok()));
        assert!(calls.collect(kept).is_some_and(|again| again.is_err()));
    }
}
