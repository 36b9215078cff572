//! The commands, and code that several of them share.

pub mod agent;
pub mod audit;
pub mod calibrate;
pub mod call;
pub mod calls;
pub mod cancel;
pub mod chares;
pub mod completions;
pub mod connector;
pub mod data;
pub mod deploy;
pub mod explain;
pub mod functions;
pub mod heuristics;
pub mod idl;
pub mod keys;
pub mod logs;
pub mod manual;
#[cfg(feature = "workflows")]
pub mod map;
pub mod models;
pub mod mpirun;
mod offering;
pub mod platform;
pub mod programs;
pub mod relay;
pub mod rules;
pub mod serve;
pub mod servers;
pub mod sim;
pub mod simulate;
pub mod simulated_programs;
mod site_options;
pub mod testbed;
pub mod top;
pub mod units;
pub mod up;
pub mod usage;
pub mod worker;

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gridloom::Grid;
use gridloom_base::Escaped;
use gridloom_base::escaped::escaped_json;
use gridloom_base::limits::UPLOAD_RATE_MIN;
use gridloom_core::node::{DRAINED, Event};
use gridloom_keys::Role;
use gridloom_net::driver::NetNode;
use gridloom_net::identity::NodeKeys;
use gridloom_net::transport::emulated_sites::{SITE_VARIABLE, Site};
use gridloom_platform::units as quantities;
use rustix::fs::{FlockOperation, flock};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR2};

use self::site_options::SiteOptions;
use crate::log::LogOptions;

/// The environment variable with the agent's address, for programs and for functions that call others.
pub const AGENT_VARIABLE: &str = "GRIDLOOM_AGENT";

/// The agent's default address.
pub const AGENT_ADDRESS: &str = "127.0.0.1:7711";

/// The agent's address, for servers that register with it.
#[derive(clap::Args, Clone, Debug)]
pub struct AgentOption {
    /// Address of the agent; several, such as those of the agent and its standby, are separated by '+'
    #[arg(long, env = AGENT_VARIABLE, hide_env_values = true, default_value = AGENT_ADDRESS, value_name = "HOST:PORT",
          value_parser = parse_agent)]
    pub agent: String,
}

/// The grid that a client command uses: an agent's, or servers without an agent.
#[derive(clap::Args, Clone, Debug)]
pub struct GridOption {
    /// Address of the agent [default: GRIDLOOM_AGENT, else 127.0.0.1:7711]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_agent)]
    agent: Option<String>,
    /// Servers without an agent, separated by commas [default: GRIDLOOM_SERVERS, if no agent is given]
    #[arg(
        id = "addresses",
        long = "servers",
        value_name = "HOST:PORT",
        value_delimiter = ',',
        conflicts_with = "agent"
    )]
    servers: Vec<String>,
}

impl GridOption {
    /// Opens a session with that grid. If some servers cannot be used, standard error names them.
    pub fn connect(&self) -> Result<Grid> {
        match self.place()? {
            GridAddress::Agent(address) => Ok(Grid::connect(&address)?),
            GridAddress::Servers(addresses) => {
                let grid = Grid::connect_servers(&addresses)?;
                for (address, why) in grid.unreachable() {
                    gridloom_base::stderr_line!("gridloom: continuing without the server at {address}: {why}");
                }
                Ok(grid)
            }
        }
    }

    /// Describes the grid: `the agent at 127.0.0.1:7711`, `the servers`.
    pub fn in_words(&self) -> Result<String> {
        Ok(match self.place()? {
            GridAddress::Agent(address) => format!("the agent at {address}"),
            GridAddress::Servers(_) => "the given servers".to_string(),
        })
    }

    fn place(&self) -> Result<GridAddress> {
        let set = |name: &str| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
        if !self.servers.is_empty() {
            return Ok(GridAddress::Servers(self.servers.clone()));
        }
        if let Some(address) = &self.agent {
            return Ok(GridAddress::Agent(address.clone()));
        }
        if let Some(address) = set(AGENT_VARIABLE) {
            return match parse_agent(address.trim()) {
                Ok(address) => Ok(GridAddress::Agent(address)),
                Err(why) => bail!("GRIDLOOM_AGENT: {why}"),
            };
        }
        Ok(match set("GRIDLOOM_SERVERS") {
            // Connecting reports invalid addresses.
            Some(servers) => GridAddress::Servers(servers.split(',').map(str::to_string).collect()),
            None => GridAddress::Agent(AGENT_ADDRESS.to_string()),
        })
    }
}

