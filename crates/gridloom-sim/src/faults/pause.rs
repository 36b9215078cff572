//! Nodes that do not react, forever or for a while.

use gridloom_base::NodeId;

use crate::nodes::NodeState;
use crate::simulation::Simulation;

impl Simulation {
    /// Makes a node stop reacting. Its connections stay up.
    pub fn hang(&mut self, node: NodeId) {
        if !self.nodes.is_running(node) {
            return;
        }
        self.kernel.record(|trace, now| trace.fault(now, node, "hang"));
        self.nodes.node_mut(node).life = NodeState::Hung;
        self.links.clear_all_bulk(&mut self.kernel, node);
    }

    /// Makes a node stop reacting for a while. Its inputs wait until [`Simulation::resume`].
    pub fn pause(&mut self, node: NodeId) {
        if self.nodes.is_running(node) {
            self.kernel.record(|trace, now| trace.fault(now, node, "pause"));
            self.nodes.node_mut(node).life = NodeState::Paused;
        }
    }

    /// Resumes a paused node, which then handles the inputs that waited.
    pub fn resume(&mut self, node: NodeId) {
        if self.node(node).life != NodeState::Paused {
            return;
        }
        self.kernel.record(|trace, now| trace.fault(now, node, "resume"));
        let now = self.now();
        let state = self.nodes.node_mut(node);
        state.life = NodeState::Running;
        state.resumed = now;
        while let Some((input, digest)) = self.nodes.node_mut(node).waiting_inputs.pop_front() {
            self.handle(node, input, digest);
        }
    }
}
