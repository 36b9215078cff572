//! The server: runs tasks as their inputs come, keeps their results, and sends them on when asked.
//!
//! Message-driven: nobody tells a server when to start a task. It asks for the inputs as soon as there is room for
//! them (a standing request: the holder answers when it has the datum), runs what is ready in the order in which the
//! plan put it, and answers standing requests for its own results the moment they are made. Transfers so overlap with
//! computation, and no message passes the client between two dependent tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::limits::{
    EAGER_BYTES_MAX, FETCH_UNKNOWN_NS_MAX, HEARTBEAT_NS, PROBE_PEERS_MAX, RATE_REPORT_NS, SHORT_CALL_NS_MAX,
};
use crate::base::time::ns_to_seconds;
use crate::base::{DatumId, Machine, Meta, NodeId, TaskError, TaskId, Time};
use crate::data::{Fetch, Origin, Replicas};
use crate::exec::{Executor, State};
use crate::graph::Task;
use crate::idl::Signature;
use crate::member::Members;
use crate::node::message::{Message, Registration, Supply, TaskReport, Timing, TransferReport};
use crate::node::probing::{Probing, Step};
use crate::node::protocol::{Effect, Event, Input, Role, TimerId};
use crate::perf::FunctionRate;

const HEARTBEAT: TimerId = TimerId(0);
const RATES: TimerId = TimerId(1);

/// How it is set up.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its identifier.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where it can be dialled.
    pub address: String,
    /// Where its agent is.
    pub agent: String,
    /// Tasks that it runs at a time.
    pub slots: u32,
    /// Tasks of one slot that the world takes at a time when they are very short.
    pub queue_depth: u32,
    /// It talks to clients only.
    pub plain: bool,
    /// Bound on its store, bytes.
    pub memory_bytes: u64,
    /// What it offers.
    pub functions: Vec<Signature>,
}

/// Where a datum comes from that tasks here wait for.
#[derive(Clone, Debug)]
struct Awaited {
    from: NodeId,
    address: String,
    size_bytes: u64,
    /// The request went out (or waits for the connection).
    asked: bool,
}

/// Calls of one function since the last report.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Calls that are still cold: the first on each slot.
    cold_left: u32,
    calls: u64,
    work_flops: f64,
    run_ns: u64,
}

/// The machine.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    functions: BTreeMap<String, u64>,
    agent: Option<NodeId>,
    members: Members<Role>,
    executor: Executor,
    replicas: Replicas,
    awaited: BTreeMap<DatumId, Awaited>,
    /// Requests that wait for a connection, by the address that is being dialled.
    dialling: BTreeMap<String, Vec<DatumId>>,
    probing: Probing,
    to_probe: Vec<(NodeId, String)>,
    /// The peer whose link is being measured: one at a time, so that probes do not disturb each other.
    probe_turn: Option<NodeId>,
    speed_flops: Option<f64>,
    tallies: BTreeMap<String, Tally>,
    rates: BTreeMap<String, FunctionRate>,
    rates_timer: bool,
    links_done: bool,
    /// When a datum last became available here or a task last ended.
    last_progress: Time,
    /// Transfers not yet reported, by client.
    transfers: BTreeMap<NodeId, Vec<(TransferReport, Time)>>,
}

