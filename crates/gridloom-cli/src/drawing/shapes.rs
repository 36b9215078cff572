//! Zones of known shape: fat trees, tori, dragonflies, positions in a plane. Only parts of large ones are drawn.

use gridloom_platform::outline::{Arm, Member, Outline};
use gridloom_platform::{HostId, LinkId, Platform};

use std::collections::BTreeMap;

use super::arrange::{column, packed, placed, shelved, stacked};
use super::block::Block;
use super::scale::Scale;
use super::words::{capacity, counted, from_to, power};
use super::{boxes, graph, star};

/// Maximum number of nodes of a fat tree's level that are drawn one by one.
const LEVEL_MAX: usize = 36;
/// Maximum number of hosts of a torus that are drawn one by one.
const TORUS_MAX: usize = 128;
/// Maximum number of groups of a dragonfly that are drawn one by one.
const GROUPS_MAX: usize = 16;
/// Approximate width of a row of labels, in pixels.
const LABELS_WIDTH: f64 = 640.0;

fn link_label(platform: &Platform, what: &str, link: Option<LinkId>) -> Option<Block> {
    let link = link?;
    let figures = capacity(std::iter::once(&platform.links()[link.0 as usize]));
    Some(boxes::labelled("pillduplex", &[boxes::name(what), boxes::small(figures)], false))
}

/// Returns speed and cores, if all hosts are alike.
fn common_power(platform: &Platform, hosts: &[HostId]) -> String {
    match hosts.is_empty() {
        true => String::new(),
        false => format!("each {}", power(hosts.iter().map(|id| &platform.hosts()[id.0 as usize]))),
    }
}

pub fn fat_tree(
    platform: &Platform,
    outline: &Outline,
    level_sizes: &[usize],
    cables: &[(usize, usize, LinkId)],
    scale: Scale,
) -> Block {
    let hosts = outline.own_hosts();
    if level_sizes.iter().any(|size| *size > LEVEL_MAX.min(scale.hosts_max)) {
        return levels(platform, &hosts, level_sizes, cables);
    }
    // Names only: figures that all hosts share are shown once.
    let leaf = |id: &HostId| {
        let name = super::block::short(&platform.hosts()[id.0 as usize].name);
        boxes::labelled("host", &[boxes::small(name)], false)
    };
    let leaves: Vec<Block> = hosts.iter().map(leaf).collect();
    let switch = boxes::labelled("router", &[boxes::small("switch")], false);
    let step = leaves.iter().map(|leaf| leaf.width).fold(switch.width, f64::max) + 10.0;
    let width = level_sizes.iter().copied().max().unwrap_or(1) as f64 * step;
    let rise = 90.0;
    let top = 54.0;
    let height = (level_sizes.len() - 1) as f64 * rise + switch.height;
    let mut block = Block::new(width, top + height);
    let place = |node: usize| {
        let (mut level, mut at) = (0, node);
        while at >= level_sizes[level] {
            at -= level_sizes[level];
            level += 1;
        }
        let share = width / level_sizes[level] as f64;
        (share * (at as f64 + 0.5), top + (level_sizes.len() - 1 - level) as f64 * rise + switch.height / 2.0)
    };
    for (below, above, _) in cables {
        block.line(place(*below), place(*above), "wire");
    }
    for node in 0..level_sizes.iter().sum() {
        let (x, y) = place(node);
        let drawn = leaves.get(node).unwrap_or(&switch);
        block.put(drawn, x - drawn.width / 2.0, y - drawn.height / 2.0);
    }
    if let Some(label) = boxes::links(platform, &all_cables(platform, cables)) {
        block.put(&label, 0.0, 0.0);
        let text = common_power(platform, &hosts);
        block.text((label.width + 16.0, 24.0), "small", &format!("{}, {text}", counted(hosts.len(), "host")));
        block.width = block.width.max(label.width + 16.0 + super::block::width_of(&text, 12.0) + 80.0);
    }
    block
}

fn all_cables<'a>(platform: &'a Platform, cables: &[(usize, usize, LinkId)]) -> Vec<(&'a str, LinkId)> {
    cables.iter().map(|(_, _, link)| (platform.cable_name(*link), *link)).collect()
}

