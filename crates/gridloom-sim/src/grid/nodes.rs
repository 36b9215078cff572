//! The nodes of a simulation: their machines, their state in the world, their stores and timers, their addresses, and
//! the nodes that restart with their hosts.
//!
//! **Invariant:** only [`Nodes`] changes a node. Everyone else reads [`SimNode`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use gridloom_base::{DatumId, Machine, NodeId, Origin, Rules, Time};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Agent, Client, ClientWithAgent, DiskLimit, Effect, Event, Input, Role, Server, Timer};
use gridloom_flow::HostIndex;
use gridloom_platform::HostId;

use crate::hosts::Hosts;
use crate::kernel::Kernel;
use crate::memory::{HeldBytes, Hold, PagedMemory};
use crate::store::{Store, StoredValue};

/// A machine of any kind: those of the grid, or a scripted one.
pub type BoxedMachine = Box<dyn Machine<Input = Input, Effect = Effect> + Send>;

/// A node's machine.
pub(crate) enum AnyMachine {
    Agent(Box<Agent>),
    Server(Box<Server>),
    Client(Box<Client>),
    ClientWithAgent(Box<ClientWithAgent>),
    Other(BoxedMachine),
}

impl AnyMachine {
    fn handle(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        match self {
            AnyMachine::Agent(agent) => agent.handle(now, input, effects),
            AnyMachine::Server(server) => server.handle(now, input, effects),
            AnyMachine::Client(client) => client.handle(now, input, effects),
            AnyMachine::ClientWithAgent(client) => client.handle(now, input, effects),
            AnyMachine::Other(machine) => machine.handle(now, input, effects),
        }
    }
}

/// The parameters needed to restart a node.
#[derive(Clone, Debug)]
pub(crate) enum NodeSpec {
    Agent { name: String, rules: Rules },
    Server { spec: ServerSpec, agent: String },
}

/// The state of a node's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeState {
    Running,
    /// It handles nothing for now; inputs wait.
    Paused,
    Hung,
    Dead,
}

pub(crate) struct SimNode {
    pub(crate) host: HostId,
    pub(crate) role: Role,
    pub(crate) name: String,
    /// Its user, with their rights, and its host.
    pub(crate) origin: Origin,
    /// Address at which it can be dialled; empty for a client.
    pub(crate) address: String,
    /// Maximum number of tasks that it runs at a time.
    pub(crate) slots: u32,
    machine: AnyMachine,
    pub(crate) life: NodeState,
    /// The reason why it ended, once it is dead.
    pub(crate) end: Option<String>,
    /// How it is restarted; `None` if it cannot be.
    pub(crate) spec: Option<NodeSpec>,
    /// Time at which it was last resumed.
    pub(crate) resumed: Time,
    /// Time before which it accepts no data.
    pub(crate) full_until: Time,
    /// Inputs received while it was paused, with the digests of messages.
    waiting_inputs: VecDeque<(Input, u64)>,
    pub(crate) store: Store,
    /// The bytes that its program has stated to hold, if the host pages.
    program: Option<Hold>,
    /// Set timers, with the sequence number of the event that will fire them.
    timers: BTreeMap<Timer, u64>,
    /// Events that a client reported and that its program has not taken yet.
    events: VecDeque<Event>,
}

