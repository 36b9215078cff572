//! The state of a session: its parts, and which events concern which of them.
//!
//! **Invariant:** an event is processed once, under the session's lock. [`State::take_in`] passes it to the parts that it
//! concerns, and neither waits nor sends.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, GroupId, Meta, NodeId, TaskError, TaskId};
use gridloom_core::call::OutputItem;
use gridloom_core::node::{Event, LogLine};

use super::parts::{
    Addresses, CallBacks, Calls, Directory, EndNotifications, Fetches, Groups, Links, Outputs, Owner, PendingRequests,
    Requests, Retention,
};
use crate::plan::Basis;
use crate::report::{GroupRecord, Report, TaskEnd};

/// The state of a session.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) directory: Directory,
    pub(crate) addresses: Addresses,
    pub(crate) calls: Calls,
    pub(crate) ends: EndNotifications,
    pub(crate) fetches: Fetches,
    pub(crate) requests: Requests,
    pub(crate) pending_requests: PendingRequests,
    pub(crate) groups: Groups,
    pub(crate) links: Links,
    pub(crate) outputs: Outputs,
    pub(crate) call_backs: CallBacks,
}

/// Effects of events outside of the state.
#[derive(Default)]
pub(super) struct Effects {
    /// Lines for the log.
    pub(super) lines: Vec<LogLine>,
    /// Output of calls, for the listener.
    pub(super) outputs: Vec<CallOutput>,
    /// Data in the client's store that nothing needs any more.
    pub(super) forgotten: Vec<DatumId>,
    /// Data found under a name that nobody wants any more.
    pub(super) released: Vec<DatumId>,
}

/// Output of a call of the session while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct CallOutput {
    /// The name of its server.
    pub server: String,
    pub function: String,
    /// Identifies the call within the session.
    pub call: u64,
    pub output: OutputItem,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub struct CallEnd {
    /// The server that had it last, if one had.
    pub server: Option<String>,
    /// Run time of the function, seconds; 0 if it did not run.
    pub run_s: f64,
    /// When the client received its report, by the session's clock ([`Grid::now`](crate::Grid::now)).
    pub ended_s: f64,
    /// Why it failed, if it did.
    pub error: Option<TaskError>,
}

impl CallEnd {
    fn new(ended: &TaskEnd, names: &BTreeMap<NodeId, String>) -> CallEnd {
        let TaskEnd { at, server, report } = ended;
        CallEnd {
            server: server.and_then(|server| names.get(&server).cloned()),
            run_s: ns_to_seconds(report.timing.run_ns),
            ended_s: at.seconds(),
            error: report.outcome.as_ref().err().cloned(),
        }
    }
}

impl State {
    pub(super) fn new(keeps: Retention) -> State {
        State { groups: Groups::new(keeps), ..State::default() }
    }

