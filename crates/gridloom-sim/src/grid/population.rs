//! Starts and restarts nodes.

use gridloom_base::{NodeId, Origin, Rules};
use gridloom_core::data::IdentifierKey;
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{
    Agent, AgentConfig, Client, ClientConfig, ClientWithAgent, ClientWithAgentConfig, Input, Role, Server, ServerConfig,
};
use gridloom_platform::HostId;

use super::Grid;
use super::disk::Files;
use super::nodes::{AnyMachine, BoxedMachine, NodeSpec, SimNode};
use crate::environment::Environment;
use crate::observe::Observation;

/// The reason why nodes and processes end with their host.
pub(crate) const HOST_IS_OFF: &str = "its host is off";

impl Grid {
    /// Starts the agent.
    pub(crate) fn add_agent(&mut self, environment: &mut Environment, host: HostId, name: &str) -> NodeId {
        self.start(environment, host, None, NodeSpec::Agent { name: name.to_string(), rules: Rules::default() })
    }

    /// Starts a server of the agent.
    pub(crate) fn add_server(&mut self, environment: &mut Environment, host: HostId, spec: ServerSpec) -> NodeId {
        let agent = self.agent_address();
        self.start(environment, host, None, NodeSpec::Server { spec, agent })
    }

    /// Starts a client of the agent.
    pub(crate) fn add_client(&mut self, environment: &mut Environment, host: HostId, name: &str) -> NodeId {
        let (id, agent) = (self.nodes.next_id(), self.agent_address());
        let config = ClientConfig { id, name: name.to_string(), agent, is_in_call: false };
        let machine = AnyMachine::Client(Box::new(Client::new(config)));
        self.add(environment, SimNode::new(host, Role::Client, name, String::new(), 0, machine))
    }

    /// Starts the client through which the functions of a server get and put shared data.
    pub(super) fn add_session_client(&mut self, environment: &mut Environment, server: NodeId) -> NodeId {
        let (host, name) = (self.nodes.node(server).host, format!("functions of {}", self.nodes.node(server).name));
        let client = self.add_client(environment, host, &name);
        self.set_origin(client, Origin { user: name, is_functions: true, ..Origin::default() });
        client
    }

    /// Starts a client that has no agent and maps its calls itself, on the servers at those addresses.
    pub(crate) fn add_independent(
        &mut self,
        environment: &mut Environment,
        host: HostId,
        name: &str,
        servers: Vec<String>,
    ) -> NodeId {
        let config = ClientWithAgentConfig { id: self.nodes.next_id(), name: name.to_string(), servers };
        let machine = AnyMachine::ClientWithAgent(Box::new(ClientWithAgent::new(config)));
        self.add(environment, SimNode::new(host, Role::Client, name, String::new(), 0, machine))
    }

    /// Starts a custom machine, which gets its identifier and the address at which it can be dialled.
    pub(crate) fn add_machine(
        &mut self,
        environment: &mut Environment,
        (host, role): (HostId, Role),
        name: &str,
        slots: u32,
        make: impl FnOnce(NodeId, &str) -> BoxedMachine,
    ) -> NodeId {
        let address = match role {
            Role::Client => String::new(),
            Role::Agent | Role::Server => self.new_address(environment, host),
        };
        let machine = AnyMachine::Other(make(self.nodes.next_id(), &address));
        self.add(environment, SimNode::new(host, role, name, address, slots, machine))
    }

    /// Starts a node that has ended again, with the same host, name and address, and a new identifier. Returns `None`
    /// for a client and for custom machines.
    pub(crate) fn start_again(&mut self, environment: &mut Environment, node: NodeId) -> Option<NodeId> {
        let state = self.nodes.node(node);
        let (host, address, spec) = (state.host, state.address.clone(), state.spec.clone()?);
        let anew = self.start(environment, host, Some(address), spec);
        environment.kernel.record(|trace, now| trace.fault(now, anew, "restart"));
        Some(anew)
    }

