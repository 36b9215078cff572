//! Plain calls: each is mapped by itself when it is made, and its results are sent to the client.

use super::backlog::Target;
use super::recovery::not_received_error;
use super::{Client, mapping};
use crate::call::{Call, LimitKind, Request};
use crate::graph::Task;
use crate::node::ClientTimer;
use crate::node::message::{Supply, TaskReport, TaskTimes, TaskToServer};
use crate::node::protocol::{Effect, Event};
use gridloom_base::limits::{EAGER_BYTES_MAX, INTERRUPTIONS_MAX, TASK_ATTEMPTS_MAX};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, NodeId, TaskError, TaskId, Time};

impl Client {
    /// Sends a call, or has it wait for the first directory.
    pub(super) fn begin_call(&mut self, now: Time, request: Request, out: &mut Vec<Effect>) {
        match !self.directory.is_known && !self.contacts.agent_was_lost() {
            true => self.wait(request, out),
            false => self.send_call(now, request, out),
        }
    }

    /// Returns the display name of a task, if it is at that server.
    pub(super) fn label_at(&self, id: TaskId, server: NodeId) -> Option<&str> {
        let call = self.calls.get(id).filter(|call| call.server == server).map(|call| call.request.task.label());
        let task = || self.graph.task(id).filter(|run| run.is_at(server)).map(|run| run.task().label());
        call.or_else(task)
    }

    /// Sends a call to the server with the earliest predicted end.
    pub(super) fn send_call(&mut self, now: Time, request: Request, out: &mut Vec<Effect>) {
        let chosen = self.calls.choose(&self.directory.grid, self.links.estimates(), &request);
        // The server is connected, even if an agent that restarted does not know it yet.
        let only = request.task.options.bound_to;
        let home = only.filter(|home| self.contacts.is_up(*home)).map(|home| (home, 0.0));
        let Some((server, run_s)) = chosen.or(home) else {
            if self.may_wait(now, &request) {
                return self.wait(request, out);
            }
            let function = request.task.name().to_string();
            let error = match (only, self.contacts.agent_was_lost() && self.directory.grid.servers.is_empty()) {
                (_, true) => self.agent_lost(),
                (None, false) => {
                    // If all servers are lost, the session names them.
                    let near = if self.directory.grid.servers.is_empty() {
                        String::new()
                    } else {
                        self.directory.unoffered.lost_text(&function)
                    };
                    TaskError::NoSuchFunction { function, near }
                }
                (Some(only), false) => {
                    let (server, is_bound) = (self.contacts.name_of(only), request.task.object().is_none());
                    TaskError::ServerLost { function, server, why: mapping::NOT_IN_GRID.into(), is_bound }
                }
            };
            self.call_failed(now, &request, None, error, out);
            return;
        };
        self.post_call(now, request, server, run_s, out);
    }

    /// Sends a call to that server, or to another one if that server is lost.
    pub(super) fn send_call_to(&mut self, now: Time, request: Request, to: Option<NodeId>, out: &mut Vec<Effect>) {
        let to = to.filter(|to| !self.contacts.is_lost(*to));
        let is_it = |server| Some(server) == to;
        match self.calls.choose_among(&self.directory.grid, self.links.estimates(), &request, is_it) {
            Some((server, run_s)) => self.post_call(now, request, server, run_s, out),
            None => self.send_call(now, request, out),
        }
    }

    /// Sends calls of the backlog to servers with free slots.
    pub(super) fn send_deferred(&mut self, now: Time, out: &mut Vec<Effect>) {
        loop {
            let (calls, grid, links) = (&self.calls, &self.directory.grid, self.links.estimates());
            let target = |request: &Request| {
                let slots_at = |server: NodeId| grid.server(server).map(|at| grid.servers[at].slots as usize);
                let only = match (request.task.options.bound_to, request.failures.is_empty()) {
                    (Some(only), _) => Some(only),
                    (None, true) => None,
                    (None, false) => calls.choose(grid, links, request).map(|(server, _)| server),
                };
                match only.and_then(|server| Some((server, slots_at(server)?))) {
                    Some((server, slots)) => Target::Only { server, slots },
                    None => {
                        let offered = grid.servers.iter().filter(|s| s.functions.contains_key(request.task.name()));
                        Target::Any { slots: offered.map(|server| server.slots as usize).sum() }
                    }
                }
            };
            let Some(mut request) = self.backlog.take_next(now, target) else { return };
            if !self.backlog.was_refused(request.task.id) {
                out.push(Effect::Emit(Event::CallSent { at: now, task: request.task.id }));
            }
            request.begin_limit(now);
            self.begin_call(now, request, out);
            self.set_deadline(out);
        }
    }

    /// Cancels those of the deferred calls that were not sent.
    pub(super) fn cancel_unsent(&mut self, now: Time, tasks: Vec<TaskId>, out: &mut Vec<Effect>) {
        for id in tasks {
            if let Some(request) = self.backlog.take(id) {
                self.call_failed(now, &request, None, TaskError::Cancelled, out);
            }
        }
    }

