//! Builds a platform piece by piece. Each piece is checked when it is added.
//!
//! The readers of files use it, and so do simulations and tests that need no file:
//!
//! ```
//! use gridloom_platform::{PlatformBuilder, Sharing};
//! let mut builder = PlatformBuilder::new();
//! let a = builder.add_host("a", 1e9, 4).unwrap();
//! let b = builder.add_host("b", 2e9, 1).unwrap();
//! let wire = builder.add_link("wire", 125e6, 1e-4, Sharing::Shared).unwrap();
//! builder.add_route(a, b, &[wire], true).unwrap();
//! let platform = builder.build().unwrap();
//! assert_eq!(platform.route(b, a).unwrap().links, [wire]);
//! ```
//!
//! Hosts and routers share one space of names with zones (a route may name any of them); links have their own.

use std::collections::BTreeMap;

pub(crate) mod cluster;
pub(crate) mod zones;

use crate::element::{Host, HostId, LOOPBACK, Link, LinkId, Sharing};
use crate::error::{PlatformError, Position};
use crate::firewall::Firewalls;
use crate::platform::Platform;
use crate::profile::Profile;
use crate::route::net::{Net, Zone};
use crate::route::point::{Point, PointId, PointKind, ZoneId};
use crate::route::routing::{Routing, Spoke};

/// Name of the link from a host to itself.
pub(crate) const LOOPBACK_NAME: &str = "__loopback__";
/// SimGrid's bandwidth of the loopback link, bytes per second.
const LOOPBACK_BANDWIDTH: f64 = 10e9;
/// Maximum members for Floyd routing, whose table takes members² words and members³ steps. Larger zones should use Dijkstra.
const FLOYD_MEMBERS_MAX: usize = 1024;
/// Maximum nesting of zones, so that no file can exhaust the stack of the resolver.
pub(crate) const ZONE_DEPTH_MAX: usize = 64;

/// A platform under construction. Errors leave it unchanged.
#[derive(Clone, Debug)]
pub struct PlatformBuilder {
    pub(crate) hosts: Vec<Host>,
    pub(crate) links: Vec<Link>,
    pub(crate) host_names: BTreeMap<String, HostId>,
    pub(crate) link_names: BTreeMap<String, LinkId>,
    pub(crate) point_names: BTreeMap<String, PointId>,
    pub(crate) host_points: Vec<PointId>,
    /// Positions of the hosts' definitions in the file; `place` is the position of the element that is being added.
    pub(crate) host_places: Vec<Position>,
    pub(crate) firewalls: Firewalls,
    pub(crate) place: Position,
    pub(crate) zone_places: BTreeMap<ZoneId, Position>,
    /// The other direction of a split-duplex link.
    pub(crate) opposites: BTreeMap<LinkId, LinkId>,
    pub(crate) net: Net,
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) profiles: Vec<Profile>,
    /// Number of links of all dragonflies so far: their names contain these numbers.
    pub(crate) dragonfly_links: usize,
    /// True if invalid names are replaced by valid ones, because the format belongs to another program.
    pub(crate) maps_names: bool,
    /// Kinds of ignored parts of the file, with the number of each.
    pub(crate) ignored: BTreeMap<String, usize>,
}

/// The parts of a route between two points.
#[derive(Clone, Debug)]
pub(crate) struct RouteSpec {
    pub src: PointId,
    pub dst: PointId,
    /// Set if the end is a zone.
    pub gateway_src: Option<PointId>,
    /// Set if the end is a zone.
    pub gateway_dst: Option<PointId>,
    pub links: Vec<LinkId>,
    pub symmetrical: bool,
}

/// The zone that contains all others.
pub(crate) const ROOT: ZoneId = ZoneId(0);

impl Default for PlatformBuilder {
    fn default() -> Self {
        PlatformBuilder::new()
    }
}

