//! The queue at one server, and how long what runs and waits there is expected to take.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{NodeId, TaskId, Time};

/// A task that runs so many times as long as was expected puts what was predicted there in doubt.
const OVERRUN: f64 = 2.5;

/// How long a task is expected to run on its server.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in super::super) struct Expected {
    pub(in super::super) run_s: f64,
    /// Calls of the function were measured there. If not, the time says little.
    pub(in super::super) is_measured: bool,
    /// Another server may run it as well.
    pub(in super::super) may_move: bool,
}

/// What a task waits for that is not in the queue yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum For {
    /// For data on their way to its server.
    Data,
    /// For tasks that make its data.
    Results,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) task: TaskId,
    pub(super) expected: Expected,
    /// It is taken to run since then.
    pub(super) since: Option<Time>,
}

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) slots: usize,
    pub(super) tasks: BTreeMap<u64, Queued>,
    /// Number of the first task that waits, and of all after it.
    pub(super) first_waiting: u64,
    pub(super) waiting: usize,
    /// Those among them that may move.
    pub(super) movable: usize,
    /// What the measured ones among those that wait are expected to run, seconds.
    pub(super) waiting_s: f64,
    pub(super) waiting_unmeasured: usize,
    /// Tasks that wait for data on their way, and for tasks that make their data.
    pub(super) coming: usize,
    pub(super) planned: usize,
    /// Tasks of other clients that the server had when it reported last.
    pub(super) others: u32,
    /// Since when tasks of other clients run that keep these waiting.
    pub(super) taken: Vec<Time>,
    /// What the server was asked to give back and has not answered, and for which server.
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
            coming: 0,
            planned: 0,
            others: 0,
            taken: Vec::new(),
            recalled: None,
        }
    }

    pub(super) fn count(&mut self, what: For) -> &mut usize {
        match what {
            For::Data => &mut self.coming,
            For::Results => &mut self.planned,
        }
    }

    pub(super) fn count_waiting(&mut self, expected: Expected, is_more: bool) {
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

    /// As many run as there are slots, less those that others have.
    pub(super) fn start_next(&mut self, now: Time) {
        while self.waiting > 0 && self.tasks.len() - self.waiting + self.taken.len() < self.slots {
            let next = self.tasks.range(self.first_waiting..).find(|(_, queued)| queued.since.is_none());
            let number = *next.expect("one waits").0;
            let queued = self.tasks.get_mut(&number).expect("found above");
            queued.since = Some(now);
            let expected = queued.expected;
            self.count_waiting(expected, false);
            self.first_waiting = number + 1;
        }
    }

    /// Others have slots in which tasks were taken to run: the last of these wait.
    pub(super) fn stop_last(&mut self) {
        while self.tasks.len() - self.waiting + self.taken.len() > self.slots {
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
        // What runs began in the order of the numbers.
        let running = self.tasks.range(..self.first_waiting).map(|(_, queued)| queued);
        running.filter_map(|queued| Some((ns_to_seconds(queued.since?.0), queued)))
    }

    /// What the tasks that run at a server are expected to take yet, seconds. One that runs longer than was expected is expected
    /// to run as long again, and so is one of another client.
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

    /// How long the longest of the tasks that run has run, seconds.
    pub(super) fn longest_s(&self, now: Time) -> f64 {
        let own = self.running().map(|(since_s, _)| ns_to_seconds(now.0) - since_s);
        own.chain(self.taken_s(now)).fold(0.0, f64::max)
    }

    /// How long each task of another client has run that keeps tasks waiting, seconds.
    pub(super) fn taken_s(&self, now: Time) -> impl Iterator<Item = f64> {
        self.taken.iter().map(move |since| ns_to_seconds(now.since(*since)))
    }

    /// Whether a task has run so much longer than was expected that the other predictions there are in doubt.
    pub(super) fn has_overrun(&self, now: Time) -> bool {
        self.running().any(|(since_s, queued)| ns_to_seconds(now.0) - since_s > OVERRUN * queued.expected.run_s)
    }

    /// Seconds until a server has worked off its queue.
    pub(super) fn wait_s(&self, now: Time) -> f64 {
        let longest_s = self.longest_s(now);
        let waiting_s = match self.has_overrun(now) {
            true => self.waiting_s.max(self.waiting as f64 * longest_s),
            false => self.waiting_s + self.waiting_unmeasured as f64 * longest_s,
        };
        (self.running_s(now) + waiting_s) / self.slots as f64
    }
}
