//! Clusters of SimGrid's files: many like hosts from one element.
//!
//! A flat cluster is a star: each host has a link of its own (two for split-duplex) to a router, and all share the
//! backbone, if there is one. Names are SimGrid's: host `PREFIXiSUFFIX`, links `ID_link_i` (`_UP`, `_DOWN`,
//! `_loopback`, `_limiter`), backbone `ID_backbone`, router `PREFIXID_routerSUFFIX`.

use std::collections::BTreeMap;

use super::build::{ELEMENTS_MAX, PlatformBuilder};
use super::build_zones::routing_named;
use super::net::{Edge, NoRoute, PointId, Walk, ZoneId};
use super::routing::{Routing, Spoke};
use super::tree::Element;
use super::xml::{count, sharing};
use super::{HostId, LinkId, PlatformError, Sharing, dragonfly, fat_tree, torus, units};

/// A flat cluster, however the file said it.
#[derive(Clone, Debug)]
pub(super) struct FlatCluster<'a> {
    pub id: &'a str,
    /// Number in link names, and name, of each host.
    pub hosts: Vec<(String, String)>,
    pub speed_flops: f64,
    pub cores: u32,
    pub bandwidth: f64,
    pub latency_s: f64,
    pub split_duplex: bool,
    pub backbone: Option<(f64, f64, Sharing)>,
    pub loopback: Option<(f64, f64)>,
    pub limiter_bandwidth: Option<f64>,
    pub router: String,
    pub properties: Vec<(String, String)>,
}

impl FlatCluster<'_> {
    /// Adds the cluster as a zone of its own.
    pub(super) fn add(&self, builder: &mut PlatformBuilder, parent: ZoneId) -> Result<ZoneId, PlatformError> {
        let routing = routing_named("Cluster").expect("the star is a known routing");
        let zone = builder.add_zone(parent, self.id, routing)?;
        let mut spokes = Vec::with_capacity(self.hosts.len());
        for (number, name) in &self.hosts {
            let host = self.add_host(builder, zone, name)?;
            let link = format!("{}_link_{number}", self.id);
            let loopback = match self.loopback {
                Some((bw, lat)) => Some(builder.add_link(&format!("{link}_loopback"), bw, lat, Sharing::Fatpipe)?),
                None => None,
            };
            let limiter = match self.limiter_bandwidth {
                Some(bw) => Some(builder.add_link(&format!("{link}_limiter"), bw, 0.0, Sharing::Shared)?),
                None => None,
            };
            let (up, down) = self.add_cable(builder, &link, 1)?;
            spokes.push((builder.host_point(host), limiter, up, down, loopback));
        }
        let backbone = match self.backbone {
            Some((bw, lat, sharing)) => Some(builder.add_link(&format!("{}_backbone", self.id), bw, lat, sharing)?),
            None => None,
        };
        builder.add_router(zone, &self.router)?;
        if let Routing::Star(table) = &mut builder.zone_mut(zone).routing {
            for (point, limiter, up, down, loopback) in spokes {
                let join = |parts: [Option<LinkId>; 3]| parts.into_iter().flatten().collect::<Vec<_>>();
                let spoke = Spoke {
                    up: join([limiter, Some(up), backbone]),
                    down: join([backbone, Some(down), limiter]),
                    loopback,
                    gateway: None,
                };
                table.insert(point, spoke);
            }
        }
        Ok(zone)
    }

    /// Adds a link of so many cables, of the cluster's bandwidth each: there and back.
    pub(super) fn add_cable(
        &self,
        builder: &mut PlatformBuilder,
        name: &str,
        cables: usize,
    ) -> Result<(LinkId, LinkId), PlatformError> {
        let bandwidth = self.bandwidth * cables as f64;
        if self.split_duplex {
            return builder.add_duplex_link(name, bandwidth, self.latency_s);
        }
        let both = builder.add_link(name, bandwidth, self.latency_s, Sharing::Shared)?;
        Ok((both, both))
    }

    /// Adds what limits a host or a switch of that number, if the cluster has such links.
    pub(super) fn add_limiter(
        &self,
        builder: &mut PlatformBuilder,
        number: usize,
    ) -> Result<Option<LinkId>, PlatformError> {
        let Some(bandwidth) = self.limiter_bandwidth else { return Ok(None) };
        builder.add_link(&format!("{}_link_{number}_limiter", self.id), bandwidth, 0.0, Sharing::Shared).map(Some)
    }

    /// Adds one of the hosts, without its links.
    pub(super) fn add_host(
        &self,
        builder: &mut PlatformBuilder,
        zone: ZoneId,
        name: &str,
    ) -> Result<HostId, PlatformError> {
        let host = builder.add_host_in(zone, name, self.speed_flops, self.cores)?;
        for (key, value) in &self.properties {
            builder.set_property(host, key, value);
        }
        Ok(host)
    }
}

