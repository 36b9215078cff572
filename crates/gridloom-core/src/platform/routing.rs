//! How one zone goes between the points that lie directly in it.
//!
//! | routing | way from a to b |
//! |---|---|
//! | full | the route given for the pair |
//! | floyd, dijkstra | the chain of given routes with the fewest links; ties as SimGrid breaks them |
//! | star | up from a, down to b, each link once (flat clusters; a backbone is in both halves) |
//! | vivaldi | star, plus the distance of the coordinates as latency |
//! | fat tree | up to a common switch chosen by the target, and down ([`super::fat_tree`]) |
//! | torus | one dimension after another ([`super::torus`]) |
//! | dragonfly | over the link between the two groups ([`super::dragonfly`]) |
//! | none | there is none |
//!
//! **Invariant:** memory is linear in what the file says, but for Floyd's table (members², bounded by the builder).
//! From a point to itself, zones with given routes use the platform's loopback link unless the pair has a route.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::dragonfly::Dragonfly;
use super::fat_tree::FatTree;
use super::net::{Edge, NoRoute, PointId, PointKind, Walk, Zone};
use super::torus::Torus;
use super::{LOOPBACK, LinkId};

/// Routing of one zone.
#[derive(Clone, Debug)]
pub(super) enum Routing {
    /// Given for each pair.
    Full(BTreeMap<(PointId, PointId), Edge>),
    /// Fewest links, all pairs computed when the platform is built.
    Floyd(Floyd),
    /// Fewest links, computed for each route asked for.
    Dijkstra(Dijkstra),
    /// Up and down.
    Star(BTreeMap<PointId, Spoke>),
    /// Up and down, plus a distance.
    Vivaldi(BTreeMap<PointId, Spoke>),
    /// Up as far as needed, then down.
    FatTree(Box<FatTree>),
    /// Along the dimensions.
    Torus(Box<Torus>),
    /// Through groups, chassis and blades.
    Dragonfly(Box<Dragonfly>),
    /// No routes at all.
    None,
}

/// What joins a member of a star to the hub. A member without one is the hub itself (a router).
#[derive(Clone, Debug, Default)]
pub(super) struct Spoke {
    pub up: Vec<LinkId>,
    pub down: Vec<LinkId>,
    pub loopback: Option<LinkId>,
    /// Where the way enters a member that is a zone.
    pub gateway: Option<PointId>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Floyd {
    /// By member index.
    pub edges: BTreeMap<(u32, u32), Edge>,
    /// Row a, column b: the last member before b on the way from a; `u32::MAX` when there is no way.
    pub predecessors: Vec<u32>,
    pub members: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Dijkstra {
    /// Vertices in the order in which the routes name them first: the order that breaks ties.
    pub vertices: BTreeMap<PointId, usize>,
    /// Outgoing edges of each vertex, in the order given.
    pub out: Vec<Vec<(usize, Edge)>>,
}

/// The local route of `zone` from `src` to `dst`, two of its members. Its latency is added to the walk.
pub(super) fn local_route(walk: &mut Walk<'_>, zone: &Zone, src: PointId, dst: PointId) -> Result<Edge, NoRoute> {
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
        Routing::Floyd(floyd) => floyd.route(walk, zone, src, dst),
        Routing::Dijkstra(dijkstra) => dijkstra.route(walk, src, dst),
        Routing::FatTree(tree) => tree.route(walk, src, dst),
        Routing::Torus(torus) => torus.route(walk, src, dst),
        Routing::Dragonfly(dragonfly) => dragonfly.route(walk, src, dst),
        Routing::Star(spokes) => Ok(star_route(walk, spokes, src, dst)),
        Routing::Vivaldi(spokes) => {
            let edge = star_route(walk, spokes, src, dst);
            let place = |point| walk.net.point(point).coordinates.ok_or(missing);
            walk.route.latency_s += vivaldi_latency_s(place(src)?, place(dst)?);
            Ok(edge)
        }
    }
}

/// The implicit loop of a host.
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

/// Latency in seconds between two places of a Vivaldi system (Dabek et al., SIGCOMM 2004): Euclidean distance in the
/// plane plus both heights, all in milliseconds.
fn vivaldi_latency_s(a: [f64; 3], b: [f64; 3]) -> f64 {
    let (dx, dy) = (a[0] - b[0], a[1] - b[1]);
    (libm::sqrt(dx * dx + dy * dy) + a[2].abs() + b[2].abs()) / 1000.0
}

impl Floyd {
    /// Computes the ways between all pairs: Floyd and Warshall's algorithm, cost = number of links; the strict `<`
    /// keeps the way found first.
    pub(super) fn seal(&mut self, zone_members: &[PointId], is_host: impl Fn(PointId) -> bool) {
        let n = zone_members.len();
        self.members = n;
        self.predecessors = vec![u32::MAX; n * n];
        let mut cost = vec![usize::MAX; n * n];
        for (i, &member) in zone_members.iter().enumerate() {
            if is_host(member) {
                let own = || Edge { links: vec![LOOPBACK], gateway_src: member, gateway_dst: member };
                self.edges.entry((i as u32, i as u32)).or_insert_with(own);
            }
        }
        for ((a, b), edge) in &self.edges {
            cost[*a as usize * n + *b as usize] = edge.links.len();
            self.predecessors[*a as usize * n + *b as usize] = *a;
        }
        for c in 0..n {
            for a in 0..n {
                let first = cost[a * n + c];
                if first == usize::MAX {
                    continue;
                }
                for b in 0..n {
                    let second = cost[c * n + b];
                    if second != usize::MAX && first + second < cost[a * n + b] {
                        cost[a * n + b] = first + second;
                        self.predecessors[a * n + b] = self.predecessors[c * n + b];
                    }
                }
            }
        }
    }