    /// Processes an event of the client.
    pub(super) fn take_in(&mut self, event: Event, client: NodeId, effects: &mut Effects) {
        match event {
            Event::Log(line) => effects.lines.push(line),
            Event::CallOutput { server, function, said } => {
                let call = said.task.serial;
                effects.outputs.push(CallOutput { server, function, call, output: said.item });
            }
            Event::NameResult { request, answer } if self.pending_requests.has(request) => {
                let (has_ended, unread) = self.pending_requests.on_answer(request, answer);
                if has_ended {
                    self.ends.on_end(TaskId { client, serial: request });
                }
                effects.released.extend(unread);
            }
            Event::NameResult { request, answer } => effects.released.extend(self.requests.on_answer(request, answer)),
            Event::Directory { grid, functions } => self.directory.on_directory(grid, functions, client),
            Event::AgentLost { address, fault, why } => {
                self.directory.on_agent_lost(TaskError::AgentLost { address, fault, why });
            }
            Event::ModelsKnown { server } => self.directory.on_models(server),
            Event::Status { server, status } => self.directory.on_status(server, status),
            Event::EndTaskAnswered { server, task, answer } => self.directory.on_end_task(server, task, answer),
            Event::Output { server, output } => self.outputs.on_answer(server, output),
            Event::ServerReached { address, server } => self.addresses.on_answer(address, Ok(server)),
            Event::ServerNotReached { address, why } => self.addresses.on_answer(address, Err(why)),
            Event::Links { links } => self.links.on_answer(links),
            Event::Waits { programs } => self.directory.on_waits(programs),
            Event::Usage { query, answer } => self.directory.on_usage(query, answer),
            // Only the worlds of servers and agents receive these events.
            Event::ModelLearned { .. } | Event::UsageReported { .. } | Event::Audit(_) => {}
            Event::GroupPlanned { at, group, plan, tasks, data, names, map_ns, seen } => {
                let servers = self.directory.names();
                let record = |record: &mut GroupRecord| {
                    let mut plan = record.planned(at, &plan, &tasks, (&data, &names), map_ns, servers);
                    plan.basis = seen.map(|seen| Arc::new(Basis::new(seen, &tasks, &data)));
                    plan
                };
                self.groups.on_planned(group, record);
            }
            Event::PlanStale { group, .. } => self.groups.on_stale(group),
            Event::GroupNotMapped { group, error } => {
                self.groups.on_not_mapped(group, self.directory.with_lost_servers(error));
            }
            Event::GroupEnded { at, group } => self.groups.on_ended(group, at),
            Event::ServerLost { name, why, rerun: again, .. } => self.groups.on_server_lost(&name, &why, &again),
            Event::CallsBack { server, call } => self.call_backs.on_call(server, call),
            Event::CallSent { at, task } => self.calls.on_sent(at, task),
            Event::TaskEnded { at, server, mut report } => {
                report.outcome = report.outcome.map_err(|error| self.directory.with_lost_servers(error));
                self.call_backs.on_end(report.task);
                self.ends.on_end(report.task);
                match self.calls.on_end(at, server, report) {
                    Owner::Call => {}
                    Owner::Abandoned(outputs) => effects.forgotten.extend(outputs),
                    Owner::Group(report) => self.groups.on_task_ended(at, server, report),
                }
            }
            Event::Transferred { at, report } => {
                self.links.on_transfer(&report, client, self.directory.names());
                self.groups.on_transferred(at, report);
            }
            Event::DatumAvailable { datum, meta } => self.on_datum(client, datum, Ok(meta)),
            Event::DatumLost { datum, error } => {
                self.on_datum(client, datum, Err(self.directory.with_lost_servers(error)));
            }
        }
    }

    fn on_datum(&mut self, client: NodeId, datum: DatumId, arrival: Result<Meta, TaskError>) {
        for serial in self.pending_requests.on_datum(datum, &arrival) {
            self.ends.on_end(TaskId { client, serial });
        }
        self.fetches.on_answer(datum, arrival);
    }

    /// Returns the end of a call, plain or in a group. `None` while it is in progress, and for a call that the session does
    /// not know.
    fn end_of(&self, task: TaskId) -> Option<&TaskEnd> {
        match self.calls.get(task) {
            Some(call) => call,
            None => self.groups.of_task(task)?.end_of(task),
        }
    }

    /// Returns how a call ended; `None` as for [`State::end_of`].
    pub(crate) fn call_end(&self, task: TaskId) -> Option<CallEnd> {
        self.end_of(task).map(|ended| CallEnd::new(ended, self.directory.names()))
    }

    /// Makes the session report the end of a call, immediately if it has ended.
    pub(crate) fn note_end(&mut self, task: TaskId) {
        let has_ended = match self.calls.get(task) {
            Some(ended) => ended.is_some(),
            None => match self.groups.of_task(task) {
                Some(group) => group.end_of(task).is_some(),
                None => return,
            },
        };
        self.ends.note(task, has_ended);
    }

    /// Returns the report of groups that ran as parts of one.
    pub(crate) fn report(&self, heuristic: &str, parts: &[GroupId], client: NodeId, is_simulated: bool) -> Report {
        let records = parts.iter().filter_map(|part| self.groups.records().get(part));
        Report::new(heuristic, records, &self.directory.report_context(&[client], is_simulated))
    }

    /// Number of calls that have not ended, plain and in launched groups.
    pub(crate) fn under_way(&self) -> usize {
        self.calls.under_way() + self.groups.under_way()
    }

    /// True if all addresses that the session was given have answered.
    pub(super) fn has_addresses(&self) -> bool {
        self.addresses.have_answered(|server| self.directory.has(server))
    }

    /// Addresses of servers that cannot be used now, with the reasons; see [`Addresses::unreachable`].
    pub(crate) fn unreachable(&self) -> Vec<(String, String)> {
        self.addresses.unreachable(|server| self.directory.has(server))
    }

    /// Asserts the invariants of each part.
    pub(super) fn check(&self) {
        self.directory.check();
        self.calls.check();
        self.ends.check();
        self.pending_requests.check();
        self.fetches.check();
        self.groups.check();
        self.call_backs.check();
    }
}
