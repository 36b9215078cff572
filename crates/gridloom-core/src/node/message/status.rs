//! The current activity of a server, for operators.

use serde::{Deserialize, Serialize};

use gridloom_base::{NodeId, Priority, Program, TaskId};

/// The answer to `GetStatus`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its tasks, running ones first: at most [`gridloom_base::limits::TASKS_PER_MESSAGE`].
    pub tasks: Vec<TaskStatus>,
    /// Number of all its tasks, including those that are not listed.
    pub count: u64,
    /// Bytes in its store.
    pub store_bytes: u64,
    /// The programs that made the listed tasks.
    pub programs: Vec<Program>,
}

impl ServerStatus {
    /// Returns the number of tasks at a stage. Tasks that are not listed count as waiting.
    pub fn at(&self, stage: Stage) -> u64 {
        let listed = self.tasks.iter().filter(|task| task.stage == stage).count() as u64;
        let beyond = if stage == Stage::Waiting { self.count.saturating_sub(self.tasks.len() as u64) } else { 0 };
        listed + beyond
    }

    /// Returns the program that made a task; `None` for tasks of the grid itself.
    pub fn program_of(&self, task: &TaskStatus) -> Option<&Program> {
        self.programs.iter().find(|program| program.client == task.program)
    }
}

/// The state of a task at its server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TaskStatus {
    pub task: TaskId,
    /// Its function, or the function that the program sent with the call; empty if the task only brings data to the server.
    pub function: String,
    pub stage: Stage,
    /// Nanoseconds since it started; 0 if it is not running.
    pub run_ns: u64,
    /// The client of the program that made it: for a call that a function made, the program that called the function.
    pub program: NodeId,
    #[serde(default)]
    pub priority: Priority,
}

/// The pending requests of a program, as reported by its client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProgramWaits {
    pub program: Program,
    /// Nanoseconds without an event for the program.
    pub waited_ns: u64,
    /// Texts that describe what it waits for, and from whom.
    pub waits: Vec<String>,
}

/// The stage that a task has reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Stage {
    /// It is running.
    Running,
    /// It has started, and waits for its program or for calls that it made.
    Paused,
    /// It is ready to run and waits for a slot.
    Queued,
    /// It waits for its data, or for memory for them.
    Waiting,
}
