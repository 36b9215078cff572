//! `gridloom testbed run` and `up`: from a platform file to processes on hosts.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use gridloom::{AttachConfig, Cast, GRID_PARTS, program_path};
use gridloom_core::platform::Platform;
use gridloom_core::platform::deployment::{self, Process};
use gridloom_net::identity;
use gridloom_testbed::fleet::Deployed;
use gridloom_testbed::folder;
use gridloom_testbed::kernel::hosts::address;
use gridloom_testbed::model::topology::Tuning;
use gridloom_testbed::signals::Signals;
use gridloom_testbed::spec::{Launch, Spec, read_platform};
use gridloom_testbed::tool::{Keeper, Testbed};

use super::keep_until_its_end;
use super::speeds::{self, Asked, Speeds};
use crate::commands::deploy::deployed;
use crate::commands::{absolute, count, print_line};

/// Port of the agent inside a testbed.
const AGENT_PORT: u16 = 7711;

/// Start a testbed with agent and servers, run a program on the client's host, and take everything down again.
///
/// Whatever grid the program starts or connects to is the testbed's. Ends with the program's exit status, and says what
/// crossed each link, and whether this machine was fast enough for what was asked of it.
///
/// An interrupt at the terminal is the program's; another one ends it at once. One that is sent to this command alone is
/// passed on; if the program has not ended 5 s later it is asked to end (SIGTERM), and killed after 5 s more. A request to
/// end is passed on, too, and the program killed after 5 s. The status is then 128 and the signal's number.
///
/// With a deployment of processes, the program is started once for each of them, on its host, as 'gridloom deploy' does
/// on one machine: at its start time, with each line of its output behind its name, until its kill time. The run ends
/// when all have ended, with the first exit status that is not 0. Processes called agent or server are parts of the grid,
/// which the others may open; a process of such a name with an argument that is not KEY=VALUE, or --no-grid, says that
/// all are the program's. If neither the deployment nor a host's role names agent or server, there is no grid. A grid
/// measures its links, which costs traffic: processes that only talk by messages are better run with --no-grid.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom testbed run -p two-sites.toml -- python program.py\n  \
gridloom testbed run -p two-sites.toml -d processes.toml -- python program.py")]
pub struct Run {
    #[command(flatten)]
    common: Common,
    /// Do not print what the testbed did
    #[arg(long)]
    quiet: bool,
    /// Print what the testbed did as JSON
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<String>,
}

