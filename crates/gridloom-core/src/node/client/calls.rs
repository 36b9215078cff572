//! Plain calls: each mapped by itself when it is made, its results back to the client.

use std::sync::Arc;

use super::{Client, mapping};
use crate::call::{Call, Way};
use crate::graph::Task;
use crate::node::ClientTimer;
use crate::node::message::{Supply, TaskReport, TaskToServer, Timing};
use crate::node::protocol::{Effect, Event};
use gridloom_base::limits::{BROKEN_MAX, EAGER_BYTES_MAX, TASK_ATTEMPTS_MAX};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, Meta, NodeId, TaskError, Time};

impl Client {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn send_call(
        &mut self,
        now: Time,
        task: Arc<Task>,
        sources: Vec<(DatumId, Meta)>,
        way: Way,
        attempts: u32,
        limit_ns: Option<u64>,
        deadline: Option<Time>,
        out: &mut Vec<Effect>,
    ) {
        let sent_bytes = sources.iter().map(|(_, meta)| meta.size_bytes()).sum();
        let chosen = self.calls.choose(&self.grid, self.links.estimates(), &task, sent_bytes, way.only);
        // It is there, though an agent that began anew may not know of it yet.
        let home = way.only.filter(|home| self.contacts.is_up(*home)).map(|home| (home, 0.0));
        let Some((server, run_s)) = chosen.or(home) else {
            let function = task.name().to_string();
            let error = match (way.only, self.contacts.agent_was_lost() && self.grid.servers.is_empty()) {
                (_, true) => TaskError::AgentLost { address: self.config.agent.clone(), why: "not connected".into() },
                (None, false) => TaskError::NoSuchFunction { function, near: String::new() },
                (Some(only), false) => {
                    let server = self.contacts.name_of(only);
                    TaskError::ServerLost { function, server, why: mapping::BOUND.into() }
                }
            };
            self.call_failed(now, &task, &sources, None, error, out);
            return;
        };
        let message =
            TaskToServer::Call { task: (*task).clone(), supplies: sources.clone(), calibrates: way.calibrates };
        self.contacts.post(server, message, out);
        for (datum, meta) in &sources {
            if meta.size_bytes() <= EAGER_BYTES_MAX {
                self.contacts.post_datum(server, *datum, out);
            }
        }
        let bytes = task.outputs.iter().map(|output| output.meta.size_bytes()).fold(sent_bytes, u64::saturating_add);
        self.queue(now, server, &task, bytes, way.only.is_none() && !way.calibrates);
        self.calls.sent(task, sources, server, run_s, way, attempts, limit_ns, deadline);
    }

    pub(super) fn on_call_report(&mut self, now: Time, from: NodeId, report: TaskReport, out: &mut Vec<Effect>) {
        self.queues.remove(now, report.task);
        if let Some(call) = self.calls.ended(report.task, from, (report.outcome, report.timing.run_ns)) {
            self.call_complete(now, call, out);
        }
    }

    pub(super) fn call_complete(&mut self, now: Time, call: Call, out: &mut Vec<Effect>) {
        for (datum, _) in &call.sources {
            out.push(Effect::DropDatum { datum: *datum });
        }
        let (outcome, run_ns) = call.ended.expect("a complete call has ended");
        let report = TaskReport { task: call.task.id, outcome, timing: Timing { run_ns, age_ns: 0 } };
        out.push(Effect::Emit(Event::TaskEnded { at: now, server: Some(call.server), report }));
        if call.deadline.is_some() {
            self.set_deadline(out);
        }
    }

    pub(super) fn call_failed(
        &mut self,
        now: Time,
        task: &Task,
        sources: &[(DatumId, Meta)],
        server: Option<NodeId>,
        error: TaskError,
        out: &mut Vec<Effect>,
    ) {
        self.queues.remove(now, task.id);
        for datum in sources.iter().map(|(datum, _)| *datum).chain(task.outputs.iter().map(|output| output.datum)) {
            out.push(Effect::DropDatum { datum });
        }
        self.emit_task_ended(now, server, task.id, error, out);
    }

