//! The route from one point to another.
//!
//! Model (SimGrid's): a *point* is a host, a router or a zone. Every point except the root zone is in one zone. A zone
//! has routes between its direct members ([`routing`](super::routing)). A route between two zones
//! names two *gateways*, where it leaves the one and enters the other. They are somewhere inside them.
//!
//! To find a route from `src` to `dst`, find the deepest zone that contains both, and take its local route between the two
//! children that contain them. Then continue recursively from `src` to the first gateway and from the second gateway to `dst`.
//!
//! **Invariants** (established by the builder): zones form a tree; a gateway is inside the zone it opens. Hence each
//! recursion is strictly deeper in the tree, and ends.
//!
//! Latencies are added in SimGrid's order - the middle of the route first - so that sums agree to the last bit.

use std::collections::BTreeMap;

use super::leaves::Leaves;
use super::net::{Net, Zone};
use super::point::{Edge, NoRoute, PointId, PointKind, ZoneId};
use super::routing::{Dijkstra, Floyd, Routing, Spoke};
use crate::element::{LOOPBACK, Link, LinkId, Route};

/// A route under construction.
pub(crate) struct Walk<'a> {
    pub net: &'a Net,
    pub all_links: &'a [Link],
    pub route: Route,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(net: &'a Net, all_links: &'a [Link]) -> Walk<'a> {
        Walk { net, all_links, route: Route { links: Vec::new(), latency_s: 0.0 } }
    }

    /// Adds the latencies of `links` to the sum, in their order.
    pub(crate) fn add_latency(&mut self, links: &[LinkId]) {
        for link in links {
            self.route.latency_s += self.all_links[link.0 as usize].latency_s;
        }
    }

    /// Appends the route from `src` to `dst`, at any depth.
    pub(crate) fn append_route(&mut self, src: PointId, dst: PointId) -> Result<(), NoRoute> {
        let net = self.net;
        let (src_zones, dst_zones) = (net.zones_around(src), net.zones_around(dst));
        let shared = src_zones.iter().rev().zip(dst_zones.iter().rev()).take_while(|(a, b)| a == b).count();
        let (src_path, dst_path) = (&src_zones[..src_zones.len() - shared], &dst_zones[..dst_zones.len() - shared]);
        let common = net.zone(src_zones[src_zones.len() - shared]);

        if let Some((key, edge)) = bypass(net, common, src, dst, src_path, dst_path) {
            let direct = key == (src, dst);
            self.add_latency(&edge.links);
            if !direct && src != edge.gateway_src {
                self.append_route(src, edge.gateway_src)?;
            }
            self.route.links.extend_from_slice(&edge.links);
            if !direct && edge.gateway_dst != dst {
                self.append_route(edge.gateway_dst, dst)?;
            }
            return Ok(());
        }

        let src_child = src_path.last().map_or(src, |zone| net.zone(*zone).point);
        let dst_child = dst_path.last().map_or(dst, |zone| net.zone(*zone).point);
        let middle = local_route(self, common, src_child, dst_child)?;
        // A zone without a gateway cannot be entered, and the recursion would never end.
        for gateway in [middle.gateway_src, middle.gateway_dst] {
            if matches!(net.point(gateway).kind, PointKind::Zone(_)) {
                return Err(NoRoute { src: src_child, dst: dst_child });
            }
        }
        if src != middle.gateway_src {
            self.append_route(src, middle.gateway_src)?;
        }
        self.route.links.extend_from_slice(&middle.links);
        if middle.gateway_dst != dst {
            self.append_route(middle.gateway_dst, dst)?;
        }
        Ok(())
    }

    /// Returns the route from `src` to `dst` as a separate list; its latency is added to the sum.
    pub(crate) fn separate_route(&mut self, src: PointId, dst: PointId) -> Result<Vec<LinkId>, NoRoute> {
        let before = std::mem::take(&mut self.route.links);
        let result = self.append_route(src, dst);
        let links = std::mem::replace(&mut self.route.links, before);
        result.map(|()| links)
    }
}

type Key = (PointId, PointId);

/// Returns the bypass of `common` that applies, innermost pair of zones first.
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

/// Returns the local route of `zone` from `src` to `dst`, two of its members. Its latency is added to the walk.
fn local_route(walk: &mut Walk<'_>, zone: &Zone, src: PointId, dst: PointId) -> Result<Edge, NoRoute> {
    let missing = NoRoute { src, dst };
    match &zone.routing {
        Routing::None => Err(missing),
        Routing::Full(table) => {
            let edge = match table.get(&(src, dst)) {
                Some(edge) => edge.clone(),
                None => loopback(walk, src, dst).ok_or(missing)?,
            };
            walk.add_latency(&edge.links);
            Ok(edge)
        }
        Routing::Floyd(floyd) => floyd_route(floyd, walk, zone, src, dst),
        Routing::Dijkstra(dijkstra) => dijkstra_route(dijkstra, walk, src, dst),
        Routing::FatTree(tree) => leaves_route(walk, &tree.leaves, src, dst, |from, to| tree.route(from, to)),
        Routing::Torus(torus) => leaves_route(walk, &torus.leaves, src, dst, |from, to| Some(torus.route(from, to))),
        Routing::Dragonfly(dragonfly) => {
            leaves_route(walk, &dragonfly.leaves, src, dst, |from, to| Some(dragonfly.route(from, to)))
        }
        Routing::Star(spokes) => Ok(star_route(walk, spokes, src, dst)),
        Routing::Vivaldi(spokes) => {
            let edge = star_route(walk, spokes, src, dst);
            let place = |point| walk.net.point(point).coordinates.ok_or(missing);
            walk.route.latency_s += vivaldi_latency_s(place(src)?, place(dst)?);
            Ok(edge)
        }
    }
}

