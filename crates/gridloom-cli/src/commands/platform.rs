//! `gridloom platform`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use gridloom::Cast;
use gridloom_core::idl::near::{did_you_mean, near_names};
use gridloom_core::platform::Platform;
use serde_json::json;

use super::{count, print_json, print_line, read_text};

/// Show platform files (TOML, or SimGrid's XML).
#[derive(clap::Subcommand)]
#[command(
    after_help = "Examples:\n  gridloom platform show grid.toml\n  gridloom platform route grid.toml laptop node-3"
)]
pub enum Options {
    /// List hosts and links; a role that no host can have is an error
    #[command(after_help = "Example:\n  gridloom platform show grid.toml --json")]
    Show {
        /// The file
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the route between two hosts: its latency in seconds, and its links in order
    ///
    /// Two hosts that no route joins are a fact, not an error: no links, latency 0.
    #[command(after_help = "Example:\n  gridloom platform route grid.toml laptop node-3 --json")]
    Route {
        /// The file
        file: PathBuf,
        /// From
        src: String,
        /// To
        dst: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(options: &Options) -> Result<ExitCode> {
    match options {
        Options::Show { file, json } => show(&read(file)?, *json)?,
        Options::Route { file, src, dst, json } => route(&read(file)?, src, dst, *json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<Platform> {
    let text = read_text(file)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut load = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|error| format!("{name}: {error}"));
    Ok(Platform::parse(&text, &file.display().to_string(), &mut load)?)
}

fn show(platform: &Platform, json: bool) -> Result<()> {
    Cast::check_roles(platform)?;
    if json {
        return print_json(&json!({ "hosts": platform.hosts(), "links": platform.links() }));
    }
    for host in platform.hosts() {
        let (speed, cores) = (host.speed_flops / 1e9, count(host.cores as usize, "core"));
        print_line(&format!("host {:<24} {speed:>10.3} Gflop/s  {cores}", host.name))?;
    }
    for link in platform.links() {
        let (bandwidth, latency) = (link.bandwidth / 1e6, link.latency_s * 1e6);
        print_line(&format!("link {:<24} {bandwidth:>10.3} MB/s  {latency:>10.3} us  {:?}", link.name, link.sharing))?;
    }
    Ok(())
}

fn route(platform: &Platform, src: &str, dst: &str, json: bool) -> Result<()> {
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
        false => print_line(&format!(
            "{latency} s over {}",
            if names.is_empty() { "no link".into() } else { names.join(", ") }
        )),
    }
}
