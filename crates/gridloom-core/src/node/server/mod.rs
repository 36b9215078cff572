//! The server: runs tasks as their inputs come, keeps their results, and sends them on when asked.
//!
//! Message-driven: nobody tells a server when to start a task. It asks for the inputs as soon as there is room for
//! them (a standing request: the holder answers when it has the datum), runs what is ready in the order in which the
//! plan put it, and answers standing requests for its own results the moment they are made. Transfers so overlap with
//! computation, and no message passes the client between two dependent tasks.

mod admission;
mod calibration;
mod leftovers;
mod links;
mod models;
mod objects;
mod pace;
mod running;
mod supply;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::limits::{
    EAGER_BYTES_MAX, FETCH_UNKNOWN_NS_MAX, HEARTBEAT_NS, MODEL_REPORT_NS, PACE_CALL_S_MIN, PROBE_PEERS_MAX,
    RATE_REPORT_NS, SHORT_CALL_NS_MAX, SILENCE_NS_MAX,
};
use crate::base::time::ns_to_seconds;
use crate::base::{DatumId, GroupId, Machine, Meta, NodeId, TaskError, TaskId, Time};
use crate::data::{Evicted, Fetch, Origin, Replicas};
use crate::exec::{Executor, State};
use crate::graph::Task;
use crate::idl::Signature;
use crate::member::Members;
use crate::node::measuring::Measuring;
use crate::node::message::{Message, Registration, Supply, SupplyFault, TaskReport, Timing, TransferReport};
use crate::node::protocol::{Effect, Event, Input, Role, TimerId};
use crate::node::seen::SeenTransfers;
use crate::perf::{Beside, Curve, FunctionModel, Learner, Perturbation, Point, Size};
use calibration::Measured;
use models::Known;
use objects::Objects;
use pace::Pace;
use running::RunningTasks;

const HEARTBEAT: TimerId = TimerId(0);
const MODELS: TimerId = TimerId(1);
const TRANSFERS: TimerId = TimerId(2);
/// How long a registration that was refused for a reason that may pass is tried again: until the agent must have noticed
/// that a server is dead.
const REFUSED_NS_MAX: u64 = SILENCE_NS_MAX + 3 * HEARTBEAT_NS;

/// How it is set up.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its identifier.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where it can be dialled.
    pub address: String,
    /// Where its agent is; empty if it has none, and waits for clients that know it.
    pub agent: String,
    /// Tasks that it runs at a time.
    pub slots: u32,
    /// Tasks of one slot that the world takes at a time when they are very short.
    pub queue_depth: u32,
    /// It talks to clients only.
    pub plain: bool,
    /// Bound on its store, bytes.
    pub memory_bytes: u64,
    /// How many times as long as on its processors calls take here on purpose.
    pub slowdown: f64,
    /// What it offers.
    pub functions: Vec<Signature>,
    /// Models of these functions that were kept from earlier, by name.
    pub models: BTreeMap<String, FunctionModel>,
}

/// Where a datum comes from that tasks here wait for.
#[derive(Clone, Debug)]
struct Awaited {
    /// Who holds it; this server itself, if that must be asked.
    from: NodeId,
    address: String,
    size_bytes: u64,
    /// The request went out (or waits for the connection).
    asked: bool,
    /// The argument of a plain call.
    of_call: bool,
    /// Its sender sends it without being asked.
    comes_unasked: bool,
}

/// The machine.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    functions: BTreeMap<String, u64>,
    agent: Option<NodeId>,
    /// Clients that map by themselves, and are told what an agent is told.
    subscribers: BTreeSet<NodeId>,
    members: Members<Role>,
    executor: Executor,
    replicas: Replicas,
    awaited: BTreeMap<DatumId, Awaited>,
    /// Requests that wait for a connection, by the address that is being dialled.
    dialling: BTreeMap<String, Vec<DatumId>>,
    measuring: Measuring,
    /// Who named what is measured: the agent, or a client that maps by itself.
    measures_for: Option<NodeId>,
    speed_flops: Option<f64>,
    known: BTreeMap<String, Known>,
    models_timer: bool,
    pace: Pace,
    running: RunningTasks,
    objects: Objects,
    /// The call here that is to be measured.
    measured: Option<Measured>,
    links_done: bool,
    /// The agent has refused the registration since then, for a reason that may pass.
    refused_since: Option<Time>,
    /// When a datum last became available here or a task last ended.
    last_progress: Time,
    /// Transfers not yet reported, by client.
    transfers: BTreeMap<NodeId, Vec<(TransferReport, Time)>>,
    /// Transfers that the agent has not been told of.
    seen: SeenTransfers,
    transfers_timer: bool,
    /// When data were last sent to other servers.
    last_sent: BTreeMap<NodeId, Time>,
}

