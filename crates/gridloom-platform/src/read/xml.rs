//! Reader of SimGrid's platform files (DTD 4.1; 4.0 is the same for what is read here).
//!
//! Read: zones of all routings except Wifi, hosts, links, routers, routes, zone routes, bypasses, clusters
//! ([`super::xml_cluster`]), cabinets, peers, settings, properties and profiles. Old spellings (`AS`, `ASroute`) are accepted.
//! Disks, the properties of links and zones, and properties of other programs ([`super::foreign`]) are ignored and counted.
//!
//! Elements may be used before the line that defines them, because routes are read last.

use super::tree::{self, Element, count, sharing};
use super::xml_cluster as cluster;
use super::{FileReader, foreign};
use crate::build::zones::routing_named;
use crate::build::{PlatformBuilder, ROOT, RouteSpec};
use crate::element::{HostId, LinkId, Sharing};
use crate::error::PlatformError;
use crate::platform::Platform;
use crate::profile::{self, Profile, ProfileKind, ProfileTarget};
use crate::route::point::{PointId, ZoneId};
use crate::route::routing::{Routing, Spoke};
use crate::units;

/// A file being read.
pub(crate) struct XmlReader<'d, 'l> {
    pub builder: PlatformBuilder,
    load: &'l mut FileReader<'l>,
    /// Elements that name others, with the zone that contains them.
    routes: Vec<(ZoneId, &'d Element)>,
    /// `trace` elements by id.
    traces: Vec<(&'d str, &'d Element)>,
    connects: Vec<&'d Element>,
    /// True if a property of the file has one of Gridloom's prefixes.
    is_prefixed: bool,
}

/// Parses a platform from XML text.
pub(crate) fn parse<'l>(text: &str, load: &'l mut FileReader<'l>) -> Result<Platform, PlatformError> {
    let root = tree::parse(text)?;
    if root.name != "platform" {
        return Err(root.error(format!("the root element is '{}'; it must be 'platform'", root.name)));
    }
    root.allow(&["version"])?;
    root.refuse_text()?;
    let version = root.number("version", None, |text| text.parse::<f64>().map_err(|error| error.to_string()))?;
    if !(4.0..5.0).contains(&version) {
        return Err(root.error(format!("version {version} of the platform format is not known; use 4.1")));
    }
    let builder = PlatformBuilder { maps_names: true, ..PlatformBuilder::new() };
    let is_prefixed = foreign::has_prefixes(&root);
    let mut reader =
        XmlReader { builder, load, routes: Vec::new(), traces: Vec::new(), connects: Vec::new(), is_prefixed };
    reader.zone_content(ROOT, &root)?;
    reader.deferred()?;
    root.located(reader.builder.build())
}

