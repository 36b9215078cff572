//! Connections between simulated nodes: dialling and loss.
//!
//! ```text
//! dialler                         dialled
//!    |--- one round trip ------------|
//!  PeerUp                          PeerUp      at the same time
//!    | messages ===================> |
//!  hangs up or dies                  |
//!    |------- after sent data ------>|
//!                                  PeerLost
//! ```

use gridloom_base::limits::DIAL_NS_MAX;
use gridloom_base::{NodeId, Time};
use gridloom_core::node::Input;
use gridloom_core::node::version::VERSIONS;

use crate::kernel::ScheduledEvent;
use crate::nodes::NodeState;
use crate::simulation::Simulation;

impl Simulation {
    /// Dials an address. The state of the other end is checked after the round trip.
    pub(crate) fn dial(&mut self, dialler: NodeId, address: String) {
        let target = self.nodes.listener(&address);
        let hosts = target.map(|target| (self.node(dialler).host, self.node(target).host));
        let round_trip_ns = hosts.map_or(0, |(here, there)| {
            let ways = [self.routes.between((here, there)), self.routes.between((there, here))];
            ways.iter().flatten().map(|path| path.frame_latency_ns).sum()
        });
        let began = self.now();
        self.kernel.push(began + round_trip_ns, ScheduledEvent::Dialled { dialler, address, began });
    }

    pub(crate) fn on_dialled(&mut self, dialler: NodeId, address: String, began: Time) {
        let now = self.now();
        let Some(target) = self.nodes.listener(&address).filter(|target| *target != dialler) else {
            return self.dial_failed(dialler, address, now, "no program listens there");
        };
        let (here, there) = (self.node(dialler).host, self.node(target).host);
        if let Err(why) = self.routes.round_trip_ns((here, there)) {
            return self.dial_failed(dialler, address, now, &why);
        }
        let gives_up = now.max(began + DIAL_NS_MAX);
        if self.routes.is_lost((here, there)) || self.routes.is_lost((there, here)) {
            return self.dial_failed(dialler, address, gives_up, "no answer");
        }
        match self.node(target).life {
            NodeState::Dead => self.dial_failed(dialler, address, now, "connection refused"),
            NodeState::Hung | NodeState::Paused => self.dial_failed(dialler, address, gives_up, "no answer"),
            // A paused dialler is notified when it resumes.
            NodeState::Running if matches!(self.node(dialler).life, NodeState::Running | NodeState::Paused) => {
                self.connect(dialler, target, address);
            }
            NodeState::Running => {}
        }
    }

    fn dial_failed(&mut self, dialler: NodeId, address: String, at: Time, why: &str) {
        self.dial_ended(dialler, Input::DialFailed { address, why: why.to_string(), connected: None }, at);
    }

    fn dial_ended(&mut self, dialler: NodeId, input: Input, at: Time) {
        let input = Box::new(input);
        self.kernel.push(at, ScheduledEvent::Deliver { node: dialler, input });
    }

    fn connect(&mut self, dialler: NodeId, target: NodeId, address: String) {
        if self.links.is_connected(dialler, target) && self.links.is_connected(target, dialler) {
            let why = "the node that answers there is connected already".to_string();
            let input = Input::DialFailed { address, why, connected: Some(target) };
            return self.dial_ended(dialler, input, self.now());
        }
        // One end may not know yet that the other has hung up.
        for (node, peer) in [(dialler, target), (target, dialler)] {
            if self.links.drop_end(&mut self.kernel, &mut self.routes, node, peer) {
                self.kernel.deliver(node, Input::PeerLost { peer, why: "the peer reconnects".to_string() });
            }
        }
        let [ours, theirs] = [dialler, target].map(|node| (node, self.node(node).host));
        self.links.connect(ours, theirs);
        let listens_at = self.node(dialler).address.clone();
        for (node, peer, address) in [(target, dialler, listens_at), (dialler, target, address)] {
            let (role, name) = (self.node(peer).role, self.node(peer).name.clone());
            self.kernel.deliver(node, Input::PeerUp { peer, role, name, address, version: VERSIONS.1 });
        }
    }

    pub(crate) fn on_lost(&mut self, node: NodeId, peer: NodeId, connection: u64, why: String) {
        let heard = self.links.lost(&mut self.kernel, &mut self.routes, (node, peer), connection, why);
        if let Some(why) = heard {
            self.handle(node, Input::PeerLost { peer, why }, 0);
        }
    }
}
