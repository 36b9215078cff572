//! Hosts, links, and the route from one host to another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A host, by its number in [`Platform::hosts`](crate::Platform::hosts).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct HostId(pub u32);

/// A link, by its number in [`Platform::links`](crate::Platform::links).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LinkId(pub u32);

/// The link from a host to itself if the platform gives no other: `__loopback__`, link 0 of every platform.
pub const LOOPBACK: LinkId = LinkId(0);

/// How concurrent flows share a link. A split-duplex link is two shared ones, `NAME_UP` and `NAME_DOWN`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// All flows together get the bandwidth.
    Shared,
    /// Each flow gets up to the full bandwidth: a backbone too wide to be saturated.
    Fatpipe,
}

/// A machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Unique name.
    pub name: String,
    /// Speed of one core, in floating-point operations per second.
    pub speed_flops: f64,
    pub cores: u32,
    /// Other properties in the file.
    pub properties: BTreeMap<String, String>,
}

/// A link, or one direction of a split-duplex link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Link {
    /// Unique name.
    pub name: String,
    /// Bytes per second.
    pub bandwidth: f64,
    pub latency_s: f64,
    /// How flows share it.
    pub sharing: Sharing,
}

/// The route from one host to another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The links that it crosses, in order.
    pub links: Vec<LinkId>,
    /// Sum of the links' latencies, plus the distance in a zone with coordinates. Seconds.
    pub latency_s: f64,
}

/// Maximum number of hosts, routers, links and zones of one platform: ids are 32 bits, and memory is bounded.
pub(crate) const ELEMENTS_MAX: usize = 16_000_000;
