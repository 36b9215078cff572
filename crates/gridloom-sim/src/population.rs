//! Starts and restarts nodes.

use gridloom_base::NodeId;
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{
    Agent, AgentConfig, Client, ClientConfig, ClientWithAgent, ClientWithAgentConfig, Input, Role, Server, ServerConfig,
};
use gridloom_platform::HostId;

use crate::disk::Files;
use crate::nodes::{AnyMachine, BoxedMachine, NodeSpec, SimNode};
use crate::observe::Observation;
use crate::simulation::Simulation;

impl Simulation {
    /// Starts the agent.
    pub fn add_agent(&mut self, host: HostId, name: &str) -> NodeId {
        self.start_node(host, None, NodeSpec::Agent { name: name.to_string() })
    }

    /// Starts a server of the agent.
    ///
    /// # Panics
    /// If there is no agent yet.
    pub fn add_server(&mut self, host: HostId, spec: ServerSpec) -> NodeId {
        let agent = self.agent_address();
        self.start_node(host, None, NodeSpec::Server { spec, agent })
    }

    /// Starts a client of the agent.
    ///
    /// # Panics
    /// If there is no agent yet.
    pub fn add_client(&mut self, host: HostId, name: &str) -> NodeId {
        let (id, agent) = (self.nodes.next_id(), self.agent_address());
        let config = ClientConfig { id, name: name.to_string(), agent, is_in_call: false };
        let machine = AnyMachine::Client(Box::new(Client::new(config)));
        self.add_node(SimNode::new(host, Role::Client, name, String::new(), 0, machine))
    }

    /// Starts a client that has no agent and maps its calls itself, on the servers at those addresses.
    pub fn add_independent(&mut self, host: HostId, name: &str, servers: Vec<String>) -> NodeId {
        let config = ClientWithAgentConfig { id: self.nodes.next_id(), name: name.to_string(), servers };
        let machine = AnyMachine::ClientWithAgent(Box::new(ClientWithAgent::new(config)));
        self.add_node(SimNode::new(host, Role::Client, name, String::new(), 0, machine))
    }

    /// Starts a custom machine, which gets its identifier and the address at which it can be dialled.
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
        let machine = AnyMachine::Other(make(self.nodes.next_id(), &address));
        self.add_node(SimNode::new(host, role, name, address, slots, machine))
    }

    /// Starts an agent or a server at a given or a new address.
    pub(crate) fn start_node(&mut self, host: HostId, address: Option<String>, spec: NodeSpec) -> NodeId {
        let address = address.unwrap_or_else(|| self.new_address(host));
        let id = self.nodes.next_id();
        let node = match spec.clone() {
            NodeSpec::Agent { name } => {
                let machine =
                    AnyMachine::Agent(Box::new(Agent::new(AgentConfig { id, name: name.clone(), is_shared: true })));
                SimNode::new(host, Role::Agent, &name, address, u32::MAX, machine)
            }
            NodeSpec::Server { spec, agent } => {
                let ServerSpec { name, slots, is_stateless: plain, memory_bytes, functions } = spec;
                for definition in &functions {
                    let signature = &definition.signature;
                    self.tasks.describe_files(&signature.name, Files::of(definition));
                }
                let functions = functions.into_iter().map(|definition| definition.signature).collect();
                let (own_name, own_address, queue_depth) = (name.clone(), address.clone(), 1);
                let models = Default::default();
                let written = self.durable.start(self.now(), &name);
                let durable = Some(written.iter().map(|(named, _)| named.clone()).collect());
                let storage = self.storages.of(host);
                let config = ServerConfig {
                    id,
                    name,
                    address,
                    agent,
                    slots,
                    queue_depth,
                    is_stateless: plain,
                    memory_bytes,
                    data_max: u64::MAX,
                    slowdown: 1.0,
                    functions,
                    code_hashes: Default::default(),
                    models,
                    durable,
                    storage,
                };
                let machine = AnyMachine::Server(Box::new(Server::new(config)));
                let mut node = SimNode::new(host, Role::Server, &own_name, own_address, slots, machine);
                written.into_iter().for_each(|(named, value)| node.store.put(named.datum, value));
                node
            }
        };
        self.add_node(SimNode { spec: Some(spec), ..node })
    }

    /// Returns the address at which a node can be dialled; empty for a client.
    pub fn address(&self, node: NodeId) -> &str {
        &self.node(node).address
    }

    /// Returns the number of servers that have not ended.
    pub fn servers_alive(&self) -> usize {
        self.nodes.iter().filter(|(_, node)| node.role == Role::Server && !node.is_dead()).count()
    }

    /// Returns the client machine of a node, if it is one.
    pub fn client(&self, node: NodeId) -> Option<&Client> {
        match &self.node(node).machine {
            AnyMachine::Client(client) => Some(client),
            AnyMachine::ClientWithAgent(both) => Some(both.client()),
            AnyMachine::Agent(_) | AnyMachine::Server(_) | AnyMachine::Other(_) => None,
        }
    }

    /// Reports whether a node is a client that maps its calls itself.
    pub fn is_independent(&self, node: NodeId) -> bool {
        matches!(self.node(node).machine, AnyMachine::ClientWithAgent(_))
    }

    /// Returns the server machine of a node, if it is one.
    pub fn server(&self, node: NodeId) -> Option<&Server> {
        match &self.node(node).machine {
            AnyMachine::Server(server) => Some(server),
            _ => None,
        }
    }

    /// Iterates over the server machines, in node order.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter_map(|(_, node)| match &node.machine {
            AnyMachine::Server(server) => Some(&**server),
            _ => None,
        })
    }

    /// Returns the agent machine of a node, if it is one.
    pub fn agent(&self, node: NodeId) -> Option<&Agent> {
        match &self.node(node).machine {
            AnyMachine::Agent(agent) => Some(agent),
            _ => None,
        }
    }

    fn add_node(&mut self, node: SimNode) -> NodeId {
        let (id, host) = (self.nodes.next_id(), node.host);
        self.kernel.observe(|| Observation::Node { node: id, name: &node.name, host });
        self.nodes.add(node);
        self.kernel.deliver(id, Input::Start);
        if self.hosts.is_off(host) {
            self.end_with_host(id);
        }
        id
    }

    fn new_address(&self, host: HostId) -> String {
        format!("sim://{}:{}", self.platform.hosts()[host.0 as usize].name, self.nodes.next_id().0)
    }

    fn agent_address(&self) -> String {
        let agent = self.nodes.iter().find(|(_, node)| node.role == Role::Agent);
        agent.expect("the agent is started before its servers and clients").1.address.clone()
    }
}
