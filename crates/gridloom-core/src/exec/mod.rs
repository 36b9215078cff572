//! The executor: which tasks wait for what, which are ready, which run.
//!
//! ```text
//!            admit            last input here         slot free            ended
//!   Held ------------> Waiting ------------> Ready ------------> Running ------------> (gone)
//!     \________________________________________^  (all inputs here already)
//! ```
//! A task is *held* until the store has room for its inputs and results; tasks are admitted strictly in the order in
//! which they came, so that a later one cannot take the room that an earlier one needs. Among ready tasks the earliest
//! runs first. A waiting task that keeps room from the very tasks it waits for is held back behind them.
//!
//! Methods of one object stand in a line, in the order in which they came: each waits for its turn as for an input, and has
//! it when those before it are gone.
//! A task that has called its program back and waits for the answer keeps no slot from others, up to as many as there are
//! slots: the program may need them for it.
//! A task that only takes data here ([`Task::is_placement`]) ends when they are here, whatever runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::base::{DatumId, NodeId, ObjectId, TaskId};
use crate::graph::Task;

/// Where a task stands. Held tasks are in `held`, ready ones in `ready`, running ones count in `running`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The store has no room for it yet.
    Held,
    /// Some inputs are not here, or it is not its turn among the methods of its object.
    Waiting,
    /// It can run.
    Ready,
    /// It runs, or is queued inside a worker.
    Running,
}

/// A task and where it stands.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The task.
    pub task: Arc<Task>,
    /// Its state.
    pub state: State,
    /// A plain call: results go to the caller at once and nothing is kept.
    pub is_call: bool,
    number: u64,
    /// Inputs that are not here, and the turn if that has not come.
    missing: u32,
}

/// The tasks of one server.
#[derive(Clone, Debug)]
pub struct Executor {
    slots: u32,
    next_number: u64,
    tasks: BTreeMap<TaskId, Entry>,
    held: BTreeMap<u64, TaskId>,
    ready: BTreeMap<u64, TaskId>,
    /// Ready tasks that run nothing, and need no slot.
    placed: BTreeMap<u64, TaskId>,
    running: u32,
    /// Those of them that wait for what their programs say.
    asking: BTreeSet<TaskId>,
    waiters: BTreeMap<DatumId, Vec<TaskId>>,
    makers: BTreeMap<DatumId, TaskId>,
    /// Methods of each object, the one whose turn it is first.
    lines: BTreeMap<ObjectId, VecDeque<TaskId>>,
    /// Admitted methods whose turn has not come.
    in_line: BTreeSet<TaskId>,
    /// How many tasks here, in any state, read a datum.
    readers: BTreeMap<DatumId, u32>,
}

impl Executor {
    /// No tasks, so many slots.
    pub fn new(slots: u32) -> Executor {
        Executor {
            slots,
            next_number: 0,
            tasks: BTreeMap::new(),
            held: BTreeMap::new(),
            ready: BTreeMap::new(),
            placed: BTreeMap::new(),
            running: 0,
            asking: BTreeSet::new(),
            waiters: BTreeMap::new(),
            makers: BTreeMap::new(),
            lines: BTreeMap::new(),
            in_line: BTreeSet::new(),
            readers: BTreeMap::new(),
        }
    }

    /// Takes a task in, held. False if it is here already (a repeated message).
    pub fn add(&mut self, task: Arc<Task>, is_call: bool) -> bool {
        if self.tasks.contains_key(&task.id) {
            return false;
        }
        let number = self.next_number;
        self.next_number += 1;
        for output in &task.outputs {
            self.makers.insert(output.datum, task.id);
        }
        for datum in task.inputs() {
            *self.readers.entry(datum).or_default() += 1;
        }
        if let Some(object) = task.object {
            self.lines.entry(object).or_default().push_back(task.id);
        }
        self.held.insert(number, task.id);
        self.tasks.insert(task.id, Entry { task, state: State::Held, is_call, number, missing: 0 });
        true
    }

