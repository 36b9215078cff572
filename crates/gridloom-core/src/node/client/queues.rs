//! The client's view of the queues at its servers: its own tasks there that have not ended.
//!
//! Tasks with all data at the server, as far as the client knows, are in the queue: they run, or wait for a slot. A
//! server runs the earliest ready task first. So the first tasks of a queue, as many as the server has slots, are
//! assumed to run. The others are pending: they wait for their data to arrive, or for the tasks that produce these.

mod queue;

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{NodeId, TaskId, Time};
use queue::{Queue, Queued};

pub(super) use queue::{ExpectedRun, WaitReason};

/// A waiting task, as a candidate for a move. The last task of its queue is the first candidate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct MoveCandidate {
    pub(super) task: TaskId,
    /// Predicted seconds until it begins.
    pub(super) wait_s: f64,
    /// The part of `wait_s` until the running tasks have ended: a guess if they run longer than expected.
    pub(super) running_s: f64,
    /// Predicted run time in seconds.
    pub(super) run_s: f64,
    /// Run time predicted by the models alone, in seconds.
    pub(super) model_s: f64,
}

/// The position of a task at its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Position {
    /// The task is in the queue, at that number.
    Queued(u64),
    /// The task is not in the queue yet.
    Pending(WaitReason),
}

/// Shortest interval between two searches for tasks to move.
const SEARCH_PAUSE_NS: u64 = 100_000;
/// A move takes some messages: tasks that wait less than this, in seconds, stay.
const WAIT_S_MIN: f64 = 1e-3;
/// Tasks of a queue that one search considers for a move.
const CANDIDATES_MAX: usize = 32;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Queues {
    servers: BTreeMap<NodeId, Queue>,
    places: BTreeMap<TaskId, (NodeId, Position)>,
    next: u64,
    /// True if something ended, arrived or left since the last search.
    has_changed: bool,
    /// No search before this time: there may be hundreds of thousands of ends of calls per second.
    look_after: Time,
    /// When the next search takes place even if nothing ends.
    look_at: Option<Time>,
    /// Number of searches.
    looks: usize,
}

impl Queues {
    /// Records a task that was sent to a server with `slots` slots and waits there.
    pub(super) fn wait_for(&mut self, now: Time, what: WaitReason, server: NodeId, slots: u32, task: TaskId) {
        let before = self.places.insert(task, (server, Position::Pending(what)));
        self.leave(now, before);
        *self.servers.entry(server).or_insert_with(|| Queue::new(slots)).count(what) += 1;
    }

    /// True if a task at that server waits for data in transfer.
    pub(super) fn waits_for_data(&self, task: TaskId, server: NodeId) -> bool {
        self.places.get(&task) == Some(&(server, Position::Pending(WaitReason::Data)))
    }

    /// True if a server has tasks that wait for the results of others.
    pub(super) fn has_planned(&self, server: NodeId) -> bool {
        self.servers.get(&server).is_some_and(|queue| queue.awaiting_results > 0)
    }

    /// Records a task that could run at a server with `slots` slots.
    pub(super) fn sent(&mut self, now: Time, server: NodeId, slots: u32, task: TaskId, expected: ExpectedRun) {
        self.next += 1;
        let before = self.places.insert(task, (server, Position::Queued(self.next)));
        self.leave(now, before);
        let queue = self.servers.entry(server).or_insert_with(|| Queue::new(slots));
        queue.push(self.next, Queued { task, expected, since: None });
        queue.start_next(now);
    }

    /// Removes a task that has ended or left its server.
    pub(super) fn remove(&mut self, now: Time, task: TaskId) {
        let before = self.places.remove(&task);
        self.leave(now, before);
    }

    fn leave(&mut self, now: Time, before: Option<(NodeId, Position)>) {
        self.has_changed = true;
        let Some((server, place)) = before else { return };
        let queue = self.servers.get_mut(&server).expect("a task's queue is known");
        match place {
            Position::Pending(what) => *queue.count(what) -= 1,
            Position::Queued(number) => {
                queue.take(number);
                queue.start_next(now);
            }
        }
        self.drop_if_empty(server);
    }

    /// Records the number of tasks of other clients at a server.
    pub(super) fn others(&mut self, now: Time, server: NodeId, slots: u32, others: u32) {
        if others == 0 && !self.servers.contains_key(&server) {
            return;
        }
        let queue = self.servers.entry(server).or_insert_with(|| Queue::new(slots));
        queue.others = others;
        queue.blocked_since.truncate(others as usize);
        queue.start_next(now);
        self.drop_if_empty(server);
    }

