//! Groups: accepted, followed until they end, and forgotten when nothing needs them.
//!
//! A failed task is restarted on another server if one offers the function. A task that its server could not start is
//! restarted automatically, as long as there are servers on which it was not tried. A task that ran and failed is
//! restarted only if its program wants that ([`Retry`](crate::graph::Retry)), because its error may be its result. Methods, and calls that call back their programs, run only once.

use std::collections::{BTreeMap, BTreeSet};

use super::Client;
use super::following::PlannedPlace;
use super::graph::{FailedTask, TaskState};
use crate::graph::{Failures, Group, Task, TaskKind};
use crate::node::message::{MapToAgent, TaskReport, TaskToServer};
use crate::node::protocol::{Effect, Event};
use crate::node::{Category, LogLine};
use gridloom_base::limits::GROUP_TASKS_MAX;
use gridloom_base::{DatumId, GroupId, Level, NodeId, TaskError, TaskId, Time};
use gridloom_map::MappingMethod;

impl Client {
    /// `placed` is where the tasks run, if that is known already, and the declared group whose plan they follow.
    pub(super) fn on_run(
        &mut self,
        now: Time,
        group: Group,
        heuristic: MappingMethod,
        (placed, follows): (Option<PlannedPlace>, Option<GroupId>),
        out: &mut Vec<Effect>,
    ) {
        let id = group.id;
        let count = group.tasks.len();
        let tasks: Vec<TaskId> = group.tasks.iter().map(|task| task.id).collect();
        let refusal = is_valid(&group).err();
        self.graph.add(group);
        let is_given = placed.is_some() || matches!(heuristic, MappingMethod::Imposed(_));
        self.plans.add(id, heuristic, is_given, follows);
        if let Some(why) = refusal {
            for task in tasks {
                self.fail_task(now, task, TaskError::NotMapped { why: why.clone() }, out);
            }
            return;
        }
        for task in &tasks {
            if let Some(error) = self.graph.input_error(*task) {
                self.fail_task(now, *task, error, out);
            }
        }
        if count == 0 {
            self.group_ended(now, id, out);
            return;
        }
        match placed {
            None => self.request_map(now, id, tasks, out),
            Some(placed) => self.place(now, id, tasks, &placed, out),
        }
    }

    /// True if a task runs no function, but copies data to its server or takes a part of a datum there.
    pub(super) fn is_placement(&self, task: TaskId) -> bool {
        self.graph.task(task).is_some_and(|run| run.task().is_replicate())
    }

    // ---- ends

    pub(super) fn on_task_report(&mut self, now: Time, from: NodeId, report: TaskReport, out: &mut Vec<Effect>) {
        let is_plain = self.is_stateless(from);
        if !self.graph.task(report.task).is_some_and(|run| run.is_at(from)) {
            // It was cancelled or failed after it had ended there.
            for (datum, _) in report.outcome.iter().flatten().filter(|_| !is_plain) {
                self.copy_at(now, from, *datum, out);
            }
            return;
        }
        let at = now - report.timing.age_ns;
        self.supplies.copies.end(report.task);
        match &report.outcome {
            Ok(results) => {
                let ended = self.graph.done(report.task, from, results, is_plain);
                let (task, group) = ended.expect("found above");
                self.queues.remove(now, task.id);
                out.push(Effect::Emit(Event::TaskEnded { at, server: Some(from), report }));
                if task.is_replicate() {
                    // Transfers of shared data are reported only to the catalog.
                    self.copies_taken(&task, from);
                }
                for output in &task.outputs {
                    self.supply_waiting(now, output.datum, out);
                    for ready in self.graph.made(output.datum) {
                        self.queue_if_ready(now, ready);
                    }
                }
                self.ended(now, &task, group, out);
                if is_plain {
                    self.recompute_interrupted(now, &task, out);
                }
            }
            Err(error) => {
                let error = error.clone();
                if !self.repeat_in_group(now, report.task, from, &error, out) {
                    self.fail_task_at(at, report.task, error, Some(from), out);
                }
            }
        }
    }

    fn copies_taken(&mut self, task: &Task, server: NodeId) {
        for datum in task.inputs().filter(|datum| datum.is_shared()) {
            self.graph.copy_added(datum, server);
        }
    }

    /// Handles the end or failure of a task: its inputs have one reader less.
    fn ended(&mut self, now: Time, task: &Task, group: GroupId, out: &mut Vec<Effect>) {
        if matches!(task.kind, TaskKind::Publish(_)) {
            self.publish_ended(now, task.id, out);
        }
        self.put_results(task, out);
        let inputs: BTreeSet<DatumId> = task.inputs().collect();
        if self.graph.ended(&inputs, group) {
            self.group_ended(now, group, out);
        }
        for datum in inputs {
            self.tidy(datum, out);
        }
        for output in &task.outputs {
            self.tidy(output.datum, out);
        }
        if task.outputs.is_empty() {
            let unneeded = self.graph.tidy_task(task.id);
            self.drop_unneeded(unneeded, out);
        }
    }

