//! The executor: the waiting, ready and running tasks of a server.
//!
//! ```text
//!            admit            last input here         slot free            ended
//!   Held ------------> Waiting ------------> Ready ------------> Running ------------> (gone)
//!     \________________________________________^  (all inputs here already)
//! ```
//! A task is *held* until the store has room for its inputs and results. Tasks are admitted in the order of arrival,
//! so that a later one cannot take the room that an earlier one needs, except to resolve a stall. The earliest ready
//! task runs first. Both orders apply to the tasks of one program. Users take turns ([`fair_queue`]), and so do the programs of each user:
//! a program that queues many tasks delays each task of another by only one of them. A waiting task that occupies the room needed by the
//! very tasks it waits for is put back behind them.
//!
//! A method of an object waits for its turn ([`method_queues`]) like for an input. A running task that has called back its
//! program is *asking* until the answer arrives. It leaves its slot to others, for at most as many tasks as there are
//! slots, because the program may need the slot for its answer. A *gang* ([`CallOptions::gang`](crate::graph::CallOptions::gang))
//! takes several slots at once and keeps them until it ends. While it is the earliest ready task and too few slots are
//! free, nothing behind it starts. So it has either all its slots or none. While it waits for calls of its own, it lends its slots to nested
//! calls, of any user, and to no others: gangs of two users may wait for each other's slots. A task that only stores copies here
//! ([`Task::is_replicate`]) ends when they have arrived, whatever else runs.
//!
//! The [rules](Rules) of the grid limit the slots that the tasks of a user occupy at a time. Tasks of other users pass a task
//! that has to wait for this reason; those of its user do not. Tasks that wait for answers or for their own calls do not
//! count, since the calls need slots. When they resume, a user may have more slots than that for a while.
//!
//! Workers of different users stay apart ([`workers`]). So a short task does not queue behind tasks of another user if that
//! could need another worker: it waits until a slot is free.

mod entry;
mod fair_queue;
mod method_queues;
mod users;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fair_queue::{FairQueue, Place};
use method_queues::MethodQueues;
use users::Users;

pub use entry::{State, TaskEntry};
pub use fair_queue::TaskOwner;
pub use users::UserLoad;
pub use workers::{Separation, UserCall, WorkerPlace, WorkerStep, WorkerUse, choose};

use crate::graph::Task;
use gridloom_base::{DatumId, NodeId, ObjectId, Quota, Rules, TaskId};

/// The tasks of one server.
#[derive(Clone, Debug)]
pub struct Executor {
    slots: u32,
    separation: Separation,
    next_number: u64,
    /// Number of admissions so far.
    admissions: u64,
    tasks: BTreeMap<TaskId, TaskEntry>,
    held: FairQueue,
    ready: FairQueue,
    /// The nested calls among the ready tasks, which may use the slots that gangs lend.
    ready_nested: FairQueue,
    /// Ready tasks that run no function and need no slot.
    copy_tasks: BTreeMap<u64, TaskId>,
    /// Number of tasks that compute.
    running: u32,
    /// Number of running gangs.
    gangs: u32,
    /// Slots occupied by gangs in addition to the one of each running task.
    ganged: u32,
    /// Slots of gangs that wait for calls of their own.
    lent: u32,
    /// Number of tasks that wait for answers to callbacks.
    asking: u32,
    /// Number of tasks that wait for calls that they made themselves.
    calling: u32,
    waiters: BTreeMap<DatumId, Vec<TaskId>>,
    producers: BTreeMap<DatumId, TaskId>,
    lines: MethodQueues,
    /// Number of tasks here, in any state, that read a datum.
    readers: BTreeMap<DatumId, u32>,
    /// Number of tasks of each client here.
    clients: BTreeMap<NodeId, u32>,
    users: Users,
    /// The separate calls that have begun, as if one worker had run all of them: their users may still have workers.
    separate_calls: WorkerUse,
}

