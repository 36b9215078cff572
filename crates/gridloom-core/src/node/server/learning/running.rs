//! The tasks that run at the server: start times, and the number of tasks that run at the same time.

use std::collections::BTreeMap;

use crate::graph::Task;
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{TaskId, Time};
use gridloom_perf::is_work;

#[derive(Debug, Default)]
pub(super) struct RunningTasks {
    tasks: BTreeMap<TaskId, Running>,
    /// Number of tasks that have been computing since `changed`. A task that waits for its program's answer does not
    /// slow others down.
    computing: u32,
    /// Task-seconds until `changed`. Their difference over an interval, divided by its length, is the mean number of tasks.
    task_s: f64,
    changed: Time,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) since: Time,
    pub(super) function: String,
    pub(super) work_flops: Option<f64>,
    task_s: f64,
}

impl RunningTasks {
    /// Records the start of a task. `computing`: number of tasks that compute from now on.
    pub(super) fn started(&mut self, now: Time, task: &Task, computing: u32) {
        self.set_computing(now, computing);
        let (function, work_flops) = (task.name().to_string(), task.work_flops.filter(|work| is_work(*work)));
        self.tasks.insert(task.id, Running { since: now, function, work_flops, task_s: self.task_s });
    }

    /// Sets the number of tasks that compute from now on.
    pub(super) fn set_computing(&mut self, now: Time, computing: u32) {
        self.task_s += ns_to_seconds(now.since(self.changed)) * f64::from(self.computing);
        self.changed = now;
        self.computing = computing;
    }

    /// Records the end of a task. Returns the mean number of tasks that ran during it, itself included.
    pub(super) fn ended(&mut self, now: Time, task: TaskId, computing: u32) -> f64 {
        self.set_computing(now, computing);
        self.tasks.remove(&task).map_or(1.0, |running| self.mean_tasks(now, &running))
    }

    /// Returns the mean number of tasks since this one started, itself included.
    pub(super) fn mean_tasks(&self, now: Time, running: &Running) -> f64 {
        let elapsed_s = ns_to_seconds(now.since(running.since));
        let since_s = ns_to_seconds(now.since(self.changed)) * f64::from(self.computing);
        if elapsed_s == 0.0 { 1.0 } else { ((self.task_s + since_s - running.task_s) / elapsed_s).max(1.0) }
    }

    pub(super) fn elapsed_ns(&self, now: Time, task: TaskId) -> u64 {
        self.tasks.get(&task).map_or(0, |running| now.since(running.since))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Running> {
        self.tasks.values()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let (computing, begun) = (self.computing as usize, self.tasks.len());
        if computing > begun { Err(format!("{computing} tasks compute, but only {begun} run")) } else { Ok(()) }
    }
}
