//! Connections that break at both ends, or at one.

use gridloom_core::base::NodeId;
use gridloom_core::node::Input;

use crate::simulation::Simulation;

impl Simulation {
    /// Breaks the connection between two nodes, if there is one; they may connect anew.
    pub fn reset(&mut self, a: NodeId, b: NodeId) {
        for (node, peer) in [(a, b), (b, a)] {
            self.forget_end(node, peer);
        }
    }

    /// Makes one node forget a connection, if there is one. The other notices when what it sends is refused, when it is
    /// dialled anew, or when it tires of the silence.
    pub fn half_open(&mut self, forgets: NodeId, keeps: NodeId) {
        if self.forget_end(forgets, keeps)
            && let Some(end) = self.connections.end_mut(keeps, forgets)
        {
            end.half_open = true;
        }
    }

    fn forget_end(&mut self, node: NodeId, peer: NodeId) -> bool {
        let was_there = self.drop_end(node, peer);
        if was_there {
            self.trace.fault(self.now, node, "a connection was reset");
            self.deliver(node, Input::PeerLost { peer, why: "the connection was reset".into() });
        }
        was_there
    }

    /// Something came to a node from a peer whose connection it has forgotten: the peer is told.
    pub(crate) fn refuse(&mut self, from: NodeId, to: NodeId) {
        let Some(end) = self.connections.end(from, to).filter(|end| end.half_open) else { return };
        let connection = end.connection;
        let heard = self.now + self.path(to, from).frame_latency_ns;
        self.notify_lost(from, to, connection, heard, "the peer refuses the connection");
    }
}
