//! Members to the left and right of a hub, each with its links.

use gridloom_platform::outline::{Arm, Member, Outline};
use gridloom_platform::{HostId, LinkId, Platform};

use super::block::Block;
use super::words::{alike, cables};
use super::{Scale, boxes, zone};

const GAP: f64 = 12.0;
const REACH: f64 = 18.0;

/// A member, or several drawn as one, and its links towards the hub.
pub struct Row {
    pub member: Block,
    /// From the member to the hub.
    pub links: Vec<Block>,
}

pub fn draw(platform: &Platform, outline: &Outline, arms: &[Arm], scale: Scale, depth: usize) -> Block {
    let common = common_links(arms);
    let rows = rows(platform, outline, arms, &common, scale, depth);
    let routers: Vec<&str> = outline
        .members
        .iter()
        .filter_map(|member| match member {
            Member::Router(name) => Some(name.as_str()),
            Member::Host(_) | Member::Zone(_) => None,
        })
        .collect();
    let mut inside: Vec<Block> = Vec::new();
    if !routers.is_empty() {
        inside.push(boxes::router(&routers.join(", ")));
    }
    inside.extend(cables(platform, &common).into_iter().map(|(name, link)| boxes::link(platform, name, link)));
    around(rows, &inside)
}

/// Links that every way to and from the hub crosses: the backbone.
fn common_links(arms: &[Arm]) -> Vec<LinkId> {
    let [first, others @ ..] = arms else { return Vec::new() };
    let is_common = |link: &&LinkId| others.iter().all(|arm| arm.up.contains(link));
    if others.is_empty() { Vec::new() } else { first.up.iter().filter(is_common).copied().collect() }
}

fn rows(
    platform: &Platform,
    outline: &Outline,
    arms: &[Arm],
    common: &[LinkId],
    scale: Scale,
    depth: usize,
) -> Vec<Row> {
    let of_member = |member: usize| -> Option<&Arm> {
        arms.binary_search_by_key(&member, |arm| arm.member).ok().map(|found| &arms[found])
    };
    let own = |arm: &Arm| -> (Vec<LinkId>, Vec<LinkId>) {
        let without = |links: &[LinkId]| links.iter().filter(|link| !common.contains(link)).copied().collect();
        (without(&arm.up), without(&arm.down))
    };
    let mut hosts: Vec<(usize, HostId)> = Vec::new();
    let mut rows = Vec::new();
    for (at, member) in outline.members.iter().enumerate() {
        match member {
            Member::Router(_) => {}
            Member::Host(id) => hosts.push((at, *id)),
            Member::Zone(inner) => rows.push(Row {
                member: zone::draw(platform, inner, scale.inside(outline), depth + 1),
                links: of_member(at).map_or_else(Vec::new, |arm| single(platform, &own(arm))),
            }),
        }
    }
    if hosts.len() <= scale.hosts_max {
        for (at, id) in hosts {
            let links = of_member(at).map_or_else(Vec::new, |arm| single(platform, &own(arm)));
            rows.push(Row { member: boxes::host(platform, id), links });
        }
        return rows;
    }
    let ids: Vec<HostId> = hosts.iter().map(|(_, id)| *id).collect();
    let member_of: std::collections::BTreeMap<HostId, usize> = hosts.iter().map(|(at, id)| (*id, *at)).collect();
    for group in alike(platform, &ids, scale.hosts_max) {
        let links: Vec<LinkId> = group
            .iter()
            .filter_map(|id| of_member(*member_of.get(id)?))
            .flat_map(|arm| own(arm).0.into_iter().chain(own(arm).1))
            .collect();
        // `cables` searches its result: of thousands of links, neighbours are enough.
        let mut names: Vec<(&str, LinkId)> = links.iter().map(|link| (platform.cable_name(*link), *link)).collect();
        names.dedup_by_key(|(name, _)| *name);
        rows.push(Row {
            member: boxes::hosts(platform, &group),
            links: boxes::links(platform, &names).into_iter().collect(),
        });
    }
    rows
}