    fn route(&self, walk: &mut Walk<'_>, zone: &Zone, src: PointId, dst: PointId) -> Result<Edge, NoRoute> {
        let missing = NoRoute { src, dst };
        let (start, mut current) = (walk.net.point(src).index, walk.net.point(dst).index);
        let mut hops: Vec<&Edge> = Vec::new();
        loop {
            let before = self.predecessors[start as usize * self.members + current as usize];
            if before == u32::MAX || hops.len() > zone.members.len() {
                return Err(missing);
            }
            hops.push(self.edges.get(&(before, current)).ok_or(missing)?);
            current = before;
            if current == start {
                break;
            }
        }
        let mut links = Vec::new();
        let mut entered: Option<PointId> = None;
        for hop in hops.iter().rev() {
            if let Some(gateway) = entered.filter(|gateway| *gateway != hop.gateway_src) {
                links.extend(walk.aside(gateway, hop.gateway_src)?);
            }
            walk.add_latency(&hop.links);
            links.extend_from_slice(&hop.links);
            entered = Some(hop.gateway_dst);
        }
        let (last, first) = (hops.first().ok_or(missing)?, hops.last().ok_or(missing)?);
        Ok(Edge { links, gateway_src: first.gateway_src, gateway_dst: last.gateway_dst })
    }
}

impl Dijkstra {
    /// Adds a one-way edge; the caller has checked that the pair has none.
    pub(super) fn add(&mut self, src: PointId, dst: PointId, edge: Edge) {
        let from = self.vertex(src);
        let to = self.vertex(dst);
        self.out[from].push((to, edge));
    }

    fn vertex(&mut self, point: PointId) -> usize {
        let next = self.out.len();
        let vertex = *self.vertices.entry(point).or_insert(next);
        if vertex == next {
            self.out.push(Vec::new());
        }
        vertex
    }

    /// Whether an edge goes from `src` to `dst`.
    pub(super) fn edge(&self, src: PointId, dst: PointId) -> Option<&Edge> {
        let (from, to) = (*self.vertices.get(&src)?, *self.vertices.get(&dst)?);
        self.out[from].iter().find(|(end, _)| *end == to).map(|(_, edge)| edge)
    }

    fn route(&self, walk: &mut Walk<'_>, src: PointId, dst: PointId) -> Result<Edge, NoRoute> {
        let missing = NoRoute { src, dst };
        if src == dst {
            let edge = self.edge(src, dst).cloned().or_else(|| loopback(walk, src, dst)).ok_or(missing)?;
            walk.add_latency(&edge.links);
            return Ok(edge);
        }
        let (&start, &end) = (self.vertices.get(&src).ok_or(missing)?, self.vertices.get(&dst).ok_or(missing)?);
        let before = self.tree(start);

        // From the end to the start, as SimGrid does, so that latencies are added in the same order.
        let mut links: Vec<LinkId> = Vec::new();
        let mut following: Option<&Edge> = None;
        let mut gateway_dst = dst;
        let mut vertex = end;
        while vertex != start {
            let (from, number) = before[vertex].ok_or(missing)?;
            let hop = &self.out[from][number].1;
            match following {
                None => gateway_dst = hop.gateway_dst,
                Some(next) if next.gateway_src != hop.gateway_dst => {
                    let inside = walk.aside(hop.gateway_dst, next.gateway_src)?;
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

    /// For each vertex, the vertex and the number of its outgoing edge by which the way from `start` arrives.
    fn tree(&self, start: usize) -> Vec<Option<(usize, usize)>> {
        let mut cost = vec![usize::MAX; self.out.len()];
        let mut before = vec![None; self.out.len()];
        let mut queue = BinaryHeap::from([Reverse((0, start))]);
        cost[start] = 0;
        while let Some(Reverse((reached, vertex))) = queue.pop() {
            if reached > cost[vertex] {
                continue;
            }
            for (number, (to, edge)) in self.out[vertex].iter().enumerate() {
                let through = reached + edge.links.len();
                if through < cost[*to] {
                    cost[*to] = through;
                    before[*to] = Some((vertex, number));
                    queue.push(Reverse((through, *to)));
                }
            }
        }
        before
    }
}
