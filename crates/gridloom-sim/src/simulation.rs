//! The state of a simulation, how time moves, and what a program can ask.
//!
//! **Invariants.** Machines are entered from one place, [`Simulation::handle`], never while one is being handled; `now`
//! never goes back. The flow engine's time is never ahead of `now` and at most a nanosecond behind it when an action
//! starts, so that a chain of flows takes what the flows take, unrounded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use gridloom_core::base::time::ns_to_seconds;
use gridloom_core::base::{DatumId, Meta, NodeId, ObjectId, TaskError, TaskId, Time};
use gridloom_core::call::{CallBack, CallBackAnswer};
use gridloom_core::flow::{ActionId, Completion, FlowEngine, LinkIndex, NetworkModel, Policy, Resources, Timeline};
use gridloom_core::graph::Task;
use gridloom_core::node::{Command, Effect, Event, Input, Role, TimerId};
use gridloom_core::platform::{HostId, Platform, Sharing};

use crate::disk::{self, FunctionsWithFiles};
use crate::faults::{Fault, Ways};
use crate::links::{Cargo, Connections, Paths};
use crate::node::{Life, SimNode, index};
use crate::observe::{Moved, Observer, Seen, Watch};
use crate::process::{Idle, LetterFlow, Measures, ProcessId, Processes};
use crate::profiles;
use crate::queue::{Queue, ns_up};
use crate::store::Value;
use crate::trace::{Interval, Record, Trace};
use crate::transfer::Parcel;

/// What a simulation is told besides the platform.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// For what is drawn at random. Part of the trace's hash.
    pub seed: u64,
    /// How flows share links.
    pub network: NetworkModel,
    /// Added to each message and each small datum: headers of the frame and of the network's own.
    pub message_overhead_bytes: u64,
    /// Speed of the machine on which blocks of processes are measured, floating-point operations per second.
    pub reference_flops: f64,
    /// Rates of disks, bytes per second; those of other hosts are 1 GB/s.
    pub disks: BTreeMap<HostId, f64>,
    /// What part of its host's speed a function makes use of, by name; others use it all.
    pub efficiencies: BTreeMap<String, f64>,
}

impl Default for SimConfig {
    fn default() -> SimConfig {
        SimConfig {
            seed: 0,
            network: NetworkModel::default(),
            message_overhead_bytes: 64,
            reference_flops: 1e9,
            disks: BTreeMap::new(),
            efficiencies: BTreeMap::new(),
        }
    }
}

/// Where a body has come to.
#[derive(Clone, PartialEq, Debug)]
pub enum Halt {
    /// Its end.
    Ended(Result<Vec<(Meta, Vec<u8>)>, TaskError>),
    /// It waits for what its program says.
    CallsBack(CallBack),
}

/// Runs the bodies of tasks, for programs that want real results from simulated machines.
pub trait Bodies: Send {
    /// Runs one: `inputs` are the values of all arguments in order, and so are the results those of all outputs.
    ///
    /// # Errors
    /// Whatever the function would have failed with.
    fn run(&mut self, task: &Task, inputs: &[(Meta, Arc<[u8]>)]) -> Result<Vec<(Meta, Vec<u8>)>, TaskError>;

    /// Likewise, for one that may call its program back.
    fn begin(&mut self, task: &Task, inputs: &[(Meta, Arc<[u8]>)]) -> Halt {
        Halt::Ended(self.run(task, inputs))
    }

    /// Goes on with one that has called its program back.
    fn go_on(&mut self, task: &Task, _answer: CallBackAnswer) -> Halt {
        unreachable!("{} has called nobody back", task.id)
    }

    /// Gives one up that has called its program back.
    fn give_up(&mut self, _task: TaskId) {}

    /// An object has ended, and its state with it.
    fn end_object(&mut self, _object: ObjectId) {}
}

