//! The client: sends calls, has groups mapped, sends each server its part, follows their progress, and owns the names
//! of data.
//!
//! Its knowledge of a datum (producer, holders, future readers) is the lineage from which lost results are recomputed.
//! A task is forgotten when it can never have to run again: its results have arrived, or nobody wants them any more.

mod backlog;
mod calls;
mod contacts;
mod data;
mod directory;
mod following;
mod graph;
mod groups;
mod lost_functions;
mod mapping;
mod messages;
mod names;
mod own_links;
mod peers;
mod plans;
mod poison;
mod puts;
mod queues;
mod reconnecting;
mod recovery;
mod remapping;
mod stateless;
mod stealing;
mod supplies;
mod waits;

use crate::call::{Calls, Request};
use crate::node::message::{
    DirectoryToAgent, DirectoryToServer, LinkMessage, LinkToProber, Message, Purpose, TaskReport, TaskTimes,
    TaskToServer,
};
use crate::node::protocol::{Command, Effect, Event, Input};
use crate::node::{Category, ClientTimer, LogLine, Timer};
use backlog::Backlog;
use contacts::Contacts;
use directory::Directory;
use following::{PlannedPlace, UnplacedData};
use graph::{Availability, DatumState, TaskGraph};
use gridloom_base::dial::ConnectionFault;
use gridloom_base::limits::HEARTBEAT_NS;
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, Machine, NodeId, TaskError, TaskId, Time};
use names::Names;
use own_links::OwnLinks;
use plans::{Plans, Question};
use poison::LossCounter;
use queues::Queues;
use reconnecting::WaitingCalls;
use stateless::ArgumentCopies;
use supplies::Supplies;
use waits::Quiet;

/// Why a client without an agent cannot read the usage of users.
const NO_RECORDS: &str = "there is no agent, which records the usage of users; connect to an agent";

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub id: NodeId,
    pub name: String,
    /// Address of its agent.
    pub agent: String,
    /// True if a running call opened the client. Many calls open clients at the same time, most of them only for named
    /// data or a single call. So their links are measured when the first group is mapped, and not at once.
    pub is_in_call: bool,
}

/// The client machine. Its knowledge of tasks and data, plans, nodes, failed transfers, its own links and queues is
/// private to sub-machines, which do not access one another.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    contacts: Contacts,
    supplies: Supplies,
    links: OwnLinks,
    directory: Directory,
    calls: Calls,
    backlog: Backlog,
    queues: Queues,
    /// Calls made before the first directory arrived, and calls that no server can run until a server returns.
    waiting_calls: WaitingCalls,
    unplaced: UnplacedData,
    names: Names,
    graph: TaskGraph,
    plans: Plans,
    quiet: Quiet,
    /// True if waiting groups may now be mapped, because tasks whose locations they waited for failed without a plan.
    has_less_to_map: bool,
}

impl Client {
    /// Creates a machine that has not started.
    pub fn new(config: ClientConfig) -> Client {
        Client {
            contacts: Contacts::default(),
            supplies: Supplies::default(),
            links: OwnLinks::new(config.id, !config.is_in_call),
            graph: TaskGraph::new(config.id),
            config,
            directory: Directory::default(),
            calls: Calls::default(),
            backlog: Backlog::default(),
            queues: Queues::default(),
            waiting_calls: WaitingCalls::default(),
            unplaced: UnplacedData::default(),
            names: Names::default(),
            plans: Plans::default(),
            quiet: Quiet::default(),
            has_less_to_map: false,
        }
    }

    /// Records that a peer is alive, when something other than a message to this client has shown it.
    pub(in crate::node) fn record_received(&mut self, now: Time, peer: NodeId) {
        let _ = self.contacts.record_received(now, peer);
    }

