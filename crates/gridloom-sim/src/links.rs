//! Routes between hosts as flows take them, and the connections between nodes.
//!
//! A connection has two *ends*, one in the view of each node. Each end sends control frames one behind the other at the
//! speed of the route's narrowest link, and bulk data one after another as flows.
//!
//! **Invariants.** An end exists from the node's `PeerUp` to its `PeerLost` (or its own hanging up). Both ends of a
//! connection have its number, so that what belongs to an older one is recognised and dropped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gridloom_core::base::{DatumId, NodeId, Time};
use gridloom_core::flow::{ActionId, LinkIndex, NetworkModel};
use gridloom_core::platform::{HostId, Platform};

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
}

impl Paths {
    pub(crate) fn new(platform: Arc<Platform>, model: NetworkModel) -> Paths {
        Paths { platform, model, known: BTreeMap::new() }
    }

    /// The way, or why there is none.
    pub(crate) fn between(&mut self, src: HostId, dst: HostId) -> Result<Arc<Path>, String> {
        let Paths { platform, model, known } = self;
        known.entry((src, dst)).or_insert_with(|| path(platform, model, src, dst).map(Arc::new)).clone()
    }
}

fn path(platform: &Platform, model: &NetworkModel, src: HostId, dst: HostId) -> Result<Path, String> {
    let route = platform.route(src, dst).map_err(|error| error.to_string())?;
    let back = if model.cross_traffic { platform.route(dst, src).ok() } else { None };
    let indices = |links: &[gridloom_core::platform::LinkId]| links.iter().map(|link| LinkIndex(link.0)).collect();
    let bandwidths = route.links.iter().map(|link| platform.links()[link.0 as usize].bandwidth);
    let narrowest = bandwidths.fold(f64::INFINITY, f64::min);
    Ok(Path {
        links: indices(&route.links),
        way_back: back.map(|back| indices(&back.links)).unwrap_or_default(),
        latency_s: route.latency_s,
        frame_latency_ns: ns_up(model.latency_phase_s(route.latency_s)),
        frame_bandwidth: model.bandwidth_factor * model.bound(route.latency_s, narrowest),
    })
}

/// One node's end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    /// Number of the connection.
    pub(crate) connection: u64,
    /// When the last control frame has left.
    pub(crate) frames_until: Time,
    /// What waits to be sent in bulk; the first is under way if `moving` says so.
    pub(crate) bulk: VecDeque<Cargo>,
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
            let end = End { connection, frames_until, bulk, moving: None, half_open: false };
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
