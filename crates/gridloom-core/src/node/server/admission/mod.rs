//! Admission: tasks are admitted in order as the store has memory for their inputs and results, and start as slots
//! become free. Until it is admitted, a task is *held*.
//!
//! **Invariant:** while tasks are held and none runs, a task is admitted, preempted or refused. A store that is too
//! small causes an error, never a silent stall.

mod disk_quotas;
mod ending;
mod fetches;
mod parts;
mod publishing;
mod quotas;
mod shares;
mod slices;
mod supply;
mod write_back;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::shares::CHECKED_TASKS_MAX;
use super::ServerConfig;
use crate::data::{Evicted, Origin, Replicas};
use crate::exec::{Executor, State, TaskEntry};
use crate::graph::{CopyLifetime, Task, TaskKind};
use crate::member::Members;
use crate::node::message::Message;
use crate::node::protocol::{Effect, Role};
use disk_quotas::DiskQuotas;
use fetches::Fetches;
use gridloom_base::limits::{CALLBACK_WAIT_NS_MAX, HEARTBEAT_NS};
use gridloom_base::{DatumId, NodeId, ObjectId, Rules, TaskError, TaskId, Time};
use parts::Parts;
pub(super) use slices::SliceArrival;
use slices::Slices;
use write_back::WriteBack;

/// The server's tasks, the accounting of its store, and its requests to other nodes.
#[derive(Debug)]
pub(super) struct Admission {
    config: Arc<ServerConfig>,
    executor: Executor,
    replicas: Replicas,
    /// Public to the server, because some events of fetches concern only this part.
    pub(super) fetches: Fetches,
    write_back: WriteBack,
    parts: Parts,
    slices: Slices,
    /// The users of the clients that have or had tasks here and are connected.
    users: BTreeMap<NodeId, Arc<str>>,
    nobody: Arc<str>,
    disk: DiskQuotas,
    /// Users whose tasks are held for their quotas of memory while none of their tasks can run, and since when.
    stalled: BTreeMap<Arc<str>, Time>,
    /// Time at which a datum last became available here or a task last ended.
    last_progress: Time,
    /// Time at which a task was last admitted, or was added while none was held.
    last_admitted: Time,
}

#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all outputs are effects")]
pub(super) enum AdmissionOutput {
    Effect(Effect),
    /// A copy was evicted. Its owner is notified, after the reports of data that arrived for it.
    Evicted(DatumId),
    /// Kept data were evicted, because another client needs its share of the store.
    EvictedOverShare {
        client: NodeId,
        data: Vec<DatumId>,
        bytes: u64,
        share: u64,
    },
}

impl From<Effect> for AdmissionOutput {
    fn from(effect: Effect) -> AdmissionOutput {
        AdmissionOutput::Effect(effect)
    }
}

/// How a stall of the server was resolved.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum StallResolution {
    /// Waiting tasks were requeued, so that others may be admitted.
    Requeued,
    /// The task will not get the memory that it needs.
    Refused(TaskId, TaskError),
}

impl Admission {
    pub(super) fn new(config: Arc<ServerConfig>) -> Admission {
        Admission {
            executor: Executor::new(config.slots).with_separation(config.separation),
            replicas: Replicas::new(config.memory_bytes, config.data_max),
            fetches: Fetches::new(config.clone()),
            write_back: WriteBack::default(),
            parts: Parts::default(),
            slices: Slices::default(),
            users: BTreeMap::new(),
            nobody: Arc::default(),
            disk: DiskQuotas::default(),
            stalled: BTreeMap::new(),
            last_progress: Time::ZERO,
            last_admitted: Time::ZERO,
            config,
        }
    }

    // ---- queries