impl PlatformBuilder {
    /// Creates an empty platform: one zone, in which routes are given per pair of hosts, and the loopback link.
    pub fn new() -> PlatformBuilder {
        let root =
            Point { name: "_world_".to_owned(), kind: PointKind::Zone(ROOT), zone: ROOT, index: 0, coordinates: None };
        let zone = Zone {
            point: PointId(0),
            parent: None,
            members: Vec::new(),
            routing: Routing::Full(BTreeMap::new()),
            bypass: BTreeMap::new(),
        };
        let loopback = Link {
            name: LOOPBACK_NAME.to_owned(),
            bandwidth: LOOPBACK_BANDWIDTH,
            latency_s: 0.0,
            sharing: Sharing::Fatpipe,
        };
        PlatformBuilder {
            hosts: Vec::new(),
            links: vec![loopback],
            host_names: BTreeMap::new(),
            link_names: BTreeMap::from([(LOOPBACK_NAME.to_owned(), LOOPBACK)]),
            point_names: BTreeMap::from([(root.name.clone(), PointId(0))]),
            host_points: Vec::new(),
            host_places: Vec::new(),
            firewalls: Firewalls::default(),
            place: (0, 0),
            zone_places: BTreeMap::new(),
            opposites: BTreeMap::new(),
            net: Net { points: vec![root], zones: vec![zone] },
            config: BTreeMap::new(),
            profiles: Vec::new(),
            dragonfly_links: 0,
            maps_names: false,
            ignored: BTreeMap::new(),
        }
    }

    /// Adds a host: `speed_flops` is the speed of one of its `cores`.
    ///
    /// # Errors
    /// The name is taken or empty, the speed is not a finite number above 0, or there is no core.
    pub fn add_host(&mut self, name: &str, speed_flops: f64, cores: u32) -> Result<HostId, PlatformError> {
        self.add_host_in(ROOT, name, speed_flops, cores)
    }

    /// Adds a link of `bandwidth` bytes per second.
    ///
    /// # Errors
    /// The name is taken or empty, the bandwidth is not above 0, the latency is negative, or one of them not finite.
    pub fn add_link(
        &mut self,
        name: &str,
        bandwidth: f64,
        latency_s: f64,
        sharing: Sharing,
    ) -> Result<LinkId, PlatformError> {
        let name = &*self.valid_name(name)?;
        if self.link_names.contains_key(name) {
            return Err(PlatformError::new(format!("link '{name}' is defined twice")));
        }
        if !(bandwidth.is_finite() && bandwidth > 0.0) {
            let why = format!("bandwidth of link '{name}' is {bandwidth} B/s; it must be a number above 0");
            return Err(PlatformError::new(why));
        }
        if !(latency_s.is_finite() && latency_s >= 0.0) {
            let why = format!("latency of link '{name}' is {latency_s} s; it must be a number, 0 or more");
            return Err(PlatformError::new(why));
        }
        self.check_room(self.links.len())?;
        let id = LinkId(self.links.len() as u32);
        self.links.push(Link { name: name.to_owned(), bandwidth, latency_s, sharing });
        self.link_names.insert(name.to_owned(), id);
        Ok(id)
    }

    /// Adds a split-duplex link: two shared links `NAME_UP` and `NAME_DOWN`, each with the full bandwidth. A
    /// symmetrical route that uses one of them in one direction uses the other in the opposite direction.
    ///
    /// # Errors
    /// As [`PlatformBuilder::add_link`].
    pub fn add_duplex_link(
        &mut self,
        name: &str,
        bandwidth: f64,
        latency_s: f64,
    ) -> Result<(LinkId, LinkId), PlatformError> {
        let name = &*self.valid_name(name)?;
        let (up_name, down_name) = (format!("{name}_UP"), format!("{name}_DOWN"));
        if self.link_names.contains_key(&down_name) {
            return Err(PlatformError::new(format!("link '{down_name}' is defined twice")));
        }
        let up = self.add_link(&up_name, bandwidth, latency_s, Sharing::Shared)?;
        let down = self.add_link(&down_name, bandwidth, latency_s, Sharing::Shared)?;
        self.opposites.insert(up, down);
        self.opposites.insert(down, up);
        Ok((up, down))
    }

    /// Joins two hosts by links. A symmetrical route also leads back, through the links in reverse order and through
    /// the opposite direction of split-duplex links.
    ///
    /// # Errors
    /// The pair (or, if symmetrical, its reverse) has a route already, or the route has no links.
    pub fn add_route(
        &mut self,
        src: HostId,
        dst: HostId,
        links: &[LinkId],
        symmetrical: bool,
    ) -> Result<(), PlatformError> {
        let (src, dst) = (self.host_points[src.0 as usize], self.host_points[dst.0 as usize]);
        let spec = RouteSpec { src, dst, gateway_src: None, gateway_dst: None, links: links.to_vec(), symmetrical };
        self.add_route_in(ROOT, spec)
    }

