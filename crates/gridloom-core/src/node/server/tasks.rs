//! Tasks of a server: accepting, starting, ending and cancelling them, and reporting them to their clients.

use std::collections::BTreeMap;

use super::admission::StallResolution;
use super::learning::Call;
use super::rules::listed;
use super::{EarlyEnd, Server, accounts, send};
use crate::call::{OutputItem, TaskOutput};
use crate::exec::{State, TaskEntry};
use crate::graph::{Argument, Task, TaskKind};
use crate::node::message::{
    AuditEvent, DirectoryToClient, ServerStatus, Stage, Supply, TaskStatus, TaskToClient, TransferReport,
};
use crate::node::protocol::Effect;
use crate::node::{Category, LogLine, ServerTimer};
use gridloom_base::limits::{HEARTBEAT_NS, NAME_BYTES_MAX, RATE_REPORT_NS, TASKS_PER_MESSAGE};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{
    DatumId, GroupId, Level, Meta, NameKind, NodeId, ObjectId, Origin, Program, TaskError, TaskId, Time, check_name,
    truncated,
};
use gridloom_idl::KnownArgument;

/// Longest name of a function or method that a task may state: `module/function`.
const FUNCTION_BYTES_MAX: usize = 2 * NAME_BYTES_MAX;
/// Maximum number of tasks that a server logs on request.
const TASKS_LOGGED_MAX: usize = 16;

impl Server {
    // ---- accepting

    pub(super) fn on_tasks(
        &mut self,
        now: Time,
        from: NodeId,
        tasks: Vec<Task>,
        supplies: Vec<Supply>,
        is_call: bool,
        out: &mut Vec<Effect>,
    ) {
        for mut task in tasks {
            if !self.programs.may_call_for(from, task.program()) {
                task.options.program = None;
            }
            let checked = self.check_stateless(&task).and_then(|()| self.check_task(from, &task));
            let checked =
                checked.and_then(|()| self.check_permitted(from, &task)).and_then(|()| self.check_quotas(&task));
            let is_offered = |name: &str| self.functions.contains_key(name);
            let checked =
                checked.and_then(|()| self.objects.check_and_add(&task, is_call, is_offered, &self.config.name));
            if let Err(error) = checked {
                if let TaskError::NotPermitted { function, why, .. } = &error {
                    self.record_request(from, AuditEvent::Call, function, Err(why));
                }
                self.report(now, from, task.id, Err(error), 0, out);
                continue;
            }
            let (id, object) = (task.id, task.object());
            // A stateless server keeps no results: it runs every task as a call.
            let user = self.programs.user_of(&task);
            task.options.user = Some(Box::from(&*user));
            let is_new = self.admission.add(now, task, &user, is_call || self.config.is_stateless);
            // The task's number was used twice: no object is made for it.
            if let (false, Some(object)) = (is_new, object)
                && self.admission.of_object(object).is_empty()
            {
                self.objects.not_made(object, id);
            }
        }
        self.admission.expect(from, supplies, is_call);
        for (id, error) in self.admission.too_large(from) {
            self.end_with_error(now, id, error, out);
        }
        self.pump(now, out);
    }

    /// Informs clients with queued tasks how long other clients' tasks have run.
    pub(super) fn report_waits(&mut self, now: Time, out: &mut Vec<Effect>) {
        let elapsed_ns = |client| {
            let others = self.admission.others_running(client);
            others.map(|task| self.learning.elapsed_ns(now, task)).collect::<Vec<u64>>()
        };
        let waiting = self.admission.kept_waiting().into_iter().map(|client| (client, elapsed_ns(client)));
        let waiting = waiting.filter(|(_, elapsed_ns)| !elapsed_ns.is_empty()).collect();
        if self.reports.report_waits(waiting, out) {
            out.push(Effect::SetTimer { timer: ServerTimer::OthersRunning.into(), at: now + HEARTBEAT_NS });
        }
    }