    fn post_call(&mut self, now: Time, request: Request, server: NodeId, run_s: f64, out: &mut Vec<Effect>) {
        let Request { task, sources, .. } = &request;
        let message = TaskToServer::Call { task: (**task).clone(), supplies: sources.clone() };
        self.contacts.post(server, message, out);
        for (datum, meta) in sources {
            if meta.size_bytes() <= EAGER_BYTES_MAX {
                self.contacts.post_datum(server, *datum, out);
            }
        }
        let task = task.clone();
        let is_there = self.calls.record_sent(request, server, run_s);
        self.queue_call(now, &task, is_there);
        if !is_there && self.calls.transfer_begins(now, task.id, LimitKind::Arguments) {
            self.set_deadline(out);
        }
    }

    /// Lists a call at its server. `is_there` is true if its data have arrived.
    fn queue_call(&mut self, now: Time, task: &Task, is_there: bool) {
        let Some(call) = self.calls.get(task.id) else { return };
        let ((_, sent_bytes, back_bytes), server) = (call.request.size(), call.server);
        let bytes = sent_bytes.saturating_add(back_bytes);
        // A call that has failed elsewhere stays at the server that was chosen for it.
        let may_move = !task.options.is_measuring && call.request.failures.is_empty();
        self.queue(now, server, task, bytes, may_move, is_there);
    }

    /// Handles the arrival of an argument at its server, after which the call may have all of them.
    pub(super) fn argument_arrived(&mut self, now: Time, datum: DatumId, server: NodeId) {
        let Some(task) = self.calls.argument_arrived(datum, server) else { return };
        if self.queues.waits_for_data(task.id, server) {
            self.queue_call(now, &task, true);
        }
    }

    pub(super) fn on_call_report(&mut self, now: Time, from: NodeId, report: TaskReport, out: &mut Vec<Effect>) {
        let task = report.task;
        self.queues.remove(now, task);
        if let Some(call) = self.calls.ended(task, from, (report.outcome, report.timing.run_ns)) {
            return self.call_complete(now, call, out);
        }
        let is_returning = self.calls.get(task).is_some_and(|call| call.ended.is_some());
        if is_returning && self.calls.transfer_begins(now, task, LimitKind::Results) {
            self.set_deadline(out);
        }
    }

    pub(super) fn call_complete(&mut self, now: Time, call: Call, out: &mut Vec<Effect>) {
        let Call { mut request, server, ended, .. } = call;
        let (outcome, run_ns) = ended.expect("a complete call has ended");
        if let Err(TaskError::QuotaExceeded { is_temporary: true, .. }) = &outcome {
            match self.backlog.take_back(request) {
                Ok(()) => return self.set_deadline(out),
                Err(back) => request = back,
            }
        }
        if let Err(error) = &outcome
            && self.is_restarted(&request.task, &request.failures, server, error)
        {
            request.failures.push(server, error);
            // This affects only calls of this program: those of other programs may not need the module.
            if error.may_succeed_elsewhere() {
                self.calls.record_cannot_run(server, request.task.name());
            }
            self.report_restart(&request.task, &request.failures, server, error, out);
            self.send_call(now, request, out);
            return;
        }
        self.backlog.ended(now, request.task.id);
        for (datum, _) in &request.sources {
            out.push(Effect::DropDatum { datum: *datum });
        }
        let report = TaskReport { task: request.task.id, outcome, timing: TaskTimes { run_ns, age_ns: 0 } };
        out.push(Effect::Emit(Event::TaskEnded { at: now, server: Some(server), report }));
        if request.deadline.is_some() {
            self.set_deadline(out);
        }
    }

    pub(super) fn call_failed(
        &mut self,
        now: Time,
        request: &Request,
        server: Option<NodeId>,
        error: TaskError,
        out: &mut Vec<Effect>,
    ) {
        let Request { task, sources, .. } = request;
        self.queues.remove(now, task.id);
        self.backlog.ended(now, task.id);
        for datum in sources.iter().map(|(datum, _)| *datum).chain(task.outputs.iter().map(|output| output.datum)) {
            out.push(Effect::DropDatum { datum });
        }
        self.emit_task_ended(now, server, task.id, error, out);
    }

    /// Handles an argument that failed to arrive: it is resent later.
    pub(super) fn argument_failed(
        &mut self,
        now: Time,
        server: NodeId,
        datum: DatumId,
        fault: (bool, &str),
        out: &mut Vec<Effect>,
    ) {
        let Some((task, times)) = self.calls.argument_failed(datum, server) else { return };
        if times <= INTERRUPTIONS_MAX {
            self.supplies.record_interrupted(datum, server);
            return;
        }
        let call = self.calls.remove(task).expect("found above");
        self.contacts.post(server, TaskToServer::Cancel { tasks: vec![task] }, out);
        let error = not_received_error(datum, Some(&self.contacts.name_of(server)), fault);
        self.call_failed(now, &call.request, Some(server), error, out);
    }