    /// Joins hosts of the root zone to a hub without cost, each through its own links, so that any two of them are
    /// joined through it. Meant for a single star; files can have many.
    ///
    /// # Errors
    /// The hosts have routes already.
    pub fn add_star(&mut self, spokes: &[(HostId, LinkId, LinkId)]) -> Result<(), PlatformError> {
        let given = match &self.net.zones[0].routing {
            Routing::Full(table) => table.is_empty(),
            _ => false,
        };
        if !given || spokes.len() != self.hosts.len() {
            return Err(PlatformError::new("a star must join all hosts of a platform that has no routes yet"));
        }
        let mut table = BTreeMap::new();
        for &(host, up, down) in spokes {
            let spoke = Spoke { up: vec![up], down: vec![down], ..Spoke::default() };
            table.insert(self.host_points[host.0 as usize], spoke);
        }
        self.net.zones[0].routing = Routing::Star(table);
        Ok(())
    }

    /// Adds a firewall, through which hosts can connect to others, but others cannot connect to them. Data between two
    /// firewalls pass through the relay of the receiver's.
    ///
    /// # Errors
    /// One of the hosts is behind another firewall, or there are none.
    pub fn add_firewall(&mut self, hosts: &[HostId], relay: HostId) -> Result<(), PlatformError> {
        if hosts.is_empty() {
            return Err(PlatformError::new("a firewall has at least one host"));
        }
        self.firewalls.add(hosts, relay).map_err(|taken| {
            let name = &self.hosts[taken.0 as usize].name;
            PlatformError::new(format!("host '{name}' is behind two firewalls"))
        })
    }

    pub fn set_property(&mut self, host: HostId, key: &str, value: &str) {
        self.hosts[host.0 as usize].properties.insert(key.to_owned(), value.to_owned());
    }

    /// Counts an ignored part of the file.
    pub(crate) fn ignore(&mut self, what: String) {
        *self.ignored.entry(what).or_default() += 1;
    }

    /// Adds a profile of an element's changes over time.
    pub fn add_profile(&mut self, profile: Profile) {
        self.profiles.push(profile);
    }

    /// Stores a setting for the platform's users. `network/loopback-bw` and `network/loopback-lat` change the
    /// loopback link.
    ///
    /// # Errors
    /// The value of one of those two is not a bandwidth or latency.
    pub fn set_config(&mut self, key: &str, value: &str) -> Result<(), PlatformError> {
        match key {
            "network/loopback-bw" => {
                let bandwidth = crate::units::bandwidth(value).map_err(PlatformError::new)?;
                self.links[0].bandwidth = bandwidth;
            }
            "network/loopback-lat" => {
                let latency_s = crate::units::time(value).map_err(PlatformError::new)?;
                self.links[0].latency_s = latency_s;
            }
            _ => {}
        }
        self.config.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    /// Returns the finished platform.
    ///
    /// # Errors
    /// It has no host, or a zone is too large for its kind of routing.
    pub fn build(mut self) -> Result<Platform, PlatformError> {
        if self.hosts.is_empty() {
            return Err(PlatformError::new("the platform has no host"));
        }
        if let Some(relay) = self.firewalls.hidden_relay() {
            let name = &self.hosts[relay.0 as usize].name;
            let why = format!("the relay '{name}' is behind a firewall, so no host can connect to it");
            return Err(PlatformError::new(why));
        }
        let points = &self.net.points;
        for zone in &mut self.net.zones {
            if let Routing::Floyd(floyd) = &mut zone.routing {
                if zone.members.len() > FLOYD_MEMBERS_MAX {
                    return Err(PlatformError::new(format!(
                        "zone '{}' has {} members; routing Floyd takes at most {FLOYD_MEMBERS_MAX}: use Dijkstra",
                        points[zone.point.0 as usize].name,
                        zone.members.len()
                    )));
                }
                let is_host = |point: PointId| matches!(points[point.0 as usize].kind, PointKind::Host(_));
                floyd.seal(&zone.members, is_host);
            }
        }
        Ok(Platform {
            hosts: self.hosts,
            links: self.links,
            host_names: self.host_names,
            link_names: self.link_names,
            host_points: self.host_points,
            host_places: self.host_places,
            firewalls: self.firewalls,
            file: String::new(),
            net: self.net,
            config: self.config,
            profiles: self.profiles,
            ignored: self.ignored,
        })
    }
}
