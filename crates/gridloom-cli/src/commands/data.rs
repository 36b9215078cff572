//! `gridloom data`.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use gridloom::{Error, Grid, SharedDataEntry};
use gridloom_base::near::did_you_mean;
use gridloom_base::{Escaped, NameError};
use serde_json::{Value, json};

use super::{GridOption, print_json, print_line, print_text};
use crate::quantities::{counted, scaled};

mod delete;
mod explain;
mod share;

/// Maximum number of servers that a line lists for one name.
const SERVERS_SHOWN: usize = 4;
/// Width of the name column; a longer name shifts the rest of its line to the right.
const NAME_WIDTH_MAX: usize = 40;

/// List shared data that you may read: their names, sizes, and the servers that store them.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  gridloom data\n  gridloom data run/ --json\n  gridloom data explain mesh\n  gridloom data delete run/1 run/2\n  gridloom data share mesh --with bert"
)]
pub struct Options {
    /// List only names with this prefix [default: all]; write -- before a prefix that is also a command
    prefix: Option<String>,
    #[command(flatten)]
    grid: GridOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    Explain(explain::Options),
    Delete(delete::Options),
    Share(share::Options),
}

pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.command {
        None => list(options),
        Some(Command::Explain(options)) => explain::run(options),
        Some(Command::Delete(options)) => delete::run(options),
        Some(Command::Share(options)) => share::run(options),
    }
}

fn list(options: &Options) -> Result<ExitCode> {
    let grid = options.grid.connect()?;
    let (shared, prefix) = (grid.shared(), options.prefix.as_deref().unwrap_or(""));
    if options.json {
        let names: Vec<Value> = shared.list(prefix)?.iter().map(name_json).collect();
        print_json(&json!({ "names": names }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut count, mut bytes) = (0, 0.0);
    for page in shared.list_pages(prefix) {
        let names = page?;
        print_text(&table(&names, count == 0))?;
        count += names.len();
        bytes += names.iter().map(|one| one.meta.size_bytes() as f64).sum::<f64>();
    }
    print_line(&match (count, prefix) {
        (0, "") => "no shared data".to_string(),
        (0, prefix) => {
            format!("no shared data with a name that begins with '{}'{}", prefix, similar_names(&grid, prefix))
        }
        _ => format!("{}, {}", counted(count, "name"), scaled(bytes, "B")),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Returns existing names similar to a prefix that matches none.
fn similar_names(grid: &Grid, prefix: &str) -> String {
    match grid.shared().explain(prefix) {
        Err(Error::Name(NameError::Unknown { near, .. })) => did_you_mean(&near),
        // Any other failure is no reason for an error: there is nothing to list.
        _ => String::new(),
    }
}

fn name_json(one: &SharedDataEntry) -> Value {
    json!({
        "name": one.name,
        "version": one.version,
        "kind": one.meta.to_string(),
        "size_bytes": one.meta.size_bytes(),
        "replicas": one.replicas,
        "durable": one.is_durable,
        "method": one.method.to_string(),
        "owner": one.owner,
        "readers": one.readers,
        "servers": one.servers,
    })
}

fn table(names: &[SharedDataEntry], has_head: bool) -> String {
    let shown: Vec<String> = names.iter().map(|one| Escaped(&one.name).to_string()).collect();
    let kinds: Vec<String> = names.iter().map(|one| one.meta.to_string()).collect();
    let width = |texts: &[String], least: usize| {
        let longest = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        longest.clamp(least, NAME_WIDTH_MAX)
    };
    let (name_width, kind_width) = (width(&shown, 12), width(&kinds, 16));
    let mut text = String::new();
    // Writing to a string cannot fail.
    if has_head && !names.is_empty() {
        let (name, kind) = ("name", "kind");
        let _ = writeln!(
            text,
            "{name:<name_width$} {:>7} {:>9}  {kind:<kind_width$} {:>4}  {:<7}  {:<12}  servers",
            "version", "size", "keep", "durable", "owner"
        );
    }
    for ((one, name), kind) in names.iter().zip(&shown).zip(&kinds) {
        let (size, servers) = (scaled(one.meta.size_bytes() as f64, "B"), some_of(&one.servers));
        let owner = Escaped(&one.owner).to_string();
        let (version, replicas, durable) = (one.version, one.replicas, if one.is_durable { "yes" } else { "no" });
        let _ = writeln!(
            text,
            "{name:<name_width$} {version:>7} {size:>9}  {kind:<kind_width$} {replicas:>4}  {durable:<7}  {owner:<12}  {servers}"
        );
    }
    text
}

/// Lists the names of servers, or some of them if there are many.
fn some_of(servers: &[String]) -> String {
    match servers.len() {
        0 => "lost".into(),
        count if count <= SERVERS_SHOWN => servers.join(", "),
        count => format!("{} and {} more", servers[..SERVERS_SHOWN - 1].join(", "), count - SERVERS_SHOWN + 1),
    }
}