/// The location of a grid.
enum GridAddress {
    Agent(String),
    Servers(Vec<String>),
}

/// The address on which an agent or server listens, and other options of both.
#[derive(clap::Args, Clone, Debug)]
pub struct ListenOptions {
    /// Address at which other nodes connect, if it differs from --listen; needed with 0.0.0.0. Several, such as those in
    /// the local network and in a VPN, are separated by '+'
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Relay through which other nodes connect if they cannot dial this one; may be repeated
    #[arg(long = "relay", value_name = "HOST:PORT", value_parser = parse_relay)]
    pub relays: Vec<String>,
    /// Grid whose keys are used, if there are several
    #[arg(long, value_name = "GRID", value_parser = keys::parse_grid)]
    grid: Option<String>,
    /// Read the keys from the first line of standard input, and look for no others
    #[arg(long, hide = true, conflicts_with = "grid")]
    keys_on_stdin: bool,
    /// End when standard input closes, so that the process ends with its parent
    #[arg(long)]
    pub until_stdin_closes: bool,
    #[command(flatten)]
    site: SiteOptions,
    #[command(flatten)]
    log: LogOptions,
    /// Do not log to standard error, even if --log is given
    #[arg(long)]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl ListenOptions {
    /// Returns the node's site.
    pub fn site(&self) -> Result<Option<Site>> {
        self.site.site()
    }

    /// Returns the same as an environment variable, for functions that connect from there.
    pub fn site_variable(&self) -> Result<Option<(String, String)>> {
        Ok(self.site()?.map(|site| (SITE_VARIABLE.into(), site.to_string())))
    }

    /// Returns the keys of an agent or server with this name: those that its parent passes, or else those in the user's
    /// folder. If `makes_grid`, the first node of a user makes a grid.
    pub fn keys(&self, role: Role, name: &str, makes_grid: bool) -> Result<NodeKeys> {
        if !self.keys_on_stdin {
            return Ok(NodeKeys::find(self.grid.as_deref(), role, name, makes_grid)?);
        }
        let mut line = String::new();
        std::io::stdin().lock().take(KEYS_BYTES_MAX).read_line(&mut line).context("standard input")?;
        Ok(NodeKeys::from_line(&line)?)
    }

    pub fn start_log(&self) {
        if !self.quiet {
            self.log.start();
        }
    }

    /// True unless the parent of the process passes its keys.
    pub fn has_keys_folder(&self) -> bool {
        !self.keys_on_stdin
    }

    /// Refuses an address that does not show at which address others can connect.
    pub fn check(&self, listen: SocketAddr) -> Result<()> {
        if listen.ip().is_unspecified() && self.advertise.is_none() && self.relays.is_empty() {
            bail!(
                "listening on {listen}: give the address at which others can connect with --advertise HOST:PORT, or a \
                 relay with --relay HOST:PORT"
            );
        }
        Ok(())
    }
}

/// Maximum size of keys on standard input.
const KEYS_BYTES_MAX: u64 = 1 << 20;

/// Parses an agent's address. Names are resolved later, each time they are used.
fn parse_agent(text: &str) -> Result<String, String> {
    gridloom::check_address(text).map(|()| text.to_string())
}

/// Parses a relay's address.
fn parse_relay(text: &str) -> Result<String, String> {
    gridloom_base::address::check_place(text).map(|()| text.to_string()).map_err(|error| error.to_string())
}

/// Parses an address to listen on. A name is resolved at once.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected HOST:PORT, such as 127.0.0.1:7711";
    let mut found = text.to_socket_addrs().map_err(|error| format!("{error}; {expected}"))?;
    found.next().ok_or_else(|| format!("no address has that name; {expected}"))
}

/// Hides the memory and the environment of this process, which contain the node's private keys, from other processes of the
/// user (and so from functions) and from core dumps. Programs that this process starts do not inherit this.
pub fn hide_memory() -> Result<()> {
    let hidden = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    hidden.context("the memory of this process cannot be hidden")
}

