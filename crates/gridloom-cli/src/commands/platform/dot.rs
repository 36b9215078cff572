//! A platform as a graph in the DOT language of Graphviz, for `gridloom platform show --dot` and `--svg`.
//!
//! Zones are clusters. Hosts, routers and links are nodes, since several routes can cross one link. Edges join
//! neighbours on a route; those of a star meet in its hub. A zone of many hosts is one node with its counts. If a
//! zone contains other zones and many hosts, these hosts are one node for each kind. Graphviz arranges and draws the
//! graph.
//!
//! **Invariant:** the same platform results in the same text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use gridloom_platform::outline::{Arm, Member, Outline, OutlineRoute, Shape};
use gridloom_platform::{Host, HostId, LinkId, Platform, Sharing};

use super::list::platform_cables;
use crate::quantities::{alike, cables, capacity, counted, from_to, power, roles};

/// Maximum number of inner zones that are drawn with their content.
const ZONES_MAX: usize = 24;
/// Maximum number of members and links of a zone whose routes are drawn link by link.
const ROUTE_NODES_MAX: usize = 90;
/// Maximum number of bypasses that are listed below a zone.
const BYPASSES_MAX: usize = 6;

/// Returns the text of a DOT file.
pub fn text(platform: &Platform, title: &str) -> String {
    let outline = platform.outline();
    let hosts = platform.hosts().len();
    let hosts_max = match hosts {
        ..=48 => 48,
        49..=200 => 16,
        _ => 8,
    };
    let links = counted(platform_cables(platform).len(), "link");
    let label = quoted(&[title.to_owned(), format!("{}, {links}", counted(hosts, "host"))]);
    let mut graph = Graph { platform, text: String::new(), hosts_max, nodes: 0, clusters: 0, edges: BTreeSet::new() };
    let _ = write!(
        graph.text,
        "graph {{\n  graph [label={label}, labelloc=t, rankdir=LR, compound=true, nodesep=0.15, ranksep=0.3, \
         fontname=Helvetica, fontsize=12]\n  \
         node [fontname=Helvetica, fontsize=10, shape=box, style=filled, fillcolor=white, height=0.3, margin=\"0.1,0.04\"]\n  \
         edge [color=\"#66727f\"]\n"
    );
    match outline.name == "_world_" {
        true => drop(graph.content(&outline)),
        false => drop(graph.zone(&outline, false)),
    }
    graph.text.push_str("}\n");
    graph.text
}

/// Draws a DOT text with the installed Graphviz, as SVG. `file` is the platform file, for the error.
pub fn svg(dot: &str, file: &Path) -> Result<String> {
    let mut command = Command::new("dot");
    command.arg("-Tsvg").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "--svg needs Graphviz, whose program 'dot' is not in PATH; install it (apt install graphviz, dnf install \
             graphviz, brew install graphviz or conda install graphviz), or print the graph here and draw it where \
             Graphviz is: gridloom platform show {} --dot | dot -Tsvg > platform.svg",
            file.display()
        ),
        Err(error) => return Err(error).context("cannot run Graphviz's dot"),
    };
    // Graphviz reads its whole input before it writes. If it ends early, its error is reported below.
    match child.stdin.take().expect("it is piped").write_all(dot.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error).context("cannot write to dot"),
        _ => {}
    }
    let output = child.wait_with_output().context("cannot read the output of dot")?;
    if !output.status.success() {
        bail!("dot -Tsvg failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).context("the output of dot")
}

/// The end of an edge: a node, and the cluster at whose border the edge ends.
#[derive(Clone, Copy)]
struct End {
    node: usize,
    cluster: Option<usize>,
}

struct Graph<'a> {
    platform: &'a Platform,
    text: String,
    /// Maximum number of hosts of a zone that are drawn one by one.
    hosts_max: usize,
    /// Numbers of nodes and clusters so far; their names in the text contain these numbers.
    nodes: usize,
    clusters: usize,
    /// Edges so far: nodes, and whether the edge has an arrow.
    edges: BTreeSet<(usize, usize, bool)>,
}

