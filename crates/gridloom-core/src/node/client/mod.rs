//! The client: sends calls, has groups mapped, hands each server its part, follows them, and owns the names of data.
//!
//! What it knows of a datum (who made it, who holds it, who still needs it) is the lineage from which lost results are
//! computed again. A task is forgotten when nothing depends on its being run again: its results are here, or nobody
//! wants them any more.

mod calls;
mod following;
mod groups;
mod leftovers;
mod links;
mod mapping;
mod peers;
mod recovery;
mod remapping;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::limits::HEARTBEAT_NS;
use crate::base::time::ns_to_seconds;
use crate::base::{DatumId, GroupId, Machine, Meta, NodeId, TaskError, TaskId, Time};
use crate::call::{Calls, Way};
use crate::graph::{Group, Task};
use crate::idl::Signature;
use crate::map::MapBy;
use crate::member::Members;
use crate::node::measuring::Measuring;
use crate::node::message::{Message, Purpose, TaskReport, Timing, TransferReport};
use crate::node::protocol::{Command, Effect, Event, Input, Role, TimerId};
use crate::node::seen::SeenTransfers;
use crate::perf::{GridView, LinkEstimate, Links};
use following::Placed;
use remapping::Remapping;

const HEARTBEAT: TimerId = TimerId(0);
const DEADLINE: TimerId = TimerId(1);
const LINKS: TimerId = TimerId(2);
const SETTLED: TimerId = TimerId(3);

/// How it is set up.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Its identifier.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where its agent is.
    pub agent: String,
}

/// Where a task of a group stands.
#[derive(Clone, PartialEq, Debug)]
enum Status {
    /// Not mapped, or to be mapped again.
    Unmapped,
    /// Sent to that server.
    Sent(NodeId),
    /// Its results were made.
    Done,
    /// It will give no result.
    Failed(TaskError),
}

#[derive(Debug)]
struct TaskRun {
    task: Arc<Task>,
    group: GroupId,
    status: Status,
    /// How often it was sent out without an end.
    attempts: u32,
    /// The server that was lost with it last, or with the only copy of a result: for the error if no other can run it.
    lost_with: Option<LostServer>,
    /// It runs since then, as far as was asked.
    since: Option<Time>,
}

#[derive(Debug)]
struct DatumRun {
    meta: Meta,
    producer: Option<TaskId>,
    /// Tasks that read it and are not forgotten.
    consumers: BTreeSet<TaskId>,
    /// Consumers that have not ended.
    pending: usize,
    /// Servers that hold it.
    holders: BTreeSet<NodeId>,
    /// It is in the client's store.
    here: bool,
    /// The program has a handle on it.
    held: bool,
    /// Presumably the program will want to have it at the client.
    presumed: bool,
    /// The program asked for it.
    wanted: bool,
    /// The client asked that server for it.
    fetching: Option<NodeId>,
    /// Servers that asked the client for it.
    fetchers: BTreeSet<NodeId>,
    error: Option<TaskError>,
    /// No copy outlives its readers, not even for results of theirs that are lost.
    is_fleeting: bool,
}

/// A lost server, as it is told.
#[derive(Clone, Debug)]
struct LostServer {
    node: NodeId,
    name: String,
    why: String,
}

/// What is known of a lost server.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    /// The agent has noticed since; whoever is in its directory later has come back.
    was_absent: bool,
    /// The agent still knows it, so perhaps only the connection was lost: it is dialled.
    is_dialled: bool,
}

/// A request for a plan that is out, or waits to go out.
#[derive(Debug)]
struct Mapping {
    round: u64,
    asked: Option<Time>,
    tasks: Vec<TaskId>,
    data: Vec<DatumId>,
}

#[derive(Debug)]
struct GroupRun {
    heuristic: MapBy,
    /// It was first mapped as given.
    is_given: bool,
    /// Tasks that have not ended.
    left: usize,
    /// Tasks that are not forgotten.
    remembered: usize,
    mapping: Option<Mapping>,
    plan_only: bool,
    remapping: Remapping,
}

/// What waits for a connection.
#[derive(Debug)]
enum Parcel {
    Message(Message),
    Datum(DatumId),
}