/// Prints one line of JSON on standard output, and flushes it.
pub fn print_json(value: &serde_json::Value) -> Result<()> {
    write_output(&format!("{}\n", escaped_json(&value.to_string())))
}

/// Prints whole lines on standard output. Control characters are escaped: parts of the text may be from a peer or a file.
pub fn print_text(text: &str) -> Result<()> {
    write_output(&Escaped(text).to_string())
}

/// Prints one line on standard output, and flushes it. Control characters are escaped, as by [`print_text`].
pub fn print_line(line: &str) -> Result<()> {
    write_output(&format!("{}\n", Escaped(line)))
}

/// Clears the terminal.
pub fn clear_terminal() -> Result<()> {
    write_output("\x1b[2J\x1b[H")
}

fn write_output(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush().context("standard output")
}

/// Stops the node on SIGINT and SIGTERM and, if `until_stdin_closes`, when the parent has ended.
pub fn stop_on_signals(node: &Arc<NetNode>, until_stdin_closes: bool) -> Result<()> {
    NODE_STOPS.store(true, Ordering::SeqCst);
    let node = node.clone();
    call_on_signals(until_stdin_closes, move || stop(&node))
}

/// Calls `stop` on SIGINT and SIGTERM and, if `until_stdin_closes`, when the parent has ended.
fn call_on_signals(until_stdin_closes: bool, stop: impl Fn() + Clone + Send + 'static) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    let on_signal = stop.clone();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            on_signal();
        }
    });
    if until_stdin_closes {
        std::thread::spawn(move || {
            // An input that cannot be read counts as closed.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            stop();
        });
    }
    Ok(())
}

/// Ends a node. A server first reports to the agent what its users have used.
fn stop(node: &NetNode) {
    node.command(gridloom_core::node::Command::Stop);
    node.stop();
}

/// Makes the node log what it waits for when the process receives SIGUSR2.
pub fn log_waits_on_signal(node: &Arc<NetNode>) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGUSR2])?;
    let node = node.clone();
    std::thread::spawn(move || signals.forever().for_each(|_| node.command(gridloom_core::node::Command::LogWaits)));
    Ok(())
}

/// True if SIGINT and SIGTERM stop the node of this process.
static NODE_STOPS: AtomicBool = AtomicBool::new(false);

/// Removes the folder and ends the process on SIGINT or SIGTERM, until the command's node runs and handles the signals.
pub fn end_on_signals(folder: &OwnFolder) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    let folder = folder.0.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if !NODE_STOPS.load(Ordering::SeqCst) {
                // The worst case is a folder left among the temporary files.
                let _ = std::fs::remove_dir_all(&folder);
                std::process::exit(128 + signal);
            }
        }
    });
    Ok(())
}

/// The reason that a node reports after `stop`.
const STOPPED: &str = "stopped";

