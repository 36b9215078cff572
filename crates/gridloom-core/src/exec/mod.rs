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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::{DatumId, NodeId, TaskId};
use crate::graph::Task;

/// Where a task stands. Held tasks are in `held`, ready ones in `ready`, running ones count in `running`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The store has no room for it yet.
    Held,
    /// Some inputs are not here.
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
    running: u32,
    waiters: BTreeMap<DatumId, Vec<TaskId>>,
    makers: BTreeMap<DatumId, TaskId>,
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
            running: 0,
            waiters: BTreeMap::new(),
            makers: BTreeMap::new(),
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
        entry.missing = missing.len() as u32;
        if missing.is_empty() {
            entry.state = State::Ready;
            self.ready.insert(number, id);
        } else {
            entry.state = State::Waiting;
            for datum in missing {
                self.waiters.entry(datum).or_default().push(id);
            }
        }
    }

    /// Puts an admitted task that waits for inputs back behind all others, held.
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

    /// Whether tasks run or could.
    pub fn is_busy(&self) -> bool {
        self.running > 0 || !self.ready.is_empty()
    }

    /// Admitted tasks that wait for inputs; with `for_held`, only those that wait for what a held task here will make.
    pub fn waiting(&self, for_held: bool) -> Vec<TaskId> {
        let is_held = |datum: &DatumId| {
            let maker = self.makers.get(datum).and_then(|maker| self.tasks.get(maker));
            maker.is_some_and(|entry| entry.state == State::Held)
        };
        let stuck = self.waiters.iter().filter(|(datum, _)| !for_held || is_held(datum));
        let tasks: BTreeSet<TaskId> = stuck.flat_map(|(_, tasks)| tasks.iter().copied()).collect();
        tasks.into_iter().collect()
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
            let Some(entry) = self.tasks.get_mut(&id) else { continue };
            entry.missing -= 1;
            if entry.missing == 0 {
                entry.state = State::Ready;
                self.ready.insert(entry.number, id);
            }
        }
    }

    /// The next task to start, if a slot is free. `queue_depth` says how many tasks of a function one slot takes.
    pub fn next_start(&mut self, queue_depth: impl Fn(&str) -> u32) -> Option<Arc<Task>> {
        let (number, id) = self.ready.first_key_value().map(|(number, id)| (*number, *id))?;
        let entry = self.tasks.get_mut(&id).expect("a ready task is known");
        if self.running >= self.slots && self.running >= self.slots * queue_depth(&entry.task.function) {
            return None;
        }
        self.ready.remove(&number);
        entry.state = State::Running;
        self.running += 1;
        Some(entry.task.clone())
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
            }
            State::Running => self.running -= 1,
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
        })
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
