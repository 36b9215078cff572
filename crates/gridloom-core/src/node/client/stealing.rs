//! Late binding: a task that waits at one server moves to another one that has become idle, if that pays.
//!
//! ```text
//! client ──Recall (no group)──▶ the server with the longest wait
//! client ◀──Recalled (the tasks that had not begun)── that server
//! client ──Call | RunTasks──▶ the idle server
//! ```
//! A task moves if it is predicted to end earlier there, including the time for its data and the messages. It waits
//! for a slot and not for its data, because the server has reported that these have arrived. So the data of a task
//! that moves are sent again, and large data only over measured links. A task of unknown duration is expected to run
//! as long as the task before it has run already. Work stealing (Blumofe, Leiserson, *Journal of the ACM* 46(5),
//! 1999). The client decides for the thief, because it knows where the data are.

use std::collections::{BTreeMap, BTreeSet};

use super::Client;
use super::following::PlannedPlace;
use super::graph::DatumState;
use super::queues::{ExpectedRun, MoveCandidate, WaitReason};
use crate::graph::Task;
use crate::node::ClientTimer;
use crate::node::message::TaskToServer;
use crate::node::protocol::Effect;
use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::time::seconds_to_ns;
use gridloom_base::{DatumId, NodeId, TaskId, Time};
use gridloom_perf::{LinkEstimate, Prediction, ServerView, Size, first_guess_s};

/// Smallest gain of a move, as a fraction of the task's run time, so that model errors do not move tasks to and fro.
const GAIN_PART_MIN: f64 = 0.05;
/// A transfer of large data may share its links with others: it is assumed to take longer by this factor.
const SHARING_FACTOR: f64 = 2.0;
/// The running tasks may end at once, and then a move was useless. A move with large data must gain this many times
/// what it would lose then.
const GAIN_TO_LOSS_MIN: f64 = 2.0;
/// Number of servers for which one search tries to find tasks, and number of servers at which it tries for each.
const THIEVES_MAX: usize = 16;
const VICTIMS_MAX: usize = 4;

impl Client {
    /// Lists a task whose inputs have been produced at its server. `is_there` is true if its data have arrived there.
    pub(super) fn queue(&mut self, now: Time, server: NodeId, task: &Task, bytes: u64, may_move: bool, is_there: bool) {
        let Some(view) = self.directory.grid.server(server).map(|at| &self.directory.grid.servers[at]) else { return };
        let Some(model) = view.functions.get(task.name()) else { return };
        if !is_there {
            return self.queues.wait_for(now, WaitReason::Data, server, view.slots, task.id);
        }
        let size = Size::new(task.work_flops, bytes);
        let measured = model.predict(size, view.speed_flops).filter(|_| !task.is_unpredictable());
        let run_s = predicted_s(measured, size, view).unwrap_or(0.0);
        let is_measured = measured.is_some_and(|predicted| !predicted.is_extrapolated);
        let may_move = may_move && task.options.bound_to.is_none() && task.object().is_none();
        self.queues.sent(now, server, view.slots, task.id, ExpectedRun { run_s, is_measured, may_move });
    }

    /// Handles the arrival of a datum at a server: tasks there that read it may have all their data now.
    pub(super) fn data_arrived(&mut self, now: Time, datum: DatumId, server: NodeId) {
        let readers = self.graph.datum(datum).into_iter().flat_map(DatumState::consumers).copied();
        let coming = readers.filter(|task| self.queues.waits_for_data(*task, server));
        for task in coming.collect::<Vec<_>>() {
            self.queue_if_ready(now, task);
        }
    }

    /// Lists a task of a group if it could run, after it was sent or after its inputs were produced.
    pub(super) fn queue_if_ready(&mut self, now: Time, id: TaskId) {
        let Some(run) = self.graph.task(id) else { return };
        let Some(server) = run.server() else { return };
        if run.awaits_inputs() {
            let slots = self.directory.grid.server(server).map_or(1, |at| self.directory.grid.servers[at].slots);
            return self.queues.wait_for(now, WaitReason::Results, server, slots, id);
        }
        let Some(may_move) = self.plans.may_move(run.group()) else { return };
        let may_move = may_move && !run.task().is_replicate();
        let task = run.task().clone();
        let bytes = self.graph.bytes_of(&task);
        let is_there = task.inputs().all(|datum| {
            let run = self.graph.datum(datum);
            let is_at = |run: &DatumState| run.holders().contains(&server) && !self.is_stateless(server);
            run.is_none_or(|run| run.size_bytes() <= EAGER_BYTES_MAX || is_at(run))
                || self.supplies.copies.is_there(id, datum)
        });
        self.queue(now, server, &task, bytes, may_move, is_there);
    }

