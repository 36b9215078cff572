//! Connections come and go.
//!
//! ```text
//! dialler                         dialled
//!    |--- one round trip ------------|
//!  PeerUp                          PeerUp      at the same time
//!    | messages ===================> |
//!  hangs up or dies                  |
//!    |------- behind what was sent ->|
//!                                  PeerLost
//! ```

use gridloom_core::base::limits::DIAL_NS_MAX;
use gridloom_core::base::{NodeId, Time};
use gridloom_core::node::Input;

use crate::node::Life;
use crate::simulation::{Occurrence, Simulation};

impl Simulation {
    /// What is found at the other end is decided when the dial has come back.
    pub(crate) fn dial(&mut self, dialler: NodeId, address: String) {
        let target = self.listener(&address);
        let hosts = target.map(|target| (self.node(dialler).host, self.node(target).host));
        let round_trip_ns = hosts.map_or(0, |(here, there)| {
            let ways = [self.paths.between(here, there), self.paths.between(there, here)];
            ways.iter().flatten().map(|path| path.frame_latency_ns).sum()
        });
        let began = self.now;
        self.queue.push(self.now + round_trip_ns, Occurrence::Dialled { dialler, address, began });
    }

    pub(crate) fn on_dialled(&mut self, dialler: NodeId, address: String, began: Time) {
        let Some(target) = self.listener(&address).filter(|target| *target != dialler) else {
            return self.dial_failed(dialler, address, self.now, "nobody listens there");
        };
        let (here, there) = (self.node(dialler).host, self.node(target).host);
        let ways = self.paths.between(here, there).and_then(|_| self.paths.between(there, here));
        if let Err(why) = ways {
            return self.dial_failed(dialler, address, self.now, &why);
        }
        let patience = self.now.max(began + DIAL_NS_MAX);
        if self.is_lost(dialler, target) || self.is_lost(target, dialler) {
            return self.dial_failed(dialler, address, patience, "no answer");
        }
        match self.node(target).life {
            Life::Dead => self.dial_failed(dialler, address, self.now, "connection refused"),
            Life::Hung | Life::Paused => self.dial_failed(dialler, address, patience, "no answer"),
            Life::Running if self.node(dialler).life == Life::Running => self.connect(dialler, target, address),
            Life::Running => {}
        }
    }

    fn dial_failed(&mut self, dialler: NodeId, address: String, at: Time, why: &str) {
        self.dial_ended(dialler, Input::DialFailed { address, why: why.to_string(), connected: None }, at);
    }

    fn dial_ended(&mut self, dialler: NodeId, input: Input, at: Time) {
        let input = Box::new(input);
        self.queue.push(at, Occurrence::Deliver { node: dialler, input });
    }

    fn connect(&mut self, dialler: NodeId, target: NodeId, address: String) {
        let [ours, theirs] = [(dialler, target), (target, dialler)].map(|(a, b)| self.connections.end(a, b).is_some());
        if ours && theirs {
            let why = "who answers there is connected already".to_string();
            let input = Input::DialFailed { address, why, connected: Some(target) };
            return self.dial_ended(dialler, input, self.now);
        }
        // One end may not have heard yet that the other has hung up.
        for (node, peer) in [(dialler, target), (target, dialler)] {
            if self.drop_end(node, peer) {
                self.deliver(node, Input::PeerLost { peer, why: "the peer connects anew".to_string() });
            }
        }
        self.connections.make(dialler, target);
        let listens_at = self.node(dialler).address.clone();
        for (node, peer, address) in [(target, dialler, listens_at), (dialler, target, address)] {
            let (role, name) = (self.node(peer).role, self.node(peer).name.clone());
            self.deliver(node, Input::PeerUp { peer, role, name, address });
        }
    }

    /// Closes a node's end at once; the peer notices once what was sent has arrived.
    pub(crate) fn hang_up(&mut self, node: NodeId, peer: NodeId, why: &str) {
        let Some(end) = self.connections.end(node, peer) else { return };
        let (connection, sent, arrived) = (end.connection, end.frames_until.max(self.now), end.frames_arrive);
        self.drop_end(node, peer);
        self.clear_bulk(peer, node);
        let heard = arrived.max(sent + self.path(node, peer).frame_latency_ns);
        self.notify_lost(peer, node, connection, heard, why);
    }

    pub(crate) fn on_lost(&mut self, node: NodeId, peer: NodeId, connection: u64, why: String) {
        let current = self.connections.end(node, peer).is_some_and(|end| end.connection == connection);
        if current && self.is_lost(peer, node) {
            self.hold(peer, node, Occurrence::Lost { node, peer, connection, why });
        } else if current {
            self.drop_end(node, peer);
            self.handle(node, Input::PeerLost { peer, why }, 0);
        }
    }

    /// Removes a node's end of a connection with all that waits there; whether there was one.
    pub(crate) fn drop_end(&mut self, node: NodeId, peer: NodeId) -> bool {
        self.clear_bulk(node, peer);
        self.connections.remove(node, peer).is_some()
    }

    /// Who listens at that address, or did last.
    fn listener(&self, address: &str) -> Option<NodeId> {
        self.listeners.get(address).copied()
    }
}
