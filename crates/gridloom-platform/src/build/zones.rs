//! The part of the builder that only the file readers use: zones, routers, routes within a zone, and lookup by name.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gridloom_base::NameKind;

use super::{LOOPBACK_NAME, PlatformBuilder, RouteSpec, ZONE_DEPTH_MAX};
use crate::element::{ELEMENTS_MAX, Host, HostId, LinkId};
use crate::error::{PlatformError, Position, unknown};
use crate::route::net::Zone;
use crate::route::point::{Edge, Point, PointId, PointKind, ZoneId};
use crate::route::routing::{Dijkstra, Floyd, Routing};

impl PlatformBuilder {
    pub(crate) fn add_host_in(
        &mut self,
        zone: ZoneId,
        name: &str,
        speed_flops: f64,
        cores: u32,
    ) -> Result<HostId, PlatformError> {
        if !(speed_flops.is_finite() && speed_flops > 0.0) {
            let why = format!("speed of host '{name}' is {speed_flops} flop/s; it must be a number above 0");
            return Err(PlatformError::new(why));
        }
        if cores == 0 {
            return Err(PlatformError::new(format!("host '{name}' has 0 cores; it must have at least 1")));
        }
        let id = HostId(self.hosts.len() as u32);
        let point = self.add_point(zone, name, PointKind::Host(id))?;
        let name = self.point_name(point).to_owned();
        self.hosts.push(Host { name: name.clone(), speed_flops, cores, properties: BTreeMap::new() });
        self.host_names.insert(name, id);
        self.host_points.push(point);
        self.host_places.push(self.place);
        Ok(id)
    }

    pub(crate) fn add_router(&mut self, zone: ZoneId, name: &str) -> Result<PointId, PlatformError> {
        self.add_point(zone, name, PointKind::Router)
    }

    pub(crate) fn add_zone(&mut self, parent: ZoneId, name: &str, routing: Routing) -> Result<ZoneId, PlatformError> {
        let mut depth = 1;
        let mut above = Some(parent);
        while let Some(zone) = above {
            depth += 1;
            above = self.net.zone(zone).parent;
        }
        if depth > ZONE_DEPTH_MAX {
            return Err(PlatformError::new(format!("zone '{name}' is nested deeper than {ZONE_DEPTH_MAX} zones")));
        }
        let id = ZoneId(self.net.zones.len() as u32);
        let point = self.add_point(parent, name, PointKind::Zone(id))?;
        self.zone_places.insert(id, self.place);
        let members = Vec::new();
        self.net.zones.push(Zone { point, parent: Some(parent), members, routing, bypass: BTreeMap::new() });
        Ok(id)
    }

    fn add_point(&mut self, zone: ZoneId, name: &str, kind: PointKind) -> Result<PointId, PlatformError> {
        let name = &*self.valid_name(name)?;
        if let Some(other) = self.point_names.get(name) {
            let what = match self.net.point(*other).kind {
                PointKind::Host(_) => "host",
                PointKind::Router => "router",
                PointKind::Zone(_) => "zone",
            };
            return Err(PlatformError::new(format!("the name '{name}' is taken by a {what}")));
        }
        self.check_room(self.net.points.len())?;
        let id = PointId(self.net.points.len() as u32);
        let index = self.net.zone(zone).members.len() as u32;
        self.net.points.push(Point { name: name.to_owned(), kind, zone, index, coordinates: None });
        self.net.zones[zone.0 as usize].members.push(id);
        self.point_names.insert(name.to_owned(), id);
        Ok(id)
    }