    /// Asks servers to return waiting tasks for idle servers.
    pub(super) fn steal(&mut self, now: Time, out: &mut Vec<Effect>) {
        match self.queues.take_search_due(now) {
            Ok(true) => {}
            Ok(false) => return,
            Err(at) => return out.push(Effect::SetTimer { timer: ClientTimer::Steal.into(), at }),
        }
        let promised = self.queues.promised();
        let is_idle = |view: &&ServerView| {
            let slots = self.queues.idle_slots(view.node, view.slots, self.calls.of_server(view.node));
            slots > 0 && !promised.contains(&view.node) && !self.contacts.is_lost(view.node)
        };
        let mut idle: Vec<NodeId> = self.directory.grid.servers.iter().filter(is_idle).map(|view| view.node).collect();
        let mut has_declined = !idle.is_empty();
        if idle.len() > THIEVES_MAX {
            let first = self.queues.search_count() * THIEVES_MAX % idle.len();
            idle.rotate_left(first);
        }
        for thief in idle.into_iter().take(THIEVES_MAX) {
            for victim in self.queues.with_surplus(now).into_iter().take(VICTIMS_MAX) {
                let tasks = self.worth_moving(now, victim, thief);
                if tasks.is_empty() {
                    continue;
                }
                let message = TaskToServer::Recall { group: None, tasks: tasks.iter().copied().collect() };
                self.contacts.post(victim, message, out);
                self.queues.recalled(victim, tasks, thief);
                has_declined = false;
                break;
            }
        }
        let again = now + seconds_to_ns(self.queues.next_search_s(now));
        if let Some(at) = has_declined.then(|| self.queues.schedule_search(again)).flatten() {
            out.push(Effect::SetTimer { timer: ClientTimer::Steal.into(), at });
        }
    }

    pub(super) fn on_steal_timer(&mut self) {
        self.queues.trigger_search();
    }

    /// Returns the tasks that wait at one server and would end earlier at another, as long as the move leaves both
    /// about equally busy.
    fn worth_moving(&self, now: Time, victim: NodeId, thief: NodeId) -> BTreeSet<TaskId> {
        let (waiting, count) = self.queues.waiting(victim, now);
        let slots =
            self.directory.grid.server(thief).map_or(1, |at| self.directory.grid.servers[at].slots.max(1)) as usize;
        let at_most = count.div_ceil(2).max(slots.min(count));
        let messages_s = 2.0 * (self.link_to(victim).latency_s + self.link_to(thief).latency_s);
        let mut moving = BTreeSet::new();
        let (mut moved_s, mut sent_s) = (0.0, 0.0);
        let is_planned = self.queues.has_planned(thief);
        for MoveCandidate { task, wait_s, running_s, run_s, model_s } in waiting {
            if moving.len() >= at_most {
                break;
            }
            let is_large = self.has_large_data(task);
            // A server with tasks that wait for results of others is not idle for long, and a move would disturb its
            // plan more.
            if is_planned && is_large {
                continue;
            }
            let Some((data_s, predicted_s)) = self.cost_at(task, thief, model_s) else { continue };
            // If the models are wrong by some factor here, they may be wrong by the same factor there.
            let there_s = if model_s > 0.0 { run_s * (predicted_s / model_s).clamp(0.1, 10.0) } else { run_s };
            // Tasks moved before no longer wait ahead of it, but their run time at the thief counts.
            let end_s = messages_s + sent_s + data_s + moved_s / slots as f64 + there_s;
            let gain_s = wait_s + run_s - end_s;
            let lost_s = if is_large { GAIN_TO_LOSS_MIN * (running_s - gain_s) } else { 0.0 };
            if gain_s > f64::max(GAIN_PART_MIN * run_s, lost_s) {
                moving.insert(task);
                moved_s += there_s;
                sent_s += data_s;
            }
        }
        moving
    }

    fn has_large_data(&self, id: TaskId) -> bool {
        let bytes = match (self.calls.get(id), self.graph.task(id)) {
            (Some(call), _) => call.request.size().1.saturating_add(call.request.size().2),
            (None, Some(run)) => self.graph.bytes_of(run.task()),
            (None, None) => 0,
        };
        bytes > EAGER_BYTES_MAX
    }

    fn link_to(&self, server: NodeId) -> LinkEstimate {
        self.links.estimates().get(&server).copied().unwrap_or(LinkEstimate::UNMEASURED)
    }

    /// Returns the seconds that `bytes` take between the client and a server.
    fn to_server_s(&self, server: NodeId, bytes: u64) -> f64 {
        link_s(self.links.estimates().get(&server), bytes)
    }

    /// Returns the seconds that `bytes` take from one server to another. If the link between them is unknown, the
    /// route through the client counts.
    fn between_s(&self, from: NodeId, to: NodeId, bytes: u64) -> f64 {
        if from == to && !self.is_stateless(to) {
            return 0.0;
        }
        let at = |node| self.directory.grid.server(node);
        let link = || self.directory.grid.links.get(at(from)?)?.get(at(to)?)?.as_ref();
        match link() {
            None => self.to_server_s(from, bytes) + self.to_server_s(to, bytes),
            measured => link_s(measured, bytes),
        }
    }

