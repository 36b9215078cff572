//! Routes between hosts as flows take them, and the connections between nodes.
//!
//! A connection has two *ends*, one in the view of each node. Each end sends control frames one behind the other at the
//! speed of the route's narrowest link, and bulk data one after another as flows.
//!
//! **Invariants.** An end exists from the node's `PeerUp` to its `PeerLost` (or its own hanging up). Both ends of a
//! connection have its number, so that what belongs to an older one is recognised and dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gridloom_core::base::{DatumId, NodeId, Time};
use gridloom_core::flow::{ActionId, LinkIndex, NetworkModel};
use gridloom_core::platform::{HostId, LinkId, Platform};

use crate::queue::ns_up;
use crate::store::Value;

/// The way from one host to another.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) links: Vec<LinkIndex>,
    /// For acknowledgements; empty if the model has none.
    pub(crate) way_back: Vec<LinkIndex>,
    pub(crate) latency_s: f64,
    /// Of a control frame, after the model's factors.
    pub(crate) frame_latency_ns: u64,
    frame_bandwidth: f64,
}

impl Path {
    /// The links on the way, and those on the way back that count.
    pub(crate) fn crossed(&self) -> impl Iterator<Item = &LinkIndex> {
        self.links.iter().chain(&self.way_back)
    }

    /// Nanoseconds that so many bytes take to leave, alone on the route.
    pub(crate) fn frame_ns(&self, size_bytes: u64) -> u64 {
        ns_up(size_bytes as f64 / self.frame_bandwidth)
    }
}

/// Paths, computed once each.
#[derive(Debug)]
pub(crate) struct Paths {
    platform: Arc<Platform>,
    model: NetworkModel,
    known: BTreeMap<(HostId, HostId), Result<Arc<Path>, String>>,
    /// What differs now from what the platform says: bandwidths, and how much longer links are, seconds.
    bandwidths: BTreeMap<LinkIndex, f64>,
    longer_s: BTreeMap<LinkIndex, f64>,
    /// Counts the changes of paths, so that who keeps one notices.
    pub(crate) version: u64,
    /// Links that are off, and those without bandwidth.
    off: BTreeSet<LinkIndex>,
    standing: BTreeSet<LinkIndex>,
}

impl Paths {
    pub(crate) fn new(platform: Arc<Platform>, model: NetworkModel) -> Paths {
        let (known, bandwidths, longer_s, off, standing) = Default::default();
        Paths { platform, model, known, bandwidths, longer_s, version: 0, off, standing }
    }

    /// From now on a link has that bandwidth; whether it had none.
    pub(crate) fn set_bandwidth(&mut self, link: LinkIndex, bandwidth: f64) -> bool {
        if bandwidth <= 0.0 {
            self.standing.insert(link);
            return false;
        }
        self.bandwidths.insert(link, bandwidth);
        self.forget();
        self.standing.remove(&link)
    }

    /// From now on a link has that latency, seconds.
    pub(crate) fn set_latency(&mut self, link: LinkIndex, latency_s: f64) {
        let described_s = self.platform.links()[link.0 as usize].latency_s;
        self.longer_s.insert(link, latency_s - described_s);
        self.forget();
    }

    fn forget(&mut self) {
        self.known.clear();
        self.version += 1;
    }

    /// A link is off.
    pub(crate) fn close(&mut self, link: LinkIndex) {
        self.off.insert(link);
    }

    /// A link is on; whether it was off.
    pub(crate) fn open(&mut self, link: LinkIndex) -> bool {
        self.off.remove(&link)
    }

    /// Whether nothing passes from one host to another, because of a link on the way or, for acknowledgements, back.
    pub(crate) fn is_closed(&self, src: HostId, dst: HostId) -> bool {
        if self.off.is_empty() && self.standing.is_empty() {
            return false;
        }
        let is_closed = |link: &LinkIndex| self.off.contains(link) || self.standing.contains(link);
        match self.known.get(&(src, dst)) {
            Some(path) => path.as_ref().is_ok_and(|path| path.crossed().any(is_closed)),
            None => self.path(src, dst).is_ok_and(|path| path.crossed().any(is_closed)),
        }
    }

    /// The way, or why there is none.
    pub(crate) fn between(&mut self, src: HostId, dst: HostId) -> Result<Arc<Path>, String> {
        if let Some(known) = self.known.get(&(src, dst)) {
            return known.clone();
        }
        let path = self.path(src, dst).map(Arc::new);
        self.known.insert((src, dst), path.clone());
        path
    }

