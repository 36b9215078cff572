//! A zone: a frame around its members, and how they are joined.

use std::collections::BTreeMap;

use gridloom_platform::outline::{Member, Outline, OutlineLink, Shape};
use gridloom_platform::{HostId, LinkId, Platform};

use super::arrange::{Row, around, packed};
use super::block::{Block, Side};
use super::scale::Scale;
use super::words::{alike, capacity, counted, from_to, power};
use super::{boxes, graph, shapes, star};

/// Maximum number of boxes that the layout of a graph can keep apart.
const VERTICES_MAX: usize = 90;
/// Maximum number of bypasses that are listed below a zone.
const BYPASSES_MAX: usize = 6;

/// Draws a zone. `hub` is the side at which its hub has to be, so that lines from outside can reach it.
pub fn draw(platform: &Platform, outline: &Outline, scale: Scale, depth: usize, hub: Option<Side>) -> Block {
    if scale.is_summary {
        return summary(platform, outline);
    }
    let inside = inside(platform, outline, scale, depth, hub);
    let detail = format!("{} · {}", outline.routing(), counted(outline.host_count(), "host"));
    boxes::frame(&super::block::short(&outline.name), &detail, &inside, &notes(platform, outline), depth)
}

/// Draws the content of a zone, without a frame.
pub fn inside(platform: &Platform, outline: &Outline, scale: Scale, depth: usize, hub: Option<Side>) -> Block {
    match &outline.shape {
        Shape::Star(arms) => star::draw(platform, outline, arms, &zones(platform, outline, scale, depth), scale, hub),
        Shape::Routes { routes: ways, .. } => routes(platform, outline, ways, scale, depth),
        Shape::Vivaldi { arms, places } => {
            shapes::vivaldi(platform, outline, arms, places, &zones(platform, outline, scale, depth), scale)
        }
        Shape::FatTree { level_sizes, cables } => shapes::fat_tree(platform, outline, level_sizes, cables, scale),
        Shape::Torus { sizes, link } => shapes::torus(platform, outline, sizes, *link, scale),
        Shape::Dragonfly { counts, links } => shapes::dragonfly(platform, outline, *counts, *links),
        Shape::Disjoint => {
            let members = members(platform, outline, scale, depth);
            packed(&members.into_iter().map(|(block, _)| block).collect::<Vec<_>>())
        }
    }
}

/// Draws the zones inside a zone, by their numbers among its members.
fn zones(platform: &Platform, outline: &Outline, scale: Scale, depth: usize) -> BTreeMap<usize, Block> {
    let zone = |(at, member): (usize, &Member)| match member {
        Member::Zone(inner) => Some((at, draw(platform, inner, scale.inside(outline), depth + 1, None))),
        Member::Host(_) | Member::Router(_) => None,
    };
    outline.members.iter().enumerate().filter_map(zone).collect()
}

/// Returns the members' blocks, each with the members that it represents; if there are too many hosts, they are grouped.
fn members(platform: &Platform, outline: &Outline, scale: Scale, depth: usize) -> Vec<(Block, Vec<usize>)> {
    let hosts = outline.own_hosts();
    let mut zones = zones(platform, outline, scale, depth);
    let mut blocks = Vec::new();
    let mut number_of: BTreeMap<HostId, usize> = BTreeMap::new();
    for (at, member) in outline.members.iter().enumerate() {
        match member {
            Member::Host(id) if hosts.len() <= scale.hosts_max => blocks.push((boxes::host(platform, *id), vec![at])),
            Member::Host(id) => drop(number_of.insert(*id, at)),
            Member::Router(name) => blocks.push((boxes::router(name), vec![at])),
            Member::Zone(_) => blocks.extend(zones.remove(&at).map(|zone| (zone, vec![at]))),
        }
    }
    if !number_of.is_empty() {
        for group in alike(platform, &hosts, scale.hosts_max) {
            let numbers = group.iter().map(|id| number_of[id]).collect();
            blocks.push((boxes::hosts(platform, &group), numbers));
        }
    }
    blocks
}