/// The hosts of a cluster whose switches are no points of the platform, by position.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaves {
    positions: BTreeMap<PointId, usize>,
    loopbacks: Vec<LinkId>,
    limiters: Vec<LinkId>,
}

impl Leaves {
    /// Adds hosts, their loopbacks and the router that stands for the whole.
    pub(super) fn add(
        cluster: &FlatCluster<'_>,
        builder: &mut PlatformBuilder,
        zone: ZoneId,
    ) -> Result<Leaves, PlatformError> {
        let mut leaves = Leaves::default();
        for (position, (number, name)) in cluster.hosts.iter().enumerate() {
            let host = cluster.add_host(builder, zone, name)?;
            leaves.positions.insert(builder.host_point(host), position);
            if let Some((bandwidth, latency_s)) = cluster.loopback {
                let loopback = format!("{}_link_{number}_loopback", cluster.id);
                leaves.loopbacks.push(builder.add_link(&loopback, bandwidth, latency_s, Sharing::Fatpipe)?);
            }
            leaves.limiters.extend(cluster.add_limiter(builder, position)?);
        }
        builder.add_router(zone, &cluster.router)?;
        Ok(leaves)
    }

    /// The way between two members, where `way` tells that between two hosts by their positions. The router stands for
    /// the whole: nothing is crossed to reach it.
    pub(super) fn route(
        &self,
        walk: &mut Walk<'_>,
        src: PointId,
        dst: PointId,
        way: impl FnOnce(usize, usize) -> Option<Vec<LinkId>>,
    ) -> Result<Edge, NoRoute> {
        let links = match (self.positions.get(&src), self.positions.get(&dst)) {
            (Some(&from), Some(&to)) => match self.loopbacks.get(from).filter(|_| from == to) {
                Some(own) => vec![*own],
                None => way(from, to).ok_or(NoRoute { src, dst })?,
            },
            (None, _) | (_, None) => Vec::new(),
        };
        walk.add_latency(&links);
        Ok(Edge { links, gateway_src: src, gateway_dst: dst })
    }

    /// What everything that a host sends or receives, or that passes it, has to cross.
    pub(super) fn limiter(&self, position: usize) -> Option<LinkId> {
        self.limiters.get(position).copied()
    }
}

/// A `cluster` element.
pub(super) fn flat_or_other(
    builder: &mut PlatformBuilder,
    zone: ZoneId,
    element: &Element,
) -> Result<(), PlatformError> {
    builder.place = element.place;
    element.allow(&[
        "id",
        "prefix",
        "suffix",
        "radical",
        "speed",
        "core",
        "bw",
        "lat",
        "sharing_policy",
        "topology",
        "topo_parameters",
        "bb_bw",
        "bb_lat",
        "bb_sharing_policy",
        "router_id",
        "limiter_link",
        "loopback_bw",
        "loopback_lat",
        "availability_file",
        "state_file",
    ])?;
    let topology = element.get("topology").unwrap_or("FLAT");
    let add_topology = match topology {
        "FLAT" => None,
        "FAT_TREE" => Some(fat_tree::add as AddTopology),
        "TORUS" => Some(torus::add as AddTopology),
        "DRAGONFLY" => Some(dragonfly::add as AddTopology),
        _ => {
            let why = format!("topology '{topology}' is unknown; there are FLAT, FAT_TREE, TORUS, DRAGONFLY");
            return Err(element.error(why));
        }
    };
    let id = element.need("id")?;
    let (prefix, suffix) = (element.get("prefix").unwrap_or(""), element.get("suffix").unwrap_or(""));
    let optional = |attribute: &str, parse: fn(&str) -> Result<f64, String>| match element.get(attribute) {
        Some(text) if !text.is_empty() => element.number(attribute, None, parse).map(Some),
        _ => Ok(None),
    };
    let backbone = match optional("bb_bw", units::bandwidth)? {
        None => None,
        Some(bandwidth) => {
            let latency_s = element.number("bb_lat", Some(0.0), units::time)?;
            Some((bandwidth, latency_s, sharing(element, element.get("bb_sharing_policy").unwrap_or("SHARED"))?))
        }
    };
    let loopback_lat = optional("loopback_lat", units::time)?;
    let loopback_bw = optional("loopback_bw", units::bandwidth)?;
    let router = element.get("router_id").filter(|name| !name.is_empty());
    let cluster = FlatCluster {
        id,
        hosts: numbered(element, prefix, suffix)?,
        speed_flops: element.number("speed", None, |text| units::speed(text.split(',').next().unwrap_or_default()))?,
        cores: element.number("core", Some(1), count)?,
        bandwidth: element.number("bw", None, units::bandwidth)?,
        latency_s: element.number("lat", None, units::time)?,
        split_duplex: match element.get("sharing_policy").unwrap_or("SPLITDUPLEX") {
            "SPLITDUPLEX" | "FULLDUPLEX" => true,
            policy => match sharing(element, policy)? {
                Sharing::Shared => false,
                Sharing::Fatpipe => {
                    return Err(element.error("links of a cluster are SHARED or SPLITDUPLEX, not FATPIPE"));
                }
            },
        },
        backbone,
        loopback: loopback_bw.map(|bandwidth| (bandwidth, loopback_lat.unwrap_or(0.0))),
        limiter_bandwidth: optional("limiter_link", units::bandwidth)?,
        router: router.map_or_else(|| format!("{prefix}{id}_router{suffix}"), str::to_owned),
        properties: properties(element)?,
    };
    element.located(match add_topology {
        Some(add) => add(&cluster, element.need("topo_parameters")?, builder, zone),
        None => cluster.add(builder, zone).map(drop),
    })
}

