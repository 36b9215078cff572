//! `gridloom calls`, and the table of calls that `gridloom top` shows too.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use gridloom::Grid;
use gridloom_base::time::ns_to_seconds;
use gridloom_core::node::message::{ProgramWaits, ServerStatus, Stage, TaskStatus};
use gridloom_perf::ServerView;
use serde_json::{Value, json};

use super::{GridOption, print_json, print_line};

/// How long to wait for a server's answer; a slower server is shown without its calls.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// List the calls that are on the grid's servers (running, queued, and waiting for data), and what programs wait for.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom calls --json")]
pub struct Options {
    #[command(flatten)]
    grid: GridOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    let servers = ask(&grid)?;
    let waits = grid.waits(ANSWER_LIMIT)?;
    if options.json {
        let calls = servers.iter().flat_map(|(server, status)| {
            let tasks = status.iter().flat_map(|status| &status.tasks);
            tasks.map(|task| call_json(server, task))
        });
        let silent = servers.iter().filter(|(_, status)| status.is_none()).map(|(server, _)| &server.name);
        let silent: Vec<&String> = silent.collect();
        let waits: Vec<Value> = waits.iter().map(waits_json).collect();
        let calls: Vec<Value> = calls.collect();
        print_json(&json!({ "calls": calls, "servers_without_answer": silent, "waits": waits }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines = lines(&servers, usize::MAX);
    if lines.is_empty() {
        print_line("no calls")?;
    }
    let waits = waits.iter().flat_map(wait_lines);
    lines.into_iter().chain(waits).try_for_each(|line| print_line(&line))?;
    Ok(ExitCode::SUCCESS)
}

fn wait_lines(program: &ProgramWaits) -> Vec<String> {
    let seconds = ns_to_seconds(program.waited_ns);
    let mut lines = vec![format!(
        "{} '{}' has waited for {seconds:.0} s without an event. It waits for:",
        program.client, program.name
    )];
    lines.extend(program.waits.iter().map(|wait| format!("  {wait}")));
    lines
}

fn waits_json(program: &ProgramWaits) -> Value {
    json!({
        "client": program.client.to_string(),
        "name": program.name,
        "wait_seconds": ns_to_seconds(program.waited_ns),
        "for": program.waits,
    })
}

/// The servers, each with its status if it answered in time.
pub(super) type Servers = Vec<(ServerView, Option<ServerStatus>)>;

pub(super) fn ask(grid: &Grid) -> Result<Servers> {
    Ok(grid.statuses(ANSWER_LIMIT)?)
}

pub(super) fn call_json(server: &ServerView, task: &TaskStatus) -> Value {
    json!({
        "call": task.task.to_string(),
        "function": task.function,
        "server": server.name,
        "stage": stage(task.stage),
        "run_seconds": ns_to_seconds(task.run_ns),
    })
}

/// Returns a table of at most `at_most` calls, the longest-running calls first; no lines at all if there are no calls.
pub(super) fn lines(servers: &Servers, at_most: usize) -> Vec<String> {
    let mut calls: Vec<(&ServerView, &TaskStatus)> = Vec::new();
    let (mut count, mut lines) = (0, Vec::new());
    for (server, status) in servers {
        let Some(status) = status else {
            lines.push(format!("{}: no answer within {} s", server.name, ANSWER_LIMIT.as_secs()));
            continue;
        };
        count += status.count as usize;
        calls.extend(status.tasks.iter().map(|task| (server, task)));
    }
    if calls.is_empty() {
        return lines;
    }
    calls.sort_by_key(|(_, task)| (task.stage, std::cmp::Reverse(task.run_ns)));
    lines.push(format!("{:<28} {:<24} {:<20} {:<8} {:>9}", "call", "function", "server", "stage", "ran, s"));
    for (server, TaskStatus { task, function, stage: at, run_ns }) in calls.iter().take(at_most) {
        let ran = if *run_ns > 0 { format!("{:.1}", ns_to_seconds(*run_ns)) } else { "-".to_string() };
        let function = if function.is_empty() { "(takes data)" } else { function.as_str() };
        let (task, name) = (task.to_string(), &server.name);
        lines.push(format!("{task:<28} {function:<24} {name:<20} {:<8} {ran:>9}", stage(*at)));
    }
    let shown = calls.len().min(at_most);
    if count > shown {
        lines.push(format!("and {} more", count - shown));
    }
    lines
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Running => "running",
        Stage::Paused => "calling",
        Stage::Queued => "queued",
        Stage::Waiting => "waiting",
    }
}
