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
    let program = program.to_str().context("this program's own path is not UTF-8")?;
    print_text(&text.replace(USUAL_PATH, &quoted(program)))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a path as the first word of a command of systemd.
fn quoted(path: &str) -> String {
    // A percent sign begins a specifier, even between quotation marks.
    let path = path.replace('%', "%%");
    if !path.contains(|letter: char| letter.is_whitespace() || "\"'\\".contains(letter)) {
        return path;
    }
    format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn paths_with_blanks_and_quotation_marks_are_quoted() {
        assert_eq!(quoted("/opt/50%/gridloom"), "/opt/50%%/gridloom");
        assert_eq!(quoted("/opt/Ünsere Gruppe/gridloom"), "\"/opt/Ünsere Gruppe/gridloom\"");
        assert_eq!(quoted(r#"/a "b"\c"#), r#""/a \"b\"\\c""#);
    }
}
