//! Nodes that do not react: for ever, or for a while.

use gridloom_core::base::NodeId;

use crate::node::Life;
use crate::simulation::Simulation;

impl Simulation {
    /// Stops a node from reacting, its connections staying up.
    pub fn hang(&mut self, node: NodeId) {
        if self.node(node).life != Life::Running {
            return;
        }
        self.trace.fault(self.now, node, "hang");
        self.node_mut(node).life = Life::Hung;
        for peer in self.connections.peers(node) {
            self.clear_bulk(node, peer);
        }
    }

    /// Stops a node from reacting for a while: what comes waits until [`Simulation::resume`].
    pub fn pause(&mut self, node: NodeId) {
        if self.node(node).life == Life::Running {
            self.trace.fault(self.now, node, "pause");
            self.node_mut(node).life = Life::Paused;
        }
    }

    /// Lets a paused node handle what has come meanwhile, and go on.
    pub fn resume(&mut self, node: NodeId) {
        if self.node(node).life != Life::Paused {
            return;
        }
        self.trace.fault(self.now, node, "resume");
        let now = self.now;
        let state = self.node_mut(node);
        state.life = Life::Running;
        state.resumed = now;
        while let Some((input, digest)) = self.node_mut(node).stalled.pop_front() {
            self.handle(node, input, digest);
        }
    }
}