/// A grid in virtual time.
pub struct Simulation {
    pub(crate) platform: Arc<Platform>,
    pub(crate) config: SimConfig,
    pub(crate) now: Time,
    pub(crate) nodes: Vec<SimNode>,
    pub(crate) queue: Queue<Occurrence>,
    pub(crate) engine: FlowEngine,
    /// What each action of the engine is for.
    pub(crate) purposes: BTreeMap<ActionId, Purpose>,
    pub(crate) paths: Paths,
    pub(crate) connections: Connections,
    pub(crate) ways: Ways,
    /// By what hosts were slowed down.
    pub(crate) speed_scales: BTreeMap<HostId, f64>,
    /// Changes of the platform that are still to come.
    pub(crate) timeline: Timeline,
    /// What profiles multiply the speeds of hosts by.
    pub(crate) profiled_speeds: BTreeMap<HostId, f64>,
    /// Functions with files.
    pub(crate) files: FunctionsWithFiles,
    /// Hosts that are off, and the nodes that start again when theirs is on.
    pub(crate) off: BTreeSet<HostId>,
    pub(crate) felled: BTreeSet<NodeId>,
    /// Who was started last at each address.
    pub(crate) listeners: BTreeMap<String, NodeId>,
    pub(crate) trace: Trace,
    pub(crate) bodies: Option<Box<dyn Bodies>>,
    pub(crate) processes: Processes,
    pub(crate) measures: Option<Box<dyn Measures>>,
    pub(crate) watch: Watch,
    /// Transfers that have begun.
    pub(crate) transfers: u64,
    /// Why its processes had to end before their time.
    pub(crate) failure: Option<String>,
    log: Vec<(Time, NodeId, Event)>,
    /// Empty but while a machine is handled; kept so that handling does not allocate.
    effects: Vec<Effect>,
}

/// What is due at a time known in advance.
#[derive(Debug)]
pub(crate) enum Occurrence {
    /// An input from the node's own surroundings.
    Deliver { node: NodeId, input: Box<Input> },
    /// A dial has come back.
    Dialled { dialler: NodeId, address: String, began: Time },
    /// A control frame is there.
    Arrive { from: NodeId, to: NodeId, connection: u64, parcel: Box<Parcel> },
    /// The peer's end of a connection is gone.
    Lost { node: NodeId, peer: NodeId, connection: u64, why: String },
    /// A timer, unless it was moved or cancelled.
    Timer { node: NodeId, timer: TimerId },
    /// An action of the engine ended while the engine caught up.
    Completed(ActionId),
    /// A process has waited long enough.
    ProcessDue { process: ProcessId, turn: u64 },
    /// A process's dial has come back.
    ProcessDialled { process: ProcessId, host: HostId, name: String, port: u16 },
    /// An end of a connection between processes hears that the other is closed.
    ProcessClosed { connection: u32, end: u8 },
    /// A process is killed.
    ProcessKilled { process: ProcessId },
    /// Something breaks or is mended.
    Strike(Fault),
    /// The time that the run was given is over.
    Until,
}

impl Occurrence {
    /// Whether it may let a process go on; such are pushed by [`Simulation::push_process`].
    pub(crate) fn is_of_process(&self) -> bool {
        match self {
            Occurrence::ProcessDue { .. }
            | Occurrence::ProcessDialled { .. }
            | Occurrence::ProcessClosed { .. }
            | Occurrence::ProcessKilled { .. } => true,
            Occurrence::Strike(fault) => fault.may_strike_process(),
            Occurrence::Deliver { .. }
            | Occurrence::Dialled { .. }
            | Occurrence::Arrive { .. }
            | Occurrence::Lost { .. }
            | Occurrence::Timer { .. }
            | Occurrence::Completed(_)
            | Occurrence::Until => false,
        }
    }
}

/// What an action of the engine is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A task's files are written and read, before it computes.
    Files {
        node: NodeId,
        task: Arc<Task>,
    },
    Task {
        node: NodeId,
        task: Arc<Task>,
    },
    Bulk {
        from: NodeId,
        to: NodeId,
        cargo: Cargo,
        transfer: u64,
    },
    Letter(LetterFlow),
    Computation {
        process: ProcessId,
        turn: u64,
    },
}

