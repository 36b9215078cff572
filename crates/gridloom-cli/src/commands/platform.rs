//! `gridloom platform`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use gridloom::Roles;
use gridloom_base::near::{did_you_mean, near_names};
use gridloom_base::stderr_line;
use gridloom_platform::outline::{Member, Outline, Shape};
use gridloom_platform::{Host, Link, LinkId, Platform};
use serde_json::{Value, json};

use super::{digits, parse_svg, print_json, print_line, print_text, read_text, write_svg};

mod dot;
mod list;

/// Show platform files (TOML, or SimGrid's XML).
#[derive(clap::Subcommand)]
#[command(
    after_help = "Examples:\n  gridloom platform show grid.toml --svg grid.svg\n  gridloom platform route grid.toml laptop node-3"
)]
pub enum Options {
    /// List or draw hosts, links, zones and routes; a role that no host can have is an error
    ///
    /// In a large platform, hosts and links that are alike share one line with their count. Routes are listed between
    /// all pairs of hosts of a small platform, and between the zones of a large one.
    #[command(
        after_help = "Examples:\n  gridloom platform show grid.toml\n  gridloom platform show grid.toml --svg grid.svg\n  \
gridloom platform show grid.toml --dot | dot -Tpdf > grid.pdf"
    )]
    Show {
        /// The file
        file: PathBuf,
        /// Print the platform as a graph in Graphviz's DOT language
        #[arg(long, conflicts_with_all = ["json", "svg"])]
        dot: bool,
        /// Draw the platform into this SVG file; needs Graphviz
        #[arg(long, value_name = "FILE", conflicts_with = "json", value_parser = parse_svg)]
        svg: Option<PathBuf>,
        /// List each host, link and route, even of a large platform
        #[arg(long, conflicts_with_all = ["json", "dot", "svg"])]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the route between two hosts: its latency in seconds, and its links in order
    ///
    /// If two hosts have no route, this is not an error: the command prints 'no route', or in JSON no links and latency 0.
    #[command(after_help = "Example:\n  gridloom platform route grid.toml laptop node-3 --json")]
    Route {
        /// The file
        file: PathBuf,
        /// Source host of the route
        src: String,
        /// Destination host of the route
        dst: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(options: &Options) -> Result<ExitCode> {
    match options {
        Options::Show { file, dot, svg, all, json } => {
            let platform = read(file)?;
            Roles::check_roles(&platform)?;
            let title = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            match svg {
                Some(path) => write_svg(path, &dot::svg(&dot::text(&platform, &title), file)?, false)?,
                None if *dot => print_text(&dot::text(&platform, &title))?,
                None if *json => print_json(&as_json(&platform))?,
                None => print_text(&list::text(&platform, *all))?,
            }
        }
        Options::Route { file, src, dst, json } => route(file, src, dst, *json)?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn read(file: &Path) -> Result<Platform> {
    let text = read_text(file)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut load = |name: &str| read_text(&folder.join(name)).map_err(|error| error.to_string());
    Ok(Platform::parse(&text, &file.display().to_string(), &mut load)?)
}

fn as_json(platform: &Platform) -> Value {
    let (mut zones, mut routes) = (Vec::new(), Vec::new());
    zone_as_json(platform, &platform.outline(), &mut zones, &mut routes);
    let host = |Host { name, speed_flops, cores, properties }: &Host| json!({ "name": name, "speed_flops": speed_flops, "cores": cores, "properties": properties });
    let link = |Link { name, bandwidth, latency_s, sharing }: &Link| json!({ "name": name, "bandwidth": bandwidth, "latency_s": latency_s, "sharing": sharing });
    let hosts: Vec<Value> = platform.hosts().iter().map(host).collect();
    let links: Vec<Value> = platform.links().iter().map(link).collect();
    json!({ "hosts": hosts, "links": links, "zones": zones, "routes": routes })
}

fn zone_as_json(platform: &Platform, outline: &Outline, zones: &mut Vec<Value>, routes: &mut Vec<Value>) {
    let links = |links: &[LinkId]| -> Vec<&str> {
        links.iter().map(|link| platform.links()[link.0 as usize].name.as_str()).collect()
    };
    let name = |member: &Member| match member {
        Member::Host(id) => platform.hosts()[id.0 as usize].name.clone(),
        Member::Router(name) => name.clone(),
        Member::Zone(zone) => zone.name.clone(),
    };
    let members: Vec<String> = outline.members.iter().map(name).collect();
    match &outline.shape {
        Shape::Routes { routes: ways, .. } => routes.extend(ways.iter().map(|way| {
            json!({
                "zone": outline.name, "from": members[way.from], "to": members[way.to],
                "links": links(&way.links), "symmetrical": way.is_bidirectional,
            })
        })),
        Shape::Star(arms) | Shape::Vivaldi { arms, .. } => routes.extend(arms.iter().map(|arm| {
            json!({
                "zone": outline.name, "from": members[arm.member], "to": null,
                "links": links(&arm.up), "links_back": links(&arm.down),
            })
        })),
        Shape::FatTree { .. } | Shape::Torus { .. } | Shape::Dragonfly { .. } | Shape::Disjoint => {}
    }
    zones.push(json!({ "name": outline.name, "routing": outline.routing(), "members": members }));
    for member in &outline.members {
        if let Member::Zone(zone) = member {
            zone_as_json(platform, zone, zones, routes);
        }
    }
}

fn route(file: &Path, src: &str, dst: &str, json: bool) -> Result<()> {
    let platform = read(file)?;
    let host = |name: &str| {
        let near = || near_names(name, platform.hosts().iter().map(|host| host.name.as_str()));
        platform.host(name).ok_or_else(|| anyhow!("the platform has no host '{name}'{}", did_you_mean(&near())))
    };
    // Hosts without a route are a fact of the platform, not an error.
    let route = platform.route(host(src)?, host(dst)?).ok();
    let names: Vec<&str> = route
        .iter()
        .flat_map(|route| route.links.iter())
        .map(|link| platform.links()[link.0 as usize].name.as_str())
        .collect();
    let latency = route.as_ref().map_or(0.0, |route| route.latency_s);
    match json {
        true => print_json(&json!({ "latency": latency, "links": names })),
        false if route.is_none() => {
            print_line("no route")?;
            if file.extension().is_some_and(|extension| extension == "toml") && !read_text(file)?.contains("shortest") {
                stderr_line!(
                    "gridloom: with routing = \"shortest\" in the file, routes may pass through routers and hosts"
                );
            }
            Ok(())
        }
        false => print_line(&format!(
            "{} s over {}",
            digits(latency),
            if names.is_empty() { "no link".into() } else { names.join(", ") }
        )),
    }
}
