//! The client: sends calls, has groups mapped, sends each server its part, follows their progress, and owns the names
//! of data.
//!
//! Its knowledge of a datum (producer, holders, future readers) is the lineage from which lost results are recomputed.
//! A task is forgotten when it can never have to run again: its results have arrived, or nobody wants them any more.

mod arrivals;
mod calls;
mod contacts;
mod directory;
mod following;
mod groups;
mod leftovers;
mod links;
mod located;
mod mapping;
mod messages;
mod names;
mod own_links;
mod peers;
mod plain;
mod puts;
mod queues;
mod recovery;
mod remapping;
mod repeating;
mod returning;
mod room;
mod stealing;
mod supplies;
mod unoffered;
mod vain;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::call::{Calls, Request};
use crate::graph::{Failures, Group, Task};
use crate::node::message::{
    DirectoryToAgent, DirectoryToServer, LinkMessage, LinkToProber, Message, Purpose, TaskReport, TaskToServer, Timing,
};
use crate::node::protocol::{Command, Effect, Event, Input};
use crate::node::{Category, ClientTimer, LogLine, Timer};
use contacts::Contacts;
use directory::Directory;
use following::{Following, Placed};
use gridloom_base::limits::HEARTBEAT_NS;
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{DatumId, GroupId, Machine, Meta, NodeId, TaskError, TaskId, Time};
use gridloom_map::MappingMethod;
use names::Names;
use own_links::OwnLinks;
use queues::Queues;
use remapping::Remapping;
use returning::WaitingCalls;
use supplies::Supplies;
use vain::VainLosses;

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub id: NodeId,
    pub name: String,
    /// Address of its agent.
    pub agent: String,
    /// True if a running call opened it. Many calls do so at the same time, most of them only for named data or a
    /// single call. So their links are measured when the first group is mapped and not at once.
    pub is_in_call: bool,
}

/// The state of a task of a group.
#[derive(Clone, PartialEq, Debug)]
enum Status {
    /// Not mapped, or about to be mapped again.
    Unmapped,
    /// Sent to that server.
    Sent(NodeId),
    /// Its results have been produced.
    Done,
    /// It will not produce results.
    Failed(TaskError),
}

#[derive(Debug)]
struct TaskRun {
    task: Arc<Task>,
    group: GroupId,
    status: Status,
    /// How often it was sent without having ended.
    attempts: u32,
    /// The server that was last lost with it or with the only copy of a result. Used in the error if no other server
    /// can run it.
    lost_with: Option<LostServer>,
    failures: Failures,
    /// When it began to run, if the client has requested that.
    since: Option<Time>,
    /// Number of its inputs that had not been produced when it was sent and have not been since.
    missing: u32,
}

#[derive(Debug)]
struct DatumRun {
    meta: Meta,
    producer: Option<TaskId>,
    /// Tasks that read it and are not forgotten.
    consumers: BTreeSet<TaskId>,
    /// Number of consumers that have not ended.
    pending: usize,
    /// Servers that hold it.
    holders: BTreeSet<NodeId>,
    /// True if it is in the client's store.
    here: bool,
    /// True if the program has a handle on it.
    held: bool,
    /// True if the program will presumably want it at the client.
    presumed: bool,
    /// True if the program requested it.
    wanted: bool,
    /// The server from which the client has requested it.
    fetching: Option<NodeId>,
    /// Servers that requested it from the client.
    fetchers: BTreeSet<NodeId>,
    error: Option<TaskError>,
    /// True if no copy may outlive its readers, not even to recompute their lost results.
    is_fleeting: bool,
}

/// A lost server, for error messages and events.
#[derive(Clone, Debug)]
struct LostServer {
    node: NodeId,
    name: String,
    why: String,
}

