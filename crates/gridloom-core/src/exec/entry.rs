//! One task of the executor and its state.

use std::sync::Arc;

use super::fair_queue::{Place, TaskOwner};
use crate::graph::Task;

/// The state of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The store has no room for it yet.
    Held,
    /// Some inputs have not arrived, or an earlier method of its object has not ended.
    Waiting,
    /// It can run.
    Ready,
    /// It runs, or is queued inside a worker.
    Running,
    /// It has begun and waits for its program's answer to a callback.
    AwaitingCallback,
    /// It has begun and waits for calls that it made itself.
    AwaitingCalls,
}

impl State {
    /// True if a worker has the task.
    pub fn has_begun(self) -> bool {
        matches!(self, State::Running | State::AwaitingCallback | State::AwaitingCalls)
    }
}

/// A task and its state.
#[derive(Clone, Debug)]
pub struct TaskEntry {
    pub task: Arc<Task>,
    pub owner: TaskOwner,
    pub state: State,
    /// True for a plain call: results are sent to the caller at once and nothing is kept.
    pub is_call: bool,
    /// True if the workers of its function serve one user each.
    pub is_separate: bool,
    pub(super) place: Place,
    /// Number of its last admission.
    pub(super) admission: u64,
    /// Number of missing inputs, plus one if it waits for its turn among the methods of its object.
    pub(super) missing: u32,
}

impl TaskEntry {
    /// True if others may use its slot while it waits for an answer.
    pub(super) fn may_leave_slot(&self) -> bool {
        self.state == State::Running && self.task.options.gang == 0
    }

    /// Returns its position among the tasks that wait: the deepest nested calls are first, and tasks that were put back last.
    pub(super) fn order_of_waiting(&self) -> (u64, u64) {
        (self.place.number >> 48, self.admission)
    }

    /// True if a function made the call that it runs.
    pub(super) fn is_nested(&self) -> bool {
        self.task.options.depth > 0
    }

    pub(super) fn is_running_gang(&self) -> bool {
        self.state == State::Running && self.task.options.gang > 0
    }

    /// Returns the slots that it lends to nested calls: all those of a gang that waits for calls of its own.
    pub(super) fn lent_slots(&self) -> u32 {
        lent_slots(self.state, self.task.options.gang)
    }

    /// Returns the slots that it occupies as a gang in addition to the first one.
    pub(super) fn extra_gang_slots(&self) -> u32 {
        if self.state == State::Running { self.task.options.gang.saturating_sub(1) } else { 0 }
    }
}

/// Returns the slots that a task in this state, which takes `gang` slots at once, lends to nested calls.
pub(super) fn lent_slots(state: State, gang: u32) -> u32 {
    if state == State::AwaitingCalls { gang } else { 0 }
}
