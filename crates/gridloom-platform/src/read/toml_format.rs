//! Reader of our own platform file format.
//!
//! ```toml
//! routing = "full"                  # or "shortest": chains of the routes given, with the fewest links
//!
//! [[host]]
//! name = "laptop"
//! speed = "2Gf"                     # of one core; a plain number is flop/s
//! cores = 2
//! properties = { role = "client" }
//!
//! [[link]]
//! name = "uplink"
//! bandwidth = "100Mbps"             # a plain number is bytes per second
//! latency = "5ms"                   # a plain number is seconds
//! sharing = "splitduplex"           # or "shared" (default) or "fatpipe"
//!
//! [[cluster]]                       # hosts with a link each to a router, on a backbone if there is one
//! name = "c"
//! hosts = "node-[0-9,12]"           # or "node-{0..9}", or an array of names; several ranges are combined
//! speed = "10Gf"
//! cores = 4
//! bandwidth = "1Gbps"
//! latency = "50us"
//! sharing = "splitduplex"           # default for clusters and stars
//! backbone = { bandwidth = "10Gbps", latency = "10us", sharing = "fatpipe" }
//! loopback = { bandwidth = "10GBps", latency = 0 }
//!
//! [[star]]                          # joins hosts defined above to a hub; all of them without `hosts`
//! name = "office"
//! hosts = ["laptop"]
//! bandwidth = "1Gbps"
//! latency = "100us"
//!
//! [[route]]                         # also [[connect]]; between hosts, routers, clusters and stars
//! from = "office"
//! to = "c"
//! links = ["uplink:up"]
//! symmetrical = true                # default
//!
//! [[firewall]]                      # hosts to which only the hosts of the same firewall can connect
//! hosts = ["c"]                     # hosts, clusters or stars; names or patterns such as "node-[0-9]"
//! relay = "gate"                    # the host through which they are reached from behind other firewalls
//!
//! [[profile]]                       # how a quantity changes over time
//! host = "laptop"                   # or link = "uplink"
//! kind = "speed"                    # speed, bandwidth, latency or state
//! events = [[10, 0.5], [20, 1.0]]   # dates, bandwidths and latencies may have units; or file = "laptop.profile"
//! loop_after = 5
//!
//! [config]
//! "network/model" = "CM02"
//! ```
//!
//! Links of clusters and stars are called `NAME_link_HOST` (the number, for a range), `_UP` and `_DOWN` if
//! split-duplex, and `NAME_backbone`; routers `NAME_router`. Unknown keys are errors.

use std::collections::{BTreeMap, BTreeSet};

use super::FileReader;
use super::toml_tree::{Table, TomlValue, with_document};
use crate::build::cluster::FlatCluster;
use crate::build::zones::routing_named;
use crate::build::{PlatformBuilder, ROOT, RouteSpec};
use crate::element::{ELEMENTS_MAX, LinkId, Sharing};
use crate::error::PlatformError;
use crate::platform::Platform;
use crate::profile::{self, Profile, ProfileKind, ProfileTarget};
use crate::route::point::{PointId, ZoneId};
use crate::route::routing::{Routing, Spoke};
use crate::units;

/// Parses a platform from TOML text.
pub(crate) fn parse(text: &str, load: &mut FileReader<'_>) -> Result<Platform, PlatformError> {
    with_document(text, |root| {
        let mut reader = TomlReader { builder: PlatformBuilder::new(), gateways: BTreeMap::new() };
        reader.read(root, load)?;
        root.located(reader.builder.build())
    })
}

struct TomlReader {
    builder: PlatformBuilder,
    /// The router through which each cluster or star is entered.
    gateways: BTreeMap<PointId, PointId>,
}

