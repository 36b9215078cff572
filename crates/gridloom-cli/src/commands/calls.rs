//! `gridloom calls`, and the table of calls that `gridloom top` shows too.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use gridloom::Grid;
use gridloom_base::Program;
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
    /// List only calls of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    let mut servers = ask(&grid)?;
    let mut waits = grid.waits(ANSWER_LIMIT)?;
    if let Some(user) = &options.user {
        servers.iter_mut().filter_map(|(_, status)| status.as_mut()).for_each(|status| keep_user(status, user));
        waits.retain(|wait| wait.program.user == *user);
    }
    if options.json {
        let calls =
            servers.iter().flat_map(|(server, status)| status.iter().flat_map(|status| calls_json(server, status)));
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
    let mut lines = vec![format!("{} has waited for {seconds:.0} s without an event. It waits for:", program.program)];
    lines.extend(program.waits.iter().map(|wait| format!("  {wait}")));
    lines
}

fn waits_json(program: &ProgramWaits) -> Value {
    let mut value = json!({
        "client": program.program.client.to_string(),
        "wait_seconds": ns_to_seconds(program.waited_ns),
        "for": program.waits,
    });
    add_program(&mut value, Some(&program.program));
    value
}

/// Adds user, host and name of a program to an object; null if they are unknown.
pub(super) fn add_program(object: &mut Value, program: Option<&Program>) {
    let known = |text: &String| if text.is_empty() { Value::Null } else { text.clone().into() };
    object["user"] = program.map_or(Value::Null, |program| known(&program.user));
    object["host"] = program.map_or(Value::Null, |program| known(&program.host));
    object["program"] = program.map_or(Value::Null, |program| known(&program.name));
}

/// Removes the calls of other users from a status.
fn keep_user(status: &mut ServerStatus, user: &str) {
    let is_users = |task: &TaskStatus| status.program_of(task).is_some_and(|program| program.user == user);
    let tasks: Vec<TaskStatus> = status.tasks.iter().filter(|task| is_users(task)).cloned().collect();
    (status.count, status.tasks) = (tasks.len() as u64, tasks);
}

/// The servers, each with its status if it answered in time.
pub(super) type Servers = Vec<(ServerView, Option<ServerStatus>)>;

pub(super) fn ask(grid: &Grid) -> Result<Servers> {
    Ok(grid.statuses(ANSWER_LIMIT)?)
}

pub(super) fn calls_json(server: &ServerView, status: &ServerStatus) -> Vec<Value> {
    let of = |task: &TaskStatus| {
        let mut value = json!({
            "call": task.task.to_string(),
            "function": task.function,
            "server": server.name,
            "stage": stage(task.stage),
            "run_seconds": ns_to_seconds(task.run_ns),
            "priority": task.priority.0,
        });
        add_program(&mut value, status.program_of(task));
        value
    };
    status.tasks.iter().map(of).collect()
}

/// Returns a table of at most `at_most` calls, the longest-running calls first; no lines at all if there are no calls.
pub(super) fn lines(servers: &Servers, at_most: usize) -> Vec<String> {
    let mut calls: Vec<(&ServerView, &TaskStatus, Option<&Program>)> = Vec::new();
    let (mut count, mut lines) = (0, Vec::new());
    for (server, status) in servers {
        let Some(status) = status else {
            lines.push(format!("{}: no answer within {} s", server.name, ANSWER_LIMIT.as_secs()));
            continue;
        };
        count += status.count as usize;
        calls.extend(status.tasks.iter().map(|task| (server, task, status.program_of(task))));
    }
    if calls.is_empty() {
        return lines;
    }
    calls.sort_by_key(|(_, task, _)| (task.stage, std::cmp::Reverse(task.run_ns)));
    lines.push(format!(
        "{:<28} {:<24} {:<20} {:<8} {:>8} {:>9}  {}",
        "call", "function", "server", "stage", "priority", "ran, s", "user: program"
    ));
    for (server, TaskStatus { task, function, stage: at, run_ns, priority, .. }, program) in calls.iter().take(at_most)
    {
        let ran = if *run_ns > 0 { format!("{:.1}", ns_to_seconds(*run_ns)) } else { "-".to_string() };
        let function = if function.is_empty() { "(takes data)" } else { function.as_str() };
        let (task, name) = (task.to_string(), &server.name);
        let program = program.map_or_else(|| "-".to_string(), ToString::to_string);
        let (at, priority) = (stage(*at), priority.0);
        lines.push(format!("{task:<28} {function:<24} {name:<20} {at:<8} {priority:>8} {ran:>9}  {program}"));
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
