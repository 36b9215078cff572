//! Points, zones and the way from one point to another.
//!
//! Model (SimGrid's): a *point* is a host, a router or a zone; every point but the root zone lies in one zone. A zone
//! knows how to go between the points that lie directly in it ([`super::routing`]); a route between two zones names the
//! *gateways* where it leaves the one and enters the other, which lie somewhere inside them.
//!
//! To go from `src` to `dst`: find the deepest zone that holds both, take its local route between the two children
//! that hold them, go (recursively) from `src` to the first gateway and from the second gateway to `dst`.
//!
//! **Invariants** (established by the builder): zones form a tree; a gateway lies inside the zone it opens. Hence each
//! recursion happens strictly deeper in the tree, and ends.
//!
//! Latencies are added in SimGrid's order - the middle of the route first - so that sums agree to the last bit.

use std::collections::BTreeMap;

use super::routing::Routing;
use super::{HostId, Link, LinkId, Route};

/// A host, a router or a zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PointId(pub u32);

/// A zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ZoneId(pub u32);

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum PointKind {
    Host(HostId),
    Router,
    Zone(ZoneId),
}

#[derive(Clone, Debug)]
pub(super) struct Point {
    pub name: String,
    pub kind: PointKind,
    /// The zone it lies in; the root zone's point names the root itself.
    pub zone: ZoneId,
    /// Its number among the members of that zone.
    pub index: u32,
    /// Place in a Vivaldi zone: x and y in milliseconds, and the height above the plane.
    pub coordinates: Option<[f64; 3]>,
}

/// Links between two points of one zone. The gateways are the points themselves unless those are zones.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Edge {
    pub links: Vec<LinkId>,
    pub gateway_src: PointId,
    pub gateway_dst: PointId,
}

#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub point: PointId,
    pub parent: Option<ZoneId>,
    pub members: Vec<PointId>,
    pub routing: Routing,
    /// One-way exceptions that win over the zone's own routing, between members or between any zones inside.
    pub bypass: BTreeMap<(PointId, PointId), Edge>,
}

/// All points and zones. Zone 0 is the root.
#[derive(Clone, Debug, Default)]
pub(super) struct Net {
    pub points: Vec<Point>,
    pub zones: Vec<Zone>,
}

/// A route being put together.
pub(super) struct Walk<'a> {
    pub net: &'a Net,
    pub all_links: &'a [Link],
    pub route: Route,
}

/// There is no way between these two points.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct NoRoute {
    pub src: PointId,
    pub dst: PointId,
}

impl Net {
    pub(super) fn point(&self, id: PointId) -> &Point {
        &self.points[id.0 as usize]
    }

    pub(super) fn zone(&self, id: ZoneId) -> &Zone {
        &self.zones[id.0 as usize]
    }

    /// The zones around a point, innermost first, root last.
    fn zones_around(&self, point: PointId) -> Vec<ZoneId> {
        let mut zone = self.point(point).zone;
        let mut path = vec![zone];
        while let Some(parent) = self.zone(zone).parent {
            path.push(parent);
            zone = parent;
        }
        path
    }

    /// Whether `point` is `ancestor` or lies anywhere inside of it.
    pub(super) fn lies_in(&self, point: PointId, ancestor: PointId) -> bool {
        point == ancestor || self.zones_around(point).iter().any(|zone| self.zone(*zone).point == ancestor)
    }
}

impl<'a> Walk<'a> {
    pub(super) fn new(net: &'a Net, all_links: &'a [Link]) -> Walk<'a> {
        Walk { net, all_links, route: Route { links: Vec::new(), latency_s: 0.0 } }
    }

    /// Adds the latencies of `links` to the sum, in their order.
    pub(super) fn add_latency(&mut self, links: &[LinkId]) {
        for link in links {
            self.route.latency_s += self.all_links[link.0 as usize].latency_s;
        }
    }

    /// Appends the way from `src` to `dst`, wherever they lie.
    pub(super) fn go(&mut self, src: PointId, dst: PointId) -> Result<(), NoRoute> {
        let net = self.net;
        let (src_zones, dst_zones) = (net.zones_around(src), net.zones_around(dst));
        let shared = src_zones.iter().rev().zip(dst_zones.iter().rev()).take_while(|(a, b)| a == b).count();
        let (src_path, dst_path) = (&src_zones[..src_zones.len() - shared], &dst_zones[..dst_zones.len() - shared]);
        let common = net.zone(src_zones[src_zones.len() - shared]);

        if let Some((key, edge)) = bypass(net, common, src, dst, src_path, dst_path) {
            let direct = key == (src, dst);
            self.add_latency(&edge.links);
            if !direct && src != edge.gateway_src {
                self.go(src, edge.gateway_src)?;
            }
            self.route.links.extend_from_slice(&edge.links);
            if !direct && edge.gateway_dst != dst {
                self.go(edge.gateway_dst, dst)?;
            }
            return Ok(());
        }

        let src_child = src_path.last().map_or(src, |zone| net.zone(*zone).point);
        let dst_child = dst_path.last().map_or(dst, |zone| net.zone(*zone).point);
        let middle = super::routing::local_route(self, common, src_child, dst_child)?;
        if src != middle.gateway_src {
            self.go(src, middle.gateway_src)?;
        }
        self.route.links.extend_from_slice(&middle.links);
        if middle.gateway_dst != dst {
            self.go(middle.gateway_dst, dst)?;
        }
        Ok(())
    }

    /// The way from `src` to `dst` as a list of its own; its latency is added to the sum.
    pub(super) fn aside(&mut self, src: PointId, dst: PointId) -> Result<Vec<LinkId>, NoRoute> {
        let before = std::mem::take(&mut self.route.links);
        let result = self.go(src, dst);
        let links = std::mem::replace(&mut self.route.links, before);
        result.map(|()| links)
    }
}

type Key = (PointId, PointId);

/// The bypass of `common` that applies, innermost pair of zones first.
fn bypass<'n>(
    net: &'n Net,
    common: &'n Zone,
    src: PointId,
    dst: PointId,
    src_path: &[ZoneId],
    dst_path: &[ZoneId],
) -> Option<(Key, &'n Edge)> {
    if common.bypass.is_empty() {
        return None;
    }
    let candidates = |end: PointId, path: &[ZoneId]| -> Vec<PointId> {
        if path.is_empty() { vec![end] } else { path.iter().map(|zone| net.zone(*zone).point).collect() }
    };
    let (from, to) = (candidates(src, src_path), candidates(dst, dst_path));
    let find = |i: usize, j: usize| {
        let key = (*from.get(i)?, *to.get(j)?);
        common.bypass.get(&key).map(|edge| (key, edge))
    };
    for max in 0..from.len().max(to.len()) {
        for i in 0..max {
            if let Some(found) = find(i, max).or_else(|| find(max, i)) {
                return Some(found);
            }
        }
        if let Some(found) = find(max, max) {
            return Some(found);
        }
    }
    None
}
