//! The environment of nodes and processes: time and flows, the hosts, and the routes between them. The platform's
//! profiles change it.
//!
//! | profile | effect |
//! |---|---|
//! | speed | tasks and computations continue at the new rate; a server that measures its host finds the new speed |
//! | bandwidth, latency | as in `gridloom_flow::changes` for data in transit; new messages and data use the new values |
//! | host state | *off*: nodes and processes on the host end as if killed. *On*: agent and servers restart, and so do processes whose deployment says so; processes whose start was due while the host was off start |
//! | link state | *off*: cuts all routes over the link, as a fault does. *On*: heals them |
//!
//! A bandwidth of 0 stops traffic until it changes, and prevents new traffic.
//!
//! **Order of events at the same time:** changes, then ends of flows, then queued events, as in SimGrid.
//!
//! The parts of an environment have private fields. They are passed together, because most operations of nodes and
//! processes need several of them.

use std::sync::Arc;

use gridloom_flow::{FlowEngine, LinkIndex, NetworkModel, Policy, Quantity, Resources};
use gridloom_platform::{HostId, Platform, Sharing};

use crate::config::SimConfig;
use crate::hosts::Hosts;
use crate::instruments::Instruments;
use crate::kernel::Kernel;
use crate::memory::Memories;
use crate::network::{Route, Routes};
use crate::scheduled_event::ScheduledEvent;
use crate::timeline::timeline;

/// Time and flows, hosts, and routes.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) platform: Arc<Platform>,
    pub(crate) kernel: Kernel,
    pub(crate) hosts: Hosts,
    pub(crate) routes: Routes,
}

/// A change by a profile that affects nodes and processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Current and new traffic uses other rates or latencies. Nothing else changes.
    Rates,
    HostOff(HostId),
    HostOn(HostId),
    /// Nothing passes over the link any more.
    LinkOff(LinkIndex),
    /// Some routes may be open again.
    LinkOn,
}

impl Environment {
    /// Creates the environment that a platform describes, at time 0.
    pub(crate) fn new(platform: Arc<Platform>, config: &SimConfig) -> Environment {
        let mut resources = Resources::new();
        for link in platform.links() {
            let policy = match link.sharing {
                Sharing::Shared => Policy::Shared,
                Sharing::Fatpipe => Policy::FatPipe,
            };
            resources.add_link(link.bandwidth, link.latency_s, policy);
        }
        let uploads = config.upload_limits.iter().map(|(host, rate)| {
            (*host, resources.add_link(link_bandwidth(&config.network, *rate), 0.0, Policy::Shared))
        });
        let uploads = uploads.collect();
        let link_bandwidth = |rate| link_bandwidth(&config.network, rate);
        let memories = Arc::new(Memories::new(&config.memories, &mut resources, link_bandwidth));
        let hosts = Hosts::new(&platform, &config.disks, config.program_starts_s.clone(), &mut resources);
        let hosts = hosts.with_memories(memories.clone());
        let engine = FlowEngine::new(resources, config.network);
        let instruments = Instruments::new(config.seed, platform.links().len());
        let mut kernel = Kernel::new(engine, timeline(&platform), instruments);
        kernel.begin_changes(0.0);
        let routes = Routes::new(platform.clone(), config.network, config.message_overhead_bytes);
        let routes = routes.with_uploads(uploads).with_memories(memories);
        Environment { platform, kernel, hosts, routes }
    }

    /// Changes the upload limit of a host, bytes per second.
    ///
    /// # Panics
    /// If the host began without a limit.
    pub(crate) fn limit_uploads(&mut self, host: HostId, bytes_per_second: f64) {
        let link = self.routes.upload_of(host).expect("the host began with a limit");
        self.kernel.set_bandwidth_now(link, link_bandwidth(self.routes.paths.model(), bytes_per_second));
    }

