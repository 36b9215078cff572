//! Stores that take nothing in.

use gridloom_core::base::NodeId;

use crate::simulation::Simulation;

impl Simulation {
    /// For so long a node takes no datum in, as one without memory or descriptors: each that comes is reported to it as
    /// broken. Its tasks still make their results, for which it has room set aside.
    pub fn fill(&mut self, node: NodeId, for_ns: u64) {
        self.trace.fault(self.now, node, "full");
        let until = self.now + for_ns;
        let state = self.node_mut(node);
        state.full_until = state.full_until.max(until);
    }

    pub(crate) fn is_full(&self, node: NodeId) -> bool {
        self.now < self.node(node).full_until
    }
}