/// Draws members and links as a graph: a line for each consecutive pair on a route.
fn routes(platform: &Platform, outline: &Outline, ways: &[OutlineLink], scale: Scale, depth: usize) -> Block {
    let mut members = members(platform, outline, scale, depth);
    let mut cables: BTreeMap<&str, LinkId> = BTreeMap::new();
    for link in ways.iter().flat_map(|way| &way.links) {
        cables.entry(platform.cable_name(*link)).or_insert(*link);
    }
    let is_grouped = members.iter().any(|(_, numbers)| numbers.len() > 1);
    let (blocks, edges) = if is_grouped || members.len() + cables.len() > VERTICES_MAX {
        condensed(platform, members, &cables, ways.len())
    } else {
        let vertex_of_cable: BTreeMap<&str, usize> =
            cables.keys().enumerate().map(|(at, name)| (*name, members.len() + at)).collect();
        let vertex_of_member: BTreeMap<usize, usize> =
            members.iter().enumerate().filter_map(|(at, (_, numbers))| Some((*numbers.first()?, at))).collect();
        let mut edges: Vec<(usize, usize)> = Vec::new();
        for stretch in stretches(platform, outline, ways) {
            let crossed = stretch.cables.iter().map(|name| vertex_of_cable[name]);
            let ends = (vertex_of_member[&stretch.from], vertex_of_member[&stretch.to]);
            let passed: Vec<usize> = std::iter::once(ends.0).chain(crossed).chain([ends.1]).collect();
            for pair in passed.windows(2) {
                let edge = (pair[0].min(pair[1]), pair[0].max(pair[1]));
                if edge.0 != edge.1 && !edges.contains(&edge) {
                    edges.push(edge);
                }
            }
        }
        for (vertex, hub) in facing(members.len() + cables.len(), &edges) {
            if let Some((block, numbers)) = members.get_mut(vertex)
                && let Member::Zone(inner) = &outline.members[numbers[0]]
            {
                *block = draw(platform, inner, scale.inside(outline), depth + 1, Some(hub));
            }
        }
        let links = cables.iter().map(|(name, link)| boxes::link(platform, name, *link));
        (members.into_iter().map(|(block, _)| block).chain(links).collect::<Vec<_>>(), edges)
    };
    joined(&blocks, &edges)
}

/// Returns the vertices at the ends of a row, or of chains around a hub, with the sides at which their lines end.
fn facing(count: usize, edges: &[(usize, usize)]) -> Vec<(usize, Side)> {
    if let Some((_, chains)) = graph::chains_around_hub(count, edges) {
        let left = chains.len().div_ceil(2);
        let side = |at: usize| if at < left { Side::Right } else { Side::Left };
        return chains.iter().enumerate().filter_map(|(at, chain)| Some((*chain.last()?, side(at)))).collect();
    }
    match graph::chain(count, edges).as_deref() {
        Some([first, .., last]) => vec![(*first, Side::Right), (*last, Side::Left)],
        _ => Vec::new(),
    }
}

/// A part of a route, between two members.
struct Stretch<'a> {
    from: usize,
    to: usize,
    cables: Vec<&'a str>,
}

/// Splits the routes at hosts and routers between their ends. A member is between the ends of a route if the routes to
/// and from it together cross the same links.
fn stretches<'a>(platform: &'a Platform, outline: &Outline, ways: &[OutlineLink]) -> Vec<Stretch<'a>> {
    let mut known: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
    for way in ways {
        let cables: Vec<&str> = way.links.iter().map(|link| platform.cable_name(*link)).collect();
        if way.is_bidirectional {
            known.insert((way.to, way.from), cables.iter().rev().copied().collect());
        }
        known.insert((way.from, way.to), cables);
    }
    let is_passed = |at: &usize| matches!(outline.members[*at], Member::Host(_) | Member::Router(_));
    let passed: Vec<usize> = (0..outline.members.len()).filter(is_passed).collect();
    let is_between = |from: usize, to: usize, at: usize| {
        let (Some(there), Some(on)) = (known.get(&(from, at)), known.get(&(at, to))) else { return false };
        !there.is_empty() && !on.is_empty() && [&there[..], on].concat() == known[&(from, to)]
    };
    // A route that is split is drawn by its parts, which are stretches themselves.
    let is_whole = |way: &&OutlineLink| !passed.iter().any(|at| is_between(way.from, way.to, *at));
    let whole = ways.iter().filter(is_whole);
    whole.map(|way| Stretch { from: way.from, to: way.to, cables: known[&(way.from, way.to)].clone() }).collect()
}