    fn path(&self, src: HostId, dst: HostId) -> Result<Path, String> {
        let Paths { platform, model, .. } = self;
        let route = platform.route(src, dst).map_err(|error| error.to_string())?;
        let back = if model.cross_traffic { platform.route(dst, src).ok() } else { None };
        let indices = |links: &[LinkId]| links.iter().map(|link| LinkIndex(link.0)).collect();
        let bandwidth = |link: &LinkId| match self.bandwidths.get(&LinkIndex(link.0)) {
            Some(changed) => *changed,
            None => platform.links()[link.0 as usize].bandwidth,
        };
        let narrowest = route.links.iter().map(bandwidth).fold(f64::INFINITY, f64::min);
        let longer_s = route.links.iter().filter_map(|link| self.longer_s.get(&LinkIndex(link.0)));
        let latency_s = longer_s.fold(route.latency_s, |sum_s, longer_s| sum_s + longer_s).max(0.0);
        Ok(Path {
            links: indices(&route.links),
            way_back: back.map(|back| indices(&back.links)).unwrap_or_default(),
            latency_s,
            frame_latency_ns: ns_up(model.latency_phase_s(latency_s)),
            frame_bandwidth: model.bandwidth_factor * model.bound(latency_s, narrowest),
        })
    }
}

/// One node's end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    /// Number of the connection.
    pub(crate) connection: u64,
    /// When the last control frame has left.
    pub(crate) frames_until: Time,
    /// When the last of them arrives: a way that gets shorter lets none overtake another.
    pub(crate) frames_arrive: Time,
    /// The way to the other end, of that version of the paths.
    pub(crate) path: Option<(u64, Arc<Path>)>,
    /// What waits to be sent in bulk, and since when the way was there for it.
    pub(crate) bulk: VecDeque<(Option<Time>, Cargo)>,
    pub(crate) moving: Option<Moving>,
    /// The other end was forgotten without a word.
    pub(crate) half_open: bool,
}

/// A flow under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving {
    pub(crate) action: ActionId,
    pub(crate) started: Time,
}

/// What moves besides messages.
#[derive(Clone, Debug)]
pub(crate) enum Cargo {
    Datum { datum: DatumId, value: Value },
    Probe { size_bytes: u64 },
}

impl Cargo {
    pub(crate) fn size_bytes(&self) -> u64 {
        match self {
            Cargo::Datum { value, .. } => value.meta.size_bytes(),
            Cargo::Probe { size_bytes } => *size_bytes,
        }
    }
}

/// All ends, by (owner, peer).
#[derive(Debug, Default)]
pub(crate) struct Connections {
    ends: BTreeMap<(NodeId, NodeId), End>,
    made: u64,
}

impl Connections {
    /// Makes a connection.
    pub(crate) fn make(&mut self, a: NodeId, b: NodeId) {
        self.made += 1;
        for pair in [(a, b), (b, a)] {
            let (connection, frames_until, bulk) = (self.made, Time::ZERO, VecDeque::new());
            let frames_arrive = Time::ZERO;
            let (path, moving) = (None, None);
            let end = End { connection, frames_until, frames_arrive, path, bulk, moving, half_open: false };
            let before = self.ends.insert(pair, end);
            assert!(before.is_none(), "a connection is made where there is none");
        }
    }

    pub(crate) fn end(&self, owner: NodeId, peer: NodeId) -> Option<&End> {
        self.ends.get(&(owner, peer))
    }

    pub(crate) fn end_mut(&mut self, owner: NodeId, peer: NodeId) -> Option<&mut End> {
        self.ends.get_mut(&(owner, peer))
    }

    pub(crate) fn remove(&mut self, owner: NodeId, peer: NodeId) -> Option<End> {
        self.ends.remove(&(owner, peer))
    }

    /// Those to whom a node is connected, in its own view.
    pub(crate) fn peers(&self, owner: NodeId) -> Vec<NodeId> {
        let all = (owner, NodeId(0))..=(owner, NodeId(u64::MAX));
        self.ends.range(all).map(|((_, peer), _)| *peer).collect()
    }

    pub(crate) fn pairs(&self) -> Vec<(NodeId, NodeId)> {
        self.ends.keys().copied().collect()
    }
}
