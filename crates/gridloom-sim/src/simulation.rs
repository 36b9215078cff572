//! A simulation: a grid and user processes in an environment, and the routing of events between them.
//!
//! ```text
//!               Simulation: routes events
//!               /                       \
//!     grid: nodes and what          programs: user processes
//!     they have around them         and their sockets
//!               \                       /
//!       environment: clock, queue, flows, hosts, routes
//! ```
//!
//! Grid and programs do not see each other. Each changes its own state, queues future events and starts flows in the
//! environment, and returns the consequences for the other; [`Simulation`] passes them on.
//!
//! **Invariant.** The machines of nodes are called from one place, [`Simulation::handle`], and never while one is being handled.

mod population;
mod programs;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use gridloom_base::{NodeId, Origin, Time};
use gridloom_core::node::Event;
use gridloom_flow::ActionId;
use gridloom_platform::{HostId, Platform};

use crate::config::SimConfig;
use crate::environment::{Change, Environment};
use crate::grid::{Grid, MachineInput};
use crate::kernel::{Kernel, KernelEvent, Purpose, ScheduledEvent};
use crate::network::{Route, variant_name};
use crate::observe::Observer;
use crate::process::{BlockCharges, IdlePeriod, Programs};
use crate::standstill::Standstill;
use crate::trace::{Interval, Record};

/// A grid in virtual time.
pub struct Simulation {
    pub(crate) environment: Environment,
    pub(crate) grid: Grid,
    pub(crate) programs: Programs,
    standstill: Standstill,
}

impl Simulation {
    /// Creates an empty grid on a platform, at time 0.
    pub fn new(platform: Arc<Platform>, config: SimConfig) -> Simulation {
        let mut simulation = Simulation {
            environment: Environment::new(platform, &config),
            programs: Programs::new(config.reference_flops),
            standstill: Standstill::new(config.events_at_one_time_max),
            grid: Grid::new(config),
        };
        simulation.change();
        simulation
    }

    /// Changes the upload limit of a host, bytes per second.
    ///
    /// # Panics
    /// If the host began without a limit.
    pub fn limit_uploads(&mut self, host: HostId, bytes_per_second: f64) {
        self.environment.limit_uploads(host, bytes_per_second);
    }

    /// Sets who decides the charge for measured blocks.
    pub fn set_measures(&mut self, measures: Box<dyn BlockCharges>) {
        self.programs.set_measures(measures);
    }

