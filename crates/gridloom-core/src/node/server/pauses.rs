//! Started tasks that wait for results of other tasks. Their clients are notified, because they may send other tasks meanwhile.
//!
//! Short waits are not reported: a function may wait thousands of times a second.

use std::collections::{BTreeMap, BTreeSet};

use super::{Server, send};
use crate::node::ServerTimer;
use crate::node::message::TaskToClient;
use crate::node::protocol::Effect;
use gridloom_base::time::MILLISECOND_NS;
use gridloom_base::{TaskId, Time};

/// Waits longer than this are reported.
const REPORT_AFTER_NS: u64 = 20 * MILLISECOND_NS;

#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// Tasks whose wait is not reported yet, with the time at which each began waiting.
    unreported_since: BTreeMap<TaskId, Time>,
    reported: BTreeSet<TaskId>,
    /// Total time that each task has waited, and the time at which its current wait began.
    waited: BTreeMap<TaskId, (u64, Option<Time>)>,
    is_timer_set: bool,
}

impl Pauses {
    pub(super) fn len(&self) -> usize {
        self.waited.len()
    }

    /// Records that a task begins to wait.
    fn begin(&mut self, now: Time, task: TaskId, out: &mut Vec<Effect>) {
        self.unreported_since.entry(task).or_insert(now);
        self.waited.entry(task).or_default().1.get_or_insert(now);
        if !std::mem::replace(&mut self.is_timer_set, true) {
            out.push(Effect::SetTimer { timer: ServerTimer::Pauses.into(), at: now + REPORT_AFTER_NS });
        }
    }

    /// Records that a task resumes. Returns true if its wait was reported to its client.
    fn resume(&mut self, now: Time, task: TaskId) -> bool {
        if let Some((waited_ns, since)) = self.waited.get_mut(&task) {
            *waited_ns += since.take().map_or(0, |since| now.since(since));
        }
        self.unreported_since.remove(&task);
        self.reported.remove(&task)
    }

    /// Returns the total time that a started task has waited so far.
    pub(super) fn waited_ns(&self, now: Time, task: TaskId) -> u64 {
        self.waited.get(&task).map_or(0, |(waited_ns, since)| waited_ns + since.map_or(0, |since| now.since(since)))
    }

    /// Records the end of a task. Returns the total time that it has waited.
    pub(super) fn end(&mut self, now: Time, task: TaskId) -> u64 {
        self.resume(now, task);
        self.waited.remove(&task).map_or(0, |(waited_ns, _)| waited_ns)
    }

    /// Removes and returns the tasks whose wait is to be reported now.
    fn take_due(&mut self, now: Time, out: &mut Vec<Effect>) -> Vec<TaskId> {
        let due: Vec<TaskId> = self
            .unreported_since
            .iter()
            .filter(|(_, since)| **since + REPORT_AFTER_NS <= now)
            .map(|(task, _)| *task)
            .collect();
        due.iter().for_each(|task| _ = self.unreported_since.remove(task));
        self.reported.extend(&due);
        self.is_timer_set = !self.unreported_since.is_empty();
        if let Some(next) = self.unreported_since.values().min() {
            out.push(Effect::SetTimer { timer: ServerTimer::Pauses.into(), at: *next + REPORT_AFTER_NS });
        }
        due
    }
}

impl Server {
    /// Handles a started task that begins to wait or resumes.
    pub(super) fn on_calling(&mut self, now: Time, task: TaskId, waits: bool, out: &mut Vec<Effect>) {
        self.admission.set_calling(task, waits);
        self.learning.set_computing(now, self.admission.computing());
        if !self.admission.get(task).is_some_and(|entry| entry.state.has_begun()) {
            return;
        }
        if waits {
            self.pauses.begin(now, task, out);
        } else if self.pauses.resume(now, task) {
            send(out, task.client, TaskToClient::Paused { task, waits });
        }
        self.pump(now, out);
    }

    pub(super) fn report_pauses(&mut self, now: Time, out: &mut Vec<Effect>) {
        for task in self.pauses.take_due(now, out) {
            send(out, task.client, TaskToClient::Paused { task, waits: true });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::NodeId;

    #[test]
    fn only_long_waits_are_reported() {
        let (mut pauses, mut out) = (Pauses::default(), Vec::new());
        let task = |serial| TaskId { client: NodeId(7), serial };
        pauses.begin(Time(0), task(1), &mut out);
        pauses.begin(Time(5), task(2), &mut out);
        assert_eq!(out.len(), 1, "one timer for both");
        assert!(!pauses.resume(Time(5), task(1)), "its wait was not reported");
        out.clear();
        assert_eq!(pauses.take_due(Time(REPORT_AFTER_NS), &mut out), []);
        assert_eq!(out, [Effect::SetTimer { timer: ServerTimer::Pauses.into(), at: Time(5 + REPORT_AFTER_NS) }]);
        assert_eq!(pauses.take_due(Time(5 + REPORT_AFTER_NS), &mut out), [task(2)]);
        let later = Time(7 + REPORT_AFTER_NS);
        assert!(pauses.resume(later, task(2)) && !pauses.resume(later, task(2)));
        pauses.begin(later, task(1), &mut out);
        assert_eq!((pauses.end(later, task(2)), pauses.end(Time(later.0 + 3), task(1))), (2 + REPORT_AFTER_NS, 8));
        assert_eq!((pauses.len(), pauses.end(later, task(1))), (0, 0));
    }
}