/// A mapping request that was sent, or waits to be sent.
#[derive(Debug)]
struct Mapping {
    round: u64,
    asked: Option<Time>,
    tasks: Vec<TaskId>,
    data: Vec<DatumId>,
    /// Names of shared data that functions get and put, by index in `data`.
    names: BTreeMap<u32, String>,
    /// Losses of the agent while this plan was requested, since the last answer.
    vain: VainLosses,
}

/// A group that is only planned and not run.
#[derive(Debug)]
struct Question {
    group: Group,
    heuristic: MappingMethod,
    purpose: Purpose,
    /// See [`Mapping`].
    vain: VainLosses,
}

#[derive(Debug)]
struct GroupRun {
    heuristic: MappingMethod,
    /// True if the caller gave the plan of its first mapping.
    is_given: bool,
    /// Number of tasks that have not ended.
    left: usize,
    /// Number of tasks that are not forgotten.
    remembered: usize,
    mapping: Option<Mapping>,
    /// Set if the group is only planned and not run. Kept because the request may have to be repeated.
    question: Option<Box<Question>>,
    remapping: Remapping,
    /// The declared group whose plan it follows.
    follows: Option<GroupId>,
}

/// The client machine. Its knowledge of nodes, failed transfers, its own links and queues is private to four
/// sub-machines, which do not access one another. Tasks, data and groups form one graph and are kept together here.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    contacts: Contacts,
    supplies: Supplies,
    links: OwnLinks,
    directory: Directory,
    calls: Calls,
    queues: Queues,
    /// Calls made before the first directory arrived, and calls that no server can run until one returns.
    waiting_calls: WaitingCalls,
    /// Groups to be planned once the links are measured and their inputs have a location.
    early_plans: Vec<Question>,
    following: Following,
    names: Names,
    tasks: BTreeMap<TaskId, TaskRun>,
    data: BTreeMap<DatumId, DatumRun>,
    groups: BTreeMap<GroupId, GroupRun>,
    /// Number of the last mapping request.
    round: u64,
    /// True if tasks have failed before they had a plan: groups that waited for their locations may now be mapped.
    has_less_to_map: bool,
}

impl Client {
    /// Creates a machine that has not started.
    pub fn new(config: ClientConfig) -> Client {
        Client {
            contacts: Contacts::default(),
            supplies: Supplies::default(),
            links: OwnLinks::new(config.id, !config.is_in_call),
            config,
            directory: Directory::default(),
            calls: Calls::default(),
            queues: Queues::default(),
            waiting_calls: WaitingCalls::default(),
            early_plans: Vec::new(),
            following: Following::default(),
            names: Names::default(),
            tasks: BTreeMap::new(),
            data: BTreeMap::new(),
            groups: BTreeMap::new(),
            round: 0,
            has_less_to_map: false,
        }
    }

    /// Records a sign of life of a peer other than a message to this client.
    pub(in crate::node) fn heard(&mut self, now: Time, peer: NodeId) {
        let _ = self.contacts.heard(now, peer);
    }

