//! `gridloom explain`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use gridloom::{PlanRecord, StepRecord};
use serde_json::json;

use super::{parse_svg, print_json, print_text, write_svg};

/// Explain a saved plan: the work of each server, and the tasks and transfers that decide the makespan.
///
/// With a task: why it is on its server, and when it would end on each other server. `plan.save(FILE)` in Python and
/// `PlanRecord::save` in Rust save a plan with the times and links for which it was made. If the task's server or
/// order was edited in the file, the times are predicted again.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom explain plan.json\n  gridloom explain plan.json 12\n  \
gridloom explain plan.json --svg plan.svg")]
pub struct Options {
    /// The saved plan
    plan: PathBuf,
    /// Number of a task; tasks are counted from 0, in the order of their calls
    #[arg(value_parser = parse_task)]
    task: Option<usize>,
    /// Draw the plan into an SVG file: slots and links over time
    #[arg(long, value_name = "FILE", value_parser = parse_svg)]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_task(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a task's number, counted from 0".into())
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let plan = PlanRecord::load(&options.plan)?;
    if let Some(file) = &options.svg {
        write_svg(file, &plan.gantt_svg()?, options.json)?;
    }
    if let Some(task) = options.task {
        let explained = plan.explain(task)?;
        match options.json {
            true => print_json(&json!(explained))?,
            false => print_text(&explained.to_string())?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    // A plan saved without its times and links can still be shown.
    let path = plan.critical_path().unwrap_or_default();
    if options.json {
        print_json(&json!({ "plan": plan, "critical_path": path }))?;
        return Ok(ExitCode::SUCCESS);
    }
    print_text(&plan.to_string())?;
    if !path.is_empty() {
        print_text(&in_words(&path))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Number of steps printed at each end of a long path.
const STEPS_SHOWN: usize = 20;

fn in_words(path: &[StepRecord]) -> String {
    let mut text = String::from("the makespan is determined by\n");
    let left = path.len().saturating_sub(2 * STEPS_SHOWN);
    for (number, step) in path.iter().enumerate() {
        if left > 0 && number == STEPS_SHOWN {
            text.push_str(&format!("  \u{2026} {left} more\n"));
        }
        if left > 0 && (STEPS_SHOWN..STEPS_SHOWN + left).contains(&number) {
            continue;
        }
        let StepRecord { what, start_seconds, end_seconds, waits_for_slot, .. } = step;
        let waits = if *waits_for_slot { " (waits for the slot)" } else { "" };
        text.push_str(&format!("  {start_seconds:.4} s to {end_seconds:.4} s: {what}{waits}\n"));
    }
    text
}