    /// An argument did not arrive: it is sent again in a while.
    pub(super) fn argument_astray(
        &mut self,
        now: Time,
        server: NodeId,
        datum: DatumId,
        why: &str,
        out: &mut Vec<Effect>,
    ) {
        let Some((task, times)) = self.calls.astray(datum, server) else { return };
        if times <= BROKEN_MAX {
            self.supplies.strayed(datum, server);
            return;
        }
        let call = self.calls.remove(task).expect("found above");
        self.contacts.post(server, TaskToServer::Cancel { tasks: vec![task] }, out);
        let why =
            format!("it went astray {times} times on its way to server '{}': {why}", self.contacts.name_of(server));
        let error = TaskError::DatumLost { datum, why };
        self.call_failed(now, &call.task, &call.sources, Some(server), error, out);
    }

    /// Calls of which a result broke off since the last heartbeat.
    pub(super) fn calls_again(&mut self, now: Time, out: &mut Vec<Effect>) {
        for call in self.calls.take_broken() {
            self.call_again(now, call, out);
        }
    }

    /// Has a server ask again for an argument.
    pub(super) fn retry_argument(&mut self, place: NodeId, datum: DatumId, out: &mut Vec<Effect>) {
        let Some(call) = self.calls.of_datum(datum).filter(|call| call.server == place) else { return };
        let Some((_, meta)) = call.sources.iter().find(|(source, _)| *source == datum) else { return };
        // Not the datum itself: the server asks for it, so that it can say if that fails again.
        let supply = Supply { datum, meta: meta.clone(), from: self.config.id, address: String::new() };
        self.contacts.post(place, TaskToServer::Resupply { supplies: vec![supply] }, out);
    }

    /// Sends a call again of which a result broke off on its way here: its server has not kept it.
    fn call_again(&mut self, now: Time, call: Call, out: &mut Vec<Effect>) {
        if call.attempts >= TASK_ATTEMPTS_MAX || call.way.is_once {
            let datum = call.task.outputs.first().expect("only a result breaks off on its way here").datum;
            let why = format!("a result of this call broke off on its way here {} times", call.attempts);
            let error = TaskError::DatumLost { datum, why };
            self.call_failed(now, &call.task, &call.sources, Some(call.server), error, out);
        } else {
            self.send_anew(now, call, 1, out);
        }
    }

    /// The same call again; `more` is 1 if it counts as a further attempt.
    pub(super) fn send_anew(&mut self, now: Time, call: Call, more: u32, out: &mut Vec<Effect>) {
        let Call { task, sources, way, attempts, limit_ns, deadline, .. } = call;
        self.send_call(now, task, sources, way, attempts + more, limit_ns, deadline, out);
    }

    /// Calls that were with a lost server go to another; stateless functions may run twice, their results count once.
    pub(super) fn calls_lost(&mut self, now: Time, server: NodeId, why: &str, out: &mut Vec<Effect>) {
        let name = self.contacts.name_of(server);
        for call in self.calls.take_of_server(server) {
            let offered = self.grid.servers.iter().any(|s| s.functions.contains_key(call.task.name()));
            if call.attempts >= TASK_ATTEMPTS_MAX || !offered || call.way.only.is_some() || call.way.is_once {
                let function = call.task.name().to_string();
                let error = TaskError::ServerLost { function, server: name.clone(), why: why.into() };
                self.call_failed(now, &call.task, &call.sources, Some(server), error, out);
            } else {
                self.send_anew(now, call, 1, out);
            }
        }
    }

    pub(super) fn set_deadline(&mut self, out: &mut Vec<Effect>) {
        if let Some(at) = self.calls.next_deadline() {
            out.push(Effect::SetTimer { timer: ClientTimer::Deadline.into(), at });
        }
    }

    pub(super) fn on_deadline(&mut self, now: Time, out: &mut Vec<Effect>) {
        for call in self.calls.take_expired(now) {
            let cancel = TaskToServer::Cancel { tasks: vec![call.task.id] };
            self.contacts.post(call.server, cancel, out);
            let limit_seconds = ns_to_seconds(call.limit_ns.unwrap_or(0));
            let error = TaskError::DeadlineExceeded { limit_seconds };
            self.call_failed(now, &call.task, &call.sources, Some(call.server), error, out);
        }
        self.set_deadline(out);
    }
}