impl TomlReader {
    fn read(&mut self, root: Table<'_>, load: &mut FileReader<'_>) -> Result<(), PlatformError> {
        root.allow(&[
            "routing", "host", "router", "link", "cluster", "star", "route", "connect", "firewall", "profile", "config",
        ])?;
        if let Some(value) = root.get("config") {
            for (key, setting) in value.table("config")?.entries() {
                let result = self.builder.set_config(key, &setting.scalar()?);
                result.map_err(|error| setting.error(error.message))?;
            }
        }
        if let Some(value) = root.get("routing") {
            let routing = match value.text()? {
                "full" => routing_named("Full"),
                "shortest" => routing_named("Dijkstra"),
                other => return Err(value.error(format!("unknown routing '{other}'; use full or shortest"))),
            };
            self.builder.zone_mut(ROOT).routing = routing.expect("both routings are known");
        }
        let stars = root.tables("star")?;
        let zones = self.hosts(root, &stars)?;
        for router in root.tables("router")? {
            router.allow(&["name"])?;
            router.located(self.builder.add_router(ROOT, router.need("name")?.text()?))?;
        }
        for link in root.tables("link")? {
            link.allow(&["name", "bandwidth", "latency", "sharing"])?;
            add_link_pair(&mut self.builder, link, link.need("name")?.text()?, "shared")?;
        }
        for (star, zone) in stars.into_iter().zip(zones) {
            self.star(star, zone)?;
        }
        for cluster in root.tables("cluster")? {
            self.cluster(cluster)?;
        }
        for route in root.tables("route")?.into_iter().chain(root.tables("connect")?) {
            self.route(route)?;
        }
        for firewall in root.tables("firewall")? {
            self.firewall(firewall)?;
        }
        for table in root.tables("profile")? {
            self.profile(table, load)?;
        }
        Ok(())
    }

