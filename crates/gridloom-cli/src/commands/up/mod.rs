//! `gridloom up`: starts a grid from a file of hosts.
//!
//! The agent starts first, then all servers at the same time. If a host fails, the command names it and continues with the others.

mod allocate;
mod code;
mod copies;
mod down;
mod drain;
mod fault;
mod folders;
mod host;
mod pbs;
mod pipe_reader;
mod plan;
mod process;
mod processes;
mod progress_reader;
mod python;
mod remote;
mod request;
mod running;
mod slurm;
mod source;
mod ssh;
mod state;
mod status;
mod wait_for_end;

pub use code::{PYTHON_PATH, code_folder, python_path};
pub use down::Options as Down;
pub use drain::Options as Drain;
pub use host::Options as HostOptions;
pub use processes::{Options as ProcessHostOptions, Reconnects};
pub use status::Options as Status;

pub use down::run as run_down;
pub use drain::run as run_drain;
pub use host::run as run_host;
pub use status::run as run_status;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gridloom_keys::{DAY, Grant, GridFolder, Identity, KeysFolder, Patterns, Role, UnixTime};
use gridloom_net::identity::IssuedKeys;
use serde_json::{Value, json};

use super::{absolute, count, hide_memory, print_json, print_line};
use code::{Code, hash_in};
use copies::ReceivedCopy;
use fault::{Fault, HostFailure};
use plan::{AGENT, ConnectOptions, HostPlan, SERVER_LABEL, plan_file};
use python::{Environment, INSPECT_TIMEOUT, PythonSpec, default_interpreter, skews};
use request::{Action, CODE, Launch, Part, PartState, PythonCheck, StartRequest, State};
use source::{HostsToStart, Source};
use state::{Grid, Host};

/// Start the agent and the servers of a file of hosts, by ssh or in an allocation of Slurm.
///
/// FILE is a platform file. Properties of its hosts define how ssh reaches a host, and what runs there: see the page
/// "From a file of hosts to a running grid". Each host needs 'gridloom' of this version on its path, or its file in
/// the property 'gridloom', or 'send = true': then this program is copied there. The agent starts first, then all
/// servers at the same time. The keys of each part are made here, and are sent through ssh's standard input.
///
/// With --slurm or --pbs the hosts are the nodes of a job: see the page "In a job of Slurm or PBS". Then the number of
/// the job is part of the grid's name, unless the command requests the job itself, as the property 'sbatch' defines.
///
/// Parts that run already are left as they are, so you can run the command again after you have corrected a host.
/// 'gridloom status' and 'gridloom down' find the grid by its name. The exit status is 0 if everything runs, 3 if some
/// hosts failed, and 1 if there is no grid.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom up grid.toml\n  gridloom up grid.toml --slurm")]
pub struct Options {
    /// Platform file: TOML, or SimGrid's XML
    file: PathBuf,
    /// Name of the grid [default: that of the file]
    #[arg(long)]
    name: Option<String>,
    /// Grid whose authority issues the keys, if there are several
    #[arg(long, value_name = "GRID", value_parser = super::keys::parse_grid)]
    grid: Option<String>,
    #[command(flatten)]
    source: Source,
    /// Seconds that a host has to answer ssh
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=600))]
    connect_timeout: u32,
    /// Seconds that agent and servers have to start and register
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = super::simulate::seconds)]
    wait: f64,
    /// Restart running servers, one host after the other: each is drained first. The agent keeps running
    #[arg(long)]
    restart: bool,
    /// Seconds that a server has to drain, with --restart
    #[arg(long, default_value = "600", value_name = "SECONDS", value_parser = super::simulate::seconds, requires = "restart")]
    drain_wait: f64,
    /// The ssh command, with its first arguments
    #[arg(long, default_value = "ssh", value_name = "COMMAND", value_parser = parse_words)]
    ssh: CommandWords,
    /// Print JSON, a line for each host, and one for the grid
    #[arg(long)]
    json: bool,
}

/// A command and its arguments.
#[derive(Clone)]
pub struct CommandWords(Vec<String>);

pub fn parse_words(text: &str) -> Result<CommandWords, String> {
    // The path of a program may have blanks.
    let words = if Path::new(text).is_file() { Some(vec![text.to_string()]) } else { shlex::split(text) };
    let Some(mut words) = words.filter(|words| !words.is_empty()) else {
        return Err("expected a command, in which each quotation mark is closed".into());
    };
    // Made absolute so that 'down' finds it from another folder.
    if words[0].contains('/') {
        words[0] = absolute(words[0].as_ref()).map_err(|error| error.to_string())?.display().to_string();
    }
    Ok(CommandWords(words))
}

