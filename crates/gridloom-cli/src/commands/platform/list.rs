//! Lists a platform line by line: hosts, links, zones and routes. The first word of a line is its kind.
//!
//! In a large platform, hosts or links that are alike share one line with their count, unless all are requested.

use std::collections::BTreeMap;
use std::fmt::Write;

use gridloom::chart::short;
use gridloom_platform::outline::{Arm, Member, Outline, OutlineRoute, Shape};
use gridloom_platform::{Host, HostId, LOOPBACK, Link, LinkId, Platform, Sharing};

use crate::quantities::{cables, counted, from_to, roles, scaled};

/// Maximum number of hosts, links or routes that are listed one by one.
const LISTED_MAX: usize = 48;
/// Maximum number of members of a zone that are named.
const NAMED_MAX: usize = 8;
/// Maximum number of hosts for which routes are listed pair by pair.
const ROUTED_HOSTS_MAX: usize = 8;
/// Longer names of hosts in routes are shortened in the middle.
const NAME_CHARS_MAX: usize = 30;

pub fn text(platform: &Platform, is_all: bool) -> String {
    let most = if is_all { usize::MAX } else { LISTED_MAX };
    let outline = platform.outline();
    let cables: Vec<LinkId> = std::iter::once(LOOPBACK).chain(platform_cables(platform)).collect();
    let mut out = format!("{}, {}\n", counted(platform.hosts().len(), "host"), counted(cables.len() - 1, "link"));
    hosts(&mut out, platform, most);
    links(&mut out, platform, &cables, most);
    zones(&mut out, platform, &outline, 0);
    routes(&mut out, platform, &outline, most);
    firewalls(&mut out, platform);
    if let Some(ignored) = gridloom::ignored_text(platform) {
        let _ = writeln!(out, "ignored {ignored}");
    }
    out
}

