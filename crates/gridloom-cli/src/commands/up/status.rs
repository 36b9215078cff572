//! `gridloom status`: shows which parts of a grid that `gridloom up` has started run.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use gridloom::Grid as Session;
use serde_json::json;

use super::code::hash_in;
use super::fault::HostFailure;
use super::plan::{AGENT, SERVER_LABEL};
use super::request::{Action, PartState, State};
use super::state::Grid;
use super::{SOME_FAILED, trouble_json};
use crate::commands::{print_json, print_line};

/// Show which parts of a grid that 'gridloom up' has started run.
///
/// The command asks each host by ssh which of its processes run, and the agent which servers are registered. The exit
/// status is 0 if all run and are registered, else 3.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom status")]
pub struct Options {
    /// Name of the grid, if several were started
    name: Option<String>,
    /// Print only the agent's address, as for GRIDLOOM_AGENT, and contact no host
    #[arg(long, conflicts_with = "json")]
    agent: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = Grid::find(options.name.as_deref())?;
    if options.agent {
        let agent = grid.agent.with_context(|| format!("the agent of the grid '{}' never ran", grid.name))?;
        return print_line(&agent).map(|()| ExitCode::SUCCESS);
    }
    let results = request_all(&grid, Duration::from_secs(20), |labels| Action::Look { labels });
    let registered = match &grid.agent {
        None => Err("the agent never ran".to_string()),
        Some(agent) => Session::connect(agent).map_err(|error| error.to_string()).map(|session| {
            let servers = session.servers();
            servers
                .servers
                .iter()
                .map(|server| (server.name.clone(), server.version_text()))
                .collect::<BTreeMap<String, String>>()
        }),
    };
    let is_registered = |part: &PartState| match (part.label.strip_prefix(SERVER_LABEL), &registered) {
        (Some(name), Ok(names)) => Some(names.contains_key(name)),
        (_, registered) => (part.label == AGENT).then_some(registered.is_ok()),
    };
    let release = |part: &PartState| {
        let name = part.label.strip_prefix(SERVER_LABEL)?;
        registered.as_ref().ok()?.get(name).cloned()
    };
    let word = |part: &PartState| match is_registered(part) {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    };
    let mut is_well = registered.is_ok();
    if options.json {
        let hosts: Vec<_> = grid
            .hosts
            .iter()
            .zip(&results)
            .map(|(host, result)| match result {
                Err(trouble) => trouble_json(trouble),
                Ok(parts) => {
                    let parts: Vec<_> = parts
                        .iter()
                        .map(|part| {
                            json!({ "part": part.label, "state": part.state.name(), "pid": part.pid, "address": part.address,
                                    "registered": is_registered(part), "release": release(part), "log": part.log, "why": part.why,
                                    "code": part.code.as_deref().map(hash_in) })
                        })
                        .collect();
                    json!({ "host": host.name, "parts": parts })
                }
            })
            .collect();
        let error = registered.as_ref().err();
        print_json(&json!({ "grid": grid.name, "agent": grid.agent, "agent_error": error, "hosts": hosts }))?;
    } else {
        print_line(&format!(
            "{:<16} {:<20} {:<8} {:<10} {:<10} {:>8}  address",
            "host", "part", "state", "registered", "release", "process"
        ))?;
    }
    for (host, result) in grid.hosts.iter().zip(&results) {
        is_well &= result
            .as_ref()
            .is_ok_and(|parts| parts.iter().all(|part| part.state == State::Runs && is_registered(part) == Some(true)));
        match result {
            _ if options.json => {}
            Err(trouble) => gridloom_base::stderr_line!("gridloom: {trouble}"),
            Ok(parts) => {
                for part in parts {
                    let pid = part.pid.map_or("-".to_string(), |pid| pid.to_string());
                    let address = part.address.as_deref().unwrap_or("-");
                    let state = part.state.name();
                    print_line(&format!(
                        "{:<16} {:<20} {state:<8} {:<10} {:<10} {pid:>8}  {address}",
                        host.name,
                        part.label,
                        word(part),
                        release(part).as_deref().unwrap_or("-")
                    ))?;
                    if let Some(why) = &part.why {
                        let log = if part.log.is_empty() { String::new() } else { format!(" (log: {})", part.log) };
                        gridloom_base::stderr_line!("gridloom: {}: {} has ended: {why}{log}", host.name, part.label);
                    }
                }
            }
        }
    }
    if let Err(why) = registered.as_ref().map_err(|why| why.lines().next().unwrap_or_default())
        && !options.json
    {
        gridloom_base::stderr_line!("gridloom: no session with the agent from this machine: {why}");
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}

/// Sends a request to all hosts at the same time. Returns the answers in the order of the hosts.
pub fn request_all(
    grid: &Grid,
    limit: Duration,
    action: impl Fn(Vec<String>) -> Action,
) -> Vec<Result<Vec<PartState>, HostFailure>> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = grid
            .hosts
            .iter()
            .map(|host| {
                let request = grid.request(action(host.labels.clone()));
                scope.spawn(move || host.target.request(&host.name, &request, limit))
            })
            .collect();
        asked.into_iter().map(|thread| thread.join().expect("asking does not panic")).collect()
    })
}