    /// Refuses tasks that a stateless server cannot run: those that need stored state, or data from another server.
    fn check_stateless(&self, task: &Task) -> Result<(), TaskError> {
        let what = match task.kind {
            _ if !self.config.is_stateless => return Ok(()),
            TaskKind::Method { .. } => "keeps no objects between calls",
            TaskKind::Replicate(_) | TaskKind::Publish(_) | TaskKind::View { .. } => "keeps no data between calls",
            TaskKind::Call { .. } if task.inputs().any(DatumId::is_shared) => "reads no shared data",
            TaskKind::Call { .. } => return Ok(()),
        };
        let why = format!("it is a stateless server (serve --plain), which {what}; use a server without --plain");
        Err(TaskError::Refused { function: task.name().into(), server: self.config.name.clone(), why })
    }

    fn check_task(&self, from: NodeId, task: &Task) -> Result<(), TaskError> {
        let function = truncated(task.name(), FUNCTION_BYTES_MAX).to_string();
        let server = self.config.name.clone();
        if task.name().len() > FUNCTION_BYTES_MAX {
            let why = format!("the name has {} bytes, and the limit is {FUNCTION_BYTES_MAX}", task.name().len());
            return Err(TaskError::Refused { function, server, why });
        }
        let refused =
            |why: &str| TaskError::Refused { function: function.clone(), server: server.clone(), why: why.into() };
        let is_its = |datum: DatumId| datum.client == from;
        let reads_its = task.inputs().all(|datum| is_its(datum) || datum.is_shared());
        if task.id.client != from || !reads_its || !task.outputs.iter().all(|output| is_its(output.datum)) {
            return Err(refused("its identifier or its data belong to another client"));
        }
        if let Some(Err(error)) = task.options.label.as_deref().map(|label| NameKind::Label.check(label)) {
            return Err(refused(&error.to_string()));
        }
        if let (TaskKind::Call { .. } | TaskKind::Method { .. }, Some(origin)) =
            (&task.kind, self.programs.origin(from))
            && !origin.may_call(task.name())
        {
            return Err(TaskError::NotPermitted { function, server, why: not_permitted(origin) });
        }
        if task.options.gang > self.config.slots {
            let (wanted, slots) = (task.options.gang, self.config.slots);
            return Err(refused(&format!(
                "it requests {wanted} slots at once, but the server has {slots}; request fewer, or start the server with more --slots"
            )));
        }
        if from == NodeId::CATALOG && !matches!(task.kind, TaskKind::Publish(_)) {
            return Err(refused("the agent may not send calls"));
        }
        let signature_hash = match task.kind {
            TaskKind::Call { signature_hash, .. } | TaskKind::Method { signature_hash, .. } => signature_hash,
            TaskKind::Replicate(_) => {
                let takes_data = task.args.iter().all(|arg| matches!(arg, Argument::Datum(_)));
                let is_sane = takes_data && task.outputs.is_empty();
                return if is_sane {
                    Ok(())
                } else {
                    Err(refused("a task that places data must have only data as arguments, and no results"))
                };
            }
            TaskKind::View { .. } => {
                let is_one = matches!(task.args[..], [Argument::Datum(_)]) && task.outputs.len() == 1;
                return if is_one {
                    Ok(())
                } else {
                    Err(refused(
                        "a task that takes a part of a datum must have one datum as its argument, and one result",
                    ))
                };
            }
            TaskKind::Publish(ref named) => {
                let is_one = matches!(task.args[..], [Argument::Datum(_)]) && task.outputs.is_empty();
                let is_catalogs = from != NodeId::CATALOG || task.inputs().all(|datum| datum == named.datum);
                let is_sane = is_one && named.datum.is_shared() && is_catalogs && check_name(&named.name).is_ok();
                return if is_sane { Ok(()) } else { Err(refused("the task does not describe a valid shared datum")) };
            }
        };
        match self.functions.get(task.name()) {
            None => Err(TaskError::NoSuchFunction { function, near: String::new() }),
            Some(hash) if *hash != signature_hash => {
                Err(refused("its signature has changed; reconnect to get the new one from the agent"))
            }
            Some(_) => {
                let signature = self.config.functions.iter().find(|s| s.name == task.name());
                let signature = signature.expect("the hashes were made from these");
                let given = task.args.iter().map(|arg| match arg {
                    Argument::Inline { meta, bytes } => Some(KnownArgument { meta, bytes }),
                    Argument::Datum(_) => None,
                });
                let fits = signature.check_call(given, task.outputs.iter().map(|output| &output.meta));
                fits.map_err(|error| refused(&error.reason(&signature.name)))
            }
        }
    }

