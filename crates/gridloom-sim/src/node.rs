//! A machine on its host, and what the world keeps for it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use gridloom_core::base::{Machine, NodeId, TaskId, Time};
use gridloom_core::flow::ActionId;
use gridloom_core::graph::Task;
use gridloom_core::node::{Agent, Client, Effect, Event, Independent, Input, Role, Server, TimerId};
use gridloom_core::platform::HostId;

use crate::population::Birth;
use crate::store::Store;

/// A machine of any kind: those of the grid, or a scripted one.
pub type BoxedMachine = Box<dyn Machine<Input = Input, Effect = Effect> + Send>;

/// A node's machine.
pub(crate) enum AnyMachine {
    Agent(Box<Agent>),
    Server(Box<Server>),
    Client(Box<Client>),
    Independent(Box<Independent>),
    Other(BoxedMachine),
}

impl AnyMachine {
    pub(crate) fn handle(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        match self {
            AnyMachine::Agent(agent) => agent.handle(now, input, effects),
            AnyMachine::Server(server) => server.handle(now, input, effects),
            AnyMachine::Client(client) => client.handle(now, input, effects),
            AnyMachine::Independent(client) => client.handle(now, input, effects),
            AnyMachine::Other(machine) => machine.handle(now, input, effects),
        }
    }
}

/// Whether a node reacts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Running,
    /// It handles nothing for now: what comes waits.
    Paused,
    Hung,
    Dead,
}

/// A task under way.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) action: ActionId,
    pub(crate) started: Time,
    /// Its time is over, and its body waits for what its program says.
    pub(crate) asking: Option<Arc<Task>>,
}

/// A node.
pub(crate) struct SimNode {
    pub(crate) host: HostId,
    pub(crate) role: Role,
    pub(crate) name: String,
    /// Where it can be dialled; empty for a client.
    pub(crate) address: String,
    /// Tasks that it may have started at a time.
    pub(crate) slots: u32,
    pub(crate) machine: AnyMachine,
    pub(crate) life: Life,
    /// Why it has ended, once it is dead.
    pub(crate) end: Option<String>,
    /// How it is started again; `None` if it cannot be.
    pub(crate) birth: Option<Birth>,
    /// When it was last resumed.
    pub(crate) resumed: Time,
    /// Until then it takes no datum in.
    pub(crate) full_until: Time,
    /// What came while it was paused, with the digests of messages.
    pub(crate) stalled: VecDeque<(Input, u64)>,
    pub(crate) store: Store,
    /// Timers set, with the sequence number of the occurrence that will fire them.
    pub(crate) timers: BTreeMap<TimerId, u64>,
    pub(crate) tasks: BTreeMap<TaskId, Running>,
    /// What a client told its program and the program has not taken yet.
    pub(crate) events: VecDeque<Event>,
}

impl SimNode {
    pub(crate) fn new(host: HostId, role: Role, name: &str, address: String, slots: u32, machine: AnyMachine) -> Self {
        SimNode {
            host,
            role,
            name: name.to_string(),
            address,
            slots,
            machine,
            life: Life::Running,
            end: None,
            birth: None,
            resumed: Time::ZERO,
            full_until: Time::ZERO,
            stalled: VecDeque::new(),
            store: Store::default(),
            timers: BTreeMap::new(),
            tasks: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }
}

impl fmt::Debug for SimNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimNode").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

/// The number of a node is one more than its index.
pub(crate) fn index(node: NodeId) -> usize {
    node.0 as usize - 1
}
