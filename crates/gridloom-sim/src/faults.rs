//! What is broken: nodes that are dead or hung, and pairs of hosts between which nothing passes.
//!
//! - *Killed*: the node is gone. What it had sent on control connections still arrives, then its peers lose it.
//! - *Hung*: it handles nothing and sends nothing more; its connections stay up and its running tasks run on, unheard.
//! - *Paused*: as hung, but what comes waits and is handled when the node is resumed.
//! - *Cut*: what is under way between the two hosts or sent from now on is swallowed; connections look up from both ends
//!   until somebody tires of the silence.
//!
//! **Not done.** Restart, healing, lossy or slow links.

use std::collections::BTreeSet;

use gridloom_core::base::{NodeId, Time};
use gridloom_core::node::Input;
use gridloom_core::platform::HostId;

use crate::node::Life;
use crate::simulation::{Occurrence, Simulation};

/// Pairs of hosts that are cut.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    pairs: BTreeSet<(HostId, HostId)>,
}

impl Cuts {
    pub(crate) fn contains(&self, a: HostId, b: HostId) -> bool {
        self.pairs.contains(&(a.min(b), a.max(b)))
    }
}

impl Simulation {
    /// Ends a node without warning: its connections break.
    pub fn kill(&mut self, node: NodeId) {
        self.end(node, "the process was killed");
    }

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
        self.node_mut(node).life = Life::Running;
        while let Some((input, digest)) = self.node_mut(node).stalled.pop_front() {
            self.handle(node, input, digest);
        }
    }

    /// Lets nothing pass any more between two hosts, in either direction.
    pub fn cut(&mut self, a: HostId, b: HostId) {
        self.trace.cut(self.now, a.0, b.0);
        self.cuts.pairs.insert((a.min(b), a.max(b)));
        for (from, to) in self.connections.pairs() {
            if self.is_cut(from, to) {
                self.clear_bulk(from, to);
            }
        }
    }

    /// Breaks the connection between two nodes, if there is one; they may connect anew.
    pub fn reset(&mut self, a: NodeId, b: NodeId) {
        for (node, peer) in [(a, b), (b, a)] {
            if self.drop_end(node, peer) {
                self.trace.fault(self.now, node, "a connection was reset");
                self.deliver(node, Input::PeerLost { peer, why: "the connection was reset".into() });
            }
        }
    }

    pub(crate) fn is_cut(&self, a: NodeId, b: NodeId) -> bool {
        self.cuts.contains(self.node(a).host, self.node(b).host)
    }

    /// A node ends: its tasks stop, and its peers lose it once what it had sent has arrived.
    pub(crate) fn end(&mut self, node: NodeId, why: &str) {
        if self.node(node).life == Life::Dead {
            return;
        }
        self.trace.fault(self.now, node, why);
        let state = self.node_mut(node);
        state.life = Life::Dead;
        state.timers.clear();
        for (_, task) in std::mem::take(&mut state.tasks) {
            self.purposes.remove(&task.action);
            self.synchronise();
            self.engine.cancel(task.action);
        }
        for peer in self.connections.peers(node) {
            self.hang_up(node, peer, why);
        }
    }

    /// Lets a peer know, behind all that was sent to it, that a connection is lost.
    pub(crate) fn notify_lost(&mut self, to: NodeId, peer: NodeId, connection: u64, behind: Time, why: &str) {
        let lost = Occurrence::Lost { node: to, peer, connection, why: why.to_string() };
        self.queue.push(behind, lost);
    }
}