/// The machine.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    agent: Option<NodeId>,
    agent_was_lost: bool,
    members: Members<Role>,
    grid: Arc<GridView>,
    has_directory: bool,
    functions: Arc<Vec<Signature>>,
    names: BTreeMap<NodeId, String>,
    addresses: BTreeMap<NodeId, String>,
    outbox: BTreeMap<NodeId, Vec<Parcel>>,
    /// Servers that were lost and have not come back.
    lost: BTreeMap<NodeId, Lost>,
    calls: Calls,
    /// Calls made before the first directory came.
    early_calls: Vec<Command>,
    /// Data to be taken to servers once they have a place.
    early_placements: Vec<(GroupId, Vec<TaskId>, Placed)>,
    /// Groups to be planned once the links are measured and what they read has a place.
    early_plans: Vec<(Group, MapBy, Purpose)>,
    tasks: BTreeMap<TaskId, TaskRun>,
    data: BTreeMap<DatumId, DatumRun>,
    groups: BTreeMap<GroupId, GroupRun>,
    /// Number of the last request for a plan.
    round: u64,
    /// Data that a server waits for and that nobody could give it yet.
    unsupplied: BTreeSet<(DatumId, NodeId)>,
    /// Data that broke off on their way to a place.
    astray: BTreeSet<(DatumId, NodeId)>,
    /// How often a datum of a group broke off on its way to a place, since it last arrived there.
    broken: BTreeMap<(DatumId, NodeId), u32>,
    /// Servers that could not get a datum from another (first from second).
    apart: BTreeSet<(NodeId, NodeId)>,
    measuring: Measuring,
    /// Servers whose links were measured, or are to be.
    probed: BTreeSet<NodeId>,
    /// The time that groups wait for links to be measured has passed.
    waited_for_links: bool,
    /// Its own links, as plans are made with them: both ways alike.
    links: BTreeMap<NodeId, LinkEstimate>,
    /// What they are learned from.
    learned: Links<NodeId>,
    /// What came here, for the agent: it sees what moved beside it.
    received: SeenTransfers,
    /// Transfers wait to be learned from.
    settling: bool,
}

impl Client {
    /// A machine that has not started.
    pub fn new(config: ClientConfig) -> Client {
        Client {
            config,
            agent: None,
            agent_was_lost: false,
            members: Members::default(),
            grid: Arc::default(),
            has_directory: false,
            names: BTreeMap::new(),
            addresses: BTreeMap::new(),
            outbox: BTreeMap::new(),
            lost: BTreeMap::new(),
            functions: Arc::default(),
            calls: Calls::default(),
            early_calls: Vec::new(),
            early_placements: Vec::new(),
            early_plans: Vec::new(),
            tasks: BTreeMap::new(),
            data: BTreeMap::new(),
            groups: BTreeMap::new(),
            round: 0,
            unsupplied: BTreeSet::new(),
            astray: BTreeSet::new(),
            broken: BTreeMap::new(),
            apart: BTreeSet::new(),
            measuring: Measuring::default(),
            probed: BTreeSet::new(),
            waited_for_links: false,
            links: BTreeMap::new(),
            learned: Links::default(),
            received: SeenTransfers::default(),
            settling: false,
        }
    }

    /// A peer has been heard of in another way than by what it sends here: it lives.
    pub(in crate::node) fn heard(&mut self, now: Time, peer: NodeId) {
        let _ = self.members.heard(now, peer);
    }