    // ---- starting

    /// Admits tasks for which there is memory, and starts ready tasks.
    pub(super) fn pump(&mut self, now: Time, out: &mut Vec<Effect>) {
        loop {
            while let Some((id, error)) =
                self.admitting(now, out, |admission, members, out| admission.admit(now, members, out))
            {
                self.end_with_error(now, id, error, out);
            }
            let mut has_moved = false;
            while let Some(task) = self.admission.take_replicated() {
                self.end_replicated(now, &task, out);
                has_moved = true;
            }
            while let Some(task) = self.admission.next_start(|function| self.learning.is_short(function)) {
                self.learning.started(now, &task, self.admission.computing());
                out.push(Effect::StartTask { task });
                has_moved = true;
            }
            if !has_moved {
                break;
            }
        }
        if self.admission.may_keep_waiting() && self.reports.start_waits_timer() {
            out.push(Effect::SetTimer { timer: ServerTimer::OthersRunning.into(), at: now + RATE_REPORT_NS });
        }
    }

    /// Handles a client's answer to `MakeRoom`: it has copies of the data, or cannot take them.
    pub(super) fn written_back(
        &mut self,
        now: Time,
        from: NodeId,
        data: Vec<DatumId>,
        has_copies: bool,
        out: &mut Vec<Effect>,
    ) {
        for datum in data.into_iter().filter(|datum| datum.client == from) {
            self.admission.written_back(datum, has_copies);
        }
        self.pump(now, out);
    }

    pub(super) fn resolve_stall(&mut self, now: Time, out: &mut Vec<Effect>) {
        let has_admitted =
            self.admitting(now, out, |admission, members, out| admission.admit_by_shares(now, members, out));
        match self.admitting(now, out, |admission, _, out| admission.resolve_stall(now, out)) {
            None if !has_admitted => return,
            None => {}
            Some(StallResolution::Requeued) => {}
            Some(StallResolution::Refused(id, error)) => self.end_with_error(now, id, error, out),
        }
        self.pump(now, out);
    }

    pub(super) fn on_arrived(
        &mut self,
        now: Time,
        from: NodeId,
        datum: DatumId,
        meta: &Meta,
        took_ns: u64,
        out: &mut Vec<Effect>,
    ) {
        if datum.slice().is_some() {
            return self.on_slice_arrived(now, from, datum, out);
        }
        let size_bytes = meta.size_bytes();
        let taken = self.admitting(now, out, |admission, _, out| admission.take_arrived(now, datum, size_bytes, out));
        let Some((origin, hops)) = taken else { return };
        let report = TransferReport { datum, from, to: self.config.id, size_bytes, run_ns: took_ns, age_ns: 0 };
        // A forwarded datum arrives no faster than it reached its sender, so its time is no measure of the link.
        if self.reports.transferred(now, report, hops == 1) {
            out.push(Effect::SetTimer { timer: ServerTimer::Transfers.into(), at: now + RATE_REPORT_NS });
        }
        if datum.is_shared() {
            // Reported at once, because the next server may fetch the datum from here.
            self.reports.report_transfers(now, datum.client, 0, out);
        }
        self.admitting(now, out, |admission, _, out| admission.datum_available(now, datum, size_bytes, origin, out));
        self.pump(now, out);
    }

    // ---- ending