impl Server {
    /// A machine that has not started.
    pub fn new(config: ServerConfig) -> Server {
        let offered = |name: &str| config.functions.iter().any(|signature| signature.name == name);
        let kept = config.models.iter().filter(|(name, model)| offered(name) && model.is_sane());
        let known = kept.map(|(name, model)| (name.clone(), Known::resume(model, config.slots))).collect();
        Server {
            functions: config.functions.iter().map(|s| (s.name.clone(), s.hash())).collect(),
            agent: None,
            subscribers: BTreeSet::new(),
            members: Members::default(),
            executor: Executor::new(config.slots),
            replicas: Replicas::new(config.memory_bytes),
            awaited: BTreeMap::new(),
            dialling: BTreeMap::new(),
            measuring: Measuring::default(),
            measures_for: None,
            speed_flops: None,
            known,
            models_timer: false,
            pace: Pace::default(),
            running: RunningTasks::default(),
            objects: Objects::default(),
            measured: None,
            links_done: false,
            refused_since: None,
            last_progress: Time::ZERO,
            transfers: BTreeMap::new(),
            seen: SeenTransfers::default(),
            transfers_timer: false,
            last_sent: BTreeMap::new(),
            config,
        }
    }

    /// Its identifier.
    pub fn id(&self) -> NodeId {
        self.config.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Tasks known and bytes held: for invariants and status.
    pub fn load(&self) -> (usize, u64) {
        (self.executor.len(), self.replicas.used_bytes())
    }

    fn on_refused(&mut self, now: Time, why: &str, may_pass: bool, out: &mut Vec<Effect>) {
        let why = format!("the agent refused server '{}': {why}", self.config.name);
        if !may_pass {
            out.push(Effect::Exit { why });
            return;
        }
        match self.refused_since {
            None => {
                self.refused_since = Some(now);
                let limit_s = ns_to_seconds(REFUSED_NS_MAX);
                log(out, format!("{why}; trying again for {limit_s} s, in case that server is gone"));
            }
            Some(since) if now.since(since) >= REFUSED_NS_MAX => out.push(Effect::Exit { why }),
            Some(_) => {}
        }
    }

    /// Tells whoever maps onto this server.
    fn tell(&self, message: Message, out: &mut Vec<Effect>) {
        for to in self.agent.iter().chain(&self.subscribers) {
            send(out, *to, message.clone());
        }
    }

    fn dial_agent(&self, out: &mut Vec<Effect>) {
        if !self.config.agent.is_empty() {
            out.push(Effect::Dial { address: self.config.agent.clone() });
        }
    }

    fn register(&self, agent: NodeId, out: &mut Vec<Effect>) {
        let c = &self.config;
        let registration = Registration {
            name: c.name.clone(),
            address: c.address.clone(),
            slots: c.slots,
            plain: c.plain,
            memory_bytes: c.memory_bytes,
            slowdown: c.slowdown,
            functions: c.functions.clone(),
        };
        send(out, agent, Message::Register(registration));
        if let Some(flops) = self.speed_flops {
            send(out, agent, Message::Speed { flops });
        }
    }

    fn on_start(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::MeasureSpeed);
        self.dial_agent(out);
        out.push(Effect::SetTimer { timer: HEARTBEAT, at: now + HEARTBEAT_NS });
    }

    // ---- peers