    /// Adds all single hosts, each in the zone of the star that names it. Returns the zones of the stars.
    fn hosts(&mut self, root: Table<'_>, stars: &[Table<'_>]) -> Result<Vec<ZoneId>, PlatformError> {
        let hosts = root.tables("host")?;
        let names: BTreeSet<&str> = hosts.iter().filter_map(|host| host.get("name")?.text().ok()).collect();
        let mut zones = Vec::new();
        let mut star_of: BTreeMap<&str, ZoneId> = BTreeMap::new();
        for star in stars {
            star.allow(&["name", "hosts", "bandwidth", "latency", "sharing", "backbone"])?;
            let routing = routing_named("Star").expect("the star is a known routing");
            let name = star.get("name").map_or(Ok("star"), |name| name.text())?;
            let zone = star.located(self.builder.add_zone(ROOT, name, routing))?;
            zones.push(zone);
            let members = match star.get("hosts") {
                Some(names) => names.texts()?.into_iter().map(|(name, value)| (name, Some(value))).collect(),
                None => {
                    hosts.iter().map(|host| Ok((host.need("name")?.text()?, None))).collect::<Result<Vec<_>, _>>()?
                }
            };
            for (member, value) in members {
                let wrong = |why: String| value.map_or_else(|| star.error(&*why), |value| value.error(&*why));
                if !names.contains(member) {
                    let known = hosts.iter().filter_map(|host| host.get("name")?.text().ok());
                    return Err(wrong(crate::error::unknown("host", member, known)));
                }
                if star_of.insert(member, zone).is_some() {
                    return Err(wrong(format!("host '{member}' is in a star twice")));
                }
            }
        }
        for host in hosts {
            host.allow(&["name", "speed", "cores", "properties"])?;
            let name = host.need("name")?.text()?;
            let zone = star_of.get(name).copied().unwrap_or(ROOT);
            let speed = host.need("speed")?.quantity(units::speed)?;
            self.builder.place = host.place;
            let id = host.located(self.builder.add_host_in(zone, name, speed, cores(host)?))?;
            for (key, value) in properties(host)? {
                self.builder.set_property(id, &key, &value);
            }
        }
        Ok(zones)
    }

    fn star(&mut self, star: Table<'_>, zone: ZoneId) -> Result<(), PlatformError> {
        let name = star.get("name").map_or(Ok("star"), |name| name.text())?;
        let members = self.builder.zone_mut(zone).members.clone();
        let mut spokes = Vec::with_capacity(members.len());
        for member in members {
            let link = format!("{name}_link_{}", self.builder.point_name(member));
            spokes.push((member, add_link_pair(&mut self.builder, star, &link, "splitduplex")?));
        }
        let backbone = match star.get("backbone") {
            None => None,
            Some(value) => {
                let (bandwidth, latency_s, sharing) = backbone(value)?;
                let link = format!("{name}_backbone");
                Some(star.located(self.builder.add_link(&link, bandwidth, latency_s, sharing))?)
            }
        };
        let hub = star.located(self.builder.add_router(zone, &format!("{name}_router")))?;
        self.gateways.insert(self.builder.zone_point(zone), hub);
        if let Routing::Star(table) = &mut self.builder.zone_mut(zone).routing {
            for (member, (up, down)) in spokes {
                let join = |parts: [Option<LinkId>; 2]| parts.into_iter().flatten().collect::<Vec<_>>();
                let (up, down) = (join([Some(up), backbone]), join([backbone, Some(down)]));
                table.insert(member, Spoke { up, down, ..Spoke::default() });
            }
        }
        Ok(())
    }

    fn cluster(&mut self, table: Table<'_>) -> Result<(), PlatformError> {
        table.allow(&[
            "name",
            "hosts",
            "speed",
            "cores",
            "bandwidth",
            "latency",
            "sharing",
            "backbone",
            "loopback",
            "limiter",
            "router",
            "properties",
        ])?;
        self.builder.place = table.place;
        let id = table.need("name")?.text()?;
        let mut hosts = Vec::new();
        for (pattern, value) in table.need("hosts")?.texts()? {
            hosts.extend(expand(pattern).map_err(|why| value.error(why))?);
        }
        let loopback = match table.get("loopback") {
            None => None,
            Some(value) => {
                let (bandwidth, latency_s, _) = backbone(value)?;
                Some((bandwidth, latency_s))
            }
        };
        let limiter = table.get("limiter").map(|value| value.quantity(units::bandwidth)).transpose()?;
        let cluster = FlatCluster {
            id,
            hosts,
            speed_flops: table.need("speed")?.quantity(units::speed)?,
            cores: cores(table)?,
            bandwidth: table.need("bandwidth")?.quantity(units::bandwidth)?,
            latency_s: latency(table)?,
            split_duplex: sharing(table, "splitduplex")?.is_none(),
            backbone: table.get("backbone").map(backbone).transpose()?,
            loopback,
            limiter_bandwidth: limiter,
            router: table.get("router").map_or(Ok(format!("{id}_router")), |name| name.text().map(str::to_owned))?,
            properties: properties(table)?,
        };
        let zone = table.located(cluster.add(&mut self.builder, ROOT))?;
        let router = table.located(self.builder.find_point("router", &cluster.router))?;
        self.gateways.insert(self.builder.zone_point(zone), router);
        Ok(())
    }

    fn route(&mut self, route: Table<'_>) -> Result<(), PlatformError> {
        route.allow(&["from", "to", "links", "symmetrical"])?;
        let end = |key: &'static str, what: &str| {
            let value = route.need(key)?;
            let found = self.builder.find_point("host or router", value.text()?);
            found.map_err(|error| value.error(format!("{what} {}", error.message)))
        };
        let (src, dst) = (end("from", "route from")?, end("to", "route to")?);
        let mut links = Vec::new();
        for (text, value) in route.need("links")?.texts()? {
            let (name, direction) = match text.rsplit_once(':') {
                Some((name, "up" | "UP")) => (name, Some("UP")),
                Some((name, "down" | "DOWN")) => (name, Some("DOWN")),
                _ => (text, None),
            };
            let found = self.builder.find_link(name, direction);
            links.push(found.map_err(|error| value.error(format!("route names {}", error.message)))?);
        }
        let symmetrical = route.get("symmetrical").map_or(Ok(true), |value| value.flag())?;
        let gateway = |end: &PointId| self.gateways.get(end).copied();
        let spec = RouteSpec { src, dst, gateway_src: gateway(&src), gateway_dst: gateway(&dst), links, symmetrical };
        route.located(self.builder.add_route_in(ROOT, spec))
    }

    fn firewall(&mut self, table: Table<'_>) -> Result<(), PlatformError> {
        table.allow(&["hosts", "relay"])?;
        let mut hosts = Vec::new();
        for (pattern, value) in table.need("hosts")?.texts()? {
            for (_, name) in expand(pattern).map_err(|why| value.error(why))? {
                let found = self.builder.find_point("host, cluster or star", &name);
                let found = found.map_err(|error| value.error(error.message))?;
                hosts.extend(self.builder.hosts_in(found));
            }
        }
        let relay = table.need("relay")?;
        let host = self.builder.find_host(relay.text()?).map_err(|error| relay.error(error.message))?;
        table.located(self.builder.add_firewall(&hosts, host))
    }

    fn profile(&mut self, table: Table<'_>, load: &mut FileReader<'_>) -> Result<(), PlatformError> {
        table.allow(&["host", "link", "kind", "events", "file", "loop_after"])?;
        let targets = match (table.get("host"), table.get("link")) {
            (Some(name), None) => {
                let host = self.builder.find_host(name.text()?).map_err(|error| name.error(error.message))?;
                vec![ProfileTarget::Host(host)]
            }
            (None, Some(name)) => {
                let links = self.builder.find_links(name.text()?).map_err(|error| name.error(error.message))?;
                links.into_iter().map(ProfileTarget::Link).collect()
            }
            _ => return Err(table.error("a profile has either a 'host' or a 'link'")),
        };
        let (text, of_host) = (table.need("kind")?, matches!(targets[0], ProfileTarget::Host(_)));
        let kind = match (text.text()?, of_host) {
            ("state", _) => ProfileKind::State,
            ("speed", true) => ProfileKind::Speed,
            ("bandwidth", false) => ProfileKind::Bandwidth,
            ("latency", false) => ProfileKind::Latency,
            (other, true) => return Err(text.error(format!("a host has no '{other}'; use speed or state"))),
            (other, false) => {
                return Err(text.error(format!("a link has no '{other}'; use bandwidth, latency or state")));
            }
        };
        let (events, mut loop_after_s) = match (table.get("events"), table.get("file")) {
            (Some(list), None) => (events(list, kind)?, None),
            (None, Some(file)) => {
                let wrong = |why: String| file.error(format!("profile: {why}"));
                profile::parse(&load(file.text()?).map_err(wrong)?, kind, 0.0).map_err(wrong)?
            }
            _ => return Err(table.error("a profile has either 'events' or a 'file'")),
        };
        if let Some(value) = table.get("loop_after") {
            let delay_s = value.quantity(units::time)?;
            if !(delay_s.is_finite() && delay_s >= 0.0) {
                return Err(value.error(format!("loop_after is {delay_s} s; it must be 0 or more")));
            }
            loop_after_s = Some(delay_s);
            profile::check_loop(&events, loop_after_s).map_err(|why| value.error(why))?;
        }
        for target in targets {
            self.builder.add_profile(Profile { target, kind, events: events.clone(), loop_after_s });
        }
        Ok(())
    }
}

