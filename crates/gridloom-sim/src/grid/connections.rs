//! Connections between the nodes of a grid: dialling and loss, and what is sent over them.
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
//!
//! [`super::transfers`] handles data.

use gridloom_base::dial::ConnectionFault;
use gridloom_base::limits::DIAL_NS_MAX;
use gridloom_base::{DatumId, NodeId, PartSizes, Time};
use gridloom_core::node::Input;
use gridloom_core::node::message::Message;
use gridloom_core::node::version::VERSIONS;
use gridloom_flow::LinkIndex;
use gridloom_platform::HostId;

use super::nodes::{NodeState, Nodes, SimNode};
use crate::environment::Environment;
use crate::kernel::{Kernel, ScheduledEvent};
use crate::network::{Corruption, Links, Parcel, Route, is_crossed};

/// The connections of all nodes, and the routes that corrupt data.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(super) links: Links,
    pub(super) corruption: Corruption,
}

impl Connections {
    /// Creates them without a connection. Large data are sent in these parts.
    pub(crate) fn new(seed: u64, parts: PartSizes) -> Connections {
        Connections { links: Links::new(parts), corruption: Corruption::new(seed) }
    }

    /// Returns the ends of the connections, to be read.
    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// Handles the result of a dial.
    pub(crate) fn on_dialled(
        &mut self,
        environment: &mut Environment,
        nodes: &Nodes,
        dialler: NodeId,
        address: String,
        began: Time,
    ) {
        use ConnectionFault::{NoAnswer, NotListening, Other};
        let Environment { kernel, routes, .. } = environment;
        let now = kernel.now();
        let Some(target) = nodes.listener(&address).filter(|target| *target != dialler) else {
            return dial_failed(kernel, dialler, address, now, (NotListening, "no program listens there"));
        };
        let (here, there) = (nodes.node(dialler).host, nodes.node(target).host);
        if let Err(why) = routes.round_trip_ns((here, there)) {
            return dial_failed(kernel, dialler, address, now, (Other, &why));
        }
        let gives_up = now.max(began + DIAL_NS_MAX);
        if routes.is_lost((here, there)) || routes.is_lost((there, here)) {
            return dial_failed(kernel, dialler, address, gives_up, (NoAnswer, "no answer"));
        }
        match nodes.node(target).life {
            NodeState::Dead => dial_failed(kernel, dialler, address, now, (NotListening, "connection refused")),
            NodeState::Hung | NodeState::Paused => {
                dial_failed(kernel, dialler, address, gives_up, (NoAnswer, "no answer"));
            }
            // A paused dialler is notified when it resumes.
            NodeState::Running if matches!(nodes.node(dialler).life, NodeState::Running | NodeState::Paused) => {
                self.connect(environment, nodes, dialler, target, address);
            }
            NodeState::Running => {}
        }
    }

    fn connect(
        &mut self,
        Environment { kernel, routes, .. }: &mut Environment,
        nodes: &Nodes,
        dialler: NodeId,
        target: NodeId,
        address: String,
    ) {
        if self.links.is_connected(dialler, target) && self.links.is_connected(target, dialler) {
            let why = "the node that answers there is connected already".to_string();
            let fault = ConnectionFault::ConnectedAlready;
            let input = Input::DialFailed { address, fault, why, connected: Some(target) };
            return kernel.deliver(dialler, input);
        }
        // One end may not know yet that the other has hung up.
        for (node, peer) in [(dialler, target), (target, dialler)] {
            if self.links.drop_end(kernel, routes, node, peer) {
                let (fault, why) = (ConnectionFault::Disconnected, "the peer reconnects".to_string());
                kernel.deliver(node, Input::PeerLost { peer, fault, why });
            }
        }
        let [ours, theirs] = [dialler, target].map(|node| (node, nodes.node(node).host));
        self.links.connect(ours, theirs);
        let listens_at = nodes.node(dialler).address.clone();
        for (node, peer, address) in [(target, dialler, listens_at), (dialler, target, address)] {
            let SimNode { role, name, origin, .. } = nodes.node(peer);
            let (role, name, origin) = (*role, name.clone(), origin.clone());
            kernel.deliver(node, Input::PeerUp { peer, role, name, origin, address, version: VERSIONS.1 });
            if let Some(relay) = routes.relay((nodes.node(peer).host, nodes.node(node).host)) {
                kernel.deliver(node, Input::DataPath { from: peer, relay: Some(relay.to_owned()) });
            }
        }
    }

    /// Handles the notification that a node's peer has closed its end. Returns the input for the node, if it is
    /// notified now.
    pub(crate) fn on_lost(
        &mut self,
        Environment { kernel, routes, .. }: &mut Environment,
        (node, peer): (NodeId, NodeId),
        connection: u64,
        why: String,
    ) -> Option<Input> {
        let why = self.links.lost(kernel, routes, (node, peer), connection, why)?;
        Some(Input::PeerLost { peer, fault: ConnectionFault::Disconnected, why })
    }