/// The links of one member; where it is reached by others than it reaches, both with an arrow.
fn single(platform: &Platform, (up, down): &(Vec<LinkId>, Vec<LinkId>)) -> Vec<Block> {
    let (there, back) = (cables(platform, up), cables(platform, down));
    let is_same = there.iter().map(|(name, _)| name).eq(back.iter().rev().map(|(name, _)| name));
    let arrow = |sign: &str, names: &[(&str, LinkId)]| -> Vec<Block> {
        names.iter().map(|(name, link)| boxes::link(platform, &format!("{sign}{name}"), *link)).collect()
    };
    if is_same {
        return arrow("", &there);
    }
    let both = [arrow("↑ ", &there), arrow("↓ ", &back)].concat();
    vec![stacked(&both, 4.0)]
}

/// One above the other.
pub fn stacked(blocks: &[Block], gap: f64) -> Block {
    let width = blocks.iter().map(|block| block.width).fold(0.0, f64::max);
    let height: f64 = blocks.iter().map(|block| block.height + gap).sum::<f64>() - gap;
    let (mut all, mut y) = (Block::new(width, height.max(0.0)), 0.0);
    for block in blocks {
        all.put(block, (width - block.width) / 2.0, y);
        y += block.height + gap;
    }
    all
}

/// Half of the rows at either side of a hub with those blocks in it.
pub fn around(mut rows: Vec<Row>, inside: &[Block]) -> Block {
    let right = rows.split_off(rows.len().div_ceil(2));
    let core = stacked(inside, 10.0);
    let extent = |rows: &[Row]| {
        let member = rows.iter().map(|row| row.member.width).fold(0.0, f64::max);
        let links = |row: &Row| row.links.iter().map(|link| link.width + REACH).sum::<f64>();
        let widest = rows.iter().map(links).fold(0.0, f64::max);
        let height = rows.iter().map(|row| height_of(row) + GAP).sum::<f64>() - GAP;
        (if rows.is_empty() { 0.0 } else { member + widest + REACH }, height.max(0.0))
    };
    let ((left_width, left_height), (right_width, right_height)) = (extent(&rows), extent(&right));
    let hub_width = core.width + 16.0;
    let height = left_height.max(right_height).max(core.height + 20.0);
    let mut block = Block::new(left_width + hub_width + right_width, height);
    let hub_x = left_width;
    for (side, total, is_left) in [(&rows, left_height, true), (&right, right_height, false)] {
        let mut y = (height - total) / 2.0;
        for row in side {
            let middle = y + height_of(row) / 2.0;
            let (start, end) = if is_left { (0.0, hub_x) } else { (hub_x + hub_width, block.width) };
            // A row's member stands at the outer edge; its links are spread evenly on the way to the hub.
            let (from, to) = if is_left { (row.member.width, end) } else { (start, end - row.member.width) };
            block.line((from, middle), (to, middle), "wire");
            block.put(&row.member, if is_left { 0.0 } else { to }, middle - row.member.height / 2.0);
            let links: Vec<&Block> =
                if is_left { row.links.iter().collect() } else { row.links.iter().rev().collect() };
            let free = (to - from - links.iter().map(|link| link.width).sum::<f64>()) / (links.len() + 1) as f64;
            let mut x = from + free;
            for link in links {
                block.put(link, x, middle - link.height / 2.0);
                x += link.width + free;
            }
            y += height_of(row) + GAP;
        }
    }
    block.rectangle((hub_x, 0.0), (hub_width, height), "hub");
    block.put(&core, hub_x + 8.0, (height - core.height) / 2.0);
    block
}

fn height_of(row: &Row) -> f64 {
    row.links.iter().map(|link| link.height).fold(row.member.height, f64::max)
}
