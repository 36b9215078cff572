//! A simulation: its machines, each with a state of its own, and how what comes to pass goes from one to another.
//!
//! ```text
//!            kernel: clock, queue, flows, instruments
//!    |          |          |          |          |          |
//!  hosts      nodes      tasks      links     sockets   processes      (and mappings, durable data, changes on the way)
//!                                      \\         /
//!                                        routes
//! ```
//!
//! A part of a simulation changes its own state, queues what will happen, starts flows, and returns what comes of that
//! for others. Parts do not see one another. [`Simulation`] hands on.
//!
//! **Invariant.** The machines of nodes are entered from one place, [`Simulation::handle`], never while one is being handled.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gridloom_base::limits::PARTS;
use gridloom_base::{DatumId, Meta, NodeId, Parts, Time};
use gridloom_core::node::{Command, Effect, Event, Input, Role};
use gridloom_flow::{ActionId, FlowEngine, NetworkModel, Policy, Resources};
use gridloom_platform::{HostId, Platform, Sharing};

use crate::disk::Files;
use crate::durable::Durable;
use crate::hosts::Hosts;
use crate::instruments::Instruments;
use crate::kernel::{Happening, Kernel, Occurrence, Purpose};
use crate::mappings::Mappings;
use crate::network::{Changes, Links, Routes, Sockets};
use crate::nodes::{Life, Nodes, SimNode};
use crate::observe::Observer;
use crate::process::{Idle, Measures, Processes};
use crate::sessions::Sessions;
use crate::storage::Storages;
use crate::store::StoredValue;
use crate::tasks::{Bodies, Tasks};
use crate::timeline::timeline;
use crate::trace::{Interval, Record};

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
    /// How long the start of a program takes on hosts, seconds; on others it takes 2 ms.
    pub program_starts_s: BTreeMap<HostId, f64>,
    /// Hosts that send data in bulk to others at no more than so many bytes per second, all of them together.
    pub upload_limits: BTreeMap<HostId, f64>,
    /// On whose hosts servers of these hosts share files.
    pub storages: BTreeMap<HostId, HostId>,
    /// Parts in which large data are sent: a server passes on what has come.
    pub parts: Parts,
    /// One mapping of so many takes seconds of virtual time; none does, if 0.
    pub slow_mappings_of: u64,
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
            program_starts_s: BTreeMap::new(),
            upload_limits: BTreeMap::new(),
            storages: BTreeMap::new(),
            parts: PARTS,
            slow_mappings_of: 0,
            efficiencies: BTreeMap::new(),
        }
    }
}

/// What stands for a limit on what a host sends: the model takes its part of each link for what travels with the data, which the limit
/// does not count.
fn upload_bandwidth(model: &NetworkModel, bytes_per_second: f64) -> f64 {
    bytes_per_second / model.bandwidth_factor
}