impl SimNode {
    pub(crate) fn new(host: HostId, role: Role, name: &str, address: String, slots: u32, machine: AnyMachine) -> Self {
        SimNode {
            host,
            role,
            name: name.to_string(),
            origin: Origin::default(),
            address,
            slots,
            machine,
            life: NodeState::Running,
            end: None,
            spec: None,
            resumed: Time::ZERO,
            full_until: Time::ZERO,
            waiting_inputs: VecDeque::new(),
            store: Store::default(),
            program: None,
            timers: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Sets how the node is restarted.
    pub(crate) fn restarting_as(self, spec: NodeSpec) -> SimNode {
        SimNode { spec: Some(spec), ..self }
    }

    /// Sets how many bytes of its store are in memory, if there is a disk for the others.
    pub(crate) fn with_disk(mut self, memory_bytes: Option<u64>) -> SimNode {
        self.store.set_memory(memory_bytes);
        self
    }

    /// Puts the values that are on its disk into its store.
    pub(crate) fn with_values(mut self, values: impl IntoIterator<Item = (DatumId, StoredValue)>) -> SimNode {
        values.into_iter().for_each(|(datum, value)| self.store.put(datum, value));
        self
    }

    /// Counts its values among the bytes that its host holds.
    pub(crate) fn count_in(&mut self, held: HeldBytes) {
        self.store.count_in(held);
    }

    /// Returns the bytes that its program has stated to hold; 0 if the host does not page.
    pub(crate) fn program_bytes(&self) -> u64 {
        self.program.as_ref().map_or(0, Hold::bytes)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.life == NodeState::Dead
    }

    /// Reports whether it accepts no data at this time.
    pub(crate) fn is_full(&self, now: Time) -> bool {
        now < self.full_until
    }

    /// Returns its client machine, if it is a client.
    pub(crate) fn client(&self) -> Option<&Client> {
        match &self.machine {
            AnyMachine::Client(client) => Some(client),
            AnyMachine::ClientWithAgent(both) => Some(both.client()),
            AnyMachine::Agent(_) | AnyMachine::Server(_) | AnyMachine::Other(_) => None,
        }
    }

    /// Reports whether it is a client that maps its calls itself.
    pub(crate) fn is_independent(&self) -> bool {
        matches!(self.machine, AnyMachine::ClientWithAgent(_))
    }

    /// Returns its server machine, if it is a server.
    pub(crate) fn server(&self) -> Option<&Server> {
        match &self.machine {
            AnyMachine::Server(server) => Some(server),
            _ => None,
        }
    }

    /// Returns its agent machine, if it is an agent.
    pub(crate) fn agent(&self) -> Option<&Agent> {
        match &self.machine {
            AnyMachine::Agent(agent) => Some(agent),
            _ => None,
        }
    }

    /// Ends the node. It then handles nothing more.
    fn end(&mut self, why: &str) {
        self.life = NodeState::Dead;
        self.end = Some(why.to_string());
        self.timers.clear();
        self.waiting_inputs.clear();
        self.store.release_memory();
        self.program = None;
    }

    /// Removes a timer that fires. Returns false if it was moved or cancelled since it was queued under that number.
    fn take_timer(&mut self, timer: Timer, sequence: u64) -> bool {
        let is_set = self.timers.get(&timer) == Some(&sequence);
        is_set && self.timers.remove(&timer).is_some()
    }
}

impl fmt::Debug for SimNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimNode").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

/// The view of a server that its tasks need.
pub(crate) struct ServerView<'a> {
    pub(crate) node: NodeId,
    pub(crate) name: &'a str,
    pub(crate) slots: u32,
    /// The engine's processors that represent its host and the host's disk.
    pub(crate) host: HostIndex,
    pub(crate) disk: HostIndex,
    /// Cost of starting a program there, in operations of its host.
    pub(crate) start_flops: f64,
    /// Its host's memory, if the host pages.
    pub(crate) memory: Option<&'a PagedMemory>,
    pub(crate) store: &'a mut Store,
}

/// All nodes that ever existed.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    all: Vec<SimNode>,
    /// The node that was started last at each address.
    listeners: BTreeMap<String, NodeId>,
    /// Nodes that restart when their host is on again.
    ended_with_host: BTreeSet<NodeId>,
}

impl Nodes {
    /// Returns the number of the next node: one more than its index.
    pub(crate) fn next_id(&self) -> NodeId {
        NodeId(self.all.len() as u64 + 1)
    }

    pub(crate) fn add(&mut self, node: SimNode) -> NodeId {
        let id = self.next_id();
        if !node.address.is_empty() {
            self.listeners.insert(node.address.clone(), id);
        }
        self.all.push(node);
        id
    }

    pub(crate) fn node(&self, node: NodeId) -> &SimNode {
        &self.all[node.0 as usize - 1]
    }

    /// Sets the user of a node, with their rights. Nodes that it is connected to do not notice.
    pub(crate) fn set_origin(&mut self, node: NodeId, origin: Origin) {
        let node = self.node_mut(node);
        node.origin = Origin { host: std::mem::take(&mut node.origin.host), ..origin };
    }

    /// Sets the rules with which an agent starts again.
    pub(crate) fn set_rules(&mut self, agent: NodeId, new: Rules) {
        if let Some(NodeSpec::Agent { rules, .. }) = &mut self.node_mut(agent).spec {
            *rules = new;
        }
    }

    fn node_mut(&mut self, node: NodeId) -> &mut SimNode {
        &mut self.all[node.0 as usize - 1]
    }

