//! The grid: its nodes and what they have outside their machines.
//!
//! ```text
//!   nodes          machines, stores, timers, lives
//!   connections    what nodes send to one another       storage    files that servers share
//!   calls          tasks and their shared data          durable    disks
//!   mappings       mappings that take time             body_sessions  sessions that functions open
//! ```
//!
//! The nodes are the lowest of these parts: the others get them passed, and do not see one another. [`Grid`] passes
//! results between them. It returns its outputs: [`MachineInput`] for a machine, and the client whose program has to
//! be notified.
//!
//! **Invariant:** the effects of a machine are performed one by one, and no machine is called meanwhile.

mod body_sessions;
mod calls;
mod connections;
mod disk;
mod durable;
mod effects;
mod mappings;
mod nodes;
mod population;
mod sessions;
mod storage;
mod tasks;
mod transfers;
mod workers;

use std::collections::BTreeMap;

use gridloom_base::{DatumId, NodeId, Origin, Rules, Time};
use gridloom_core::node::{Effect, Event, Input, Role, Timer, UsageTable};
use gridloom_flow::LinkIndex;
use gridloom_platform::HostId;

use crate::config::SimConfig;
use crate::environment::Environment;
use crate::kernel::Kernel;
use crate::network::{Links, Parcel, Route};
use crate::scheduled_event::StartedTask;
use crate::store::StoredValue;

use body_sessions::BodySessions;
use calls::Calls;
use connections::Connections;
pub use disk::Files;
use durable::Durable;
use mappings::Mappings;
pub(crate) use nodes::Nodes;
pub use nodes::{BoxedMachine, NodeState};
pub(crate) use population::HOST_IS_OFF;
use storage::{ReadFile, Storages};
pub use tasks::{Bodies, Halt};
use transfers::{Arrival, no_memory};

/// The nodes of a grid and what they have outside their machines.
pub(crate) struct Grid {
    nodes: Nodes,
    connections: Connections,
    calls: Calls,
    body_sessions: BodySessions,
    storages: Storages,
    durable: Durable,
    mappings: Mappings,
    /// The usage of users, by the name of the agent that recorded it. It outlives the agent.
    usage: BTreeMap<String, UsageTable>,
    /// Empty except while a machine is handled; kept so that handling does not allocate.
    effects: Vec<Effect>,
}

/// An input that a machine has to handle now. `digest` is that of the message, if it is one.
#[derive(Debug)]
pub(crate) struct MachineInput {
    pub(crate) node: NodeId,
    pub(crate) input: Input,
    pub(crate) digest: u64,
}

impl MachineInput {
    pub(crate) fn new(node: NodeId, input: Input) -> MachineInput {
        MachineInput { node, input, digest: 0 }
    }
}

impl Grid {
    /// Creates a grid without nodes.
    pub(crate) fn new(config: SimConfig) -> Grid {
        Grid {
            nodes: Nodes::default(),
            connections: Connections::new(config.seed, config.parts),
            calls: Calls::new(config.efficiencies),
            body_sessions: BodySessions::default(),
            storages: Storages::new(config.storages),
            durable: Durable::new(config.disks),
            mappings: Mappings::new(config.seed, config.slow_mappings_of),
            usage: BTreeMap::new(),
            effects: Vec::new(),
        }
    }

    /// Returns the nodes, to be read.
    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Returns the ends of the connections, to be read.
    pub(crate) fn links(&self) -> &Links {
        self.connections.links()
    }

    /// Returns the number of slow mappings so far.
    pub(crate) fn slow_mappings(&self) -> u64 {
        self.mappings.slow()
    }

    /// Returns the server of a client's session, if it is a session.
    pub(crate) fn session_server(&self, client: NodeId) -> Option<NodeId> {
        self.calls.session_server(client)
    }

    /// Sets the bodies of tasks, which are run when the tasks end.
    pub(crate) fn set_bodies(&mut self, bodies: Box<dyn Bodies>) {
        self.calls.set_bodies(bodies);
    }