    pub fn id(&self) -> NodeId {
        self.config.id
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the numbers of tasks, data and groups that it remembers, for invariants and status.
    pub fn remembered(&self) -> (usize, usize, usize) {
        (self.tasks.len() + self.calls.len(), self.data.len(), self.groups.len())
    }

    /// True if a datum is in the client's store: an argument of a call in progress, or part of a group.
    fn is_here(&self, datum: DatumId) -> bool {
        self.calls.of_datum(datum).is_some_and(|call| call.request.sources.iter().any(|(source, _)| *source == datum))
            || self.data.get(&datum).is_some_and(|run| run.here)
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
            Command::Call { task, sources, limits } => {
                let request = Request::new(now, task, sources, limits);
                match !self.directory.is_known && !self.contacts.agent_was_lost() {
                    true => self.wait(request, out),
                    false => self.send_call(now, request, out),
                }
                self.set_deadline(out);
            }
            Command::CalledBack { server, task, answer } => {
                self.contacts.post(server, TaskToServer::CalledBack { task, answer }, out);
            }
            Command::Run { group, heuristic } => self.on_run(now, group, heuristic, (None, None), out),
            Command::Plan { group, heuristic, is_incremental: is_followed } => {
                let purpose = if is_followed { Purpose::Reserve } else { Purpose::PlanOnly };
                self.plan_only(now, Question { group, heuristic, purpose, vain: VainLosses::default() }, out);
            }
            Command::RunPlanned { group, server, from, heuristic, plan } => {
                self.on_run(now, group, heuristic, (Some(Placed { server, from }), plan), out);
            }
            Command::EndPlan { group } => self.on_end_plan(group, out),
            Command::Get { datum } => self.on_get(now, datum, out),
            Command::Release { data } => {
                let released = data.into_iter().filter(|datum| match datum.is_shared() {
                    true => self.names.release(*datum),
                    false => !self.names.keeps(*datum),
                });
                let released: Vec<DatumId> = released.collect();
                released.into_iter().for_each(|datum| self.release(datum, false, out));
            }
            Command::RunsAt { server } => self.names.near = Some(server),
            Command::Name { request: ask, command } => self.on_name_command(now, ask, command, out),
            Command::Erase { datum } => self.release(datum, true, out),
            Command::DropCopy { datum, at } => self.give_up(datum, at, out),
            Command::Cancel { tasks } => self.on_cancel(now, tasks, out),
            Command::Links => match self.contacts.agent() {
                Some(agent) => send(out, agent, DirectoryToAgent::GetLinks),
                None => out.push(Effect::Emit(Event::Links { links: Vec::new() })),
            },
            Command::CollectModels { server } => self.contacts.post(server, DirectoryToServer::ReportModels, out),
            Command::Status { server } => self.contacts.post(server, DirectoryToServer::GetStatus, out),
            Command::Output { server, query } => {
                self.contacts.post(server, DirectoryToServer::GetOutput(query), out);
            }
            Command::EndTask { server, task } => {
                self.contacts.post(server, DirectoryToServer::EndTask { task }, out);
            }
            Command::Drain => debug_assert!(false, "a client is not drained"),
        }
    }