    /// Returns the seconds that a task's data take to a server and its results to their readers, and its run time
    /// there. `run_s` is its run time where it is now.
    pub(super) fn cost_at(&self, id: TaskId, server: NodeId, run_s: f64) -> Option<(f64, f64)> {
        let view = &self.directory.grid.servers[self.directory.grid.server(server)?];
        if let Some(call) = self.calls.get(id) {
            let (size, bytes, back) = call.request.size();
            let model = view.functions.get(call.request.task.name())?;
            let there_s = if bytes == 0 { 0.0 } else { self.to_server_s(server, bytes) };
            let data_s = there_s + self.to_server_s(server, back) - self.to_server_s(server, 0);
            let measured = model.predict(size, view.speed_flops).filter(|_| !call.request.task.is_unpredictable());
            return Some((data_s, predicted_s(measured, size, view).unwrap_or(run_s)));
        }
        let run = self.graph.task(id)?;
        if !self.plans.is_settled(run.group()) {
            return None;
        }
        let task = run.task();
        let model = view.functions.get(task.name())?;
        let size = Size::new(task.work_flops, self.graph.bytes_of(task));
        let there_s = predicted_s(model.predict(size, view.speed_flops), size, view).unwrap_or(run_s);
        let inputs: BTreeSet<DatumId> = task.inputs().collect();
        let data_s: f64 = inputs.into_iter().map(|datum| self.transfer_s(datum, server)).sum();
        let back_s: f64 = task.outputs.iter().map(|output| self.to_readers_s(output.datum, server)).sum();
        Some((data_s + back_s, there_s))
    }

    /// Returns the seconds that a result takes from a server to others where tasks wait for it.
    fn to_readers_s(&self, datum: DatumId, from: NodeId) -> f64 {
        let Some(run) = self.graph.datum(datum).filter(|run| run.size_bytes() > EAGER_BYTES_MAX) else { return 0.0 };
        let places = self.graph.readers_at(run);
        places.into_iter().map(|to| self.between_s(from, to, run.size_bytes())).sum()
    }

    /// Returns the seconds that a datum takes from its nearest copy to a server.
    fn transfer_s(&self, datum: DatumId, to: NodeId) -> f64 {
        let Some(run) = self.graph.datum(datum).filter(|run| !run.holders().contains(&to) || self.is_stateless(to))
        else {
            return 0.0;
        };
        let bytes = run.size_bytes();
        let from_client_s = self.to_server_s(to, bytes);
        let here = (run.is_here() && !datum.is_shared()).then_some(from_client_s);
        let ways = run.holders().iter().map(|holder| self.between_s(*holder, to, bytes)).chain(here);
        ways.reduce(f64::min).unwrap_or(from_client_s)
    }

    /// Handles a server's answer: the tasks that it returned are sent to the idle server.
    pub(super) fn on_tasks_returned(
        &mut self,
        now: Time,
        from: NodeId,
        tasks: &[TaskId],
        running: &[(TaskId, u64)],
        out: &mut Vec<Effect>,
    ) {
        let to = self.queues.answered(from);
        running.iter().for_each(|(task, elapsed_ns)| self.queues.begun(now, from, *task, *elapsed_ns));
        for id in tasks {
            self.queues.remove(now, *id);
            if self.calls.get(*id).is_some_and(|call| call.server == from) {
                let request = self.calls.remove(*id).expect("found above").request;
                self.send_call_to(now, request, to, out);
            }
        }
        let mut groups: BTreeMap<_, Vec<TaskId>> = BTreeMap::new();
        for id in tasks {
            if self.unassign(*id, from)
                && let Some(run) = self.graph.task(*id)
            {
                groups.entry(run.group()).or_default().push(*id);
            }
        }
        for (group, tasks) in groups {
            let placed = to.map(|server| PlannedPlace { server, from: BTreeMap::new() });
            match placed {
                Some(placed) => self.place(now, group, tasks, &placed, out),
                None => self.request_map(now, group, tasks, out),
            }
        }
    }
}

/// Returns the seconds that a call takes on a server, from measurements. Without any, only a declared complexity gives
/// a prediction.
fn predicted_s(measured: Option<Prediction>, size: Size, view: &ServerView) -> Option<f64> {
    let alone_s = match (measured, size) {
        (Some(measured), _) => Some(measured.seconds),
        (None, Size::Work(_)) => Some(first_guess_s(size, view.speed_flops)),
        (None, Size::Bytes(_)) => None,
    };
    alone_s.map(|alone_s| alone_s * view.pace)
}

/// Returns the seconds that `bytes` take over a link. Large data are sent only over measured links.
fn link_s(link: Option<&LinkEstimate>, bytes: u64) -> f64 {
    match (link, bytes > EAGER_BYTES_MAX) {
        (Some(link), true) => SHARING_FACTOR * link.seconds(bytes),
        (None, true) => f64::INFINITY,
        (link, false) => link.unwrap_or(&LinkEstimate::UNMEASURED).seconds(bytes),
    }
}
