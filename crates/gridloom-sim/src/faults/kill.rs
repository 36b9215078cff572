//! Nodes that end, and nodes that are restarted.

use gridloom_base::NodeId;

use crate::simulation::Simulation;

impl Simulation {
    /// Ends a node without warning: its connections break.
    pub fn kill(&mut self, node: NodeId) {
        self.end_node(node, "the process was killed");
    }

    /// Restarts an agent or a server in place: same host, name and address, a new identifier, nothing in its memory.
    /// If it still runs, it is killed first. Returns `None` for a client and for custom machines.
    pub fn restart(&mut self, node: NodeId) -> Option<NodeId> {
        let state = self.node(node);
        let (host, address, spec) = (state.host, state.address.clone(), state.spec.clone()?);
        self.kill(node);
        let anew = self.start_node(host, Some(address), spec);
        self.kernel.record(|trace, now| trace.fault(now, anew, "restart"));
        Some(anew)
    }

    /// Closes a client's session. The client is then gone, like one that was killed.
    pub fn close(&mut self, client: NodeId) {
        self.end_node(client, "the session was closed");
    }

    /// Reports whether a node has ended.
    pub fn is_dead(&self, node: NodeId) -> bool {
        self.nodes.is_dead(node)
    }

    /// Returns the reason why a node has ended, once it has.
    pub fn why_dead(&self, node: NodeId) -> Option<&str> {
        self.node(node).end.as_deref()
    }

    /// Ends a node. Its tasks stop, and its peers lose it once the data that it had sent has arrived.
    pub(crate) fn end_node(&mut self, node: NodeId, why: &str) {
        if self.is_dead(node) {
            return;
        }
        self.kernel.record(|trace, now| trace.fault(now, node, why));
        self.nodes.node_mut(node).end(why);
        self.tasks.end_all(&mut self.kernel, node);
        // It does not notify anybody of the transfers that break off with it.
        self.links.clear_all_bulk(&mut self.kernel, node);
        for peer in self.links.peers(node) {
            self.links.hang_up(&mut self.kernel, &mut self.routes, (node, peer), why);
        }
        self.end_session(node);
        self.end_files(node);
        // A process that waits for this node's events would otherwise wait forever.
        self.processes.wake_for_event(&mut self.kernel, node);
    }
}
