//! `gridloom cancel`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use gridloom_base::{NodeId, TaskId};
use gridloom_core::node::message::TaskStatus;
use serde_json::{Map, json};

use super::calls::{Servers, ask};
use super::{GridOption, print_json, print_line};

/// How long to check whether the calls have ended, and how often.
const GONE_LIMIT: Duration = Duration::from_secs(10);
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// Cancel calls on the grid's servers; the programs that made them get an error.
///
/// You can cancel the calls of all your programs. Administrators of the grid can also cancel calls of other users.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  gridloom cancel t17@n2f3a90\n  gridloom cancel --user anna\n  gridloom cancel --all"
)]
#[command(group = clap::ArgGroup::new("which").args(["calls", "user", "all"]).required(true))]
pub struct Options {
    #[command(flatten)]
    grid: GridOption,
    /// Calls, as 'gridloom calls' names them
    #[arg(value_name = "CALL")]
    calls: Vec<TaskId>,
    /// All calls of this user that are on servers now
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// All calls that are on servers now, of all users
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    let found = chosen(options, &ask(&grid)?);
    let answers = grid.end_tasks(&found, GONE_LIMIT)?;
    let refused: BTreeMap<TaskId, &String> =
        answers.iter().filter_map(|((_, task), answer)| Some((*task, answer.as_ref().err()?))).collect();
    let began = Instant::now();
    let left = loop {
        let now = there(&ask(&grid)?);
        let left = found.iter().filter(|one| now.contains(one)).map(|(_, task)| *task);
        let left: BTreeSet<TaskId> = left.filter(|task| !refused.contains_key(task)).collect();
        if left.is_empty() || began.elapsed() > GONE_LIMIT {
            break left;
        }
        std::thread::sleep(LOOK_PAUSE);
    };
    let ended = found.iter().map(|(_, task)| *task);
    let ended: BTreeSet<TaskId> = ended.filter(|task| !left.contains(task) && !refused.contains_key(task)).collect();
    let unknown: Vec<&TaskId> =
        options.calls.iter().filter(|call| !found.iter().any(|(_, task)| task == *call)).collect();
    let names = |tasks: &mut dyn Iterator<Item = String>| tasks.collect::<Vec<_>>();
    if options.json {
        print_json(&json!({
            "cancelled": names(&mut ended.iter().map(ToString::to_string)),
            "not_ended": names(&mut left.iter().map(ToString::to_string)),
            "not_found": names(&mut unknown.iter().map(ToString::to_string)),
            "refused": refused.iter().map(|(task, why)| (task.to_string(), why.as_str().into())).collect::<Map<_, _>>(),
        }))?;
    } else {
        print_line(&format!(
            "{} cancelled",
            if ended.len() == 1 { "1 call".into() } else { format!("{} calls", ended.len()) }
        ))?;
        for (task, why) in &refused {
            print_line(&format!("{task} was not cancelled: {why}"))?;
        }
        for task in &left {
            print_line(&format!("{task} has not ended within {} s", GONE_LIMIT.as_secs()))?;
        }
        for task in &unknown {
            print_line(&format!("{task} is not on a server; 'gridloom calls' lists the calls"))?;
        }
    }
    let is_done = left.is_empty() && unknown.is_empty() && refused.is_empty();
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the calls that the options name.
fn chosen(options: &Options, servers: &Servers) -> Vec<(NodeId, TaskId)> {
    let mut found = Vec::new();
    for (server, status) in servers.iter().filter_map(|(server, status)| Some((server, status.as_ref()?))) {
        let is_of = |task: &TaskStatus, user: &String| status.program_of(task).is_some_and(|one| one.user == *user);
        let is_chosen = |task: &&TaskStatus| {
            options.all || options.calls.contains(&task.task) || options.user.iter().any(|user| is_of(task, user))
        };
        found.extend(status.tasks.iter().filter(is_chosen).map(|task| (server.node, task.task)));
    }
    found
}

fn there(servers: &Servers) -> BTreeSet<(NodeId, TaskId)> {
    let tasks = servers.iter().flat_map(|(server, status)| {
        let tasks = status.iter().flat_map(|status| &status.tasks);
        tasks.map(|task| (server.node, task.task))
    });
    tasks.collect()
}
