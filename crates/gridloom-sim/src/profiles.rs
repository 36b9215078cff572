//! What the platform's profiles change while programs run.
//!
//! | profile | what follows |
//! |---|---|
//! | speed | tasks and computations go on at the new rate; who measures the host's speed finds it |
//! | bandwidth, latency | as in `gridloom_core::flow::changes` for what moves; new messages and data meet the new values |
//! | host state | *off*: nodes and processes there end as if killed. *On*: agent and servers start anew, as by a restart; so do processes whose deployment says so, and those that were to start meanwhile start |
//! | link state | *off*: a cut of all ways over it, as in `faults::ways`. *On*: it heals |
//!
//! A bandwidth of 0 stops what moves until it changes, and lets nothing else begin.
//!
//! **Order at one date:** changes, then what ends, then what is due, as in SimGrid.

use gridloom_core::base::NodeId;
use gridloom_core::base::Time;
use gridloom_core::flow::{HostIndex, LinkIndex, Quantity, Timeline};
use gridloom_core::platform::{HostId, Platform, ProfileKind, ProfileTarget};

use crate::node::Life;
use crate::queue::ns_up;
use crate::simulation::Simulation;

/// The profiles of a platform, in their order.
pub(crate) fn timeline(platform: &Platform) -> Timeline {
    let mut timeline = Timeline::new();
    for profile in platform.profiles() {
        let quantity = match (profile.target, profile.kind) {
            (ProfileTarget::Host(host), ProfileKind::State) => Quantity::HostState(HostIndex(host.0)),
            (ProfileTarget::Host(host), _) => Quantity::Speed(HostIndex(host.0)),
            (ProfileTarget::Link(link), ProfileKind::State) => Quantity::LinkState(LinkIndex(link.0)),
            (ProfileTarget::Link(link), ProfileKind::Latency) => Quantity::Latency(LinkIndex(link.0)),
            (ProfileTarget::Link(link), _) => Quantity::Bandwidth(LinkIndex(link.0)),
        };
        timeline.add(quantity, profile.events.clone(), profile.loop_after_s);
    }
    timeline
}

impl Simulation {
    /// Lets change what does at that date.
    pub(crate) fn change(&mut self, seconds: f64) {
        self.engine.wait_until(seconds);
        self.now = self.now.max(Time(ns_up(seconds)));
        while let Some((quantity, value)) = self.timeline.take_due(self.engine.now_s()) {
            self.trace.changed(self.now, &quantity, value);
            match quantity {
                Quantity::Speed(host) => {
                    self.profiled_speeds.insert(HostId(host.0), value);
                    self.rescale(HostId(host.0));
                }
                Quantity::Bandwidth(link) => {
                    self.engine.set_bandwidth(link, value);
                    if self.paths.set_bandwidth(link, value) {
                        self.ways_open();
                    }
                }
                Quantity::Latency(link) => {
                    self.engine.set_latency(link, value);
                    self.paths.set_latency(link, value);
                }
                Quantity::HostState(host) if value > 0.0 => self.turn_on(HostId(host.0)),
                Quantity::HostState(host) => self.turn_off(HostId(host.0)),
                Quantity::LinkState(link) if value > 0.0 => {
                    if self.paths.open(link) {
                        self.ways_open();
                    }
                }
                Quantity::LinkState(link) => {
                    self.paths.close(link);
                    self.ways_close(link);
                }
            }
        }
    }

    /// Brings the engine's speed of a host in line with its profile and with what slowed it down.
    pub(crate) fn rescale(&mut self, host: HostId) {
        self.synchronise();
        let scale = self.speed_scale(host);
        self.engine.set_speed_scale(HostIndex(host.0), scale);
    }

    /// What multiplies a host's described speed now.
    pub(crate) fn speed_scale(&self, host: HostId) -> f64 {
        let of = |scales: &std::collections::BTreeMap<HostId, f64>| scales.get(&host).copied().unwrap_or(1.0);
        of(&self.speed_scales) * of(&self.profiled_speeds)
    }

    pub(crate) fn is_off(&self, host: HostId) -> bool {
        self.off.contains(&host)
    }

    /// A host goes off, as in a crash: whatever runs there ends.
    pub fn turn_off(&mut self, host: HostId) {
        if !self.off.insert(host) {
            return;
        }
        let nodes = (1..=self.nodes.len() as u64).map(NodeId);
        let here: Vec<NodeId> = nodes.filter(|node| self.node(*node).host == host).collect();
        here.into_iter().for_each(|node| self.fell(node));
        self.fell_processes(host);
    }

    /// A node ends because its host is off; it starts again with it, if it can.
    pub(crate) fn fell(&mut self, node: NodeId) {
        if self.node(node).life != Life::Dead {
            self.end(node, HOST_IS_OFF);
            self.felled.insert(node);
        }
    }

    /// It is on again.
    pub fn turn_on(&mut self, host: HostId) {
        if !self.off.remove(&host) {
            return;
        }
        let here: Vec<NodeId> = self.felled.iter().copied().filter(|node| self.node(*node).host == host).collect();
        for node in here {
            self.felled.remove(&node);
            // Unless another was started at its address since.
            if self.listeners.get(&self.node(node).address) == Some(&node) {
                self.restart(node);
            }
        }
        self.raise_processes(host);
    }
}

/// Why what runs on a host ends.
pub(crate) const HOST_IS_OFF: &str = "its host is off";