/// A grid in virtual time.
pub struct Simulation {
    pub(crate) platform: Arc<Platform>,
    pub(crate) kernel: Kernel,
    pub(crate) hosts: Hosts,
    pub(crate) routes: Routes,
    pub(crate) links: Links,
    pub(crate) sockets: Sockets,
    pub(crate) changes: Changes,
    pub(crate) nodes: Nodes,
    pub(crate) tasks: Tasks,
    pub(crate) sessions: Sessions,
    pub(crate) processes: Processes,
    pub(crate) mappings: Mappings,
    pub(crate) durable: Durable,
    pub(crate) storages: Storages,
    /// Empty but while a machine is handled; kept so that handling does not allocate.
    effects: Vec<Effect>,
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
        let uploads = config.upload_limits.iter().map(|(host, rate)| {
            (*host, resources.add_link(upload_bandwidth(&config.network, *rate), 0.0, Policy::Shared))
        });
        let uploads = uploads.collect();
        let hosts = Hosts::new(&platform, &config.disks, config.program_starts_s, &mut resources);
        let engine = FlowEngine::new(resources, config.network);
        let instruments = Instruments::new(config.seed, platform.links().len());
        let mut simulation = Simulation {
            kernel: Kernel::new(engine, timeline(&platform), instruments),
            hosts,
            routes: Routes::new(platform.clone(), config.network, config.message_overhead_bytes).with_uploads(uploads),
            links: Links::new(config.parts),
            sockets: Sockets::default(),
            changes: Changes::new(config.seed),
            nodes: Nodes::default(),
            tasks: Tasks::new(config.efficiencies),
            sessions: Sessions::default(),
            processes: Processes::new(config.reference_flops),
            mappings: Mappings::new(config.seed, config.slow_mappings_of),
            durable: Durable::new(config.disks),
            storages: Storages::new(config.storages),
            effects: Vec::new(),
            platform,
        };
        simulation.kernel.begin_changes(0.0);
        simulation.change();
        simulation
    }

    /// From now on a host that has a limit on what it sends in bulk has this one, bytes per second.
    ///
    /// # Panics
    /// If it began without a limit.
    pub fn limit_uploads(&mut self, host: HostId, bytes_per_second: f64) {
        let link = self.routes.upload_of(host).expect("the host began with a limit");
        self.kernel.widen(link, upload_bandwidth(self.routes.paths.model(), bytes_per_second));
    }

    /// From now on, tasks' bodies are run when they end; their time stays that of the model.
    pub fn set_bodies(&mut self, bodies: Box<dyn Bodies>) {
        self.tasks.set_bodies(bodies);
    }

    /// From now on, tasks of that function have these files, whatever its description says.
    pub fn set_files(&mut self, function: &str, files: Files) {
        self.tasks.set_files(function, files);
    }

    /// From now on, that decides what measured blocks are charged as.
    pub fn set_measures(&mut self, measures: Box<dyn Measures>) {
        self.processes.set_measures(measures);
    }

    /// From now on, that is told what happens. It comes before all processes and nodes.
    pub fn watch(&mut self, observer: Box<dyn Observer>) {
        self.kernel.instruments_mut().watch.begin(observer);
    }

    /// Nothing more is simulated: what is written meanwhile is completed.
    ///
    /// # Errors
    /// In words, if that fails, or why its processes had to end before their time.
    pub fn finish(&mut self) -> Result<(), String> {
        let now = self.now();
        let watched = self.kernel.instruments_mut().watch.finish(now);
        self.processes.finish(watched)
    }

    /// Puts a value into a node's store; `None` stands for bytes that do not matter.
    pub fn put(&mut self, node: NodeId, datum: DatumId, meta: Meta, bytes: Option<Arc<[u8]>>) {
        self.keep(node, datum, StoredValue { meta, bytes });
    }

    pub(crate) fn keep(&mut self, node: NodeId, datum: DatumId, value: StoredValue) {
        self.kernel.note(|trace, now| trace.stored(now, node, datum, &value));
        self.nodes.node_mut(node).store.put(datum, value);
    }

    /// A value of a node's store.
    pub fn value(&self, node: NodeId, datum: DatumId) -> Option<(Meta, Option<Arc<[u8]>>)> {
        self.node(node).store.value(datum).map(|value| (value.meta.clone(), value.bytes.clone()))
    }

    /// Takes a value out of a node's store.
    pub fn remove(&mut self, node: NodeId, datum: DatumId) -> Option<(Meta, Option<Arc<[u8]>>)> {
        let value = self.value(node, datum);
        self.nodes.node_mut(node).store.remove(datum);
        value
    }

    /// Gives a client a command, now.
    pub fn command(&mut self, client: NodeId, command: Command) {
        self.kernel.deliver(client, Input::Command(command));
    }

    /// Lets the next thing happen; false if there is none.
    pub fn step(&mut self) -> bool {
        match self.kernel.next() {
            None => return false,
            Some(Happening::Changes) => self.change(),
            Some(Happening::Ended(actions)) => actions.into_iter().for_each(|action| self.complete(action)),
            Some(Happening::Due(sequence, occurrence)) => self.occur(sequence, occurrence),
        }
        if cfg!(debug_assertions) && self.kernel.is_check_due() {
            self.check();
        }
        true
    }

    /// The client's next event, stepping until there is one; `None` at the deadline, or if nothing can happen any more.
    ///
    /// `None` too if the client ends meanwhile.
    pub fn next_event(&mut self, client: NodeId, deadline: Option<Time>) -> Option<Event> {
        let was_dead = self.is_dead(client);
        loop {
            if let Some(event) = self.take_event(client) {
                return Some(event);
            }
            if !was_dead && self.is_dead(client) {
                return None;
            }
            let next = self.kernel.next_at();
            match deadline {
                Some(deadline) if next.is_none_or(|at| at > deadline) => {
                    self.kernel.pass_until(deadline);
                    return None;
                }
                Some(_) | None => {}
            }
            if !self.step() {
                return None;
            }
        }
    }

    /// Takes out what a client has told its program first.
    pub(crate) fn take_event(&mut self, client: NodeId) -> Option<Event> {
        self.nodes.node_mut(client).events.pop_front()
    }

    /// The program computed for so long: whatever happens meanwhile, happens.
    pub fn advance(&mut self, ns: u64) {
        let until = self.now() + ns;
        while self.kernel.next_at().is_some_and(|at| at <= until) {
            self.step();
        }
        self.kernel.pass_until(until);
    }

    /// Speed of the host of a node now: operations per second.
    pub fn flops_of(&self, node: NodeId) -> f64 {
        self.hosts.measured_flops(self.node(node).host)
    }

    pub fn now(&self) -> Time {
        self.kernel.now()
    }

    /// The platform that it runs on.
    pub fn platform(&self) -> &Arc<Platform> {
        &self.platform
    }

    /// Sums up all inputs delivered and effects performed so far.
    pub fn trace_hash(&self) -> u64 {
        self.kernel.instruments().trace.hash()
    }

    /// From now on, the trace is also kept in words.
    pub fn keep_records(&mut self) {
        self.kernel.instruments_mut().trace.keep_records();
    }

    /// The trace in words, as far as it was kept.
    pub fn records(&self) -> &[Record] {
        self.kernel.instruments().trace.records()
    }

    /// What agents and servers told the log.
    pub fn log(&self) -> &[(Time, NodeId, Event)] {
        &self.kernel.instruments().log
    }

    /// Bytes of data that arrived over each link, in the platform's order.
    pub fn bytes_by_link(&self) -> Vec<(String, f64)> {
        let names = self.platform.links().iter().map(|link| link.name.clone());
        names.zip(self.kernel.instruments().trace.bytes_by_link().iter().copied()).collect()
    }

    /// Bytes of data that arrived, by sender and receiver.
    pub fn bytes_by_pair(&self) -> &BTreeMap<(NodeId, NodeId), u64> {
        self.kernel.instruments().trace.bytes_by_pair()
    }

    /// Tasks that ended and data that arrived, in order of their ends.
    pub fn intervals(&self) -> &[Interval] {
        self.kernel.instruments().trace.intervals()
    }

    /// Fails if processes still run then.
    pub fn run_until(&mut self, at: Time) {
        self.kernel.push(at.max(self.now()), Occurrence::Until);
    }

    /// How long nothing but time limits of processes has come to pass.
    pub fn idle(&self) -> Idle {
        self.processes.idle()
    }

    pub(crate) fn occur(&mut self, sequence: u64, occurrence: Occurrence) {
        match occurrence {
            Occurrence::Deliver { node, input } => self.handle(node, *input, 0),
            Occurrence::Dialled { dialler, address, began } => self.on_dialled(dialler, address, began),
            Occurrence::Mapped { node, number } => self.end_mapping(node, number),
            Occurrence::Arrive { from, to, connection, parcel } => self.on_arrive(from, to, connection, parcel),
            Occurrence::Lost { node, peer, connection, why } => self.on_lost(node, peer, connection, why),
            Occurrence::Timer { node, timer } => {
                if self.nodes.node_mut(node).take_timer(timer, sequence) {
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
            Occurrence::Strike(fault) => self.strike(&fault),
            Occurrence::Until => self.on_until(),
        }
    }

    fn complete(&mut self, action: ActionId) {
        match self.kernel.take_purpose(action) {
            Some(Purpose::Files(started)) => self.on_files_done(started),
            Some(Purpose::Task(started)) => self.on_task_done(started),
            Some(Purpose::Bulk { pair, transfer }) => self.on_bulk_done(pair, transfer),
            Some(Purpose::Storage(number)) => self.on_storage(number),
            Some(Purpose::Letter(flow)) => self.on_letter(flow),
            Some(Purpose::Computation { process, turn }) => self.on_process_due(process, turn),
            None => {}
        }
    }

    /// Lets a machine handle an input and performs what it asks; `digest` is that of the message, if it is one.
    pub(crate) fn handle(&mut self, node: NodeId, input: Input, digest: u64) {
        match self.node(node).life {
            Life::Running => {}
            Life::Paused => return self.nodes.node_mut(node).stalled.push_back((input, digest)),
            Life::Hung | Life::Dead => return,
        }
        self.kernel.note(|trace, now| trace.input(now, node, &input, digest));
        if let Input::Calling { task, waits } = input {
            self.tasks.heard_of(node, task, waits);
        }
        let mut effects = std::mem::take(&mut self.effects);
        let now = self.now();
        self.nodes.node_mut(node).machine.handle(now, input, &mut effects);
        for effect in effects.drain(..) {
            // What follows its own end is not performed.
            if self.nodes.is_running(node) {
                self.perform(node, effect);
            }
        }
        self.effects = effects;
    }

    /// Tells the program, or the log.
    pub(crate) fn emit(&mut self, node: NodeId, event: Event) {
        if self.hears(node, &event) {
            return;
        }
        match self.node(node).role {
            Role::Client => {
                self.nodes.node_mut(node).events.push_back(event);
                self.processes.wake_for_event(&mut self.kernel, node);
            }
            Role::Agent | Role::Server => {
                let now = self.now();
                self.kernel.instruments_mut().log.push((now, node, event));
            }
        }
    }

    pub(crate) fn node(&self, node: NodeId) -> &SimNode {
        self.nodes.node(node)
    }

    /// Panics if an invariant of one of its parts does not hold. Debug builds call it now and then, a soak at each fault.
    pub fn check(&self) {
        self.kernel.check();
        self.hosts.check();
        self.routes.check();
        self.links.check(&self.kernel);
        self.check_files();
        self.sockets.check();
        self.nodes.check();
        self.tasks.check(&self.kernel);
        self.processes.check();
        for (id, node) in self.nodes.iter().filter(|(_, node)| node.is_dead()) {
            let is_gone = self.tasks.are_idle(id) && self.links.peers(id).is_empty();
            assert!(is_gone, "'{}' is dead, and still has tasks or connections", node.name);
        }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut form = f.debug_struct("Simulation");
        form.field("now", &self.now()).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
