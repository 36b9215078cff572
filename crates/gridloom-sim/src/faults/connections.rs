//! Connections that break at both ends, or at one end.

use gridloom_base::NodeId;
use gridloom_core::node::Input;

use crate::simulation::Simulation;

impl Simulation {
    /// Breaks the connection between two nodes, if there is one. They may reconnect.
    pub fn reset(&mut self, a: NodeId, b: NodeId) {
        for (node, peer) in [(a, b), (b, a)] {
            self.forget_end(node, peer);
        }
    }

    /// Makes one node forget a connection, if there is one. The other notices when data that it sends is refused, when
    /// it is dialled again, or when it gives up after a silence.
    pub fn half_open(&mut self, forgets: NodeId, keeps: NodeId) {
        if self.forget_end(forgets, keeps) {
            self.links.leave_half_open(keeps, forgets);
        }
    }

    fn forget_end(&mut self, node: NodeId, peer: NodeId) -> bool {
        let was_there = self.links.drop_end(&mut self.kernel, &mut self.routes, node, peer);
        if was_there {
            self.kernel.record(|trace, now| trace.fault(now, node, "a connection was reset"));
            self.kernel.deliver(node, Input::PeerLost { peer, why: "the connection was reset".into() });
        }
        was_there
    }
}