    /// Returns the input if a node handles it now. The inputs of a paused node wait; a node that has ended or hangs
    /// handles none. `digest` is that of the message, if it is one.
    pub(crate) fn admit(&mut self, node: NodeId, input: Input, digest: u64) -> Option<Input> {
        let state = self.node_mut(node);
        match state.life {
            NodeState::Running => Some(input),
            NodeState::Paused => {
                state.waiting_inputs.push_back((input, digest));
                None
            }
            NodeState::Hung | NodeState::Dead => None,
        }
    }

    /// Passes an admitted input to a node's machine.
    pub(crate) fn handle(&mut self, now: Time, node: NodeId, input: Input, effects: &mut Vec<Effect>) {
        self.node_mut(node).machine.handle(now, input, effects);
    }

    /// Adds an event that a client reports to its program.
    pub(crate) fn add_event(&mut self, client: NodeId, event: Event) {
        self.node_mut(client).events.push_back(event);
    }

    /// Takes the first event that a client has reported to its program.
    pub(crate) fn take_event(&mut self, client: NodeId) -> Option<Event> {
        self.node_mut(client).events.pop_front()
    }

    /// Puts a value into a node's store, unless the datum is there already.
    pub(crate) fn store_value(&mut self, kernel: &mut Kernel, node: NodeId, datum: DatumId, value: StoredValue) {
        kernel.record(|trace, now| trace.stored(now, node, datum, &value));
        self.node_mut(node).store.put(datum, value);
    }

    /// Sets the bytes that the program of a node holds itself. Has no effect if the host does not page, or the node has ended.
    pub(crate) fn hold(&mut self, hosts: &Hosts, node: NodeId, bytes: u64) {
        let state = self.node_mut(node);
        if let Some(memory) = hosts.memory(state.host).filter(|_| !state.is_dead()) {
            state.program = None;
            state.program = Some(memory.held.hold(bytes));
        }
    }

    /// Removes a value from a node's store.
    pub(crate) fn remove_value(&mut self, node: NodeId, datum: DatumId) {
        self.node_mut(node).store.remove(datum);
    }

    /// Sets how many bytes of some clients' data may be on the disk of a server.
    pub(crate) fn limit_disk(&mut self, node: NodeId, limits: Vec<DiskLimit>) {
        self.node_mut(node).store.limit_disk(limits);
    }

    /// Returns the bytes of each client that are on the disk of a server, if they have changed.
    pub(crate) fn take_on_disk(&mut self, node: NodeId) -> Option<Vec<(NodeId, u64)>> {
        self.node_mut(node).store.take_on_disk()
    }

    /// Sets a timer, which the event with this sequence number will fire.
    pub(crate) fn set_timer(&mut self, node: NodeId, timer: Timer, sequence: u64) {
        self.node_mut(node).timers.insert(timer, sequence);
    }

    pub(crate) fn cancel_timer(&mut self, node: NodeId, timer: Timer) {
        self.node_mut(node).timers.remove(&timer);
    }

    /// Removes a timer that fires. Returns false if it was moved or cancelled since it was queued under that number.
    pub(crate) fn take_timer(&mut self, node: NodeId, timer: Timer, sequence: u64) -> bool {
        self.node_mut(node).take_timer(timer, sequence)
    }

    /// Returns the view of a server that its tasks need.
    pub(crate) fn server_view<'a>(&'a mut self, hosts: &'a Hosts, node: NodeId) -> ServerView<'a> {
        let server = self.node_mut(node);
        ServerView {
            node,
            name: &server.name,
            slots: server.slots,
            host: HostIndex(server.host.0),
            disk: hosts.disk(server.host),
            start_flops: hosts.start_flops(server.host),
            memory: hosts.memory(server.host),
            store: &mut server.store,
        }
    }

    /// Ends a node. It then handles nothing more.
    pub(crate) fn end(&mut self, node: NodeId, why: &str) {
        self.node_mut(node).end(why);
    }

    /// Makes a node stop reacting.
    pub(crate) fn hang(&mut self, node: NodeId) {
        self.node_mut(node).life = NodeState::Hung;
    }

    /// Makes the inputs of a node wait.
    pub(crate) fn pause(&mut self, node: NodeId) {
        self.node_mut(node).life = NodeState::Paused;
    }

    /// Makes a paused node handle inputs again, beginning with those that have waited.
    pub(crate) fn resume(&mut self, node: NodeId, now: Time) {
        let state = self.node_mut(node);
        state.life = NodeState::Running;
        state.resumed = now;
    }

