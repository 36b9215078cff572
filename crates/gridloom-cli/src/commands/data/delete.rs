//! `gridloom data delete`.

use std::process::ExitCode;

use anyhow::Result;
use gridloom::Error;
use gridloom_base::NameError;
use serde_json::{Value, json};

use crate::commands::{GridOption, print_json, print_line};

/// Delete names. Their bytes are freed when no program reads them any more.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom data delete run/1 run/2")]
pub struct Options {
    /// Names, as 'gridloom data' lists them
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    grid: GridOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    let (mut deleted, mut failed): (Vec<&str>, Vec<(&str, String)>) = Default::default();
    for name in &options.names {
        match grid.shared().delete(name) {
            Ok(()) => deleted.push(name),
            Err(Error::Name(error)) if !matches!(error, NameError::NoAgent { .. }) => {
                failed.push((name, error.to_string()))
            }
            Err(error) => return Err(error.into()),
        }
    }
    let code = if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if options.json {
        let failed: Vec<Value> = failed.iter().map(|(name, error)| json!({ "name": name, "error": error })).collect();
        print_json(&json!({ "deleted": deleted, "not_deleted": failed }))?;
        return Ok(code);
    }
    deleted.iter().try_for_each(|name| print_line(&format!("'{}' deleted", name)))?;
    failed.iter().for_each(|(_, error)| gridloom_base::stderr_line!("gridloom: {}", error));
    Ok(code)
}
