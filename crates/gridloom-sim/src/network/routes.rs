//! The routes of a simulated network: what can pass between which hosts, and the arrivals held until it can.
//!
//! Arrivals on a lost route are held. When the route heals, they are delivered in order to the connections that still
//! exist, because the sending system keeps unacknowledged data and retransmits them. So a connection survives a loss
//! during which no peer gave up. Connections between nodes and sockets of processes both use these routes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridloom_base::Time;
use gridloom_flow::{LinkIndex, NetworkModel};
use gridloom_platform::{HostId, Platform};

use super::paths::{Path, Paths};
use crate::kernel::ScheduledEvent;
use crate::memory::Memories;

/// A route: from one host to another.
pub(crate) type Route = (HostId, HostId);

/// Paths, lost routes, and the arrivals held on them.
#[derive(Debug)]
pub(crate) struct Routes {
    /// Current paths. Started transfers and held arrivals use the changed paths.
    pub(crate) paths: Paths,
    /// Bytes added to each message and each small datum: headers of the frame and of the network.
    overhead_bytes: u64,
    lost: BTreeSet<Route>,
    held: BTreeMap<Route, Vec<ScheduledEvent>>,
    /// When each route last healed.
    healed: BTreeMap<Route, Time>,
    /// The links that represent the upload limits of hosts.
    uploads: BTreeMap<HostId, LinkIndex>,
    /// The memories of the hosts that page.
    memories: Arc<Memories>,
}

impl Routes {
    pub(crate) fn new(platform: Arc<Platform>, model: NetworkModel, overhead_bytes: u64) -> Routes {
        let (lost, held, healed, uploads, memories) = Default::default();
        Routes { paths: Paths::new(platform, model), overhead_bytes, lost, held, healed, uploads, memories }
    }

    /// Adds the memories of the hosts that page. Bulk data to and from them pass their swaps.
    pub(crate) fn with_memories(self, memories: Arc<Memories>) -> Routes {
        Routes { memories, ..self }
    }

    /// Returns the swaps that a transfer of a datum uses, with the bytes that pass there per byte of the transfer.
    pub(crate) fn swaps(&self, way: Route, size_bytes: u64) -> Vec<(LinkIndex, f64)> {
        self.memories.swaps(way, size_bytes)
    }

    /// Adds links that represent upload limits, which all bulk data from those hosts to other hosts cross.
    pub(crate) fn with_uploads(self, uploads: BTreeMap<HostId, LinkIndex>) -> Routes {
        Routes { uploads, ..self }
    }

    /// Returns the link that represents the upload limit of a route's sender.
    pub(crate) fn upload(&self, (from, to): Route) -> Option<LinkIndex> {
        self.upload_of(from).filter(|_| from != to)
    }

    /// Returns the link that represents a host's upload limit.
    pub(crate) fn upload_of(&self, host: HostId) -> Option<LinkIndex> {
        self.uploads.get(&host).copied()
    }

    /// Returns the path of a route, or the reason why there is none.
    pub(crate) fn between(&mut self, (from, to): Route) -> Result<Arc<Path>, String> {
        self.paths.path(from, to)
    }

    /// Returns the name of the relay on a route, if there is one.
    pub(crate) fn relay(&self, (from, to): Route) -> Option<&str> {
        self.paths.relay(from, to)
    }

    /// Returns the path of a route on which there is, or was, a connection.
    pub(crate) fn path(&mut self, way: Route) -> Arc<Path> {
        self.between(way).expect("a connection is made only if there are routes in both directions")
    }

    /// Returns the round-trip time of a frame in nanoseconds, or the reason why it cannot travel.
    pub(crate) fn round_trip_ns(&mut self, (from, to): Route) -> Result<u64, String> {
        Ok(self.between((from, to))?.frame_latency_ns + self.between((to, from))?.frame_latency_ns)
    }

    /// Returns a counter of path changes, so that outdated cached paths can be recognised.
    pub(crate) fn version(&self) -> u64 {
        self.paths.version()
    }

    pub(crate) fn overhead_bytes(&self) -> u64 {
        self.overhead_bytes
    }

    /// Reports whether nothing can pass from one host to another.
    pub(crate) fn is_lost(&self, way: Route) -> bool {
        self.lost.contains(&way) || self.paths.is_closed(way.0, way.1)
    }

    /// Blocks the route from one host to another.
    pub(crate) fn lose(&mut self, way: Route) {
        self.lost.insert(way);
    }

    /// Unblocks a lost route. Returns true if it was lost.
    pub(crate) fn restore(&mut self, way: Route) -> bool {
        self.lost.remove(&way)
    }

    /// Returns all lost routes.
    pub(crate) fn lost(&self) -> Vec<Route> {
        self.lost.iter().copied().collect()
    }

    /// Holds an arrival until the route heals.
    pub(crate) fn hold_arrival(&mut self, way: Route, occurrence: ScheduledEvent) {
        self.held.entry(way).or_default().push(occurrence);
    }

    /// Reports whether an event for a process is held.
    pub(crate) fn holds_process_event(&self) -> bool {
        self.held.values().flatten().any(ScheduledEvent::may_resume_process)
    }

    /// Returns the routes that hold arrivals and that no link blocks.
    pub(crate) fn open_ways(&self) -> Vec<Route> {
        self.held.keys().copied().filter(|(from, to)| !self.paths.is_closed(*from, *to)).collect()
    }

    /// Heals a route. Returns the held arrivals.
    pub(crate) fn take_held(&mut self, way: Route, now: Time) -> Vec<ScheduledEvent> {
        self.healed.insert(way, now);
        self.held.remove(&way).unwrap_or_default()
    }

    /// Returns when a route last healed; `None` if it was never lost.
    pub(crate) fn healed(&self, way: Route) -> Option<Time> {
        self.healed.get(&way).copied()
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self) {
        for (way, held) in &self.held {
            assert!(held.is_empty() || self.is_lost(*way), "{way:?} holds {held:?} but is not lost");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::two_hosts::{LINK, two_hosts};

    use super::*;

    fn routes() -> Routes {
        two_hosts().2
    }

    #[test]
    fn a_lost_way_holds_until_it_heals_and_the_way_back_passes() {
        let mut routes = routes();
        let (there, back) = ((HostId(0), HostId(1)), (HostId(1), HostId(0)));
        routes.lose(there);
        assert!(routes.is_lost(there) && !routes.is_lost(back));
        routes.hold_arrival(there, ScheduledEvent::TimeLimit);
        routes.check();
        assert!(routes.restore(there) && !routes.restore(there));
        assert_eq!((routes.take_held(there, Time(7)).len(), routes.healed(there)), (1, Some(Time(7))));
        routes.check();
    }

    #[test]
    fn a_link_that_is_off_loses_all_ways_over_it() {
        let mut routes = routes();
        let way = (HostId(0), HostId(1));
        assert_eq!(routes.round_trip_ns(way), Ok(2_000_000));
        routes.paths.close(LinkIndex(LINK));
        assert!(routes.is_lost(way));
        routes.hold_arrival(way, ScheduledEvent::TimeLimit);
        assert!(routes.open_ways().is_empty());
        assert!(routes.paths.open(LinkIndex(LINK)) && !routes.is_lost(way));
        assert_eq!(routes.open_ways(), [way]);
    }
}