impl<'d> XmlReader<'d, '_> {
    /// Reads all children of a zone except those that name others, which are kept for later.
    fn zone_content(&mut self, zone: ZoneId, parent: &'d Element) -> Result<(), PlatformError> {
        let mut backbone = None;
        let mut host_links = Vec::new();
        for element in &parent.children {
            element.refuse_content()?;
            match element.name.as_str() {
                "zone" | "AS" => self.zone(zone, element)?,
                "host" => drop(self.host(zone, element)?),
                "router" => self.router(zone, element)?,
                "link" => self.link(element)?,
                "cluster" => self.cluster(zone, element)?,
                "cabinet" => cluster::cabinet(&mut self.builder, zone, element, self.is_prefixed)?,
                "peer" => self.peer(zone, element)?,
                "backbone" if backbone.is_none() => backbone = Some(self.backbone(zone, element)?),
                "backbone" => return Err(element.error("the zone has a backbone already")),
                "host_link" => host_links.push(element),
                "route" | "zoneRoute" | "ASroute" | "bypassRoute" | "bypassZoneRoute" | "bypassASroute" => {
                    self.routes.push((zone, element));
                }
                "config" => self.config(element)?,
                "trace" => self.traces.push((element.need("id")?, element)),
                "trace_connect" => self.connects.push(element),
                "prop" => {
                    element.allow(&["id", "value"])?;
                    if element.get("id") != Some("coordinates") {
                        self.builder.ignore("property of a zone".into());
                    }
                }
                "include" | "storage" | "storage_type" | "random" | "mount" => {
                    let why = format!("element '{}' is no longer part of the format; remove it", element.name);
                    return Err(element.error(why));
                }
                "actor" | "process" => {
                    let why =
                        format!("'{}' belongs to a deployment, but this file is read as a platform", element.name);
                    return Err(element.error(format!("{why}; pass the file to 'gridloom deploy' with --deployment")));
                }
                other => return Err(element.error(format!("element '{other}' is unknown here"))),
            }
        }
        for element in host_links {
            self.host_link(zone, element)?;
        }
        if let Some(name) = self.builder.host_without_spoke(zone) {
            return Err(parent.error(format!("host '{name}' is in a zone of routing 'Cluster' without a host_link")));
        }
        if let Routing::Star(spokes) = &mut self.builder.zone_mut(zone).routing {
            for spoke in spokes.values_mut() {
                spoke.up.extend(backbone);
                spoke.down.splice(0..0, backbone);
            }
        }
        Ok(())
    }

    fn zone(&mut self, parent: ZoneId, element: &'d Element) -> Result<(), PlatformError> {
        element.allow(&["id", "routing"])?;
        let name = element.get("routing").unwrap_or("None");
        let routing = routing_named(name).ok_or_else(|| {
            element.error(format!(
                "routing '{name}' is not supported yet; known: Full, Floyd, Dijkstra, DijkstraCache, Cluster, Vivaldi, None"
            ))
        })?;
        self.builder.place = element.place;
        let zone = element.located(self.builder.add_zone(parent, element.need("id")?, routing))?;
        element.refuse_text()?;
        for prop in element.children.iter().filter(|child| child.name == "prop") {
            if prop.get("id") == Some("coordinates") {
                let place = prop.number("value", None, coordinates)?;
                let point = self.builder.zone_point(zone);
                self.builder.set_coordinates(point, place);
            }
        }
        self.zone_content(zone, element)
    }

    fn host(&mut self, zone: ZoneId, element: &'d Element) -> Result<HostId, PlatformError> {
        element.allow(&[
            "id",
            "speed",
            "core",
            "speed_file",
            "state_file",
            "availability_file",
            "coordinates",
            "pstate",
        ])?;
        let pstate = element.number("pstate", Some(0), count)?;
        let speed = element.number("speed", None, |text| speed_of(text, pstate))?;
        let cores = element.number("core", Some(1), count)?;
        self.builder.place = element.place;
        let host = element.located(self.builder.add_host_in(zone, element.need("id")?, speed, cores))?;
        self.properties(host, element)?;
        self.point_coordinates(self.builder.host_point(host), element)?;
        let target = ProfileTarget::Host(host);
        self.profile_file(element, "speed_file", ProfileKind::Speed, target)?;
        self.profile_file(element, "availability_file", ProfileKind::Speed, target)?;
        self.profile_file(element, "state_file", ProfileKind::State, target)?;
        Ok(host)
    }

    fn properties(&mut self, host: HostId, element: &Element) -> Result<(), PlatformError> {
        for child in &element.children {
            match child.name.as_str() {
                "prop" => {
                    child.allow(&["id", "value"])?;
                    let (id, value) = (child.need("id")?, child.need("value")?);
                    match foreign::own(id, value, self.is_prefixed) {
                        Some(key) => self.builder.set_property(host, key, value),
                        None => self.builder.ignore(format!("property '{id}' of a host")),
                    }
                }
                // Disks are outside the model: their content is accepted unread.
                "disk" | "mount" | "storage" => self.builder.ignore(format!("element '{}'", child.name)),
                other => return Err(child.error(format!("element '{other}' is unknown in a host"))),
            }
        }
        Ok(())
    }

    fn point_coordinates(&mut self, point: PointId, element: &Element) -> Result<(), PlatformError> {
        if element.get("coordinates").is_some_and(|text| !text.trim().is_empty()) {
            let place = element.number("coordinates", None, coordinates)?;
            self.builder.set_coordinates(point, place);
        }
        Ok(())
    }

    fn router(&mut self, zone: ZoneId, element: &Element) -> Result<(), PlatformError> {
        element.allow(&["id", "coordinates"])?;
        let point = element.located(self.builder.add_router(zone, element.need("id")?))?;
        self.point_coordinates(point, element)
    }

    fn link(&mut self, element: &'d Element) -> Result<(), PlatformError> {
        element.allow(&[
            "id",
            "bandwidth",
            "latency",
            "sharing_policy",
            "bandwidth_file",
            "latency_file",
            "state_file",
        ])?;
        element.children.iter().for_each(|_| self.builder.ignore("property of a link".into()));
        let id = element.need("id")?;
        let bandwidth = element.number("bandwidth", None, units::bandwidth)?;
        let latency_s = element.number("latency", Some(0.0), units::time)?;
        let links = match element.get("sharing_policy").unwrap_or("SHARED") {
            "SPLITDUPLEX" | "FULLDUPLEX" => {
                let (up, down) = element.located(self.builder.add_duplex_link(id, bandwidth, latency_s))?;
                vec![up, down]
            }
            policy => {
                let sharing = sharing(element, policy)?;
                vec![element.located(self.builder.add_link(id, bandwidth, latency_s, sharing))?]
            }
        };
        for link in links {
            let target = ProfileTarget::Link(link);
            self.profile_file(element, "bandwidth_file", ProfileKind::Bandwidth, target)?;
            self.profile_file(element, "latency_file", ProfileKind::Latency, target)?;
            self.profile_file(element, "state_file", ProfileKind::State, target)?;
        }
        Ok(())
    }

    /// Reads a peer: a host with coordinates in a Vivaldi zone, with a link up and a link down.
    fn peer(&mut self, zone: ZoneId, element: &'d Element) -> Result<(), PlatformError> {
        element.allow(&["id", "speed", "bw_in", "bw_out", "lat", "coordinates", "speed_file", "state_file"])?;
        let id = element.need("id")?;
        let speed = element.number("speed", None, units::speed)?;
        let (bw_in, bw_out) =
            (element.number("bw_in", None, units::bandwidth)?, element.number("bw_out", None, units::bandwidth)?);
        let place = element.number("coordinates", None, coordinates)?;
        let builder = &mut self.builder;
        builder.place = element.place;
        let host = element.located(builder.add_host_in(zone, id, speed, 1))?;
        let up = element.located(builder.add_link(&format!("link_{id}_UP"), bw_out, 0.0, Sharing::Shared))?;
        let down = element.located(builder.add_link(&format!("link_{id}_DOWN"), bw_in, 0.0, Sharing::Shared))?;
        let point = builder.host_point(host);
        builder.set_coordinates(point, place);
        let spoke = Spoke { up: vec![up], down: vec![down], ..Spoke::default() };
        self.set_spoke(zone, point, spoke, element)?;
        self.properties(host, element)?;
        self.profile_file(element, "speed_file", ProfileKind::Speed, ProfileTarget::Host(host))?;
        self.profile_file(element, "state_file", ProfileKind::State, ProfileTarget::Host(host))
    }

    fn backbone(&mut self, zone: ZoneId, element: &Element) -> Result<LinkId, PlatformError> {
        element.allow(&["id", "bandwidth", "latency"])?;
        if !matches!(self.builder.zone_mut(zone).routing, Routing::Star(_)) {
            return Err(element.error("only a zone of routing 'Cluster' has a backbone"));
        }
        let bandwidth = element.number("bandwidth", None, units::bandwidth)?;
        let latency_s = element.number("latency", Some(0.0), units::time)?;
        element.located(self.builder.add_link(element.need("id")?, bandwidth, latency_s, Sharing::Shared))
    }

    fn host_link(&mut self, zone: ZoneId, element: &Element) -> Result<(), PlatformError> {
        element.allow(&["id", "up", "down"])?;
        let point = element.located(self.builder.find_point("host", element.need("id")?))?;
        let up = element.located(self.builder.find_link(element.need("up")?, None))?;
        let down = element.located(self.builder.find_link(element.need("down")?, None))?;
        let spoke = Spoke { up: vec![up], down: vec![down], ..Spoke::default() };
        self.set_spoke(zone, point, spoke, element)
    }

    fn set_spoke(
        &mut self,
        zone: ZoneId,
        point: PointId,
        spoke: Spoke,
        element: &Element,
    ) -> Result<(), PlatformError> {
        let zone = self.builder.zone_mut(zone);
        if !zone.members.contains(&point) {
            return Err(element.error("the host is not in this zone"));
        }
        let (Routing::Star(spokes) | Routing::Vivaldi(spokes)) = &mut zone.routing else {
            return Err(element.error(format!("'{}' needs a zone of routing 'Cluster' or 'Vivaldi'", element.name)));
        };
        match spokes.insert(point, spoke) {
            None => Ok(()),
            Some(_) => Err(element.error("the host has its links already")),
        }
    }

    fn config(&mut self, element: &Element) -> Result<(), PlatformError> {
        for prop in &element.children {
            let result = self.builder.set_config(prop.need("id")?, prop.need("value")?);
            prop.located(result)?;
        }
        Ok(())
    }

    fn profile_file(
        &mut self,
        element: &Element,
        attribute: &str,
        kind: ProfileKind,
        target: ProfileTarget,
    ) -> Result<(), PlatformError> {
        let Some(name) = element.get(attribute).filter(|name| !name.is_empty()) else { return Ok(()) };
        let text = (self.load)(name).map_err(|why| element.error(format!("profile '{name}': {why}")))?;
        let (events, loop_after_s) =
            profile::parse(&text, kind, 0.0).map_err(|why| element.error(format!("profile '{name}': {why}")))?;
        self.builder.add_profile(Profile { target, kind, events, loop_after_s });
        Ok(())
    }

    /// Reads a cluster; its profile files apply to each of its hosts.
    fn cluster(&mut self, zone: ZoneId, element: &'d Element) -> Result<(), PlatformError> {
        let before = self.builder.hosts.len();
        cluster::flat_or_other(&mut self.builder, zone, element, self.is_prefixed)?;
        for host in before..self.builder.hosts.len() {
            let target = ProfileTarget::Host(HostId(host as u32));
            self.profile_file(element, "availability_file", ProfileKind::Speed, target)?;
            self.profile_file(element, "state_file", ProfileKind::State, target)?;
        }
        Ok(())
    }

    /// Reads routes and connections of profiles, now that all names are known.
    fn deferred(&mut self) -> Result<(), PlatformError> {
        for (zone, element) in std::mem::take(&mut self.routes) {
            self.route(zone, element)?;
        }
        for element in std::mem::take(&mut self.connects) {
            self.connect(element)?;
        }
        self.builder.join_vivaldi_zones()
    }

    fn route(&mut self, zone: ZoneId, element: &Element) -> Result<(), PlatformError> {
        let bypass = element.name.starts_with("bypass");
        let between_zones = element.name.ends_with("oneRoute") || element.name.ends_with("ASroute");
        let (known, what): (&[&str], _) = match between_zones {
            true => (&["src", "dst", "gw_src", "gw_dst", "symmetrical"], "zone"),
            false => (&["src", "dst", "symmetrical"], "host or router"),
        };
        element.allow(known)?;
        let symmetrical = !bypass
            && match element.get("symmetrical").unwrap_or("YES") {
                "YES" | "yes" => true,
                "NO" | "no" => false,
                other => return Err(element.error(format!("symmetrical is '{other}'; it must be YES or NO"))),
            };
        let point = |what: &str, attribute: &str| {
            let found = self.builder.find_point(what, element.need(attribute)?);
            element.located(found.map_err(|error| PlatformError {
                message: format!("{} '{attribute}': {}", element.name, error.message),
                ..error
            }))
        };
        let (src, dst) = (point(what, "src")?, point(what, "dst")?);
        let gateways = match between_zones {
            true => (Some(point("gateway", "gw_src")?), Some(point("gateway", "gw_dst")?)),
            false => (None, None),
        };
        let mut links = Vec::with_capacity(element.children.len());
        for child in &element.children {
            if child.name != "link_ctn" {
                return Err(child.error(format!("element '{}' is unknown in a route", child.name)));
            }
            child.allow(&["id", "direction"])?;
            let direction = match child.get("direction") {
                None | Some("NONE") => None,
                Some(direction @ ("UP" | "DOWN")) => Some(direction),
                Some(other) => return Err(child.error(format!("direction is '{other}'; it must be UP, DOWN or NONE"))),
            };
            links.push(child.located(self.builder.find_link(child.need("id")?, direction))?);
        }
        let spec = RouteSpec { src, dst, gateway_src: gateways.0, gateway_dst: gateways.1, links, symmetrical };
        element.located(match bypass {
            true if !between_zones && !self.builder.share_zone(src, dst) => Err(PlatformError::new(format!(
                "a bypassRoute joins two hosts or routers of one zone, and '{}' and '{}' are in different ones, where it \
                 would never be used; write a bypassZoneRoute between their zones",
                self.builder.point_name(src),
                self.builder.point_name(dst)
            ))),
            true => self.builder.add_bypass(zone, spec),
            false => self.builder.add_route_in(zone, spec),
        })
    }

    fn connect(&mut self, element: &Element) -> Result<(), PlatformError> {
        element.allow(&["kind", "trace", "element"])?;
        let (id, name) = (element.need("trace")?, element.need("element")?);
        let known = self.traces.iter().map(|(id, _)| *id);
        let trace = self.traces.iter().find(|(other, _)| *other == id).map(|(_, trace)| *trace);
        let trace = trace.ok_or_else(|| element.error(crate::error::unknown("trace", id, known)))?;
        let (kind, of_host) = match element.get("kind").unwrap_or("HOST_AVAIL") {
            "HOST_AVAIL" => (ProfileKind::State, true),
            "SPEED" | "POWER" => (ProfileKind::Speed, true),
            "LINK_AVAIL" => (ProfileKind::State, false),
            "BANDWIDTH" => (ProfileKind::Bandwidth, false),
            "LATENCY" => (ProfileKind::Latency, false),
            other => return Err(element.error(format!("kind '{other}' of a trace is unknown"))),
        };
        let targets = match of_host {
            true => vec![ProfileTarget::Host(element.located(self.builder.find_host(name))?)],
            false => element.located(self.builder.find_links(name))?.into_iter().map(ProfileTarget::Link).collect(),
        };
        let text = match trace.get("file").filter(|name| !name.is_empty()) {
            Some(file) => (self.load)(file).map_err(|why| trace.error(format!("profile '{file}': {why}")))?,
            None => trace.text.clone(),
        };
        let period =
            trace.number("periodicity", Some(-1.0), |text| text.parse().map_err(|_| "no number".to_owned()))?;
        let (events, loop_after_s) = profile::parse(&text, kind, period).map_err(|why| trace.error(why))?;
        for target in targets {
            self.builder.add_profile(Profile { target, kind, events: events.clone(), loop_after_s });
        }
        Ok(())
    }
}

/// The speed of performance state `pstate` in a list such as `100Mf,50Mf`.
fn speed_of(text: &str, pstate: u32) -> Result<f64, String> {
    let speeds: Vec<f64> = text.split(',').map(units::speed).collect::<Result<_, _>>()?;
    let missing = || format!("performance state {pstate} is not among the {} speeds", speeds.len());
    speeds.get(pstate as usize).copied().ok_or_else(missing)
}

/// Three numbers: x, y and height.
pub(crate) fn coordinates(text: &str) -> Result<[f64; 3], String> {
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [x, y, h] if text.split_whitespace().count() == 3 && (x + y + h).is_finite() => Ok([x, y, h]),
        _ => Err(format!("'{text}' are not coordinates; use three numbers 'x y height'")),
    }
}