    fn on_peer_up(&mut self, now: Time, peer: NodeId, role: Role, address: String, out: &mut Vec<Effect>) {
        self.members.up(now, peer, role);
        match role {
            Role::Agent => {
                self.agent = Some(peer);
                self.register(peer, out);
            }
            Role::Server => {
                if !address.is_empty() && address == self.config.agent && self.agent.is_none() {
                    log(out, format!("no agent at {address}: a server answers there; give the agent's address"));
                }
                self.ask_turns(out);
            }
            Role::Client => {}
        }
        for datum in self.dialling.remove(&address).unwrap_or_default() {
            if let Some(awaited) = self.awaited.get(&datum) {
                if awaited.from == peer {
                    send(out, peer, Message::Fetch { datum });
                } else {
                    let why = format!("another node answers at {address}");
                    self.supply_failed(datum, SupplyFault::Unreachable, &why, out);
                }
            }
        }
    }

    fn on_dial_failed(&mut self, address: &str, why: &str, out: &mut Vec<Effect>) {
        if address == self.config.agent && self.agent.is_none() {
            log(out, format!("cannot reach the agent at {address}: {why}; trying again"));
        }
        let mut unreachable_sources = Vec::new();
        for datum in self.dialling.remove(address).unwrap_or_default() {
            let Some(awaited) = self.awaited.get_mut(&datum).filter(|awaited| awaited.address == address) else {
                continue;
            };
            if self.members.is_up(awaited.from) {
                send(out, awaited.from, Message::Fetch { datum });
                continue;
            }
            unreachable_sources.push(awaited.from);
            // Even if its task was held back meanwhile: it would ask there again.
            awaited.asked = true;
            self.supply_failed(datum, SupplyFault::Unreachable, why, out);
        }
        let is_there = |(node, known): &&(NodeId, String)| known == address && !self.members.is_up(*node);
        let unreachable: Vec<NodeId> = self.measuring.peers().iter().filter(is_there).map(|(node, _)| *node).collect();
        for to in unreachable_sources {
            self.tell(Message::LinkBroken { to }, out);
        }
        for node in unreachable {
            self.tell(Message::LinkBroken { to: node }, out);
            self.probe_over(node, out);
        }
    }

    fn on_peer_lost(&mut self, now: Time, peer: NodeId, why: &str, out: &mut Vec<Effect>) {
        let Some(lost) = self.members.lost(peer) else { return };
        self.last_sent.remove(&peer);
        self.probe_over(peer, out);
        let role = lost.about;
        if role == Role::Agent && self.agent == Some(peer) {
            self.agent = None;
            self.refused_since = None;
            log(out, format!("lost the agent: {why}; registering again when it is back"));
        }
        if role == Role::Server {
            self.tell(Message::LinkBroken { to: peer }, out);
        }
        self.subscribers.remove(&peer);
        if self.measures_for == Some(peer) {
            self.measurer_lost(out);
        }
        if role == Role::Client {
            self.forget_client(peer, out);
        }
        for datum in self.replicas.forget_peer(peer) {
            out.push(Effect::DropDatum { datum });
        }
        let failed: Vec<DatumId> =
            self.awaited.iter().filter(|(_, a)| a.asked && a.from == peer).map(|(datum, _)| *datum).collect();
        for datum in failed {
            self.supply_failed(datum, SupplyFault::Unreachable, why, out);
        }
        self.pump(now, out);
    }

    /// A client is gone: nobody wants its tasks and data any more.
    fn forget_client(&mut self, client: NodeId, out: &mut Vec<Effect>) {
        for id in self.executor.of_client(client) {
            match self.executor.get(id).map(|entry| entry.state) {
                // A running task is stopped; its end cleans up behind it.
                Some(State::Running) => out.push(Effect::StopTask { task: id }),
                _ => {
                    self.executor.remove(id);
                }
            }
        }
        for object in self.objects.forget_client(client) {
            out.push(Effect::EndObject { object });
        }
        self.awaited.retain(|datum, _| datum.client != client);
        self.transfers.remove(&client);
        for datum in self.replicas.of_client(client) {
            // Servers that can still reach the client are told of another source by it.
            for peer in self.replicas.refuse(datum) {
                let why = format!("server '{}' has dropped it: it lost the client", self.config.name);
                send(out, peer, Message::FetchRefused { datum, why });
            }
            if self.replicas.discard(datum) {
                out.push(Effect::DropDatum { datum });
            }
        }
    }

