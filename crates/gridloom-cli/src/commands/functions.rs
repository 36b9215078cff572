//! `gridloom functions`.

use std::process::ExitCode;

use anyhow::Result;
use gridloom_base::EscapedLine;
use gridloom_idl::method::{is_automatic, is_listed};
use gridloom_idl::{Signature, method_of};
use serde_json::json;

use super::{GridOption, print_json, print_line};

/// List the functions that the grid's servers offer, or show some of them with their calls in C.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom functions --agent agent.example.org:7711\n  \
gridloom functions linalg/dgemm")]
pub struct Options {
    /// Functions to show [default: all, without their calls in C]
    #[arg(value_name = "FUNCTION")]
    names: Vec<String>,
    #[command(flatten)]
    grid: GridOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    let all = grid.functions();
    let functions: Vec<Signature> = match options.names.is_empty() {
        true => all.iter().filter(|signature| is_listed(&signature.name)).cloned().collect(),
        false => {
            let found: Result<Vec<_>, _> = options.names.iter().map(|name| grid.function(name)).collect();
            found?.iter().map(|function| function.signature().clone()).collect()
        }
    };
    let is_offered = |name: &str| all.iter().any(|signature| signature.name == name);
    let method =
        |signature: &'_ Signature| method_of(&signature.name, is_offered).map(|(_, method)| method.to_string());
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
                "c": signature.c_prototype(method(signature).as_deref()).ok(),
                "servers": offered_by(&signature.name),
            })
        });
        print_json(&json!({ "functions": list.collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if functions.is_empty() {
        print_line("no functions are offered; start a server with 'gridloom serve'")?;
    }
    for signature in functions.iter().filter(|signature| !method(signature).is_some_and(|method| is_automatic(&method)))
    {
        print_line(&signature.to_string())?;
        if !options.names.is_empty() {
            print_line(&format!(
                "    {}",
                signature.c_prototype(method(signature).as_deref()).unwrap_or_else(|why| why)
            ))?;
        }
        if !signature.about.is_empty() {
            print_line(&format!("    {}", EscapedLine(&signature.about)))?;
        }
        print_line(&format!("    on {}", offered_by(&signature.name).join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}
