//! Members to the left and right of a hub, each with its links.

use gridloom_platform::outline::{Arm, Member, Outline};
use gridloom_platform::{HostId, LinkId, Platform};

use std::collections::BTreeMap;

use super::arrange::{Row, around, stacked};
use super::block::{Block, Side};
use super::boxes;
use super::scale::Scale;
use super::words::{alike, cables};

/// Draws a zone with its hub, on the given side if there is one; `zones` are the inner zones, by their numbers among the members.
pub fn draw(
    platform: &Platform,
    outline: &Outline,
    arms: &[Arm],
    zones: &BTreeMap<usize, Block>,
    scale: Scale,
    hub: Option<Side>,
) -> Block {
    let common = common_links(arms);
    let rows = rows(platform, outline, arms, &common, zones, scale);
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
    around(rows, &inside, hub)
}

/// Returns the links that all routes to and from the hub cross: the backbone.
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
    zones: &BTreeMap<usize, Block>,
    scale: Scale,
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
            Member::Zone(_) => rows.push(Row {
                member: zones[&at].clone(),
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
    let member_of: BTreeMap<HostId, usize> = hosts.iter().map(|(at, id)| (*id, *at)).collect();
    for group in alike(platform, &ids, scale.hosts_max) {
        let links: Vec<LinkId> = group
            .iter()
            .filter_map(|id| of_member(*member_of.get(id)?))
            .flat_map(|arm| own(arm).0.into_iter().chain(own(arm).1))
            .collect();
        // `cables` searches its result linearly: with thousands of links, comparing neighbours is enough.
        let mut names: Vec<(&str, LinkId)> = links.iter().map(|link| (platform.cable_name(*link), *link)).collect();
        names.dedup_by_key(|(name, _)| *name);
        rows.push(Row {
            member: boxes::hosts(platform, &group),
            links: boxes::links(platform, &names).into_iter().collect(),
        });
    }
    rows
}

/// Returns the links of one member. If its incoming and outgoing links differ, both are drawn with an arrow.
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
