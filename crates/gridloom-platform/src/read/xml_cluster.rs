//! Clusters and cabinets of SimGrid's files.

use super::foreign;
use super::tree::{Element, count, sharing};
use crate::build::PlatformBuilder;
use crate::build::cluster::FlatCluster;
use crate::element::{ELEMENTS_MAX, Sharing};
use crate::error::PlatformError;
use crate::route::point::ZoneId;
use crate::route::routing::{Routing, Spoke};
use crate::units;

/// A `cluster` element.
pub(crate) fn flat_or_other(
    builder: &mut PlatformBuilder,
    zone: ZoneId,
    element: &Element,
    is_prefixed: bool,
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
    let add_topology: Option<AddTopology> = match topology {
        "FLAT" => None,
        "FAT_TREE" => Some(|cluster, text, builder, zone| cluster.add_fat_tree(text, builder, zone)),
        "TORUS" => Some(|cluster, text, builder, zone| cluster.add_torus(text, builder, zone)),
        "DRAGONFLY" => Some(|cluster, text, builder, zone| cluster.add_dragonfly(text, builder, zone)),
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
        properties: properties(builder, element, is_prefixed)?,
    };
    element.located(match add_topology {
        Some(add) => add(&cluster, element.need("topo_parameters")?, builder, zone),
        None => cluster.add(builder, zone).map(drop),
    })
}

type AddTopology = fn(&FlatCluster<'_>, &str, &mut PlatformBuilder, ZoneId) -> Result<(), PlatformError>;

/// Reads a `cabinet` element: hosts with links of their own in a zone of routing `Cluster`.
pub(crate) fn cabinet(
    builder: &mut PlatformBuilder,
    zone: ZoneId,
    element: &Element,
    is_prefixed: bool,
) -> Result<(), PlatformError> {
    builder.place = element.place;
    element.allow(&["id", "prefix", "suffix", "radical", "speed", "bw", "lat"])?;
    let (prefix, suffix) = (element.get("prefix").unwrap_or(""), element.get("suffix").unwrap_or(""));
    let speed = element.number("speed", None, units::speed)?;
    let bandwidth = element.number("bw", None, units::bandwidth)?;
    let latency_s = element.number("lat", None, units::time)?;
    let properties = properties(builder, element, is_prefixed)?;
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

/// Returns the properties of each host, except those of other programs.
fn properties(
    builder: &mut PlatformBuilder,
    element: &Element,
    is_prefixed: bool,
) -> Result<Vec<(String, String)>, PlatformError> {
    let mut properties = Vec::new();
    for child in &element.children {
        if child.name != "prop" {
            return Err(child.error(format!("element '{}' is unknown in a cluster", child.name)));
        }
        let (id, value) = (child.need("id")?, child.need("value")?);
        match foreign::own(id, value, is_prefixed) {
            Some(key) => properties.push((key.to_owned(), value.to_owned())),
            None => builder.ignore(format!("property '{id}' of a cluster")),
        }
    }
    Ok(properties)
}

/// Numbers and names of the hosts.
fn numbered(element: &Element, prefix: &str, suffix: &str) -> Result<Vec<(String, String)>, PlatformError> {
    let numbers = element.number("radical", None, radical)?;
    Ok(numbers.into_iter().map(|number| (number.to_string(), format!("{prefix}{number}{suffix}"))).collect())
}

/// The numbers of a list such as `0-9,12`.
pub(crate) fn radical(text: &str) -> Result<Vec<u32>, String> {
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
