//! Effects of the platform's profiles on running programs.
//!
//! | profile | effect |
//! |---|---|
//! | speed | tasks and computations continue at the new rate; a server that measures its host finds the new speed |
//! | bandwidth, latency | as in `gridloom_flow::changes` for data in transit; new messages and data use the new values |
//! | host state | *off*: nodes and processes on the host end as if killed. *On*: agent and servers restart, and so do processes whose deployment says so; processes whose start was due while the host was off start |
//! | link state | *off*: cuts all routes over the link, as in `faults::routes`. *On*: heals them |
//!
//! A bandwidth of 0 stops traffic until it changes, and prevents new traffic.
//!
//! **Order of events at the same time:** changes, then ends of flows, then queued events, as in SimGrid.

use gridloom_base::NodeId;
use gridloom_flow::Quantity;
use gridloom_platform::HostId;

use crate::simulation::Simulation;

impl Simulation {
    /// Applies the profile changes that are due.
    pub(crate) fn change(&mut self) {
        while let Some((quantity, value)) = self.kernel.take_change() {
            match quantity {
                Quantity::Speed(host) => self.hosts.profile(&mut self.kernel, HostId(host.0), value),
                Quantity::Bandwidth(link) => {
                    self.kernel.set_bandwidth(link, value);
                    if self.routes.paths.set_bandwidth(link, value) {
                        self.open_routes();
                    }
                }
                Quantity::Latency(link) => {
                    self.kernel.set_latency(link, value);
                    self.routes.paths.set_latency(link, value);
                }
                Quantity::HostState(host) if value > 0.0 => self.turn_on(HostId(host.0)),
                Quantity::HostState(host) => self.turn_off(HostId(host.0)),
                Quantity::LinkState(link) if value > 0.0 => {
                    if self.routes.paths.open(link) {
                        self.open_routes();
                    }
                }
                Quantity::LinkState(link) => {
                    self.routes.paths.close(link);
                    self.close_routes(link);
                }
            }
        }
    }

    /// Turns a host off, as in a crash: everything that runs there ends.
    pub fn turn_off(&mut self, host: HostId) {
        if !self.hosts.turn_off(host) {
            return;
        }
        self.nodes.nodes_on_host(host).into_iter().for_each(|node| self.end_with_host(node));
        for process in self.processes.end_with_host(host) {
            self.kill_process(process, HOST_IS_OFF);
        }
    }

    /// Ends a node because its host is off. It restarts with the host, if it can.
    pub(crate) fn end_with_host(&mut self, node: NodeId) {
        if !self.is_dead(node) {
            self.end_node(node, HOST_IS_OFF);
            self.nodes.end_with_host(node);
        }
    }

    /// Turns a host on: agent and servers restart, and so do processes that are configured to.
    pub fn turn_on(&mut self, host: HostId) {
        if !self.hosts.turn_on(host) {
            return;
        }
        for node in self.nodes.take_ended_with_host(host) {
            self.restart(node);
        }
        for process in self.processes.ids() {
            self.start_with_host(process, host);
        }
    }
}

/// The reason given when something ends with its host.
const HOST_IS_OFF: &str = "its host is off";