    pub(super) fn on_task_ended(
        &mut self,
        now: Time,
        id: TaskId,
        outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
        run_ns: u64,
        out: &mut Vec<Effect>,
    ) {
        let was_asked_back = self.early_ends.remove(&id) == Some(EarlyEnd::Recalled);
        if was_asked_back && outcome == Err(TaskError::Cancelled) && self.members.is_up(id.client) {
            return self.return_task(now, id, out);
        }
        let waited_ns = self.pauses.end(now, id);
        let Some(entry) = self.admission.take_ended(now, id) else { return };
        let tasks = self.learning.ended(now, id, self.admission.computing());
        let task = &entry.task;
        let client = self.members.is_up(id.client).then_some(id.client);
        let (mut in_vain, name) = (Vec::new(), task.name());
        let gave_way = || TaskError::Preempted { function: name.into(), server: self.config.name.clone() };
        let (outcome, is_measured) = self.calibration.ended(id, outcome, gave_way, &mut in_vain);
        let slot_ns = accounts::slot_ns(&entry, run_ns.saturating_sub(waited_ns));
        self.count_call(&entry, outcome.as_ref().err(), slot_ns);
        out.extend(in_vain.into_iter().map(|datum| Effect::DropDatum { datum }));
        let mut dropped = Vec::new();
        self.registering.call_ended(now, name, outcome.as_ref().err(), out);
        match &outcome {
            Ok(results) => {
                let size = task.size(|datum| self.admission.size_bytes(datum));
                let runs_any = task.is_unpredictable();
                // Plans account for the transfer time of declared shared data separately.
                let run_ns =
                    if self.uses_shared_data.contains(name) { run_ns.saturating_sub(waited_ns) } else { run_ns };
                let call = Call { function: name, size, run_ns, tasks, is_measured, runs_any };
                let news = self.learning.learn(now, call);
                self.report_learned(now, news, out);
                if let Some(client) = client.filter(|_| entry.is_call) {
                    self.count_sent(client, results.iter().map(|(_, meta)| meta.size_bytes()).sum());
                }
                dropped = self
                    .admitting(now, out, |admission, _, out| admission.results_made(now, &entry, results, client, out));
            }
            Err(_) => self.admitting(now, out, |admission, _, out| admission.results_not_made(now, task, out)),
        }
        let lost = self.objects.method_ended(task, &outcome);
        out.extend(lost.map(|object| Effect::EndObject { object }));
        self.admitting(now, out, |admission, _, out| admission.stop_reading(now, &entry, out));
        if let Some(client) = client {
            self.report(now, client, id, outcome, run_ns, out);
            if !dropped.is_empty() {
                send(out, client, TaskToClient::Dropped { data: dropped });
            }
        }
        if let Some(object) = lost {
            self.object_lost(now, object, out);
        }
        self.pump(now, out);
    }

    /// Handles output of a task: keeps printed text, and forwards the output to the task's client if the client requested it.
    pub(super) fn on_output(&mut self, now: Time, said: TaskOutput, out: &mut Vec<Effect>) {
        let Some(entry) = self.admission.get(said.task) else { return };
        if let OutputItem::Text { is_error, text } = &said.item {
            let source = (entry.task.label(), self.programs.of(&entry.task));
            self.outputs.print(now, said.task, source, *is_error, text);
            let answers = self.outputs.take_answers();
            answers.into_iter().for_each(|(client, output)| send(out, client, DirectoryToClient::Output(output)));
        }
        if entry.task.options.wants_output {
            send(out, said.task.client, TaskToClient::CallOutput(said));
        }
    }

    /// Fails the methods that wait for their turn on an object that no longer exists.
    fn object_lost(&mut self, now: Time, object: ObjectId, out: &mut Vec<Effect>) {
        for id in self.admission.of_object(object) {
            // A method that has begun ends with its process.
            let Some(entry) = self.admission.get(id).filter(|entry| !entry.state.has_begun()) else { continue };
            let (function, server) = (entry.task.name().to_string(), self.config.name.clone());
            let why = "the object ended or was lost in an earlier call".to_string();
            self.end_with_error(now, id, TaskError::ObjectMissing { function, server, why }, out);
        }
    }

    /// Returns the server's current status.
    pub(super) fn status(&self, now: Time) -> ServerStatus {
        let (count, store_bytes) = self.admission.load();
        let mut tasks: Vec<TaskStatus> = self.admission.tasks().map(|entry| self.status_of(now, entry)).collect();
        tasks.sort_by_key(|task| task.stage);
        tasks.truncate(TASKS_PER_MESSAGE);
        let listed = tasks.iter().filter_map(|task| self.programs.of(&self.admission.get(task.task)?.task));
        let programs: BTreeMap<NodeId, &Program> = listed.map(|program| (program.client, program)).collect();
        let programs = programs.into_values().cloned().collect();
        ServerStatus { tasks, count: count as u64, store_bytes, programs }
    }

