//! The nodes of a simulation for its users: how they are started and ended, their machines, their data and commands.

use std::sync::Arc;

use gridloom_base::time::seconds_to_ns;
use gridloom_base::{DatumId, Meta, NodeId, Rules};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Agent, Client, Command, Event, Input, Role, Server};
use gridloom_platform::HostId;

use super::Simulation;
use crate::grid::{Bodies, BoxedMachine, Files, HOST_IS_OFF};
use crate::store::StoredValue;

impl Simulation {
    /// Starts the agent.
    pub fn add_agent(&mut self, host: HostId, name: &str) -> NodeId {
        self.grid.add_agent(&mut self.environment, host, name)
    }

    /// Starts a server of the agent.
    ///
    /// # Panics
    /// If there is no agent yet.
    pub fn add_server(&mut self, host: HostId, spec: ServerSpec) -> NodeId {
        self.grid.add_server(&mut self.environment, host, spec)
    }

    /// Starts a client of the agent.
    ///
    /// # Panics
    /// If there is no agent yet.
    pub fn add_client(&mut self, host: HostId, name: &str) -> NodeId {
        self.grid.add_client(&mut self.environment, host, name)
    }

    /// Starts a client that has no agent and maps its calls itself, on the servers at those addresses.
    pub fn add_independent(&mut self, host: HostId, name: &str, servers: Vec<String>) -> NodeId {
        self.grid.add_independent(&mut self.environment, host, name, servers)
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
        self.grid.add_machine(&mut self.environment, (host, role), name, slots, make)
    }

    /// Sets the bodies of tasks, which are run when the tasks end. The tasks' times remain those of the model.
    pub fn set_bodies(&mut self, bodies: Box<dyn Bodies>) {
        self.grid.set_bodies(bodies);
    }

    /// Overrides the file parameters of a function.
    pub fn set_files(&mut self, function: &str, files: Files) {
        self.grid.set_files(function, files);
    }

    /// Puts a value into a node's store; `None` if its bytes are not simulated.
    pub fn put(&mut self, node: NodeId, datum: DatumId, meta: Meta, bytes: Option<Arc<[u8]>>) {
        self.grid.store_value(&mut self.environment.kernel, node, datum, StoredValue { meta, bytes });
    }

    /// Returns a value of a node's store.
    pub fn value(&self, node: NodeId, datum: DatumId) -> Option<(Meta, Option<Arc<[u8]>>)> {
        let value = self.grid.nodes().node(node).store.value(datum);
        value.map(|value| (value.meta.clone(), value.bytes.clone()))
    }

    /// Removes a value from a node's store and returns it.
    pub fn remove(&mut self, node: NodeId, datum: DatumId) -> Option<(Meta, Option<Arc<[u8]>>)> {
        let value = self.value(node, datum);
        self.grid.remove_value(node, datum);
        value
    }

    /// Sets the bytes that a client's program holds itself, besides the values of its calls. Has no effect on a host that does
    /// not page.
    pub fn hold(&mut self, client: NodeId, bytes: u64) {
        self.grid.hold(&self.environment, client, bytes);
    }

    /// Returns the nanoseconds that one access of a client's program to these bytes of its memory adds to its computation, at
    /// the full rate of the swap; 0 on a host that does not page. Accessed bytes beyond those that it holds count as
    /// held.
    pub fn paging_ns(&self, client: NodeId, accessed_bytes: u64) -> u64 {
        let node = self.grid.nodes().node(client);
        let paging_s =
            self.environment.hosts.memory(node.host).map_or(0.0, |memory| {
                memory.paging_s(accessed_bytes, accessed_bytes.saturating_sub(node.program_bytes()))
            });
        seconds_to_ns(paging_s)
    }

    /// Gives a client a command now.
    pub fn command(&mut self, client: NodeId, command: Command) {
        self.environment.kernel.deliver(client, Input::Command(command));
    }

    /// Gives an agent the rules of the grid, which it keeps when it is restarted.
    pub fn set_rules(&mut self, agent: NodeId, rules: Rules) {
        self.grid.set_rules(agent, rules.clone());
        self.command(agent, Command::SetRules { rules: Box::new(rules) });
    }