/// Drives a node to its end, including that of a drained server. `on_event` gets each event; lines of the log have
/// been written before.
///
/// # Errors
/// If the node ended by itself: the reason.
pub fn drive(node: &NetNode, on_event: impl FnMut(Event)) -> Result<ExitCode> {
    let why = node.run_with(on_event);
    if why != STOPPED && why != DRAINED {
        bail!("{why}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Parses the name of an SVG file to write.
pub fn parse_svg(text: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    gridloom::check_svg_name(&file).map(|()| file).map_err(|error| error.to_string())
}

/// Writes a drawing, and prints its name unless the output is JSON.
pub fn write_svg(file: &Path, svg: &str, is_json: bool) -> Result<()> {
    std::fs::write(file, svg).with_context(|| format!("cannot write '{}'", file.display()))?;
    if is_json { Ok(()) } else { print_line(&format!("wrote {}", file.display())) }
}

pub fn read_text(file: &Path) -> Result<String> {
    Ok(gridloom::read_text(file)?)
}

/// Formats a number with six significant digits.
pub fn digits(value: f64) -> String {
    let rounded: f64 = format!("{value:.5e}").parse().expect("a number that was just printed");
    rounded.to_string()
}

/// Returns `file` as an absolute path.
pub fn absolute(file: &Path) -> Result<PathBuf> {
    std::path::absolute(file).with_context(|| file.display().to_string())
}

/// Formats a count: `1 function`, `2 functions`.
pub fn count(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// Parses floating-point operations per second: `20Gf`, `1e9`.
pub fn parse_speed(text: &str) -> Result<f64, String> {
    quantities::stated_speed(text)
}

/// Parses the bytes per second that a server may send.
pub fn parse_upload_rate(text: &str) -> Result<f64, String> {
    match quantities::bandwidth(text)? {
        rate if rate >= UPLOAD_RATE_MIN => Ok(rate),
        rate => {
            Err(format!("'{text}' is {rate} bytes per second; expected at least 64kBps, such as 100Mbps or 12MBps"))
        }
    }
}

/// A folder that only this user can write to; it is removed when dropped. A killed command leaves its folder; the next
/// run of that command removes it.
pub struct OwnFolder(pub PathBuf, #[expect(dead_code, reason = "held: the kernel releases it with the process")] File);

/// Age from which a folder without a lock is abandoned. A newer one may belong to a process that has not locked it yet.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

impl OwnFolder {
    pub fn new(command: &str) -> Result<OwnFolder> {
        let place = absolute(&std::env::temp_dir())?;
        remove_abandoned(&place, command);
        let name = format!("gridloom-{command}-{}", std::process::id());
        // A killed process with the same number may have left its folder.
        for path in (0..).map(|more| place.join(format!("{name}{}", "x".repeat(more)))) {
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => {
                    let locked = || {
                        made?;
                        let lock = File::open(&path)?;
                        // The lock also keeps systemd-tmpfiles from removing the folder as abandoned. File systems without
                        // locks have no sweep either, which needs the exclusive lock.
                        let _ = flock(&lock, FlockOperation::NonBlockingLockShared);
                        Ok::<File, std::io::Error>(lock)
                    };
                    return locked()
                        .map(|lock| OwnFolder(path.clone(), lock))
                        .with_context(|| path.display().to_string());
                }
            }
        }
        unreachable!("names never run out before the length of a path, which is an error")
    }
}

/// Removes the folders of killed processes of this command. A folder that cannot be removed is left for the next run.
fn remove_abandoned(place: &Path, command: &str) {
    let prefix = format!("gridloom-{command}-");
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(&prefix)).map(|rest| rest.trim_end_matches('x'));
        let is_folder_of_command = process.is_some_and(|process| process.parse::<u32>().is_ok());
        let Ok(found) = entry.metadata() else { continue };
        let is_old = found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED_AFTER));
        if !is_folder_of_command || !found.is_dir() || found.uid() != own || !is_old {
            continue;
        }
        // The lock decides. A number says nothing: another process may have it by now, or it is of another container.
        let Ok(folder) = File::open(entry.path()) else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // The worst case is a folder left among the temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod folder_tests {
    use super::*;

    #[test]
    fn a_folder_of_a_killed_command_is_removed_and_no_other() {
        let place = OwnFolder::new("sweeps").unwrap();
        let folder = |name: &str, is_old: bool| {
            let path = place.0.join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("file"), "content").unwrap();
            let folder = File::open(&path).unwrap();
            if is_old {
                folder.set_modified(std::time::SystemTime::now() - 2 * ABANDONED_AFTER).unwrap();
            }
            folder
        };
        let gone = u32::MAX - 1;
        // Another process has the number of an ended one.
        let again = std::process::id();
        folder(&format!("gridloom-it-{gone}"), true);
        folder(&format!("gridloom-it-{gone}xx"), true);
        let held = folder(&format!("gridloom-it-{gone}x"), true);
        flock(&held, FlockOperation::NonBlockingLockShared).unwrap();
        folder(&format!("gridloom-it-{gone}xxx"), false);
        folder(&format!("gridloom-it-{again}"), true);
        folder(&format!("gridloom-other-{gone}"), true);
        folder("gridloom-it-own", true);
        remove_abandoned(&place.0, "it");
        let mut left: Vec<String> = std::fs::read_dir(&place.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut due = vec![
            format!("gridloom-it-{gone}x"),
            format!("gridloom-it-{gone}xxx"),
            format!("gridloom-other-{gone}"),
            "gridloom-it-own".to_string(),
        ];
        due.sort();
        assert_eq!(left, due);
    }
}