    /// Checks the name of an element, or replaces it by a valid one.
    pub(crate) fn valid_name<'a>(&self, name: &'a str) -> Result<Cow<'a, str>, PlatformError> {
        match self.maps_names && !name.is_empty() {
            true => Ok(NameKind::Host.mapped(name)),
            false => {
                NameKind::Host.check(name).map(|()| name.into()).map_err(|error| PlatformError::new(error.to_string()))
            }
        }
    }

    pub(crate) fn check_room(&self, used: usize) -> Result<(), PlatformError> {
        if used < ELEMENTS_MAX {
            return Ok(());
        }
        Err(PlatformError::new(format!("the platform has more than {ELEMENTS_MAX} hosts or links")))
    }

    pub(crate) fn set_coordinates(&mut self, point: PointId, coordinates: [f64; 3]) {
        self.net.points[point.0 as usize].coordinates = Some(coordinates);
    }

    pub(crate) fn zone_mut(&mut self, zone: ZoneId) -> &mut Zone {
        &mut self.net.zones[zone.0 as usize]
    }

    pub(crate) fn zone_point(&self, zone: ZoneId) -> PointId {
        self.net.zone(zone).point
    }

    pub(crate) fn point_name(&self, point: PointId) -> &str {
        &self.net.point(point).name
    }

    /// Position in the file of the zone, if the point is one; otherwise that of the zone around it.
    fn zone_place(&self, point: PointId) -> Position {
        let zone = match self.net.point(point).kind {
            PointKind::Zone(zone) => zone,
            PointKind::Host(host) => return self.host_places[host.0 as usize],
            PointKind::Router => self.net.point(point).zone,
        };
        self.zone_places.get(&zone).copied().unwrap_or((0, 0))
    }

    /// Returns the hosts in a zone at any depth, or the host itself.
    pub(crate) fn hosts_in(&self, point: PointId) -> Vec<HostId> {
        match self.net.point(point).kind {
            PointKind::Host(host) => vec![host],
            PointKind::Router => Vec::new(),
            PointKind::Zone(zone) => {
                self.net.zone(zone).members.iter().flat_map(|member| self.hosts_in(*member)).collect()
            }
        }
    }

    /// True if two points are direct members of the same zone.
    pub(crate) fn share_zone(&self, one: PointId, other: PointId) -> bool {
        self.net.point(one).zone == self.net.point(other).zone
    }

    pub(crate) fn host_point(&self, host: HostId) -> PointId {
        self.host_points[host.0 as usize]
    }

    /// Finds the host, router or zone of that name; `what` is the word for it in the error.
    pub(crate) fn find_point(&self, what: &str, name: &str) -> Result<PointId, PlatformError> {
        let known = |point: &&PointId| match (what, self.net.point(**point).kind) {
            ("host", PointKind::Host(_)) | ("zone", PointKind::Zone(_)) => **point != PointId(0),
            ("host", _) | ("zone", _) => false,
            _ => **point != PointId(0),
        };
        self.point_names.get(&*NameKind::Host.mapped(name)).copied().ok_or_else(|| {
            let names = self.point_names.iter().filter(|(_, point)| known(point)).map(|(name, _)| name.as_str());
            PlatformError::new(unknown(what, name, names))
        })
    }

    /// Finds a link, or a direction (`UP` or `DOWN`) of a split-duplex link.
    pub(crate) fn find_link(&self, name: &str, direction: Option<&str>) -> Result<LinkId, PlatformError> {
        let name = &*NameKind::Host.mapped(name);
        let of_direction = |direction: &str| {
            let name = format!("{name}_{direction}");
            self.link_names.get(&*NameKind::Host.mapped(&name))
        };
        let id = match direction {
            Some(direction) => of_direction(direction),
            None => self.link_names.get(name),
        };
        if let Some(id) = id {
            return Ok(*id);
        }
        let message = if of_direction("UP").is_some() {
            format!("link '{name}' is split-duplex: name one of its directions, up or down")
        } else if self.link_names.contains_key(name) {
            format!("link '{name}' is not split-duplex: it has no directions")
        } else {
            unknown("link", name, self.link_names.keys().map(String::as_str).filter(|name| *name != LOOPBACK_NAME))
        };
        Err(PlatformError::new(message))
    }

    /// Finds both directions of a split-duplex link, or the link itself.
    pub(crate) fn find_links(&self, name: &str) -> Result<Vec<LinkId>, PlatformError> {
        let both = ["UP", "DOWN"].map(|direction| self.find_link(name, Some(direction)));
        match both {
            [Ok(up), Ok(down)] => Ok(vec![up, down]),
            _ => Ok(vec![self.find_link(name, None)?]),
        }
    }

    /// Returns a host of a star that is not joined to the hub.
    pub(crate) fn host_without_spoke(&self, zone: ZoneId) -> Option<&str> {
        let zone = self.net.zone(zone);
        let Routing::Star(spokes) = &zone.routing else { return None };
        let alone = |member: &&PointId| {
            matches!(self.net.point(**member).kind, PointKind::Host(_)) && !spokes.contains_key(*member)
        };
        zone.members.iter().find(alone).map(|member| self.point_name(*member))
    }

    pub(crate) fn find_host(&self, name: &str) -> Result<HostId, PlatformError> {
        let known = self.host_names.keys().map(String::as_str);
        self.host_names
            .get(&*NameKind::Host.mapped(name))
            .copied()
            .ok_or_else(|| PlatformError::new(unknown("host", name, known)))
    }

    /// Gives the zones inside Vivaldi zones their gateway, the router `router_NAME`, and its coordinates. Rejects zones without
    /// one, and other members without coordinates.
    pub(crate) fn join_vivaldi_zones(&mut self) -> Result<(), PlatformError> {
        for number in 0..self.net.zones.len() {
            let zone = &self.net.zones[number];
            if !matches!(zone.routing, Routing::Vivaldi(_)) {
                continue;
            }
            for member in zone.members.clone() {
                let point = self.net.point(member);
                let (name, mut place, mut gateway) = (point.name.clone(), point.coordinates, None);
                if let PointKind::Zone(_) = point.kind {
                    let router = self.point_names.get(&format!("router_{name}")).copied();
                    let Some(router) = router else {
                        let why = format!(
                            "zone '{name}' is in a Vivaldi zone and has no gateway: give it a router 'router_{name}' with coordinates"
                        );
                        return Err(PlatformError::new(why).at("", self.zone_place(member)));
                    };
                    gateway = Some(self.checked_gateway(member, Some(router))?);
                    place = place.or(self.net.point(router).coordinates);
                }
                if place.is_none() {
                    let why = format!(
                        "'{name}' is in a Vivaldi zone without coordinates; give it (or, for a zone, its router \
                         'router_{name}') coordinates 'x y height'"
                    );
                    return Err(PlatformError::new(why).at("", self.zone_place(member)));
                }
                self.net.points[member.0 as usize].coordinates = place;
                if let (Some(_), Routing::Vivaldi(spokes)) = (gateway, &mut self.net.zones[number].routing) {
                    spokes.entry(member).or_default().gateway = gateway;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn add_route_in(&mut self, zone: ZoneId, spec: RouteSpec) -> Result<(), PlatformError> {
        let edge = self.checked_edge(zone, &spec)?;
        let reverse = (spec.symmetrical && spec.src != spec.dst).then(|| Edge {
            links: edge.links.iter().rev().map(|link| *self.opposites.get(link).unwrap_or(link)).collect(),
            gateway_src: edge.gateway_dst,
            gateway_dst: edge.gateway_src,
        });
        if self.has_route(zone, spec.src, spec.dst) {
            return Err(self.duplicate_route_error(spec.src, spec.dst, ""));
        }
        if reverse.is_some() && self.has_route(zone, spec.dst, spec.src) {
            return Err(self.duplicate_route_error(
                spec.dst,
                spec.src,
                "; make this one not symmetrical, or leave the other out",
            ));
        }
        self.insert_edge(zone, spec.src, spec.dst, edge)?;
        match reverse {
            Some(edge) => self.insert_edge(zone, spec.dst, spec.src, edge),
            None => Ok(()),
        }
    }

    /// Adds a one-way route that takes precedence over the routing of `zone`.
    pub(crate) fn add_bypass(&mut self, zone: ZoneId, spec: RouteSpec) -> Result<(), PlatformError> {
        let edge = self.checked_edge(zone, &spec)?;
        if self.zone_mut(zone).bypass.insert((spec.src, spec.dst), edge).is_some() {
            return Err(self.duplicate_route_error(spec.src, spec.dst, ""));
        }
        Ok(())
    }

    fn duplicate_route_error(&self, src: PointId, dst: PointId, remedy: &str) -> PlatformError {
        let (src, dst) = (&self.net.point(src).name, &self.net.point(dst).name);
        PlatformError::new(format!("the route from '{src}' to '{dst}' is defined twice{remedy}"))
    }

    fn checked_edge(&self, zone: ZoneId, spec: &RouteSpec) -> Result<Edge, PlatformError> {
        let zone_point = self.net.zone(zone).point;
        let name = |point: PointId| self.net.point(point).name.as_str();
        for end in [spec.src, spec.dst] {
            if end == zone_point || !self.net.is_inside(end, zone_point) {
                let why = format!("'{}' is not in zone '{}'", name(end), name(zone_point));
                return Err(PlatformError::new(why));
            }
        }
        if spec.links.is_empty() {
            let why = format!("the route from '{}' to '{}' has no links", name(spec.src), name(spec.dst));
            return Err(PlatformError::new(why));
        }
        Ok(Edge {
            links: spec.links.clone(),
            gateway_src: self.checked_gateway(spec.src, spec.gateway_src)?,
            gateway_dst: self.checked_gateway(spec.dst, spec.gateway_dst)?,
        })
    }

    /// Returns the gateway of an end of a route: the end itself, or, if it is a zone, a host or router inside it.
    pub(crate) fn checked_gateway(&self, end: PointId, gateway: Option<PointId>) -> Result<PointId, PlatformError> {
        let name = |point: PointId| self.net.point(point).name.as_str();
        let is_zone = |point: PointId| matches!(self.net.point(point).kind, PointKind::Zone(_));
        match gateway {
            None if is_zone(end) => {
                Err(PlatformError::new(format!("'{}' is a zone: name a gateway inside of it", name(end))))
            }
            None => Ok(end),
            Some(gateway) if is_zone(gateway) => {
                let why = format!("gateway '{}' is a zone; it must be a host or router", name(gateway));
                Err(PlatformError::new(why))
            }
            Some(gateway) if !self.net.is_inside(gateway, end) => {
                let why = format!("gateway '{}' is not in zone '{}'", name(gateway), name(end));
                Err(PlatformError::new(why))
            }
            Some(gateway) => Ok(gateway),
        }
    }

    fn has_route(&self, zone: ZoneId, src: PointId, dst: PointId) -> bool {
        let index = |point: PointId| self.net.point(point).index;
        match &self.net.zone(zone).routing {
            Routing::Full(table) => table.contains_key(&(src, dst)),
            Routing::Floyd(floyd) => floyd.edges.contains_key(&(index(src), index(dst))),
            Routing::Dijkstra(dijkstra) => dijkstra.edge(src, dst).is_some(),
            Routing::Star(_) | Routing::Vivaldi(_) => false,
            Routing::FatTree(_) | Routing::Torus(_) | Routing::Dragonfly(_) | Routing::None => false,
        }
    }

    fn insert_edge(&mut self, zone: ZoneId, src: PointId, dst: PointId, edge: Edge) -> Result<(), PlatformError> {
        let (from, to) = (self.net.point(src), self.net.point(dst));
        if from.zone != zone || to.zone != zone {
            let outside = if from.zone == zone { to } else { from };
            let [own, zone] = [outside.zone, zone].map(|zone| &self.net.point(self.net.zone(zone).point).name);
            let why = format!(
                "'{}' is in zone '{own}', not directly in zone '{zone}': name a direct member, such as '{own}'",
                outside.name
            );
            return Err(PlatformError::new(why));
        }
        let indices = (from.index, to.index);
        match &mut self.net.zones[zone.0 as usize].routing {
            Routing::Full(table) => drop(table.insert((src, dst), edge)),
            Routing::Floyd(floyd) => drop(floyd.edges.insert(indices, edge)),
            Routing::Dijkstra(dijkstra) => dijkstra.add(src, dst, edge),
            Routing::Star(_)
            | Routing::Vivaldi(_)
            | Routing::FatTree(_)
            | Routing::Torus(_)
            | Routing::Dragonfly(_)
            | Routing::None => {
                return Err(PlatformError::new("a zone of this kind of routing takes no routes"));
            }
        }
        Ok(())
    }
}

/// Returns the empty routing of a SimGrid name.
pub(crate) fn routing_named(name: &str) -> Option<Routing> {
    Some(match name {
        "Full" => Routing::Full(BTreeMap::new()),
        "Floyd" => Routing::Floyd(Floyd::default()),
        "Dijkstra" | "DijkstraCache" => Routing::Dijkstra(Dijkstra::default()),
        "Cluster" | "Star" => Routing::Star(BTreeMap::new()),
        "Vivaldi" => Routing::Vivaldi(BTreeMap::new()),
        "None" | "none" => Routing::None,
        _ => return None,
    })
}
