//! `gridloom heuristics`.

use std::process::ExitCode;

use anyhow::Result;
use gridloom_core::map::HEURISTICS;
use serde_json::json;

use super::{print_json, print_line};

/// List the heuristics that map groups, with their sources.
#[derive(clap::Args)]
pub struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    if options.json {
        let list = HEURISTICS.iter().map(|h| json!({ "name": h.name, "about": h.about, "source": h.source }));
        print_json(&json!({ "heuristics": list.collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for heuristic in HEURISTICS {
        print_line(&format!("{}\n    {}\n    {}", heuristic.name, heuristic.about, heuristic.source))?;
    }
    Ok(ExitCode::SUCCESS)
}
