//! `gridloom down`: ends the processes that `gridloom up` has started.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;

use super::request::{Action, State};
use super::state::{self, Grid};
use super::status::request_all;
use super::{SOME_FAILED, trouble_json};
use crate::commands::{print_json, print_line};

/// End the agent and the servers that 'gridloom up' has started, and nothing else.
///
/// Running calls are lost. A process that has not ended after --grace seconds is killed. If a host does not answer,
/// the command reports it and keeps the record of the grid: run it again when the host is back, or with --forget if
/// the host has gone for good. The exit status is then 3.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom down")]
pub struct Options {
    /// Name of the grid, if several were started
    name: Option<String>,
    /// Do not contact this host, which will never answer again, and forget it; may be repeated
    #[arg(long, value_name = "HOST")]
    forget: Vec<String>,
    /// Seconds that agent and servers have to end
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = crate::commands::simulate::seconds)]
    grace: f64,
    /// Print JSON, a line for each host
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let name = Grid::find(options.name.as_deref())?.name;
    let _lock = state::lock(&name)?;
    let mut grid = Grid::find(Some(&name))?;
    for name in &options.forget {
        if !grid.hosts.iter().any(|host| host.name == *name) {
            let known: Vec<&str> = grid.hosts.iter().map(|host| host.name.as_str()).collect();
            bail!("the grid '{}' has no host '{name}'; it has: {}", grid.name, known.join(", "));
        }
    }
    grid.hosts.retain(|host| !options.forget.contains(&host.name));
    let limit = Duration::from_secs_f64(options.grace + 30.0);
    let end = |labels: Vec<String>| Action::End { labels, grace_s: options.grace };
    let mut left = Vec::new();
    // If the agent ended first, servers would log that it is lost: its host, which is the first, is asked at the same
    // time as the others.
    for (host, result) in grid.hosts.iter().zip(request_all(&grid, limit, end)) {
        match result {
            Err(trouble) => {
                match options.json {
                    true => print_json(&trouble_json(&trouble))?,
                    false => gridloom_base::stderr_line!("gridloom: {trouble}"),
                }
                left.push(host.clone());
            }
            Ok(states) => {
                debug_assert!(states.iter().all(|part| part.state == State::Ended));
                match options.json {
                    true => print_json(&json!({ "host": host.name, "ended": host.labels }))?,
                    false => print_line(&format!("{}: ended {}", host.name, host.labels.join(", ")))?,
                }
            }
        }
    }
    if left.is_empty() {
        grid.remove()?;
        return Ok(ExitCode::SUCCESS);
    }
    grid.hosts = left;
    grid.write()?;
    Ok(ExitCode::from(SOME_FAILED))
}