    /// The held task that is next to be admitted.
    pub fn first_held(&self) -> Option<&Entry> {
        self.held.first_key_value().map(|(_, task)| &self.tasks[task])
    }

    /// Admits the first held task; `is_here` tells which inputs are in the store.
    ///
    /// # Panics
    /// If none is held.
    pub fn admit(&mut self, is_here: impl Fn(DatumId) -> bool) {
        let (number, id) = self.held.pop_first().expect("the caller saw a held task");
        let entry = self.tasks.get_mut(&id).expect("a held task is known");
        let missing: BTreeSet<DatumId> = entry.task.inputs().filter(|datum| !is_here(*datum)).collect();
        let line = entry.task.object.and_then(|object| self.lines.get(&object));
        let in_line = line.is_some_and(|line| line.front() != Some(&id));
        entry.missing = missing.len() as u32 + u32::from(in_line);
        if in_line {
            self.in_line.insert(id);
        }
        if entry.missing == 0 {
            self.is_ready(number, id);
        } else {
            entry.state = State::Waiting;
            for datum in missing {
                self.waiters.entry(datum).or_default().push(id);
            }
        }
    }

    /// Puts an admitted task that waits back behind all others, held.
    ///
    /// # Panics
    /// If the task does not wait.
    pub fn hold_back(&mut self, id: TaskId) {
        let entry = self.tasks.get_mut(&id).expect("the caller named a waiting task");
        assert_eq!(entry.state, State::Waiting, "only waiting tasks are held back");
        entry.state = State::Held;
        entry.number = self.next_number;
        self.next_number += 1;
        self.held.insert(entry.number, id);
        let task = entry.task.clone();
        self.wait_no_more(&task);
    }

    /// Whether tasks compute or could.
    pub fn is_busy(&self) -> bool {
        self.running as usize > self.asking.len() || !self.ready.is_empty()
    }

    /// Admitted tasks that wait; with `for_held`, only those that wait for what a held task here will make, or behind a held
    /// method of their object.
    pub fn waiting(&self, for_held: bool) -> Vec<TaskId> {
        let is_held = |task: &TaskId| self.tasks.get(task).is_some_and(|entry| entry.state == State::Held);
        let is_made_by_held = |datum: &DatumId| self.makers.get(datum).is_some_and(is_held);
        let stuck = self.waiters.iter().filter(|(datum, _)| !for_held || is_made_by_held(datum));
        let mut tasks: BTreeSet<TaskId> = stuck.flat_map(|(_, tasks)| tasks.iter().copied()).collect();
        let behind_held = |task: &&TaskId| self.before(**task).any(|before| is_held(&before));
        tasks.extend(self.in_line.iter().filter(|task| !for_held || behind_held(task)));
        tasks.into_iter().collect()
    }