    /// Sets the observer. Must be called before any process or node is added.
    pub fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.environment.kernel.instruments_mut().watch.begin(observer);
    }

    /// Ends the simulation and completes its output.
    ///
    /// # Errors
    /// A message if that fails, or the reason why its processes had to end early.
    pub fn finish(&mut self) -> Result<(), String> {
        let now = self.now();
        let watched = self.environment.kernel.instruments_mut().watch.finish(now);
        self.programs.finish(watched)
    }

    /// Handles the next event. Returns false if there is none, or if virtual time stands still.
    pub fn step(&mut self) -> bool {
        if self.standstill().is_some() {
            return false;
        }
        let Some(event) = self.environment.kernel.next() else { return false };
        let Simulation { environment: Environment { kernel, .. }, grid, programs, standstill } = self;
        if standstill.count(kernel.now(), || describe(kernel, grid, &event)) {
            let why = standstill.failure().unwrap_or_default().to_string();
            programs.fail(kernel, format!("at {:.6} s, {why}", kernel.now().seconds()));
            return false;
        }
        match event {
            KernelEvent::Changes => self.change(),
            KernelEvent::Ended(actions) => actions.into_iter().for_each(|action| self.complete(action)),
            KernelEvent::Due(sequence, occurrence) => self.occur(sequence, occurrence),
        }
        if cfg!(debug_assertions) && self.environment.kernel.is_check_due() {
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
            let next = self.environment.kernel.next_at();
            match deadline {
                Some(deadline) if next.is_none_or(|at| at > deadline) => {
                    self.environment.kernel.advance_clock(deadline);
                    return None;
                }
                Some(_) | None => {}
            }
            if !self.step() {
                return None;
            }
        }
    }

    /// Lets the program compute for `ns` nanoseconds. Events in that time are handled.
    pub fn advance(&mut self, ns: u64) {
        let until = self.now() + ns;
        while self.environment.kernel.next_at().is_some_and(|at| at <= until) && self.step() {}
        self.environment.kernel.advance_clock(until);
    }

    pub fn now(&self) -> Time {
        self.environment.kernel.now()
    }

    /// Sets the user of a node, with their rights. Call it before the node's first step.
    pub fn set_origin(&mut self, node: NodeId, origin: Origin) {
        self.grid.set_origin(node, origin);
    }

    /// Returns the platform of the simulation.
    pub fn platform(&self) -> &Arc<Platform> {
        &self.environment.platform
    }

    /// Returns a hash of all inputs delivered and effects performed so far.
    pub fn trace_hash(&self) -> u64 {
        self.environment.kernel.instruments().trace.hash()
    }

    /// Also records the trace as text from now on.
    pub fn keep_records(&mut self) {
        self.environment.kernel.instruments_mut().trace.keep_records();
    }

    /// Returns the trace as text, as far as it was recorded.
    pub fn records(&self) -> &[Record] {
        self.environment.kernel.instruments().trace.records()
    }

    /// Returns the log events of agents and servers.
    pub fn log(&self) -> &[(Time, NodeId, Event)] {
        &self.environment.kernel.instruments().log
    }

    /// Returns the bytes of data that arrived over each link, in the platform's order.
    pub fn bytes_by_link(&self) -> Vec<(String, f64)> {
        let names = self.platform().links().iter().map(|link| link.name.clone());
        names.zip(self.environment.kernel.instruments().trace.bytes_by_link().iter().copied()).collect()
    }

    /// Returns the bytes of data that arrived, by sender and receiver.
    pub fn bytes_by_pair(&self) -> &BTreeMap<(NodeId, NodeId), u64> {
        self.environment.kernel.instruments().trace.bytes_by_pair()
    }

    /// Returns the tasks that ended and the data that arrived, in order of their ends.
    pub fn intervals(&self) -> &[Interval] {
        self.environment.kernel.instruments().trace.intervals()
    }

    /// Sets a time at which the run fails if processes are still running.
    pub fn run_until(&mut self, at: Time) {
        self.environment.kernel.push(at.max(self.now()), ScheduledEvent::TimeLimit);
    }

    /// Returns the description of the endless events at one time that have ended the simulation, if there were any.
    pub fn standstill(&self) -> Option<&str> {
        self.standstill.failure()
    }

    /// Reports whether a transfer, task or computation is in progress.
    pub fn has_flows(&self) -> bool {
        self.environment.kernel.has_flows()
    }

    /// Reports whether a profile or a fault will change something.
    pub fn has_changes(&self) -> bool {
        self.environment.kernel.has_changes()
    }

    /// Returns the period in which nothing but time limits of processes has happened.
    pub fn idle(&self) -> IdlePeriod {
        self.programs.idle()
    }

    /// Handles an event that is due, or that was held on a route. `sequence` is its number in the queue.
    fn occur(&mut self, sequence: u64, occurrence: ScheduledEvent) {
        let Simulation { environment, grid, programs, .. } = self;
        let input = match occurrence {
            ScheduledEvent::Deliver { node, input } => Some(MachineInput::new(node, *input)),
            ScheduledEvent::Timer { node, timer } => grid.on_timer(node, timer, sequence),
            ScheduledEvent::Arrive { from, to, connection, parcel } => {
                grid.on_arrive(environment, (from, to), connection, parcel)
            }
            ScheduledEvent::Lost { node, peer, connection, why } => {
                grid.on_lost(environment, (node, peer), connection, why)
            }
            ScheduledEvent::Dialled { dialler, address, began } => {
                return grid.on_dialled(environment, dialler, address, began);
            }
            ScheduledEvent::Mapped { node, number } => return grid.end_mapping(&mut environment.kernel, node, number),
            ScheduledEvent::SessionDue { client, wait } => grid.on_session_due(environment, client, wait),
            ScheduledEvent::ProcessDue { process, turn } => return programs.on_due(environment, process, turn),
            ScheduledEvent::ProcessDialled { process, host, name, port } => {
                return programs.on_dialled(environment, process, host, name, port);
            }
            ScheduledEvent::ProcessClosed { connection, end } => {
                return programs.on_closed(environment, connection, end);
            }
            ScheduledEvent::TimeLimit => return programs.on_time_limit(environment),
            ScheduledEvent::Completed(action) => return self.complete(action),
            ScheduledEvent::ProcessKilled { process } => return self.kill_process(process, "the process was killed"),
            ScheduledEvent::Strike(fault) => return self.apply_fault(&fault),
        };
        self.handle_any(input);
    }

    /// Handles the end of an action of the flow engine.
    fn complete(&mut self, action: ActionId) {
        let Simulation { environment, grid, programs, .. } = self;
        let Some(purpose) = environment.kernel.take_purpose(action) else { return };
        let input = match purpose {
            Purpose::Files(started) => grid.on_files_done(environment, &started),
            Purpose::Paging(started) => return grid.on_paged(environment, started),
            Purpose::Task(started) => grid.on_task_done(environment, started),
            Purpose::Bulk { pair, transfer } => grid.on_bulk_done(environment, pair, transfer),
            Purpose::Storage(number) => grid.on_file_moved(environment, number),
            Purpose::Letter(flow) => return programs.on_letter(&mut environment.kernel, flow),
            Purpose::Computation { process, turn } => return programs.on_due(environment, process, turn),
        };
        self.handle_any(input);
    }

    fn handle_any(&mut self, input: Option<MachineInput>) {
        if let Some(input) = input {
            self.handle(input);
        }
    }

    /// Passes an input to a machine and performs its effects.
    pub(crate) fn handle(&mut self, input: MachineInput) {
        let Simulation { environment, grid, programs, .. } = self;
        let node = input.node;
        let Some(mut effects) = grid.handle(&mut environment.kernel, input) else { return };
        for effect in effects.drain(..) {
            if let Some(client) = grid.perform(environment, node, effect) {
                programs.wake_for_event(&mut environment.kernel, client);
            }
        }
        grid.keep_effects(effects);
    }

    /// Applies the profile changes that are due.
    fn change(&mut self) {
        while let Some(change) = self.environment.apply_change() {
            match change {
                Change::Rates => {}
                Change::HostOff(host) => self.turn_off(host),
                Change::HostOn(host) => self.turn_on(host),
                Change::LinkOff(link) => {
                    self.grid.stop_link(&mut self.environment, link);
                    self.programs.stop_link(&mut self.environment, link);
                }
                Change::LinkOn => {
                    for way in self.environment.routes.open_ways() {
                        self.release(way);
                    }
                    self.start_waiting(None);
                }
            }
        }
    }

    /// Releases the arrivals held on a route. Those that cannot pass yet are held again.
    fn release(&mut self, way: Route) {
        for occurrence in self.environment.take_held(way) {
            self.occur(0, occurrence);
        }
    }

    /// Starts traffic that waits for a route that has opened: one of them, or any.
    fn start_waiting(&mut self, opened: Option<Route>) {
        self.grid.start_waiting(&mut self.environment, opened);
        self.programs.start_messages(&mut self.environment);
    }

    /// Stops all traffic on a route, until [`Simulation::open_route`].
    pub(crate) fn close_route(&mut self, way: Route) {
        self.environment.lose_route(way);
        self.grid.stop_route(&mut self.environment.kernel, way);
        self.programs.stop_route(&mut self.environment, way);
    }

    /// Lets traffic pass on a route again, if it was lost, and releases the held arrivals.
    pub(crate) fn open_route(&mut self, way: Route) {
        if self.environment.restore_route(way) {
            self.release(way);
            self.start_waiting(Some(way));
        }
    }

    /// Panics if an invariant of a part does not hold. Debug builds call it at intervals, a soak at each fault.
    pub fn check(&self) {
        self.environment.check();
        self.grid.check(&self.environment.kernel);
        self.programs.check();
    }
}