/// Start a testbed and keep it up until 'gridloom testbed down' or an interrupt.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom testbed up -p two-sites.toml")]
pub struct Up {
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Common {
    /// Platform file: TOML, or SimGrid's XML
    #[arg(short, long, value_name = "FILE")]
    platform: PathBuf,
    /// Deployment file: who runs on which host; processes of the program, too
    #[arg(short, long, value_name = "FILE")]
    deployment: Option<PathBuf>,
    /// Name of the testbed [default: its process identifier]
    #[arg(long)]
    name: Option<String>,
    /// Hosts and links only: no agent, no servers; all that is deployed are processes of the program
    #[arg(long)]
    no_grid: bool,
    /// What the servers offer beside linear algebra: .idl and .py files; may be repeated
    #[arg(long, value_name = "FILE")]
    functions: Vec<PathBuf>,
    /// Libraries for the .idl files
    #[arg(long = "library", value_name = "FILE")]
    libraries: Vec<PathBuf>,
    /// Interpreter for Python modules [default: the program, if it is one, otherwise python3]
    #[arg(long)]
    python: Option<PathBuf>,
    /// Delays of links vary by up to this part of their latency, both ways
    #[arg(long, default_value_t = 0.0, value_parser = parse_part, value_name = "PART")]
    jitter: f64,
    /// Make the platform so many times slower, if it is too fast for this machine: bandwidths and emulated speeds are
    /// divided, latencies and dates of profiles and deployments multiplied; what programs sleep and compute themselves
    /// takes as long as ever
    #[arg(long, default_value_t = 1.0, value_parser = parse_slower, value_name = "TIMES")]
    slower: f64,
    /// Run a platform with ways that are much wider than this machine can carry, with a warning instead of an error
    #[arg(long)]
    overload: bool,
    /// How processor speeds are emulated: by quota where permitted, else by letting calls take longer (auto), by one of them
    /// or not at all (quota, slowdown), or never (none)
    #[arg(long, value_enum, default_value_t = Speeds::Auto)]
    speeds: Speeds,
    /// For jitter
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Say what agent and servers log
    #[arg(long)]
    verbose: bool,
}

pub fn run(options: &Run) -> Result<ExitCode> {
    let platform = read_platform(&options.common.platform)?;
    let parts = options.common.parts(&platform)?;
    let mut spec = options.common.spec(&platform, &parts, &options.program)?;
    if parts.processes.is_empty() {
        let host = parts.grid.as_ref().map_or(0, |cast| cast.client.0 as usize);
        let (label, command, environment) = ("program".to_string(), options.program.clone(), Vec::new());
        spec.program = Some(Launch { host, label, command, environment, computes: false });
    }
    let is_with_processes = !parts.processes.is_empty() && parts.grid.is_some();
    if is_with_processes && !options.quiet {
        gridloom_core::say!(
            "gridloom: testbed: an agent and {} run beside the processes, measure the links and cost traffic; --no-grid leaves \
             them out",
            count(spec.services.len() - 1, "server")
        );
    }
    let build = |keeper: Keeper, signals: &Signals| {
        let mut spec = spec;
        spec.processes = parts.deployed(&platform, &options.program, options.common.slower, keeper.folder());
        options.common.start(keeper, spec, &platform, options.quiet, signals)
    };
    keep_until_its_end(&options.common.name(), build, options.quiet, options.json)
}

pub fn up(options: &Up) -> Result<ExitCode> {
    let platform = read_platform(&options.common.platform)?;
    let parts = options.common.parts(&platform)?;
    if let (Some(process), Some(file)) = (parts.processes.first(), &options.common.deployment) {
        bail!(
            "{}: '{}' is a process of a program; 'gridloom testbed run' starts those",
            file.display(),
            process.function
        );
    }
    let spec = options.common.spec(&platform, &parts, &[])?;
    let build = |keeper: Keeper, signals: &Signals| {
        let testbed = options.common.start(keeper, spec, &platform, false, signals)?;
        print_line(&format!("testbed {} is up", options.common.name()))?;
        Ok(testbed)
    };
    keep_until_its_end(&options.common.name(), build, false, false)
}

/// Who runs on the hosts.
struct Parts {
    grid: Option<Cast>,
    /// Of the program.
    processes: Vec<Process>,
}

impl Parts {
    fn deployed(&self, platform: &Platform, program: &[String], slower: f64, folder: &Path) -> Vec<Deployed> {
        let hosts = || platform.hosts().iter().enumerate();
        let addresses = hosts().map(|(number, host)| (host.name.clone(), IpAddr::V4(address(number)))).collect();
        let number = |name: &str| hosts().position(|(_, host)| host.name == name).expect("it was looked for");
        let mut deployed = deployed(&self.processes, program, &addresses, folder, number);
        for one in &mut deployed {
            one.start_s *= slower;
            one.kill_s = one.kill_s.map(|kill_s| kill_s * slower);
        }
        deployed
    }
}

impl Common {
    fn start(
        &self,
        keeper: Keeper,
        mut spec: Spec,
        platform: &Platform,
        quiet: bool,
        signals: &Signals,
    ) -> Result<Testbed> {
        let asked = Asked { speeds: self.speeds, overload: self.overload, name: &self.name(), quiet };
        speeds::apply(&asked, &mut spec, platform, |group| folder::note_group(keeper.folder(), group))?;
        Ok(Testbed::start(keeper, &spec, Some(signals))?)
    }

    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| std::process::id().to_string())
    }

    fn python(&self, program: &[String]) -> PathBuf {
        let is_python = |word: &&String| {
            Path::new(word).file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("python"))
        };
        let of_program = || program.first().filter(is_python).map(PathBuf::from);
        self.python.clone().or_else(of_program).unwrap_or_else(|| PathBuf::from("python3"))
    }

    fn parts(&self, platform: &Platform) -> Result<Parts> {
        let Some(file) = &self.deployment else {
            let grid = if self.no_grid { None } else { Some(Cast::new(platform, None)?) };
            return Ok(Parts { grid, processes: Vec::new() });
        };
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).with_context(|| name.clone())?;
        let mut processes = deployment::parse(&text, &name)?;
        ensure!(!processes.is_empty(), "{name}: no process is deployed");
        if let Some(process) = processes.iter().find(|process| platform.host(&process.host).is_none()) {
            bail!("{name}: the platform has no host '{}'", process.host);
        }
        let is_part = |process: &Process| GRID_PARTS.contains(&process.function.as_str());
        // What a part is told are properties; anything else is meant for a function of the program.
        let is_told = |process: &Process| process.arguments.iter().any(|argument| !argument.contains('='));
        if !self.no_grid && processes.iter().all(|process| is_part(process) && !is_told(process)) {
            return Ok(Parts { grid: Some(Cast::new(platform, Some(file))?), processes: Vec::new() });
        }
        let mut parts = Vec::new();
        if !self.no_grid && !processes.iter().any(|process| is_part(process) && is_told(process)) {
            (parts, processes) = processes.into_iter().partition(is_part);
        }
        ensure!(
            parts.iter().all(|part| part.function != "client"),
            "{name}: 'client' beside processes of the program, which are the grid's clients themselves: leave it out, or \
             say --no-grid if it is a function of the program"
        );
        let grid = if self.no_grid { None } else { Cast::beside_processes(platform, &parts, &name)? };
        Ok(Parts { grid, processes })
    }

    /// The testbed, without a program yet.
    fn spec(&self, platform: &Platform, parts: &Parts, program: &[String]) -> Result<Spec> {
        let tuning = Tuning { slower: self.slower, jitter: self.jitter, seed: self.seed };
        let mut spec = Spec {
            platform: absolute(&self.platform)?,
            tuning,
            services: Vec::new(),
            environment: Vec::new(),
            quotas: Vec::new(),
            processes: Vec::new(),
            program: None,
        };
        let Some(cast) = &parts.grid else { return Ok(spec) };
        let secret: [u8; 16] = identity::random().context("a secret for the grid")?;
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let agent_host = cast.agent.0 as usize;
        let agent = format!("{}:{AGENT_PORT}", address(agent_host));
        let environment = vec![("GRIDLOOM_SECRET".to_string(), secret), ("GRIDLOOM_AGENT".to_string(), agent.clone())];
        let python = self.python(program);
        let mut servers_environment = environment.clone();
        servers_environment.extend(blas(&python).map(|library| ("GRIDLOOM_BLAS".to_string(), library)));
        let program = program_path(None).display().to_string();
        let service = |host: usize, label: &str, words: Vec<String>| {
            let mut command = vec![program.clone()];
            command.extend(words);
            command.extend(["--trust-this-network", "--json"].map(String::from));
            if !self.verbose {
                command.push("--quiet".into());
            }
            Launch { host, label: label.into(), command, environment: servers_environment.clone(), computes: false }
        };
        let words = vec!["agent".to_string(), "--listen".into(), agent.clone()];
        spec.services.push(service(agent_host, "the agent", words));
        for part in &cast.servers {
            let server = part.server(platform, &[])?;
            let host = part.host.0 as usize;
            let mut words = vec!["serve".to_string(), "builtin:linalg".into()];
            for file in &self.functions {
                words.push(absolute(file)?.display().to_string());
            }
            for library in &self.libraries {
                let library = if library.exists() { absolute(library)? } else { library.clone() };
                words.extend(["--library".into(), library.display().to_string()]);
            }
            words.extend(["--name".into(), server.name.clone(), "--slots".into(), server.slots.to_string()]);
            words.extend(["--memory".into(), server.memory_bytes.to_string()]);
            words.extend(["--listen".into(), format!("{}:0", address(host)), "--agent".into(), agent.clone()]);
            words.extend(["--python".into(), python.display().to_string()]);
            // Times of an emulated processor are of no use to another run.
            words.extend(["--models", "none"].map(String::from));
            if server.plain {
                words.push("--plain".into());
            }
            let server = service(host, &format!("server '{}'", server.name), words);
            spec.services.push(Launch { computes: true, ..server });
        }
        let functions = self.functions.iter().map(|file| absolute(file)).collect::<Result<_>>()?;
        spec.environment = environment;
        spec.environment.push(AttachConfig { agent, servers: cast.servers.len(), functions }.to_environment());
        Ok(spec)
    }
}

/// The BLAS library that comes with the Python package, unless one is named or there is no such package.
fn blas(python: &Path) -> Option<String> {
    if std::env::var_os("GRIDLOOM_BLAS").is_some() {
        return None;
    }
    let ask = "import gridloom; print(gridloom.blas_library() or '')";
    let output = Command::new(python).args(["-c", ask]).stderr(Stdio::null()).output().ok()?;
    let library = String::from_utf8(output.stdout).ok()?.trim().to_string();
    (output.status.success() && !library.is_empty()).then_some(library)
}

fn parse_slower(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(times) if (1.0..=1e6).contains(&times) => Ok(times),
        _ => Err("expected a number of at least 1".into()),
    }
}

fn parse_part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err("expected a number from 0 to 1".into()),
    }
}
