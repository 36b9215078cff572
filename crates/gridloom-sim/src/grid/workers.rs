//! The workers of simulated servers: which one runs each task.
//!
//! The workers of a server start with it, so only the start of a worker that replaces that of another user takes time.

use std::collections::BTreeMap;

use gridloom_base::{NodeId, TaskId};
use gridloom_core::exec::{Separation, WorkerPlace, WorkerStep, WorkerUse, choose};
use gridloom_core::graph::Task;

#[derive(Default)]
pub(super) struct Workers(BTreeMap<NodeId, Vec<Worker>>);

struct Worker {
    used: WorkerUse,
    task: Option<TaskId>,
    /// True if it replaces a worker of another user, and its first task has not ended.
    is_replacement: bool,
}

impl Workers {
    /// Assigns a task that starts to a worker.
    pub(super) fn begin(&mut self, node: NodeId, slots: u32, task: &Task) {
        let workers = self.0.entry(node).or_default();
        let call = Separation::default().call_of(task);
        let count = workers.len();
        let idle = workers.iter().enumerate().filter(|(_, worker)| worker.task.is_none());
        let places = idle.map(|(number, worker)| (number, WorkerPlace { tasks: 0, worker: Some(&worker.used) }));
        let free = (count < slots as usize).then_some((count, WorkerPlace { tasks: 0, worker: None }));
        // Tasks that wait have left their slots and keep their workers.
        let (number, step) = choose(places.chain(free), call).unwrap_or((count, WorkerStep::Start));
        let is_replacement = step == WorkerStep::Replace;
        let new = || Worker { used: WorkerUse::default(), task: None, is_replacement };
        match step {
            WorkerStep::Reuse => {}
            WorkerStep::Start => workers.push(new()),
            WorkerStep::Replace => workers[number] = new(),
        }
        let worker = &mut workers[number];
        worker.used.record(call);
        worker.task = Some(task.id);
    }

    /// True if the worker of a task has to be started for it.
    pub(super) fn is_replacement(&self, node: NodeId, task: TaskId) -> bool {
        self.of(node).iter().any(|worker| worker.task == Some(task) && worker.is_replacement)
    }

    /// Handles the end of a task. `slots`: number of workers that are kept.
    pub(super) fn end(&mut self, node: NodeId, slots: u32, task: TaskId) {
        let Some(workers) = self.0.get_mut(&node) else { return };
        let count = workers.len();
        let Some(number) = workers.iter().position(|worker| worker.task == Some(task)) else { return };
        if count > slots as usize {
            workers.remove(number);
        } else {
            workers[number].task = None;
            workers[number].is_replacement = false;
        }
    }

    /// Removes the worker of a task that is stopped.
    pub(super) fn kill(&mut self, node: NodeId, task: TaskId) {
        if let Some(workers) = self.0.get_mut(&node) {
            workers.retain(|worker| worker.task != Some(task));
        }
    }

    /// Removes all workers of a server that has ended.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    fn of(&self, node: NodeId) -> &[Worker] {
        self.0.get(&node).map_or(&[], Vec::as_slice)
    }
}