impl Executor {
    /// Creates an executor without tasks.
    pub fn new(slots: u32) -> Executor {
        Executor {
            slots,
            separation: Separation::default(),
            next_number: 0,
            admissions: 0,
            tasks: BTreeMap::new(),
            held: FairQueue::default(),
            ready: FairQueue::default(),
            ready_nested: FairQueue::default(),
            copy_tasks: BTreeMap::new(),
            running: 0,
            gangs: 0,
            ganged: 0,
            lent: 0,
            asking: 0,
            calling: 0,
            waiters: BTreeMap::new(),
            producers: BTreeMap::new(),
            lines: MethodQueues::default(),
            readers: BTreeMap::new(),
            clients: BTreeMap::new(),
            users: Users::new(slots),
            separate_calls: WorkerUse::default(),
        }
    }

    /// Sets the functions whose workers serve one user each.
    pub fn with_separation(self, separation: Separation) -> Executor {
        Executor { separation, ..self }
    }

    /// Adds a task of a user in the state *held*. Returns false if it is already here (a repeated message).
    pub fn add(&mut self, task: Arc<Task>, user: &Arc<str>, is_call: bool) -> bool {
        if self.tasks.contains_key(&task.id) {
            return false;
        }
        // Among the tasks of a program, nested calls are first, and the deepest of them before the others.
        let number = u64::from(u16::MAX - task.options.depth) << 48 | self.next_number;
        let place = Place { priority: task.options.priority, number };
        self.next_number += 1;
        for output in &task.outputs {
            self.producers.insert(output.datum, task.id);
        }
        for datum in task.inputs() {
            *self.readers.entry(datum).or_default() += 1;
        }
        if let Some(object) = task.object() {
            self.lines.join(object, task.id);
        }
        *self.clients.entry(task.id.client).or_default() += 1;
        let owner = TaskOwner { user: user.clone(), program: task.program() };
        self.users.add(user);
        self.held.insert(&owner, self.users.weight(user), place, task.id);
        let is_separate = self.separation.separates(task.name());
        let entry =
            TaskEntry { task, owner, state: State::Held, is_call, is_separate, place, admission: 0, missing: 0 };
        self.tasks.insert(entry.task.id, entry);
        true
    }

    /// Returns the held task that is admitted next.
    pub fn first_held(&self) -> Option<&TaskEntry> {
        self.held.first().map(|task| &self.tasks[&task])
    }

    /// Returns the clients that have tasks here.
    pub fn clients(&self) -> impl Iterator<Item = NodeId> {
        self.clients.keys().copied()
    }

    /// Returns the held tasks in the order of admission.
    pub fn held(&self) -> impl Iterator<Item = &TaskEntry> {
        self.held.iter().map(|task| &self.tasks[&task])
    }

    /// Returns the number of tasks here, in any state, that read a datum.
    pub fn readers(&self, datum: DatumId) -> u32 {
        self.readers.get(&datum).copied().unwrap_or(0)
    }

    /// Admits a held task. `is_here` returns whether an input is in the store.
    ///
    /// # Panics
    /// If it is not held.
    pub fn admit(&mut self, id: TaskId, is_here: impl Fn(DatumId) -> bool) {
        let entry = self.tasks.get_mut(&id).expect("the caller saw a held task");
        assert!(self.held.serve(&entry.owner, entry.place), "the caller saw a held task");
        entry.place.priority = entry.task.options.priority;
        self.admissions += 1;
        entry.admission = self.admissions;
        let missing: BTreeSet<DatumId> = entry.task.inputs().filter(|datum| !is_here(*datum)).collect();
        let waits_for_turn = entry.task.object().is_some_and(|object| self.lines.wait(object, id));
        entry.missing = missing.len() as u32 + u32::from(waits_for_turn);
        if entry.missing == 0 {
            self.make_ready(id);
        } else {
            self.users.change(&entry.owner.user, 0, State::Held, State::Waiting);
            entry.state = State::Waiting;
            for datum in missing {
                self.waiters.entry(datum).or_default().push(id);
            }
        }
    }

