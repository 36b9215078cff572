//! What a server does at the moment, for people.

use serde::{Deserialize, Serialize};

use gridloom_base::TaskId;

/// The answer to `TellStatus`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its tasks, those that run first: at most [`gridloom_base::limits::TASKS_PER_MESSAGE`].
    pub tasks: Vec<TaskStatus>,
    /// How many it has in all.
    pub count: u64,
    /// Bytes in its store.
    pub store_bytes: u64,
}

impl ServerStatus {
    /// How many tasks are at that stage. Those that are too many to be listed wait.
    pub fn at(&self, stage: Stage) -> u64 {
        let listed = self.tasks.iter().filter(|task| task.stage == stage).count() as u64;
        let beyond = if stage == Stage::Waiting { self.count.saturating_sub(self.tasks.len() as u64) } else { 0 };
        listed + beyond
    }
}

/// Where a task stands on its server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TaskStatus {
    pub task: TaskId,
    /// Its function, or the one that this runs; empty if it only takes data there.
    pub function: String,
    pub stage: Stage,
    /// Nanoseconds that it has run, 0 if it does not.
    pub run_ns: u64,
}

/// How far a task has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Stage {
    /// It runs.
    Running,
    /// It has begun, and waits for its program or for calls of its own.
    Calling,
    /// It could run, and waits for a slot.
    Queued,
    /// It waits for its data, or for room for them.
    Waiting,
}
