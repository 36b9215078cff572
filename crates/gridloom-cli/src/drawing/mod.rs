//! A platform as a drawing, for `gridloom platform show --svg`.
//!
//! Zones are nested frames. Members of a zone are boxes. Links are boxes with their figures, on the lines that they
//! form. Stars are drawn around their hub, explicit routes as a graph ([`graph`]), and fat trees, tori and dragonflies
//! in their shapes ([`shapes`]). Many members that are alike are one box with their count ([`scale`]); a small
//! platform has a table of its routes below.
//!
//! **Invariant:** the same platform gives the same bytes.

mod arrange;
mod block;
mod boxes;
pub mod curves;
mod graph;
mod scale;
mod shapes;
mod star;
pub mod words;
mod zone;

use gridloom_platform::{Host, HostId, Link, LinkId, Platform};

use block::{Block, SMALL, TITLE, width_of};
use scale::Scale;
use words::{counted, scaled};

/// Maximum number of hosts for which routes are listed below the platform, pair by pair.
const ROUTED_HOSTS_MAX: usize = 8;

/// Returns the text of an SVG file.
pub fn draw(platform: &Platform, title: &str) -> String {
    const MARGIN: f64 = 20.0;
    let outline = platform.outline();
    let scale = Scale::of(platform);
    let picture = match outline.name == "_world_" {
        true => zone::inside(platform, &outline, scale, 1, None),
        false => zone::draw(platform, &outline, scale, 0, None),
    };
    let (hosts, links) = (counted(platform.hosts().len(), "host"), counted(cables(platform).len(), "link"));
    let mut parts = vec![picture, legend(platform)];
    parts.extend(routes(platform));
    let head = width_of(title, 17.0) * 1.1 + 20.0 + width_of(&format!("{hosts}, {links}"), SMALL);
    let width = parts.iter().map(|part| part.width).fold(head, f64::max) + 2.0 * MARGIN;
    let height = parts.iter().map(|part| part.height + MARGIN).sum::<f64>() + 60.0;
    let mut page = Block::new(width, height);
    page.rectangle((0.0, 0.0), (width, height), "page");
    page.text((MARGIN, 34.0), "head", title);
    page.text((MARGIN + width_of(title, 17.0) * 1.1 + 12.0, 34.0), "small", &format!("{hosts}, {links}"));
    let mut y = 54.0;
    for part in &parts {
        page.put(part, MARGIN, y);
        y += part.height + MARGIN;
    }
    page.document(boxes::STYLE, title)
}

/// Returns links as a person counts them. Both directions of a split-duplex link are one (the up link) if they are
/// alike. The loopback of all hosts is not counted.
pub fn cables(platform: &Platform) -> Vec<LinkId> {
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

/// Returns a legend of the outlines and colours that occur.
fn legend(platform: &Platform) -> Block {
    let mut parts: Vec<Block> = Vec::new();
    for role in ["client", "agent", "server"] {
        let has = |host: &Host| words::roles(host).split(',').next().is_some_and(|first| first.trim() == role);
        if platform.hosts().iter().any(has) {
            parts.push(boxes::labelled(role, &[boxes::small(role)], false));
        }
    }
    let kinds = [
        ("pill", "shared link"),
        ("pillduplex", "link with two directions (split-duplex)"),
        ("pillfatpipe", "link that flows do not share (fatpipe)"),
    ];
    for (class, text) in kinds {
        let mut links = (1..platform.links().len()).map(|id| LinkId(id as u32));
        if links.any(|id| boxes::pill_class(platform, id) == class) {
            parts.push(boxes::labelled(class, &[boxes::small(text)], false));
        }
    }
    arrange::shelved(&parts, f64::MAX)
}

/// Returns the routes between all hosts of a small platform.
fn routes(platform: &Platform) -> Option<Block> {
    const LINE: f64 = 16.0;
    let rows = route_rows(platform)?;
    let mut widths = [0.0f64; 3];
    for row in &rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = width.max(width_of(text, SMALL) + 18.0);
        }
    }
    let mut block =
        Block::new(widths.iter().sum::<f64>().max(width_of("Routes", TITLE)), (rows.len() + 1) as f64 * LINE + 6.0);
    block.text((0.0, 14.0), "title", "Routes");
    for (at, row) in rows.iter().enumerate() {
        let mut x = 0.0;
        for (text, width) in row.iter().zip(widths) {
            block.text((x, 14.0 + (at + 1) as f64 * LINE), "small", text);
            x += width;
        }
    }
    Some(block)
}

/// Returns ends, figures, and links of each route, with one row for both directions if they cross the same links.
/// Returns `None` if there are too many.
pub fn route_rows(platform: &Platform) -> Option<Vec<[String; 3]>> {
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
                format!("{} {} {}", block::short(from), if is_same { "–" } else { "→" }, block::short(to)),
                format!("{} · {}", scaled(slowest, "B/s"), scaled(route.latency_s, "s")),
                names.join(", "),
            ]);
        }
    }
    (!rows.is_empty()).then_some(rows)
}
