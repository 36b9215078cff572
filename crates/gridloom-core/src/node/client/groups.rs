//! Groups: accepted, followed until they end, and forgotten when nothing needs them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::following::Placed;
use super::remapping::Remapping;
use super::{Client, DatumRun, GroupRun, Status, TaskRun, datum_run};
use crate::graph::{Failures, Group, Task, TaskKind};
use crate::node::client::recovery::nested_error;
use crate::node::message::{DataMessage, MapToAgent, Supply, TaskReport, TaskToServer};
use crate::node::protocol::{Effect, Event};
use gridloom_base::limits::GROUP_TASKS_MAX;
use gridloom_base::{DatumId, GroupId, NodeId, TaskError, TaskId, Time};
use gridloom_map::MappingMethod;

impl Client {
    /// `placed` is where the tasks run, if that is known already, and the declared group whose plan they follow.
    pub(super) fn on_run(
        &mut self,
        now: Time,
        group: Group,
        heuristic: MappingMethod,
        (placed, follows): (Option<Placed>, Option<GroupId>),
        out: &mut Vec<Effect>,
    ) {
        let id = group.id;
        let count = group.tasks.len();
        let tasks: Vec<TaskId> = group.tasks.iter().map(|task| task.id).collect();
        let refusal = is_valid(&group).err();
        self.register(group);
        let run = GroupRun {
            is_given: placed.is_some() || matches!(heuristic, MappingMethod::Imposed(_)),
            heuristic,
            left: count,
            remembered: count,
            mapping: None,
            question: None,
            remapping: Remapping::default(),
            follows,
        };
        self.groups.insert(id, run);
        if let Some(why) = refusal {
            for task in tasks {
                self.fail_task(now, task, TaskError::NotMapped { why: why.clone() }, out);
            }
            return;
        }
        for task in &tasks {
            if let Some(error) = self.input_error(*task) {
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

    fn register(&mut self, group: Group) {
        let id = group.id;
        for (datum, source) in group.sources {
            self.data.entry(datum).or_insert_with(|| datum_run(source.meta, None, true));
        }
        for task in group.tasks {
            let task = Arc::new(task);
            for output in &task.outputs {
                self.data.insert(output.datum, datum_run(output.meta.clone(), Some(task.id), false));
            }
            for datum in task.inputs() {
                if let Some(run) = self.data.get_mut(&datum)
                    && run.consumers.insert(task.id)
                {
                    run.pending += 1;
                }
            }
            let run = TaskRun {
                group: id,
                status: Status::Unmapped,
                attempts: 0,
                lost_with: None,
                failures: Failures::default(),
                since: None,
                missing: 0,
                task,
            };
            self.tasks.insert(run.task.id, run);
        }
        for datum in group.wanted {
            if let Some(run) = self.data.get_mut(&datum) {
                run.presumed = true;
            }
        }
    }

    /// Returns the error of the first argument that is not available.
    fn input_error(&self, id: TaskId) -> Option<TaskError> {
        let run = self.tasks.get(&id)?;
        run.task.inputs().find_map(|datum| match self.data.get(&datum) {
            None => Some(TaskError::DatumLost { datum, why: "it was released before this call".into() }),
            Some(data) => data.error.clone().map(|error| nested_error(data.producer, error)),
        })
    }

    /// Returns the server to which a datum's task was sent, if the task has not ended.
    pub(super) fn maker(&self, run: &DatumRun) -> Option<NodeId> {
        match self.tasks.get(&run.producer?)?.status {
            Status::Sent(server) => Some(server),
            Status::Unmapped | Status::Done | Status::Failed(_) => None,
        }
    }

    /// Returns the source of a datum for a server, with the number of sends.
    pub(super) fn supply(&self, datum: DatumId, from: NodeId, hops: u16) -> Supply {
        let address = match from == self.config.id {
            true => String::new(),
            false => self.contacts.address_of(from),
        };
        Supply::direct(datum, self.data[&datum].meta.clone(), from, address, hops)
    }

    /// Fetches a datum to the client. Returns false if its location is unknown.
    pub(super) fn fetch_here(&mut self, datum: DatumId, out: &mut Vec<Effect>) -> bool {
        let Some(run) = self.data.get(&datum) else { return false };
        // A datum whose transfer to the client was interrupted is fetched again later, however often it is requested.
        if run.here || run.fetching.is_some() || self.supplies.is_astray(datum, self.config.id) {
            return true;
        }
        let is_there = |node: &NodeId| !self.contacts.is_lost(*node) && !self.is_plain(*node);
        let near = self.names.near.filter(|node| run.holders.contains(node));
        let holders = near.into_iter().chain(run.holders.iter().copied()).filter(is_there);
        let holder = self.supplies.best_source(datum, self.config.id, holders);
        let Some(from) = holder.or_else(|| self.maker(run)) else { return false };
        if self.is_plain(from) {
            // The server sends it without a request.
            return true;
        }
        self.data.get_mut(&datum).expect("found above").fetching = Some(from);
        self.contacts.post(from, DataMessage::Fetch { datum, hops: 1, by_storage: false }, out);
        true
    }

    // ---- ends

    pub(super) fn on_task_report(&mut self, now: Time, from: NodeId, report: TaskReport, out: &mut Vec<Effect>) {
        let is_plain = self.is_plain(from);
        let run = self.tasks.get_mut(&report.task).filter(|run| run.status == Status::Sent(from));
        let Some(run) = run else {
            // It was cancelled or failed after it had ended there.
            for (datum, _) in report.outcome.iter().flatten().filter(|_| !is_plain) {
                self.copy_at(now, from, *datum, out);
            }
            return;
        };
        let at = now - report.timing.age_ns;
        self.supplies.copies.end(report.task);
        match &report.outcome {
            Ok(results) => {
                run.status = Status::Done;
                run.attempts = 0;
                run.lost_with = None;
                let (task, group) = (run.task.clone(), run.group);
                self.queues.remove(now, task.id);
                for (datum, meta) in results {
                    if let Some(data) = self.data.get_mut(datum).filter(|data| data.producer == Some(task.id)) {
                        data.meta = meta.clone();
                        // A result that a stateless server is sending counts as stored, unless its transfer was
                        // interrupted.
                        if !is_plain || (!data.here && data.fetching == Some(from)) {
                            data.holders.insert(from);
                        }
                    }
                }
                out.push(Effect::Emit(Event::TaskEnded { at, server: Some(from), report }));
                if task.is_replicate() {
                    // Transfers of shared data are reported only to the catalog.
                    self.copies_taken(&task, from);
                }
                for output in &task.outputs {
                    self.supply_waiting(now, output.datum, out);
                    self.made(now, output.datum);
                }
                self.ended(now, &task, group, out);
                if is_plain {
                    self.make_broken_off(now, &task, out);
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
            if let Some(run) = self.data.get_mut(&datum) {
                run.holders.insert(server);
            }
        }
    }

    /// Handles a datum that was produced: tasks that waited for it may be able to run.
    fn made(&mut self, now: Time, datum: DatumId) {
        let Some(consumers) = self.data.get(&datum).map(|run| run.consumers.clone()) else { return };
        for id in consumers {
            let Some(run) = self.tasks.get_mut(&id).filter(|run| run.missing > 0) else { continue };
            run.missing -= 1;
            if run.missing == 0 {
                self.queue_if_ready(now, id);
            }
        }
    }

    /// Handles the end or failure of a task: its inputs have one reader less.
    fn ended(&mut self, now: Time, task: &Task, group: GroupId, out: &mut Vec<Effect>) {
        if matches!(task.kind, TaskKind::Publish(_)) {
            self.publish_ended(now, task.id, out);
        }
        self.ask_for_made(task, out);
        let inputs: BTreeSet<DatumId> = task.inputs().collect();
        for datum in &inputs {
            if let Some(run) = self.data.get_mut(datum) {
                run.pending -= 1;
            }
        }
        let run = self.groups.get_mut(&group).expect("a task's group is known");
        run.left -= 1;
        if run.left == 0 {
            self.group_ended(now, group, out);
        }
        for datum in inputs {
            self.tidy(datum, out);
        }
        for output in &task.outputs {
            self.tidy(output.datum, out);
        }
        if task.outputs.is_empty() {
            let mut unread = Vec::new();
            self.forget_if_settled(task.id, &mut unread);
            unread.into_iter().for_each(|datum| self.tidy(datum, out));
        }
    }

    fn group_ended(&mut self, now: Time, group: GroupId, out: &mut Vec<Effect>) {
        out.push(Effect::Emit(Event::GroupEnded { at: now, group }));
        self.contacts.tell_agent(MapToAgent::GroupEnded { group }, out);
        if self.groups.get(&group).is_some_and(|run| run.remembered == 0) {
            self.groups.remove(&group);
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
            let Some(run) = self.tasks.get_mut(&id) else { continue };
            let server = match run.status {
                Status::Done | Status::Failed(_) => continue,
                Status::Sent(server) => Some(server),
                Status::Unmapped => {
                    self.has_less_to_map = true;
                    None
                }
            };
            run.status = Status::Failed(error.clone());
            self.queues.remove(at, id);
            let (task, group) = (run.task.clone(), run.group);
            self.supplies.copies.end(id);
            if let Some(server) = server.filter(|server| self.is_plain(*server)) {
                self.await_no_more(&task, server, out);
            }
            self.emit_task_ended(at, server, id, error.clone(), out);
            if let Some(server) = server.filter(|_| reported_by.is_none() || id != work_root(&error, id)) {
                self.contacts.post(server, TaskToServer::Cancel { tasks: vec![id] }, out);
            }
            for output in &task.outputs {
                let Some(data) = self.data.get(&output.datum) else { continue };
                if data.here || !data.holders.is_empty() {
                    // An earlier run of the task produced it; this run was for another result.
                    continue;
                }
                let root = work_root(&error, id);
                let nested = TaskError::DependencyFailed { task: root, why: why.clone() };
                work.extend(data.consumers.iter().map(|consumer| (*consumer, nested.clone())));
                self.refuse_all(output.datum, &error, out);
            }
            self.ended(at, &task, group, out);
        }
    }

    // ---- forgetting

    /// Records that a server has a datum. Readers that wait for it can fetch it. If nobody needs the datum any more,
    /// the server is told to drop it.
    pub(super) fn copy_at(&mut self, now: Time, server: NodeId, datum: DatumId, out: &mut Vec<Effect>) {
        match self.data.get_mut(&datum).filter(|run| run.error.is_none()) {
            Some(run) => {
                run.holders.insert(server);
                if self.is_to_come_here(datum) {
                    self.fetch_here(datum, out);
                }
                self.supply_waiting(now, datum, out);
                self.tidy(datum, out);
            }
            None => self.contacts.post(server, TaskToServer::Release { data: vec![datum] }, out),
        }
    }

    /// Handles the program's release of a datum. With `is_fleeting` no copy may outlive its readers.
    pub(super) fn release(&mut self, datum: DatumId, is_fleeting: bool, out: &mut Vec<Effect>) {
        if let Some(run) = self.data.get_mut(&datum) {
            run.held = false;
            run.presumed = false;
            // Nobody can wait for it any more. A datum that was requested from a server still arrives.
            run.wanted &= run.fetching.is_some();
            run.is_fleeting |= is_fleeting;
        }
        self.tidy(datum, out);
    }

    /// Drops the copy at one node if there are others. Copies that are not kept may be evicted.
    pub(super) fn give_up(&mut self, datum: DatumId, at: NodeId, out: &mut Vec<Effect>) {
        let Some(run) = self.data.get_mut(&datum) else { return };
        let is_alone = run.holders.len() + usize::from(run.here) < 2;
        if is_alone || !run.fetchers.is_empty() {
            return;
        }
        if at == self.config.id {
            if std::mem::take(&mut run.here) {
                out.push(Effect::DropDatum { datum });
            }
        } else if run.holders.remove(&at) {
            self.contacts.post(at, TaskToServer::Release { data: vec![datum] }, out);
        }
    }

    /// Drops everything that nobody needs any more, from this datum upwards.
    pub(super) fn tidy(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        let mut work = vec![datum];
        while let Some(datum) = work.pop() {
            let Some(run) = self.data.get_mut(&datum) else { continue };
            if run.held || run.wanted || run.pending > 0 || !run.fetchers.is_empty() {
                // It is still needed; but a result that has arrived no longer needs its task.
                if let Some(producer) = run.producer.filter(|_| run.here || run.error.is_some()) {
                    self.forget_if_settled(producer, &mut work);
                }
                continue;
            }
            if run.is_fleeting && run.error.is_none() {
                let why = "it was erased after its use, as requested".into();
                run.error = Some(TaskError::DatumLost { datum, why });
                if std::mem::take(&mut run.here) {
                    out.push(Effect::DropDatum { datum });
                }
            }
            for holder in std::mem::take(&mut run.holders) {
                if !self.contacts.is_lost(holder) && !datum.is_shared() && !self.is_plain(holder) {
                    self.contacts.post(holder, TaskToServer::Release { data: vec![datum] }, out);
                }
            }
            if let Some(producer) = self.data[&datum].producer {
                self.forget_if_settled(producer, &mut work);
            }
            let Some(run) = self.data.get(&datum) else { continue };
            if run.producer.is_none() && run.consumers.is_empty() {
                if run.here {
                    out.push(Effect::DropDatum { datum });
                }
                self.data.remove(&datum);
                self.supplies.forget_datum(datum);
                if let Some(release) = self.names.forget_found(datum) {
                    self.contacts.tell_agent(release, out);
                }
            }
        }
    }

    /// Forgets a task that will not have to run again. Its data are examined next.
    fn forget_if_settled(&mut self, id: TaskId, work: &mut Vec<DatumId>) {
        let Some(run) = self.tasks.get(&id) else { return };
        if !matches!(run.status, Status::Done | Status::Failed(_)) {
            return;
        }
        let settled = run.task.outputs.iter().all(|output| {
            self.data.get(&output.datum).is_none_or(|data| {
                data.here || data.error.is_some() || (!data.held && !data.wanted && data.consumers.is_empty())
            })
        });
        if !settled {
            return;
        }
        let run = self.tasks.remove(&id).expect("found above");
        for output in &run.task.outputs {
            if let Some(data) = self.data.get_mut(&output.datum) {
                data.producer = None;
                work.push(output.datum);
            }
        }
        for datum in run.task.inputs() {
            if let Some(data) = self.data.get_mut(&datum)
                && data.consumers.remove(&id)
            {
                work.push(datum);
            }
        }
        if let Some(group) = self.groups.get_mut(&run.group) {
            group.remembered -= 1;
            if group.remembered == 0 && group.left == 0 {
                self.groups.remove(&run.group);
            }
        }
    }
}

/// Returns the task that failed first.
fn work_root(error: &TaskError, id: TaskId) -> TaskId {
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