/// Groups similar items, each group in the place of its first item. If there are few items, each is a group of its own.
fn groups<'a, T, K: Ord>(items: &'a [T], most: usize, key: impl Fn(&'a T) -> K) -> Vec<Vec<&'a T>> {
    if items.len() <= most {
        return items.iter().map(|item| vec![item]).collect();
    }
    let mut groups: Vec<Vec<&T>> = Vec::new();
    let mut of_key = BTreeMap::new();
    for item in items {
        let group = *of_key.entry(key(item)).or_insert(groups.len());
        if group == groups.len() {
            groups.push(Vec::new());
        }
        groups[group].push(item);
    }
    groups
}

/// Returns a name without its digits: hosts of a cluster have the same.
fn stem(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn hosts(out: &mut String, platform: &Platform, most: usize) {
    let key = |host: &Host| (host.speed_flops.to_bits(), host.cores, roles(host).to_owned(), stem(&host.name));
    for run in groups(platform.hosts(), most, key) {
        let first = run[0];
        let (speed, cores) = (scaled(first.speed_flops, "flop/s"), counted(first.cores as usize, "core"));
        let name = from_to(run.iter().map(|host| host.name.as_str()));
        let role = if roles(first).is_empty() { String::new() } else { format!("  {}", roles(first)) };
        let each = if run.len() > 1 { format!("  each of {}", counted(run.len(), "host")) } else { String::new() };
        let _ = writeln!(out, "host {name:<24} {speed:>14}  {cores}{role}{each}");
    }
}

fn links(out: &mut String, platform: &Platform, ids: &[LinkId], most: usize) {
    let figures = |id: &LinkId| {
        let link = &platform.links()[id.0 as usize];
        let sharing = match link.sharing {
            _ if platform.cable_name(*id) != link.name => "split-duplex",
            Sharing::Shared => "shared",
            Sharing::Fatpipe => "fatpipe",
        };
        (link.bandwidth, link.latency_s, sharing)
    };
    // The direction is left out if both directions are alike.
    let name = |id: &LinkId| {
        let (cable, link) = (platform.cable_name(*id), &platform.links()[id.0 as usize]);
        let other = |end: &str| platform.link(&format!("{cable}_{end}"));
        let is_both = cable != link.name
            && ["UP", "DOWN"].iter().filter_map(|end| other(end)).all(|end| figures(&end) == figures(id));
        if is_both { cable } else { link.name.as_str() }
    };
    let key = |id: &LinkId| {
        let (bandwidth, latency_s, sharing) = figures(id);
        (bandwidth.to_bits(), latency_s.to_bits(), sharing, stem(name(id)))
    };
    for run in groups(ids, most, key) {
        let (bandwidth, latency, sharing) = figures(run[0]);
        let (bandwidth, latency) = (scaled(bandwidth, "B/s"), scaled(latency, "s"));
        let name = from_to(run.iter().map(|id| name(id)));
        let each = if run.len() > 1 { format!("  each of {}", counted(run.len(), "link")) } else { String::new() };
        let _ = writeln!(out, "link {name:<24} {bandwidth:>14}  {latency:>10}  {sharing}{each}");
    }
}

fn zones(out: &mut String, platform: &Platform, outline: &Outline, depth: usize) {
    if outline.name != "_world_" {
        let names: Vec<&str> = outline.members.iter().map(|member| name_of(platform, member)).collect();
        let named = match names.len() <= NAMED_MAX {
            true => names.join(", "),
            false => format!("{} ({})", from_to(names.iter().copied()), counted(names.len(), "member")),
        };
        let _ = writeln!(out, "zone {}{:<24} {}: {named}", "  ".repeat(depth), outline.name, outline.routing());
    }
    let inner = depth + usize::from(outline.name != "_world_");
    for member in &outline.members {
        if let Member::Zone(zone) = member {
            zones(out, platform, zone, inner);
        }
    }
}

fn firewalls(out: &mut String, platform: &Platform) {
    let name = |host: &HostId| platform.hosts()[host.0 as usize].name.as_str();
    for (relay, hosts) in platform.firewalls() {
        let names: Vec<&str> = hosts.iter().map(name).collect();
        let named = match names.len() <= NAMED_MAX {
            true => names.join(", "),
            false => format!("{} ({})", from_to(names.iter().copied()), counted(names.len(), "host")),
        };
        let _ = writeln!(out, "firewall {named}  reached through relay {}", name(&relay));
    }
}

fn name_of<'a>(platform: &'a Platform, member: &'a Member) -> &'a str {
    match member {
        Member::Host(id) => &platform.hosts()[id.0 as usize].name,
        Member::Router(name) => name,
        Member::Zone(zone) => &zone.name,
    }
}

/// Lists routes between all pairs of hosts, if these are few; otherwise those of the zones in the file.
fn routes(out: &mut String, platform: &Platform, outline: &Outline, most: usize) {
    if let Some(rows) = route_rows(platform) {
        for [ends, figures, links] in rows {
            let _ = writeln!(out, "route {ends:<30} {figures:<24} over {links}");
        }
        return;
    }
    let mut lines = Vec::new();
    given(&mut lines, platform, outline, most);
    let left = lines.len().saturating_sub(most);
    for line in lines.iter().take(most) {
        let _ = writeln!(out, "route {line}");
    }
    if left > 0 {
        let _ = writeln!(out, "and {} (--all lists them)", counted(left, "more route"));
    }
}

fn given(lines: &mut Vec<String>, platform: &Platform, outline: &Outline, most: usize) {
    let over = |links: &[LinkId]| -> String {
        let names: Vec<&str> = cables(platform, links).iter().map(|(name, _)| *name).collect();
        if names.is_empty() { "no link".to_owned() } else { names.join(", ") }
    };
    let name = |member: usize| name_of(platform, &outline.members[member]);
    match &outline.shape {
        Shape::Routes { routes: ways, .. } => {
            for OutlineRoute { from, to, links, is_bidirectional: both_ways } in ways {
                let arrow = if *both_ways { "–" } else { "→" };
                lines.push(format!("{} {arrow} {} over {}", name(*from), name(*to), over(links)));
            }
        }
        Shape::Star(arms) | Shape::Vivaldi { arms, .. } if arms.len() <= NAMED_MAX || most == usize::MAX => {
            for Arm { member, up, down } in arms {
                let back: Vec<LinkId> = down.iter().rev().copied().collect();
                match over(up) == over(&back) {
                    true => lines.push(format!("{} – hub of {} over {}", name(*member), outline.name, over(up))),
                    false => {
                        lines.push(format!("{} → hub of {} over {}", name(*member), outline.name, over(up)));
                        lines.push(format!("hub of {} → {} over {}", outline.name, name(*member), over(down)));
                    }
                }
            }
        }
        Shape::Star(arms) | Shape::Vivaldi { arms, .. } => {
            let (first, last) = (&arms[0], &arms[arms.len() - 1]);
            let ends = from_to([name(first.member), name(last.member)].into_iter());
            let (each, ways) = (counted(arms.len(), "member"), [over(&first.up), over(&last.up)]);
            let ways = from_to(ways.iter().map(String::as_str));
            lines.push(format!("{ends} – hub of {}, each of {each} over its own: {ways}", outline.name));
        }
        Shape::FatTree { .. } => {
            lines.push(format!("any two hosts of {}: up to a common switch, and down", outline.name))
        }
        Shape::Torus { .. } => lines.push(format!("any two hosts of {}: one dimension after the other", outline.name)),
        Shape::Dragonfly { .. } => {
            lines.push(format!("any two hosts of {}: over the link between their groups", outline.name))
        }
        Shape::Disjoint => {}
    }
    for bypass in &outline.bypasses {
        lines.push(format!("{} → {} over {} (bypass)", bypass.from, bypass.to, over(&bypass.links)));
    }
    for member in &outline.members {
        if let Member::Zone(zone) = member {
            given(lines, platform, zone, most);
        }
    }
}

/// Returns ends, figures, and links of each route, with one row for both directions if they cross the same links.
/// Returns `None` if there are too many.
fn route_rows(platform: &Platform) -> Option<Vec<[String; 3]>> {
    let hosts = platform.hosts().len();
    if !(2..=ROUTED_HOSTS_MAX).contains(&hosts) {
        return None;
    }
    let way = |a: usize, b: usize| {
        let route = platform.route(HostId(a as u32), HostId(b as u32)).ok()?;
        let names: Vec<&str> = route.links.iter().map(|link| platform.cable_name(*link)).collect();
        Some((route, names))
    };
    let mut rows = Vec::new();
    for a in 0..hosts {
        for b in 0..hosts {
            let Some((route, names)) = way(a, b).filter(|_| a != b) else { continue };
            let is_same = way(b, a).is_some_and(|(_, back)| back.iter().rev().eq(names.iter()));
            if is_same && b < a {
                continue;
            }
            let slowest =
                route.links.iter().map(|link| platform.links()[link.0 as usize].bandwidth).fold(f64::MAX, f64::min);
            let (from, to) = (&platform.hosts()[a].name, &platform.hosts()[b].name);
            rows.push([
                format!(
                    "{} {} {}",
                    short(from, NAME_CHARS_MAX),
                    if is_same { "–" } else { "→" },
                    short(to, NAME_CHARS_MAX)
                ),
                format!("{} · {}", scaled(slowest, "B/s"), scaled(route.latency_s, "s")),
                names.join(", "),
            ]);
        }
    }
    (!rows.is_empty()).then_some(rows)
}

/// Returns links as a person counts them. Both directions of a split-duplex link are one (the up link) if they are
/// alike. The loopback of all hosts is not counted.
pub fn platform_cables(platform: &Platform) -> Vec<LinkId> {
    let ids = (1..platform.links().len()).map(|id| LinkId(id as u32));
    ids.filter(|id| {
        let link = &platform.links()[id.0 as usize];
        let cable = platform.cable_name(*id);
        let up = || platform.link(&format!("{cable}_UP")).map(|up| &platform.links()[up.0 as usize]);
        let is_alike = |up: &Link| (up.bandwidth, up.latency_s) == (link.bandwidth, link.latency_s);
        cable == link.name || link.name.ends_with("_UP") || !up().is_some_and(is_alike)
    })
    .collect()
}
