//! Points of a platform: hosts, routers and zones, and the links that join two of them.

use crate::element::{HostId, LinkId};

/// A host, a router or a zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PointId(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ZoneId(pub u32);

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum PointKind {
    Host(HostId),
    Router,
    Zone(ZoneId),
}

#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub name: String,
    pub kind: PointKind,
    /// The zone that contains it; the root zone's point names the root itself.
    pub zone: ZoneId,
    /// Its number among the members of that zone.
    pub index: u32,
    /// Position in a Vivaldi zone: x and y in milliseconds, and the height above the plane.
    pub coordinates: Option<[f64; 3]>,
}

/// Links between two points of one zone. The gateways are the points themselves unless these are zones.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Edge {
    pub links: Vec<LinkId>,
    pub gateway_src: PointId,
    pub gateway_dst: PointId,
}

/// There is no route between these two points.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct NoRoute {
    pub src: PointId,
    pub dst: PointId,
}
