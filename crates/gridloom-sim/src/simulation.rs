//! A simulation: its parts, each with a state of its own, and the routing of events between them.
//!
//! ```text
//!            kernel: clock, queue, flows, instruments
//!    |          |          |          |          |          |
//!  hosts      nodes      tasks      links     sockets   processes      (and mappings, durable data, data corruption)
//!                                      \\         /
//!                                        routes
//! ```
//!
//! A part of a simulation changes its own state, queues future events, starts flows, and returns the consequences for
//! other parts. Parts do not access one another; [`Simulation`] passes results between them.
//!
//! **Invariant.** The machines of nodes are called from one place, [`Simulation::handle`], and never while one is being handled.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gridloom_base::limits::PARTS;
use gridloom_base::{DatumId, Meta, NodeId, PartSizes, Time};
use gridloom_core::node::{Command, Effect, Event, Input, Role};
use gridloom_flow::{ActionId, FlowEngine, NetworkModel, Policy, Resources};
use gridloom_platform::{HostId, Platform, Sharing};

use crate::disk::Files;
use crate::durable::Durable;
use crate::hosts::Hosts;
use crate::instruments::Instruments;
use crate::kernel::{Kernel, KernelEvent, Purpose, ScheduledEvent};
use crate::mappings::Mappings;
use crate::network::{Corruption, Links, Routes, Sockets};
use crate::nodes::{NodeState, Nodes, SimNode};
use crate::observe::Observer;
use crate::process::{BlockCharges, IdlePeriod, Processes};
use crate::sessions::FunctionSessions;
use crate::storage::Storages;
use crate::store::StoredValue;
use crate::tasks::{Bodies, Tasks};
use crate::timeline::timeline;
use crate::trace::{Interval, Record};

/// The configuration of a simulation besides the platform.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Seed of all random draws. Part of the trace's hash.
    pub seed: u64,
    /// The network model: how flows share links.
    pub network: NetworkModel,
    /// Bytes added to each message and each small datum: headers of the frame and of the network.
    pub message_overhead_bytes: u64,
    /// Speed of the machine on which blocks of processes are measured, floating-point operations per second.
    pub reference_flops: f64,
    /// Disk rates, bytes per second; other hosts have 1 GB/s.
    pub disks: BTreeMap<HostId, f64>,
    /// Start times of programs on hosts, seconds; other hosts have 2 ms.
    pub program_starts_s: BTreeMap<HostId, f64>,
    /// Upload limits, bytes per second: total rate at which a host sends bulk data to other hosts.
    pub upload_limits: BTreeMap<HostId, f64>,
    /// Shared storage: for each host, the host on which its servers share files.
    pub storages: BTreeMap<HostId, HostId>,
    /// Parts in which large data are sent. A server can forward the parts that it has received.
    pub parts: PartSizes,
    /// One in this many mappings takes seconds of virtual time; none if 0.
    pub slow_mappings_of: u64,
    /// Fraction of the host's speed that a function uses, by function name; others use all of it.
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

/// Returns the bandwidth of the link that represents a host's upload limit. The model reserves a part of each link for
/// protocol overhead, which the limit does not count.
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
    pub(crate) changes: Corruption,
    pub(crate) nodes: Nodes,
    pub(crate) tasks: Tasks,
    pub(crate) sessions: FunctionSessions,
    pub(crate) processes: Processes,
    pub(crate) mappings: Mappings,
    pub(crate) durable: Durable,
    pub(crate) storages: Storages,
    /// Empty except while a machine is handled; kept so that handling does not allocate.
    effects: Vec<Effect>,
}

impl Simulation {
    /// Creates an empty grid on a platform, at time 0.
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
            changes: Corruption::new(config.seed),
            nodes: Nodes::default(),
            tasks: Tasks::new(config.efficiencies),
            sessions: FunctionSessions::default(),
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

    /// Changes the upload limit of a host, bytes per second.
    ///
    /// # Panics
    /// If the host began without a limit.
    pub fn limit_uploads(&mut self, host: HostId, bytes_per_second: f64) {
        let link = self.routes.upload_of(host).expect("the host began with a limit");
        self.kernel.set_bandwidth_now(link, upload_bandwidth(self.routes.paths.model(), bytes_per_second));
    }

