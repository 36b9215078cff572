//! Routes between the direct members of one zone.
//!
//! | routing | route from a to b |
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
//! **Invariant:** memory is linear in the size of the file, except for Floyd's table (members², bounded by the builder).
//! From a point to itself, zones with given routes use the platform's loopback link unless the pair has a route.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::dragonfly::Dragonfly;
use super::fat_tree::FatTree;
use super::point::{Edge, PointId};
use super::torus::Torus;
use crate::element::{LOOPBACK, LinkId};

/// Routing of one zone.
#[derive(Clone, Debug)]
pub(crate) enum Routing {
    /// Given for each pair.
    Full(BTreeMap<(PointId, PointId), Edge>),
    /// Fewest links, all pairs computed when the platform is built.
    Floyd(Floyd),
    /// Fewest links, computed for each query.
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

/// The links between a member of a star and the hub. A member without one is the hub itself (a router).
#[derive(Clone, Debug, Default)]
pub(crate) struct Spoke {
    pub up: Vec<LinkId>,
    pub down: Vec<LinkId>,
    pub loopback: Option<LinkId>,
    /// The point at which the route enters a member that is a zone.
    pub gateway: Option<PointId>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Floyd {
    /// Edges by member indices.
    pub edges: BTreeMap<(u32, u32), Edge>,
    /// Row a, column b: the last member before b on the route from a; `u32::MAX` if there is no route.
    pub predecessors: Vec<u32>,
    pub members: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Dijkstra {
    /// Vertices in the order in which routes first name them, which breaks ties.
    pub vertices: BTreeMap<PointId, usize>,
    /// Outgoing edges of each vertex, in the order given.
    pub out: Vec<Vec<(usize, Edge)>>,
}

impl Floyd {
    /// Computes the routes between all pairs: Floyd and Warshall's algorithm, cost = number of links; the strict `<`
    /// keeps the route found first.
    pub(crate) fn seal(&mut self, zone_members: &[PointId], is_host: impl Fn(PointId) -> bool) {
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
}

impl Dijkstra {
    /// Adds a one-way edge; the caller has checked that the pair has none.
    pub(crate) fn add(&mut self, src: PointId, dst: PointId, edge: Edge) {
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

    /// The edge from `src` to `dst`, if there is one.
    pub(crate) fn edge(&self, src: PointId, dst: PointId) -> Option<&Edge> {
        let (from, to) = (*self.vertices.get(&src)?, *self.vertices.get(&dst)?);
        self.out[from].iter().find(|(end, _)| *end == to).map(|(_, edge)| edge)
    }

    /// Returns the last edge of the route from `start` to each vertex: the vertex that it leaves and its number among
    /// the edges there.
    pub(crate) fn tree(&self, start: usize) -> Vec<Option<(usize, usize)>> {
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