impl Graph<'_> {
    fn node(&mut self, lines: &[String], attributes: &str) -> End {
        let node = self.nodes;
        self.nodes += 1;
        let _ = writeln!(self.text, "  n{node} [label={}{attributes}]", quoted(lines));
        End { node, cluster: None }
    }

    fn edge(&mut self, from: End, to: End, has_arrow: bool) {
        let (low, high) = (from.node.min(to.node), from.node.max(to.node));
        let key = if has_arrow { (from.node, to.node, true) } else { (low, high, false) };
        if from.node == to.node || self.edges.contains(&(low, high, false)) || !self.edges.insert(key) {
            return;
        }
        let clipped = |end: &str, cluster: Option<usize>| cluster.map(|cluster| format!("{end}=cluster_{cluster}"));
        let arrow = has_arrow.then(|| "dir=forward".to_owned());
        let all = [clipped("ltail", from.cluster), clipped("lhead", to.cluster), arrow];
        let attributes: Vec<String> = all.into_iter().flatten().collect();
        let attributes = if attributes.is_empty() { String::new() } else { format!(" [{}]", attributes.join(", ")) };
        let _ = writeln!(self.text, "  n{} -- n{}{attributes}", from.node, to.node);
    }

    /// Writes a zone as a cluster, or as one node. Returns the end of edges from outside.
    fn zone(&mut self, outline: &Outline, is_summary: bool) -> End {
        let is_innermost = !outline.members.iter().any(|member| matches!(member, Member::Zone(_)));
        let is_large = is_innermost && outline.own_hosts().len() > self.hosts_max;
        if is_summary || is_large || matches!(outline.shape, Shape::Dragonfly { .. }) {
            return self.summary(outline);
        }
        let cluster = self.clusters;
        self.clusters += 1;
        let mut lines = vec![outline.name.clone(), heading(outline)];
        if let Shape::FatTree { .. } | Shape::Torus { .. } = outline.shape {
            lines.extend(links(self.platform, outline));
        }
        lines.extend(bypasses(self.platform, outline));
        let _ = writeln!(
            self.text,
            "  subgraph cluster_{cluster} {{\n  label={}; style=filled; fillcolor=\"#f5f7f9\"; color=\"#b6c0cb\"",
            quoted(&lines)
        );
        let hub = self.content(outline);
        // Edges need a node, even if they end at the border.
        let end = hub.unwrap_or_else(|| self.node(&[], ", shape=point, style=invis"));
        self.text.push_str("  }\n");
        End { cluster: hub.is_none().then_some(cluster), ..end }
    }

    /// Writes the members of a zone and their routes. Returns its hub, if it has one.
    fn content(&mut self, outline: &Outline) -> Option<End> {
        let routers: Vec<&str> = outline.members.iter().filter_map(router).collect();
        let is_star = matches!(&outline.shape, Shape::Star(arms) | Shape::Vivaldi { arms, .. } if !arms.is_empty());
        let hub = is_star.then(|| {
            let name = if routers.is_empty() { "hub".to_owned() } else { routers.join(", ") };
            self.node(&[name], ROUTER)
        });
        let ends = self.members(outline, hub);
        let own = outline.own_hosts();
        match &outline.shape {
            Shape::Star(arms) | Shape::Vivaldi { arms, .. } => match hub {
                Some(hub) if own.len() > self.hosts_max => self.bundle(arms.len(), outline, &ends, Some(hub)),
                Some(hub) => self.arms(arms, &ends, hub),
                None => {}
            },
            Shape::Routes { routes: ways, .. } => {
                let links = links_of(outline);
                let is_large = outline.members.len() + cables(self.platform, &links).len() > ROUTE_NODES_MAX;
                match own.len() > self.hosts_max || is_large {
                    true => self.bundle(ways.len(), outline, &ends, None),
                    false => self.routes(outline, ways, &ends),
                }
            }
            Shape::FatTree { level_sizes, cables } => {
                let mut nodes = ends;
                let switches: usize = level_sizes.iter().skip(1).sum();
                nodes.extend((0..switches).map(|_| self.node(&["switch".into()], ROUTER)));
                for (below, above, _) in cables {
                    self.edge(nodes[*below], nodes[*above], false);
                }
            }
            Shape::Torus { sizes, .. } => {
                let mut stride = 1;
                for size in sizes {
                    for at in 0..ends.len() {
                        let place = at / stride % size;
                        self.edge(ends[at], ends[at + ((place + 1) % size) * stride - place * stride], false);
                    }
                    stride *= size;
                }
            }
            Shape::Dragonfly { .. } | Shape::Disjoint => {}
        }
        hub
    }

    /// Writes the members of a zone and returns their ends, by their numbers. Hosts that are too many share a node with
    /// those that are alike; routers of a star are its hub. The router of a fat tree or torus, which no link reaches, is
    /// left out.
    fn members(&mut self, outline: &Outline, hub: Option<End>) -> Vec<End> {
        let own = outline.own_hosts();
        let zones = outline.members.iter().filter(|member| matches!(member, Member::Zone(_))).count();
        let mut shared: BTreeMap<HostId, End> = BTreeMap::new();
        if own.len() > self.hosts_max {
            for group in alike(self.platform, &own, self.hosts_max) {
                let mut lines = hosts(self.platform, &group);
                lines.insert(0, counted(group.len(), "host"));
                let end = self.node(&lines, &group_attributes(&self.platform.hosts()[group[0].0 as usize]));
                shared.extend(group.into_iter().map(|id| (id, end)));
            }
        }
        let place = |at: usize| match &outline.shape {
            Shape::Vivaldi { places, .. } => places[at],
            _ => None,
        };
        let is_regular = matches!(outline.shape, Shape::FatTree { .. } | Shape::Torus { .. });
        let mut ends = Vec::new();
        for (at, member) in outline.members.iter().enumerate() {
            ends.push(match member {
                Member::Host(id) => match shared.get(id) {
                    Some(end) => *end,
                    None => self.host(*id, place(at)),
                },
                Member::Router(_) if is_regular => continue,
                Member::Router(name) => hub.unwrap_or_else(|| self.node(std::slice::from_ref(name), ROUTER)),
                Member::Zone(inner) => self.zone(inner, zones > ZONES_MAX),
            });
        }
        ends
    }

    fn host(&mut self, id: HostId, place: Option<[f64; 3]>) -> End {
        let host = &self.platform.hosts()[id.0 as usize];
        let mut lines = vec![host.name.clone(), power(std::iter::once(host))];
        lines.extend((!roles(host).is_empty()).then(|| roles(host).to_owned()));
        lines.extend(place.map(|[x, y, height]| format!("{x}, {y}, height {height} ms")));
        let properties = host.properties.iter().map(|(key, value)| format!("{key}: {value}"));
        let tip: Vec<String> = std::iter::once(host.name.clone()).chain(properties).collect();
        self.node(&lines, &format!("{}, tooltip={}", colour(host), quoted(&tip)))
    }

    /// Writes the routes of a star's members to its hub and back.
    fn arms(&mut self, arms: &[Arm], ends: &[End], hub: End) {
        let mut link_nodes = BTreeMap::new();
        for Arm { member, up, down } in arms {
            let names =
                |links: &[LinkId]| -> Vec<&str> { links.iter().map(|id| self.platform.cable_name(*id)).collect() };
            let is_same = names(up).iter().eq(names(down).iter().rev());
            self.route(&mut link_nodes, ends[*member], hub, up, !is_same);
            if !is_same {
                self.route(&mut link_nodes, hub, ends[*member], down, true);
            }
        }
    }

    fn routes(&mut self, outline: &Outline, ways: &[OutlineRoute], ends: &[End]) {
        let mut link_nodes = BTreeMap::new();
        for way in unsplit(self.platform, outline, ways) {
            self.route(&mut link_nodes, ends[way.from], ends[way.to], &way.links, !way.is_bidirectional);
        }
    }

    /// Writes the edges of a route, and its links where these are not yet among `link_nodes`.
    fn route(&mut self, link_nodes: &mut BTreeMap<String, End>, from: End, to: End, links: &[LinkId], has_arrow: bool) {
        let mut before = from;
        for (name, id) in cables(self.platform, links) {
            let end = match link_nodes.get(name) {
                Some(end) => *end,
                None => self.link(name, id),
            };
            link_nodes.insert(name.to_owned(), end);
            self.edge(before, end, has_arrow);
            before = end;
        }
        self.edge(before, to, has_arrow);
    }

    fn link(&mut self, name: &str, id: LinkId) -> End {
        let directions = [format!("{name}_UP"), format!("{name}_DOWN")];
        let both: Vec<LinkId> = directions.iter().filter_map(|direction| self.platform.link(direction)).collect();
        let is_duplex = self.platform.cable_name(id) != self.platform.links()[id.0 as usize].name;
        let ids = if is_duplex { both } else { vec![id] };
        let figures = capacity(ids.iter().map(|id| &self.platform.links()[id.0 as usize]));
        let sharing = match self.platform.links()[id.0 as usize].sharing {
            _ if is_duplex => "split-duplex",
            Sharing::Shared => "shared",
            Sharing::Fatpipe => "fatpipe",
        };
        let tip = quoted(&[format!("link {name}: {figures}, {sharing}")]);
        self.node(&[name.to_owned(), figures], &format!("{LINK}, tooltip={tip}"))
    }

    /// Writes all links of a zone as one node that is joined to all members, and to the hub.
    fn bundle(&mut self, routes: usize, outline: &Outline, ends: &[End], hub: Option<End>) {
        let mut lines = vec![counted(routes, "route")];
        lines.extend(links(self.platform, outline));
        let bundle = self.node(&lines, &format!("{LINK}, peripheries=2"));
        for end in ends.iter().chain(&hub) {
            self.edge(*end, bundle, false);
        }
    }

    /// Writes a zone as one node.
    fn summary(&mut self, outline: &Outline) -> End {
        let mut all = Vec::new();
        gather(outline, &mut all);
        let mut lines = vec![outline.name.clone(), heading(outline)];
        if !all.is_empty() {
            lines.extend(hosts(self.platform, &all));
        }
        lines.extend(links(self.platform, outline));
        lines.extend(bypasses(self.platform, outline));
        let attributes = all.first().map(|id| group_attributes(&self.platform.hosts()[id.0 as usize]));
        self.node(&lines, &attributes.unwrap_or_default())
    }
}