    /// Sets the file parameters of a function.
    pub(crate) fn set_files(&mut self, function: &str, files: Files) {
        self.calls.set_files(function, files);
    }

    /// Puts a value into a node's store.
    pub(crate) fn store_value(&mut self, kernel: &mut Kernel, node: NodeId, datum: DatumId, value: StoredValue) {
        self.nodes.store_value(kernel, node, datum, value);
    }

    /// Sets the bytes that the program of a node holds itself.
    pub(crate) fn hold(&mut self, environment: &Environment, node: NodeId, bytes: u64) {
        self.nodes.hold(&environment.hosts, node, bytes);
    }

    /// Removes a value from a node's store.
    pub(crate) fn remove_value(&mut self, node: NodeId, datum: DatumId) {
        self.nodes.remove_value(node, datum);
    }

    /// Takes the first event that a client has reported to its program.
    pub(crate) fn take_event(&mut self, client: NodeId) -> Option<Event> {
        self.nodes.take_event(client)
    }

    /// Passes an input to a machine, unless its node is paused, hangs or has ended. Returns the machine's effects.
    /// After they are performed, [`Grid::keep_effects`] takes back the list.
    pub(crate) fn handle(
        &mut self,
        kernel: &mut Kernel,
        MachineInput { node, input, digest }: MachineInput,
    ) -> Option<Vec<Effect>> {
        let input = self.nodes.admit(node, input, digest)?;
        kernel.record(|trace, now| trace.input(now, node, &input, digest));
        if let Input::Paused { task, waits } = input {
            self.calls.set_known_to_wait(node, task, waits);
        }
        let mut effects = std::mem::take(&mut self.effects);
        self.nodes.handle(kernel.now(), node, input, &mut effects);
        Some(effects)
    }

    /// Keeps an empty list of effects for the next input.
    pub(crate) fn keep_effects(&mut self, effects: Vec<Effect>) {
        self.effects = effects;
    }

    /// Handles the result of a dial.
    pub(crate) fn on_dialled(&mut self, environment: &mut Environment, dialler: NodeId, address: String, began: Time) {
        self.connections.on_dialled(environment, &self.nodes, dialler, address, began);
    }

    /// Handles the notification that a node's peer has closed its end of a connection.
    pub(crate) fn on_lost(
        &mut self,
        environment: &mut Environment,
        (node, peer): (NodeId, NodeId),
        connection: u64,
        why: String,
    ) -> Option<MachineInput> {
        let input = self.connections.on_lost(environment, (node, peer), connection, why)?;
        Some(MachineInput::new(node, input))
    }

    /// Handles the arrival of a control frame.
    pub(crate) fn on_arrive(
        &mut self,
        environment: &mut Environment,
        pair: (NodeId, NodeId),
        connection: u64,
        parcel: Box<Parcel>,
    ) -> Option<MachineInput> {
        let arrived = self.connections.on_arrive(environment, &mut self.nodes, pair, connection, parcel);
        arrived.map(|(input, digest)| MachineInput { node: pair.1, input, digest })
    }

    /// Handles the end of a flow of bulk cargo.
    pub(crate) fn on_bulk_done(
        &mut self,
        environment: &mut Environment,
        pair: (NodeId, NodeId),
        transfer: u64,
    ) -> Option<MachineInput> {
        let input = self.connections.on_bulk_done(environment, &mut self.nodes, pair, transfer)?;
        Some(MachineInput::new(pair.1, input))
    }