    // ---- messages

    fn on_message(&mut self, now: Time, from: NodeId, message: Message, out: &mut Vec<Effect>) {
        match message {
            Message::Call { task, supplies, calibrates } => {
                let supplies = supplies
                    .into_iter()
                    .map(|(datum, meta)| Supply { datum, meta, from, address: String::new() })
                    .collect();
                if calibrates {
                    self.on_calibration(now, from, task, supplies, out);
                } else {
                    self.disturb_calibration(now, out);
                    self.on_tasks(now, from, vec![task], supplies, true, out);
                }
            }
            Message::RunTasks { tasks, supplies } => {
                self.disturb_calibration(now, out);
                self.on_tasks(now, from, tasks, supplies, false, out);
            }
            Message::Resupply { supplies } => self.on_resupply(now, from, supplies, out),
            Message::Fetch { datum } if self.only_awaits(datum) => self.refuse_awaited(datum, from, out),
            Message::Fetch { datum } => match self.replicas.fetch(datum, from, now) {
                Fetch::Now => out.push(Effect::SendDatum { to: from, datum }),
                Fetch::Later => {}
                Fetch::Gone => {
                    let why = format!("server '{}' has dropped it", self.config.name);
                    send(out, from, Message::FetchRefused { datum, why });
                }
            },
            Message::FetchRefused { datum, why } => {
                if self.awaited.get(&datum).is_some_and(|awaited| awaited.from == from) {
                    self.supply_failed(datum, SupplyFault::Gone, &why, out);
                    self.forget_source(datum);
                }
            }
            Message::Release { data } => {
                for datum in data {
                    if datum.client == from && self.replicas.release(datum) {
                        out.push(Effect::DropDatum { datum });
                    }
                }
                self.pump(now, out);
            }
            Message::Cancel { tasks } => {
                for task in tasks {
                    if task.client == from {
                        self.cancel(now, task, out);
                    }
                }
                self.pump(now, out);
            }
            Message::CalledBack { task, answer } if task.client == from => {
                self.executor.is_answered(task);
                self.running.asks(now, task, false);
                out.push(Effect::AnswerTask { task, answer })
            }
            Message::Recall { group, tasks } => self.recall(now, from, group, &tasks, out),
            Message::Registered { peers } => {
                self.report_all_models(now, out);
                self.pace.forget_told();
                self.report_pace(now, out);
                self.on_registered(from, peers, out);
            }
            Message::Turn { to, is_needed } => self.on_turn(now, from, to, is_needed, out),
            Message::MeasureLink { to, address } => self.on_measure_link(now, from, to, address, out),
            Message::RegistrationRefused { why, may_pass } if Some(from) == self.agent => {
                self.on_refused(now, &why, may_pass, out);
            }
            Message::RegistrationRefused { why, .. } => {
                log(out, format!("a client does not use server '{}': {why}", self.config.name));
            }
            Message::TellModels => {
                self.report_all_models(now, out);
                self.tell(Message::ModelsTold { client: from }, out);
            }
            Message::Subscribe => {
                self.subscribers.insert(from);
                self.register(from, out);
            }
            Message::Ping { token } => send(out, from, Message::Pong { token }),
            Message::Pong { token } => {
                if let Some(rtt_ns) = self.members.pong(now, from, token) {
                    self.measuring.answered(now, from, rtt_ns, out);
                }
            }
            Message::ProbeArrived { size_bytes } => {
                if let Some(link) = self.measuring.probe_arrived(now, from, size_bytes, out) {
                    self.tell(Message::LinkMeasured { to: from, link }, out);
                    self.probe_over(from, out);
                }
            }
            Message::Register(_)
            | Message::Speed { .. }
            | Message::LinkMeasured { .. }
            | Message::TransfersSeen { .. }
            | Message::AskLinks
            | Message::LinksKnown { .. }
            | Message::LinkBroken { .. }
            | Message::LinksDone
            | Message::AskTurn { .. }
            | Message::TurnOver { .. }
            | Message::Model { .. }
            | Message::ModelsTold { .. }
            | Message::ModelsKnown { .. }
            | Message::Pace { .. }
            | Message::Stale { .. }
            | Message::Recalled { .. }
            | Message::CallsBack(_)
            | Message::CalledBack { .. }
            | Message::Directory { .. }
            | Message::MapGroup(_)
            | Message::GroupMapped { .. }
            | Message::GroupNotMapped { .. }
            | Message::GroupEnded { .. }
            | Message::TasksEnded { .. }
            | Message::Dropped { .. }
            | Message::SupplyFailed { .. } => log(out, format!("{from} sent a server what no server takes")),
        }
    }

