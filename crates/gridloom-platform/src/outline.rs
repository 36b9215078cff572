//! The structure of a platform, zone by zone, for code that prints or draws it.
//!
//! An [`Outline`] has the members of a zone and how they are joined, as given in the file. [`Platform::route`] returns routes
//! between any two hosts. A route that leads back through the same links is one [`OutlineRoute`].
//!
//! **Invariant:** an outline is linear in the size of the file (a fat tree: in its cables), never in pairs of hosts.

use std::collections::BTreeMap;

use crate::element::{HostId, LOOPBACK, LinkId};
use crate::platform::Platform;
use crate::route::net::Zone;
use crate::route::point::{Edge, PointId, PointKind, ZoneId};
use crate::route::routing::{Routing, Spoke};

/// A zone with its contents.
#[derive(Clone, PartialEq, Debug)]
pub struct Outline {
    /// Its name. The outermost zone, which no file names, is `_world_`.
    pub name: String,
    /// Its direct members, in the order of the file.
    pub members: Vec<Member>,
    /// How its members are joined.
    pub shape: Shape,
    /// One-way routes that take precedence over those of the shape.
    pub bypasses: Vec<Bypass>,
}

/// A member of a zone.
#[derive(Clone, PartialEq, Debug)]
pub enum Member {
    /// A machine.
    Host(HostId),
    /// A router: a name that routes lead through.
    Router(String),
    /// A nested zone.
    Zone(Outline),
}

/// How the members of a zone are joined. Numbers of members are indices of [`Outline::members`].
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// Routes join the members: one for each pair, or chains of routes.
    Routes {
        /// Name of the routing: full, Floyd, Dijkstra.
        routing: &'static str,
        /// The routes of the file, without those from a member to itself.
        routes: Vec<OutlineRoute>,
    },
    /// Through a hub.
    Star(Vec<Arm>),
    /// Through a hub, with latency by distance of coordinates.
    Vivaldi {
        /// Links of members to the hub, if they have any.
        arms: Vec<Arm>,
        /// Coordinates of each member: x and y in milliseconds, and the height above the plane.
        places: Vec<Option<[f64; 3]>>,
    },
    /// Levels of switches above the hosts.
    FatTree {
        /// Number of hosts, then of switches of each level.
        level_sizes: Vec<usize>,
        /// The lower node, the upper one and the link up; nodes are counted from the hosts upwards.
        cables: Vec<(usize, usize, LinkId)>,
    },
    /// A grid whose ends are joined.
    Torus {
        sizes: Vec<usize>,
        /// One of the links, all of which are alike.
        link: Option<LinkId>,
    },
    /// Groups of chassis of blades of hosts.
    Dragonfly {
        /// Number of groups, of chassis per group, of blades per chassis, and of hosts per blade.
        counts: [usize; 4],
        /// One link of each kind: local, green (blades of a chassis), black (chassis), blue (groups).
        links: [Option<LinkId>; 4],
    },
    /// The members are not joined.
    Disjoint,
}

/// Links between two members.
#[derive(Clone, PartialEq, Debug)]
pub struct OutlineRoute {
    /// Number of the member where it begins.
    pub from: usize,
    /// Number of the member where it ends.
    pub to: usize,
    /// The links, in order.
    pub links: Vec<LinkId>,
    /// True if the same links, or their opposite directions, lead back.
    pub is_bidirectional: bool,
}

/// The links between a member and the hub of a star.
#[derive(Clone, PartialEq, Debug)]
pub struct Arm {
    /// Number of the member.
    pub member: usize,
    /// Links from it.
    pub up: Vec<LinkId>,
    /// Links to it.
    pub down: Vec<LinkId>,
}

/// A one-way route that takes precedence over others.
#[derive(Clone, PartialEq, Debug)]
pub struct Bypass {
    /// Name of the host, router or zone where it begins.
    pub from: String,
    /// Name of the host, router or zone where it ends.
    pub to: String,
    /// The links, in order.
    pub links: Vec<LinkId>,
}

impl Outline {
    /// Number of hosts in it, at any depth.
    pub fn host_count(&self) -> usize {
        let of_member = |member: &Member| match member {
            Member::Host(_) => 1,
            Member::Router(_) => 0,
            Member::Zone(inner) => inner.host_count(),
        };
        self.members.iter().map(of_member).sum()
    }

    /// Its direct member hosts, without those of nested zones.
    pub fn own_hosts(&self) -> Vec<HostId> {
        let host = |member: &Member| match member {
            Member::Host(id) => Some(*id),
            Member::Router(_) | Member::Zone(_) => None,
        };
        self.members.iter().filter_map(host).collect()
    }

    /// Name of the routing that joins its members.
    pub fn routing(&self) -> &'static str {
        match &self.shape {
            Shape::Routes { routing, .. } => routing,
            Shape::Star(_) => "star",
            Shape::Vivaldi { .. } => "Vivaldi",
            Shape::FatTree { .. } => "fat tree",
            Shape::Torus { .. } => "torus",
            Shape::Dragonfly { .. } => "dragonfly",
            Shape::Disjoint => "no routes",
        }
    }
}