    /// Resends the calls with results whose transfer was interrupted since the last heartbeat.
    pub(super) fn resend_interrupted(&mut self, now: Time, out: &mut Vec<Effect>) {
        for call in self.calls.take_interrupted() {
            self.resend_call(now, call, out);
        }
    }

    /// Has a server request an argument again.
    pub(super) fn retry_argument(&mut self, place: NodeId, datum: DatumId, out: &mut Vec<Effect>) {
        let Some(call) = self.calls.of_datum(datum).filter(|call| call.server == place) else { return };
        let Some((_, meta)) = call.request.sources.iter().find(|(source, _)| *source == datum) else { return };
        // The datum itself is not sent: the server requests it, so that it can report another failure.
        let supply = Supply::direct(datum, meta.clone(), self.config.id, String::new(), 1);
        self.contacts.post(place, TaskToServer::Resupply { supplies: vec![supply] }, out);
    }

    /// Resends a call after the transfer of a result was interrupted. Its server has not kept the result.
    fn resend_call(&mut self, now: Time, call: Call, out: &mut Vec<Effect>) {
        let Call { mut request, server, result_error: broken, .. } = call;
        request.losses += 1;
        if request.losses >= TASK_ATTEMPTS_MAX || request.task.options.is_once {
            let error = broken.expect("a call is resent because the transfer of a result was interrupted");
            self.call_failed(now, &request, Some(server), error, out);
        } else {
            self.send_call(now, request, out);
        }
    }

    /// Sends the calls of a lost server to other servers. Stateless functions may run twice; their results count once.
    pub(super) fn calls_lost(&mut self, now: Time, server: NodeId, why: &str, out: &mut Vec<Effect>) {
        let name = self.contacts.name_of(server);
        for Call { mut request, .. } in self.calls.take_of_server(server) {
            request.losses += 1;
            let offered = self.directory.grid.servers.iter().any(|s| s.functions.contains_key(request.task.name()));
            let has_place = offered && request.task.options.bound_to.is_none() || self.may_wait(now, &request);
            if request.losses >= TASK_ATTEMPTS_MAX || request.task.options.is_once || !has_place {
                let function = request.task.name().to_string();
                let is_bound = request.task.is_bound();
                let error = TaskError::ServerLost { function, server: name.clone(), why: why.into(), is_bound };
                self.call_failed(now, &request, Some(server), error, out);
            } else {
                self.send_call(now, request, out);
            }
        }
    }

    pub(super) fn set_deadline(&mut self, out: &mut Vec<Effect>) {
        let calls = [self.backlog.next_deadline(), self.waiting_calls.next_deadline(), self.calls.next_deadline()];
        let next = calls.into_iter().chain([self.names.next_deadline()]);
        if let Some(at) = next.flatten().min() {
            out.push(Effect::SetTimer { timer: ClientTimer::Deadline.into(), at });
        }
    }

    pub(super) fn on_deadline(&mut self, now: Time, out: &mut Vec<Effect>) {
        for (call, limit) in self.calls.take_expired(now) {
            let cancel = TaskToServer::Cancel { tasks: vec![call.request.task.id] };
            self.contacts.post(call.server, cancel, out);
            self.call_expired(now, &call.request, Some(call.server), limit, out);
        }
        self.waiting_expired(now, out);
        self.expire_requests(now, out);
        self.set_deadline(out);
    }

    pub(super) fn call_expired(
        &mut self,
        now: Time,
        request: &Request,
        at: Option<NodeId>,
        limit: LimitKind,
        out: &mut Vec<Effect>,
    ) {
        let limit_seconds = ns_to_seconds(request.limits.of(limit));
        let late = |what: &str| TaskError::TransferTimedOut { what: what.into(), limit_seconds };
        let error = match limit {
            LimitKind::Whole => TaskError::DeadlineExceeded { limit_seconds },
            LimitKind::Arguments => late("arguments"),
            LimitKind::Results => late("results"),
        };
        self.call_failed(now, request, at, error, out);
    }

    // ---- calls that wait for a server

    /// True if a call that no server can run now may be run by a server that returns.
    pub(super) fn may_wait(&self, now: Time, request: &Request) -> bool {
        match request.task.options.bound_to {
            Some(server) => request.task.object().is_none() && self.contacts.may_return(now, server),
            None => self.contacts.expects_nodes(now),
        }
    }

    pub(super) fn wait(&mut self, request: Request, out: &mut Vec<Effect>) {
        self.waiting_calls.add(request);
        self.set_deadline(out);
    }

    /// Sends the waiting calls, or fails them.
    pub(super) fn send_waiting(&mut self, now: Time, out: &mut Vec<Effect>) {
        for request in self.waiting_calls.take_all() {
            self.send_call(now, request, out);
        }
    }

    /// Fails the calls whose limits expired while they waited.
    pub(super) fn waiting_expired(&mut self, now: Time, out: &mut Vec<Effect>) {
        let expired = self.waiting_calls.take_expired(now).into_iter().chain(self.backlog.take_expired(now));
        for request in expired.collect::<Vec<_>>() {
            self.call_expired(now, &request, None, LimitKind::Whole, out);
        }
    }
}
