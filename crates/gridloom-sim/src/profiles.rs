//! What the platform's profiles change while programs run.
//!
//! | profile | what follows |
//! |---|---|
//! | speed | tasks and computations go on at the new rate; a server that measures its host finds it |
//! | bandwidth, latency | as in `gridloom_flow::changes` for what moves; new messages and data meet the new values |
//! | host state | *off*: nodes and processes there end as if killed. *On*: agent and servers start anew, as by a restart; so do processes if their deployment says so; those that were to start meanwhile start |
//! | link state | *off*: a cut of all ways over it, as in `faults::ways`. *On*: it heals |
//!
//! A bandwidth of 0 stops what moves until it changes, and lets nothing else begin.
//!
//! **Order at one date:** changes, then what ends, then what is due, as in SimGrid.

use gridloom_base::NodeId;
use gridloom_flow::Quantity;
use gridloom_platform::HostId;

use crate::simulation::Simulation;

impl Simulation {
    /// Lets change what is due to.
    pub(crate) fn change(&mut self) {
        while let Some((quantity, value)) = self.kernel.take_change() {
            match quantity {
                Quantity::Speed(host) => self.hosts.profile(&mut self.kernel, HostId(host.0), value),
                Quantity::Bandwidth(link) => {
                    self.kernel.set_bandwidth(link, value);
                    if self.routes.paths.set_bandwidth(link, value) {
                        self.ways_open();
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
                        self.ways_open();
                    }
                }
                Quantity::LinkState(link) => {
                    self.routes.paths.close(link);
                    self.ways_close(link);
                }
            }
        }
    }

    /// A host goes off, as in a crash: whatever runs there ends.
    pub fn turn_off(&mut self, host: HostId) {
        if !self.hosts.turn_off(host) {
            return;
        }
        self.nodes.on_host(host).into_iter().for_each(|node| self.end_with_host(node));
        for process in self.processes.end_with_host(host) {
            self.kill_process(process, HOST_IS_OFF);
        }
    }

    /// A node ends because its host is off; it starts again with it, if it can.
    pub(crate) fn end_with_host(&mut self, node: NodeId) {
        if !self.is_dead(node) {
            self.end(node, HOST_IS_OFF);
            self.nodes.end_with_host(node);
        }
    }

    /// A host is on again: agent and servers start anew, and so do processes that are to.
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

/// Why what runs on a host ends.
const HOST_IS_OFF: &str = "its host is off";