fn events(list: TomlValue<'_>, kind: ProfileKind) -> Result<Vec<(f64, f64)>, PlatformError> {
    let mut events: Vec<(f64, f64)> = Vec::new();
    for item in list.items()? {
        let pair = item.items()?;
        let [date, value] = pair[..] else { return Err(item.error("an event is a pair [date, value]")) };
        let date = date.quantity(units::time)?;
        let value = match kind {
            ProfileKind::Bandwidth => value.quantity(units::bandwidth)?,
            ProfileKind::Latency => value.quantity(units::time)?,
            ProfileKind::Speed | ProfileKind::State => value.number()?,
        };
        if !(date >= events.last().map_or(0.0, |last| last.0) && date.is_finite()) {
            return Err(item.error(format!("date {date} is negative or before the one above it")));
        }
        if !(value.is_finite() && value >= 0.0) {
            return Err(item.error(format!("value {value} is not a number of 0 or more")));
        }
        events.push((date, value));
    }
    Ok(events)
}

fn cores(table: Table<'_>) -> Result<u32, PlatformError> {
    let Some(value) = table.get("cores") else { return Ok(1) };
    u32::try_from(value.integer()?).map_err(|_| value.error("'cores' must be a whole number above 0"))
}

fn latency(table: Table<'_>) -> Result<f64, PlatformError> {
    table.get("latency").map_or(Ok(0.0), |value| value.quantity(units::time))
}