    /// Starts an agent or a server at a given or a new address.
    fn start(
        &mut self,
        environment: &mut Environment,
        host: HostId,
        address: Option<String>,
        spec: NodeSpec,
    ) -> NodeId {
        let address = address.unwrap_or_else(|| self.new_address(environment, host));
        let id = self.nodes.next_id();
        let node = match spec.clone() {
            NodeSpec::Agent { name, rules } => {
                let config =
                    AgentConfig { id, name: name.clone(), is_shared: true, identifier_key: identifier_key(id) };
                let usage = self.usage.get(&name).cloned().unwrap_or_default();
                let agent = Agent::new(config).with_usage(usage).with_rules(rules);
                let machine = AnyMachine::Agent(Box::new(agent));
                SimNode::new(host, Role::Agent, &name, address, u32::MAX, machine)
            }
            NodeSpec::Server { spec, agent } => {
                let ServerSpec { name, slots, is_stateless: plain, memory_bytes, disk_bytes, functions } = spec;
                for definition in &functions {
                    let signature = &definition.signature;
                    self.calls.describe_files(&signature.name, Files::of(definition));
                }
                let functions = functions.into_iter().map(|definition| definition.signature).collect();
                let (own_name, own_address, queue_depth) = (name.clone(), address.clone(), 1);
                let models = Default::default();
                let (written, damaged) = self.durable.start(environment.kernel.now(), &name);
                let durable = Some(written.iter().map(|(named, _)| named.clone()).collect());
                let storage = self.storages.of(host);
                let config = ServerConfig {
                    id,
                    name,
                    address,
                    agent,
                    slots,
                    cores: environment.platform.hosts()[host.0 as usize].cores,
                    queue_depth,
                    is_stateless: plain,
                    memory_bytes,
                    disk_bytes,
                    data_max: u64::MAX,
                    slowdown: 1.0,
                    separation: Default::default(),
                    functions,
                    code_hashes: Default::default(),
                    models,
                    durable,
                    damaged,
                    storage,
                };
                let machine = AnyMachine::Server(Box::new(Server::new(config)));
                let values = written.into_iter().map(|(named, value)| (named.datum, value));
                let node = SimNode::new(host, Role::Server, &own_name, own_address, slots, machine);
                let in_memory_bytes = memory_bytes.saturating_sub(disk_bytes);
                node.with_disk((disk_bytes > 0).then_some(in_memory_bytes)).with_values(values)
            }
        };
        self.add(environment, node.restarting_as(spec))
    }

    /// Ends a node because its host is off. It restarts with the host, if it can. Returns false if it had ended before.
    pub(crate) fn end_with_host(&mut self, environment: &mut Environment, node: NodeId) -> bool {
        let has_ended = self.end(environment, node, HOST_IS_OFF);
        if has_ended {
            self.nodes.end_with_host(node);
        }
        has_ended
    }

    /// Takes the nodes that restart because their host is on.
    pub(crate) fn take_ended_with_host(&mut self, host: HostId) -> Vec<NodeId> {
        self.nodes.take_ended_with_host(host)
    }

    fn add(&mut self, environment: &mut Environment, mut node: SimNode) -> NodeId {
        let (id, host) = (self.nodes.next_id(), node.host);
        node.origin.host.clone_from(&environment.platform.hosts()[host.0 as usize].name);
        if let Some(memory) = environment.hosts.memory(host) {
            node.count_in(memory.held.clone());
        }
        environment.kernel.observe(|| Observation::Node { node: id, name: &node.name, host });
        self.nodes.add(node);
        environment.kernel.deliver(id, Input::Start);
        if environment.hosts.is_off(host) {
            self.end_with_host(environment, id);
        }
        id
    }

    fn new_address(&self, environment: &Environment, host: HostId) -> String {
        format!("sim://{}:{}", environment.platform.hosts()[host.0 as usize].name, self.nodes.next_id().0)
    }

    fn agent_address(&self) -> String {
        let agent = self.nodes.iter().find(|(_, node)| node.role == Role::Agent);
        agent.expect("the agent is started before its servers and clients").1.address.clone()
    }
}

/// Returns the key of an agent: another one for each start.
fn identifier_key(agent: NodeId) -> IdentifierKey {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&agent.0.to_le_bytes());
    IdentifierKey(key)
}
