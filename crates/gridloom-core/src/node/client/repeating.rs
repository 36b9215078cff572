//! Tasks that have failed and run again: elsewhere, if another server offers the function.
//!
//! A task that its server could not start runs again without being asked to, as long as there are servers on which it was not
//! tried. One that ran and failed does so only on the terms of its program ([`Retry`](crate::graph::Retry)): its errors may be
//! what it has to tell. Methods and calls that call their programs back run once.

use std::collections::{BTreeMap, BTreeSet};

use super::Client;
use super::following::Placed;
use crate::graph::{Failures, Task};
use crate::node::protocol::Effect;
use crate::node::{Category, LogLine};
use gridloom_base::{Level, NodeId, TaskError, TaskId, Time};

impl Client {
    /// Whether a task runs again that has failed on that server, and has failed on others before.
    pub(super) fn is_repeated(&self, task: &Task, failures: &Failures, server: NodeId, error: &TaskError) -> bool {
        let terms = &task.terms;
        if terms.is_once || terms.calibrates || task.object().is_some() || task.is_replicate() {
            return false;
        }
        let is_untried = |at: NodeId| at != server && !failures.at(at) && self.offers(at, task);
        if error.is_of_server()
            && terms.only.is_none()
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

    /// Says that a task runs again.
    pub(super) fn tell_repeated(
        &self,
        task: &Task,
        failures: &Failures,
        server: NodeId,
        error: &TaskError,
        out: &mut Vec<Effect>,
    ) {
        let retry = task.terms.retry.as_ref().filter(|_| !error.is_of_server());
        let of = retry.map_or_else(String::new, |retry| format!(" ({} of {})", failures.runs(), retry.times));
        let text = format!("{} failed on '{}' and runs again{of}", task.name(), self.contacts.name_of(server));
        out.push(LogLine::new(Level::Info, Category::Client, text).why(error).into());
    }

    /// A task of a group has failed on a server. Whether it runs again: if so, it is on its way.
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

    /// The server where a task of a group is predicted to end first, of those where it has not failed if there are any.
    fn place_to_repeat(&self, id: TaskId) -> Option<NodeId> {
        let run = &self.tasks[&id];
        if let Some(only) = run.task.terms.only {
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