    /// Handles the end of a transfer to or from a storage.
    pub(crate) fn on_file_moved(&mut self, environment: &mut Environment, number: u64) -> Option<MachineInput> {
        let ReadFile { holder: from, reader: to, datum, value, transfer, started: start, path } =
            self.storages.on_moved(environment, &self.nodes, number)?;
        if !self.connections.links().is_connected(to, from) {
            return None;
        }
        if self.nodes.node(to).is_full(environment.kernel.now()) {
            return Some(MachineInput::new(to, no_memory(from, datum)));
        }
        let flowed_bytes = value.meta.size_bytes();
        let arrival = Arrival { from, to, datum, value, transfer, start, path: &path, flowed_bytes };
        // Its time does not measure the route between the two nodes.
        let input = self.connections.accept(environment, &mut self.nodes, arrival, 0);
        Some(MachineInput::new(to, input))
    }

    /// Handles the end of a task's file accesses.
    pub(crate) fn on_files_done(
        &mut self,
        environment: &mut Environment,
        started: &StartedTask,
    ) -> Option<MachineInput> {
        let next = self.calls.files_done(environment, &mut self.nodes, started);
        let input = self.advance(environment, started.node, next)?;
        Some(MachineInput::new(started.node, input))
    }

    /// Handles the end of a task's paging.
    pub(crate) fn on_paged(&mut self, environment: &mut Environment, started: StartedTask) {
        self.calls.paged(environment, &mut self.nodes, started);
    }

    /// Handles the end of a task's computation.
    pub(crate) fn on_task_done(&mut self, environment: &mut Environment, started: StartedTask) -> Option<MachineInput> {
        let node = started.node;
        let next = self.calls.computed(environment, &mut self.nodes, started);
        let input = self.advance(environment, node, next)?;
        Some(MachineInput::new(node, input))
    }

    /// Handles a timer that is due. Returns `None` if it was moved or cancelled since it was queued under that number.
    pub(crate) fn on_timer(&mut self, node: NodeId, timer: Timer, sequence: u64) -> Option<MachineInput> {
        let fires = self.nodes.take_timer(node, timer, sequence);
        fires.then(|| MachineInput::new(node, Input::Timer(timer)))
    }

    /// Ends a mapping, because its time has passed or because its agent stops it.
    pub(crate) fn end_mapping(&mut self, kernel: &mut Kernel, node: NodeId, number: u64) {
        let mapped = self.mappings.end(node, number);
        mapped.into_iter().for_each(|mapped| kernel.deliver(node, mapped));
    }

    /// Ends a node. Its tasks stop, and its peers lose it once the data that it had sent has arrived. Returns false if
    /// it had ended before.
    pub(crate) fn end(&mut self, environment: &mut Environment, node: NodeId, why: &str) -> bool {
        if self.nodes.is_dead(node) {
            return false;
        }
        environment.kernel.record(|trace, now| trace.fault(now, node, why));
        self.nodes.end(node, why);
        self.calls.end_tasks(&mut environment.kernel, node);
        self.connections.end_node(environment, node, why);
        self.body_sessions.wake(&mut environment.kernel, node);
        self.end_body_sessions(environment, node, None, "its server has ended");
        if self.nodes.node(node).role == Role::Server
            && let Some(client) = self.calls.close_session(node)
        {
            self.end(environment, client, "its server has ended");
        }
        self.storages.end_node(&mut environment.kernel, node);
        if self.nodes.node(node).role == Role::Server {
            self.durable.kill(environment.kernel.now(), &self.nodes.node(node).name);
        }
        true
    }

    /// Makes a node stop reacting. Its connections stay up.
    pub(crate) fn hang(&mut self, kernel: &mut Kernel, node: NodeId) {
        if self.nodes.is_running(node) {
            kernel.record(|trace, now| trace.fault(now, node, "hang"));
            self.nodes.hang(node);
            self.connections.stop_sending(kernel, node);
        }
    }

    pub(crate) fn set_origin(&mut self, node: NodeId, origin: Origin) {
        self.nodes.set_origin(node, origin);
    }

    pub(crate) fn set_rules(&mut self, agent: NodeId, rules: Rules) {
        self.nodes.set_rules(agent, rules);
    }