    /// Takes the first input that waited while a node was paused, with its digest.
    pub(crate) fn take_waiting_input(&mut self, node: NodeId) -> Option<(Input, u64)> {
        self.node_mut(node).waiting_inputs.pop_front()
    }

    /// Makes a node accept no data until the given time.
    pub(crate) fn fill(&mut self, node: NodeId, until: Time) {
        let state = self.node_mut(node);
        state.full_until = state.full_until.max(until);
    }

    /// Iterates over the nodes in start order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (NodeId, &SimNode)> + ExactSizeIterator {
        self.all.iter().enumerate().map(|(index, node)| (NodeId(index as u64 + 1), node))
    }

    /// Returns the last node that was started under a name.
    pub(crate) fn named(&self, name: &str) -> Option<NodeId> {
        self.iter().rev().find(|(_, node)| node.name == name).map(|(id, _)| id)
    }

    /// Returns the last node that was started at an address.
    pub(crate) fn listener(&self, address: &str) -> Option<NodeId> {
        self.listeners.get(address).copied()
    }

    pub(crate) fn is_dead(&self, node: NodeId) -> bool {
        self.node(node).is_dead()
    }

    pub(crate) fn is_running(&self, node: NodeId) -> bool {
        self.node(node).life == NodeState::Running
    }

    /// Returns the nodes on a host.
    pub(crate) fn nodes_on_host(&self, host: HostId) -> Vec<NodeId> {
        self.iter().filter(|(_, node)| node.host == host).map(|(id, _)| id).collect()
    }

    /// Records that a node has ended because its host is off. It restarts with the host.
    pub(crate) fn end_with_host(&mut self, node: NodeId) {
        self.ended_with_host.insert(node);
    }

    /// Takes the nodes that restart because their host is on, except those whose address was taken by another node since.
    pub(crate) fn take_ended_with_host(&mut self, host: HostId) -> Vec<NodeId> {
        let here: Vec<NodeId> =
            self.ended_with_host.iter().copied().filter(|node| self.node(*node).host == host).collect();
        self.ended_with_host.retain(|node| !here.contains(node));
        here.into_iter().filter(|node| self.listener(&self.node(*node).address) == Some(*node)).collect()
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self) {
        for (id, node) in self.iter() {
            let name = &node.name;
            assert_eq!(node.is_dead(), node.end.is_some(), "'{name}' is dead exactly if it has a reason");
            assert!(
                !node.is_dead() || node.timers.is_empty() && node.waiting_inputs.is_empty(),
                "'{name}' is dead but has waiting inputs"
            );
            assert!(
                node.life == NodeState::Paused || node.waiting_inputs.is_empty(),
                "'{name}' stalls inputs that it could handle"
            );
            assert!(node.is_dead() || !self.ended_with_host.contains(&id), "'{name}' is running but marked to restart");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Deaf;

    impl Machine for Deaf {
        type Input = Input;
        type Effect = Effect;
        fn handle(&mut self, _: Time, _: Input, _: &mut Vec<Effect>) {}
    }

    fn node(name: &str, address: &str) -> SimNode {
        let machine = AnyMachine::Other(Box::new(Deaf));
        SimNode::new(HostId(0), Role::Server, name, address.into(), 1, machine)
    }

    #[test]
    fn a_name_and_an_address_mean_the_last_node_that_bears_them() {
        let mut nodes = Nodes::default();
        let (first, second) = (nodes.add(node("s", "sim://a")), nodes.add(node("s", "sim://a")));
        assert_eq!((first, second), (NodeId(1), NodeId(2)));
        assert_eq!((nodes.named("s"), nodes.listener("sim://a")), (Some(second), Some(second)));
        for id in [first, second] {
            nodes.node_mut(id).end("an end");
            nodes.end_with_host(id);
        }
        nodes.check();
        assert_eq!(nodes.take_ended_with_host(HostId(0)), [second]);
        assert_eq!(nodes.take_ended_with_host(HostId(0)), []);
    }

    #[test]
    fn a_timer_fires_under_the_number_it_was_set_with_last() {
        let mut node = node("s", "sim://a");
        node.timers.insert(Timer::Numbered(3), 7);
        assert!(
            !node.take_timer(Timer::Numbered(3), 6)
                && node.take_timer(Timer::Numbered(3), 7)
                && !node.take_timer(Timer::Numbered(3), 7)
        );
    }
}
