//! `gridloom drain`: ends servers that `gridloom up` has started, without losing calls or data.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::json;

use super::plan::AGENT;
use super::request::{Action, State};
use super::state::{self, Grid};
use super::status::request_all;
use super::{SOME_FAILED, trouble_json};
use crate::commands::{print_json, print_line};

/// Drain the servers on some hosts of a grid that 'gridloom up' has started.
///
/// A drained server accepts no new calls, unless no other server offers the function. It finishes its calls, keeps
/// results until no program needs them, and ends. Shared data delay its end, unless they are durable. If a server has
/// not ended after --wait seconds, the command reports this with status 3, and the server continues to drain. With
/// --now it is ended then, as by 'gridloom down': other servers recompute what is lost.
///
/// 'gridloom up' starts it again.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom drain node-3")]
pub struct Options {
    /// Names of the hosts in the file of hosts
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<String>,
    /// Name of the grid, if several were started
    #[arg(long)]
    name: Option<String>,
    /// Seconds to wait for the end of the servers
    #[arg(long, default_value = "600", value_name = "SECONDS", value_parser = crate::commands::simulate::seconds)]
    wait: f64,
    /// End servers that have not ended by then
    #[arg(long)]
    now: bool,
    /// Print JSON, a line for each host
    #[arg(long)]
    json: bool,
}

/// Seconds that a server has to end with --now.
const GRACE_S: f64 = 10.0;

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = Grid::find(options.name.as_deref())?;
    let mut asked = Grid { hosts: Vec::new(), ..grid.clone() };
    for name in &options.hosts {
        let Some(host) = grid.hosts.iter().find(|host| host.name == *name) else {
            let known: Vec<&str> = grid.hosts.iter().map(|host| host.name.as_str()).collect();
            bail!("the grid '{}' has no host '{name}'; it has: {}", grid.name, known.join(", "));
        };
        let mut host = host.clone();
        host.labels.retain(|label| label != AGENT);
        ensure!(!host.labels.is_empty(), "host '{name}' has the agent and no server; 'gridloom down' ends an agent");
        asked.hosts.push(host);
    }
    let drain = |labels| Action::Drain { labels, wait_s: options.wait };
    let mut results = request_all(&asked, Duration::from_secs_f64(options.wait + 30.0), drain);
    let is_left = |result: &Result<Vec<_>, _>| result.as_ref().is_ok_and(|parts| !have_ended(parts));
    if options.now && results.iter().any(is_left) {
        let end = |labels| Action::End { labels, grace_s: GRACE_S };
        results = request_all(&asked, Duration::from_secs_f64(GRACE_S + 30.0), end);
    }
    let mut ended = Vec::new();
    for (host, result) in asked.hosts.iter().zip(&results) {
        let labels = host.labels.join(", ");
        match result {
            Err(trouble) if options.json => print_json(&trouble_json(trouble))?,
            Err(trouble) => gridloom_base::stderr_line!("gridloom: {trouble}"),
            Ok(parts) => {
                let has_ended = have_ended(parts);
                ended.extend(has_ended.then_some(host));
                match options.json {
                    true => print_json(&json!({ "host": host.name, "parts": host.labels, "ended": has_ended }))?,
                    false if has_ended => print_line(&format!("{}: ended {labels}", host.name))?,
                    false => gridloom_base::stderr_line!(
                        "gridloom: {}: {labels} still drains after {} s: it has calls, results that programs use, \
                         or shared data ('gridloom calls', 'gridloom data'); --now ends it",
                        host.name,
                        options.wait
                    ),
                }
            }
        }
    }
    forget(&grid.name, &ended)?;
    Ok(if ended.len() == asked.hosts.len() { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}

fn have_ended(parts: &[super::request::PartState]) -> bool {
    parts.iter().all(|part| part.state == State::Ended)
}

/// Removes ended servers from the record of the grid. Another command may have restarted them while others drained.
fn forget(name: &str, ended: &[&state::Host]) -> Result<()> {
    let _lock = state::lock(name)?;
    let Some(mut grid) = Grid::read(name)? else { return Ok(()) };
    let asked = Grid { hosts: ended.iter().map(|host| (*host).clone()).collect(), ..grid.clone() };
    let looked = request_all(&asked, Duration::from_secs(20), |labels| Action::Look { labels });
    let have_gone = |result: &Result<Vec<_>, _>| result.as_ref().is_ok_and(|parts| have_ended(parts));
    for (gone, _) in asked.hosts.iter().zip(looked).filter(|(_, result)| have_gone(result)) {
        let of_host = grid.hosts.iter_mut().filter(|host| host.name == gone.name);
        of_host.for_each(|host| host.labels.retain(|label| !gone.labels.contains(label)));
    }
    grid.hosts.retain(|host| !host.labels.is_empty());
    grid.write()
}
