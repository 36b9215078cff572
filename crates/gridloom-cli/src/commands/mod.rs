//! The commands, and what several of them share.

pub mod agent;
pub mod call;
pub mod functions;
pub mod heuristics;
pub mod idl;
pub mod platform;
pub mod serve;
pub mod servers;
pub mod simulate;
pub mod worker;

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use gridloom_core::node::Event;
use gridloom_net::driver::NetNode;
use gridloom_net::identity::Secret;

/// Where an agent listens, unless told otherwise.
pub const AGENT_ADDRESS: &str = "127.0.0.1:7711";

/// The agent's address, for commands that are clients or servers of it.
#[derive(clap::Args, Clone, Debug)]
pub struct AgentOption {
    /// Address of the agent
    #[arg(long, env = "GRIDLOOM_AGENT", default_value = AGENT_ADDRESS, value_name = "HOST:PORT")]
    pub agent: String,
}

/// The grid's secret, from `GRIDLOOM_SECRET` or the file that `GRIDLOOM_SECRET_FILE` names.
pub fn secret() -> Result<Secret> {
    Ok(Secret::from_env()?.unwrap_or_else(Secret::none))
}

/// One line of JSON on standard output, at once.
pub fn print_json(value: &serde_json::Value) -> Result<()> {
    print_line(&value.to_string())
}

/// One line on standard output, at once.
pub fn print_line(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush().context("standard output")
}

/// Ends the node on SIGINT and SIGTERM and, if asked, when standard input closes (the parent has ended).
pub fn end_with(node: &Arc<NetNode>, until_stdin_closes: bool) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([2, 15])?;
    let stopped = node.clone();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            stopped.stop();
        }
    });
    if until_stdin_closes {
        let stopped = node.clone();
        std::thread::spawn(move || {
            let mut sink = [0; 256];
            while matches!(std::io::stdin().read(&mut sink), Ok(length) if length > 0) {}
            stopped.stop();
        });
    }
    Ok(())
}

/// Drives a node to its end. Lines of its log go to standard error, unless it is to be quiet.
pub fn drive(node: &NetNode, name: &str, quiet: bool) -> Result<ExitCode> {
    let why = node.run_with(|event| {
        if let Event::Log(line) = event
            && !quiet
        {
            eprintln!("gridloom: {name}: {line}");
        }
    });
    if why.contains("refused") {
        bail!("{why}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Bytes in words or as a plain number: `4GiB`, `500MB`, `1048576`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "" | "B" => 1.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        "TiB" => 1_099_511_627_776.0,
        other => return Err(format!("unknown unit '{other}'; expected B, kB, MB, GB, TB, KiB, MiB, GiB or TiB")),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 => Ok((number * factor) as u64),
        _ => Err(format!("'{text}' is no positive number of bytes, such as 4GiB")),
    }
}