    pub fn id(&self) -> NodeId {
        self.config.id
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the numbers of tasks, data and groups that the client remembers, for invariants and status.
    pub fn remembered(&self) -> (usize, usize, usize) {
        let (tasks, data) = self.graph.len();
        (tasks + self.calls.len() + self.backlog.len().0, data, self.plans.len().0)
    }

    /// Returns the numbers of remembered tasks, data and other records of its program, by kind. All are 0 once every
    /// task has ended and every handle is released.
    pub fn leak_counts(&self) -> [(&'static str, usize); 16] {
        let (waiting, astray) = self.supplies.counts();
        let (asks, found) = self.names.counts();
        let (tasks, data) = self.graph.len();
        let (groups, early) = self.plans.len();
        let (unsent, sent) = self.backlog.len();
        [
            ("tasks", tasks),
            ("calls", self.calls.len()),
            ("deferred calls", unsent),
            ("deferred calls that were sent", sent),
            ("data", data),
            ("groups", groups),
            ("calls and plans that wait for nodes", self.waiting_calls.len() + early),
            ("data that wait to be placed", self.unplaced.len()),
            ("servers with messages that wait for a connection", self.contacts.awaited()),
            ("data that a server waits for", waiting),
            ("data with interrupted transfers", astray),
            ("data of calls", self.calls.data()),
            ("tasks in queues", self.queues.len()),
            ("requests about names", asks),
            ("shared data that are read", found),
            ("arguments for plain servers", self.supplies.copies.len()),
        ]
    }

    /// True if that is the identifier of a copy of an argument, for invariants.
    pub fn is_copy(datum: DatumId) -> bool {
        ArgumentCopies::has(datum)
    }

    /// Returns the datum that an argument of a stateless server is a copy of, for invariants.
    pub fn copied(&self, copy: DatumId) -> Option<DatumId> {
        self.supplies.copies.get(copy).map(|of| of.datum)
    }

    /// True if a datum is in the client's store: an argument of a call in progress, or part of a group.
    fn is_here(&self, datum: DatumId) -> bool {
        self.calls.of_datum(datum).is_some_and(|call| call.request.sources.iter().any(|(source, _)| *source == datum))
            || self.graph.datum(datum).is_some_and(DatumState::is_here)
    }

    fn on_timer(&mut self, now: Time, timer: ClientTimer, out: &mut Vec<Effect>) {
        match timer {
            ClientTimer::Heartbeat => self.on_heartbeat(now, out),
            ClientTimer::Deadline => self.on_deadline(now, out),
            ClientTimer::Links => self.on_links_timer(now, out),
            ClientTimer::TransfersSettled => self.on_settled(now, out),
            ClientTimer::Steal => self.on_steal_timer(),
        }
    }

    // ---- commands

    fn on_command(&mut self, now: Time, command: Command, out: &mut Vec<Effect>) {
        match command {
            Command::Call { task, sources, limits, deferral: None } => {
                self.begin_call(now, Request::new(now, task, sources, limits), out);
                self.set_deadline(out);
            }
            Command::Call { task, sources, limits, deferral: Some(deferral) } => {
                let goes_first = deferral.goes_first;
                self.backlog.add(Request::deferred(now, task, sources, limits, *deferral), goes_first);
                self.set_deadline(out);
            }
            Command::Hold { tasks, is_held } => self.backlog.hold(&tasks, is_held),
            Command::CalledBack { server, task, answer } => {
                self.contacts.post(server, TaskToServer::CalledBack { task, answer }, out);
            }
            Command::Run { group, heuristic } => self.on_run(now, group, heuristic, (None, None), out),
            Command::Plan { group, heuristic, is_incremental: is_followed } => {
                let purpose = if is_followed { Purpose::Reserve } else { Purpose::PlanOnly };
                self.plan_only(now, Question { group, heuristic, purpose, vain: LossCounter::default() }, out);
            }
            Command::RunPlanned { group, server, from, heuristic, plan } => {
                self.on_run(now, group, heuristic, (Some(PlannedPlace { server, from }), plan), out);
            }
            Command::EndPlan { group } => self.on_end_plan(group, out),
            Command::Get { datum } => self.on_get(now, datum, out),
            Command::Release { data } => {
                let released = data.into_iter().filter(|datum| match datum.is_shared() {
                    true => self.names.release(*datum),
                    false => !self.names.defers_release(*datum),
                });
                let released: Vec<DatumId> = released.collect();
                released.into_iter().for_each(|datum| self.release(datum, false, out));
            }
            Command::RunsAt { server } => self.names.local_server = Some(server),
            Command::Name { request, command } => self.on_name_command(now, request, command, out),
            Command::Erase { datum } => self.release(datum, true, out),
            Command::DropCopy { datum, at } => self.give_up(datum, at, out),
            Command::Cancel { tasks } => self.on_cancel(now, tasks, out),
            Command::CancelUnsent { tasks } => self.cancel_unsent(now, tasks, out),
            Command::Links => match self.contacts.agent() {
                Some(agent) => send(out, agent, DirectoryToAgent::GetLinks),
                None => out.push(Effect::Emit(Event::Links { links: Vec::new() })),
            },
            Command::Waits => match self.contacts.agent() {
                Some(agent) => send(out, agent, DirectoryToAgent::GetWaits),
                None => out.push(Effect::Emit(Event::Waits { programs: Vec::new() })),
            },
            Command::Usage(query) => match self.contacts.agent() {
                Some(agent) => send(out, agent, DirectoryToAgent::GetUsage(query)),
                None => out.push(Effect::Emit(Event::Usage { query, answer: Err(NO_RECORDS.into()) })),
            },
            Command::CollectModels { server } => self.contacts.post(server, DirectoryToServer::ReportModels, out),
            Command::Status { server } => self.contacts.post(server, DirectoryToServer::GetStatus, out),
            Command::Output { server, query } => {
                self.contacts.post(server, DirectoryToServer::GetOutput(query), out);
            }
            Command::EndTask { server, task } => {
                self.contacts.post(server, DirectoryToServer::EndTask { task }, out);
            }
            Command::LogWaits => self.log_waits(now, out),
            Command::Drain | Command::Stop => debug_assert!(false, "a client is not drained"),
            Command::SetRules { .. } => debug_assert!(false, "only an agent has rules"),
        }
    }

    pub(super) fn on_get(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) {
        let event = match self.graph.requested(datum) {
            Availability::Here(meta) => Event::DatumAvailable { datum, meta },
            Availability::Lost(error) => Event::DatumLost { datum, error },
            Availability::Awaited => return self.recover_datum(now, datum, "no server holds it any more", out),
        };
        out.push(Effect::Emit(event));
    }

    fn on_cancel(&mut self, now: Time, tasks: Vec<TaskId>, out: &mut Vec<Effect>) {
        for id in tasks {
            if let Some(call) = self.calls.get(id) {
                let server = call.server;
                self.contacts.post(server, TaskToServer::Cancel { tasks: vec![id] }, out);
                let call = self.calls.remove(id).expect("found above");
                self.call_failed(now, &call.request, Some(server), TaskError::Cancelled, out);
            } else if let Some(request) = self.waiting_calls.take(id).or_else(|| self.backlog.take(id)) {
                self.call_failed(now, &request, None, TaskError::Cancelled, out);
            } else {
                self.fail_task(now, id, TaskError::Cancelled, out);
            }
        }
    }

    fn emit_task_ended(&self, at: Time, server: Option<NodeId>, task: TaskId, error: TaskError, out: &mut Vec<Effect>) {
        let report = TaskReport { task, outcome: Err(error), timing: TaskTimes { run_ns: 0, age_ns: 0 } };
        out.push(Effect::Emit(Event::TaskEnded { at, server, report }));
    }

    /// Panics if an invariant of the client's state is violated. Debug builds call this at each heartbeat.
    pub fn check(&self) {
        self.contacts.check();
        self.supplies.check();
        self.links.check();
        self.queues.check();
        self.backlog.check();
        self.graph.check();
        for (task, server) in self.queues.tasks() {
            let is_call = self.calls.get(task).is_some_and(|call| call.server == server && call.ended.is_none());
            let is_sent = || self.graph.task(task).is_some_and(|run| run.is_at(server));
            assert!(is_call || is_sent(), "{task} is listed at {server}");
        }
        for group in self.graph.groups() {
            assert!(self.plans.has(group), "the plan of {group} is forgotten");
        }
    }

    fn on_heartbeat(&mut self, now: Time, out: &mut Vec<Effect>) {
        #[cfg(debug_assertions)]
        self.check();
        out.push(Effect::SetTimer { timer: ClientTimer::Heartbeat.into(), at: now + HEARTBEAT_NS });
        if self.contacts.agent().is_none() && !self.contacts.is_revoked() {
            out.push(Effect::Dial { address: self.config.agent.clone() });
        }
        self.contacts.dial_lost(out);
        self.retry_interrupted(now, out);
        self.names_heartbeat(now, out);
        self.resend_interrupted(now, out);
        self.backlog.resume();
        self.place_waiting(now, out);
        self.end_waiting_if_due(now, out);
        self.probe_fallen(now, out);
        self.report_quiet(now, out);
        let beat = self.contacts.beat(now);
        for (peer, token) in beat.pings {
            send(out, peer, LinkMessage::Ping { token });
        }
        for (peer, silence_ns) in beat.silent {
            out.push(Effect::Disconnect { peer });
            let why = format!("silent for {:.1} s", ns_to_seconds(silence_ns));
            self.on_peer_lost(now, peer, (ConnectionFault::Disconnected, &why), out);
        }
    }
}

impl Machine for Client {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        let before = out.len();
        match input {
            Input::Start => {
                self.quiet.end(now);
                out.push(Effect::Dial { address: self.config.agent.clone() });
                out.push(Effect::SetTimer { timer: ClientTimer::Heartbeat.into(), at: now + HEARTBEAT_NS });
            }
            Input::PeerUp { peer, role, name, address, .. } => self.on_peer_up(now, peer, role, name, address, out),
            Input::PeerLost { peer, fault, why } => self.on_peer_lost(now, peer, (fault, &why), out),
            Input::DialFailed { address, fault, why, .. } => self.on_dial_failed(now, &address, (fault, &why), out),
            Input::Received { from, message } => {
                if self.contacts.record_received(now, from) {
                    self.on_message(now, from, message, out);
                }
            }
            Input::DatumArrived { from, datum, meta, duration_ns: took_ns } => {
                let _ = self.contacts.record_received(now, from);
                self.on_arrived(now, from, datum, (meta, took_ns), out);
            }
            Input::DatumBroken { from, datum, no_memory, why } => {
                self.on_broken(now, from, datum, (no_memory, &why), out);
            }
            Input::DataPath { from, relay } => self.links.set_path(from, relay, self.contacts.agent(), out),
            Input::ProbeArrived { from, size_bytes } => send(out, from, LinkToProber::ProbeArrived { size_bytes }),
            Input::Timer(Timer::Client(timer)) => self.on_timer(now, timer, out),
            Input::Timer(_)
            | Input::TaskEnded { .. }
            | Input::DatumBegun { .. }
            | Input::CallsBack(_)
            | Input::CallOutput(_)
            | Input::Paused { .. }
            | Input::Mapped { .. }
            | Input::SpeedMeasured { .. }
            | Input::MadeDurable { .. }
            | Input::DurableSynced { .. }
            | Input::OnDisk { .. } => {}
            Input::Command(command) => self.on_command(now, command, out),
        }
        while std::mem::take(&mut self.has_less_to_map) {
            self.map_waiting(now, out);
        }
        self.send_deferred(now, out);
        self.steal(now, out);
        self.drop_copies(out);
        self.end_quiet(now, &out[before..]);
        self.contacts.record_dials(&out[before..]);
    }
}

fn send(out: &mut Vec<Effect>, to: NodeId, message: impl Into<Message>) {
    out.push(Effect::Send { to, message: message.into() });
}