/// Seconds in addition to --wait for work of a host other than waiting.
const SLACK_S: f64 = 20.0;
/// Exit status if some hosts failed.
const SOME_FAILED: u8 = 3;

pub fn run(options: &Options) -> Result<ExitCode> {
    hide_memory()?;
    let name = match (&options.name, options.file.file_stem().and_then(|stem| stem.to_str()), options.source.job()?) {
        (Some(name), ..) => name.clone(),
        (None, Some(stem), None) => stem.to_string(),
        (None, Some(stem), Some(job)) => format!("{stem}-{job}"),
        (None, None, _) => bail!("{}: no file", options.file.display()),
    };
    let _lock = state::lock(&name)?;
    let before = Grid::read(&name)?;
    let known: Vec<String> = before.iter().flat_map(|grid| &grid.hosts).map(|host| host.name.clone()).collect();
    let mut grid = grid_of(&name, before, options)?;
    let check = || {
        let hosts = plan_file(&options.file, &options.reach())?;
        packed(&hosts).map(drop)
    };
    match options.source.allocate(&mut grid, check).and_then(|()| start(options, grid.clone(), &known)) {
        Err(error) if known.is_empty() => {
            // If an error occurs before anything was started, no job is left behind.
            match Grid::read(&name)?.filter(|grid| grid.hosts.is_empty()) {
                Some(grid) => grid.remove().and(Err(error)),
                None => Err(error),
            }
        }
        done => done,
    }
}