    fn on_heartbeat(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer { timer: HEARTBEAT, at: now + HEARTBEAT_NS });
        match self.agent {
            None => self.dial_agent(out),
            Some(agent) if self.refused_since.is_some() => self.register(agent, out),
            Some(_) => {}
        }
        let beat = self.members.beat(now);
        for (peer, token) in beat.pings {
            send(out, peer, Message::Ping { token });
        }
        for (peer, silence_ns) in beat.silent {
            out.push(Effect::HangUp { peer });
            self.on_peer_lost(now, peer, &format!("silent for {:.1} s", ns_to_seconds(silence_ns)), out);
        }
        self.unstick(now, out);
        self.stop_disturbed_calibration(out);
        self.report_pace(now, out);
        let executor = &self.executor;
        for (datum, peer) in self.replicas.expire(now, FETCH_UNKNOWN_NS_MAX, |datum| executor.makes(datum)) {
            let why = format!("server '{}' knows nothing of it", self.config.name);
            send(out, peer, Message::FetchRefused { datum, why });
        }
    }
}

impl Machine for Server {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Effect>) {
        let before = out.len();
        match input {
            Input::Start => self.on_start(now, out),
            Input::PeerUp { peer, role, address, .. } => self.on_peer_up(now, peer, role, address, out),
            Input::PeerLost { peer, why } => self.on_peer_lost(now, peer, &why, out),
            Input::DialFailed { address, why, .. } => self.on_dial_failed(&address, &why, out),
            Input::Received { from, message } => {
                if self.members.heard(now, from) {
                    self.on_message(now, from, message, out);
                }
            }
            Input::DatumArrived { from, datum, meta, took_ns } => {
                let _ = self.members.heard(now, from);
                self.on_arrived(now, from, datum, &meta, took_ns, out);
            }
            Input::DatumBroken { from, datum, why } => self.on_broken(from, datum, &why, out),
            Input::ProbeArrived { from, size_bytes } => send(out, from, Message::ProbeArrived { size_bytes }),
            Input::Timer(HEARTBEAT) => self.on_heartbeat(now, out),
            Input::Timer(MODELS) => {
                self.models_timer = false;
                self.report_models(now, out);
            }
            Input::Timer(TRANSFERS) => self.report_seen(now, out),
            Input::Timer(_) => {}
            Input::TaskEnded { task, outcome, run_ns } => self.on_task_ended(now, task, outcome, run_ns, out),
            Input::CallsBack(call) => {
                self.executor.asks(call.task);
                self.running.asks(now, call.task, true);
                send(out, call.task.client, Message::CallsBack(call));
                self.pump(now, out);
            }
            Input::SpeedMeasured { flops } => {
                self.speed_flops = Some(flops);
                self.tell(Message::Speed { flops }, out);
            }
            Input::Command(_) => log(out, "a server takes no commands".into()),
        }
        self.sent_to_servers(now, &out[before..]);
    }
}

fn send(out: &mut Vec<Effect>, to: NodeId, message: Message) {
    out.push(Effect::Send { to, message });
}

fn log(out: &mut Vec<Effect>, line: String) {
    out.push(Effect::Emit(Event::Log(line)));
}

/// What tests begin with: server 's' with a store of 1 MiB, which offers one function and has no agent.
#[cfg(test)]
fn offering(function: Signature, slots: u32) -> ServerConfig {
    ServerConfig {
        id: NodeId(1),
        name: "s".into(),
        address: String::new(),
        agent: String::new(),
        slots,
        queue_depth: 1,
        plain: false,
        memory_bytes: 1 << 20,
        slowdown: 1.0,
        functions: vec![function],
        models: BTreeMap::new(),
    }
}