    /// Takes the first event that a client has reported to its program.
    pub fn take_event(&mut self, client: NodeId) -> Option<Event> {
        self.grid.take_event(client)
    }

    /// Ends a node without warning: its connections break.
    pub fn kill(&mut self, node: NodeId) {
        self.end_node(node, "the process was killed");
    }

    /// Restarts an agent or a server in place: same host, name and address, a new identifier, nothing in its memory.
    /// If it still runs, it is killed first. Returns `None` for a client and for custom machines.
    pub fn restart(&mut self, node: NodeId) -> Option<NodeId> {
        self.grid.nodes().node(node).spec.as_ref()?;
        self.kill(node);
        self.grid.start_again(&mut self.environment, node)
    }

    /// Closes a client's session. The client is then gone, like one that was killed.
    pub fn close(&mut self, client: NodeId) {
        self.end_node(client, "the session was closed");
    }

    /// Ends a node. A process that waits for its events is notified.
    pub(super) fn end_node(&mut self, node: NodeId, why: &str) {
        if self.grid.end(&mut self.environment, node, why) {
            self.programs.wake_for_event(&mut self.environment.kernel, node);
        }
    }

    /// Ends a node because its host is off.
    fn end_node_with_host(&mut self, node: NodeId) {
        if self.grid.end_with_host(&mut self.environment, node) {
            self.programs.wake_for_event(&mut self.environment.kernel, node);
        }
    }

    /// Turns a host off, as in a crash: everything that runs there ends.
    pub fn turn_off(&mut self, host: HostId) {
        if !self.environment.hosts.turn_off(host) {
            return;
        }
        self.grid.nodes().nodes_on_host(host).into_iter().for_each(|node| self.end_node_with_host(node));
        for process in self.programs.end_with_host(host) {
            self.kill_process(process, HOST_IS_OFF);
        }
    }

    /// Turns a host on: agent and servers restart, and so do processes that are configured to.
    pub fn turn_on(&mut self, host: HostId) {
        if !self.environment.hosts.turn_on(host) {
            return;
        }
        for node in self.grid.take_ended_with_host(host) {
            self.restart(node);
        }
        self.programs.start_with_host(&mut self.environment.kernel, host);
    }

    /// Reports whether a node has ended.
    pub fn is_dead(&self, node: NodeId) -> bool {
        self.grid.nodes().is_dead(node)
    }

    /// Returns the reason why a node has ended, once it has.
    pub fn why_dead(&self, node: NodeId) -> Option<&str> {
        self.grid.nodes().node(node).end.as_deref()
    }

    /// Returns the name of a node's host.
    pub fn host_of(&self, node: NodeId) -> &str {
        &self.platform().hosts()[self.grid.nodes().node(node).host.0 as usize].name
    }

    /// Returns the current speed of a node's host, operations per second.
    pub fn flops_of(&self, node: NodeId) -> f64 {
        self.environment.hosts.measured_flops(self.grid.nodes().node(node).host)
    }

    /// Returns the address at which a node can be dialled; empty for a client.
    pub fn address(&self, node: NodeId) -> &str {
        &self.grid.nodes().node(node).address
    }

    /// Returns the names of all nodes, in start order.
    pub fn names(&self) -> Vec<String> {
        self.grid.nodes().iter().map(|(_, node)| node.name.clone()).collect()
    }

    /// Returns the last node that was started under a name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.grid.nodes().named(name)
    }

    /// Returns the number of servers that have not ended.
    pub fn servers_alive(&self) -> usize {
        self.grid.nodes().iter().filter(|(_, node)| node.role == Role::Server && !node.is_dead()).count()
    }

    /// Returns the client machine of a node, if it is one.
    pub fn client(&self, node: NodeId) -> Option<&Client> {
        self.grid.nodes().node(node).client()
    }

    /// Returns the server machine of a node, if it is one.
    pub fn server(&self, node: NodeId) -> Option<&Server> {
        self.grid.nodes().node(node).server()
    }

    /// Iterates over the server machines, in node order.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        self.grid.nodes().iter().filter_map(|(_, node)| node.server())
    }

    /// Returns the agent machine of a node, if it is one.
    pub fn agent(&self, node: NodeId) -> Option<&Agent> {
        self.grid.nodes().node(node).agent()
    }
}