    /// Puts an admitted task that waits back to *held*, behind all others.
    ///
    /// # Panics
    /// If the task is not waiting.
    pub fn put_back(&mut self, id: TaskId) {
        let entry = self.tasks.get_mut(&id).expect("the caller named a waiting task");
        assert_eq!(entry.state, State::Waiting, "only waiting tasks are held back");
        self.users.change(&entry.owner.user, 0, State::Waiting, State::Held);
        entry.state = State::Held;
        // Behind all current tasks of its user, whatever their priority, nested or not: a task that was put back must not be the
        // next one again.
        let last = self.held.last_priority(&entry.owner.user).unwrap_or_default();
        let priority = entry.task.options.priority.max(last);
        entry.place = Place { priority, number: u64::from(u16::MAX) << 48 | self.next_number };
        self.next_number += 1;
        let task = entry.task.clone();
        self.held.insert_last(&entry.owner, self.users.weight(&entry.owner.user), entry.place, id);
        self.wait_no_more(&task);
    }

    /// True if tasks compute or could.
    pub fn is_busy(&self) -> bool {
        self.running > 0 || !self.ready.is_empty()
    }

    /// Returns the admitted tasks that wait. With `for_held`, only those that wait for the result of a held task, or
    /// behind a held method of their object.
    pub fn waiting(&self, for_held: bool) -> Vec<TaskId> {
        let is_held = |task: &TaskId| self.tasks.get(task).is_some_and(|entry| entry.state == State::Held);
        let is_made_by_held = |datum: &DatumId| self.producers.get(datum).is_some_and(is_held);
        let stuck = self.waiters.iter().filter(|(datum, _)| !for_held || is_made_by_held(datum));
        let mut tasks: BTreeSet<TaskId> = stuck.flat_map(|(_, tasks)| tasks.iter().copied()).collect();
        let behind_held = |task: &TaskId| {
            let object = self.tasks.get(task).and_then(|entry| entry.task.object());
            object.is_some_and(|object| self.lines.before(object, *task).any(|before| is_held(&before)))
        };
        tasks.extend(self.lines.waiting().filter(|task| !for_held || behind_held(task)));
        tasks.into_iter().collect()
    }

    /// Returns the admitted tasks that wait for a datum.
    pub fn waiting_on(&self, datum: DatumId) -> &[TaskId] {
        self.waiters.get(&datum).map_or(&[], Vec::as_slice)
    }

    /// Returns the admitted tasks that wait for a datum, and those that wait for other data and are behind the first
    /// of them: in the order of admission, but nested calls before others, and tasks that were put back last.
    pub fn waiting_for(&self, datum: DatumId) -> (Vec<TaskId>, Vec<TaskId>) {
        let readers = self.waiters.get(&datum).cloned().unwrap_or_default();
        let order = |id: &TaskId| self.tasks[id].order_of_waiting();
        let others: Vec<TaskId> = match readers.iter().map(order).min() {
            Some(first) => {
                self.waiting(false).into_iter().filter(|id| !readers.contains(id) && order(id) > first).collect()
            }
            None => Vec::new(),
        };
        (readers, others)
    }

    fn wait_no_more(&mut self, task: &Task) {
        self.lines.wait_no_more(task.id);
        for datum in task.inputs() {
            if let Some(waiting) = self.waiters.get_mut(&datum) {
                waiting.retain(|waiter| *waiter != task.id);
                if waiting.is_empty() {
                    self.waiters.remove(&datum);
                }
            }
        }
    }

    /// Records that a datum is in the store.
    pub fn datum_arrived(&mut self, datum: DatumId) {
        for id in self.waiters.remove(&datum).unwrap_or_default() {
            self.count_down(id);
        }
    }

