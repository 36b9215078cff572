//! One task of the executor, and where it stands.

use std::sync::Arc;

use crate::graph::Task;

/// Where a task stands.
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
    /// It has begun, and waits for its program's answer to a callback.
    Asking,
    /// It has begun, and waits for calls that it made itself.
    Calling,
}

impl State {
    /// Whether it is with a worker.
    pub fn has_begun(self) -> bool {
        matches!(self, State::Running | State::Asking | State::Calling)
    }
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
    pub(super) number: u64,
    /// Inputs that are not here, and the turn if that has not come.
    pub(super) missing: u32,
}

impl Entry {
    /// Whether others may have its slot while it waits.
    pub(super) fn leaves_slot(&self) -> bool {
        self.state == State::Running && self.task.terms.gang == 0
    }

    pub(super) fn is_running_gang(&self) -> bool {
        self.state == State::Running && self.task.terms.gang > 0
    }

    /// Slots that it has as a gang beside its first one.
    pub(super) fn ganged(&self) -> u32 {
        if self.state == State::Running { self.task.terms.gang.saturating_sub(1) } else { 0 }
    }
}