impl Simulation {
    /// An empty grid on that platform, at time 0.
    pub fn new(platform: Arc<Platform>, config: SimConfig) -> Simulation {
        let mut resources = Resources::new();
        for link in platform.links() {
            let policy = match link.sharing {
                Sharing::Shared => Policy::Shared,
                Sharing::Fatpipe => Policy::FatPipe,
            };
            resources.add_link(link.bandwidth, link.latency_s, policy);
        }
        for host in platform.hosts() {
            resources.add_host(host.speed_flops, host.cores);
        }
        for (number, _) in (0..).zip(platform.hosts()) {
            resources.add_host(config.disks.get(&HostId(number)).copied().unwrap_or(disk::RATE_DEFAULT), 1);
        }
        let mut simulation = Simulation {
            now: Time::ZERO,
            nodes: Vec::new(),
            queue: Queue::new(),
            engine: FlowEngine::new(resources, config.network),
            purposes: BTreeMap::new(),
            paths: Paths::new(platform.clone(), config.network),
            connections: Connections::default(),
            ways: Ways::default(),
            speed_scales: BTreeMap::new(),
            timeline: profiles::timeline(&platform),
            profiled_speeds: BTreeMap::new(),
            files: FunctionsWithFiles::new(),
            off: BTreeSet::new(),
            felled: BTreeSet::new(),
            listeners: BTreeMap::new(),
            trace: Trace::new(config.seed, platform.links().len()),
            bodies: None,
            processes: Processes::default(),
            measures: None,
            watch: Watch::default(),
            transfers: 0,
            failure: None,
            log: Vec::new(),
            effects: Vec::new(),
            platform,
            config,
        };
        simulation.change(0.0);
        simulation
    }

    /// From now on, tasks' bodies are run when they end; their time stays that of the model.
    pub fn set_bodies(&mut self, bodies: Box<dyn Bodies>) {
        self.bodies = Some(bodies);
    }

    /// From now on, that decides what measured blocks are charged as.
    pub fn set_measures(&mut self, measures: Box<dyn Measures>) {
        self.measures = Some(measures);
    }

    /// From now on, that is told what happens. It comes before all processes and nodes.
    pub fn watch(&mut self, observer: Box<dyn Observer>) {
        self.watch.begin(observer);
    }

    /// Something begins to move; its number.
    pub(crate) fn begins(&mut self, moved: Moved<'_>, size_bytes: u64, links: &[LinkIndex]) -> u64 {
        self.transfers += 1;
        let transfer = self.transfers;
        self.watch.see(self.now, || Seen::TransferBegins { transfer, moved, size_bytes, links });
        transfer
    }

    /// Nothing more is simulated: what is written meanwhile is completed.
    ///
    /// # Errors
    /// In words, if that fails, or why its processes had to end before their time.
    pub fn finish(&mut self) -> Result<(), String> {
        let measured = self.measures.take().map_or(Ok(()), |mut measures| measures.finish());
        let watched = self.watch.finish(self.now);
        self.failure.take().map_or(measured.and(watched), Err)
    }

    /// Puts a value into a node's store; `None` stands for bytes that do not matter.
    pub fn put(&mut self, node: NodeId, datum: DatumId, meta: Meta, bytes: Option<Arc<[u8]>>) {
        self.keep(node, datum, Value { meta, bytes });
    }

    /// Puts a value into a node's store.
    pub(crate) fn keep(&mut self, node: NodeId, datum: DatumId, value: Value) {
        self.trace.stored(self.now, node, datum, &value);
        self.node_mut(node).store.put(datum, value);
    }

    /// A value of a node's store.
    pub fn value(&self, node: NodeId, datum: DatumId) -> Option<(Meta, Option<Arc<[u8]>>)> {
        self.node(node).store.value(datum).map(|value| (value.meta.clone(), value.bytes.clone()))
    }

    /// Takes a value out of a node's store.
    pub fn remove(&mut self, node: NodeId, datum: DatumId) -> Option<(Meta, Option<Arc<[u8]>>)> {
        let value = self.value(node, datum);
        self.node_mut(node).store.remove(datum);
        value
    }

    /// Gives a client a command, now.
    pub fn command(&mut self, client: NodeId, command: Command) {
        self.deliver(client, Input::Command(command));
    }

