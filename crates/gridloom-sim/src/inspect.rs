//! Read access to the state of a simulation, for checks of invariants that are not part of it (`gridloom-soak`).

use gridloom_base::{DatumId, NodeId, Time};
use gridloom_core::node::Role;
use gridloom_platform::HostId;

pub use crate::event::SimEvent;
pub use crate::grid::NodeState;
use crate::simulation::Simulation;
pub use crate::store::StoredValue;
pub use crate::trace::digest;

impl Simulation {
    /// Takes the events since the last call, and records the following ones.
    pub fn take_events(&mut self) -> Vec<(Time, SimEvent)> {
        self.environment.kernel.instruments_mut().trace.take_events()
    }

    /// Returns the time of the next event.
    pub fn next_at(&mut self) -> Option<Time> {
        self.environment.kernel.next_at()
    }

    /// Advances the clock over a time without events.
    pub fn advance_clock(&mut self, at: Time) {
        self.environment.kernel.advance_clock(at);
    }

    /// Iterates over all nodes that ever existed, in start order.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, Role)> + '_ {
        self.grid.nodes().iter().map(|(id, node)| (id, node.role))
    }

    /// Returns the state of a node's process.
    pub fn state(&self, node: NodeId) -> NodeState {
        self.grid.nodes().node(node).life
    }

    pub fn role(&self, node: NodeId) -> Role {
        self.grid.nodes().node(node).role
    }

    pub fn name(&self, node: NodeId) -> &str {
        &self.grid.nodes().node(node).name
    }

    pub fn host(&self, node: NodeId) -> HostId {
        self.grid.nodes().node(node).host
    }

    /// Returns the name of a node's host.
    pub fn host_name(&self, node: NodeId) -> &str {
        &self.platform().hosts()[self.host(node).0 as usize].name
    }

    /// Returns the time at which a node was last resumed; zero if it never was.
    pub fn resumed(&self, node: NodeId) -> Time {
        self.grid.nodes().node(node).resumed
    }

    /// Returns the last node that was started at an address.
    pub fn listener(&self, address: &str) -> Option<NodeId> {
        self.grid.nodes().listener(address)
    }

    /// Returns the sum of the sizes of the values in a node's store.
    pub fn stored_bytes(&self, node: NodeId) -> u64 {
        self.grid.nodes().node(node).store.bytes()
    }

    /// Iterates over the data in a node's store.
    pub fn stored(&self, node: NodeId) -> impl ExactSizeIterator<Item = DatumId> + '_ {
        self.grid.nodes().node(node).store.data()
    }

    /// Reports whether a node's store has a datum.
    pub fn has_stored(&self, node: NodeId, datum: DatumId) -> bool {
        self.grid.nodes().node(node).store.value(datum).is_some()
    }

    /// Returns the peers to which a node is connected, in its own view.
    pub fn peers(&self, node: NodeId) -> Vec<NodeId> {
        self.grid.links().peers(node)
    }

    /// Reports whether a node is connected to a peer, in its own view.
    pub fn is_connected(&self, node: NodeId, peer: NodeId) -> bool {
        self.grid.links().is_connected(node, peer)
    }

    /// Iterates over the data that nodes are receiving.
    pub fn all_incoming(&self) -> impl Iterator<Item = (NodeId, DatumId)> + '_ {
        self.grid.links().all_incoming()
    }

    /// Reports whether the route from one host to another is lost.
    pub fn is_lost(&self, from: HostId, to: HostId) -> bool {
        self.environment.routes.is_lost((from, to))
    }

    /// Returns the time at which the route from one host to another was last restored.
    pub fn healed(&self, from: HostId, to: HostId) -> Option<Time> {
        self.environment.routes.healed((from, to))
    }

    /// Returns the number of slow mappings so far.
    pub fn slow_mappings(&self) -> u64 {
        self.grid.slow_mappings()
    }

    /// Reports whether a node is a client that maps its calls itself.
    pub fn is_independent(&self, node: NodeId) -> bool {
        self.grid.nodes().node(node).is_independent()
    }

    /// Returns the server of a client's session, if it is a session.
    pub fn session_server(&self, client: NodeId) -> Option<NodeId> {
        self.grid.session_server(client)
    }
}
