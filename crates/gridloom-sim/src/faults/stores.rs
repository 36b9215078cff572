//! Stores that accept no data, and disks on which nothing can be written.

use gridloom_base::NodeId;

use crate::simulation::Simulation;

impl Simulation {
    /// Makes a node reject data for `for_ns`, like a node without memory or descriptors: each datum that arrives is
    /// reported to it as broken. Its tasks still produce their results, for which it has reserved room.
    pub fn fill(&mut self, node: NodeId, for_ns: u64) {
        self.kernel.record(|trace, now| trace.fault(now, node, "full"));
        let until = self.now() + for_ns;
        let state = self.nodes.node_mut(node);
        state.full_until = state.full_until.max(until);
    }

    /// Prevents a server from writing durable data for `for_ns`, even after a restart.
    pub fn fill_disk(&mut self, node: NodeId, for_ns: u64) {
        self.kernel.record(|trace, now| trace.fault(now, node, "full disk"));
        let until = self.now() + for_ns;
        self.durable.fill(&self.nodes.node(node).name, until);
    }
}
