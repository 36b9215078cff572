//! The boxes of a drawing: hosts, groups of hosts, routers, links, and frames around zones.

use gridloom_platform::{HostId, Link, LinkId, Platform, Sharing};

use super::block::{Block, SMALL, Side, TEXT, TITLE, short, width_of};
use super::words::{capacity, counted, from_to, power, roles};

const LINE: f64 = 15.0;
const PADDING: f64 = 8.0;
/// The visible edge of the lower sheets of a stack, in pixels.
const SHEET: f64 = 4.0;

/// Style of all classes. Colours distinguish roles and kinds of links; outlines differ as well, so that they can also
/// be distinguished in print.
pub const STYLE: &str = "
text{font-family:Helvetica,Arial,'Liberation Sans',sans-serif;font-size:12px;fill:#1d2733}
.mid{text-anchor:middle}.end{text-anchor:end}.name{font-weight:bold}.small{font-size:10.5px;fill:#445060}.title{font-size:13px;font-weight:bold}
.head{font-size:17px;font-weight:bold}
.host{fill:#fff;stroke:#5b6b7d}.client{fill:#dcebfb;stroke:#2f6fb0}.agent{fill:#eee2fa;stroke:#7b4bb3}
.server{fill:#def3e0;stroke:#3b8a47}.router{fill:#e9edf1;stroke:#5b6b7d}.hub{fill:#e9edf1;stroke:#8794a3}
.pill{fill:#fff;stroke:#a66a12}.pillduplex{fill:#fff6e5;stroke:#a66a12;stroke-width:2.4}
.pillfatpipe{fill:#fff;stroke:#a66a12;stroke-dasharray:5 3}
.zone{fill:#f5f7f9;stroke:#b6c0cb}.inner{fill:#fff;stroke:#b6c0cb}
.wire{stroke:#8794a3;stroke-width:1.4;fill:none}.thin{stroke:#a9b4c0;stroke-width:.8;fill:none}
.wrap{stroke:#8794a3;stroke-width:1.2;fill:none;stroke-dasharray:3 3}
.page{fill:#fff}";

/// One line of text in a box.
pub struct Label<'a> {
    pub class: &'a str,
    pub text: String,
}

pub fn name(text: impl Into<String>) -> Label<'static> {
    Label { class: "name", text: text.into() }
}

pub fn small(text: impl Into<String>) -> Label<'static> {
    Label { class: "small", text: text.into() }
}

/// Returns a box with lines of text, as wide as they need. Empty lines are left out.
pub fn labelled(class: &str, labels: &[Label<'_>], is_stack: bool) -> Block {
    let labels: Vec<&Label<'_>> = labels.iter().filter(|label| !label.text.is_empty()).collect();
    let size_of = |label: &Label<'_>| if label.class == "small" { SMALL } else { TEXT * 1.07 };
    let widest = labels.iter().map(|label| width_of(&label.text, size_of(label))).fold(24.0, f64::max);
    let (width, height) = (widest + 2.0 * PADDING, labels.len() as f64 * LINE + PADDING + 2.0);
    let more = if is_stack { 2.0 * SHEET } else { 0.0 };
    let mut block = Block::new(width + more, height + more);
    if is_stack {
        block.rectangle((2.0 * SHEET, 2.0 * SHEET), (width, height), class);
        block.rectangle((SHEET, SHEET), (width, height), class);
    }
    block.rectangle((0.0, 0.0), (width, height), class);
    for (at, label) in labels.iter().enumerate() {
        let y = PADDING / 2.0 + LINE * (at as f64 + 0.8);
        block.text((width / 2.0, y), &format!("mid {}", label.class), &label.text);
    }
    block
}

fn class_of(roles: &str) -> &'static str {
    let first = roles.split(',').next().unwrap_or_default().trim();
    ["client", "agent", "server"].into_iter().find(|known| *known == first).unwrap_or("host")
}

pub fn host(platform: &Platform, id: HostId) -> Block {
    let host = &platform.hosts()[id.0 as usize];
    let words = roles(host).replace(',', ", ").replace("  ", " ");
    let mut block = labelled(
        class_of(roles(host)),
        &[name(short(&host.name)), small(power(std::iter::once(host))), small(short(&words))],
        false,
    );
    let properties: Vec<String> = host.properties.iter().map(|(key, value)| format!("\n{key}: {value}")).collect();
    block.tip(&format!("{}{}", host.name, properties.concat()));
    block
}

/// Returns the box of hosts that are drawn as one.
pub fn hosts(platform: &Platform, group: &[HostId]) -> Block {
    if let [one] = group {
        return host(platform, *one);
    }
    let all = group.iter().map(|id| &platform.hosts()[id.0 as usize]);
    let words = all.clone().next().map_or("", roles);
    let names = from_to(all.clone().map(|host| host.name.as_str()));
    let labels = [
        name(counted(group.len(), "host")),
        small(short_range(&names)),
        small(format!("{} each", power(all.clone()))),
        small(short(words)),
    ];
    let mut block = labelled(class_of(words), &labels, true);
    block.tip(&names);
    block
}

pub fn short_range(names: &str) -> String {
    names.split(" … ").map(short).collect::<Vec<_>>().join(" … ")
}

pub fn router(names: &str) -> Block {
    labelled("router", &[Label { class: "", text: short(names) }, small("router")], false)
}

/// Returns the outline class of a link.
pub fn pill_class(platform: &Platform, link: LinkId) -> &'static str {
    let Link { name, sharing, .. } = &platform.links()[link.0 as usize];
    match sharing {
        _ if platform.cable_name(link) != name => "pillduplex",
        Sharing::Shared => "pill",
        Sharing::Fatpipe => "pillfatpipe",
    }
}

/// Returns the box of a link, labelled with its name in the platform file.
pub fn link(platform: &Platform, label: &str, link: LinkId) -> Block {
    let detail = capacity(std::iter::once(&platform.links()[link.0 as usize]));
    let mut block = labelled(pill_class(platform, link), &[name(short(label)), small(detail)], false);
    block.tip(label);
    block
}

/// Returns the box of links that are drawn as one.
pub fn links(platform: &Platform, cables: &[(&str, LinkId)]) -> Option<Block> {
    match cables {
        [] => None,
        [(label, only)] => Some(link(platform, label, *only)),
        [(_, first), ..] => {
            let names = from_to(cables.iter().map(|(name, _)| *name));
            let all = cables.iter().map(|(_, link)| &platform.links()[link.0 as usize]);
            let labels = [
                name(counted(cables.len(), "link")),
                small(short_range(&names)),
                small(format!("each {}", capacity(all))),
            ];
            let mut block = labelled(pill_class(platform, *first), &labels, true);
            block.tip(&names);
            Some(block)
        }
    }
}

/// Returns a frame with a title around the content of a zone, with notes below it.
pub fn frame(title: &str, detail: &str, inside: &Block, notes: &[String], depth: usize) -> Block {
    const MARGIN: f64 = 14.0;
    let head = width_of(title, TITLE) * 1.1 + width_of(detail, SMALL) + 14.0;
    let widest = notes.iter().map(|note| width_of(note, SMALL)).fold(head.max(inside.width), f64::max);
    let width = widest + 2.0 * MARGIN;
    let below = notes.len() as f64 * LINE + if notes.is_empty() { 0.0 } else { 6.0 };
    // Lines from outside end at the middle of a side, so the hub has to be there.
    let below_hub = if inside.hub.is_some() { MARGIN } else { 0.0 };
    let mut block = Block::new(width, inside.height + 2.0 * MARGIN + 22.0 + below_hub + below);
    let class = if depth.is_multiple_of(2) { "zone" } else { "inner" };
    block.rectangle((0.0, 0.0), (width, block.height), class);
    block.text((MARGIN, 20.0), "title", title);
    block.text((MARGIN + width_of(title, TITLE) * 1.1 + 10.0, 20.0), "small", detail);
    let x = (width - inside.width) / 2.0;
    if let Some((side, y)) = inside.hub {
        let (edge, hub_x) = if side == Side::Left { (0.0, x) } else { (width, x + inside.width) };
        block.line((edge, block.height / 2.0), (hub_x, MARGIN + 18.0 + y), "wire");
    }
    block.put(inside, x, MARGIN + 18.0);
    for (at, note) in notes.iter().enumerate() {
        block.text((MARGIN, inside.height + MARGIN + 36.0 + below_hub + at as f64 * LINE), "small", note);
    }
    block
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gridloom::chart::{CONTRAST_MIN, contrast};

    use super::*;

    /// Returns the fill colours of the classes, with short colour codes expanded.
    fn fills() -> BTreeMap<&'static str, String> {
        let rules = STYLE.split('}').filter_map(|rule| rule.trim().split_once('{'));
        let fill = |(class, declarations): (&'static str, &'static str)| {
            let fill = declarations.split(';').find_map(|one| one.strip_prefix("fill:#"))?;
            let doubled = || fill.chars().flat_map(|digit| [digit, digit]).collect();
            Some((class, format!("#{}", if fill.len() == 3 { doubled() } else { fill.to_string() })))
        };
        rules.filter_map(fill).collect()
    }

    #[test]
    fn text_can_be_read_in_all_boxes() {
        let mut fills = fills();
        let inks = ["text", ".small"].map(|class| fills.remove(class).unwrap());
        assert!(fills.len() > 10, "{fills:?}");
        for (class, fill) in fills {
            for ink in &inks {
                assert!(contrast(ink, &fill) >= CONTRAST_MIN, "{ink} on {class} {fill}");
            }
        }
    }
}