/// Draws a fat tree with one box for each level, and the cables between adjacent levels.
fn levels(platform: &Platform, hosts: &[HostId], level_sizes: &[usize], cables: &[(usize, usize, LinkId)]) -> Block {
    let mut starts = vec![0];
    for size in level_sizes {
        starts.push(starts[starts.len() - 1] + size);
    }
    let mut parts = vec![boxes::hosts(platform, hosts)];
    for level in 1..level_sizes.len() {
        let between: Vec<(usize, usize, LinkId)> =
            cables.iter().filter(|(below, ..)| (starts[level - 1]..starts[level]).contains(below)).copied().collect();
        parts.extend(boxes::links(platform, &all_cables(platform, &between)));
        let label = format!("level {level}: {}", counted(level_sizes[level], "switch").replace("switchs", "switches"));
        parts.push(boxes::labelled("router", &[boxes::name(label)], level_sizes[level] > 1));
    }
    parts.reverse();
    column(&parts)
}

pub fn torus(platform: &Platform, outline: &Outline, sizes: &[usize], link: Option<LinkId>, scale: Scale) -> Block {
    let hosts = outline.own_hosts();
    let shape = sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" × ");
    let label = link_label(platform, "each link", link);
    if hosts.len() > TORUS_MAX.min(2 * scale.hosts_max) {
        let links = counted(hosts.len() * sizes.len(), "link");
        let note = boxes::labelled(
            "router",
            &[boxes::name(format!("torus {shape}")), boxes::small(format!("{links}, ends joined in each dimension"))],
            false,
        );
        return column(
            &[Some(note), label, Some(boxes::hosts(platform, &hosts))].into_iter().flatten().collect::<Vec<_>>(),
        );
    }
    let (wide, high) = (sizes[0], sizes.get(1).copied().unwrap_or(1));
    let slices: Vec<Block> = hosts
        .chunks(wide * high)
        .enumerate()
        .map(|(number, hosts)| {
            let grid = slice(platform, hosts, wide);
            match sizes.len() > 2 {
                true => boxes::frame(&coordinates(number, &sizes[2..]), "", &grid, &[], 1),
                false => grid,
            }
        })
        .collect();
    let mut parts: Vec<Block> = label.into_iter().collect();
    let text = format!("{shape}; {}", common_power(platform, &hosts));
    let mut note = Block::new(super::block::width_of(&text, 11.0), 16.0);
    note.text((note.width / 2.0, 12.0), "mid small", &text);
    parts.push(note);
    parts.push(packed(&slices));
    if sizes.len() > 2 {
        let text = "each host is joined to those of its place in the slices before and after, too";
        let mut note = Block::new(super::block::width_of(text, 11.0), 16.0);
        note.text((note.width / 2.0, 12.0), "mid small", text);
        parts.push(note);
    }
    stacked(&parts, 8.0)
}

/// Describes the position of a slice of a torus in the dimensions that are not drawn.
fn coordinates(number: usize, sizes: &[usize]) -> String {
    let mut rest = number;
    let mut text = Vec::new();
    for (dimension, size) in sizes.iter().enumerate() {
        text.push(format!("dimension {}: {}", dimension + 3, rest % size));
        rest /= size;
    }
    text.join(", ")
}

/// Draws two dimensions of a torus, with stubs where the ends are joined.
fn slice(platform: &Platform, hosts: &[HostId], wide: usize) -> Block {
    let node = |id: &HostId| {
        let name = super::block::short(&platform.hosts()[id.0 as usize].name);
        boxes::labelled("host", &[boxes::small(name)], false)
    };
    let nodes: Vec<Block> = hosts.iter().map(node).collect();
    let high = hosts.len().div_ceil(wide);
    let step = (nodes.iter().map(|node| node.width).fold(0.0, f64::max) + 22.0, 50.0);
    let mut block = Block::new(wide as f64 * step.0 + 16.0, high as f64 * step.1 + 16.0);
    let centre = |column: usize, row: usize| (8.0 + step.0 * (column as f64 + 0.5), 8.0 + step.1 * (row as f64 + 0.5));
    for row in 0..high {
        let ((x0, y), (x1, _)) = (centre(0, row), centre(wide - 1, row));
        block.line((x0, y), (x1, y), "wire");
        if wide > 1 {
            block.line((2.0, y), (x0, y), "wrap");
            block.line((x1, y), (block.width - 2.0, y), "wrap");
        }
    }
    for column in 0..wide {
        let ((x, y0), (_, y1)) = (centre(column, 0), centre(column, high - 1));
        if high > 1 {
            block.line((x, y0), (x, y1), "wire");
            block.line((x, 2.0), (x, y0), "wrap");
            block.line((x, y1), (x, block.height - 2.0), "wrap");
        }
    }
    for (at, node) in nodes.iter().enumerate() {
        let (x, y) = centre(at % wide, at / wide);
        block.put(node, x - node.width / 2.0, y - node.height / 2.0);
    }
    block
}