impl Server {
    /// A machine that has not started.
    pub fn new(config: ServerConfig) -> Server {
        Server {
            functions: config.functions.iter().map(|s| (s.name.clone(), s.hash())).collect(),
            agent: None,
            members: Members::default(),
            executor: Executor::new(config.slots),
            replicas: Replicas::new(config.memory_bytes),
            awaited: BTreeMap::new(),
            dialling: BTreeMap::new(),
            probing: Probing::default(),
            to_probe: Vec::new(),
            probe_turn: None,
            speed_flops: None,
            tallies: BTreeMap::new(),
            rates: BTreeMap::new(),
            rates_timer: false,
            links_done: false,
            last_progress: Time::ZERO,
            transfers: BTreeMap::new(),
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

    fn on_start(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::MeasureSpeed);
        out.push(Effect::Dial { address: self.config.agent.clone() });
        out.push(Effect::SetTimer { timer: HEARTBEAT, at: now + HEARTBEAT_NS });
    }

    // ---- peers

    fn on_peer_up(&mut self, now: Time, peer: NodeId, role: Role, address: String, out: &mut Vec<Effect>) {
        self.members.up(now, peer, role);
        match role {
            Role::Agent => {
                self.agent = Some(peer);
                let c = &self.config;
                let registration = Registration {
                    name: c.name.clone(),
                    address: c.address.clone(),
                    slots: c.slots,
                    plain: c.plain,
                    memory_bytes: c.memory_bytes,
                    functions: c.functions.clone(),
                };
                send(out, peer, Message::Register(registration));
                if let Some(flops) = self.speed_flops {
                    send(out, peer, Message::Speed { flops });
                }
            }
            Role::Server => {
                self.probe_next(now, out);
            }
            Role::Client => {}
        }
        for datum in self.dialling.remove(&address).unwrap_or_default() {
            if let Some(awaited) = self.awaited.get(&datum) {
                if awaited.from == peer {
                    send(out, peer, Message::Fetch { datum });
                } else {
                    let why = format!("another node answers at {address}");
                    self.supply_failed(datum, &why, out);
                }
            }
        }
    }

    fn on_dial_failed(&mut self, now: Time, address: &str, why: &str, out: &mut Vec<Effect>) {
        if address == self.config.agent {
            log(out, format!("cannot reach the agent at {address}: {why}; trying again"));
        }
        for datum in self.dialling.remove(address).unwrap_or_default() {
            let Some(awaited) = self.awaited.get_mut(&datum).filter(|awaited| awaited.address == address) else {
                continue;
            };
            if let Some(agent) = self.agent {
                send(out, agent, Message::LinkBroken { to: awaited.from });
            }
            // Even if its task was held back meanwhile: it would ask there again.
            awaited.asked = true;
            self.supply_failed(datum, why, out);
        }
        let unreachable: Vec<NodeId> =
            self.to_probe.iter().filter(|(_, known)| known == address).map(|(node, _)| *node).collect();
        for node in unreachable {
            if let Some(agent) = self.agent {
                send(out, agent, Message::LinkBroken { to: node });
            }
            self.probe_over(now, node, out);
        }
    }

    fn on_peer_lost(&mut self, now: Time, peer: NodeId, why: &str, out: &mut Vec<Effect>) {
        let Some(lost) = self.members.lost(peer) else { return };
        self.probe_over(now, peer, out);
        let role = lost.about;
        if role == Role::Agent && self.agent == Some(peer) {
            self.agent = None;
            log(out, format!("lost the agent: {why}; registering again when it is back"));
        }
        if let (Role::Server, Some(agent)) = (role, self.agent) {
            send(out, agent, Message::LinkBroken { to: peer });
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
            self.supply_failed(datum, why, out);
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
        self.awaited.retain(|datum, _| datum.client != client);
        self.transfers.remove(&client);
        for datum in self.replicas.of_client(client) {
            if self.replicas.discard(datum) {
                out.push(Effect::DropDatum { datum });
            }
        }
    }

    // ---- messages

    fn on_message(&mut self, now: Time, from: NodeId, message: Message, out: &mut Vec<Effect>) {
        match message {
            Message::Call { task, supplies } => {
                let supplies = supplies
                    .into_iter()
                    .map(|(datum, meta)| Supply { datum, meta, from, address: String::new() })
                    .collect();
                self.on_tasks(now, from, vec![task], supplies, true, out);
            }
            Message::RunTasks { tasks, supplies } => self.on_tasks(now, from, tasks, supplies, false, out),
            Message::Resupply { supplies } => self.on_resupply(now, from, supplies, out),
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
                    self.supply_failed(datum, &why, out);
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
            Message::Registered { peers } => self.on_registered(now, peers, out),
            Message::RegistrationRefused { why } => {
                let name = &self.config.name;
                out.push(Effect::Exit { why: format!("the agent refused server '{name}': {why}") });
            }
            Message::Ping { token } => send(out, from, Message::Pong { token }),
            Message::Pong { token } => {
                if let Some(rtt_ns) = self.members.pong(now, from, token)
                    && self.probe_turn == Some(from)
                    && !self.probing.is_probing(from)
                {
                    let step = self.probing.begin(now, from, rtt_ns);
                    self.on_probe_step(now, from, step, out);
                }
            }
            Message::ProbeArrived { size_bytes } => {
                if let Some(step) = self.probing.arrived(now, from, size_bytes) {
                    self.on_probe_step(now, from, step, out);
                }
            }
            Message::Register(_)
            | Message::Speed { .. }
            | Message::LinkMeasured { .. }
            | Message::LinkBroken { .. }
            | Message::LinksDone
            | Message::Ran { .. }
            | Message::Subscribe
            | Message::Directory { .. }
            | Message::MapGroup { .. }
            | Message::GroupMapped { .. }
            | Message::GroupNotMapped { .. }
            | Message::GroupEnded { .. }
            | Message::TasksEnded { .. }
            | Message::Dropped { .. }
            | Message::SupplyFailed { .. } => log(out, format!("{from} sent a server what no server takes")),
        }
    }

    fn on_tasks(
        &mut self,
        now: Time,
        from: NodeId,
        tasks: Vec<Task>,
        supplies: Vec<Supply>,
        is_call: bool,
        out: &mut Vec<Effect>,
    ) {
        for supply in supplies {
            let size_bytes = supply.meta.checked_size_bytes().unwrap_or(u64::MAX);
            let awaited = Awaited { from: supply.from, address: supply.address, size_bytes, asked: false };
            if supply.datum.client == from && !self.replicas.is_known(supply.datum) {
                self.awaited.insert(supply.datum, awaited);
            }
        }
        for task in tasks {
            if let Err(error) = self.check(from, &task) {
                self.report(now, from, task.id, Err(error), 0, out);
                continue;
            }
            self.executor.add(Arc::new(task), is_call);
        }
        self.pump(now, out);
    }

    fn check(&self, from: NodeId, task: &Task) -> Result<(), TaskError> {
        let function = task.function.clone();
        let server = self.config.name.clone();
        let refused =
            |why: &str| TaskError::Refused { function: function.clone(), server: server.clone(), why: why.into() };
        if task.id.client != from || task.outputs.iter().any(|output| output.datum.client != from) {
            return Err(refused("it bears another client's name"));
        }
        match self.functions.get(&task.function) {
            None => Err(TaskError::NoSuchFunction { function, near: String::new() }),
            Some(hash) if *hash != task.signature_hash => {
                Err(refused("its signature has changed; ask the agent for it again (reconnect)"))
            }
            Some(_) => {
                let signature = self.config.functions.iter().find(|s| s.name == task.function);
                let signature = signature.expect("the hashes were made from these");
                let inputs = signature.params.iter().filter(|p| p.is_input()).count();
                let outputs = signature.params.iter().filter(|p| p.is_output()).count();
                if task.args.len() != inputs || task.outputs.len() != outputs {
                    return Err(refused(&format!(
                        "expected {inputs} arguments and {outputs} results, got {} and {}",
                        task.args.len(),
                        task.outputs.len()
                    )));
                }
                if task.outputs.iter().any(|output| output.meta.checked_size_bytes().is_none()) {
                    return Err(refused("a result is larger than 2^64 bytes"));
                }
                Ok(())
            }
        }
    }

    fn on_resupply(&mut self, now: Time, from: NodeId, supplies: Vec<Supply>, out: &mut Vec<Effect>) {
        for supply in supplies {
            let datum = supply.datum;
            let needed = self.executor.waits_for(datum) || self.awaited.contains_key(&datum);
            if datum.client != from || !needed || self.replicas.is_here(datum) {
                continue;
            }
            let size_bytes = supply.meta.checked_size_bytes().unwrap_or(u64::MAX);
            let asked = self.replicas.is_known(datum);
            self.awaited
                .insert(datum, Awaited { from: supply.from, address: supply.address, size_bytes, asked: false });
            if asked {
                self.ask(datum, out);
            }
        }
        self.pump(now, out);
    }

    fn on_registered(&mut self, now: Time, peers: Vec<(NodeId, String)>, out: &mut Vec<Effect>) {
        self.to_probe = peers;
        self.to_probe.truncate(PROBE_PEERS_MAX);
        if self.config.plain {
            self.to_probe.clear();
        }
        self.links_done = false;
        let unconnected: BTreeSet<String> = self
            .to_probe
            .iter()
            .filter(|(node, _)| !self.members.is_up(*node))
            .map(|(_, address)| address.clone())
            .collect();
        out.extend(unconnected.into_iter().map(|address| Effect::Dial { address }));
        self.probe_turn = None;
        self.probe_next(now, out);
        self.links_done_if_so(out);
    }

    fn on_probe_step(&mut self, now: Time, peer: NodeId, step: Step, out: &mut Vec<Effect>) {
        match step {
            Step::Send(size_bytes) => out.push(Effect::SendProbe { to: peer, size_bytes }),
            Step::Done(link) => {
                if let Some(agent) = self.agent {
                    send(out, agent, Message::LinkMeasured { to: peer, link });
                }
                self.probe_over(now, peer, out);
            }
        }
    }

    fn probe_over(&mut self, now: Time, peer: NodeId, out: &mut Vec<Effect>) {
        self.probing.lost(peer);
        self.to_probe.retain(|(node, _)| *node != peer);
        if self.probe_turn == Some(peer) {
            self.probe_turn = None;
        }
        self.probe_next(now, out);
        self.links_done_if_so(out);
    }

    fn probe_next(&mut self, now: Time, out: &mut Vec<Effect>) {
        if self.probe_turn.is_some() {
            return;
        }
        let next = self.to_probe.iter().map(|(node, _)| *node).find(|node| self.members.is_up(*node));
        if let Some(token) = next.and_then(|node| self.members.ping(now, node)) {
            self.probe_turn = next;
            send(out, next.expect("it was pinged"), Message::Ping { token });
        }
    }

    fn links_done_if_so(&mut self, out: &mut Vec<Effect>) {
        if let (Some(agent), true, false) = (self.agent, self.to_probe.is_empty(), self.links_done) {
            self.links_done = true;
            send(out, agent, Message::LinksDone);
        }
    }

    // ---- tasks

    /// Admits what there is room for, starts what is ready.
    fn pump(&mut self, now: Time, out: &mut Vec<Effect>) {
        loop {
            self.admit(now, out);
            let mut started = false;
            let (rates, depth) = (&self.rates, self.config.queue_depth.max(1));
            let short_ns = ns_to_seconds(SHORT_CALL_NS_MAX);
            let is_short = |f: &str| rates.get(f).and_then(|rate| rate.mean_s).is_some_and(|mean| mean < short_ns);
            while let Some(task) = self.executor.next_start(|f| if is_short(f) { depth } else { 1 }) {
                out.push(Effect::StartTask { task });
                started = true;
            }
            if !started {
                return;
            }
        }
    }

    fn admit(&mut self, now: Time, out: &mut Vec<Effect>) {
        while let Some(entry) = self.executor.first_held() {
            let task = entry.task.clone();
            let inputs: BTreeSet<DatumId> = task.inputs().collect();
            let size_of = |datum: &DatumId| self.awaited.get(datum).map_or(0, |awaited| awaited.size_bytes);
            let coming: u64 = inputs
                .iter()
                .filter(|datum| !self.replicas.is_known(**datum))
                .fold(0, |sum, datum| sum.saturating_add(size_of(datum)));
            let made = task.outputs.iter().map(|o| self.replicas.lacks_bytes(o.datum, o.meta.size_bytes()));
            let needed = made.fold(coming, u64::saturating_add);
            if !self.replicas.fits(needed) {
                for datum in self.replicas.evict(needed) {
                    out.push(Effect::DropDatum { datum });
                    self.report_transfers(now, datum.client, out);
                    send(out, datum.client, Message::Dropped { data: vec![datum] });
                }
            }
            if !self.replicas.fits(needed) {
                // Waiting tasks that keep the room from those they wait for (the order of a plan rules that out, a
                // later plan for what was lost may bring it about) make way.
                let stuck = if self.executor.is_busy() { Vec::new() } else { self.executor.waiting(true) };
                if !stuck.is_empty() {
                    self.hold_back(now, stuck, out);
                    continue;
                }
                if self.executor.admitted() > 0 {
                    return;
                }
                let error = TaskError::StoreFull {
                    server: self.config.name.clone(),
                    task: task.id,
                    needed,
                    held: self.replicas.used_bytes(),
                    limit: self.replicas.limit_bytes(),
                };
                self.executor.remove(task.id);
                self.report(now, task.id.client, task.id, Err(error), 0, out);
                continue;
            }
            self.admit_first(now, &task, inputs, out);
        }
    }

    fn admit_first(&mut self, now: Time, task: &Task, inputs: BTreeSet<DatumId>, out: &mut Vec<Effect>) {
        for output in &task.outputs {
            self.replicas.reserve(output.datum, output.meta.size_bytes(), Origin::Made, now);
        }
        for datum in inputs {
            if !self.replicas.is_known(datum) {
                match self.awaited.get(&datum) {
                    Some(awaited) => {
                        self.replicas.reserve(datum, awaited.size_bytes, Origin::Copied, now);
                        self.ask(datum, out);
                    }
                    // A task that is held behind this one makes it.
                    None if self.executor.makes(datum) => {
                        self.replicas.reserve(datum, 0, Origin::Made, now);
                    }
                    None => {
                        let why = format!("server '{}' was not told where it comes from", self.config.name);
                        send(out, datum.client, Message::SupplyFailed { datum, from: self.config.id, why });
                        self.replicas.reserve(datum, 0, Origin::Copied, now);
                    }
                }
            }
            self.replicas.add_reader(datum);
        }
        self.executor.admit(|datum| self.replicas.is_here(datum));
    }

    /// If nothing has moved here for a heartbeat while tasks are held for lack of room, those that wait make way: what
    /// they wait for may itself be held up elsewhere by tasks that wait for what is held here.
    fn unstick(&mut self, now: Time, out: &mut Vec<Effect>) {
        let is_stuck = self.executor.first_held().is_some() && !self.executor.is_busy();
        if is_stuck && now.since(self.last_progress) >= HEARTBEAT_NS {
            let waiting = self.executor.waiting(false);
            self.hold_back(now, waiting, out);
            self.last_progress = now;
            self.pump(now, out);
        }
    }

    /// Puts waiting tasks back behind all others and gives up the room that they had.
    fn hold_back(&mut self, now: Time, tasks: Vec<TaskId>, out: &mut Vec<Effect>) {
        for id in tasks {
            self.executor.hold_back(id);
            let task = self.executor.get(id).expect("held back a moment ago").task.clone();
            for output in &task.outputs {
                self.replicas.unreserve(output.datum, now);
            }
            let inputs: BTreeSet<DatumId> = task.inputs().collect();
            for datum in inputs {
                if self.replicas.remove_reader(datum, now) {
                    out.push(Effect::DropDatum { datum });
                }
                if !self.executor.waits_for(datum) && !self.executor.makes(datum) {
                    self.replicas.unreserve(datum, now);
                    if let Some(awaited) = self.awaited.get_mut(&datum) {
                        awaited.asked = false;
                    }
                }
            }
        }
    }

    /// Asks the holder of an awaited datum for it, over a connection that stands or is made.
    fn ask(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        let Some(awaited) = self.awaited.get_mut(&datum) else { return };
        awaited.asked = true;
        // Small data of a plain call come unasked.
        if awaited.from == datum.client && awaited.size_bytes <= EAGER_BYTES_MAX && awaited.address.is_empty() {
            let call = self.executor.first_held().is_some_and(|e| e.is_call && e.task.inputs().any(|i| i == datum));
            if call {
                return;
            }
        }
        if self.members.is_up(awaited.from) {
            send(out, awaited.from, Message::Fetch { datum });
        } else if awaited.address.is_empty() {
            self.supply_failed(datum, "its holder is not connected", out);
        } else {
            let waiting = self.dialling.entry(awaited.address.clone()).or_default();
            if waiting.is_empty() {
                out.push(Effect::Dial { address: awaited.address.clone() });
            }
            waiting.push(datum);
        }
    }

    /// Tells the owner that a datum does not come from where it was to; a new source will be named.
    fn supply_failed(&mut self, datum: DatumId, why: &str, out: &mut Vec<Effect>) {
        if let Some(awaited) = self.awaited.get_mut(&datum)
            && awaited.asked
        {
            let from = awaited.from;
            awaited.asked = false;
            send(out, datum.client, Message::SupplyFailed { datum, from, why: why.into() });
        }
    }

    fn on_arrived(
        &mut self,
        now: Time,
        from: NodeId,
        datum: DatumId,
        meta: &Meta,
        took_ns: u64,
        out: &mut Vec<Effect>,
    ) {
        let size_bytes = meta.size_bytes();
        if size_bytes > EAGER_BYTES_MAX && !self.replicas.is_known(datum) && !self.replicas.fits(size_bytes) {
            // It was asked for when there was room, which has been given to others since: it is asked for again.
            out.push(Effect::DropDatum { datum });
            return;
        }
        let awaited = self.awaited.remove(&datum);
        if awaited.is_none() && !self.executor.waits_for(datum) {
            // Its task was cancelled on the way, or it came twice.
            if !self.replicas.is_here(datum) {
                self.replicas.unreserve(datum, now);
                out.push(Effect::DropDatum { datum });
            }
            return;
        }
        let report = TransferReport { datum, from, to: self.config.id, size_bytes, run_ns: took_ns, age_ns: 0 };
        self.transfers.entry(datum.client).or_default().push((report, now));
        self.datum_here(now, datum, size_bytes, Origin::Copied, out);
        self.pump(now, out);
    }

    fn datum_here(&mut self, now: Time, datum: DatumId, size_bytes: u64, origin: Origin, out: &mut Vec<Effect>) {
        self.last_progress = now;
        for peer in self.replicas.arrived(datum, size_bytes, origin, now) {
            out.push(Effect::SendDatum { to: peer, datum });
        }
        self.executor.datum_here(datum);
    }

    fn on_task_ended(
        &mut self,
        now: Time,
        id: TaskId,
        outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
        run_ns: u64,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.executor.remove(id) else { return };
        self.last_progress = now;
        let task = entry.task;
        let client = id.client;
        let client_is_here = self.members.is_up(client);
        match &outcome {
            Ok(results) => {
                self.learn(now, &task, run_ns, out);
                for (datum, meta) in results {
                    self.awaited.remove(datum);
                    if entry.is_call || !client_is_here {
                        if client_is_here {
                            out.push(Effect::SendDatum { to: client, datum: *datum });
                        }
                        self.replicas.discard(*datum);
                        out.push(Effect::DropDatum { datum: *datum });
                    } else {
                        self.datum_here(now, *datum, meta.size_bytes(), Origin::Made, out);
                    }
                }
            }
            Err(_) => {
                for output in &task.outputs {
                    self.will_not_be_made(now, output.datum, out);
                }
            }
        }
        let inputs: BTreeSet<DatumId> = task.inputs().collect();
        for datum in inputs {
            let done = self.replicas.remove_reader(datum, now);
            if done || (entry.is_call && self.replicas.release(datum)) {
                out.push(Effect::DropDatum { datum });
            }
        }
        if client_is_here {
            self.report(now, client, id, outcome, run_ns, out);
        }
        self.pump(now, out);
    }

    fn will_not_be_made(&mut self, now: Time, datum: DatumId, out: &mut Vec<Effect>) {
        for peer in self.replicas.refuse(datum) {
            let why = format!("the task that makes it failed on server '{}'", self.config.name);
            send(out, peer, Message::FetchRefused { datum, why });
        }
        self.replicas.unreserve(datum, now);
    }

    fn cancel(&mut self, now: Time, id: TaskId, out: &mut Vec<Effect>) {
        let Some(state) = self.executor.get(id).map(|entry| entry.state) else { return };
        if state == State::Running {
            out.push(Effect::StopTask { task: id });
            return;
        }
        let entry = self.executor.remove(id).expect("found above");
        if entry.is_call {
            for datum in entry.task.inputs() {
                self.awaited.remove(&datum);
                if self.replicas.release(datum) {
                    out.push(Effect::DropDatum { datum });
                }
            }
        }
        if state != State::Held {
            for output in &entry.task.outputs {
                self.will_not_be_made(now, output.datum, out);
            }
            let inputs: BTreeSet<DatumId> = entry.task.inputs().collect();
            for datum in inputs {
                if self.replicas.remove_reader(datum, now) {
                    out.push(Effect::DropDatum { datum });
                }
                if !self.executor.waits_for(datum) && self.replicas.unreserve(datum, now) {
                    self.awaited.remove(&datum);
                }
            }
        }
        self.report(now, id.client, id, Err(TaskError::Cancelled), 0, out);
    }

    fn report(
        &mut self,
        now: Time,
        client: NodeId,
        task: TaskId,
        outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
        run_ns: u64,
        out: &mut Vec<Effect>,
    ) {
        let transfers = self.take_transfers(now, client);
        let report = TaskReport { task, outcome, timing: Timing { run_ns, age_ns: 0 } };
        send(out, client, Message::TasksEnded { reports: vec![report], transfers });
    }

    /// Says at once what has come here for a client, so that it is not heard after the news that it was dropped.
    fn report_transfers(&mut self, now: Time, client: NodeId, out: &mut Vec<Effect>) {
        let transfers = self.take_transfers(now, client);
        if !transfers.is_empty() {
            send(out, client, Message::TasksEnded { reports: Vec::new(), transfers });
        }
    }

    fn take_transfers(&mut self, now: Time, client: NodeId) -> Vec<TransferReport> {
        let transfers = self.transfers.remove(&client).unwrap_or_default();
        let aged = transfers.into_iter().map(|(report, at)| TransferReport { age_ns: now.since(at), ..report });
        aged.collect()
    }

    // ---- speeds

    fn learn(&mut self, now: Time, task: &Task, run_ns: u64, out: &mut Vec<Effect>) {
        if !self.rates.contains_key(&task.function) {
            self.rates.insert(task.function.clone(), FunctionRate::default());
            let cold_left = self.config.slots;
            self.tallies.insert(task.function.clone(), Tally { cold_left, ..Tally::default() });
        }
        let work_flops = task.work_flops.unwrap_or(0.0);
        let rate = self.rates.get_mut(&task.function).expect("inserted above");
        let tally = self.tallies.get_mut(&task.function).expect("inserted with the rate");
        rate.learn(u64::from(tally.cold_left == 0), 1, work_flops, ns_to_seconds(run_ns.max(1)));
        if tally.cold_left > 0 {
            tally.cold_left -= 1;
            if let Some(agent) = self.agent {
                let function = task.function.clone();
                send(out, agent, Message::Ran { function, cold: true, calls: 1, work_flops, run_ns });
            }
            return;
        }
        tally.calls += 1;
        tally.work_flops += work_flops;
        tally.run_ns += run_ns;
        if !self.rates_timer {
            self.rates_timer = true;
            out.push(Effect::SetTimer { timer: RATES, at: now + RATE_REPORT_NS });
        }
    }

    fn report_rates(&mut self, out: &mut Vec<Effect>) {
        self.rates_timer = false;
        let Some(agent) = self.agent else { return };
        for (function, tally) in &mut self.tallies {
            let Tally { calls, work_flops, run_ns, .. } = *tally;
            *tally = Tally { cold_left: tally.cold_left, ..Tally::default() };
            if calls > 0 {
                send(out, agent, Message::Ran { function: function.clone(), cold: false, calls, work_flops, run_ns });
            }
        }
    }

    fn on_heartbeat(&mut self, now: Time, out: &mut Vec<Effect>) {
        out.push(Effect::SetTimer { timer: HEARTBEAT, at: now + HEARTBEAT_NS });
        if self.agent.is_none() {
            out.push(Effect::Dial { address: self.config.agent.clone() });
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
        match input {
            Input::Start => self.on_start(now, out),
            Input::PeerUp { peer, role, address, .. } => self.on_peer_up(now, peer, role, address, out),
            Input::PeerLost { peer, why } => self.on_peer_lost(now, peer, &why, out),
            Input::DialFailed { address, why } => self.on_dial_failed(now, &address, &why, out),
            Input::Received { from, message } => {
                self.members.heard(now, from);
                self.on_message(now, from, message, out);
            }
            Input::DatumArrived { from, datum, meta, took_ns } => {
                self.members.heard(now, from);
                self.on_arrived(now, from, datum, &meta, took_ns, out);
            }
            Input::DatumBroken { datum, why, .. } => self.supply_failed(datum, &why, out),
            Input::ProbeArrived { from, size_bytes } => send(out, from, Message::ProbeArrived { size_bytes }),
            Input::Timer(HEARTBEAT) => self.on_heartbeat(now, out),
            Input::Timer(RATES) => self.report_rates(out),
            Input::Timer(_) => {}
            Input::TaskEnded { task, outcome, run_ns } => self.on_task_ended(now, task, outcome, run_ns, out),
            Input::SpeedMeasured { flops } => {
                self.speed_flops = Some(flops);
                if let Some(agent) = self.agent {
                    send(out, agent, Message::Speed { flops });
                }
            }
            Input::Command(_) => log(out, "a server takes no commands".into()),
        }
    }
}

fn send(out: &mut Vec<Effect>, to: NodeId, message: Message) {
    out.push(Effect::Send { to, message });
}

fn log(out: &mut Vec<Effect>, line: String) {
    out.push(Effect::Emit(Event::Log(line)));
}