    /// Applies the next profile change that is due. Returns its consequences for nodes and processes.
    pub(crate) fn apply_change(&mut self) -> Option<Change> {
        let (quantity, value) = self.kernel.take_change()?;
        Some(match quantity {
            Quantity::Speed(host) => {
                self.hosts.profile(&mut self.kernel, HostId(host.0), value);
                Change::Rates
            }
            Quantity::Bandwidth(link) => {
                self.kernel.set_bandwidth(link, value);
                if self.routes.paths.set_bandwidth(link, value) { Change::LinkOn } else { Change::Rates }
            }
            Quantity::Latency(link) => {
                self.kernel.set_latency(link, value);
                self.routes.paths.set_latency(link, value);
                Change::Rates
            }
            Quantity::HostState(host) if value > 0.0 => Change::HostOn(HostId(host.0)),
            Quantity::HostState(host) => Change::HostOff(HostId(host.0)),
            Quantity::LinkState(link) if value > 0.0 => {
                if self.routes.paths.open(link) {
                    Change::LinkOn
                } else {
                    Change::Rates
                }
            }
            Quantity::LinkState(link) => {
                self.routes.paths.close(link);
                Change::LinkOff(link)
            }
        })
    }

    /// Blocks the route from one host to another.
    pub(crate) fn lose_route(&mut self, way: Route) {
        self.kernel.record(|trace, now| trace.route_changed(now, way.0.0, way.1.0, "lost"));
        self.routes.lose(way);
    }

    /// Unblocks a lost route. Returns true if it was lost.
    pub(crate) fn restore_route(&mut self, way: Route) -> bool {
        let was_lost = self.routes.restore(way);
        if was_lost {
            self.kernel.record(|trace, now| trace.route_changed(now, way.0.0, way.1.0, "healed"));
        }
        was_lost
    }

    /// Takes the arrivals held on a route. Those that cannot pass yet will be held again.
    pub(crate) fn take_held(&mut self, way: Route) -> Vec<ScheduledEvent> {
        self.routes.take_held(way, self.kernel.now())
    }

    /// Panics if an invariant of a part does not hold.
    pub(crate) fn check(&self) {
        self.kernel.check();
        self.hosts.check();
        self.routes.check();
    }
}

/// Returns the bandwidth of a link that represents a host's upload limit or its swap. The model reserves a part of each link
/// for protocol overhead, which these rates do not count.
fn link_bandwidth(model: &NetworkModel, bytes_per_second: f64) -> f64 {
    bytes_per_second / model.bandwidth_factor
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns two hosts with a link that is off from 1 s to 2 s, and has half its bandwidth from 3 s on.
    pub(crate) fn two_hosts() -> Environment {
        let text = "[[host]]\nname = 'a'\nspeed = '1Gf'\n[[host]]\nname = 'b'\nspeed = '1Gf'\n\
                    [[link]]\nname = 'l'\nbandwidth = '1MBps'\nlatency = '1ms'\n\
                    [[route]]\nfrom = 'a'\nto = 'b'\nlinks = ['l']\n\
                    [[profile]]\nlink = 'l'\nkind = 'state'\nevents = [[1, 0], [2, 1]]\n\
                    [[profile]]\nlink = 'l'\nkind = 'bandwidth'\nevents = [[3, 500000.0]]\n";
        let platform = Platform::parse(text, "two.toml", &mut |_| Err("no files".into())).unwrap();
        Environment::new(Arc::new(platform), &SimConfig::default())
    }

    #[test]
    fn a_link_is_off_and_on_again_and_changes_its_rate_later() {
        let (mut environment, way) = (two_hosts(), (HostId(0), HostId(1)));
        assert_eq!(environment.apply_change(), None);
        let mut next = || {
            environment.kernel.next();
            let change = environment.apply_change();
            environment.check();
            (change, environment.routes.is_lost(way))
        };
        assert!(matches!(next(), (Some(Change::LinkOff(_)), true)));
        assert_eq!(next(), (Some(Change::LinkOn), false));
        assert_eq!(next(), (Some(Change::Rates), false));
    }

    #[test]
    fn a_route_that_was_not_lost_is_not_restored() {
        let (mut environment, way) = (two_hosts(), (HostId(0), HostId(1)));
        assert!(!environment.restore_route(way));
        environment.lose_route(way);
        environment.routes.hold_arrival(way, ScheduledEvent::TimeLimit);
        assert!(environment.restore_route(way));
        assert_eq!((environment.take_held(way).len(), environment.take_held(way).len()), (1, 0));
    }
}