    /// Logs the tasks, running ones first, up to [`TASKS_LOGGED_MAX`].
    pub(super) fn log_tasks(&self, now: Time, out: &mut Vec<Effect>) {
        let status = self.status(now);
        let text = format!("the server has {} calls, and {} bytes in its store", status.count, status.store_bytes);
        out.push(LogLine::new(Level::Info, Category::Server, text).into());
        for call in status.tasks.iter().take(TASKS_LOGGED_MAX) {
            let TaskStatus { task, function, stage, run_ns, .. } = call;
            let text = format!("call of '{function}': {stage:?} for {:.1} s", ns_to_seconds(*run_ns));
            let line = LogLine::new(Level::Info, Category::Server, text).task(*task);
            out.push(status.program_of(call).map_or(line.clone(), |program| line.peer(program)).into());
        }
    }

    fn status_of(&self, now: Time, entry: &TaskEntry) -> TaskStatus {
        let stage = match entry.state {
            State::Running => Stage::Running,
            State::AwaitingCallback | State::AwaitingCalls => Stage::Paused,
            State::Ready => Stage::Queued,
            State::Held | State::Waiting => Stage::Waiting,
        };
        let id = entry.task.id;
        let run_ns = if entry.state.has_begun() { self.learning.elapsed_ns(now, id) } else { 0 };
        let program = self.programs.of(&entry.task).map_or(id.client, |program| program.client);
        let priority = entry.task.options.priority;
        TaskStatus { task: id, function: entry.task.label().to_string(), stage, run_ns, program, priority }
    }

    // ---- cancelling

    /// Ends a task as an operator requested.
    ///
    /// # Errors
    /// If the task is not here, or belongs to another user and the operator is not an administrator.
    pub(super) fn end_task(
        &mut self,
        now: Time,
        operator: NodeId,
        id: TaskId,
        out: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let entry = self.admission.get(id).ok_or("the call is not on this server; it may have ended")?;
        let owner = entry.owner.user.clone();
        let by = self.programs.origin(operator);
        if !by.is_some_and(|by| by.may_change(&owner) || self.rules.of(&by.user).may_cancel(&owner)) {
            let user = by.map_or("", |by| &by.user);
            let permits = if self.rules.are_set() { ", nor do its rules permit it" } else { "" };
            return Err(format!(
                "the call belongs to '{owner}', and '{user}' is not an administrator of the grid{permits}"
            ));
        }
        self.cancel(now, id, out);
        self.pump(now, out);
        Ok(())
    }

    pub(super) fn cancel(&mut self, now: Time, id: TaskId, out: &mut Vec<Effect>) {
        match self.admission.state(id) {
            None => {
                if let Some(object) = self.objects.remove_made_by(id) {
                    out.push(Effect::EndObject { object });
                    self.object_lost(now, object, out);
                }
            }
            Some(state) if state.has_begun() => {
                self.early_ends.insert(id, EarlyEnd::Cancelled);
                out.push(Effect::StopTask { task: id });
            }
            Some(_) => self.end_with_error(now, id, TaskError::Cancelled, out),
        }
    }

    /// Sends recalled tasks that have not begun back to their client. Reports which ones, and how long the others have run.
    pub(super) fn recall(
        &mut self,
        now: Time,
        from: NodeId,
        group: Option<GroupId>,
        tasks: &[TaskId],
        out: &mut Vec<Effect>,
    ) {
        let (mut recalled, mut running) = (Vec::new(), Vec::new());
        for id in tasks.iter().filter(|id| id.client == from) {
            match self.admission.state(*id) {
                None => {}
                Some(state) if state.has_begun() => {
                    running.push((*id, self.learning.elapsed_ns(now, *id)));
                    if group.is_none() && state == State::Running {
                        // Retried at each recall, because the worker may have been about to end at the previous one.
                        self.early_ends.entry(*id).or_insert(EarlyEnd::Recalled);
                        out.push(Effect::WithdrawTask { task: *id });
                    }
                }
                Some(_) => recalled.push(*id),
            }
        }
        // Copies that arrived for these tasks remain here, so the client must know of them.
        self.reports.report_transfers(now, from, self.admission.others(from), out);
        // Sent before anything else, so that the client knows the reason before a peer learns that a result will not be made here.
        send(out, from, TaskToClient::Recalled { group, tasks: recalled.clone(), running });
        // Tasks of other groups stay.
        let tasks = recalled.iter().filter_map(|id| self.admission.get(*id)).map(|entry| entry.task.clone());
        let tasks: Vec<_> = tasks.collect();
        self.admitting(now, out, |admission, _, out| {
            tasks.iter().for_each(|task| admission.requeue_readers(now, task, out));
            recalled.into_iter().for_each(|id| admission.remove_task(now, id, out));
        });
        self.pump(now, out);
    }