    /// Returns the number of known tasks and the bytes held.
    pub(super) fn load(&self) -> (usize, u64) {
        (self.executor.len(), self.replicas.used_bytes())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.executor.is_empty()
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = &TaskEntry> {
        self.executor.tasks()
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&TaskEntry> {
        self.executor.get(id)
    }

    /// Returns the admitted tasks that wait for a datum.
    pub(super) fn waiting_on(&self, datum: DatumId) -> &[TaskId] {
        self.executor.waiting_on(datum)
    }

    pub(super) fn state(&self, id: TaskId) -> Option<State> {
        self.executor.get(id).map(|entry| entry.state)
    }

    /// Returns the number of tasks of other clients at this server.
    pub(super) fn others(&self, client: NodeId) -> u32 {
        self.executor.others(client)
    }

    /// True if tasks may be waiting while tasks of other clients run.
    pub(super) fn may_keep_waiting(&self) -> bool {
        self.executor.may_have_waiting()
    }

    /// Returns the clients with ready tasks that wait.
    pub(super) fn kept_waiting(&self) -> BTreeSet<NodeId> {
        self.executor.waiting_clients()
    }

    /// Returns the running tasks of other clients.
    pub(super) fn others_running(&self, client: NodeId) -> impl Iterator<Item = TaskId> {
        self.executor.others_running(client)
    }

    /// Returns the number of computing tasks.
    pub(super) fn computing(&self) -> u32 {
        self.executor.running()
    }

    /// Returns the methods of an object at this server, in order of arrival.
    pub(super) fn of_object(&self, object: ObjectId) -> Vec<TaskId> {
        self.executor.of_object(object)
    }

    pub(super) fn size_bytes(&self, datum: DatumId) -> u64 {
        self.replicas.size_bytes(datum)
    }

    pub(super) fn own_bytes(&self, datum: DatumId) -> u64 {
        self.replicas.actual_bytes(datum)
    }

    pub(super) fn is_here(&self, datum: DatumId) -> bool {
        self.replicas.is_here(datum)
    }

    // ---- admission

    /// Adds a task as held. Returns false if it is already here.
    pub(super) fn add(&mut self, now: Time, task: Task, user: &Arc<str>, is_call: bool) -> bool {
        if self.executor.first_held().is_none() {
            self.last_admitted = now;
        }
        let client = task.id.client;
        if client != NodeId::CATALOG && self.users.get(&client) != Some(user) {
            self.users.insert(client, user.clone());
            self.update_disk_quota(user);
        }
        self.executor.add(Arc::new(task), user, is_call)
    }

    /// Admits tasks while there is memory. Returns a task that will never fit, which the caller refuses.
    pub(super) fn admit(
        &mut self,
        now: Time,
        members: &Members<Role>,
        out: &mut Vec<AdmissionOutput>,
    ) -> Option<(TaskId, TaskError)> {
        loop {
            if let Some(refused) = self.admit_by_turns(now, members, out) {
                return Some(refused);
            }
            let mut is_changed = false;
            let refused = self.relieve_quotas(now, out, &mut is_changed);
            if refused.is_some() || !is_changed {
                return refused;
            }
        }
    }

    fn admit_by_turns(
        &mut self,
        now: Time,
        members: &Members<Role>,
        out: &mut Vec<AdmissionOutput>,
    ) -> Option<(TaskId, TaskError)> {
        while let Some((id, passed)) = self.next_within_quotas(out) {
            let task = self.executor.get(id).expect("it is held").task.clone();
            let inputs: BTreeSet<DatumId> = task.inputs().collect();
            let needed = self.bytes_needed(&task, &inputs);
            if !self.replicas.fits(needed) {
                self.evict(needed, &inputs, out);
            }
            if self.replicas.fits(needed) {
                self.admit_task(now, &task, inputs, members, out);
                passed.iter().for_each(|user| self.executor.pass_held(user));
                continue;
            }
            if self.executor.is_busy() {
                return None;
            }
            // Requeue waiting tasks that occupy memory needed by the tasks for which they wait. The order of a plan
            // rules that out, but a later plan for lost results may cause it.
            let stuck = self.executor.waiting(true);
            if !stuck.is_empty() {
                self.requeue(now, stuck, out);
                continue;
            }
            if let Some(other) = self.next_out_of_order() {
                let inputs = other.inputs().collect();
                self.admit_task(now, &other, inputs, members, out);
                continue;
            }
            // The data for which the other tasks wait may still arrive.
            let waits = self.executor.admitted() > 0;
            if !waits && self.release_idle_reservations(now) {
                continue;
            }
            if waits || self.make_room(now, needed, &inputs, out) {
                return None;
            }
            if !self.claim_share(now, &task, &inputs, out) {
                return Some(self.no_room_for(&task));
            }
        }
        None
    }

    /// Returns the free bytes that the store needs before a task is admitted.
    fn bytes_needed(&self, task: &Task, inputs: &BTreeSet<DatumId>) -> u64 {
        let size_of = |datum: &DatumId| {
            self.fetches.get(*datum).map_or(0, |awaited| self.replicas.counted_bytes(awaited.size_bytes))
        };
        let coming = inputs.iter().filter(|datum| !self.replicas.is_known(**datum)).map(size_of);
        let made = task.outputs.iter().map(|o| self.replicas.lacks_bytes(o.datum, o.meta.size_bytes()));
        coming.chain(made).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of all inputs and results of a task.
    fn bytes_of(&self, task: &Task) -> u64 {
        let inputs: BTreeSet<DatumId> = task.inputs().collect();
        let counted = |size_bytes| self.replicas.counted_bytes(size_bytes);
        let read = inputs.into_iter().map(|datum| self.bytes_of_input(datum));
        let made = task.outputs.iter().map(|output| counted(output.meta.size_bytes()));
        read.chain(made).fold(0, u64::saturating_add)
    }

    fn bytes_of_input(&self, datum: DatumId) -> u64 {
        let coming = self.fetches.get(datum).map_or(0, |awaited| self.replicas.counted_bytes(awaited.size_bytes));
        self.size_bytes(datum).max(coming)
    }

    fn no_room_for(&self, task: &Task) -> (TaskId, TaskError) {
        let error = TaskError::StoreFull {
            function: task.name().to_string(),
            server: self.config.name.clone(),
            task: task.id,
            needed: self.bytes_of(task),
            held: self.replicas.used_bytes(),
            limit: self.replicas.limit_bytes(),
        };
        (task.id, error)
    }

    /// Evicts copies until `needed` bytes fit, except the data in `kept` (the inputs of the task to admit) and copies
    /// of data that a task here makes again, since their memory is reserved for the result. Evicted inputs of held
    /// tasks are requested again when the task is admitted.
    fn evict(&mut self, needed: u64, kept: &BTreeSet<DatumId>, out: &mut Vec<AdmissionOutput>) {
        let evicted = self.replicas.evict(
            needed,
            |datum| kept.contains(&datum) || self.executor.makes(datum),
            |datum| self.executor.reads(datum),
        );
        self.record_evicted(evicted, out);
    }

    fn record_evicted(&mut self, evicted: Vec<Evicted>, out: &mut Vec<AdmissionOutput>) {
        for Evicted { datum, origin, size_bytes } in evicted {
            out.push(Effect::DropDatum { datum }.into());
            if origin != Origin::Argument {
                out.push(AdmissionOutput::Evicted(datum));
            }
            if self.executor.reads(datum) {
                // The next copy may come from another source, so the owner is asked for one.
                self.fetches.expect_of_owner(datum, size_bytes, origin);
            }
        }
    }

    fn admit_task(
        &mut self,
        now: Time,
        task: &Task,
        inputs: BTreeSet<DatumId>,
        members: &Members<Role>,
        out: &mut Vec<AdmissionOutput>,
    ) {
        self.last_admitted = now;
        for output in &task.outputs {
            self.reserve(output.datum, output.meta.size_bytes(), Origin::Made, now);
        }
        let names = matches!(task.kind, TaskKind::Publish(_));
        for datum in inputs {
            let is_new = !self.replicas.is_known(datum);
            if is_new {
                match self.fetches.get(datum) {
                    Some(awaited) => {
                        let (size_bytes, origin) = (awaited.size_bytes, awaited.origin);
                        self.reserve(datum, size_bytes, origin, now);
                        self.answer_waiting_peers(datum, out);
                        self.fetches.request(datum, members, out);
                    }
                    // A task that is held behind this one makes the datum.
                    None if self.executor.makes(datum) => {
                        self.reserve(datum, 0, Origin::Made, now);
                    }
                    None => {
                        self.fetches.request_source(datum, out);
                        self.reserve(datum, 0, Origin::Copied, now);
                    }
                }
            }
            if is_new && names {
                self.replicas.set_for_renaming(datum);
            }
            self.replicas.add_reader(datum, names);
        }
        self.executor.admit(task.id, |datum| self.replicas.is_here(datum));
    }

    /// Reserves memory for a datum. Tasks may have waited for it without a reservation, because the task that makes
    /// the datum was requeued; they become its readers.
    fn reserve(&mut self, datum: DatumId, size_bytes: u64, origin: Origin, now: Time) {
        let waiting = if self.replicas.is_known(datum) { 0 } else { self.executor.waiting_count(datum) };
        self.replicas.reserve(datum, size_bytes, origin, now);
        (0..waiting).for_each(|_| self.replicas.add_reader(datum, false));
    }

    // ---- requeueing

    /// Resolves a stall: if there was no progress for a heartbeat while tasks are held for lack of memory, requeues
    /// the waiting tasks. Their data may be delayed at another server by tasks that wait for data held here.
    pub(super) fn resolve_stall(&mut self, now: Time, out: &mut Vec<AdmissionOutput>) -> Option<StallResolution> {
        let mut is_changed = false;
        if let Some((id, error)) = self.resolve_stalls_of_users(now, out, &mut is_changed) {
            return Some(StallResolution::Refused(id, error));
        }
        if is_changed {
            return Some(StallResolution::Requeued);
        }
        // Tasks that only the quota of their user holds back do not wait for memory of others.
        let is_stalled = |entry: &&TaskEntry| !self.exceeds_quota(entry.task.id);
        let first = self.executor.held().take(CHECKED_TASKS_MAX).find(is_stalled)?.task.clone();
        let stands_ns = now.since(self.last_progress);
        if self.executor.is_busy() || stands_ns < HEARTBEAT_NS {
            return None;
        }
        // Every admitted task has called its program back or made calls itself, and waits, possibly for the very task
        // for which there is no memory.
        if self.executor.paused() > 0 && self.executor.admitted() == self.executor.paused() {
            let inputs = first.inputs().collect();
            if self.make_room(now, self.bytes_needed(&first, &inputs), &inputs, out) {
                return None;
            }
            let (id, error) = self.no_room_for(&first);
            return (stands_ns >= CALLBACK_WAIT_NS_MAX).then_some(StallResolution::Refused(id, error));
        }
        let waiting = self.executor.waiting(false);
        self.requeue(now, waiting, out);
        self.last_progress = now;
        Some(StallResolution::Requeued)
    }

    /// Puts waiting tasks back behind all others, and releases their memory.
    fn requeue(&mut self, now: Time, tasks: Vec<TaskId>, out: &mut Vec<AdmissionOutput>) {
        for id in tasks {
            self.executor.put_back(id);
            let task = self.executor.get(id).expect("requeued above").task.clone();
            for output in &task.outputs {
                self.replicas.unreserve(output.datum, now);
            }
            let inputs: BTreeSet<DatumId> = task.inputs().collect();
            for datum in inputs {
                if self.replicas.remove_reader(datum, now) {
                    out.push(Effect::DropDatum { datum }.into());
                }
                if !self.executor.waits_for(datum) && !self.executor.makes(datum) {
                    self.replicas.unreserve(datum, now);
                    self.fetches.clear_request(datum);
                }
            }
        }
    }

    // ---- running

    /// Replaces the rules of the grid.
    pub(super) fn set_rules(&mut self, rules: Arc<Rules>) {
        self.set_disk_rules(rules.clone());
        self.executor.set_rules(rules);
    }

    /// Returns the number of slots that the rules allow the tasks of a user.
    pub(super) fn slots_of(&self, user: &str) -> u32 {
        self.executor.slots_of(user)
    }

    /// Returns the number of tasks of a user that have not begun.
    pub(super) fn waiting_of(&self, user: &str) -> u64 {
        self.executor.waiting_of(user)
    }

    /// Returns the next task to start, if a slot is free. One slot takes several tasks of a function with short calls.
    pub(super) fn next_start(&mut self, is_short: impl Fn(&str) -> bool) -> Option<Arc<Task>> {
        let depth = self.config.queue_depth.max(1);
        self.executor.next_start(|function| if is_short(function) { depth } else { 1 })
    }

    /// Removes and returns a task whose copies are all here. The copies still count it as a reader.
    pub(super) fn take_replicated(&mut self) -> Option<Arc<Task>> {
        self.executor.take_placed()
    }

    /// Ends a task whose copies are all here.
    pub(super) fn end_replicated(&mut self, now: Time, task: &Task, out: &mut Vec<AdmissionOutput>) {
        for datum in task.inputs().collect::<BTreeSet<DatumId>>() {
            if task.kind == TaskKind::Replicate(CopyLifetime::Kept) {
                self.replicas.keep(datum);
            }
            if self.replicas.remove_reader(datum, now) {
                out.push(Effect::DropDatum { datum }.into());
            }
        }
    }

    /// Records that a running task has called its program back.
    pub(super) fn begin_callback(&mut self, id: TaskId) {
        self.executor.begin_callback_wait(id);
    }

    /// Records that a running task waits for calls that it made itself, or resumes.
    pub(super) fn set_calling(&mut self, id: TaskId, waits: bool) {
        match waits {
            true => self.executor.begin_calling(id),
            false => self.executor.end_calling(id),
        }
    }

    /// Records that the program has answered a callback.
    pub(super) fn end_callback(&mut self, id: TaskId) {
        self.executor.end_callback_wait(id);
    }

    // ---- for invariants and status

    /// Returns the number of entries about tasks and data, by kind.
    pub(super) fn leak_counts(&self) -> [(&'static str, usize); 7] {
        let (awaited, dialled) = self.fetches.counts();
        [
            ("tasks", self.executor.len()),
            ("data", self.replicas.len()),
            ("bytes", self.replicas.used_bytes() as usize),
            ("requests for unknown data", self.replicas.unknown()),
            ("awaited data", awaited),
            ("addresses dialled for data", dialled),
            ("results being written back to their clients", self.write_back.len()),
        ]
    }

    /// Returns the state of each task and its data, one line per task, after a line about the store.
    pub(super) fn stall_report(&self) -> Vec<String> {
        let (used, limit) = (self.replicas.used_bytes(), self.replicas.limit_bytes());
        let store = format!("{}: holds {used} of {limit} bytes in {} data", self.config.name, self.replicas.len());
        let input = |datum: DatumId| match (self.replicas.is_here(datum), self.fetches.get(datum)) {
            (true, _) => format!("{datum} (here)"),
            (false, Some(awaited)) if awaited.from == self.config.id => format!("{datum} (evicted)"),
            (false, Some(awaited)) if awaited.is_requested => format!("{datum} (requested from {})", awaited.from),
            (false, Some(awaited)) => format!("{datum} (expected from {})", awaited.from),
            (false, None) if self.executor.makes(datum) => format!("{datum} (made here)"),
            (false, None) => format!("{datum} (source unknown)"),
        };
        let tasks = self.executor.tasks().map(|entry| {
            let reads: Vec<String> = entry.task.inputs().collect::<BTreeSet<_>>().into_iter().map(input).collect();
            let makes: Vec<String> = entry.task.outputs.iter().map(|output| output.datum.to_string()).collect();
            format!("  {} {:?}: reads {}; makes {}", entry.task.id, entry.state, reads.join(", "), makes.join(", "))
        });
        std::iter::once(store).chain(tasks).collect()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.executor.check()?;
        self.replicas.check()?;
        self.fetches.check()?;
        self.check_parts()?;
        self.check_slices()?;
        for entry in self.executor.tasks() {
            // The inputs of a task that has begun are dropped if its client is lost. A result has no reservation while
            // the task that makes it is held.
            let lacks = |datum: &DatumId| match entry.state {
                State::Ready => !self.replicas.is_here(*datum),
                State::Waiting => !self.replicas.is_known(*datum) && !self.executor.makes(*datum),
                State::Held | State::Running | State::AwaitingCallback | State::AwaitingCalls => false,
            };
            if let Some(datum) = entry.task.inputs().find(lacks) {
                return Err(format!("{} is {:?}, but {datum} has no reservation", entry.task.id, entry.state));
            }
            let is_unread = |datum: &DatumId| self.replicas.is_known(*datum) && !self.replicas.is_read(*datum);
            let is_let_in = matches!(entry.state, State::Ready | State::Waiting);
            if let Some(datum) = entry.task.inputs().filter(|_| is_let_in).find(is_unread) {
                return Err(format!("{} is {:?} and reads {datum}, which has no reader", entry.task.id, entry.state));
            }
        }
        Ok(())
    }
}

fn send(out: &mut Vec<AdmissionOutput>, to: NodeId, message: impl Into<Message>) {
    out.push(Effect::Send { to, message: message.into() }.into());
}

#[cfg(test)]
mod tests;