type AddTopology = fn(&FlatCluster<'_>, &str, &mut PlatformBuilder, ZoneId) -> Result<(), PlatformError>;

/// A `cabinet` element: hosts with links of their own in a zone of routing `Cluster`.
pub(super) fn cabinet(builder: &mut PlatformBuilder, zone: ZoneId, element: &Element) -> Result<(), PlatformError> {
    builder.place = element.place;
    element.allow(&["id", "prefix", "suffix", "radical", "speed", "bw", "lat"])?;
    let (prefix, suffix) = (element.get("prefix").unwrap_or(""), element.get("suffix").unwrap_or(""));
    let speed = element.number("speed", None, units::speed)?;
    let bandwidth = element.number("bw", None, units::bandwidth)?;
    let latency_s = element.number("lat", None, units::time)?;
    let properties = properties(element)?;
    for (_, name) in numbered(element, prefix, suffix)? {
        let host = element.located(builder.add_host_in(zone, &name, speed, 1))?;
        for (key, value) in &properties {
            builder.set_property(host, key, value);
        }
        let (up, down) = element.located(builder.add_duplex_link(&format!("link_{name}"), bandwidth, latency_s))?;
        let point = builder.host_point(host);
        let Routing::Star(spokes) = &mut builder.zone_mut(zone).routing else {
            return Err(element.error("a cabinet needs a zone of routing 'Cluster'"));
        };
        spokes.insert(point, Spoke { up: vec![up], down: vec![down], ..Spoke::default() });
    }
    Ok(())
}

fn properties(element: &Element) -> Result<Vec<(String, String)>, PlatformError> {
    let mut properties = Vec::new();
    for child in &element.children {
        if child.name != "prop" {
            return Err(child.error(format!("element '{}' is unknown in a cluster", child.name)));
        }
        properties.push((child.need("id")?.to_owned(), child.need("value")?.to_owned()));
    }
    Ok(properties)
}

/// Numbers and names of the hosts.
fn numbered(element: &Element, prefix: &str, suffix: &str) -> Result<Vec<(String, String)>, PlatformError> {
    let numbers = element.number("radical", None, radical)?;
    Ok(numbers.into_iter().map(|number| (number.to_string(), format!("{prefix}{number}{suffix}"))).collect())
}

/// The numbers of a list such as `0-9,12`.
pub(super) fn radical(text: &str) -> Result<Vec<u32>, String> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (count(first)?, count(last)?);
        if first > last {
            return Err(format!("the range '{part}' runs backwards"));
        }
        if (last - first) as usize >= ELEMENTS_MAX - numbers.len() {
            return Err(format!("'{text}' names more than {ELEMENTS_MAX} hosts"));
        }
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radicals_are_lists_of_ranges() {
        assert_eq!(radical("1-3,7, 9"), Ok(vec![1, 2, 3, 7, 9]));
        assert!(radical("3-1").unwrap_err().contains("backwards"));
        assert!(radical("0-4000000000").unwrap_err().contains("more than"));
        assert!(radical("").is_err());
    }
}
