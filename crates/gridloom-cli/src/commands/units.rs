//! `gridloom units`: prints systemd units that contain this program's path.

use std::process::ExitCode;

use anyhow::{Context, Result};

use super::print_text;

/// Print a systemd unit for an agent or a server that starts with its host.
///
/// The unit runs this program, so first install it in its final place. Options of the agent or server are in
/// /etc/gridloom/agent.conf or server.conf. Stopping the unit drains the server.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom units server > /etc/systemd/system/gridloom-server.service")]
pub struct Options {
    /// Part of the grid that the unit starts
    #[arg(value_enum)]
    unit: Unit,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Unit {
    Agent,
    Server,
}

/// Path of the program in the unit files.
const USUAL_PATH: &str = "/usr/local/bin/gridloom";

pub fn run(options: &Options) -> Result<ExitCode> {
    let text = match options.unit {
        Unit::Agent => include_str!("../../../../deploy/systemd/gridloom-agent.service"),
        Unit::Server => include_str!("../../../../deploy/systemd/gridloom-server.service"),
    };
    let program = std::env::current_exe().context("this program's own path")?;
    // A percent sign begins a specifier of systemd.
    let program = program.to_str().context("this program's own path is not UTF-8")?.replace('%', "%%");
    print_text(&text.replace(USUAL_PATH, &program))?;
    Ok(ExitCode::SUCCESS)
}