    /// Lets the next thing happen; false if there is none.
    pub fn step(&mut self) -> bool {
        let flow_s = self.engine.next_event_s();
        let flow_at = flow_s.map(|seconds| Time(ns_up(seconds)));
        let queued_at = self.queue.next_at();
        if let Some(seconds) = self.timeline.next_s()
            && flow_s.is_none_or(|flow_s| seconds <= flow_s)
            && queued_at.is_none_or(|at| Time(ns_up(seconds)) <= at)
        {
            self.change(seconds);
            return true;
        }
        match (flow_s, queued_at) {
            (None, None) => return false,
            (Some(seconds), queued) if queued.is_none_or(|at| flow_at <= Some(at)) => self.flow(seconds),
            (_, Some(_)) => {
                let (at, sequence, occurrence) = self.queue.pop().expect("the queue has a next time");
                self.now = self.now.max(at);
                self.occur(sequence, occurrence);
            }
            (Some(_), None) => unreachable!("an empty queue leaves the flow"),
        }
        true
    }

    /// The client's next event, stepping until there is one; `None` at the deadline, or if nothing can happen any more.
    ///
    /// `None` too if the client ends meanwhile.
    pub fn next_event(&mut self, client: NodeId, deadline: Option<Time>) -> Option<Event> {
        let was_dead = self.is_dead(client);
        loop {
            if let Some(event) = self.node_mut(client).events.pop_front() {
                return Some(event);
            }
            if !was_dead && self.is_dead(client) {
                return None;
            }
            let next = self.next_at();
            match deadline {
                Some(deadline) if next.is_none_or(|at| at > deadline) => {
                    self.now = self.now.max(deadline);
                    return None;
                }
                Some(_) | None => {}
            }
            if !self.step() {
                return None;
            }
        }
    }

