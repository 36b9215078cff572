//! The routes of a simulation's network: what passes between which hosts, and what waits until something passes again.
//!
//! What arrives on a lost way is held. When the way heals it arrives, in order, at connections that still stand. The
//! sending system keeps what was not acknowledged and sends it again. So a connection outlives a loss in which no peer
//! gave up. Connections between nodes and sockets of processes both go by these routes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridloom_base::Time;
use gridloom_flow::{LinkIndex, NetworkModel};
use gridloom_platform::{HostId, Platform};

use super::paths::{Path, Paths};
use crate::kernel::Occurrence;

/// From one host to another.
pub(crate) type HostPair = (HostId, HostId);

/// Paths, lost ways and what they hold.
#[derive(Debug)]
pub(crate) struct Routes {
    /// Links change here; what has begun and what is held goes by the changed ones.
    pub(crate) paths: Paths,
    /// Added to each message and each small datum: headers of the frame and of the network's own.
    overhead_bytes: u64,
    lost: BTreeSet<HostPair>,
    held: BTreeMap<HostPair, Vec<Occurrence>>,
    /// When a way was healed last.
    healed: BTreeMap<HostPair, Time>,
    /// What stands for the limits of hosts on what they send.
    uploads: BTreeMap<HostId, LinkIndex>,
}

impl Routes {
    pub(crate) fn new(platform: Arc<Platform>, model: NetworkModel, overhead_bytes: u64) -> Routes {
        let (lost, held, healed, uploads) = Default::default();
        Routes { paths: Paths::new(platform, model), overhead_bytes, lost, held, healed, uploads }
    }

    /// The same, with links that all crosses which those hosts send in bulk to others.
    pub(crate) fn with_uploads(self, uploads: BTreeMap<HostId, LinkIndex>) -> Routes {
        Routes { uploads, ..self }
    }

    /// What stands for the limit of a way's sender.
    pub(crate) fn upload(&self, (from, to): HostPair) -> Option<LinkIndex> {
        self.upload_of(from).filter(|_| from != to)
    }

    /// What stands for a host's limit.
    pub(crate) fn upload_of(&self, host: HostId) -> Option<LinkIndex> {
        self.uploads.get(&host).copied()
    }

    /// The path of a way, or why there is none.
    pub(crate) fn between(&mut self, (from, to): HostPair) -> Result<Arc<Path>, String> {
        self.paths.between(from, to)
    }

    /// The path of a way on which there is, or was, a connection.
    pub(crate) fn path(&mut self, way: HostPair) -> Arc<Path> {
        self.between(way).expect("a connection is made only where there are routes both ways")
    }

    /// Nanoseconds that a frame takes there and back, or why one cannot.
    pub(crate) fn round_trip_ns(&mut self, (from, to): HostPair) -> Result<u64, String> {
        Ok(self.between((from, to))?.frame_latency_ns + self.between((to, from))?.frame_latency_ns)
    }

    /// Counts the changes of paths, so that a path that is kept can be recognised as old.
    pub(crate) fn version(&self) -> u64 {
        self.paths.version()
    }

    pub(crate) fn overhead_bytes(&self) -> u64 {
        self.overhead_bytes
    }

    /// Whether nothing passes from one host to another.
    pub(crate) fn is_lost(&self, way: HostPair) -> bool {
        self.lost.contains(&way) || self.paths.is_closed(way.0, way.1)
    }

    /// From now on nothing passes from one host to another.
    pub(crate) fn lose(&mut self, way: HostPair) {
        self.lost.insert(way);
    }

    /// A way that was lost is not any more; whether it was.
    pub(crate) fn restore(&mut self, way: HostPair) -> bool {
        self.lost.remove(&way)
    }

    /// All ways that are lost.
    pub(crate) fn lost(&self) -> Vec<HostPair> {
        self.lost.iter().copied().collect()
    }

    /// Keeps what would have arrived until the way heals.
    pub(crate) fn hold(&mut self, way: HostPair, occurrence: Occurrence) {
        self.held.entry(way).or_default().push(occurrence);
    }

    /// Whether word for a process is held.
    pub(crate) fn hold_for_process(&self) -> bool {
        self.held.values().flatten().any(Occurrence::is_of_process)
    }

    /// The ways that hold something and on which no link keeps it back.
    pub(crate) fn open_ways(&self) -> Vec<HostPair> {
        self.held.keys().copied().filter(|(from, to)| !self.paths.is_closed(*from, *to)).collect()
    }

    /// A way heals; what it has held.
    pub(crate) fn heal(&mut self, way: HostPair, now: Time) -> Vec<Occurrence> {
        self.healed.insert(way, now);
        self.held.remove(&way).unwrap_or_default()
    }

    /// When a way was healed last, unless it never was lost.
    pub(crate) fn healed(&self, way: HostPair) -> Option<Time> {
        self.healed.get(&way).copied()
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self) {
        for (way, held) in &self.held {
            assert!(held.is_empty() || self.is_lost(*way), "{way:?} holds {held:?}, and is not lost");
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
        routes.hold(there, Occurrence::Until);
        routes.check();
        assert!(routes.restore(there) && !routes.restore(there));
        assert_eq!((routes.heal(there, Time(7)).len(), routes.healed(there)), (1, Some(Time(7))));
        routes.check();
    }

    #[test]
    fn a_link_that_is_off_loses_all_ways_over_it() {
        let mut routes = routes();
        let way = (HostId(0), HostId(1));
        assert_eq!(routes.round_trip_ns(way), Ok(2_000_000));
        routes.paths.close(LinkIndex(LINK));
        assert!(routes.is_lost(way));
        routes.hold(way, Occurrence::Until);
        assert!(routes.open_ways().is_empty());
        assert!(routes.paths.open(LinkIndex(LINK)) && !routes.is_lost(way));
        assert_eq!(routes.open_ways(), [way]);
    }
}
