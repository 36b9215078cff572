//! Restarts of failed tasks, on another server if one offers the function.
//!
//! A task that its server could not start is restarted automatically, as long as there are servers on which it was not
//! tried. A task that ran and failed is restarted only if its program wants that ([`Retry`](crate::graph::Retry)),
//! because its error may be its result. Methods, and calls that call back their programs, run only once.

use std::collections::{BTreeMap, BTreeSet};

use super::Client;
use super::following::Placed;
use crate::graph::{Failures, Task};
use crate::node::protocol::Effect;
use crate::node::{Category, LogLine};
use gridloom_base::{Level, NodeId, TaskError, TaskId, Time};

impl Client {
    /// True if a task that failed on that server, and on others before, is restarted.
    pub(super) fn is_repeated(&self, task: &Task, failures: &Failures, server: NodeId, error: &TaskError) -> bool {
        let terms = &task.options;
        if terms.is_once || terms.is_measuring || task.object().is_some() || task.is_replicate() {
            return false;
        }
        let is_untried = |at: NodeId| at != server && !failures.at(at) && self.offers(at, task);
        if error.is_server_fault()
            && terms.bound_to.is_none()
            && self.directory.grid.servers.iter().any(|view| is_untried(view.node))
        {
            return true;
        }
        terms.retry.as_ref().is_some_and(|retry| failures.runs() < retry.times && retry.covers(error))
    }

    fn offers(&self, server: NodeId, task: &Task) -> bool {
        let view = self.directory.grid.server(server).map(|at| &self.directory.grid.servers[at]);
        view.is_some_and(|view| view.functions.contains_key(task.name())) && !self.contacts.is_lost(server)
    }

    /// Reports that a task is restarted.
    pub(super) fn tell_repeated(
        &self,
        task: &Task,
        failures: &Failures,
        server: NodeId,
        error: &TaskError,
        out: &mut Vec<Effect>,
    ) {
        let retry = task.options.retry.as_ref().filter(|_| !error.is_server_fault());
        let of = retry.map_or_else(String::new, |retry| format!(" ({} of {})", failures.runs(), retry.times));
        let text = format!("{} failed on '{}' and is restarted{of}", task.name(), self.contacts.name_of(server));
        out.push(LogLine::new(Level::Info, Category::Client, text).why(error).into());
    }

    /// Handles a failure of a group's task on a server. Returns true if the task is restarted, which has begun then.
    pub(super) fn repeat_in_group(
        &mut self,
        now: Time,
        id: TaskId,
        from: NodeId,
        error: &TaskError,
        out: &mut Vec<Effect>,
    ) -> bool {
        let run = &self.tasks[&id];
        if !self.is_repeated(&run.task, &run.failures, from, error) {
            return false;
        }
        self.take_back(id, from);
        self.queues.remove(now, id);
        self.tasks.get_mut(&id).expect("found above").failures.push(from, error);
        let run = &self.tasks[&id];
        let group = run.group;
        self.tell_repeated(&run.task, &run.failures, from, error, out);
        match self.place_to_repeat(id) {
            Some(server) => self.place(now, group, vec![id], &Placed { server, from: BTreeMap::new() }, out),
            None => self.map_again(now, BTreeSet::from([group]), out),
        }
        true
    }

    /// Returns the server with the earliest predicted end for a task of a group. Prefers servers where it has not
    /// failed.
    fn place_to_repeat(&self, id: TaskId) -> Option<NodeId> {
        let run = &self.tasks[&id];
        if let Some(only) = run.task.options.bound_to {
            return Some(only);
        }
        let ends =
            self.directory.grid.servers.iter().filter(|view| self.offers(view.node, &run.task)).filter_map(|view| {
                let (data_s, run_s) = self.cost_at(id, view.node, 0.0)?;
                Some((run.failures.at(view.node), data_s + run_s, view.node))
            });
        ends.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))).map(|(.., server)| server)
    }
}
