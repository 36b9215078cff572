//! Nodes that end, and nodes that are started again.

use gridloom_core::base::{NodeId, Time};

use crate::node::Life;
use crate::simulation::{Occurrence, Simulation};

impl Simulation {
    /// Ends a node without warning: its connections break.
    pub fn kill(&mut self, node: NodeId) {
        self.end(node, "the process was killed");
    }

    /// Starts an agent or a server anew where it was: same host, name and address, a new identifier, nothing in its
    /// memory. If it still runs, it is killed first. `None` for a client and for machines of the caller's making.
    pub fn restart(&mut self, node: NodeId) -> Option<NodeId> {
        let state = self.node(node);
        let (host, address, birth) = (state.host, state.address.clone(), state.birth.clone()?);
        self.kill(node);
        let anew = self.bear(host, Some(address), birth);
        self.trace.fault(self.now, anew, "restart");
        Some(anew)
    }

    /// A client's session is closed: it is gone, as one that was killed.
    pub fn close(&mut self, client: NodeId) {
        self.end(client, "the session was closed");
    }

    /// Whether a node has ended.
    pub fn is_dead(&self, node: NodeId) -> bool {
        self.node(node).life == Life::Dead
    }

    /// Why a node has ended, once it has.
    pub fn why_dead(&self, node: NodeId) -> Option<&str> {
        self.node(node).end.as_deref()
    }

    /// A node ends: its tasks stop, and its peers lose it once what it had sent has arrived.
    pub(crate) fn end(&mut self, node: NodeId, why: &str) {
        if self.node(node).life == Life::Dead {
            return;
        }
        self.trace.fault(self.now, node, why);
        let state = self.node_mut(node);
        state.life = Life::Dead;
        state.end = Some(why.to_string());
        state.timers.clear();
        state.stalled.clear();
        for (id, task) in std::mem::take(&mut state.tasks) {
            self.synchronise();
            self.abandon(id, &task);
        }
        for peer in self.connections.peers(node) {
            self.hang_up(node, peer, why);
        }
        // Nothing will come for who waits for its events.
        self.wake_for_event(node);
    }

    /// Lets a peer know, behind all that was sent to it, that a connection is lost.
    pub(crate) fn notify_lost(&mut self, to: NodeId, peer: NodeId, connection: u64, behind: Time, why: &str) {
        let lost = Occurrence::Lost { node: to, peer, connection, why: why.to_string() };
        self.queue.push(behind, lost);
    }
}