    /// Sends a message. It is dropped if the peer is not connected.
    pub(crate) fn send_message(
        &mut self,
        Environment { kernel, routes, .. }: &mut Environment,
        pair: (NodeId, NodeId),
        message: Message,
        (size_bytes, digest): (u64, u64),
    ) {
        self.links.send_frame(kernel, routes, pair, size_bytes, Parcel::Message { message, digest });
    }

    /// Closes a node's end immediately. The peer notices once the data already sent has arrived.
    pub(crate) fn hang_up(
        &mut self,
        Environment { kernel, routes, .. }: &mut Environment,
        pair: (NodeId, NodeId),
        why: &str,
    ) {
        self.links.hang_up(kernel, routes, pair, why);
    }

    /// Closes all connections of a node that has ended. It does not notify anybody of the transfers that break off
    /// with it.
    pub(crate) fn end_node(&mut self, environment: &mut Environment, node: NodeId, why: &str) {
        self.stop_sending(&mut environment.kernel, node);
        for peer in self.links.peers(node) {
            self.hang_up(environment, (node, peer), why);
        }
    }

    /// Cancels all bulk cargo that a node sends.
    pub(crate) fn stop_sending(&mut self, kernel: &mut Kernel, node: NodeId) {
        self.links.clear_all_bulk(kernel, node);
    }

    /// Makes a node forget a connection, if there is one. Returns false if there is none.
    pub(crate) fn forget(&mut self, environment: &mut Environment, node: NodeId, peer: NodeId) -> bool {
        let Environment { kernel, routes, .. } = environment;
        let was_there = self.links.drop_end(kernel, routes, node, peer);
        if was_there {
            kernel.record(|trace, now| trace.fault(now, node, "a connection was reset"));
            let (fault, why) = (ConnectionFault::Disconnected, "the connection was reset".into());
            kernel.deliver(node, Input::PeerLost { peer, fault, why });
        }
        was_there
    }

    /// Makes one node forget a connection, if there is one, without notice to the other.
    pub(crate) fn half_open(&mut self, environment: &mut Environment, forgets: NodeId, keeps: NodeId) {
        if self.forget(environment, forgets, keeps) {
            self.links.leave_half_open(keeps, forgets);
        }
    }

    /// Tells the peer which part of a datum the node has, before the node requests it.
    pub(crate) fn announce_partial(&mut self, pair: (NodeId, NodeId), datum: DatumId) {
        self.links.announce_partial(pair, datum);
    }

    /// Drops a node's part of a datum, because the node no longer needs it.
    pub(crate) fn forget_partial(&mut self, node: NodeId, datum: DatumId) {
        self.links.forget_partial(node, datum);
    }

    /// Stops the bulk cargo on a route.
    pub(crate) fn stop_route(&mut self, kernel: &mut Kernel, route: Route) {
        self.links.stop_bulk(kernel, |way| way == route);
    }

    /// Stops the bulk cargo on all routes over a link.
    pub(crate) fn stop_link(&mut self, Environment { kernel, routes, .. }: &mut Environment, link: LinkIndex) {
        self.links.stop_bulk(kernel, |way| is_crossed(routes, way, link));
    }

    /// Starts waiting cargo on routes that have opened: on one of them, or on all.
    pub(crate) fn start_waiting(&mut self, environment: &mut Environment, opened: Option<Route>) {
        let Environment { kernel, routes, .. } = environment;
        self.links.start_waiting(kernel, routes, |way| opened.is_none_or(|opened| way == opened));
    }

    /// Sets the fraction of the data that arrive with one bit changed, on the routes between two hosts.
    pub(crate) fn corrupt(&mut self, kernel: &mut Kernel, a: HostId, b: HostId, fraction: f64) {
        for (from, to) in [(a, b), (b, a)] {
            kernel.record(|trace, now| trace.route_changed(now, from.0, to.0, "changes data"));
            self.corruption.set((from, to), fraction);
        }
    }

    /// Ends all corruption of data.
    pub(crate) fn end_corruption(&mut self) {
        self.corruption.end_all();
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self, kernel: &Kernel) {
        self.links.check(kernel);
    }
}

/// Dials an address. The state of the other end is checked after the round trip.
pub(super) fn dial(
    Environment { kernel, routes, .. }: &mut Environment,
    nodes: &Nodes,
    dialler: NodeId,
    address: String,
) {
    let target = nodes.listener(&address);
    let hosts = target.map(|target| (nodes.node(dialler).host, nodes.node(target).host));
    let round_trip_ns = hosts.map_or(0, |(here, there)| {
        let ways = [routes.between((here, there)), routes.between((there, here))];
        ways.iter().flatten().map(|path| path.frame_latency_ns).sum()
    });
    let began = kernel.now();
    kernel.push(began + round_trip_ns, ScheduledEvent::Dialled { dialler, address, began });
}

fn dial_failed(kernel: &mut Kernel, dialler: NodeId, address: String, at: Time, (fault, why): (ConnectionFault, &str)) {
    let input = Box::new(Input::DialFailed { address, fault, why: why.to_string(), connected: None });
    kernel.push(at, ScheduledEvent::Deliver { node: dialler, input });
}