    /// Methods of its object that came before that one.
    fn before(&self, task: TaskId) -> impl Iterator<Item = TaskId> + '_ {
        let object = self.tasks.get(&task).and_then(|entry| entry.task.object);
        let line = object.and_then(|object| self.lines.get(&object));
        line.into_iter().flatten().copied().take_while(move |other| *other != task)
    }

    /// Admitted tasks that wait for a datum, and those that wait for other data and are behind the first of them.
    pub fn waiting_for(&self, datum: DatumId) -> (Vec<TaskId>, Vec<TaskId>) {
        let readers = self.waiters.get(&datum).cloned().unwrap_or_default();
        let number = |id: &TaskId| self.tasks[id].number;
        let first = readers.iter().map(number).min().unwrap_or(u64::MAX);
        let others = self.waiting(false).into_iter().filter(|id| !readers.contains(id) && number(id) > first);
        (readers.clone(), others.collect())
    }

    fn wait_no_more(&mut self, task: &Task) {
        self.in_line.remove(&task.id);
        for datum in task.inputs() {
            if let Some(waiting) = self.waiters.get_mut(&datum) {
                waiting.retain(|waiter| *waiter != task.id);
                if waiting.is_empty() {
                    self.waiters.remove(&datum);
                }
            }
        }
    }

    /// A datum is in the store.
    pub fn datum_here(&mut self, datum: DatumId) {
        for id in self.waiters.remove(&datum).unwrap_or_default() {
            self.waits_for_one_less(id);
        }
    }

    fn waits_for_one_less(&mut self, id: TaskId) {
        let Some(entry) = self.tasks.get_mut(&id) else { return };
        entry.missing -= 1;
        if entry.missing == 0 {
            let number = entry.number;
            self.is_ready(number, id);
        }
    }

    fn is_ready(&mut self, number: u64, id: TaskId) {
        let entry = self.tasks.get_mut(&id).expect("the caller has seen it");
        entry.state = State::Ready;
        if entry.task.is_placement() { &mut self.placed } else { &mut self.ready }.insert(number, id);
    }

    /// Takes out a task that runs nothing and whose inputs are here.
    pub fn take_placed(&mut self) -> Option<Arc<Task>> {
        let (_, id) = self.placed.pop_first()?;
        self.remove(id).map(|entry| entry.task)
    }

    /// A method is gone: whoever is first now has its turn.
    fn leave_line(&mut self, object: ObjectId, id: TaskId) {
        let Some(line) = self.lines.get_mut(&object) else { return };
        line.retain(|other| *other != id);
        match line.front().copied() {
            None => {
                self.lines.remove(&object);
            }
            Some(first) if self.in_line.remove(&first) => self.waits_for_one_less(first),
            Some(_) => {}
        }
    }

    /// Methods of an object that are here, in the order in which they came.
    pub fn of_object(&self, object: ObjectId) -> Vec<TaskId> {
        self.lines.get(&object).into_iter().flatten().copied().collect()
    }

    /// The next task to start, if a slot is free. `queue_depth` says how many tasks of a function one slot takes.
    pub fn next_start(&mut self, queue_depth: impl Fn(&str) -> u32) -> Option<Arc<Task>> {
        let (number, id) = self.ready.first_key_value().map(|(number, id)| (*number, *id))?;
        let entry = self.tasks.get_mut(&id).expect("a ready task is known");
        // A method that waits behind others must not count as begun: who stops it then would end its object.
        let depth = if entry.task.object.is_some() { 1 } else { queue_depth(&entry.task.function) };
        // No more than there are slots leave theirs: each is a process.
        let running = self.running - (self.asking.len() as u32).min(self.slots);
        if running >= self.slots && running >= self.slots * depth {
            return None;
        }
        self.ready.remove(&number);
        entry.state = State::Running;
        self.running += 1;
        Some(entry.task.clone())
    }

    /// A running task waits for what its program says.
    pub fn asks(&mut self, id: TaskId) {
        if self.tasks.get(&id).is_some_and(|entry| entry.state == State::Running) {
            self.asking.insert(id);
        }
    }

    /// How many wait for what their programs say.
    pub fn asking(&self) -> usize {
        self.asking.len()
    }

    /// It goes on.
    pub fn is_answered(&mut self, id: TaskId) {
        self.asking.remove(&id);
    }

    /// A task is gone: it ended, or was cancelled before it ran.
    pub fn remove(&mut self, id: TaskId) -> Option<Entry> {
        let entry = self.tasks.remove(&id)?;
        match entry.state {
            State::Held => {
                self.held.remove(&entry.number);
            }
            State::Waiting => self.wait_no_more(&entry.task),
            State::Ready => {
                self.ready.remove(&entry.number);
                self.placed.remove(&entry.number);
            }
            State::Running => {
                self.running -= 1;
                self.asking.remove(&id);
            }
        }
        if let Some(object) = entry.task.object {
            self.leave_line(object, id);
        }
        for output in &entry.task.outputs {
            self.makers.remove(&output.datum);
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

    /// The task, if known.
    pub fn get(&self, id: TaskId) -> Option<&Entry> {
        self.tasks.get(&id)
    }

    /// Whether a task that is here will make the datum.
    pub fn makes(&self, datum: DatumId) -> bool {
        self.makers.contains_key(&datum)
    }

    /// Whether a task that is here reads the datum.
    pub fn reads(&self, datum: DatumId) -> bool {
        self.readers.contains_key(&datum)
    }

    /// Whether an admitted task waits for the datum.
    pub fn waits_for(&self, datum: DatumId) -> bool {
        self.waiters.contains_key(&datum)
    }

    /// Tasks that a client sent, in the order of their names.
    pub fn of_client(&self, client: NodeId) -> Vec<TaskId> {
        let first = TaskId { client, serial: 0 };
        let last = TaskId { client, serial: u64::MAX };
        self.tasks.range(first..=last).map(|(id, _)| *id).collect()
    }

    /// Tasks that run.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// Tasks that were admitted and have not ended.
    pub fn admitted(&self) -> usize {
        self.tasks.len() - self.held.len()
    }

    /// All tasks in the order in which they are to be admitted, or were.
    pub fn tasks(&self) -> impl Iterator<Item = &Entry> {
        let mut tasks: Vec<&Entry> = self.tasks.values().collect();
        tasks.sort_by_key(|entry| entry.number);
        tasks.into_iter()
    }

    /// Number of all tasks.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Meta;
    use crate::graph::{Argument, Output};

    fn datum(serial: u64) -> DatumId {
        DatumId { client: NodeId(1), serial }
    }

    fn task(serial: u64, inputs: &[u64], output: u64) -> Arc<Task> {
        Arc::new(Task {
            id: TaskId { client: NodeId(1), serial },
            function: "m/f".into(),
            signature_hash: 0,
            args: inputs.iter().map(|i| Argument::Datum(datum(*i))).collect(),
            outputs: vec![Output { datum: datum(output), meta: Meta::Bytes { size_bytes: 0 } }],
            work_flops: None,
            only: None,
            object: None,
        })
    }

    fn method(serial: u64, object: u64, inputs: &[u64]) -> Arc<Task> {
        let object = Some(ObjectId { client: NodeId(1), serial: object });
        Arc::new(Task { object, outputs: vec![], ..(*task(serial, inputs, 0)).clone() })
    }

    #[test]
    fn methods_of_an_object_run_one_at_a_time_in_order() {
        let id = |serial| TaskId { client: NodeId(1), serial };
        let mut executor = Executor::new(4);
        // The first waits for an input; one of another object passes it, one of its own does not.
        for task in [method(1, 7, &[10]), method(2, 7, &[]), method(3, 8, &[]), method(4, 7, &[])] {
            executor.add(task, true);
            executor.admit(|_| false);
        }
        assert_eq!(executor.next_start(|_| 1).unwrap().id, id(3));
        assert!(executor.next_start(|_| 1).is_none());
        executor.datum_here(datum(10));
        assert_eq!(executor.next_start(|_| 1).unwrap().id, id(1));
        assert!(executor.next_start(|_| 1).is_none());
        // One that is taken back from the middle changes nothing for those behind it.
        executor.remove(id(2));
        assert!(executor.next_start(|_| 1).is_none());
        executor.remove(id(1));
        assert_eq!(executor.next_start(|_| 1).unwrap().id, id(4));
        executor.remove(id(4));
        executor.remove(id(3));
        assert!(executor.is_empty() && executor.lines.is_empty() && executor.in_line.is_empty());
    }

    #[test]
    fn who_waits_for_its_program_keeps_no_slot_from_others() {
        let id = |serial| TaskId { client: NodeId(1), serial };
        let mut executor = Executor::new(1);
        for task in [task(1, &[], 20), task(2, &[], 21), task(3, &[], 22)] {
            executor.add(task, true);
            executor.admit(|_| true);
        }
        executor.asks(id(1)); // Not before it runs.
        assert_eq!(executor.next_start(|_| 1).unwrap().id, id(1));
        assert!(executor.next_start(|_| 1).is_none());
        executor.asks(id(1));
        assert_eq!(executor.next_start(|_| 1).unwrap().id, id(2));
        assert!(executor.next_start(|_| 1).is_none());
        executor.is_answered(id(1));
        executor.remove(id(2));
        assert!(executor.next_start(|_| 1).is_none(), "the first runs again");
        executor.asks(id(1));
        assert_eq!(executor.next_start(|_| 1).unwrap().id, id(3));
        executor.add(task(4, &[], 23), true);
        executor.admit(|_| true);
        executor.asks(id(3));
        assert!(executor.next_start(|_| 1).is_none(), "as many as there are slots leave theirs");
        executor.remove(id(1));
        assert_eq!(executor.next_start(|_| 1).unwrap().id, id(4));
        executor.remove(id(3));
        assert!(executor.next_start(|_| 1).is_none() && executor.asking.is_empty());
    }

    #[test]
    fn methods_do_not_queue_behind_short_calls() {
        let mut executor = Executor::new(1);
        for task in [task(1, &[], 20), method(2, 7, &[]), task(3, &[], 21)] {
            executor.add(task, true);
            executor.admit(|_| true);
        }
        assert_eq!(executor.next_start(|_| 8).unwrap().id.serial, 1);
        assert!(executor.next_start(|_| 8).is_none());
        executor.remove(TaskId { client: NodeId(1), serial: 1 });
        assert_eq!(executor.next_start(|_| 8).unwrap().id.serial, 2);
    }

    #[test]
    fn methods_make_way_for_those_that_they_wait_for() {
        let id = |serial| TaskId { client: NodeId(1), serial };
        let mut executor = Executor::new(1);
        for task in [method(1, 7, &[10]), method(2, 7, &[])] {
            executor.add(task, true);
            executor.admit(|_| false);
        }
        assert_eq!(executor.waiting(true), []);
        executor.hold_back(id(1));
        assert_eq!(executor.waiting(true), [id(2)]);
        executor.hold_back(id(2));
        executor.admit(|_| true);
        executor.admit(|_| true);
        assert_eq!(executor.next_start(|_| 2).unwrap().id, id(1));
        assert!(executor.next_start(|_| 2).is_none());
    }

    #[test]
    fn a_task_runs_when_its_last_input_is_here_and_a_slot_is_free() {
        let mut executor = Executor::new(1);
        executor.add(task(1, &[10, 11, 10], 20), false);
        executor.add(task(2, &[], 21), false);
        executor.admit(|_| false);
        executor.admit(|_| false);
        assert_eq!(executor.next_start(|_| 1).unwrap().id.serial, 2);
        executor.datum_here(datum(10));
        executor.datum_here(datum(11));
        assert!(executor.next_start(|_| 1).is_none());
        executor.remove(TaskId { client: NodeId(1), serial: 2 });
        assert_eq!(executor.next_start(|_| 1).unwrap().id.serial, 1);
    }

    #[test]
    fn earlier_tasks_start_first_and_short_ones_may_queue() {
        let mut executor = Executor::new(1);
        for serial in 1..=3 {
            executor.add(task(serial, &[], serial), false);
            executor.admit(|_| true);
        }
        assert_eq!(executor.next_start(|_| 2).unwrap().id.serial, 1);
        assert_eq!(executor.next_start(|_| 2).unwrap().id.serial, 2);
        assert!(executor.next_start(|_| 2).is_none());
    }

    #[test]
    fn a_cancelled_waiter_is_forgotten() {
        let mut executor = Executor::new(1);
        executor.add(task(1, &[10], 20), false);
        executor.admit(|_| false);
        assert!(executor.waits_for(datum(10)));
        executor.remove(TaskId { client: NodeId(1), serial: 1 });
        assert!(!executor.waits_for(datum(10)));
        executor.datum_here(datum(10));
        assert!(executor.is_empty());
    }
}