    /// Records that one more missing input is available.
    fn count_down(&mut self, id: TaskId) {
        let Some(entry) = self.tasks.get_mut(&id) else { return };
        entry.missing -= 1;
        if entry.missing == 0 {
            self.make_ready(id);
        }
    }

    fn make_ready(&mut self, id: TaskId) {
        let entry = self.tasks.get_mut(&id).expect("the caller has seen it");
        self.users.change(&entry.owner.user, 0, entry.state, State::Ready);
        entry.state = State::Ready;
        match entry.task.is_replicate() {
            true => _ = self.copy_tasks.insert(entry.place.number, id),
            false => {
                let weight = self.users.weight(&entry.owner.user);
                self.ready.insert(&entry.owner, weight, entry.place, id);
                if entry.is_nested() {
                    self.ready_nested.insert(&entry.owner, weight, entry.place, id);
                }
            }
        }
    }

    /// Removes a task that runs no function and has all its inputs.
    pub fn take_placed(&mut self) -> Option<Arc<Task>> {
        let (_, id) = self.copy_tasks.pop_first()?;
        self.remove(id).map(|entry| entry.task)
    }

    /// Returns the methods of an object that are here, in the order of arrival.
    pub fn of_object(&self, object: ObjectId) -> Vec<TaskId> {
        self.lines.of(object).collect()
    }

    /// Returns the next task to start if a slot is free. `queue_depth` returns how many tasks of a function one slot
    /// takes.
    pub fn next_start(&mut self, queue_depth: impl Fn(&str) -> u32) -> Option<Arc<Task>> {
        let first = self.ready.first_where(|task| self.users.may_start(&self.tasks[&task]));
        let fits = |task: TaskId| self.has_slots_for(&self.tasks[&task], &queue_depth);
        let (mut passed, mut passed_nested) = (Vec::new(), Vec::new());
        let id = match first {
            Some((id, users)) if fits(id) => {
                passed = users;
                id
            }
            // The slots that gangs lend are for nested calls only, so these pass the others.
            _ if self.lent > 0 => {
                let may_start = |task: TaskId| self.users.may_start(&self.tasks[&task]) && fits(task);
                let (id, users) = self.ready_nested.first_where(may_start)?;
                passed_nested = users;
                id
            }
            _ => return None,
        };
        let entry = self.tasks.get_mut(&id).expect("a ready task is known");
        let gang = entry.task.options.gang;
        self.ready.serve(&entry.owner, entry.place);
        self.ready_nested.serve(&entry.owner, entry.place);
        passed.iter().for_each(|user| self.ready.pass(user));
        passed_nested.iter().for_each(|user| self.ready_nested.pass(user));
        if entry.is_separate {
            self.separate_calls.record_any(&entry.owner.user);
        }
        self.users.change(&entry.owner.user, gang, State::Ready, State::Running);
        entry.state = State::Running;
        self.running += 1;
        self.gangs += u32::from(gang > 0);
        self.ganged += entry.extra_gang_slots();
        Some(entry.task.clone())
    }

    /// True if the server has slots for a ready task.
    fn has_slots_for(&self, entry: &TaskEntry, queue_depth: impl Fn(&str) -> u32) -> bool {
        let gang = entry.task.options.gang;
        // A method queued behind others in a worker must not count as begun, because stopping it would end its object.
        // Workers do not know which slots belong to a gang.
        // Nor do they know which slots count for which user.
        let has_gangs = gang > 0 || self.gangs > 0 || self.lent > 0;
        let is_alone = entry.task.object().is_some()
            || has_gangs
            || self.users.is_limited(&entry.owner.user)
            || self.may_need_another_worker(entry);
        let depth = if is_alone { 1 } else { queue_depth(entry.task.name()) };
        // At most as many tasks as there are slots leave theirs, because each is a process. A gang does not wait for
        // asking tasks: the answer that they wait for may be behind it.
        let left_over = if gang > 0 { 0 } else { self.asking.saturating_sub(self.slots) };
        let lent = if entry.is_nested() { 0 } else { self.lent };
        let taken = self.running + self.ganged + lent + left_over;
        taken + gang.max(1) <= self.slots * depth.max(1)
    }