/// Describes an event and the node or process to which it belongs.
fn describe(kernel: &Kernel, grid: &Grid, event: &KernelEvent) -> String {
    let name = |node: &NodeId| &grid.nodes().node(*node).name;
    let of_action = |action: &ActionId| match kernel.purpose(*action) {
        Some(Purpose::Bulk { pair: (from, to), .. }) => format!("a transfer from '{}' to '{}'", name(from), name(to)),
        Some(Purpose::Task(started) | Purpose::Paging(started) | Purpose::Files(started)) => {
            format!("'{}' runs '{}'", name(&started.node), started.task.name())
        }
        Some(Purpose::Computation { process, .. }) => format!("a computation of process {}", process.0),
        Some(Purpose::Letter(_)) => "a message between processes".to_string(),
        Some(Purpose::Storage(_)) | None => "a file access".to_string(),
    };
    let occurrence = match event {
        KernelEvent::Changes => return "a profile changes".into(),
        KernelEvent::Ended(actions) => return actions.first().map_or_else(String::new, of_action),
        KernelEvent::Due(_, occurrence) => occurrence,
    };
    match occurrence {
        ScheduledEvent::Deliver { node, input } => format!("'{}': {}", name(node), variant_name(input)),
        ScheduledEvent::Timer { node, timer } => format!("'{}': timer {}", name(node), variant_name(timer)),
        ScheduledEvent::Arrive { from, to, parcel, .. } => {
            format!("'{}' receives {} from '{}'", name(to), parcel.kind(), name(from))
        }
        ScheduledEvent::Lost { node, peer, .. } => format!("'{}' loses '{}'", name(node), name(peer)),
        ScheduledEvent::Dialled { dialler, address, .. } => format!("'{}' dials {address}", name(dialler)),
        ScheduledEvent::SessionDue { client, .. } => format!("'{}' wakes its function", name(client)),
        ScheduledEvent::Mapped { node, .. } => format!("'{}' has mapped a group", name(node)),
        ScheduledEvent::Completed(action) => of_action(action),
        ScheduledEvent::ProcessDue { process, .. }
        | ScheduledEvent::ProcessDialled { process, .. }
        | ScheduledEvent::ProcessKilled { process } => format!("process {}: {}", process.0, variant_name(occurrence)),
        ScheduledEvent::ProcessClosed { .. } | ScheduledEvent::Strike(_) | ScheduledEvent::TimeLimit => {
            variant_name(occurrence)
        }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut form = f.debug_struct("Simulation");
        form.field("now", &self.now()).field("nodes", self.grid.nodes()).finish_non_exhaustive()
    }
}
