//! Tasks that run here: since when, and beside how many others.

use super::*;

/// What is remembered of them.
#[derive(Debug, Default)]
pub(super) struct RunningTasks {
    tasks: BTreeMap<TaskId, Running>,
    /// Those that wait for what their programs say.
    asking: BTreeSet<TaskId>,
    /// Task-seconds until `changed`: their difference over a time, divided by it, is the mean number of tasks.
    task_s: f64,
    changed: Time,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Running {
    /// Since when.
    pub since: Time,
    /// Its function.
    pub function: String,
    /// Its work, if stated.
    pub work_flops: Option<f64>,
    task_s: f64,
}

impl RunningTasks {
    pub(super) fn started(&mut self, now: Time, task: &Task) {
        self.advance(now);
        let running =
            Running { since: now, function: task.function.clone(), work_flops: task.work_flops, task_s: self.task_s };
        self.tasks.insert(task.id, running);
    }

    /// A task waits for its program, or goes on: meanwhile it slows nobody down.
    pub(super) fn asks(&mut self, now: Time, task: TaskId, asks: bool) {
        self.advance(now);
        if asks && self.tasks.contains_key(&task) {
            self.asking.insert(task);
        } else {
            self.asking.remove(&task);
        }
    }

    /// Gives the mean number of tasks that ran while it did, itself included.
    pub(super) fn ended(&mut self, now: Time, task: TaskId) -> f64 {
        self.advance(now);
        self.asking.remove(&task);
        self.tasks.remove(&task).map_or(1.0, |running| self.mean_tasks(now, &running))
    }

    /// Mean number of tasks since that one started, itself included.
    pub(super) fn mean_tasks(&self, now: Time, running: &Running) -> f64 {
        let elapsed_s = ns_to_seconds(now.since(running.since));
        let since_s = ns_to_seconds(now.since(self.changed)) * self.computing();
        if elapsed_s == 0.0 { 1.0 } else { ((self.task_s + since_s - running.task_s) / elapsed_s).max(1.0) }
    }

    pub(super) fn elapsed_ns(&self, now: Time, task: TaskId) -> u64 {
        self.tasks.get(&task).map_or(0, |running| now.since(running.since))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Running> {
        self.tasks.values()
    }

    fn advance(&mut self, now: Time) {
        self.task_s += ns_to_seconds(now.since(self.changed)) * self.computing();
        self.changed = now;
    }

    fn computing(&self) -> f64 {
        (self.tasks.len() - self.asking.len()) as f64
    }
}