    /// Records a server's report of the time, in nanoseconds, that each task of another client has run and blocked
    /// waiting tasks there.
    pub(super) fn set_others_elapsed(&mut self, now: Time, server: NodeId, elapsed_ns: &[u64]) {
        let Some(queue) = self.servers.get_mut(&server) else { return };
        queue.blocked_since = elapsed_ns.iter().take(queue.slots).map(|elapsed_ns| now - *elapsed_ns).collect();
        queue.others = queue.others.max(queue.blocked_since.len() as u32);
        queue.stop_last();
        queue.start_next(now);
        self.has_changed = true;
    }

    fn drop_if_empty(&mut self, server: NodeId) {
        let queue = &self.servers[&server];
        let is_empty = queue.tasks.is_empty() && queue.awaiting_data + queue.awaiting_results == 0;
        if is_empty && queue.others == 0 && queue.recalled.is_none() {
            self.servers.remove(&server);
        }
    }

    /// Records that a server was asked to return tasks, to run on another server.
    pub(super) fn recalled(&mut self, from: NodeId, tasks: BTreeSet<TaskId>, to: NodeId) {
        if let Some(queue) = self.servers.get_mut(&from) {
            queue.recalled = Some((tasks, to));
        }
    }

    /// Records a server's report of the time, in nanoseconds, that a task has run although it was assumed to wait. A
    /// task that was assumed to run in its place waits instead.
    pub(super) fn begun(&mut self, now: Time, server: NodeId, task: TaskId, elapsed_ns: u64) {
        let Some(&(at, Position::Queued(number))) = self.places.get(&task) else { return };
        if at != server {
            return;
        }
        let queue = self.servers.get_mut(&server).expect("a task's queue is known");
        if queue.tasks[&number].since.is_none() && queue.blocked_since.pop().is_some() {
            let queued = queue.tasks.get_mut(&number).expect("found above");
            queued.since = Some(now - elapsed_ns);
            let expected = queued.expected;
            queue.count_waiting(expected, false);
            self.has_changed = true;
            return;
        }
        let running = queue.tasks.range(..queue.first_waiting).filter(|(_, queued)| queued.since.is_some());
        let last = running.max_by_key(|(_, queued)| queued.since).map(|(number, _)| *number);
        let Some(other) = last.filter(|_| queue.tasks[&number].since.is_none()) else { return };
        let mut swapped = Vec::new();
        for (from, to, since) in [(number, other, Some(now - elapsed_ns)), (other, number, None)] {
            let queued = queue.tasks[&from];
            queue.count_waiting(queued.expected, since.is_none());
            self.places.insert(queued.task, (server, Position::Queued(to)));
            swapped.push((to, Queued { since, ..queued }));
        }
        queue.tasks.extend(swapped);
        self.has_changed = true;
    }

    /// Records a server's answer to a request to return tasks. Returns the server for which they were requested.
    pub(super) fn answered(&mut self, from: NodeId) -> Option<NodeId> {
        let (_, to) = self.servers.get_mut(&from)?.recalled.take()?;
        self.has_changed = true;
        self.drop_if_empty(from);
        Some(to)
    }

    pub(super) fn forget_server(&mut self, server: NodeId) {
        self.servers.remove(&server);
        self.places.retain(|_, (at, _)| *at != server);
        for queue in self.servers.values_mut() {
            if queue.recalled.as_ref().is_some_and(|(_, to)| *to == server) {
                queue.recalled = None;
            }
        }
        self.has_changed = true;
    }

    /// Triggers a search, because servers may have joined or the timer has fired.
    pub(super) fn trigger_search(&mut self) {
        self.has_changed = true;
        self.look_at = None;
    }

    /// Returns true if a search is due: something has changed, and tasks wait somewhere. If the last search was too recent,
    /// returns `Err` with the time of a timer to set.
    pub(super) fn take_search_due(&mut self, now: Time) -> Result<bool, Time> {
        if !self.has_changed {
            return Ok(false);
        }
        if !self.has_surplus() {
            self.has_changed = false;
            return Ok(false);
        }
        if now < self.look_after {
            return self.schedule_search(self.look_after).map_or(Ok(false), Err);
        }
        self.has_changed = false;
        self.look_after = now + SEARCH_PAUSE_NS;
        self.looks = self.looks.wrapping_add(1);
        Ok(true)
    }

    /// Returns the number of searches: in a large grid, each search begins with other servers.
    pub(super) fn search_count(&self) -> usize {
        self.looks
    }

    /// Schedules a search. Returns the time of the timer, if one must be set.
    pub(super) fn schedule_search(&mut self, at: Time) -> Option<Time> {
        let is_sooner = self.look_at.is_none_or(|set| at < set);
        is_sooner.then(|| *self.look_at.insert(at))
    }

    fn has_surplus(&self) -> bool {
        self.servers.values().any(|queue| queue.movable > 0)
    }

