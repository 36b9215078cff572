//! The platform, once it has been built and checked.

use std::collections::BTreeMap;

use gridloom_base::NameKind;

use crate::element::{Host, HostId, Link, LinkId, Route};
use crate::error::PlatformError;
use crate::firewall::Firewalls;
use crate::profile::{Profile, ProfileKind, ProfileTarget};
use crate::route::net::Net;
use crate::route::point::PointId;
use crate::route::walk::Walk;

/// Hosts, links and the routes between them.
#[derive(Clone, Debug)]
pub struct Platform {
    pub(crate) hosts: Vec<Host>,
    pub(crate) links: Vec<Link>,
    pub(crate) host_names: BTreeMap<String, HostId>,
    pub(crate) link_names: BTreeMap<String, LinkId>,
    pub(crate) host_points: Vec<PointId>,
    pub(crate) host_places: Vec<(u32, u32)>,
    pub(crate) firewalls: Firewalls,
    /// Name of the file; empty if it was built without one.
    pub(crate) file: String,
    pub(crate) net: Net,
    pub(crate) config: BTreeMap<String, String>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) ignored: BTreeMap<String, usize>,
}

impl Platform {
    /// Returns an error about a host, with the position of its definition in the file, for code that reads its properties.
    ///
    /// # Panics
    /// If the host is not one of this platform.
    pub fn host_error(&self, host: HostId, message: impl Into<String>) -> PlatformError {
        PlatformError::new(message).at(&self.file, self.host_places[host.0 as usize])
    }

    /// All hosts; a [`HostId`] is an index into the slice.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// All links; a [`LinkId`] is an index into the slice. Link 0 is [`LOOPBACK`](crate::element::LOOPBACK).
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The host of that name.
    pub fn host(&self, name: &str) -> Option<HostId> {
        self.host_names.get(&*NameKind::Host.mapped(name)).copied()
    }

    /// The link of that name (`NAME_UP` or `NAME_DOWN` for a direction of a split-duplex link).
    pub fn link(&self, name: &str) -> Option<LinkId> {
        self.link_names.get(&*NameKind::Host.mapped(name)).copied()
    }

    /// Returns the same platform, in which the latency of these links is always 0.
    ///
    /// # Panics
    /// If a link is not one of this platform.
    pub fn without_latency(mut self, links: &[LinkId]) -> Platform {
        for link in links {
            self.links[link.0 as usize].latency_s = 0.0;
        }
        let is_gone = |profile: &Profile| match profile.target {
            ProfileTarget::Link(link) => profile.kind == ProfileKind::Latency && links.contains(&link),
            ProfileTarget::Host(_) => false,
        };
        self.profiles.retain(|profile| !is_gone(profile));
        self
    }

    /// Changes of elements over time, in the order of the file.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// Kinds of ignored parts of the file, such as properties of other programs, with the number of each.
    pub fn ignored(&self) -> &BTreeMap<String, usize> {
        &self.ignored
    }

    /// Settings in the file for the programs that use the platform, such as `network/model`.
    pub fn config(&self) -> &BTreeMap<String, String> {
        &self.config
    }

    /// Returns the relay through which data pass from `src` to `dst`, if both are behind firewalls, and not the same one.
    pub fn relay(&self, src: HostId, dst: HostId) -> Option<HostId> {
        self.firewalls.relay(src, dst)
    }

    /// Returns the relay of each firewall, and the hosts behind the firewall.
    pub fn firewalls(&self) -> impl Iterator<Item = (HostId, Vec<HostId>)> + '_ {
        self.firewalls.iter()
    }

    /// Returns the route from `src` to `dst`, computed from the zones on each call. The route from a host to itself is the
    /// loopback link, unless the platform defines another one. If a relay is between the two, the route leads through it.
    ///
    /// # Errors
    /// The platform has no route between the two, or to or from their relay.
    ///
    /// # Panics
    /// If a host is not one of this platform.
    pub fn route(&self, src: HostId, dst: HostId) -> Result<Route, PlatformError> {
        let Some(relay) = self.relay(src, dst) else { return self.direct_route(src, dst) };
        let (mut route, rest) = (self.direct_route(src, relay)?, self.direct_route(relay, dst)?);
        route.links.extend(rest.links);
        route.latency_s += rest.latency_s;
        Ok(route)
    }

    fn direct_route(&self, src: HostId, dst: HostId) -> Result<Route, PlatformError> {
        let (from, to) = (self.host_points[src.0 as usize], self.host_points[dst.0 as usize]);
        let mut walk = Walk::new(&self.net, &self.links);
        walk.append_route(from, to).map_err(|missing| {
            let names = [from, to, missing.src, missing.dst].map(|point| &self.net.point(point).name);
            let within = if (missing.src, missing.dst) == (from, to) {
                String::new()
            } else {
                format!(": there is none from '{}' to '{}'", names[2], names[3])
            };
            PlatformError::new(format!("no route from '{}' to '{}'{within}", names[0], names[1]))
        })?;
        Ok(walk.route)
    }
}