/// Draws all links as one box that is joined to everything.
fn condensed(
    platform: &Platform,
    members: Vec<(Block, Vec<usize>)>,
    cables: &BTreeMap<&str, LinkId>,
    ways: usize,
) -> (Vec<Block>, Vec<(usize, usize)>) {
    let mut blocks: Vec<Block> = members.into_iter().map(|(block, _)| block).collect();
    let links = cables.values().map(|link| &platform.links()[link.0 as usize]);
    let mut names: Vec<(&LinkId, &str)> = cables.iter().map(|(name, link)| (link, *name)).collect();
    names.sort_unstable();
    let labels = [
        boxes::name(format!("{} over {}", counted(ways, "route"), counted(cables.len(), "link"))),
        boxes::small(boxes::short_range(&from_to(names.iter().map(|(_, name)| *name)))),
        boxes::small(capacity(links)),
    ];
    let edges = (0..blocks.len()).map(|at| (at, blocks.len())).collect();
    blocks.push(boxes::labelled("pill", &labels, true));
    (blocks, edges)
}

/// Places blocks as a graph, with lines behind them; around a hub, if the graph consists of chains that meet there.
fn joined(blocks: &[Block], edges: &[(usize, usize)]) -> Block {
    if let Some((hub, chains)) = graph::chains_around_hub(blocks.len(), edges) {
        let row = |chain: &Vec<usize>| {
            let (member, links) = chain.split_last()?;
            let links = links.iter().rev().map(|link| blocks[*link].clone()).collect();
            Some(Row { member: blocks[*member].clone(), links })
        };
        return around(chains.iter().filter_map(row).collect(), &blocks[hub..=hub], None);
    }
    let sizes: Vec<(f64, f64)> = blocks.iter().map(|block| (block.width, block.height)).collect();
    let (places, size) = graph::places(&sizes, edges);
    let mut all = Block::new(size.0, size.1);
    let centre = |at: usize| (places[at].0 + sizes[at].0 / 2.0, places[at].1 + sizes[at].1 / 2.0);
    for (a, b) in edges {
        all.line(centre(*a), centre(*b), "wire");
    }
    for (block, (x, y)) in blocks.iter().zip(&places) {
        all.put(block, *x, *y);
    }
    all
}

/// Draws a zone as one box.
fn summary(platform: &Platform, outline: &Outline) -> Block {
    let mut hosts = Vec::new();
    gather(outline, &mut hosts);
    let all = hosts.iter().map(|id| &platform.hosts()[id.0 as usize]);
    let mut links: Vec<LinkId> = match &outline.shape {
        Shape::Star(arms) | Shape::Vivaldi { arms, .. } => arms.iter().flat_map(|arm| arm.up.iter().copied()).collect(),
        Shape::Routes { routes: ways, .. } => ways.iter().flat_map(|way| way.links.iter().copied()).collect(),
        Shape::FatTree { cables, .. } => cables.iter().map(|(_, _, link)| *link).collect(),
        Shape::Torus { link, .. } => link.iter().copied().collect(),
        Shape::Dragonfly { links, .. } => links.iter().flatten().copied().collect(),
        Shape::Disjoint => Vec::new(),
    };
    links.sort_unstable();
    links.dedup();
    let figures = links.iter().map(|link| &platform.links()[link.0 as usize]);
    let labels = [
        boxes::name(super::block::short(&outline.name)),
        boxes::small(format!("{} · {}", outline.routing(), counted(hosts.len(), "host"))),
        boxes::small(if hosts.is_empty() { String::new() } else { format!("{} each", power(all)) }),
        boxes::small(if links.is_empty() { String::new() } else { format!("links {}", capacity(figures)) }),
    ];
    boxes::labelled("zone", &labels, hosts.len() > 1)
}

fn gather(outline: &Outline, hosts: &mut Vec<HostId>) {
    for member in &outline.members {
        match member {
            Member::Host(id) => hosts.push(*id),
            Member::Router(_) => {}
            Member::Zone(inner) => gather(inner, hosts),
        }
    }
}

fn notes(platform: &Platform, outline: &Outline) -> Vec<String> {
    let mut notes: Vec<String> = outline
        .bypasses
        .iter()
        .take(BYPASSES_MAX)
        .map(|bypass| {
            let links: Vec<&str> =
                bypass.links.iter().map(|link| platform.links()[link.0 as usize].name.as_str()).collect();
            format!("bypass from {} to {} over {}", bypass.from, bypass.to, links.join(", "))
        })
        .collect();
    if outline.bypasses.len() > BYPASSES_MAX {
        notes.push(format!("and {} more bypasses", outline.bypasses.len() - BYPASSES_MAX));
    }
    notes
}
