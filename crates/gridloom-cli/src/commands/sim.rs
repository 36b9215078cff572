//! `gridloom sim`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use gridloom_flow::Reach;
use gridloom_sim::replay::{ActivityResult, Kind, Scenario, run as replay_run};
use serde_json::{Map, json};

use super::{count, print_json, print_line, read_text};

/// Simulate without machines: only the models of links and processors.
#[derive(clap::Subcommand)]
#[command(after_help = "Example:\n  gridloom sim replay scenario.json")]
pub enum Options {
    /// Print when each activity of a scenario ends
    ///
    /// A scenario is a JSON file of hosts, links, routes, profiles, and transfers and executions that start at given
    /// dates or after each other. An activity without progress for 30 days, or for 10 million changes, never ends.
    /// Dates are those of SimGrid 4.1, even where SimGrid omits links from a solution (see --connected).
    #[command(after_help = "Example:\n  gridloom sim replay scenario.json --json")]
    Replay {
        /// The scenario
        file: PathBuf,
        /// Solve for all links that a change affects; SimGrid 4.1 omits links of flows that begin to share at the same time
        #[arg(long)]
        connected: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(options: &Options) -> Result<ExitCode> {
    match options {
        Options::Replay { file, connected, json } => replay(file, *connected, *json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn replay(file: &Path, connected: bool, json: bool) -> Result<()> {
    let scenario =
        Scenario::parse(&read_text(file)?, &file.display().to_string()).map_err(|error| anyhow!("{error}"))?;
    let ended = replay_run(&scenario, if connected { Reach::Connected } else { Reach::AsReference });
    let named = || scenario.activities.iter().zip(&ended);
    if json {
        // JSON has no infinity: an activity that never ends has no date.
        let dates: Map<_, _> = named().map(|(activity, ended)| (activity.name.clone(), json!(ended.end_s))).collect();
        let failed: Vec<&str> = named().filter(|(_, ended)| ended.failed).map(|(one, _)| one.name.as_str()).collect();
        return print_json(&json!({ "finish_times": dates, "failed": failed }));
    }
    let width = scenario.activities.iter().map(|activity| activity.name.len()).max().unwrap_or(0).max(8);
    print_line(&format!("{:<width$}  {:<4}  {:>16}  {:>16}", "activity", "type", "start, s", "end, s"))?;
    for (activity, ActivityResult { start_s, end_s, failed }) in named() {
        let kind = match activity.kind {
            Kind::Transfer { .. } => "comm",
            Kind::Execution { .. } => "exec",
        };
        let failed = if *failed { "  failed" } else { "" };
        let end = date(*end_s);
        print_line(&format!("{:<width$}  {kind}  {:>16}  {end:>16}{failed}", activity.name, date(*start_s)))?;
    }
    let makespan_s = ended.iter().map(|ended| ended.end_s).fold(0.0, f64::max);
    let failures = ended.iter().filter(|ended| ended.failed).count();
    let activities = count(ended.len(), "activity").replace("activitys", "activities");
    print_line(&format!(
        "{activities}, {failures} failed, makespan {}",
        if makespan_s.is_finite() { format!("{makespan_s:.9} s") } else { NEVER.into() }
    ))
}

/// Shown in the table; JSON has no date in that case.
const NEVER: &str = "never";

fn date(seconds: f64) -> String {
    if seconds.is_finite() { format!("{seconds:.9}") } else { NEVER.into() }
}