    /// Sends a recalled task back to its client: it was queued in a worker and had not begun.
    fn return_task(&mut self, now: Time, id: TaskId, out: &mut Vec<Effect>) {
        let Some(entry) = self.admission.get(id) else { return };
        let task = entry.task.clone();
        let _ = self.learning.ended(now, id, self.admission.computing());
        self.reports.report_transfers(now, id.client, self.admission.others(id.client), out);
        send(out, id.client, TaskToClient::Recalled { group: None, tasks: vec![id], running: Vec::new() });
        self.admitting(now, out, |admission, _, out| {
            admission.requeue_readers(now, &task, out);
            admission.remove_task(now, id, out);
        });
        self.pump(now, out);
    }

    /// Ends a task that has not begun, with an error.
    pub(super) fn end_with_error(&mut self, now: Time, id: TaskId, error: TaskError, out: &mut Vec<Effect>) {
        let Some(entry) = self.admission.get(id).cloned() else { return };
        self.count_call(&entry, Some(&error), 0);
        let task = entry.task;
        self.admitting(now, out, |admission, _, out| {
            admission.requeue_readers(now, &task, out);
            admission.remove_task(now, id, out);
        });
        self.report(now, id.client, id, Err(error), 0, out);
        if let Some(object) = self.objects.method_not_run(&task) {
            out.push(Effect::EndObject { object });
            self.object_lost(now, object, out);
        }
    }

    pub(super) fn report(
        &mut self,
        now: Time,
        client: NodeId,
        task: TaskId,
        outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
        run_ns: u64,
        out: &mut Vec<Effect>,
    ) {
        let others = self.admission.others(client);
        self.reports.report_task(now, client, task, outcome, run_ns, others, out);
    }

    // ---- calibration calls

    /// Accepts a calibration call if the server is idle.
    pub(super) fn on_calibration(
        &mut self,
        now: Time,
        from: NodeId,
        task: Task,
        supplies: Vec<Supply>,
        out: &mut Vec<Effect>,
    ) {
        if !self.admission.is_empty() {
            let error = self.preempted_error(&task);
            return self.report(now, from, task.id, Err(error), 0, out);
        }
        self.calibration.begin(task.id);
        self.on_tasks(now, from, vec![task], supplies, true, out);
    }

    /// Handles the arrival of other work. A calibration call that waits for its arguments is preempted at once. One
    /// that runs may be about to end: it may continue until the next heartbeat, since starting another worker in its
    /// place takes as long.
    pub(super) fn disturb_calibration(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(id) = self.calibration.disturb() else { return };
        match self.admission.get(id) {
            Some(entry) if entry.state.has_begun() => {}
            Some(entry) => {
                self.calibration.forget();
                let error = self.preempted_error(&entry.task);
                self.end_with_error(now, id, error, out);
            }
            None => self.calibration.forget(),
        }
    }

    pub(super) fn stop_disturbed_calibration(&self, out: &mut Vec<Effect>) {
        if let Some(task) = self.calibration.disturbed()
            && self.admission.state(task).is_some_and(State::has_begun)
        {
            out.push(Effect::StopTask { task });
        }
    }

    fn preempted_error(&self, task: &Task) -> TaskError {
        TaskError::Preempted { function: task.name().to_string(), server: self.config.name.clone() }
    }
}

/// Returns why a user may not call a function.
fn not_permitted(Origin { user, functions, .. }: &Origin) -> String {
    let permitted = listed(functions);
    format!(
        "the certificate of '{user}' permits {permitted}; request one that permits this function with 'gridloom keys request', and \
         have an administrator approve it ('*' does not include functions that a program sends: --run-code does)"
    )
}
