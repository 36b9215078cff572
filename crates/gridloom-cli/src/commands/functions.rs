//! `gridloom functions`.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::{GridOption, print_json, print_line};

/// List the functions that the grid's servers offer.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom functions --agent agent.example.org:7711")]
pub struct Options {
    #[command(flatten)]
    grid: GridOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    let functions = grid.functions();
    let servers = grid.servers();
    let offered_by = |name: &str| -> Vec<&str> {
        servers.servers.iter().filter(|s| s.functions.contains_key(name)).map(|s| s.name.as_str()).collect()
    };
    if options.json {
        let list = functions.iter().map(|signature| {
            json!({
                "name": signature.name,
                "signature": signature.to_string(),
                "about": signature.about,
                "servers": offered_by(&signature.name),
            })
        });
        print_json(&json!({ "functions": list.collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if functions.is_empty() {
        print_line("no functions are offered; start a server with 'gridloom serve'")?;
    }
    for signature in functions.iter() {
        print_line(&signature.to_string())?;
        if !signature.about.is_empty() {
            print_line(&format!("    {}", signature.about))?;
        }
        print_line(&format!("    on {}", offered_by(&signature.name).join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}
