//! Nodes that end, and nodes that are started again.

use gridloom_base::NodeId;

use crate::simulation::Simulation;

impl Simulation {
    /// Ends a node without warning: its connections break.
    pub fn kill(&mut self, node: NodeId) {
        self.end(node, "the process was killed");
    }

    /// Starts an agent or a server anew where it was: same host, name and address, a new identifier, nothing in its
    /// memory. If it still runs, it is killed first. `None` for a client and for machines of the caller's making.
    pub fn restart(&mut self, node: NodeId) -> Option<NodeId> {
        let state = self.node(node);
        let (host, address, spec) = (state.host, state.address.clone(), state.spec.clone()?);
        self.kill(node);
        let anew = self.start_node(host, Some(address), spec);
        self.kernel.note(|trace, now| trace.fault(now, anew, "restart"));
        Some(anew)
    }

    /// A client's session is closed: it is gone, as one that was killed.
    pub fn close(&mut self, client: NodeId) {
        self.end(client, "the session was closed");
    }

    /// Whether a node has ended.
    pub fn is_dead(&self, node: NodeId) -> bool {
        self.nodes.is_dead(node)
    }

    /// Why a node has ended, once it has.
    pub fn why_dead(&self, node: NodeId) -> Option<&str> {
        self.node(node).end.as_deref()
    }

    /// A node ends: its tasks stop, and its peers lose it once what it had sent has arrived.
    pub(crate) fn end(&mut self, node: NodeId, why: &str) {
        if self.is_dead(node) {
            return;
        }
        self.kernel.note(|trace, now| trace.fault(now, node, why));
        self.nodes.node_mut(node).end(why);
        self.tasks.end_all(&mut self.kernel, node);
        // It tells nobody what breaks off with it.
        self.links.clear_all_bulk(&mut self.kernel, node);
        for peer in self.links.peers(node) {
            self.links.hang_up(&mut self.kernel, &mut self.routes, (node, peer), why);
        }
        self.end_session(node);
        self.end_files(node);
        // Nothing will come for a process that waits for its events.
        self.processes.wake_for_event(&mut self.kernel, node);
    }
}
