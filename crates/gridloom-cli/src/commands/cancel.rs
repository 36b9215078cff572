//! `gridloom cancel`.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use gridloom_base::{NodeId, TaskId};
use serde_json::json;

use super::calls::{Servers, ask};
use super::{GridOption, print_json, print_line};

/// How long to check whether the calls have ended, and how often.
const GONE_LIMIT: Duration = Duration::from_secs(10);
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// Cancel calls on the grid's servers, whoever made them; the programs that made them get an error.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom cancel t17@n2f3a90\n  gridloom cancel --all")]
#[command(group = clap::ArgGroup::new("which").args(["calls", "all"]).required(true))]
pub struct Options {
    #[command(flatten)]
    grid: GridOption,
    /// Calls, as 'gridloom calls' names them
    #[arg(value_name = "CALL")]
    calls: Vec<TaskId>,
    /// All calls that are on servers now
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    let found: Vec<(NodeId, TaskId)> =
        there(&ask(&grid)?).into_iter().filter(|(_, task)| options.all || options.calls.contains(task)).collect();
    found.iter().for_each(|(server, task)| grid.end_task(*server, *task));
    let began = Instant::now();
    let left = loop {
        let now = there(&ask(&grid)?);
        let left: BTreeSet<TaskId> = found.iter().filter(|one| now.contains(one)).map(|(_, task)| *task).collect();
        if left.is_empty() || began.elapsed() > GONE_LIMIT {
            break left;
        }
        std::thread::sleep(LOOK_PAUSE);
    };
    let ended: BTreeSet<TaskId> = found.iter().map(|(_, task)| *task).filter(|task| !left.contains(task)).collect();
    let unknown: Vec<&TaskId> =
        options.calls.iter().filter(|call| !found.iter().any(|(_, task)| task == *call)).collect();
    let names = |tasks: &mut dyn Iterator<Item = String>| tasks.collect::<Vec<_>>();
    if options.json {
        print_json(&json!({
            "cancelled": names(&mut ended.iter().map(ToString::to_string)),
            "not_ended": names(&mut left.iter().map(ToString::to_string)),
            "not_found": names(&mut unknown.iter().map(ToString::to_string)),
        }))?;
    } else {
        print_line(&format!(
            "{} cancelled",
            if ended.len() == 1 { "1 call".into() } else { format!("{} calls", ended.len()) }
        ))?;
        for task in &left {
            print_line(&format!("{task} has not ended within {} s", GONE_LIMIT.as_secs()))?;
        }
        for task in &unknown {
            print_line(&format!("{task} is not on a server; 'gridloom calls' lists the calls"))?;
        }
    }
    Ok(if left.is_empty() && unknown.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn there(servers: &Servers) -> BTreeSet<(NodeId, TaskId)> {
    let tasks = servers.iter().flat_map(|(server, status)| {
        let tasks = status.iter().flat_map(|status| &status.tasks);
        tasks.map(|task| (server.node, task.task))
    });
    tasks.collect()
}