const LINK: &str = ", style=\"rounded,filled\", fillcolor=\"#fff6e5\", color=\"#a66a12\"";
const ROUTER: &str = ", shape=ellipse, fillcolor=\"#e9edf1\"";

/// Returns a quoted string of DOT with those lines.
fn quoted(lines: &[String]) -> String {
    let is_invalid = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    let line = |line: &String| {
        // Graphviz replaces the entities of HTML and escapes such as `\N`.
        let text = line.replace(is_invalid, "\u{fffd}").replace('&', "&amp;");
        text.replace('\\', "\\\\").replace('"', "\\\"")
    };
    format!("\"{}\"", lines.iter().map(line).collect::<Vec<_>>().join("\\n"))
}

/// Returns the fill colour of a host, which shows its first role.
fn colour(host: &Host) -> &'static str {
    match roles(host).split(',').next().unwrap_or_default().trim() {
        "client" => ", fillcolor=\"#dcebfb\"",
        "agent" => ", fillcolor=\"#eee2fa\"",
        "server" => ", fillcolor=\"#def3e0\"",
        _ => "",
    }
}

fn group_attributes(first: &Host) -> String {
    format!(", shape=box3d, margin=\"0.1,0.1\"{}", colour(first))
}

fn router(member: &Member) -> Option<&str> {
    match member {
        Member::Router(name) => Some(name),
        Member::Host(_) | Member::Zone(_) => None,
    }
}