    /// Its identifier.
    pub fn id(&self) -> NodeId {
        self.config.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Tasks, data and groups that it remembers: for invariants and status.
    pub fn remembered(&self) -> (usize, usize, usize) {
        (self.tasks.len() + self.calls.len(), self.data.len(), self.groups.len())
    }

    /// Sends to a server, over a connection that stands or is made.
    fn post(&mut self, to: NodeId, parcel: Parcel, out: &mut Vec<Effect>) {
        if self.members.is_up(to) {
            out.push(match parcel {
                Parcel::Message(message) => Effect::Send { to, message },
                Parcel::Datum(datum) => Effect::SendDatum { to, datum },
            });
            return;
        }
        let waiting = self.outbox.entry(to).or_default();
        if waiting.is_empty() {
            let address = self.addresses.get(&to).cloned().unwrap_or_default();
            out.push(Effect::Dial { address });
        }
        waiting.push(parcel);
    }

    /// Whether a datum is in the client's store: an argument of a call under way, or of a group.
    fn is_here(&self, datum: DatumId) -> bool {
        self.calls.of_datum(datum).is_some_and(|call| call.sources.iter().any(|(source, _)| *source == datum))
            || self.data.get(&datum).is_some_and(|run| run.here)
    }

    fn server_name(&self, node: NodeId) -> String {
        self.names.get(&node).cloned().unwrap_or_else(|| node.to_string())
    }

    // ---- messages

    fn on_message(&mut self, now: Time, from: NodeId, message: Message, out: &mut Vec<Effect>) {
        match message {
            Message::TasksEnded { reports, transfers } => {
                for report in transfers {
                    self.on_transfer_report(now, report, out);
                }
                for report in reports {
                    if self.calls.get(report.task).is_some() {
                        self.on_call_report(now, from, report, out);
                    } else {
                        self.on_task_report(now, from, report, out);
                    }
                }
            }
            Message::CallsBack(call) => {
                if self.calls.get(call.task).is_some_and(|known| known.server == from) {
                    out.push(Effect::Emit(Event::CallsBack { server: from, call }));
                }
            }
            Message::Fetch { datum } => self.on_fetch(now, from, datum, out),
            Message::FetchRefused { datum, why } => {
                if let Some(run) = self.data.get_mut(&datum)
                    && run.fetching == Some(from)
                {
                    run.fetching = None;
                    run.holders.remove(&from);
                    self.missing(now, datum, &why, out);
                }
            }
            Message::Dropped { data } => {
                for datum in data {
                    if let Some(run) = self.data.get_mut(&datum) {
                        run.holders.remove(&from);
                    }
                }
            }
            Message::SupplyFailed { datum, from: source, fault, why } => {
                self.on_supply_failed(now, from, datum, source, fault, &why, out);
            }
            Message::GroupMapped { group, round, plan, addresses, seen } if self.is_current(group, round) => {
                self.addresses.extend(addresses);
                self.on_mapped(now, group, plan, seen, out);
            }
            Message::GroupNotMapped { group, round, why } if self.is_current(group, round) => {
                self.mapping_failed(now, group, TaskError::NotMapped { why }, out);
            }
            // The group was cancelled, or mapped again since.
            Message::GroupMapped { .. } | Message::GroupNotMapped { .. } => {}
            Message::Stale { group, why } => self.on_stale(now, group, &why, out),
            Message::Recalled { group, tasks, running } => self.on_recalled(now, from, group, &tasks, &running, out),
            Message::Directory { grid, functions, .. } => self.on_directory(now, grid, functions, out),
            Message::Ping { token } => send(out, from, Message::Pong { token }),
            Message::Pong { token } => self.on_pong(now, from, token, out),
            Message::ProbeArrived { size_bytes } => self.on_probe_arrived(now, from, size_bytes, out),
            Message::Turn { to, is_needed } => self.on_turn(now, to, is_needed, out),
            Message::LinksKnown { links } => out.push(Effect::Emit(Event::Links { links })),
            Message::ModelsKnown { server } => out.push(Effect::Emit(Event::ModelsKnown { server })),
            Message::Register(_)
            | Message::Speed { .. }
            | Message::LinkMeasured { .. }
            | Message::TransfersSeen { .. }
            | Message::MeasureLink { .. }
            | Message::AskLinks
            | Message::LinkBroken { .. }
            | Message::LinksDone
            | Message::AskTurn { .. }
            | Message::TurnOver { .. }
            | Message::Model { .. }
            | Message::TellModels
            | Message::ModelsTold { .. }
            | Message::Pace { .. }
            | Message::CalledBack { .. }
            | Message::Recall { .. }
            | Message::Registered { .. }
            | Message::RegistrationRefused { .. }
            | Message::Subscribe
            | Message::MapGroup(_)
            | Message::GroupEnded { .. }
            | Message::Call { .. }
            | Message::RunTasks { .. }
            | Message::Resupply { .. }
            | Message::Cancel { .. }
            | Message::Release { .. } => {
                out.push(Effect::Emit(Event::Log(format!("{from} sent a client what no client takes"))));
            }
        }
    }

    fn on_transfer_report(&mut self, now: Time, report: TransferReport, out: &mut Vec<Effect>) {
        self.broken.remove(&(report.datum, report.to));
        // Arguments of plain calls are given up by their server.
        if self.calls.of_datum(report.datum).is_none() {
            self.copy_at(now, report.to, report.datum, out);
        }
        self.saw_transfer(now, &report, out);
        let at = now - report.age_ns;
        out.push(Effect::Emit(Event::Transferred { at, report }));
    }

    fn on_arrived(&mut self, now: Time, from: NodeId, datum: DatumId, meta: Meta, took_ns: u64, out: &mut Vec<Effect>) {
        let size_bytes = meta.size_bytes();
        let report = TransferReport { datum, from, to: self.config.id, size_bytes, run_ns: took_ns, age_ns: 0 };
        out.push(Effect::Emit(Event::Transferred { at: now, report }));
        self.saw_transfer(now, &report, out);
        if self.calls.of_datum(datum).is_some() {
            if let Some(call) = self.calls.arrived(datum) {
                self.call_complete(now, call, out);
            }
            return;
        }
        let Some(run) = self.data.get_mut(&datum) else {
            out.push(Effect::DropDatum { datum });
            return;
        };
        run.meta = meta.clone();
        run.here = true;
        run.fetching = None;
        self.broken.remove(&(datum, self.config.id));
        for server in std::mem::take(&mut run.fetchers) {
            self.post(server, Parcel::Datum(datum), out);
        }
        self.supply_waiting(now, datum, out);
        if std::mem::take(&mut self.data.get_mut(&datum).expect("found above").wanted) {
            out.push(Effect::Emit(Event::DatumHere { datum, meta }));
        }
        self.tidy(datum, out);
    }

    fn on_fetch(&mut self, now: Time, from: NodeId, datum: DatumId, out: &mut Vec<Effect>) {
        if self.is_here(datum) {
            out.push(Effect::SendDatum { to: from, datum });
            return;
        }
        match self.data.get_mut(&datum) {
            Some(DatumRun { error: Some(error), .. }) => {
                let why = error.to_string();
                send(out, from, Message::FetchRefused { datum, why });
            }
            Some(run) => {
                run.fetchers.insert(from);
                // Who asks for it does not have it, whatever was heard before.
                run.holders.remove(&from);
                self.missing(now, datum, "no server holds it any more", out);
            }
            None => send(out, from, Message::FetchRefused { datum, why: "the client has released it".into() }),
        }
    }

    // ---- commands

    fn on_command(&mut self, now: Time, command: Command, out: &mut Vec<Effect>) {
        match command {
            Command::Call { .. } if !self.has_directory && !self.agent_was_lost => self.early_calls.push(command),
            Command::Call { task, sources, limit_ns, only, calibrates, is_once } => {
                let deadline = limit_ns.map(|limit| now + limit);
                let way = Way { only, calibrates, is_once };
                self.send_call(now, Arc::new(task), sources, way, 1, limit_ns, deadline, out);
                self.set_deadline(out);
            }
            Command::CalledBack { server, task, answer } => {
                self.post(server, Parcel::Message(Message::CalledBack { task, answer }), out);
            }
            Command::Run { group, heuristic } => self.on_run(now, group, heuristic, None, out),
            Command::Plan { group, heuristic, is_followed } => {
                let purpose = if is_followed { Purpose::Follow } else { Purpose::Look };
                self.plan_only(now, group, heuristic, purpose, out);
            }
            Command::Follow { group, server, from, heuristic } => {
                self.on_run(now, group, heuristic, Some(Placed { server, from }), out);
            }
            Command::EndPlan { group } => self.on_end_plan(group, out),
            Command::Get { datum } => self.on_get(now, datum, out),
            Command::Release { data } => data.into_iter().for_each(|datum| self.release(datum, false, out)),
            Command::Erase { datum } => self.release(datum, true, out),
            Command::GiveUp { datum, at } => self.give_up(datum, at, out),
            Command::Cancel { tasks } => self.on_cancel(now, tasks, out),
            Command::Links => match self.agent {
                Some(agent) => send(out, agent, Message::AskLinks),
                None => out.push(Effect::Emit(Event::Links { links: Vec::new() })),
            },
            Command::Models { server } => self.post(server, Parcel::Message(Message::TellModels), out),
        }
    }

    fn on_get(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) {
        let event = match self.data.get_mut(&datum) {
            None => Event::DatumLost {
                datum,
                error: TaskError::DatumLost { datum, why: "it was released, or never made".into() },
            },
            // A result that is here stays, whatever became of a later run of its task.
            Some(run) if run.here => Event::DatumHere { datum, meta: run.meta.clone() },
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
                self.post(server, Parcel::Message(Message::Cancel { tasks: vec![id] }), out);
                let call = self.calls.remove(id).expect("found above");
                self.call_failed(now, &call.task, &call.sources, Some(server), TaskError::Cancelled, out);
            } else {
                self.fail_task(now, id, TaskError::Cancelled, out);
            }
        }
    }

