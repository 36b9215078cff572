//! Machines, links and the routes between them: what a plan is made for and a simulation runs on.
//!
//! A [`Platform`] is read from our TOML or from SimGrid's XML, or put together with a
//! [`PlatformBuilder`]. It is immutable and checked: every route names links that exist, every gateway lies in its
//! zone, every number is finite and has the right sign.
//!
//! Routes are computed when asked for, from the zones of the file; nothing quadratic is kept for clusters, so callers
//! that ask often keep the answers.
//!
//! It does not model sharing or time (that is `flow`); profiles are read and kept for who does.
//!
//! Source of the XML format and of route resolution: SimGrid 4.1, DTD 4.1.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

mod build;
mod build_zones;
mod cluster;
pub mod deployment;
mod dragonfly;
mod error;
mod fat_tree;
mod net;
pub mod outline;
pub mod profile;
mod routing;
mod toml_format;
mod toml_tree;
mod torus;
mod tree;
pub mod units;
mod xml;

#[cfg(test)]
mod tests;

pub use build::PlatformBuilder;
pub use deployment::Process;
pub use error::PlatformError;
pub use profile::{Profile, ProfileKind, ProfileTarget};

use net::{Net, PointId, Walk};

/// A host, by its number in [`Platform::hosts`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct HostId(pub u32);

/// A link, by its number in [`Platform::links`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct LinkId(pub u32);

/// The link from any host to itself, where the platform gives no other: `__loopback__`, link 0 of every platform.
pub const LOOPBACK: LinkId = LinkId(0);

/// How flows that cross a link at the same time share it. A split-duplex link is two shared ones, `NAME_UP` and
/// `NAME_DOWN`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// The flows together get the bandwidth.
    Shared,
    /// Each flow gets up to the bandwidth: a backbone too wide to be filled.
    Fatpipe,
}

/// A machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Unique name.
    pub name: String,
    /// Speed of one core, in floating-point operations per second.
    pub speed_flops: f64,
    /// Number of cores.
    pub cores: u32,
    /// What else the file says of it.
    pub properties: BTreeMap<String, String>,
}

/// A link, or one direction of a split-duplex link.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Link {
    /// Unique name.
    pub name: String,
    /// Bytes per second.
    pub bandwidth: f64,
    /// Seconds.
    pub latency_s: f64,
    /// How flows share it.
    pub sharing: Sharing,
}

/// The way from one host to another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The links crossed, in order.
    pub links: Vec<LinkId>,
    /// Sum of the links' latencies, plus the distance in a zone with coordinates. Seconds.
    pub latency_s: f64,
}

/// Hosts, links and the routes between them.
#[derive(Clone, Debug)]
pub struct Platform {
    hosts: Vec<Host>,
    links: Vec<Link>,
    host_names: BTreeMap<String, HostId>,
    link_names: BTreeMap<String, LinkId>,
    host_points: Vec<PointId>,
    host_places: Vec<(u32, u32)>,
    /// Empty if it was built without one.
    file: String,
    net: Net,
    config: BTreeMap<String, String>,
    profiles: Vec<Profile>,
}

impl Platform {
    /// Reads a platform from text: SimGrid's XML if it starts with `<`, otherwise our TOML. `load` gives the text of
    /// another file that this one names, relative to it.
    ///
    /// # Errors
    /// The first mistake of the file, with its place.
    pub fn parse(
        text: &str,
        file_name: &str,
        load: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<Platform, PlatformError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let result =
            if text.trim_start().starts_with('<') { xml::parse(text, load) } else { toml_format::parse(text, load) };
        let platform = result.map_err(|error| error.at(file_name, (0, 0)))?;
        Ok(Platform { file: file_name.to_owned(), ..platform })
    }

    /// What is wrong with a host, for who gives its properties a sense, with the place where the file defines it.
    ///
    /// # Panics
    /// If the host is not one of this platform.
    pub fn error_of(&self, host: HostId, message: impl Into<String>) -> PlatformError {
        PlatformError::new(message).at(&self.file, self.host_places[host.0 as usize])
    }

    /// All hosts; a [`HostId`] is an index into it.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// All links; a [`LinkId`] is an index into it. Link 0 is [`LOOPBACK`].
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The host of that name.
    pub fn host(&self, name: &str) -> Option<HostId> {
        self.host_names.get(name).copied()
    }

    /// The link of that name (`NAME_UP` or `NAME_DOWN` for a direction of a split-duplex link).
    pub fn link(&self, name: &str) -> Option<LinkId> {
        self.link_names.get(name).copied()
    }

    /// How elements change over time, in the order of the file.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// Settings in the file for whoever uses the platform, such as `network/model`.
    pub fn config(&self) -> &BTreeMap<String, String> {
        &self.config
    }

    /// The way from `src` to `dst`, computed from the zones at each call. From a host to itself it is the loopback
    /// link, unless the platform says otherwise.
    ///
    /// # Errors
    /// The platform joins the two by no route.
    ///
    /// # Panics
    /// If a host is not one of this platform.
    pub fn route(&self, src: HostId, dst: HostId) -> Result<Route, PlatformError> {
        let (from, to) = (self.host_points[src.0 as usize], self.host_points[dst.0 as usize]);
        let mut walk = Walk::new(&self.net, &self.links);
        walk.go(from, to).map_err(|missing| {
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