/// Starts the parts in the file. `known` are hosts that the grid had before.
fn start(options: &Options, mut before: Grid, known: &[String]) -> Result<ExitCode> {
    let name = before.name.clone();
    let found = options.source.find(&options.file, &before, &options.reach())?;
    let HostsToStart { hosts, removed_hosts: gone } = found;
    before.hosts.retain(|host| !gone.contains(&host.name));
    let codes = packed(&hosts)?;
    let keys = options.keys()?;
    let mut up = GridStart {
        grid: recorded(before, &hosts),
        client_keys: client_keys(&keys)?,
        keys,
        codes,
        received: Mutex::default(),
        pythons: Mutex::default(),
        options,
    };
    up.grid.write()?;
    let head = hosts.first().context("the file has no host")?;
    let agent = match up.start(head, head.agent.clone()).and_then(|states| address_of(&states, head)) {
        Ok(agent) => agent,
        Err(trouble) => {
            up.report_host(head, Err(&trouble))?;
            forget(up.grid, known, &hosts, |host| host == head.name && trouble.may_run)?;
            bail!("the agent does not run, so no server was started");
        }
    };
    up.grid.agent = Some(agent.clone());
    up.grid.write()?;
    if head.server.is_none() {
        up.report_host(head, Ok(&agent))?;
    }
    let troubles = match options.restart {
        false => up.start_servers(&hosts, &agent)?,
        true => up.restart_servers(&hosts, &agent)?,
    };
    up.report_codes()?;
    up.report_skews(&hosts)?;
    let is_free = |host: &str| troubles.iter().any(|trouble| trouble.host == host && !trouble.may_run);
    forget(up.grid, known, &hosts, |host| host == head.name || !is_free(host))?;
    let (servers, failed) = (hosts.iter().filter(|host| host.server.is_some()).count(), troubles.len());
    match options.json {
        true => print_json(&json!({ "grid": name, "agent": agent, "servers": servers - failed, "failed": failed }))?,
        false if failed == 0 => print_line(&format!(
            "grid '{name}' runs with {}; programs find it with: export GRIDLOOM_AGENT={agent}",
            count(servers, "server")
        ))?,
        false if options.restart => gridloom_base::stderr_line!(
            "gridloom: the servers of the following hosts are unchanged; correct the error and run the same command again"
        ),
        false => gridloom_base::stderr_line!(
            "gridloom: {failed} of {} failed; correct that and run the same command again, or 'gridloom down {name}'",
            count(servers, "server")
        ),
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}

impl Options {
    fn reach(&self) -> ConnectOptions {
        ConnectOptions { ssh: self.ssh.0.clone(), connect_s: self.connect_timeout }
    }

    /// Returns the keys of the grid, whose authority is here. The first command of a user makes a grid.
    fn keys(&self) -> Result<GridFolder> {
        let folder = KeysFolder::find()?;
        let keys = match &self.grid {
            None => folder.existing_or_new(UnixTime::now())?,
            Some(grid) => folder.existing(Some(grid))?,
        };
        // Without it, nothing could be started.
        keys.authority()?;
        Ok(keys)
    }
}

/// Issues the keys of a client that calls nothing, by which hosts check whether their parts answer.
fn client_keys(keys: &GridFolder) -> Result<String> {
    let identity = Identity::new(keys.grid(), Role::Client, "gridloom up")?;
    let grant = Grant { identity, user: None, functions: Patterns::default(), lifetime: DAY };
    Ok(keys.issue(&grant, UnixTime::now())?.to_pem())
}

/// Packs the folders that are sent to these hosts.
fn packed(hosts: &[HostPlan]) -> Result<Vec<Code>> {
    let codes: BTreeSet<&Path> = hosts.iter().filter_map(|host| host.code.as_deref()).collect();
    codes.into_iter().map(Code::pack).collect()
}

/// Returns the existing grid, or a new one.
fn grid_of(name: &str, before: Option<Grid>, options: &Options) -> Result<Grid> {
    let file = absolute(&options.file)?;
    std::fs::metadata(&file).with_context(|| options.file.display().to_string())?;
    match before {
        Some(before) if before.file != file => bail!(
            "a grid '{name}' was started from '{}': choose another --name for this one, or run 'gridloom down {name}' first",
            before.file.display()
        ),
        Some(before) => Ok(before),
        None => Grid::new(name, file),
    }
}

/// Returns the grid as it is recorded from now on. Hosts from an earlier file are kept, because their parts may run.
fn recorded(mut grid: Grid, hosts: &[HostPlan]) -> Grid {
    for host in hosts {
        let new = Host { name: host.name.clone(), target: host.target.clone(), labels: host.labels() };
        match grid.hosts.iter_mut().find(|known| known.name == host.name) {
            Some(known) => {
                let old = known.labels.iter().filter(|label| !new.labels.contains(label));
                let labels = new.labels.iter().chain(old).cloned().collect();
                *known = Host { labels, ..new };
            }
            None => grid.hosts.push(new),
        }
    }
    grid
}

/// Records the grid without hosts on which nothing can run: those that were not `known` before, and for which
/// `may_run` returns false.
fn forget(mut grid: Grid, known: &[String], hosts: &[HostPlan], may_run: impl Fn(&str) -> bool) -> Result<()> {
    let is_new = |name: &String| hosts.iter().any(|host| host.name == *name) && !known.contains(name);
    grid.hosts.retain(|host| !is_new(&host.name) || may_run(&host.name));
    if grid.hosts.is_empty() { grid.remove() } else { grid.write() }
}

/// A grid that is being started.
struct GridStart<'a> {
    grid: Grid,
    keys: GridFolder,
    client_keys: String,
    /// Folders of programs that are sent to hosts.
    codes: Vec<Code>,
    /// Hosts that have received a folder, and their copies.
    received: Mutex<Vec<(String, ReceivedCopy)>>,
    /// The Python environment of each host.
    pythons: Mutex<BTreeMap<String, Environment>>,
    options: &'a Options,
}

