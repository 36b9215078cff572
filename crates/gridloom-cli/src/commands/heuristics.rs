//! `gridloom heuristics`.

use std::process::ExitCode;

use anyhow::Result;
use gridloom_map::{ALIASES, HEURISTICS};
use serde_json::json;

use super::{print_json, print_line};

/// List the heuristics that map groups, with their parameters and sources.
///
/// Programs name one as NAME or NAME[PARAMETER=VALUE,...], such as heft or random[seed=3].
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom heuristics --json")]
pub struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    if options.json {
        let list = HEURISTICS.iter().map(|heuristic| {
            let parameters = heuristic.parameters.iter();
            let parameters = parameters.map(|p| json!({ "name": p.name, "about": p.about, "default": p.default }));
            json!({
                "name": heuristic.name,
                "aliases": aliases(heuristic.name),
                "about": heuristic.about,
                "source": heuristic.source,
                "parameters": parameters.collect::<Vec<_>>(),
            })
        });
        print_json(&json!({ "heuristics": list.collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for heuristic in HEURISTICS {
        let names = [&[heuristic.name], &aliases(heuristic.name)[..]].concat().join(", or ");
        print_line(&format!("{names}\n    {}\n    {}", heuristic.about, heuristic.source))?;
        for parameter in heuristic.parameters {
            print_line(&format!("    [{}={}] {}", parameter.name, parameter.default, parameter.about))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the other names of a heuristic.
fn aliases(name: &str) -> Vec<&'static str> {
    ALIASES.iter().filter(|(_, called)| *called == name).map(|(alias, _)| *alias).collect()
}