    /// Returns the number of a server's `slots` that are idle, as far as the client knows. `calls` is the number of
    /// its plain calls there.
    pub(super) fn idle_slots(&self, server: NodeId, slots: u32, calls: usize) -> usize {
        let queue = self.servers.get(&server);
        let own = queue.map_or(0, |queue| queue.tasks.len() + queue.awaiting_data).max(calls);
        let others = queue.map_or(0, |queue| queue.others as usize);
        (slots as usize).saturating_sub(own + others)
    }

    /// Returns the servers for which others were asked to return tasks.
    pub(super) fn promised(&self) -> BTreeSet<NodeId> {
        self.servers.values().filter_map(|queue| queue.recalled.as_ref()).map(|(_, to)| *to).collect()
    }

    /// Returns the servers at which tasks wait so long that a move may pay, the longest wait first. Excludes servers
    /// that were asked to return tasks.
    pub(super) fn with_surplus(&self, now: Time) -> Vec<NodeId> {
        let waiting = self.servers.iter().filter(|(_, queue)| queue.movable > 0 && queue.recalled.is_none());
        let servers = waiting.map(|(server, queue)| (queue.wait_s(now), *server));
        let mut servers: Vec<(f64, NodeId)> = servers.filter(|(wait_s, _)| *wait_s >= WAIT_S_MIN).collect();
        servers.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        servers.into_iter().map(|(_, server)| server).collect()
    }

    /// Returns the waiting tasks of a server that may move, the last first, and the number of all waiting tasks there.
    pub(super) fn waiting(&self, server: NodeId, now: Time) -> (Vec<MoveCandidate>, usize) {
        let Some(queue) = self.servers.get(&server) else { return (Vec::new(), 0) };
        let (longest_s, is_doubtful) = (queue.longest_s(now), queue.has_overrun(now));
        let (mut ahead_s, running_s) = (queue.wait_s(now), queue.running_s(now) / queue.slots as f64);
        let mut waiting = Vec::new();
        let last_first = queue.tasks.range(queue.first_waiting..).rev().filter(|(_, queued)| queued.since.is_none());
        for (_, queued) in last_first.take(CANDIDATES_MAX) {
            let run_s = match queued.expected.is_measured && !is_doubtful {
                true => queued.expected.run_s,
                false => queued.expected.run_s.max(longest_s),
            };
            ahead_s -= run_s / queue.slots as f64;
            if queued.expected.may_move {
                let (task, model_s, wait_s) = (queued.task, queued.expected.run_s, ahead_s.max(0.0));
                waiting.push(MoveCandidate { task, wait_s, running_s: running_s.min(wait_s), run_s, model_s });
            }
        }
        (waiting, queue.waiting)
    }

    /// Returns the seconds after which to search again: when a task will have run longer than expected.
    pub(super) fn next_search_s(&self, now: Time) -> f64 {
        let surplus = self.servers.values().filter(|queue| queue.movable > 0);
        let left = surplus.flat_map(|queue| {
            let own = queue.running().map(|(since_s, queued)| {
                let elapsed_s = ns_to_seconds(now.0) - since_s;
                let left_s = queued.expected.run_s - elapsed_s;
                if left_s > 0.0 { left_s } else { elapsed_s }
            });
            own.chain(queue.taken_s(now))
        });
        left.fold(1.0, f64::min).max(1e-3)
    }

    /// Returns the number of listed tasks.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns all listed tasks.
    pub(super) fn tasks(&self) -> impl Iterator<Item = (TaskId, NodeId)> {
        self.places.iter().map(|(task, (server, _))| (*task, *server))
    }

    /// Panics if an invariant is violated.
    pub(super) fn check(&self) {
        let listed: usize =
            self.servers.values().map(|queue| queue.tasks.len() + queue.awaiting_data + queue.awaiting_results).sum();
        assert_eq!(listed, self.places.len(), "tasks at servers, and places of tasks");
        for (server, queue) in &self.servers {
            let waiting = queue.tasks.values().filter(|queued| queued.since.is_none());
            let unmeasured = waiting.clone().filter(|queued| !queued.expected.is_measured).count();
            assert_eq!((waiting.count(), unmeasured), (queue.waiting, queue.waiting_unmeasured), "waiting at {server}");
            let used = queue.tasks.len() - queue.waiting + queue.blocked_since.len();
            assert!(queue.waiting == 0 || used >= queue.slots, "{server} has a free slot");
        }
        for (task, (server, place)) in &self.places {
            if let Position::Queued(number) = place {
                assert_eq!(self.servers[server].tasks[number].task, *task);
            }
        }
    }
}

#[cfg(test)]
mod tests;
