//! The queue at one server, and the expected times of its running and waiting tasks.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{NodeId, TaskId, Time};

/// A task whose run time exceeds the expected one by this factor makes the other predictions there doubtful.
const OVERRUN: f64 = 2.5;

/// The expected run time of a task on its server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in super::super) struct ExpectedRun {
    pub(in super::super) run_s: f64,
    /// True if calls of the function were measured there. If not, the time is only a rough guess.
    pub(in super::super) is_measured: bool,
    /// True if another server may run it.
    pub(in super::super) may_move: bool,
}

/// The reason why a task is not in the queue yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum WaitReason {
    /// Its data are being sent to its server.
    Data,
    /// The tasks that produce its data have not ended.
    Results,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) task: TaskId,
    pub(super) expected: ExpectedRun,
    /// When it is assumed to have begun to run.
    pub(super) since: Option<Time>,
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) slots: usize,
    pub(super) tasks: BTreeMap<u64, Queued>,
    /// Number of the first waiting task. All later ones wait too.
    pub(super) first_waiting: u64,
    pub(super) waiting: usize,
    /// Number of waiting tasks that may move.
    pub(super) movable: usize,
    /// Total expected run time of the waiting tasks with measured functions, in seconds.
    pub(super) waiting_s: f64,
    pub(super) waiting_unmeasured: usize,
    /// Numbers of tasks that wait for data in transfer, and of those that wait for results of other tasks.
    pub(super) awaiting_data: usize,
    pub(super) awaiting_results: usize,
    /// Number of tasks of other clients in the server's last report.
    pub(super) others: u32,
    /// Start times of other clients' running tasks that block these.
    pub(super) blocked_since: Vec<Time>,
    /// The tasks that the server was asked to return and has not answered for, and the server that will get them.
    pub(super) recalled: Option<(BTreeSet<TaskId>, NodeId)>,
}

impl Queue {
    pub(super) fn new(slots: u32) -> Queue {
        Queue {
            slots: slots.max(1) as usize,
            tasks: BTreeMap::new(),
            first_waiting: 0,
            waiting: 0,
            movable: 0,
            waiting_s: 0.0,
            waiting_unmeasured: 0,
            awaiting_data: 0,
            awaiting_results: 0,
            others: 0,
            blocked_since: Vec::new(),
            recalled: None,
        }
    }

    pub(super) fn count(&mut self, what: WaitReason) -> &mut usize {
        match what {
            WaitReason::Data => &mut self.awaiting_data,
            WaitReason::Results => &mut self.awaiting_results,
        }
    }

    pub(super) fn count_waiting(&mut self, expected: ExpectedRun, is_more: bool) {
        let sign = if is_more { 1.0 } else { -1.0 };
        match is_more {
            true => self.waiting += 1,
            false => self.waiting -= 1,
        }
        match (expected.may_move, is_more) {
            (true, true) => self.movable += 1,
            (true, false) => self.movable -= 1,
            (false, _) => {}
        }
        match (expected.is_measured, is_more) {
            (true, _) => self.waiting_s += sign * expected.run_s,
            (false, true) => self.waiting_unmeasured += 1,
            (false, false) => self.waiting_unmeasured -= 1,
        }
        if self.waiting == self.waiting_unmeasured {
            self.waiting_s = 0.0;
        }
    }

    pub(super) fn push(&mut self, number: u64, queued: Queued) {
        self.count_waiting(queued.expected, true);
        self.tasks.insert(number, queued);
    }

    pub(super) fn take(&mut self, number: u64) {
        let queued = self.tasks.remove(&number).expect("its place is known");
        if queued.since.is_none() {
            self.count_waiting(queued.expected, false);
        }
    }

    /// Marks as many tasks as running as there are slots, minus those that others occupy.
    pub(super) fn start_next(&mut self, now: Time) {
        while self.waiting > 0 && self.tasks.len() - self.waiting + self.blocked_since.len() < self.slots {
            let next = self.tasks.range(self.first_waiting..).find(|(_, queued)| queued.since.is_none());
            let number = *next.expect("one waits").0;
            let queued = self.tasks.get_mut(&number).expect("found above");
            queued.since = Some(now);
            let expected = queued.expected;
            self.count_waiting(expected, false);
            self.first_waiting = number + 1;
        }
    }

    /// Marks the last running tasks as waiting if others occupy their slots.
    pub(super) fn stop_last(&mut self) {
        while self.tasks.len() - self.waiting + self.blocked_since.len() > self.slots {
            let running = self.tasks.iter().filter(|(_, queued)| queued.since.is_some());
            let Some((number, _)) = running.max_by_key(|(number, queued)| (queued.since, **number)) else { return };
            let number = *number;
            let queued = self.tasks.get_mut(&number).expect("found above");
            queued.since = None;
            let expected = queued.expected;
            self.count_waiting(expected, true);
            self.first_waiting = self.first_waiting.min(number);
        }
    }

    pub(super) fn running(&self) -> impl Iterator<Item = (f64, &Queued)> {
        // Running tasks began in the order of their numbers.
        let running = self.tasks.range(..self.first_waiting).map(|(_, queued)| queued);
        running.filter_map(|queued| Some((ns_to_seconds(queued.since?.0), queued)))
    }

    /// Returns the expected remaining seconds of the running tasks of a server. A task that has exceeded its expected
    /// time, or that belongs to another client, is expected to run for as long as it has run already.
    pub(super) fn running_s(&self, now: Time) -> f64 {
        let left = self.running().map(|(since_s, queued)| {
            let elapsed_s = ns_to_seconds(now.0) - since_s;
            match elapsed_s <= queued.expected.run_s {
                true => queued.expected.run_s - elapsed_s,
                false => elapsed_s,
            }
        });
        left.sum::<f64>() + self.taken_s(now).sum::<f64>()
    }

    /// Returns for how long the longest-running task has run, in seconds.
    pub(super) fn longest_s(&self, now: Time) -> f64 {
        let own = self.running().map(|(since_s, _)| ns_to_seconds(now.0) - since_s);
        own.chain(self.taken_s(now)).fold(0.0, f64::max)
    }

    /// Returns for how long each task of another client that blocks waiting tasks has run, in seconds.
    pub(super) fn taken_s(&self, now: Time) -> impl Iterator<Item = f64> {
        self.blocked_since.iter().map(move |since| ns_to_seconds(now.since(*since)))
    }

    /// True if a task has run so much longer than expected that the other predictions there are doubtful.
    pub(super) fn has_overrun(&self, now: Time) -> bool {
        self.running().any(|(since_s, queued)| ns_to_seconds(now.0) - since_s > OVERRUN * queued.expected.run_s)
    }

    /// Returns the expected seconds until a server has finished its queue.
    pub(super) fn wait_s(&self, now: Time) -> f64 {
        let longest_s = self.longest_s(now);
        let waiting_s = match self.has_overrun(now) {
            true => self.waiting_s.max(self.waiting as f64 * longest_s),
            false => self.waiting_s + self.waiting_unmeasured as f64 * longest_s,
        };
        (self.running_s(now) + waiting_s) / self.slots as f64
    }
}
