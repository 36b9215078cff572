//! Nodes: how they are started, and started again.

use gridloom_core::base::NodeId;
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{
    Agent, AgentConfig, Client, ClientConfig, Independent, IndependentConfig, Input, Role, Server, ServerConfig,
};
use gridloom_core::platform::HostId;

use crate::disk::Files;
use crate::node::{AnyMachine, BoxedMachine, Life, SimNode};
use crate::observe::Seen;
use crate::simulation::Simulation;

/// What is needed to start a node again.
#[derive(Clone, Debug)]
pub(crate) enum Birth {
    Agent { name: String },
    Server { spec: ServerSpec, agent: String },
}

impl Simulation {
    /// Starts the agent.
    pub fn add_agent(&mut self, host: HostId, name: &str) -> NodeId {
        self.bear(host, None, Birth::Agent { name: name.to_string() })
    }

    /// Starts a server of the agent.
    ///
    /// # Panics
    /// If there is no agent yet.
    pub fn add_server(&mut self, host: HostId, spec: ServerSpec) -> NodeId {
        let agent = self.agent_address();
        self.bear(host, None, Birth::Server { spec, agent })
    }

    /// Starts a client of the agent.
    ///
    /// # Panics
    /// If there is no agent yet.
    pub fn add_client(&mut self, host: HostId, name: &str) -> NodeId {
        let config = ClientConfig { id: self.next_id(), name: name.to_string(), agent: self.agent_address() };
        let machine = AnyMachine::Client(Box::new(Client::new(config)));
        self.settle(SimNode::new(host, Role::Client, name, String::new(), 0, machine))
    }

    /// Starts a client that has no agent and maps by itself, on the servers at those addresses.
    pub fn add_independent(&mut self, host: HostId, name: &str, servers: Vec<String>) -> NodeId {
        let config = IndependentConfig { id: self.next_id(), name: name.to_string(), servers };
        let machine = AnyMachine::Independent(Box::new(Independent::new(config)));
        self.settle(SimNode::new(host, Role::Client, name, String::new(), 0, machine))
    }

    /// Starts a machine of the caller's making, which gets its identifier and the address where it can be dialled.
    pub fn add_machine(
        &mut self,
        host: HostId,
        role: Role,
        name: &str,
        slots: u32,
        make: impl FnOnce(NodeId, &str) -> BoxedMachine,
    ) -> NodeId {
        let address = match role {
            Role::Client => String::new(),
            Role::Agent | Role::Server => self.new_address(host),
        };
        let machine = AnyMachine::Other(make(self.next_id(), &address));
        self.settle(SimNode::new(host, role, name, address, slots, machine))
    }

    /// Starts an agent or a server, at that address or at a new one.
    pub(crate) fn bear(&mut self, host: HostId, address: Option<String>, birth: Birth) -> NodeId {
        let address = address.unwrap_or_else(|| self.new_address(host));
        let id = self.next_id();
        let node = match birth.clone() {
            Birth::Agent { name } => {
                let machine = AnyMachine::Agent(Box::new(Agent::new(AgentConfig { id, name: name.clone() })));
                SimNode::new(host, Role::Agent, &name, address, u32::MAX, machine)
            }
            Birth::Server { spec, agent } => {
                let ServerSpec { name, slots, plain, memory_bytes, functions } = spec;
                for definition in &functions {
                    let name = &definition.signature.name;
                    if !self.files.contains_key(name) {
                        self.set_files(name, Files::of(&definition.signature));
                    }
                }
                let functions = functions.into_iter().map(|definition| definition.signature).collect();
                let (own_name, own_address, queue_depth) = (name.clone(), address.clone(), 1);
                let models = Default::default();
                let config = ServerConfig {
                    id,
                    name,
                    address,
                    agent,
                    slots,
                    queue_depth,
                    plain,
                    memory_bytes,
                    slowdown: 1.0,
                    functions,
                    models,
                };
                let machine = AnyMachine::Server(Box::new(Server::new(config)));
                SimNode::new(host, Role::Server, &own_name, own_address, slots, machine)
            }
        };
        self.settle(SimNode { birth: Some(birth), ..node })
    }

    /// Where a node can be dialled; empty for a client.
    pub fn address(&self, node: NodeId) -> &str {
        &self.node(node).address
    }

    /// How many servers have not ended.
    pub fn servers_alive(&self) -> usize {
        self.nodes.iter().filter(|node| node.role == Role::Server && node.life != Life::Dead).count()
    }

    /// The client machine of a node, if it is one.
    pub fn client(&self, node: NodeId) -> Option<&Client> {
        match &self.node(node).machine {
            AnyMachine::Client(client) => Some(client),
            AnyMachine::Independent(independent) => Some(independent.client()),
            AnyMachine::Agent(_) | AnyMachine::Server(_) | AnyMachine::Other(_) => None,
        }
    }

    /// The server machine of a node, if it is one.
    pub fn server(&self, node: NodeId) -> Option<&Server> {
        match &self.node(node).machine {
            AnyMachine::Server(server) => Some(server),
            _ => None,
        }
    }

    /// The server machines, in order of their nodes.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter_map(|node| match &node.machine {
            AnyMachine::Server(server) => Some(&**server),
            _ => None,
        })
    }

    /// The agent machine of a node, if it is one.
    pub fn agent(&self, node: NodeId) -> Option<&Agent> {
        match &self.node(node).machine {
            AnyMachine::Agent(agent) => Some(agent),
            _ => None,
        }
    }

    fn settle(&mut self, node: SimNode) -> NodeId {
        let id = self.next_id();
        if !node.address.is_empty() {
            self.listeners.insert(node.address.clone(), id);
        }
        self.watch.see(self.now, || Seen::Node { node: id, name: &node.name, host: node.host });
        let host = node.host;
        self.nodes.push(node);
        self.deliver(id, Input::Start);
        if self.is_off(host) {
            self.fell(id);
        }
        id
    }

    fn next_id(&self) -> NodeId {
        NodeId(self.nodes.len() as u64 + 1)
    }

    fn new_address(&self, host: HostId) -> String {
        format!("sim://{}:{}", self.platform.hosts()[host.0 as usize].name, self.next_id().0)
    }

    fn agent_address(&self) -> String {
        let agent = self.nodes.iter().find(|node| node.role == Role::Agent);
        agent.expect("the agent is started before its servers and clients").address.clone()
    }
}