impl Platform {
    /// Returns the outermost zone with its contents. If it contains only one zone, returns that zone.
    pub fn outline(&self) -> Outline {
        let mut outline = self.outline_of(ZoneId(0));
        let only = if outline.members.len() == 1 { outline.members.pop() } else { None };
        match only {
            Some(Member::Zone(inner)) => inner,
            only => {
                outline.members.extend(only);
                outline
            }
        }
    }

    /// Returns the name of a link, without `_UP` or `_DOWN` if it is a direction of a split-duplex link.
    pub fn cable_name(&self, link: LinkId) -> &str {
        let name = &self.links[link.0 as usize].name;
        let cable = name.strip_suffix("_UP").or_else(|| name.strip_suffix("_DOWN"));
        let has_both = |cable: &&str| ["UP", "DOWN"].iter().all(|end| self.link(&format!("{cable}_{end}")).is_some());
        cable.filter(has_both).unwrap_or(name)
    }

    fn outline_of(&self, id: ZoneId) -> Outline {
        let zone = self.net.zone(id);
        let name = |point: PointId| self.net.point(point).name.clone();
        let member = |point: &PointId| match self.net.point(*point).kind {
            PointKind::Host(host) => Member::Host(host),
            PointKind::Router => Member::Router(name(*point)),
            PointKind::Zone(inner) => Member::Zone(self.outline_of(inner)),
        };
        let bypasses = zone.bypass.iter().map(|((from, to), edge)| Bypass {
            from: name(*from),
            to: name(*to),
            links: edge.links.clone(),
        });
        Outline {
            name: name(zone.point),
            members: zone.members.iter().map(member).collect(),
            shape: self.shape_of(zone),
            bypasses: bypasses.collect(),
        }
    }

    fn shape_of(&self, zone: &Zone) -> Shape {
        let index = |point: PointId| self.net.point(point).index as usize;
        let routes = |routing, edges: BTreeMap<(usize, usize), &Edge>| match edges.is_empty() && zone.members.len() > 1
        {
            true => Shape::Disjoint,
            false => Shape::Routes { routing, routes: self.routes(&edges) },
        };
        match &zone.routing {
            Routing::Full(table) => {
                routes("full", table.iter().map(|((a, b), edge)| ((index(*a), index(*b)), edge)).collect())
            }
            Routing::Floyd(floyd) => {
                let given = floyd.edges.iter().filter(|((a, b), edge)| a != b || edge.links != [LOOPBACK]);
                routes("Floyd", given.map(|((a, b), edge)| ((*a as usize, *b as usize), edge)).collect())
            }
            Routing::Dijkstra(dijkstra) => {
                let points: Vec<PointId> = {
                    let mut points: Vec<_> = dijkstra.vertices.iter().collect();
                    points.sort_by_key(|(_, vertex)| **vertex);
                    points.into_iter().map(|(point, _)| *point).collect()
                };
                let mut found = BTreeMap::new();
                for (from, out) in dijkstra.out.iter().enumerate() {
                    for (to, edge) in out {
                        found.insert((index(points[from]), index(points[*to])), edge);
                    }
                }
                routes("Dijkstra", found)
            }
            Routing::Star(spokes) => Shape::Star(self.arms(spokes)),
            Routing::Vivaldi(spokes) => {
                let places = zone.members.iter().map(|member| self.net.point(*member).coordinates).collect();
                Shape::Vivaldi { arms: self.arms(spokes), places }
            }
            Routing::FatTree(tree) => {
                Shape::FatTree { level_sizes: tree.level_sizes(), cables: tree.cables().collect() }
            }
            Routing::Torus(torus) => {
                Shape::Torus { sizes: torus.sizes.clone(), link: torus.links.first().map(|(up, _)| *up) }
            }
            Routing::Dragonfly(dragonfly) => {
                let shape = &dragonfly.shape;
                let [green, black, blue] = dragonfly.examples();
                let local = dragonfly.local.first().map(|(up, _)| *up);
                Shape::Dragonfly {
                    counts: [shape.groups, shape.chassis, shape.blades, shape.hosts],
                    links: [local, green, black, blue],
                }
            }
            Routing::None => Shape::Disjoint,
        }
    }

    fn arms(&self, spokes: &BTreeMap<PointId, Spoke>) -> Vec<Arm> {
        let mut arms: Vec<Arm> = spokes
            .iter()
            .map(|(point, spoke)| Arm {
                member: self.net.point(*point).index as usize,
                up: spoke.up.clone(),
                down: spoke.down.clone(),
            })
            .collect();
        arms.sort_by_key(|arm| arm.member);
        arms
    }

    fn routes(&self, edges: &BTreeMap<(usize, usize), &Edge>) -> Vec<OutlineRoute> {
        let cables = |edge: &Edge| -> Vec<&str> { edge.links.iter().map(|link| self.cable_name(*link)).collect() };
        let mut ways = Vec::new();
        for (&(from, to), edge) in edges.iter().filter(|((from, to), _)| from != to) {
            let back = edges.get(&(to, from)).map(|back| cables(back).into_iter().rev().collect::<Vec<_>>());
            let both_ways = back.is_some_and(|back| back == cables(edge));
            if !both_ways || from < to {
                ways.push(OutlineRoute { from, to, links: edge.links.clone(), is_bidirectional: both_ways });
            }
        }
        ways
    }
}