    fn emit_task_ended(&self, at: Time, server: Option<NodeId>, task: TaskId, error: TaskError, out: &mut Vec<Effect>) {
        let report = TaskReport { task, outcome: Err(error), timing: Timing { run_ns: 0, age_ns: 0 } };
        out.push(Effect::Emit(Event::TaskEnded { at, server, report }));
    }

    fn on_heartbeat(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer { timer: HEARTBEAT, at: now + HEARTBEAT_NS });
        if self.agent.is_none() {
            out.push(Effect::Dial { address: self.config.agent.clone() });
        }
        self.dial_lost(out);
        self.retry_astray(now, out);
        self.calls_again(now, out);
        self.place_waiting(now, out);
        if !self.early_plans.is_empty() {
            // What they wait for may have failed.
            self.map_waiting(now, out);
        }
        self.probe_fallen(now, out);
        let beat = self.members.beat(now);
        for (peer, token) in beat.pings {
            send(out, peer, Message::Ping { token });
        }
        for (peer, silence_ns) in beat.silent {
            out.push(Effect::HangUp { peer });
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
                out.push(Effect::SetTimer { timer: HEARTBEAT, at: now + HEARTBEAT_NS });
            }
            Input::PeerUp { peer, role, name, address } => self.on_peer_up(now, peer, role, name, address, out),
            Input::PeerLost { peer, why } => self.on_peer_lost(now, peer, &why, out),
            Input::DialFailed { address, why, .. } => self.on_dial_failed(now, &address, &why, out),
            Input::Received { from, message } => {
                if self.members.heard(now, from) {
                    self.on_message(now, from, message, out);
                }
            }
            Input::DatumArrived { from, datum, meta, took_ns } => {
                let _ = self.members.heard(now, from);
                self.on_arrived(now, from, datum, meta, took_ns, out);
            }
            Input::DatumBroken { from, datum, why } => self.on_broken(now, from, datum, &why, out),
            Input::ProbeArrived { from, size_bytes } => send(out, from, Message::ProbeArrived { size_bytes }),
            Input::Timer(HEARTBEAT) => self.on_heartbeat(now, out),
            Input::Timer(DEADLINE) => self.on_deadline(now, out),
            Input::Timer(LINKS) => self.on_links_timer(now, out),
            Input::Timer(SETTLED) => self.on_settled(now, out),
            Input::Timer(_) | Input::TaskEnded { .. } | Input::CallsBack(_) | Input::SpeedMeasured { .. } => {}
            Input::Command(command) => self.on_command(now, command, out),
        }
    }
}

/// The data of a group that a client's program recorded: kept here so that `groups` and `recovery` share one shape.
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

fn is_valid(group: &Group) -> Result<(), String> {
    if group.tasks.len() > crate::base::limits::GROUP_TASKS_MAX {
        let limit = crate::base::limits::GROUP_TASKS_MAX;
        return Err(format!("a group of {} calls exceeds the limit of {limit}; cut it in parts", group.tasks.len()));
    }
    Ok(())
}

fn send(out: &mut Vec<Effect>, to: NodeId, message: Message) {
    out.push(Effect::Send { to, message });
}
