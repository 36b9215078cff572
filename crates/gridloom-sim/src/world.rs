//! A simulation as seen by the conformance suite: the same calls as for the real world.
//!
//! The agent and the clients run on the platform's first host, unless a host has the client's name. Each server runs
//! on the host with its name. If there is none, it runs on the next host without a server; if all have one, on the
//! hosts in turn.

use std::sync::Arc;

use gridloom_base::{DatumId, Meta, NodeId, Time};
use gridloom_core::node::world::ServerSpec;
use gridloom_core::node::{Command, Event, World};
use gridloom_platform::{HostId, Platform};

use crate::config::SimConfig;
use crate::simulation::Simulation;

/// A world in virtual time.
#[derive(Debug)]
pub struct SimWorld {
    simulation: Simulation,
    servers: u32,
}

impl SimWorld {
    /// Creates an empty grid on a platform.
    pub fn new(platform: Arc<Platform>, config: SimConfig) -> SimWorld {
        SimWorld { simulation: Simulation::new(platform, config), servers: 0 }
    }

    /// Returns the underlying simulation.
    pub fn simulation(&mut self) -> &mut Simulation {
        &mut self.simulation
    }

    fn server_host(&mut self, name: &str) -> HostId {
        let platform = self.simulation.platform();
        let hosts = platform.hosts().len() as u32;
        platform.host(name).unwrap_or_else(|| {
            self.servers += 1;
            HostId(if hosts == 1 { 0 } else { 1 + (self.servers - 1) % (hosts - 1) })
        })
    }
}

impl World for SimWorld {
    fn start_agent(&mut self) -> NodeId {
        self.simulation.add_agent(HostId(0), "agent")
    }

    fn start_server(&mut self, spec: ServerSpec) -> NodeId {
        let host = self.server_host(&spec.name);
        self.simulation.add_server(host, spec)
    }

    fn start_client(&mut self, name: &str) -> NodeId {
        let host = self.simulation.platform().host(name).unwrap_or(HostId(0));
        self.simulation.add_client(host, name)
    }

    fn put(&mut self, client: NodeId, datum: DatumId, meta: Meta, bytes: Option<Vec<u8>>) {
        self.simulation.put(client, datum, meta, bytes.map(Arc::from));
    }

    fn value(&mut self, client: NodeId, datum: DatumId) -> Option<(Meta, Option<Vec<u8>>)> {
        self.simulation.value(client, datum).map(|(meta, bytes)| (meta, bytes.map(|bytes| bytes.to_vec())))
    }

    fn command(&mut self, client: NodeId, command: Command) {
        self.simulation.command(client, command);
    }

    fn next_event(&mut self, client: NodeId, patience_ns: u64) -> Option<Event> {
        let deadline = self.simulation.now() + patience_ns;
        self.simulation.next_event(client, Some(deadline))
    }

    fn now(&mut self) -> Time {
        self.simulation.now()
    }

    fn kill(&mut self, node: NodeId) {
        self.simulation.kill(node);
    }

    fn hang(&mut self, node: NodeId) {
        self.simulation.hang(node);
    }
}