/// The implicit loopback of a host.
fn loopback(walk: &Walk<'_>, src: PointId, dst: PointId) -> Option<Edge> {
    let is_host = matches!(walk.net.point(src).kind, PointKind::Host(_));
    (src == dst && is_host).then(|| Edge { links: vec![LOOPBACK], gateway_src: src, gateway_dst: dst })
}

fn star_route(walk: &mut Walk<'_>, spokes: &BTreeMap<PointId, Spoke>, src: PointId, dst: PointId) -> Edge {
    let hub = Spoke::default();
    let (from, to) = (spokes.get(&src).unwrap_or(&hub), spokes.get(&dst).unwrap_or(&hub));
    let gateways = (from.gateway.unwrap_or(src), to.gateway.unwrap_or(dst));
    let links = match from.loopback {
        Some(own) if src == dst => vec![own],
        _ => {
            let mut links: Vec<LinkId> = Vec::with_capacity(from.up.len() + to.down.len());
            for link in from.up.iter().chain(&to.down) {
                if !links.contains(link) {
                    links.push(*link);
                }
            }
            links
        }
    };
    walk.add_latency(&links);
    Edge { links, gateway_src: gateways.0, gateway_dst: gateways.1 }
}

/// Latency in seconds between two coordinates of a Vivaldi system (Dabek et al., SIGCOMM 2004): Euclidean distance in the
/// plane plus both heights, all in milliseconds.
fn vivaldi_latency_s(a: [f64; 3], b: [f64; 3]) -> f64 {
    let (dx, dy) = (a[0] - b[0], a[1] - b[1]);
    (libm::sqrt(dx * dx + dy * dy) + a[2].abs() + b[2].abs()) / 1000.0
}

/// Returns the route between two members, where `way` returns the one between two hosts by their positions. The router
/// represents the whole cluster: no link is crossed to reach it.
fn leaves_route(
    walk: &mut Walk<'_>,
    leaves: &Leaves,
    src: PointId,
    dst: PointId,
    way: impl FnOnce(usize, usize) -> Option<Vec<LinkId>>,
) -> Result<Edge, NoRoute> {
    let links = match (leaves.positions.get(&src), leaves.positions.get(&dst)) {
        (Some(&from), Some(&to)) => match leaves.loopbacks.get(from).filter(|_| from == to) {
            Some(own) => vec![*own],
            None => way(from, to).ok_or(NoRoute { src, dst })?,
        },
        (None, _) | (_, None) => Vec::new(),
    };
    walk.add_latency(&links);
    Ok(Edge { links, gateway_src: src, gateway_dst: dst })
}

fn floyd_route(floyd: &Floyd, walk: &mut Walk<'_>, zone: &Zone, src: PointId, dst: PointId) -> Result<Edge, NoRoute> {
    let missing = NoRoute { src, dst };
    let (start, mut current) = (walk.net.point(src).index, walk.net.point(dst).index);
    let mut hops: Vec<&Edge> = Vec::new();
    loop {
        let before = floyd.predecessors[start as usize * floyd.members + current as usize];
        if before == u32::MAX || hops.len() > zone.members.len() {
            return Err(missing);
        }
        hops.push(floyd.edges.get(&(before, current)).ok_or(missing)?);
        current = before;
        if current == start {
            break;
        }
    }
    let mut links = Vec::new();
    let mut entered: Option<PointId> = None;
    for hop in hops.iter().rev() {
        if let Some(gateway) = entered.filter(|gateway| *gateway != hop.gateway_src) {
            links.extend(walk.separate_route(gateway, hop.gateway_src)?);
        }
        walk.add_latency(&hop.links);
        links.extend_from_slice(&hop.links);
        entered = Some(hop.gateway_dst);
    }
    let (last, first) = (hops.first().ok_or(missing)?, hops.last().ok_or(missing)?);
    Ok(Edge { links, gateway_src: first.gateway_src, gateway_dst: last.gateway_dst })
}

fn dijkstra_route(dijkstra: &Dijkstra, walk: &mut Walk<'_>, src: PointId, dst: PointId) -> Result<Edge, NoRoute> {
    let missing = NoRoute { src, dst };
    if src == dst {
        let edge = dijkstra.edge(src, dst).cloned().or_else(|| loopback(walk, src, dst)).ok_or(missing)?;
        walk.add_latency(&edge.links);
        return Ok(edge);
    }
    let (&start, &end) = (dijkstra.vertices.get(&src).ok_or(missing)?, dijkstra.vertices.get(&dst).ok_or(missing)?);
    let before = dijkstra.tree(start);

    // From the end to the start, as SimGrid does, so that latencies are added in the same order.
    let mut links: Vec<LinkId> = Vec::new();
    let mut following: Option<&Edge> = None;
    let mut gateway_dst = dst;
    let mut vertex = end;
    while vertex != start {
        let (from, number) = before[vertex].ok_or(missing)?;
        let hop = &dijkstra.out[from][number].1;
        match following {
            None => gateway_dst = hop.gateway_dst,
            Some(next) if next.gateway_src != hop.gateway_dst => {
                let inside = walk.separate_route(hop.gateway_dst, next.gateway_src)?;
                links.extend(inside.into_iter().rev());
            }
            Some(_) => {}
        }
        walk.add_latency(&hop.links);
        links.extend(hop.links.iter().rev());
        following = Some(hop);
        vertex = from;
    }
    links.reverse();
    Ok(Edge { links, gateway_src: following.ok_or(missing)?.gateway_src, gateway_dst })
}
