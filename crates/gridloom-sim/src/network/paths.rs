//! Paths of flows between hosts. Each is computed once, and again when a profile changes a link.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gridloom_flow::{LinkIndex, NetworkModel};
use gridloom_platform::{HostId, LinkId, Platform};

use crate::queue::ns_up;

/// A path from one host to another.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) links: Vec<LinkIndex>,
    /// Links crossed by acknowledgements; empty if the model has none.
    pub(crate) return_links: Vec<LinkIndex>,
    pub(crate) latency_s: f64,
    /// Latency of a control frame, with the model's factors applied.
    pub(crate) frame_latency_ns: u64,
    frame_bandwidth: f64,
}

impl Path {
    /// Returns the links of the path, and the return links that count.
    pub(crate) fn crossed(&self) -> impl Iterator<Item = &LinkIndex> {
        self.links.iter().chain(&self.return_links)
    }

    /// Returns the nanoseconds that a frame takes to leave when it has the route to itself.
    pub(crate) fn frame_ns(&self, size_bytes: u64) -> u64 {
        ns_up(size_bytes as f64 / self.frame_bandwidth)
    }
}

/// A cache of paths.
#[derive(Debug)]
pub(crate) struct Paths {
    platform: Arc<Platform>,
    model: NetworkModel,
    known: BTreeMap<(HostId, HostId), Result<Arc<Path>, String>>,
    /// Current differences from the platform's description: bandwidths, and additional latencies in seconds.
    bandwidths: BTreeMap<LinkIndex, f64>,
    added_latency_s: BTreeMap<LinkIndex, f64>,
    version: u64,
    /// Links that are off, and links without bandwidth.
    off: BTreeSet<LinkIndex>,
    zero_bandwidth: BTreeSet<LinkIndex>,
}

impl Paths {
    pub(super) fn new(platform: Arc<Platform>, model: NetworkModel) -> Paths {
        let (known, bandwidths, added_latency_s, off, zero_bandwidth) = Default::default();
        Paths { platform, model, known, bandwidths, added_latency_s, version: 0, off, zero_bandwidth }
    }

    pub(crate) fn model(&self) -> &NetworkModel {
        &self.model
    }

    /// Returns a counter of path changes, so that outdated cached paths can be recognised.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Sets the bandwidth of a link. Returns true if it had none before.
    pub(crate) fn set_bandwidth(&mut self, link: LinkIndex, bandwidth: f64) -> bool {
        if bandwidth <= 0.0 {
            self.zero_bandwidth.insert(link);
            return false;
        }
        self.bandwidths.insert(link, bandwidth);
        self.forget();
        self.zero_bandwidth.remove(&link)
    }

    /// Sets the latency of a link, seconds.
    pub(crate) fn set_latency(&mut self, link: LinkIndex, latency_s: f64) {
        let described_s = self.platform.links()[link.0 as usize].latency_s;
        self.added_latency_s.insert(link, latency_s - described_s);
        self.forget();
    }

    fn forget(&mut self) {
        self.known.clear();
        self.version += 1;
    }

    /// Marks a link as off.
    pub(crate) fn close(&mut self, link: LinkIndex) {
        self.off.insert(link);
    }

    /// Marks a link as on. Returns true if it was off.
    pub(crate) fn open(&mut self, link: LinkIndex) -> bool {
        self.off.remove(&link)
    }

    /// Reports whether a link blocks all traffic from one host to another, on the path or on the return path of acknowledgements.
    pub(super) fn is_closed(&self, src: HostId, dst: HostId) -> bool {
        if self.off.is_empty() && self.zero_bandwidth.is_empty() {
            return false;
        }
        let is_closed = |link: &LinkIndex| self.off.contains(link) || self.zero_bandwidth.contains(link);
        match self.known.get(&(src, dst)) {
            Some(path) => path.as_ref().is_ok_and(|path| path.crossed().any(is_closed)),
            None => self.find_path(src, dst).is_ok_and(|path| path.crossed().any(is_closed)),
        }
    }

    /// Returns the name of the relay between two hosts, if there is one.
    pub(super) fn relay(&self, src: HostId, dst: HostId) -> Option<&str> {
        let relay = self.platform.relay(src, dst)?;
        Some(&self.platform.hosts()[relay.0 as usize].name)
    }

    /// Returns the path, or the reason why there is none.
    pub(super) fn path(&mut self, src: HostId, dst: HostId) -> Result<Arc<Path>, String> {
        if let Some(known) = self.known.get(&(src, dst)) {
            return known.clone();
        }
        let path = self.find_path(src, dst).map(Arc::new);
        self.known.insert((src, dst), path.clone());
        path
    }

    fn find_path(&self, src: HostId, dst: HostId) -> Result<Path, String> {
        let Paths { platform, model, .. } = self;
        let route = platform.route(src, dst).map_err(|error| error.to_string())?;
        let back = if model.cross_traffic { platform.route(dst, src).ok() } else { None };
        let indices = |links: &[LinkId]| links.iter().map(|link| LinkIndex(link.0)).collect();
        let bandwidth = |link: &LinkId| match self.bandwidths.get(&LinkIndex(link.0)) {
            Some(changed) => *changed,
            None => platform.links()[link.0 as usize].bandwidth,
        };
        let narrowest = route.links.iter().map(bandwidth).fold(f64::INFINITY, f64::min);
        let longer_s = route.links.iter().filter_map(|link| self.added_latency_s.get(&LinkIndex(link.0)));
        let latency_s = longer_s.fold(route.latency_s, |sum_s, longer_s| sum_s + longer_s).max(0.0);
        Ok(Path {
            links: indices(&route.links),
            return_links: back.map(|back| indices(&back.links)).unwrap_or_default(),
            latency_s,
            frame_latency_ns: ns_up(model.latency_phase_s(latency_s)),
            frame_bandwidth: model.bandwidth_factor * model.bound(latency_s, narrowest),
        })
    }
}