    pub(super) fn on_get(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) {
        let event = match self.data.get_mut(&datum) {
            None => Event::DatumLost {
                datum,
                error: TaskError::DatumLost { datum, why: "it was released, or never produced".into() },
            },
            // A result that has arrived is kept, whatever happens to a later run of its task.
            Some(run) if run.here => Event::DatumAvailable { datum, meta: run.meta.clone() },
            Some(DatumRun { error: Some(error), .. }) => Event::DatumLost { datum, error: error.clone() },
            Some(run) => {
                run.wanted = true;
                self.missing(now, datum, "no server holds it any more", out);
                return;
            }
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
            } else if let Some(request) = self.waiting_calls.take(id) {
                self.call_failed(now, &request, None, TaskError::Cancelled, out);
            } else {
                self.fail_task(now, id, TaskError::Cancelled, out);
            }
        }
    }

    fn emit_task_ended(&self, at: Time, server: Option<NodeId>, task: TaskId, error: TaskError, out: &mut Vec<Effect>) {
        let report = TaskReport { task, outcome: Err(error), timing: Timing { run_ns: 0, age_ns: 0 } };
        out.push(Effect::Emit(Event::TaskEnded { at, server, report }));
    }

    /// Panics if an invariant of the client's state is violated. Debug builds call this at each heartbeat.
    pub fn check(&self) {
        self.contacts.check();
        self.supplies.check();
        self.links.check();
        self.queues.check();
        for (task, server) in self.queues.tasks() {
            let is_call = self.calls.get(task).is_some_and(|call| call.server == server && call.ended.is_none());
            let is_sent = || self.tasks.get(&task).is_some_and(|run| run.status == Status::Sent(server));
            assert!(is_call || is_sent(), "{task} is listed at {server}");
        }
        let mut left: BTreeMap<GroupId, usize> = BTreeMap::new();
        let mut pending: BTreeMap<DatumId, usize> = BTreeMap::new();
        for (id, run) in &self.tasks {
            assert!(self.groups.contains_key(&run.group), "the group of {id} is forgotten");
            if matches!(run.status, Status::Unmapped | Status::Sent(_)) {
                *left.entry(run.group).or_default() += 1;
                let inputs: BTreeSet<DatumId> = run.task.inputs().collect();
                inputs.into_iter().for_each(|datum| *pending.entry(datum).or_default() += 1);
            }
        }
        for (id, group) in self.groups.iter().filter(|(_, group)| group.question.is_none()) {
            assert_eq!(group.left, left.get(id).copied().unwrap_or(0), "open tasks of {id}");
        }
        for (id, run) in &self.data {
            assert_eq!(run.pending, pending.get(id).copied().unwrap_or(0), "open readers of {id}");
        }
    }

    fn on_heartbeat(&mut self, now: Time, out: &mut Vec<Effect>) {
        #[cfg(debug_assertions)]
        self.check();
        out.push(Effect::SetTimer { timer: ClientTimer::Heartbeat.into(), at: now + HEARTBEAT_NS });
        if self.contacts.agent().is_none() {
            out.push(Effect::Dial { address: self.config.agent.clone() });
        }
        self.contacts.dial_lost(out);
        self.retry_astray(now, out);
        self.names_beat(now, out);
        self.calls_again(now, out);
        self.place_waiting(now, out);
        self.end_vain_waiting(now, out);
        self.probe_fallen(now, out);
        let beat = self.contacts.beat(now);
        for (peer, token) in beat.pings {
            send(out, peer, LinkMessage::Ping { token });
        }
        for (peer, silence_ns) in beat.silent {
            out.push(Effect::Disconnect { peer });
            self.on_peer_lost(now, peer, &format!("silent for {:.1} s", ns_to_seconds(silence_ns)), out);
        }
    }
}

impl Machine for Client {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Start => {
                out.push(Effect::Dial { address: self.config.agent.clone() });
                out.push(Effect::SetTimer { timer: ClientTimer::Heartbeat.into(), at: now + HEARTBEAT_NS });
            }
            Input::PeerUp { peer, role, name, address, .. } => self.on_peer_up(now, peer, role, name, address, out),
            Input::PeerLost { peer, why } => self.on_peer_lost(now, peer, &why, out),
            Input::DialFailed { address, why, .. } => self.on_dial_failed(now, &address, &why, out),
            Input::Received { from, message } => {
                if self.contacts.heard(now, from) {
                    self.on_message(now, from, message, out);
                }
            }
            Input::DatumArrived { from, datum, meta, duration_ns: took_ns } => {
                let _ = self.contacts.heard(now, from);
                self.on_arrived(now, from, datum, (meta, took_ns), out);
            }
            Input::DatumBroken { from, datum, no_memory, why } => {
                self.on_broken(now, from, datum, (no_memory, &why), out);
            }
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
            | Input::MadeDurable { .. } => {}
            Input::Command(command) => self.on_command(now, command, out),
        }
        while std::mem::take(&mut self.has_less_to_map) {
            self.map_waiting(now, out);
        }
        self.steal(now, out);
        self.drop_copies(out);
    }
}

/// Creates the record of a datum. Kept here so that `groups` and `recovery` share it.
fn datum_run(meta: Meta, producer: Option<TaskId>, here: bool) -> DatumRun {
    DatumRun {
        meta,
        producer,
        consumers: BTreeSet::new(),
        pending: 0,
        holders: BTreeSet::new(),
        here,
        held: true,
        presumed: false,
        wanted: false,
        fetching: None,
        fetchers: BTreeSet::new(),
        error: None,
        is_fleeting: false,
    }
}

fn send(out: &mut Vec<Effect>, to: NodeId, message: impl Into<Message>) {
    out.push(Effect::Send { to, message: message.into() });
}
