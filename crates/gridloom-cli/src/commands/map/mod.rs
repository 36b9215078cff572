//! `gridloom map`.

mod baseline;
mod drawing;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use gridloom_map::Spec;
use gridloom_workflows::{Case, Evaluated, Model, RecordedPlan, Servers, Workflow};
use serde_json::json;

use super::{count, parse_svg, print_json, print_line, print_text, read_text, write_svg};

/// Map a recorded workflow onto described servers, and print its makespan and the work of each server
///
/// Model m0 has no contention, and inputs are everywhere. In m1 inputs and final outputs are at the client. In m2
/// copies share links and network cards, and files stay where they were copied. In m2, heuristics that do not model
/// contention map as in m0. There, mct is plain GridRPC: the client sends each input for each task and gets each
/// output, and servers store nothing.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom map --workflow montage.json --platform grid.json --model m2\n  \
gridloom map --workflow montage.json --platform grid.json --model m0 --heuristic heft --json\n  \
gridloom map --workflow montage.json --platform grid.json --model m2 --plan plan.json\n  \
gridloom map --workflow montage.json --platform grid.json --svg montage.svg\n  \
gridloom map --baseline --data workflows")]
pub struct Options {
    /// Tasks and files: {"tasks": [{"id", "work_seconds", "inputs", "outputs"}], "files": {NAME: BYTES}}
    #[arg(long, value_name = "FILE", required_unless_present = "baseline")]
    workflow: Option<PathBuf>,
    /// Servers: {"speed": [...], "client_bytes_per_s": [...], "direct_bytes_per_s": {"0-1": BYTES}}, optionally with
    /// "program_start_seconds": [...]
    #[arg(long, value_name = "FILE", required_unless_present = "baseline")]
    platform: Option<PathBuf>,
    /// Model of transfers: m0, m1 or m2
    #[arg(long, default_value = "m2")]
    model: Model,
    /// Mapping heuristic, as NAME or NAME[PARAMETER=VALUE,...]
    #[arg(long, value_name = "SPEC", default_value = "auto")]
    heuristic: String,
    /// Evaluate this plan instead of mapping; a file as printed by --json
    #[arg(long, value_name = "FILE", conflicts_with = "heuristic")]
    plan: Option<PathBuf>,
    /// Map all workflows of a folder with all models, and print a table of heft, the best of four heuristics, mct and auto
    #[arg(long, conflicts_with_all = ["workflow", "platform", "plan", "heuristic", "model", "svg"])]
    baseline: bool,
    /// The folder of --baseline: baseline.json with the platforms, and the workflows
    #[arg(long, value_name = "FOLDER", default_value = "../shared/data/workflows", requires = "baseline")]
    data: PathBuf,
    /// Draw the plan into an SVG file: servers over time, and with m2 the copies on each link
    #[arg(long, value_name = "FILE", value_parser = parse_svg)]
    svg: Option<PathBuf>,
    /// List all tasks, even of a large workflow
    #[arg(long, conflicts_with_all = ["baseline", "json"])]
    tasks: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A workflow with more tasks than this is listed with --all only.
const TASKS_SHOWN: usize = 40;
/// Maximum number of servers that are listed.
const SERVERS_SHOWN: usize = 40;

pub fn run(options: &Options) -> Result<ExitCode> {
    let (Some(workflow), Some(platform)) = (&options.workflow, &options.platform) else {
        baseline::run(&options.data, options.json)?;
        return Ok(ExitCode::SUCCESS);
    };
    let workflow = Workflow::parse(&read_text(workflow)?, &shown(workflow))?;
    let servers = Servers::parse(&read_text(platform)?, &shown(platform))?;
    let case = Case { workflow: &workflow, servers: &servers, model: options.model };
    let (by, made, map_s) = match &options.plan {
        Some(file) => (shown(file), RecordedPlan::parse(&read_text(file)?, &shown(file), &workflow, &servers)?, 0.0),
        None => {
            let spec = Spec::parse(&options.heuristic)?;
            let started = Instant::now();
            let made = case.map(&spec)?;
            (spec.to_string(), made, started.elapsed().as_secs_f64())
        }
    };
    let found = case.evaluate(made).with_context(|| by.clone())?;
    if options.json {
        print_as_json(&case, &found, map_s)?;
    } else {
        print_summary(&case, &found, &by, map_s)?;
        print_tasks(&case, &found, options.tasks)?;
    }
    if let Some(file) = &options.svg {
        write_svg(file, &drawing::svg(&case, &found, &by), options.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

fn print_as_json(case: &Case<'_>, found: &Evaluated, map_s: f64) -> Result<()> {
    let text = found.plan.text(case.workflow, case.servers);
    let mut value = json!({
        "makespan_seconds": found.makespan_s,
        "lower_bound_seconds": case.lower_bound_s(),
        "map_seconds": map_s,
        "assignment": text.assignment,
        "start_seconds": text.start_seconds,
    });
    if case.model == Model::M2 {
        value["sources"] = json!(text.sources);
    }
    if found.plan.is_stateless {
        value["plain"] = json!(true);
    }
    print_json(&value)
}

fn print_summary(case: &Case<'_>, found: &Evaluated, by: &str, map_s: f64) -> Result<()> {
    let (workflow, bound_s) = (case.workflow, case.lower_bound_s());
    let (tasks, on) = (count(workflow.tasks.len(), "task"), count(case.servers.len(), "server"));
    let over =
        if bound_s > 0.0 { format!(": {:.2} times the bound", found.makespan_s / bound_s) } else { String::new() };
    let mut text = format!("{by}: {tasks} on {on}, mapped in {map_s:.3} s\n");
    text += &format!("makespan {:.6} s, lower bound {bound_s:.6} s{over}\n", found.makespan_s);
    let mut servers = vec![(0usize, 0.0f64); case.servers.len()];
    for (task, server) in found.plan.servers.iter().enumerate() {
        let (tasks, busy_s) = &mut servers[*server as usize];
        *tasks += 1;
        *busy_s += found.end_s[task] - found.plan.start_s[task];
    }
    text += &format!("{:>6} {:>7} {:>7}\n", "server", "tasks", "busy");
    for (server, (tasks, busy_s)) in servers.iter().enumerate().take(SERVERS_SHOWN) {
        let part = if found.makespan_s > 0.0 { 100.0 * busy_s / found.makespan_s } else { 0.0 };
        text += &format!("{server:>6} {tasks:>7} {part:>5.0} %\n");
    }
    if servers.len() > SERVERS_SHOWN {
        text += &format!("and {} more\n", count(servers.len() - SERVERS_SHOWN, "server"));
    }
    print_text(&text)
}

fn print_tasks(case: &Case<'_>, found: &Evaluated, is_asked: bool) -> Result<()> {
    let workflow = case.workflow;
    if !is_asked && workflow.tasks.len() > TASKS_SHOWN {
        return print_line("--tasks lists all tasks, --json prints the plan");
    }
    let mut text = format!("{:>6} {:>14} {:>14}  task\n", "server", "start", "end");
    for task in found.plan.order(workflow) {
        let (task, server) = (task as usize, found.plan.servers[task as usize]);
        let (start_s, end_s) = (found.plan.start_s[task], found.end_s[task]);
        text += &format!("{server:>6} {start_s:>14.6} {end_s:>14.6}  {}\n", workflow.tasks[task].id);
    }
    print_text(&text)
}