    /// True if the workers of the tasks that have begun may not admit a ready task: it is separate and they serve other users, or
    /// they serve one other user each.
    fn may_need_another_worker(&self, entry: &TaskEntry) -> bool {
        let user = &entry.owner.user;
        // A task that waits for an answer has begun, too, and returns to its worker.
        let begun = self.running + self.asking;
        let has_begun_others = begun > self.users.running(user) + self.users.asking(user);
        let is_separate = entry.is_separate || self.separate_calls.has_others(user);
        has_begun_others && is_separate
    }

    /// Records that a running task has called back its program. A gang keeps its slots.
    pub fn begin_callback_wait(&mut self, id: TaskId) {
        if let Some(entry) = self.tasks.get_mut(&id).filter(|entry| entry.may_leave_slot()) {
            self.users.change(&entry.owner.user, 0, State::Running, State::AwaitingCallback);
            entry.state = State::AwaitingCallback;
            self.running -= 1;
            self.asking += 1;
        }
    }

    /// Records that the answer has arrived and the task continues.
    pub fn end_callback_wait(&mut self, id: TaskId) {
        if let Some(entry) = self.tasks.get_mut(&id).filter(|entry| entry.state == State::AwaitingCallback) {
            self.users.change(&entry.owner.user, 0, State::AwaitingCallback, State::Running);
            entry.state = State::Running;
            self.asking -= 1;
            self.running += 1;
        }
    }

    /// Records that a running task waits for calls that it made itself. Any number of tasks may, because the calls
    /// need slots. A gang lends its slots.
    pub fn begin_calling(&mut self, id: TaskId) {
        if let Some(entry) = self.tasks.get_mut(&id).filter(|entry| entry.state == State::Running) {
            let gang = entry.task.options.gang;
            self.users.change(&entry.owner.user, gang, State::Running, State::AwaitingCalls);
            self.gangs -= u32::from(gang > 0);
            self.ganged -= entry.extra_gang_slots();
            entry.state = State::AwaitingCalls;
            self.lent += entry.lent_slots();
            self.running -= 1;
            self.calling += 1;
        }
    }

    /// Records that the calls it waited for have ended and the task continues.
    pub fn end_calling(&mut self, id: TaskId) {
        if let Some(entry) = self.tasks.get_mut(&id).filter(|entry| entry.state == State::AwaitingCalls) {
            let gang = entry.task.options.gang;
            self.users.change(&entry.owner.user, gang, State::AwaitingCalls, State::Running);
            self.lent -= entry.lent_slots();
            entry.state = State::Running;
            self.gangs += u32::from(gang > 0);
            self.ganged += entry.extra_gang_slots();
            self.calling -= 1;
            self.running += 1;
        }
    }

    /// Returns the number of tasks that have begun and wait for answers to callbacks or for their own calls.
    pub fn paused(&self) -> usize {
        (self.asking + self.calling) as usize
    }

    /// Returns the number of tasks that wait for answers to callbacks.
    pub fn asking(&self) -> usize {
        self.asking as usize
    }