/// Describes hosts that share a node: names, figures and roles.
fn hosts(platform: &Platform, ids: &[HostId]) -> Vec<String> {
    let all = ids.iter().map(|id| &platform.hosts()[id.0 as usize]);
    let roles: BTreeSet<&str> = all.clone().map(roles).filter(|roles| !roles.is_empty()).collect();
    let each = if ids.len() > 1 { " each" } else { "" };
    let mut lines = vec![from_to(all.clone().map(|host| host.name.as_str())), format!("{}{each}", power(all))];
    lines.extend((!roles.is_empty()).then(|| roles.into_iter().collect::<Vec<_>>().join("; ")));
    lines
}

/// Describes the routing of a zone and its size.
fn heading(outline: &Outline) -> String {
    let shape = match &outline.shape {
        Shape::Torus { sizes, .. } => {
            format!(" {}", sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" × "))
        }
        Shape::FatTree { level_sizes, .. } => {
            let sizes: Vec<String> = level_sizes[1..].iter().map(ToString::to_string).collect();
            format!(" with levels of {} switches", sizes.join(", "))
        }
        Shape::Dragonfly { counts: [groups, chassis, blades, _], .. } => {
            format!(" of {} with {chassis} chassis of {}", counted(*groups, "group"), counted(*blades, "blade"))
        }
        Shape::Routes { .. } | Shape::Star(_) | Shape::Vivaldi { .. } | Shape::Disjoint => String::new(),
    };
    format!("{}{shape} · {}", outline.routing(), counted(outline.host_count(), "host"))
}

