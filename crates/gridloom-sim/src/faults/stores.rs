//! Stores that take nothing in, and disks on which nothing can be written.

use gridloom_base::NodeId;

use crate::simulation::Simulation;

impl Simulation {
    /// For so long a node takes no datum in, as one without memory or descriptors: each that comes is reported to it as
    /// broken. Its tasks still make their results, for which it has room set aside.
    pub fn fill(&mut self, node: NodeId, for_ns: u64) {
        self.kernel.note(|trace, now| trace.fault(now, node, "full"));
        let until = self.now() + for_ns;
        let state = self.nodes.node_mut(node);
        state.full_until = state.full_until.max(until);
    }

    /// For so long a server can write no durable data, also when it starts again.
    pub fn fill_disk(&mut self, node: NodeId, for_ns: u64) {
        self.kernel.note(|trace, now| trace.fault(now, node, "full disk"));
        let until = self.now() + for_ns;
        self.durable.fill(&self.nodes.node(node).name, until);
    }
}