    /// Returns the number of tasks that compute.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// Removes a task that ended or was cancelled before it ran.
    pub fn remove(&mut self, id: TaskId) -> Option<TaskEntry> {
        let entry = self.tasks.remove(&id)?;
        self.users.remove(&entry.owner.user, entry.task.options.gang, entry.state);
        self.gangs -= u32::from(entry.is_running_gang());
        self.ganged -= entry.extra_gang_slots();
        self.lent -= entry.lent_slots();
        match entry.state {
            State::Held => _ = self.held.remove(&entry.owner, entry.place),
            State::Waiting => self.wait_no_more(&entry.task),
            State::Ready => {
                self.ready.remove(&entry.owner, entry.place);
                self.ready_nested.remove(&entry.owner, entry.place);
                self.copy_tasks.remove(&entry.place.number);
            }
            State::Running => self.running -= 1,
            State::AwaitingCallback => self.asking -= 1,
            State::AwaitingCalls => self.calling -= 1,
        }
        if let Some(next) = entry.task.object().and_then(|object| self.lines.leave(object, id)) {
            self.count_down(next);
        }
        if let Some(count) = self.clients.get_mut(&id.client) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(&id.client);
            }
        }
        if self.tasks.is_empty() {
            self.held.rest();
            self.ready.rest();
            self.ready_nested.rest();
        }
        for output in &entry.task.outputs {
            self.producers.remove(&output.datum);
        }
        for datum in entry.task.inputs() {
            if let Some(readers) = self.readers.get_mut(&datum) {
                *readers -= 1;
                if *readers == 0 {
                    self.readers.remove(&datum);
                }
            }
        }
        Some(entry)
    }

    /// Replaces the rules of the grid. Running tasks are not disturbed.
    pub fn set_rules(&mut self, rules: Arc<Rules>) {
        self.users.set_rules(rules);
        for user in self.users.names() {
            let weight = self.users.weight(user);
            self.held.set_weight(user, weight);
            self.ready.set_weight(user, weight);
            self.ready_nested.set_weight(user, weight);
        }
    }

    /// Returns the part of the store that the rules allow the data of a user who has tasks here; `None` without a quota.
    pub fn memory_of(&self, user: &str) -> Option<Quota> {
        self.users.memory(user)
    }

    /// True if users who have tasks here have quotas of memory.
    pub fn have_memory_quotas(&self) -> bool {
        self.users.have_memory_quotas()
    }

    /// Returns the weight that the rules give a user.
    pub fn weight_of(&self, user: &str) -> u32 {
        self.users.weight(user)
    }

    /// Returns what the tasks of a user do.
    pub fn load_of(&self, user: &str) -> UserLoad {
        self.users.load(user)
    }

    /// Returns the held task of each user that is admitted next, in the order of the users' turns.
    pub fn first_held_of_users(&self) -> Vec<TaskId> {
        self.held.users().filter_map(|user| self.held.first_of(user)).collect()
    }

    /// Records that a user was passed over when a task of another one was admitted.
    pub fn pass_held(&mut self, user: &Arc<str>) {
        self.held.pass(user);
    }

    /// Returns the number of slots that the rules allow the tasks of a user, at most those of the server.
    pub fn slots_of(&self, user: &str) -> u32 {
        self.users.slots_max(user)
    }

    /// Returns the number of tasks of a user that have not begun.
    pub fn waiting_of(&self, user: &str) -> u64 {
        self.users.waiting(user)
    }

    /// Returns the task, if it is here.
    pub fn get(&self, id: TaskId) -> Option<&TaskEntry> {
        self.tasks.get(&id)
    }

    /// True if a task that is here will produce the datum.
    pub fn makes(&self, datum: DatumId) -> bool {
        self.producers.contains_key(&datum)
    }

    /// True if a task that is here reads the datum.
    pub fn reads(&self, datum: DatumId) -> bool {
        self.readers.contains_key(&datum)
    }

    /// True if an admitted task waits for the datum.
    pub fn waits_for(&self, datum: DatumId) -> bool {
        self.waiters.contains_key(&datum)
    }

    /// Returns the number of admitted tasks that wait for the datum.
    pub fn waiting_count(&self, datum: DatumId) -> usize {
        self.waiters.get(&datum).map_or(0, Vec::len)
    }

    /// Returns the tasks of a client, ordered by identifier.
    pub fn of_client(&self, client: NodeId) -> Vec<TaskId> {
        let first = TaskId { client, serial: 0 };
        let last = TaskId { client, serial: u64::MAX };
        self.tasks.range(first..=last).map(|(id, _)| *id).collect()
    }

    /// Returns the number of tasks of other clients.
    pub fn others(&self, client: NodeId) -> u32 {
        self.tasks.len() as u32 - self.clients.get(&client).copied().unwrap_or(0)
    }

    /// True if tasks may be waiting while those of other clients run.
    pub fn may_have_waiting(&self) -> bool {
        !self.ready.is_empty() && self.clients.len() > 1
    }

    /// Returns the clients with tasks that are ready and wait.
    pub fn waiting_clients(&self) -> BTreeSet<NodeId> {
        self.ready.iter().map(|task| task.client).collect()
    }

    /// Returns the running tasks of other clients.
    pub fn others_running(&self, client: NodeId) -> impl Iterator<Item = TaskId> {
        let running = self.tasks.values().filter(|entry| entry.state == State::Running);
        running.map(|entry| entry.task.id).filter(move |task| task.client != client)
    }

    /// Returns the number of tasks that were admitted and have not ended.
    pub fn admitted(&self) -> usize {
        self.tasks.len() - self.held.len()
    }

    /// Returns all tasks in the order of admission: those that were admitted, then those that are held.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskEntry> {
        let mut admitted: Vec<&TaskEntry> = self.tasks.values().filter(|entry| entry.state != State::Held).collect();
        admitted.sort_by_key(|entry| entry.admission);
        admitted.into_iter().chain(self.held())
    }

    /// Returns the number of all tasks.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// True if there is no task.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Checks the invariants that hold between inputs.
    ///
    /// # Errors
    /// The invariant that is violated.
    pub fn check(&self) -> Result<(), String> {
        let count = |state: State| self.tasks.values().filter(|entry| entry.state == state).count();
        let is_forgotten =
            self.lines.is_empty() && self.waiters.is_empty() && self.readers.is_empty() && self.clients.is_empty();
        if self.tasks.is_empty() && !is_forgotten {
            return Err("no task is here, and something is remembered of one".into());
        }
        let counts = [
            (State::Held, self.held.len()),
            (State::Ready, self.ready.len() + self.copy_tasks.len()),
            (State::Running, self.running as usize),
            (State::AwaitingCallback, self.asking as usize),
            (State::AwaitingCalls, self.calling as usize),
        ];
        self.users.check(self.tasks.values())?;
        let is_nested =
            |entry: &&TaskEntry| entry.state == State::Ready && !entry.task.is_replicate() && entry.is_nested();
        let (nested, listed) = (self.tasks.values().filter(is_nested).count(), self.ready_nested.len());
        if nested != listed {
            return Err(format!("{nested} ready tasks are nested calls, and {listed} are listed"));
        }
        let ganged: u32 = self.tasks.values().map(TaskEntry::extra_gang_slots).sum();
        if ganged != self.ganged {
            return Err(format!("gangs have {ganged} slots beside their first ones, and {} are counted", self.ganged));
        }
        let lent: u32 = self.tasks.values().map(TaskEntry::lent_slots).sum();
        if lent != self.lent {
            return Err(format!("gangs lend {lent} slots, and {} are counted", self.lent));
        }
        let gangs = self.tasks.values().filter(|entry| entry.is_running_gang()).count();
        if gangs != self.gangs as usize {
            return Err(format!("{gangs} gangs run, and {} are counted", self.gangs));
        }
        for (state, counted) in counts {
            if count(state) != counted {
                return Err(format!("{} tasks are {state:?}, and {counted} are listed so", count(state)));
            }
        }
        for (id, entry) in self.tasks.iter().filter(|(_, entry)| entry.state == State::Waiting) {
            let inputs: BTreeSet<DatumId> = entry.task.inputs().collect();
            let awaited = inputs.iter().filter(|datum| self.waiters.get(datum).is_some_and(|of| of.contains(id)));
            let missing = awaited.count() as u32 + u32::from(self.lines.waits(*id));
            if missing == 0 || missing != entry.missing {
                return Err(format!("{id} waits for {missing} things, and {} are counted", entry.missing));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
