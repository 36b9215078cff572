//! Queues of methods: the methods of one object run one at a time, in the order of arrival. A method may run when
//! all earlier ones have been removed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gridloom_base::{ObjectId, TaskId};

#[derive(Clone, Debug, Default)]
pub(super) struct MethodQueues {
    /// Methods of each object. The next one to run is first.
    lines: BTreeMap<ObjectId, VecDeque<TaskId>>,
    /// Admitted methods that wait for their turn.
    waiting: BTreeSet<TaskId>,
}

impl MethodQueues {
    pub(super) fn join(&mut self, object: ObjectId, task: TaskId) {
        self.lines.entry(object).or_default().push_back(task);
    }

    /// Makes an admitted method wait if it is not its turn. Returns true if it waits.
    pub(super) fn wait(&mut self, object: ObjectId, task: TaskId) -> bool {
        let waits = self.lines.get(&object).is_some_and(|line| line.front() != Some(&task));
        if waits {
            self.waiting.insert(task);
        }
        waits
    }

    pub(super) fn wait_no_more(&mut self, task: TaskId) {
        self.waiting.remove(&task);
    }

    /// Removes a method. Returns the admitted method whose turn it is now, if there is one.
    pub(super) fn leave(&mut self, object: ObjectId, task: TaskId) -> Option<TaskId> {
        let line = self.lines.get_mut(&object)?;
        line.retain(|other| *other != task);
        let Some(first) = line.front().copied() else {
            self.lines.remove(&object);
            return None;
        };
        self.waiting.remove(&first).then_some(first)
    }

    /// Returns the admitted methods that wait for their turn.
    pub(super) fn waiting(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.waiting.iter().copied()
    }

    pub(super) fn waits(&self, task: TaskId) -> bool {
        self.waiting.contains(&task)
    }

    /// Returns the methods of an object in the order of arrival.
    pub(super) fn of(&self, object: ObjectId) -> impl Iterator<Item = TaskId> + '_ {
        self.lines.get(&object).into_iter().flatten().copied()
    }

    /// Returns the methods of an object before a given one.
    pub(super) fn before(&self, object: ObjectId, task: TaskId) -> impl Iterator<Item = TaskId> + '_ {
        self.of(object).take_while(move |other| *other != task)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.waiting.is_empty()
    }
}