    fn group_ended(&mut self, now: Time, group: GroupId, out: &mut Vec<Effect>) {
        out.push(Effect::Emit(Event::GroupEnded { at: now, group }));
        self.contacts.send_to_agent(MapToAgent::GroupEnded { group }, out);
        if self.graph.forget_if_empty(group) {
            self.plans.forget(group);
        }
    }

    /// Fails a task, and the tasks that depend on it.
    pub(super) fn fail_task(&mut self, now: Time, id: TaskId, error: TaskError, out: &mut Vec<Effect>) {
        self.fail_task_at(now, id, error, None, out);
    }

    fn fail_task_at(
        &mut self,
        at: Time,
        id: TaskId,
        error: TaskError,
        reported_by: Option<NodeId>,
        out: &mut Vec<Effect>,
    ) {
        let why = error.to_string();
        let mut work = vec![(id, error)];
        while let Some((id, error)) = work.pop() {
            let Some(FailedTask { task, group, server }) = self.graph.failed(id, &error) else { continue };
            self.has_less_to_map |= server.is_none();
            self.queues.remove(at, id);
            self.supplies.copies.end(id);
            if let Some(server) = server.filter(|server| self.is_stateless(*server)) {
                self.stop_awaiting(&task, server, out);
            }
            self.emit_task_ended(at, server, id, error.clone(), out);
            if let Some(server) = server.filter(|_| reported_by.is_none() || id != root_failure(&error, id)) {
                self.contacts.post(server, TaskToServer::Cancel { tasks: vec![id] }, out);
            }
            for output in &task.outputs {
                let Some(data) = self.graph.datum(output.datum) else { continue };
                if data.has_copy() {
                    // An earlier run of the task produced it; this run was for another result.
                    continue;
                }
                let root = root_failure(&error, id);
                let nested = TaskError::DependencyFailed { task: root, why: why.clone() };
                work.extend(data.consumers().iter().map(|consumer| (*consumer, nested.clone())));
                self.refuse_all(output.datum, &error, out);
            }
            self.ended(at, &task, group, out);
        }
    }

    // ---- restarts

    /// True if a task that failed on that server, and on others before, is restarted.
    pub(super) fn is_restarted(&self, task: &Task, failures: &Failures, server: NodeId, error: &TaskError) -> bool {
        let terms = &task.options;
        if terms.is_once || terms.is_measuring || task.object().is_some() || task.is_replicate() {
            return false;
        }
        let is_untried = |at: NodeId| at != server && !failures.at(at) && self.offers(at, task);
        if error.may_succeed_elsewhere()
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
    pub(super) fn report_restart(
        &self,
        task: &Task,
        failures: &Failures,
        server: NodeId,
        error: &TaskError,
        out: &mut Vec<Effect>,
    ) {
        let retry = task.options.retry.as_ref().filter(|_| !error.may_succeed_elsewhere());
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
        let Some(run) = self.graph.task(id) else { return false };
        if !self.is_restarted(run.task(), run.failures(), from, error) {
            return false;
        }
        self.unassign(id, from);
        self.queues.remove(now, id);
        self.graph.will_repeat(id, from, error);
        let run = self.graph.task(id).expect("found above");
        let group = run.group();
        self.report_restart(run.task(), run.failures(), from, error, out);
        match self.place_to_repeat(run) {
            Some(server) => self.place(now, group, vec![id], &PlannedPlace { server, from: BTreeMap::new() }, out),
            None => self.map_again(now, BTreeSet::from([group]), out),
        }
        true
    }

    /// Returns the server with the earliest predicted end for a task of a group. Prefers servers where it has not
    /// failed.
    fn place_to_repeat(&self, run: &TaskState) -> Option<NodeId> {
        if let Some(only) = run.task().options.bound_to {
            return Some(only);
        }
        let ends =
            self.directory.grid.servers.iter().filter(|view| self.offers(view.node, run.task())).filter_map(|view| {
                let (data_s, run_s) = self.cost_at(run.id(), view.node, 0.0)?;
                Some((run.failures().at(view.node), data_s + run_s, view.node))
            });
        ends.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))).map(|(.., server)| server)
    }
}

/// Returns the task that failed first.
fn root_failure(error: &TaskError, id: TaskId) -> TaskId {
    match error {
        TaskError::DependencyFailed { task, .. } => *task,
        _ => id,
    }
}

fn is_valid(group: &Group) -> Result<(), String> {
    match group.tasks.len() {
        0..=GROUP_TASKS_MAX => Ok(()),
        calls => Err(format!("a group of {calls} calls exceeds the limit of {GROUP_TASKS_MAX}; split it into parts")),
    }
}
