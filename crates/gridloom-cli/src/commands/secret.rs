//! `gridloom secret`.

use std::io::ErrorKind;
use std::process::ExitCode;

use anyhow::{Result, bail};
use gridloom_net::identity::{Secret, secret_file};
use serde_json::json;

use super::{print_json, print_text};

/// Show where the grid's secret is, and how to copy it to another machine.
///
/// All nodes of a grid share one secret. Programs take it from the variable GRIDLOOM_SECRET, else from the file that
/// GRIDLOOM_SECRET_FILE names, else from the file gridloom/secret in the user's configuration folder (XDG_CONFIG_HOME,
/// or ~/.config). The first agent of a user creates that file. The command does not print the secret. It prints a
/// fingerprint: two machines with the same fingerprint have the same secret.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom secret\n  gridloom secret --make")]
pub struct Options {
    /// Create the user's secret if there is none
    #[arg(long)]
    make: bool,
    /// Replace the user's secret by a new one; running agents and servers use the old one until they are restarted
    #[arg(long, conflicts_with = "make")]
    replace: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    if options.make || options.replace {
        match Secret::make(options.replace) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && options.make => {}
            made => drop(made?),
        }
    }
    let secret = Secret::find()?;
    if secret.is_missing() {
        bail!("there is no grid secret: {}; on that machine, 'gridloom secret --make' makes one", secret.remedy());
    }
    let file = secret.file().map(|file| file.display().to_string());
    let carry = file.as_deref().map(carry);
    if options.json {
        print_json(&json!({ "file": file, "fingerprint": secret.fingerprint(), "carry": carry }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let place = file.unwrap_or_else(|| "the variable GRIDLOOM_SECRET".into());
    let mut text = format!("grid secret: {place}\nfingerprint: {}\n", secret.fingerprint());
    match carry {
        Some(carry) => text += &format!("to copy it to the machine HOST, run here:\n  {carry}\n"),
        None => text += "set GRIDLOOM_SECRET to the same value on each machine\n",
    }
    // A secret named in the environment takes precedence over the user's own.
    if secret.file() != secret_file().as_deref() && (options.make || options.replace) {
        text += "the user's own secret is not used while GRIDLOOM_SECRET or GRIDLOOM_SECRET_FILE is set\n";
    }
    print_text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the command that copies the file to its usual place on another machine, readable by its user only.
fn carry(file: &str) -> String {
    let there = "umask 077; mkdir -p ~/.config/gridloom && cat > ~/.config/gridloom/secret";
    format!("ssh HOST '{there}' < '{file}'")
}