    /// Makes a node stop reacting for a while. Its inputs wait.
    pub(crate) fn pause(&mut self, kernel: &mut Kernel, node: NodeId) {
        if self.nodes.is_running(node) {
            kernel.record(|trace, now| trace.fault(now, node, "pause"));
            self.nodes.pause(node);
        }
    }

    /// Resumes a paused node. Returns false if it is not paused.
    pub(crate) fn resume(&mut self, kernel: &mut Kernel, node: NodeId) -> bool {
        let is_paused = self.nodes.node(node).life == NodeState::Paused;
        if is_paused {
            kernel.record(|trace, now| trace.fault(now, node, "resume"));
            self.nodes.resume(node, kernel.now());
        }
        is_paused
    }

    /// Takes the first input that waited while a node was paused.
    pub(crate) fn take_waiting_input(&mut self, node: NodeId) -> Option<MachineInput> {
        let (input, digest) = self.nodes.take_waiting_input(node)?;
        Some(MachineInput { node, input, digest })
    }

    /// Makes a node reject data for `for_ns`.
    pub(crate) fn fill(&mut self, kernel: &mut Kernel, node: NodeId, for_ns: u64) {
        kernel.record(|trace, now| trace.fault(now, node, "full"));
        self.nodes.fill(node, kernel.now() + for_ns);
    }

    /// Prevents a server from writing durable data for `for_ns`, even after a restart.
    pub(crate) fn fill_disk(&mut self, kernel: &mut Kernel, node: NodeId, for_ns: u64) {
        kernel.record(|trace, now| trace.fault(now, node, "full disk"));
        self.durable.fill(&self.nodes.node(node).name, kernel.now() + for_ns);
    }

    pub(crate) fn damage_disk(&mut self, kernel: &mut Kernel, node: NodeId) {
        kernel.record(|trace, now| trace.fault(now, node, "damaged disk"));
        self.durable.damage(&self.nodes.node(node).name);
    }

    /// Makes a node forget a connection, if there is one.
    pub(crate) fn forget_connection(&mut self, environment: &mut Environment, node: NodeId, peer: NodeId) {
        self.connections.forget(environment, node, peer);
    }

    /// Makes one node forget a connection, if there is one, without notice to the other.
    pub(crate) fn half_open(&mut self, environment: &mut Environment, forgets: NodeId, keeps: NodeId) {
        self.connections.half_open(environment, forgets, keeps);
    }

    /// Sets the fraction of the data that arrive with one bit changed, on the routes between two hosts.
    pub(crate) fn corrupt(&mut self, kernel: &mut Kernel, a: HostId, b: HostId, fraction: f64) {
        self.connections.corrupt(kernel, a, b, fraction);
    }

    /// Ends all corruption of data.
    pub(crate) fn end_corruption(&mut self) {
        self.connections.end_corruption();
    }

    /// Stops the bulk cargo on a route that is lost. It starts over when the route is open again.
    pub(crate) fn stop_route(&mut self, kernel: &mut Kernel, route: Route) {
        self.connections.stop_route(kernel, route);
    }

    /// Stops the bulk cargo on all routes over a link that is off.
    pub(crate) fn stop_link(&mut self, environment: &mut Environment, link: LinkIndex) {
        self.connections.stop_link(environment, link);
    }

    /// Starts waiting cargo on routes that have opened: on one of them, or on all.
    pub(crate) fn start_waiting(&mut self, environment: &mut Environment, opened: Option<Route>) {
        self.connections.start_waiting(environment, opened);
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self, kernel: &Kernel) {
        self.nodes.check();
        self.connections.check(kernel);
        self.calls.check(kernel);
        self.storages.check(&self.nodes);
        for (id, node) in self.nodes.iter().filter(|(_, node)| node.is_dead()) {
            let is_gone = self.calls.is_idle(id) && self.links().peers(id).is_empty();
            assert!(is_gone, "'{}' is dead but still has tasks or connections", node.name);
        }
    }
}

#[cfg(test)]
mod tests;