/// Describes the links of a zone on few lines. The backbone of a cluster has a line of its own, since all others are
/// alike.
fn links(platform: &Platform, outline: &Outline) -> Vec<String> {
    let figures = |id: LinkId| capacity(std::iter::once(&platform.links()[id.0 as usize]));
    match &outline.shape {
        Shape::Torus { link, .. } => return link.iter().map(|id| format!("each link: {}", figures(*id))).collect(),
        Shape::Dragonfly { links, .. } => {
            let kinds = ["local links", "green links (blades)", "black links (chassis)", "blue links (groups)"];
            let known = kinds.iter().zip(links).filter_map(|(kind, id)| Some((kind, (*id)?)));
            return known.map(|(kind, id)| format!("{kind}: {}", figures(id))).collect();
        }
        Shape::Routes { .. } | Shape::Star(_) | Shape::Vivaldi { .. } | Shape::FatTree { .. } | Shape::Disjoint => {}
    }
    let mut alike: BTreeMap<(u64, u64), Vec<(&str, LinkId)>> = BTreeMap::new();
    let all = cables(platform, &links_of(outline));
    for (name, id) in &all {
        let link = &platform.links()[id.0 as usize];
        alike.entry((link.bandwidth.to_bits(), link.latency_s.to_bits())).or_default().push((name, *id));
    }
    let groups = if alike.len() <= 4 { alike.into_values().collect() } else { vec![all] };
    let line = |group: Vec<(&str, LinkId)>| {
        let figures = capacity(group.iter().map(|(_, id)| &platform.links()[id.0 as usize]));
        match group.as_slice() {
            [(name, _)] => format!("link {name}: {figures}"),
            many => format!("{}: {figures} each", counted(many.len(), "link")),
        }
    };
    groups.into_iter().map(line).collect()
}

/// Returns the distinct links of the routes of a zone, without those of inner zones.
fn links_of(outline: &Outline) -> Vec<LinkId> {
    let mut links: Vec<LinkId> = match &outline.shape {
        Shape::Star(arms) | Shape::Vivaldi { arms, .. } => {
            arms.iter().flat_map(|arm| arm.up.iter().chain(&arm.down).copied()).collect()
        }
        Shape::Routes { routes: ways, .. } => ways.iter().flat_map(|way| way.links.iter().copied()).collect(),
        Shape::FatTree { cables, .. } => cables.iter().map(|(_, _, link)| *link).collect(),
        Shape::Torus { .. } | Shape::Dragonfly { .. } | Shape::Disjoint => Vec::new(),
    };
    links.sort_unstable();
    links.dedup();
    links
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

fn bypasses(platform: &Platform, outline: &Outline) -> Vec<String> {
    let line = |bypass: &gridloom_platform::outline::Bypass| {
        let names: Vec<&str> = cables(platform, &bypass.links).into_iter().map(|(name, _)| name).collect();
        format!("bypass from {} to {} over {}", bypass.from, bypass.to, names.join(", "))
    };
    let mut lines: Vec<String> = outline.bypasses.iter().take(BYPASSES_MAX).map(line).collect();
    if outline.bypasses.len() > BYPASSES_MAX {
        lines.push(format!("and {} more bypasses", outline.bypasses.len() - BYPASSES_MAX));
    }
    lines
}

/// Returns the routes that no host or router splits. A member splits a route if the routes to and from it together
/// cross the same links; these are drawn instead.
fn unsplit<'a>(platform: &Platform, outline: &Outline, ways: &'a [OutlineRoute]) -> Vec<&'a OutlineRoute> {
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
    ways.iter().filter(|way| !passed.iter().any(|at| is_between(way.from, way.to, *at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        let lines = ["<b> & \"c\"\u{1}".to_owned(), "\\N".to_owned()];
        assert_eq!(quoted(&lines), "\"<b> &amp; \\\"c\\\"\u{fffd}\\n\\\\N\"");
    }
}