    /// The program computed for so long: whatever happens meanwhile, happens.
    pub fn advance(&mut self, ns: u64) {
        let until = self.now + ns;
        while self.next_at().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = until;
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The platform that it runs on.
    pub fn platform(&self) -> &Arc<Platform> {
        &self.platform
    }

    /// Sums up all inputs delivered and effects performed so far.
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    /// From now on, the trace is also kept in words.
    pub fn keep_records(&mut self) {
        self.trace.records.get_or_insert_default();
    }

    /// The trace in words, as far as it was kept.
    pub fn records(&self) -> &[Record] {
        self.trace.records.as_deref().unwrap_or_default()
    }

    /// What agents and servers told the log.
    pub fn log(&self) -> &[(Time, NodeId, Event)] {
        &self.log
    }

    /// Bytes of data that arrived over each link, in the platform's order.
    pub fn bytes_by_link(&self) -> Vec<(String, f64)> {
        let names = self.platform.links().iter().map(|link| link.name.clone());
        names.zip(self.trace.bytes_by_link.iter().copied()).collect()
    }

    /// Bytes of data that arrived, by sender and receiver.
    pub fn bytes_by_pair(&self) -> &BTreeMap<(NodeId, NodeId), u64> {
        &self.trace.bytes_by_pair
    }

    /// Tasks that ended and data that arrived, in order of their ends.
    pub fn intervals(&self) -> &[Interval] {
        &self.trace.intervals
    }

    /// Fails if processes still run then.
    pub fn run_until(&mut self, at: Time) {
        self.queue.push(at.max(self.now), Occurrence::Until);
    }

    /// How long nothing but time limits of processes has come to pass.
    pub fn idle(&self) -> Idle {
        self.processes.idle
    }

    /// When the next thing happens.
    pub(crate) fn next_at(&mut self) -> Option<Time> {
        let flow_at = self.engine.next_event_s().map(|seconds| Time(ns_up(seconds)));
        let change_at = self.timeline.next_s().map(|seconds| Time(ns_up(seconds)));
        flow_at.into_iter().chain(self.queue.next_at()).chain(change_at).min()
    }

    /// Moves the engine on to its next date, exactly, and hands on what ended.
    fn flow(&mut self, seconds: f64) {
        let mut completed: Vec<Completion> = Vec::new();
        self.engine.advance_to(seconds, &mut completed);
        self.now = self.now.max(Time(ns_up(seconds)));
        for completion in completed {
            self.complete(completion.action);
        }
    }

    pub(crate) fn occur(&mut self, sequence: u64, occurrence: Occurrence) {
        if occurrence.is_of_process() {
            self.processes.pending -= 1;
        }
        match occurrence {
            Occurrence::Deliver { node, input } => self.handle(node, *input, 0),
            Occurrence::Dialled { dialler, address, began } => self.on_dialled(dialler, address, began),
            Occurrence::Arrive { from, to, connection, parcel } => self.on_arrive(from, to, connection, parcel),
            Occurrence::Lost { node, peer, connection, why } => self.on_lost(node, peer, connection, why),
            Occurrence::Timer { node, timer } => {
                let timers = &mut self.node_mut(node).timers;
                if timers.get(&timer) == Some(&sequence) {
                    timers.remove(&timer);
                    self.handle(node, Input::Timer(timer), 0);
                }
            }
            Occurrence::Completed(action) => self.complete(action),
            Occurrence::ProcessDue { process, turn } => self.on_process_due(process, turn),
            Occurrence::ProcessDialled { process, host, name, port } => {
                self.on_process_dialled(process, host, name, port);
            }
            Occurrence::ProcessClosed { connection, end } => self.on_process_closed(connection, end),
            Occurrence::ProcessKilled { process } => self.kill_process(process, "the process was killed"),
            Occurrence::Strike(fault) => {
                if fault.restarts_process() {
                    self.processes.restarts_due -= 1;
                }
                if matches!(fault, Fault::On(_)) {
                    self.processes.hosts_on_due -= 1;
                }
                self.strike(&fault);
            }
            Occurrence::Until => self.on_until(),
        }
    }

    fn complete(&mut self, action: ActionId) {
        match self.purposes.remove(&action) {
            Some(Purpose::Files { node, task }) => self.on_files_done(node, task),
            Some(Purpose::Task { node, task }) => self.on_task_done(node, &task),
            Some(Purpose::Bulk { from, to, cargo, transfer }) => self.on_bulk_done(from, to, cargo, transfer),
            Some(Purpose::Letter(flow)) => {
                self.processes.pending -= 1;
                self.on_letter(flow);
            }
            Some(Purpose::Computation { process, turn }) => {
                self.processes.pending -= 1;
                self.on_process_due(process, turn);
            }
            // Cancelled by what was handled for another completion of the same date.
            None => {}
        }
    }

    /// Lets a machine handle an input and performs what it asks; `digest` is that of the message, if it is one.
    pub(crate) fn handle(&mut self, node: NodeId, input: Input, digest: u64) {
        match self.node(node).life {
            Life::Running => {}
            Life::Paused => return self.node_mut(node).stalled.push_back((input, digest)),
            Life::Hung | Life::Dead => return,
        }
        self.trace.input(self.now, node, &input, digest);
        let mut effects = std::mem::take(&mut self.effects);
        let now = self.now;
        self.node_mut(node).machine.handle(now, input, &mut effects);
        for effect in effects.drain(..) {
            // What follows its own end is not performed.
            if self.node(node).life == Life::Running {
                self.perform(node, effect);
            }
        }
        self.effects = effects;
    }

    /// Queues an input for now.
    pub(crate) fn deliver(&mut self, node: NodeId, input: Input) {
        self.queue.push(self.now, Occurrence::Deliver { node, input: Box::new(input) });
    }

    /// Tells the program, or the log.
    pub(crate) fn emit(&mut self, node: NodeId, event: Event) {
        match self.node(node).role {
            Role::Client => {
                self.node_mut(node).events.push_back(event);
                self.wake_for_event(node);
            }
            Role::Agent | Role::Server => self.log.push((self.now, node, event)),
        }
    }

    /// Brings the engine to now before an action starts or is cancelled, unless it is within the nanosecond before.
    pub(crate) fn synchronise(&mut self) {
        if Time(ns_up(self.engine.now_s())) >= self.now {
            return;
        }
        let mut completed = Vec::new();
        self.engine.advance_to(ns_to_seconds(self.now.0), &mut completed);
        for completion in completed {
            self.queue.push(self.now, Occurrence::Completed(completion.action));
        }
    }

    pub(crate) fn node(&self, node: NodeId) -> &SimNode {
        &self.nodes[index(node)]
    }

    pub(crate) fn node_mut(&mut self, node: NodeId) -> &mut SimNode {
        &mut self.nodes[index(node)]
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("now", &self.now).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