pub fn dragonfly(
    platform: &Platform,
    outline: &Outline,
    [groups, chassis, blades, each]: [usize; 4],
    links: [Option<LinkId>; 4],
) -> Block {
    let hosts = outline.own_hosts();
    let labels: Vec<Block> =
        ["blue: between groups", "black: between chassis", "green: between blades", "local: host to blade"]
            .into_iter()
            .zip(links.into_iter().rev())
            .filter_map(|(what, link)| link_label(platform, what, link))
            .collect();
    let shape = format!(
        "{} of {} of {}",
        counted(chassis, "chassis").replace("chassiss", "chassis"),
        counted(blades, "blade"),
        counted(each, "host")
    );
    let picture = if groups > GROUPS_MAX {
        let note = [boxes::name(format!("{}, each two joined", counted(groups, "group"))), boxes::small(shape)];
        column(&[boxes::labelled("router", &note, true), boxes::hosts(platform, &hosts)])
    } else {
        let of_group = chassis * blades * each;
        let drawn: Vec<Block> = hosts
            .chunks(of_group.max(1))
            .enumerate()
            .map(|(number, hosts)| {
                let all = hosts.iter().map(|id| platform.hosts()[id.0 as usize].name.as_str());
                let labels = [
                    boxes::name(format!("group {number}")),
                    boxes::small(shape.clone()),
                    boxes::small(boxes::short_range(&from_to(all))),
                    boxes::small(common_power(platform, hosts)),
                ];
                boxes::labelled("host", &labels, false)
            })
            .collect();
        ring(&drawn)
    };
    stacked(&[shelved(&labels, LABELS_WIDTH), picture], 14.0)
}

/// Places blocks on an ellipse, with a line between each pair.
fn ring(blocks: &[Block]) -> Block {
    let sizes: Vec<(f64, f64)> = blocks.iter().map(|block| (block.width, block.height)).collect();
    let edges: Vec<(usize, usize)> = (0..blocks.len()).flat_map(|b| (0..b).map(move |a| (a, b))).collect();
    let around: f64 = sizes.iter().map(|(w, h)| (w + h) / 2.0 + 30.0).sum();
    let radius = (around / std::f64::consts::TAU).max(40.0);
    let mut centres: Vec<(f64, f64)> = (0..blocks.len())
        .map(|at| {
            let angle = at as f64 / blocks.len() as f64 * std::f64::consts::TAU - std::f64::consts::FRAC_PI_2;
            (1.4 * radius * angle.cos(), radius * angle.sin())
        })
        .collect();
    graph::part_overlaps(&mut centres, |at| sizes[at]);
    placed(blocks, &centres, &edges, "thin")
}

/// Draws members at their positions in the plane, moved apart if their boxes would overlap; `zones` as for [`star::draw`].
pub fn vivaldi(
    platform: &Platform,
    outline: &Outline,
    arms: &[Arm],
    places: &[Option<[f64; 3]>],
    zones: &BTreeMap<usize, Block>,
    scale: Scale,
) -> Block {
    if outline.own_hosts().len() > scale.hosts_max {
        return star::draw(platform, outline, arms, zones, scale, None);
    }
    let mut blocks = Vec::new();
    let mut centres = Vec::new();
    for (at, (member, place)) in outline.members.iter().zip(places).enumerate() {
        let member = match member {
            Member::Host(id) => boxes::host(platform, *id),
            Member::Router(name) => boxes::router(name),
            Member::Zone(_) => zones[&at].clone(),
        };
        let [x, y, height] = place.unwrap_or_default();
        let text = format!("{x}, {y}, height {height} ms");
        let mut note = Block::new(super::block::width_of(&text, 10.5), 15.0);
        note.text((note.width / 2.0, 12.0), "mid small", &text);
        blocks.push(stacked(&[member, note], 0.0));
        centres.push((x, y));
    }
    let extent = |of: fn(&(f64, f64)) -> f64| {
        let (least, most) = centres.iter().map(of).fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
        (most - least).max(1.0)
    };
    let area: f64 = blocks.iter().map(|block| (block.width + 20.0) * (block.height + 20.0)).sum();
    let factor = (area * 3.0 / (extent(|c| c.0) * extent(|c| c.1))).sqrt().min(40.0);
    let mut centres: Vec<(f64, f64)> = centres.iter().map(|(x, y)| (x * factor, -y * factor)).collect();
    graph::part_overlaps(&mut centres, |at| (blocks[at].width, blocks[at].height));
    placed(&blocks, &centres, &[], "thin")
}