fn properties(table: Table<'_>) -> Result<Vec<(String, String)>, PlatformError> {
    let Some(value) = table.get("properties") else { return Ok(Vec::new()) };
    value.table("properties")?.entries().map(|(key, value)| Ok((key.to_owned(), value.scalar()?))).collect()
}

/// Reads the sharing of a table's links; `None` is split-duplex.
fn sharing(table: Table<'_>, default: &str) -> Result<Option<Sharing>, PlatformError> {
    let value = table.get("sharing");
    match value.map_or(Ok(default), |value| value.text())? {
        "shared" => Ok(Some(Sharing::Shared)),
        "fatpipe" => Ok(Some(Sharing::Fatpipe)),
        "splitduplex" => Ok(None),
        other => {
            let why = format!("unknown sharing '{other}'; use shared, fatpipe or splitduplex");
            Err(value.map_or_else(|| table.error(&*why), |value| value.error(&*why)))
        }
    }
}

/// Adds a link with a table's bandwidth, latency and sharing. Returns the links for the directions up and down.
fn add_link_pair(
    builder: &mut PlatformBuilder,
    table: Table<'_>,
    name: &str,
    default: &str,
) -> Result<(LinkId, LinkId), PlatformError> {
    let bandwidth = table.need("bandwidth")?.quantity(units::bandwidth)?;
    let latency_s = latency(table)?;
    table.located(match sharing(table, default)? {
        None => builder.add_duplex_link(name, bandwidth, latency_s),
        Some(sharing) => builder.add_link(name, bandwidth, latency_s, sharing).map(|link| (link, link)),
    })
}

/// Bandwidth, latency and sharing of a backbone.
fn backbone(value: TomlValue<'_>) -> Result<(f64, f64, Sharing), PlatformError> {
    let table = value.table("backbone")?;
    table.allow(&["bandwidth", "latency", "sharing"])?;
    let sharing = sharing(table, "shared")?.ok_or_else(|| table.error("a backbone cannot be split-duplex"))?;
    Ok((table.need("bandwidth")?.quantity(units::bandwidth)?, latency(table)?, sharing))
}

/// Returns number and name of each host of a pattern such as `node-[0-9,12].x` or `node-{0..9}`; leading zeros are kept. Several
/// ranges are combined, with the last one changing first, and the number consists of the numbers of all ranges, joined by
/// `-`. A name without a range is a single host.
fn expand(pattern: &str) -> Result<Vec<(String, String)>, String> {
    let mut names = vec![(String::new(), String::new())];
    let mut rest = pattern;
    while let Some(open) = rest.find(['[', '{']) {
        let (close, separator) = if rest[open..].starts_with('[') { (']', "-") } else { ('}', "..") };
        let (before, after) = (&rest[..open], &rest[open + 1..]);
        let (ranges, after) =
            after.split_once(close).ok_or_else(|| format!("'{pattern}' lacks the closing '{close}'"))?;
        let numbers = numbers(ranges, separator, ELEMENTS_MAX / names.len())
            .map_err(|why| why.unwrap_or_else(|| format!("'{pattern}' names more than {ELEMENTS_MAX} hosts")))?;
        let joined = |number: &str, more: &str| match number.is_empty() {
            true => more.to_owned(),
            false => format!("{number}-{more}"),
        };
        let all = names.iter().flat_map(|(number, name)| {
            numbers.iter().map(move |more| (joined(number, more), format!("{name}{before}{more}")))
        });
        names = all.collect();
        rest = after;
    }
    if rest.len() == pattern.len() {
        return Ok(vec![(pattern.to_owned(), pattern.to_owned())]);
    }
    names.iter_mut().for_each(|(_, name)| name.push_str(rest));
    Ok(names)
}

/// Returns the numbers of ranges such as `0-9,12`. The error has no text if there are more than `most`.
fn numbers(ranges: &str, separator: &str, most: usize) -> Result<Vec<String>, Option<String>> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once(separator).unwrap_or((range, range));
        let width = if first.trim().starts_with('0') { first.trim().len() } else { 0 };
        let (first, last) = (super::tree::count(first)?, super::tree::count(last)?);
        if first > last {
            return Err(Some(format!("the range '{range}' runs backwards")));
        }
        if (last - first) as usize >= most - numbers.len() {
            return Err(None);
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}