    /// Sets the bodies of tasks, which are run when the tasks end. The tasks' times remain those of the model.
    pub fn set_bodies(&mut self, bodies: Box<dyn Bodies>) {
        self.tasks.set_bodies(bodies);
    }

    /// Overrides the file parameters of a function.
    pub fn set_files(&mut self, function: &str, files: Files) {
        self.tasks.set_files(function, files);
    }

    /// Sets who decides the charge for measured blocks.
    pub fn set_measures(&mut self, measures: Box<dyn BlockCharges>) {
        self.processes.set_measures(measures);
    }

    /// Sets the observer. Must be called before any process or node is added.
    pub fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.kernel.instruments_mut().watch.begin(observer);
    }

    /// Ends the simulation and completes its output.
    ///
    /// # Errors
    /// A message if that fails, or the reason why its processes had to end early.
    pub fn finish(&mut self) -> Result<(), String> {
        let now = self.now();
        let watched = self.kernel.instruments_mut().watch.finish(now);
        self.processes.finish(watched)
    }

    /// Puts a value into a node's store; `None` if its bytes are not simulated.
    pub fn put(&mut self, node: NodeId, datum: DatumId, meta: Meta, bytes: Option<Arc<[u8]>>) {
        self.store_value(node, datum, StoredValue { meta, bytes });
    }

    pub(crate) fn store_value(&mut self, node: NodeId, datum: DatumId, value: StoredValue) {
        self.kernel.record(|trace, now| trace.stored(now, node, datum, &value));
        self.nodes.node_mut(node).store.put(datum, value);
    }

    /// Returns a value of a node's store.
    pub fn value(&self, node: NodeId, datum: DatumId) -> Option<(Meta, Option<Arc<[u8]>>)> {
        self.node(node).store.value(datum).map(|value| (value.meta.clone(), value.bytes.clone()))
    }

    /// Removes a value from a node's store and returns it.
    pub fn remove(&mut self, node: NodeId, datum: DatumId) -> Option<(Meta, Option<Arc<[u8]>>)> {
        let value = self.value(node, datum);
        self.nodes.node_mut(node).store.remove(datum);
        value
    }

    /// Gives a client a command now.
    pub fn command(&mut self, client: NodeId, command: Command) {
        self.kernel.deliver(client, Input::Command(command));
    }

    /// Handles the next event. Returns false if there is none.
    pub fn step(&mut self) -> bool {
        match self.kernel.next() {
            None => return false,
            Some(KernelEvent::Changes) => self.change(),
            Some(KernelEvent::Ended(actions)) => actions.into_iter().for_each(|action| self.complete(action)),
            Some(KernelEvent::Due(sequence, occurrence)) => self.occur(sequence, occurrence),
        }
        if cfg!(debug_assertions) && self.kernel.is_check_due() {
            self.check();
        }
        true
    }

    /// Returns the client's next event, stepping until there is one; `None` at the deadline, or if no event is left.
    ///
    /// Also returns `None` if the client ends meanwhile.
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
                    self.kernel.advance_clock(deadline);
                    return None;
                }
                Some(_) | None => {}
            }
            if !self.step() {
                return None;
            }
        }
    }

    /// Takes the first event that a client has reported to its program.
    pub fn take_event(&mut self, client: NodeId) -> Option<Event> {
        self.nodes.node_mut(client).events.pop_front()
    }

    /// Lets the program compute for `ns` nanoseconds. Events in that time are handled.
    pub fn advance(&mut self, ns: u64) {
        let until = self.now() + ns;
        while self.kernel.next_at().is_some_and(|at| at <= until) {
            self.step();
        }
        self.kernel.advance_clock(until);
    }

    /// Returns the current speed of a node's host, operations per second.
    pub fn flops_of(&self, node: NodeId) -> f64 {
        self.hosts.measured_flops(self.node(node).host)
    }

    pub fn now(&self) -> Time {
        self.kernel.now()
    }

    /// Returns the platform of the simulation.
    pub fn platform(&self) -> &Arc<Platform> {
        &self.platform
    }

    /// Returns a hash of all inputs delivered and effects performed so far.
    pub fn trace_hash(&self) -> u64 {
        self.kernel.instruments().trace.hash()
    }

    /// Also records the trace as text from now on.
    pub fn keep_records(&mut self) {
        self.kernel.instruments_mut().trace.keep_records();
    }

    /// Returns the trace as text, as far as it was recorded.
    pub fn records(&self) -> &[Record] {
        self.kernel.instruments().trace.records()
    }

    /// Returns the log events of agents and servers.
    pub fn log(&self) -> &[(Time, NodeId, Event)] {
        &self.kernel.instruments().log
    }

    /// Returns the bytes of data that arrived over each link, in the platform's order.
    pub fn bytes_by_link(&self) -> Vec<(String, f64)> {
        let names = self.platform.links().iter().map(|link| link.name.clone());
        names.zip(self.kernel.instruments().trace.bytes_by_link().iter().copied()).collect()
    }

    /// Returns the bytes of data that arrived, by sender and receiver.
    pub fn bytes_by_pair(&self) -> &BTreeMap<(NodeId, NodeId), u64> {
        self.kernel.instruments().trace.bytes_by_pair()
    }

    /// Returns the tasks that ended and the data that arrived, in order of their ends.
    pub fn intervals(&self) -> &[Interval] {
        self.kernel.instruments().trace.intervals()
    }

    /// Sets a time at which the run fails if processes are still running.
    pub fn run_until(&mut self, at: Time) {
        self.kernel.push(at.max(self.now()), ScheduledEvent::TimeLimit);
    }

    /// Returns the period in which nothing but time limits of processes has happened.
    pub fn idle(&self) -> IdlePeriod {
        self.processes.idle()
    }

    pub(crate) fn occur(&mut self, sequence: u64, occurrence: ScheduledEvent) {
        match occurrence {
            ScheduledEvent::Deliver { node, input } => self.handle(node, *input, 0),
            ScheduledEvent::Dialled { dialler, address, began } => self.on_dialled(dialler, address, began),
            ScheduledEvent::Mapped { node, number } => self.end_mapping(node, number),
            ScheduledEvent::Arrive { from, to, connection, parcel } => self.on_arrive(from, to, connection, parcel),
            ScheduledEvent::Lost { node, peer, connection, why } => self.on_lost(node, peer, connection, why),
            ScheduledEvent::Timer { node, timer } => {
                if self.nodes.node_mut(node).take_timer(timer, sequence) {
                    self.handle(node, Input::Timer(timer), 0);
                }
            }
            ScheduledEvent::Completed(action) => self.complete(action),
            ScheduledEvent::ProcessDue { process, turn } => self.on_process_due(process, turn),
            ScheduledEvent::ProcessDialled { process, host, name, port } => {
                self.on_process_dialled(process, host, name, port);
            }
            ScheduledEvent::ProcessClosed { connection, end } => self.on_process_closed(connection, end),
            ScheduledEvent::ProcessKilled { process } => self.kill_process(process, "the process was killed"),
            ScheduledEvent::Strike(fault) => self.apply_fault(&fault),
            ScheduledEvent::TimeLimit => self.on_time_limit(),
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

    /// Passes an input to a machine and performs its effects. `digest` is that of the message, if it is one.
    pub(crate) fn handle(&mut self, node: NodeId, input: Input, digest: u64) {
        match self.node(node).life {
            NodeState::Running => {}
            NodeState::Paused => return self.nodes.node_mut(node).waiting_inputs.push_back((input, digest)),
            NodeState::Hung | NodeState::Dead => return,
        }
        self.kernel.record(|trace, now| trace.input(now, node, &input, digest));
        if let Input::Paused { task, waits } = input {
            self.tasks.set_known_to_wait(node, task, waits);
        }
        let mut effects = std::mem::take(&mut self.effects);
        let now = self.now();
        self.nodes.node_mut(node).machine.handle(now, input, &mut effects);
        for effect in effects.drain(..) {
            // Effects that follow the node's own end are not performed.
            if self.nodes.is_running(node) {
                self.perform(node, effect);
            }
        }
        self.effects = effects;
    }

    /// Passes an event to the program or the log.
    pub(crate) fn report(&mut self, node: NodeId, event: Event) {
        if self.handle_session_event(node, &event) {
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

    /// Panics if an invariant of a part does not hold. Debug builds call it at intervals, a soak at each fault.
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
            let is_gone = self.tasks.is_idle(id) && self.links.peers(id).is_empty();
            assert!(is_gone, "'{}' is dead but still has tasks or connections", node.name);
        }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut form = f.debug_struct("Simulation");
        form.field("now", &self.now()).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