impl GridStart<'_> {
    /// Drains and restarts one server after the other. Stops at the first failure, because the next ones might fail as well.
    fn restart_servers(&self, hosts: &[HostPlan], agent: &str) -> Result<Vec<HostFailure>> {
        for host in hosts.iter().filter(|host| host.server.is_some()) {
            // If there is no room for the new folder, or if Python lacks something, the server keeps running unchanged.
            let ready = self.send_code(host).and_then(|code| self.check_python(host, code));
            let troubles = match ready.and_then(|()| self.drain(host)) {
                Ok(()) => self.start_servers(std::slice::from_ref(host), agent)?,
                Err(trouble) => {
                    self.report_host(host, Err(&trouble))?;
                    vec![trouble]
                }
            };
            if !troubles.is_empty() {
                return Ok(troubles);
            }
        }
        Ok(Vec::new())
    }

    /// Refuses a Python with which the server would not start.
    fn check_python(&self, host: &HostPlan, code: Option<String>) -> Result<(), HostFailure> {
        let Some(asked) = host.server.as_ref().and_then(|server| server.python.clone()) else { return Ok(()) };
        let python = PythonCheck { python: asked, code, folder: host.folder.clone() };
        let limit = INSPECT_TIMEOUT + Duration::from_secs_f64(SLACK_S);
        host.target.python(&host.name, &self.grid.request(Action::Python(python)), limit).map(drop)
    }

    fn drain(&self, host: &HostPlan) -> Result<(), HostFailure> {
        let labels = host.server.iter().map(|server| server.label.clone()).collect();
        let wait_s = self.options.drain_wait;
        let drain = Action::Drain { labels, wait_s };
        let limit = Duration::from_secs_f64(wait_s + SLACK_S);
        let states = host.target.request(&host.name, &self.grid.request(drain), limit)?;
        match states.iter().find(|state| state.state != State::Ended) {
            None => Ok(()),
            Some(left) => Err(HostFailure {
                host: host.name.clone(),
                why: format!(
                    "'{}' still drains after {wait_s} s: it has calls, or data that programs need",
                    left.label
                ),
                tried: "SIGUSR1 on that host".into(),
                remedy: "wait and run the same command again, raise --drain-wait, or 'gridloom drain HOST --now'"
                    .into(),
                may_run: true,
                is_missing: false,
            }),
        }
    }

    /// Starts all servers at the same time, and reports each result as soon as it is known. Returns the failures.
    fn start_servers(&self, hosts: &[HostPlan], agent: &str) -> Result<Vec<HostFailure>> {
        std::thread::scope(|scope| {
            let (done, results) = std::sync::mpsc::channel();
            for (host, mut server) in hosts.iter().filter_map(|host| Some((host, host.server.clone()?))) {
                server.arguments.extend(["--agent".to_string(), agent.to_string()]);
                let done = done.clone();
                scope.spawn(move || {
                    let started = self.send_code(host).and_then(|code| {
                        server.code = code;
                        self.start(host, Some(server))
                    });
                    let started = started.and_then(|states| address_of(&states, host));
                    // If printing fails, nobody receives the results.
                    let _ = done.send((host, started));
                });
            }
            drop(done);
            let mut troubles = Vec::new();
            for (host, started) in results {
                self.report_host(host, started.as_deref())?;
                troubles.extend(started.err());
            }
            Ok(troubles)
        })
    }

    /// Sends the program's folder that the host's server uses. Returns the name of the copy there.
    fn send_code(&self, host: &HostPlan) -> Result<Option<String>, HostFailure> {
        let is_of_host = |code: &&Code| host.code.as_ref().is_some_and(|folder| *folder == code.folder);
        let Some(code) = self.codes.iter().find(is_of_host) else { return Ok(None) };
        let given = || self.received.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, received)) = given().iter().find(|(name, _)| *name == host.name) {
            return Ok(Some(received.copy.clone()));
        }
        let receive = Action::Receive { hash: code.hash.clone(), bytes: code.archive.len() as u64 };
        let received = host.target.send_code(&host.name, &self.grid.request(receive), &code.archive)?;
        let copy = received.copy.clone();
        given().push((host.name.clone(), received));
        Ok(Some(copy))
    }

    /// Reports which folders of programs were sent.
    fn report_codes(&self) -> Result<()> {
        let given = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        for code in &self.codes {
            let hosts = |held: bool| {
                let is_of_code = |of: &ReceivedCopy| hash_in(&of.copy) == code.hash && of.was_there == held;
                let of_code = given.iter().filter(|(_, received)| is_of_code(received));
                let mut hosts: Vec<String> = of_code.map(|(host, _)| host.clone()).collect();
                hosts.sort();
                hosts
            };
            match self.options.json {
                true => print_json(&code.json(&hosts(false), &hosts(true)))?,
                false => code.print_summary(&hosts(false), &hosts(true))?,
            }
        }
        Ok(())
    }

    /// Reports the versions of Python and its packages in which hosts differ from this machine.
    fn report_skews(&self, hosts: &[HostPlan]) -> Result<()> {
        let pythons = self.pythons.lock().unwrap_or_else(PoisonError::into_inner);
        if pythons.is_empty() {
            return Ok(());
        }
        let asked = hosts.iter().filter_map(|host| host.server.as_ref()?.python.as_ref());
        let packages = asked.flat_map(|asked| asked.packages.clone()).collect::<BTreeSet<String>>();
        let asked = PythonSpec { interpreter: None, packages: packages.into_iter().collect() };
        // Without a Python here, hosts are compared with each other.
        let here = asked.inspect(&default_interpreter(), None).ok();
        for skew in skews(here.as_ref(), &pythons) {
            match self.options.json {
                true => print_json(&skew.json())?,
                false => gridloom_base::stderr_line!("gridloom: {skew}"),
            }
        }
        Ok(())
    }

    fn start(&self, host: &HostPlan, part: Option<Launch>) -> Result<Vec<PartState>, HostFailure> {
        let code = part.as_ref().and_then(|part| part.code.clone());
        let parts = part.into_iter().map(|part| self.with_keys(part)).collect::<Result<Vec<Part>>>();
        let parts = parts.map_err(|error| {
            let remedy = "'gridloom keys list' shows the grid's keys; --grid names another grid";
            Fault::new(format!("no keys for it: {error:#}"), remedy).at(&host.name, "an issue of keys".into())
        })?;
        let start = StartRequest {
            parts,
            client_keys: self.client_keys.clone(),
            folder: host.folder.clone(),
            wait_s: self.options.wait,
            stay: self.options.source.stay_options(host),
        };
        let limit = INSPECT_TIMEOUT + Duration::from_secs_f64(self.options.wait + SLACK_S);
        let states = host.target.request(&host.name, &self.grid.request(Action::Start(start)), limit)?;
        match states.iter().find(|state| state.state != State::Runs) {
            None => {
                for old in states.iter().filter(|state| state.code != code) {
                    let is_same = old.code.as_deref().map(hash_in) == code.as_deref().map(hash_in);
                    let with = match is_same {
                        true => {
                            "another copy of the folder of code, which may be damaged: --restart sends a complete one"
                        }
                        false => "the folder of code as it was when it started: --restart sends the new one",
                    };
                    gridloom_base::stderr_line!("gridloom: {}: '{}' still runs with {with}", host.name, old.label);
                }
                let found = states.iter().filter_map(|state| state.python.clone());
                let found = found.map(|found| (host.name.clone(), found));
                self.pythons.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
                Ok(states)
            }
            Some(failed) => Err(HostFailure {
                host: host.name.clone(),
                why: format!(
                    "'{}' {}: {}",
                    failed.label,
                    if failed.pid.is_some() { "runs, but does not answer" } else { "did not start" },
                    failed.why.as_deref().unwrap_or("no reason given")
                ),
                tried: format!("{} on that host", host.words_of(&failed.label)),
                remedy: format!("read its log there, {}, and correct the file of hosts", failed.log),
                may_run: failed.pid.is_some(),
                is_missing: false,
            }),
        }
    }

    fn with_keys(&self, launch: Launch) -> Result<Part> {
        let (role, name) = match launch.label.strip_prefix(SERVER_LABEL) {
            Some(name) => (Role::Server, name),
            None => (Role::Agent, AGENT),
        };
        let keys = IssuedKeys::by_grid(&self.keys, role, name)?.to_line();
        Ok(Part { launch, keys })
    }

    /// Reports the result of a host as soon as it is known.
    fn report_host(&self, host: &HostPlan, result: Result<&str, &HostFailure>) -> Result<()> {
        match (result, self.options.json) {
            (Ok(address), true) => {
                let pythons = self.pythons.lock().unwrap_or_else(PoisonError::into_inner);
                let python = pythons.get(&host.name).map(Environment::json);
                print_json(&json!({ "host": host.name, "parts": host.labels(), "address": address, "python": python }))
            }
            (Ok(address), false) => print_line(&format!("{}: {} at {address}", host.name, host.labels().join(", "))),
            (Err(trouble), true) => print_json(&trouble_json(trouble)),
            (Err(trouble), false) => {
                gridloom_base::stderr_line!("gridloom: {trouble}");
                Ok(())
            }
        }
    }
}

impl HostPlan {
    fn words_of(&self, label: &str) -> String {
        let part = if label == AGENT { &self.agent } else { &self.server };
        format!("gridloom {}", part.as_ref().map(|part| part.arguments.join(" ").replace(CODE, "")).unwrap_or_default())
    }
}

fn address_of(states: &[PartState], host: &HostPlan) -> Result<String, HostFailure> {
    states.first().and_then(|state| state.address.clone()).ok_or_else(|| HostFailure {
        host: host.name.clone(),
        why: "it reports that nothing was started".into(),
        tried: format!("{} host", host.target.gridloom),
        remedy: "install the same version of Gridloom there".into(),
        may_run: true,
        is_missing: false,
    })
}

fn trouble_json(trouble: &HostFailure) -> Value {
    json!({ "host": trouble.host, "error": trouble.why, "tried": trouble.tried, "remedy": trouble.remedy })
}
