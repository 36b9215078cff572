//! `gridloom data share`.

use std::process::ExitCode;

use anyhow::Result;
use gridloom_base::Escaped;
use serde_json::json;

use crate::commands::{GridOption, print_json, print_line};

/// Share a name with users and groups of the grid, and with no others.
///
/// They can find and read it, and its later versions, as ~OWNER/NAME. Only the owner and administrators can replace, share and
/// delete it. Users with whom it is no longer shared can still read data that they have already found.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  gridloom data share mesh --with bert carol\n  gridloom data share mesh --with group:climate\n  \
                        gridloom data share mesh --with '*'\n  gridloom data share mesh --with-nobody"
)]
pub struct Options {
    /// The name
    name: String,
    /// Users, as 'gridloom keys list' shows them, or groups of the grid's rules, as 'group:NAME'; '*' is everybody
    #[arg(long, value_name = "USER", num_args = 1.., required_unless_present = "with_nobody")]
    with: Vec<String>,
    /// Stop sharing it
    #[arg(long, conflicts_with = "with")]
    with_nobody: bool,
    #[command(flatten)]
    grid: GridOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let Options { name, with, grid, json, .. } = options;
    grid.connect()?.shared().share(name, with)?;
    if *json {
        print_json(&json!({ "name": name, "readers": with }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let readers = match &with[..] {
        [] => "nobody".to_string(),
        users if users.iter().any(|user| user == "*") => "all users".to_string(),
        users => users.iter().map(|user| Escaped(user).to_string()).collect::<Vec<_>>().join(", "),
    };
    print_line(&format!("'{}' is shared with {readers}", Escaped(name)))?;
    Ok(ExitCode::SUCCESS)
}
