//! `gridloom testbed`.

mod check;
mod launch;
mod show;
mod speeds;

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use gridloom_testbed::control::{self, ReplyBody, Request};
use gridloom_testbed::signals::Signals;
use gridloom_testbed::tool::{self, CleanupProcess, Testbed};
use gridloom_testbed::{enclosure, folder, probe};
use serde_json::json;

use super::simulate::exit_code;
use super::{print_json, print_line};
use crate::log::LogOptions;

/// Run real processes on an emulated network: the hosts and links of a platform file, on this machine, without root.
///
/// Each host is a network namespace. Every packet between hosts crosses the links of its route, which have the
/// bandwidth, latency, queue and sharing of the platform. Host properties name the hosts of agent, servers and client,
/// as for 'gridloom simulate'. Processes of a deployment run on their hosts. When the command has ended, for whatever
/// reason, nothing of the testbed is left.
#[derive(clap::Subcommand)]
#[command(after_help = "Examples:\n  gridloom testbed run -p two-sites.toml -- python program.py\n  \
gridloom testbed up -p two-sites.toml\n  gridloom testbed enter laptop -- ping -c 3 cluster-1\n  \
gridloom testbed cut wan")]
pub enum Options {
    Run(launch::Run),
    Up(launch::Up),
    Enter(Enter),
    /// Cut a link of a running testbed: packets that have to cross it are lost.
    ///
    /// The name in the platform means both directions of a split-duplex link; NAME_UP and NAME_DOWN mean one of them.
    #[command(after_help = "Example:\n  gridloom testbed cut wan && sleep 5 && gridloom testbed restore wan")]
    Cut(Switch),
    /// Restore a link that was cut.
    ///
    /// The name in the platform means both directions of a split-duplex link; NAME_UP and NAME_DOWN mean one of them.
    #[command(after_help = "Example:\n  gridloom testbed restore wan")]
    Restore(Switch),
    Slow(SlowHostOptions),
    /// Show a running testbed: addresses of its hosts, the traffic of each link, and how late packets were
    #[command(after_help = "Example:\n  gridloom testbed show --json")]
    Show(Named),
    /// Take a testbed down, with all processes in it
    #[command(after_help = "Example:\n  gridloom testbed down --name 4711")]
    Down(Named),
    Check(check::Check),
    #[command(hide = true)]
    Keep {
        name: String,
        channel: i32,
        #[command(flatten)]
        log: LogOptions,
    },
    #[command(hide = true)]
    Probe {
        folder: PathBuf,
        host: usize,
        address: Ipv4Addr,
    },
}

/// Run a command on a host of a running testbed; without one, a shell.
///
/// Hosts have the names from the platform, and programs on them use its grid. The command must be installed on this
/// machine: 'ping' in the example may be missing.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom testbed enter laptop -- ping -c 3 cluster-1")]
pub struct Enter {
    /// The host
    host: String,
    #[command(flatten)]
    named: Named,
    /// The command and its arguments
    #[arg(last = true)]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
pub struct Switch {
    /// The link
    link: String,
    #[command(flatten)]
    named: Named,
}

/// Slow a host down to a fraction of its speed, as the fault 'slow' does in simulation; 1 restores the full speed.
///
/// This changes the quota of processor time for calls on the host's servers. So the host needs a server, and the
/// testbed needs a grid (no --no-grid) and speeds that are emulated by quota (see --speeds of 'gridloom testbed up').
/// Programs and processes that exchange messages run at full speed.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom testbed slow cluster-1 0.1")]
pub struct SlowHostOptions {
    /// The host
    host: String,
    /// Fraction of the speed in the platform, or of the speed that a profile of the platform sets
    #[arg(value_parser = parse_factor)]
    factor: f64,
    #[command(flatten)]
    named: Named,
}

fn parse_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= 1.0 => Ok(factor),
        _ => Err("expected a number above 0, and at most 1".into()),
    }
}

#[derive(clap::Args)]
pub struct Named {
    /// Name of the testbed, if several run
    #[arg(long)]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(options: Options) -> Result<ExitCode> {
    match options {
        Options::Run(options) => launch::run(&options),
        Options::Up(options) => launch::up(&options),
        Options::Enter(options) => enter(&options),
        Options::Cut(switch) => request(&switch.named, &Request::Cut(switch.link.clone())),
        Options::Restore(switch) => request(&switch.named, &Request::Restore(switch.link.clone())),
        Options::Slow(slow) => request(&slow.named, &Request::Slow(slow.host.clone(), slow.factor)),
        Options::Show(named) => request(&named, &Request::Show),
        Options::Down(named) => down(&named),
        Options::Check(options) => check::run(&options),
        Options::Probe { folder, host, address } => {
            probe::serve(&folder, host, address)?;
            Ok(ExitCode::SUCCESS)
        }
        Options::Keep { name, channel, log } => {
            log.start();
            Ok(enclosure::run_keeper(&name, channel)?)
        }
    }
}

fn enter(options: &Enter) -> Result<ExitCode> {
    let shell = || vec![std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())];
    let words = if options.command.is_empty() { shell() } else { options.command.clone() };
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let folder = folder::find(options.named.name.as_deref())?;
    Ok(exit_code(tool::enter(&folder, &options.host, command)?))
}

fn request(named: &Named, request: &Request) -> Result<ExitCode> {
    let folder = folder::find(named.name.as_deref())?;
    match control::request(&folder, request)?.0 {
        ReplyBody::Report(report) if named.json => print_json(&serde_json::to_value(&report)?)?,
        ReplyBody::Report(report) => show::print(&report)?,
        ReplyBody::Done(line) if named.json => print_json(&json!({ "done": line }))?,
        ReplyBody::Done(line) => print_line(&line)?,
        ReplyBody::Namespaces(_) | ReplyBody::Signalled { .. } | ReplyBody::Refused(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn down(named: &Named) -> Result<ExitCode> {
    let folder = folder::find(named.name.as_deref())?;
    // The testbed ends instead of answering.
    let _ = control::request(&folder, &Request::Down);
    folder::await_end(&folder)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the command that runs this program as the testbed's supervisor process.
fn supervisor_command() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program's own path")?);
    command.args(["testbed", "keep"]);
    Ok(command)
}

/// Starts the supervisor and the testbed that `build` makes, and waits for its end. SIGINT and SIGTERM end it.
fn run_supervisor(
    name: &str,
    build: impl FnOnce(CleanupProcess, &Signals) -> Result<Testbed>,
    quiet: bool,
    json: bool,
) -> Result<ExitCode> {
    let signals = Signals::new(&[]).context("signals")?;
    let testbed = CleanupProcess::start(name, supervisor_command()?, Some(&signals))
        .map_err(Into::into)
        .and_then(|one| build(one, &signals));
    let testbed = match testbed {
        Ok(testbed) => testbed,
        Err(error) => match error.downcast_ref() {
            Some(gridloom_testbed::Error::Signalled(signal)) => {
                return Ok(ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)));
            }
            _ => return Err(error),
        },
    };
    let (code, report) = testbed.wait(&signals)?;
    match report {
        Some(report) if json => print_json(&serde_json::to_value(&report)?)?,
        Some(report) if !quiet => show::print(&report)?,
        _ => {}
    }
    Ok(ExitCode::from(code))
}
