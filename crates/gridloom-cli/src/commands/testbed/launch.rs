//! `gridloom testbed run` and `up`: start processes on the hosts of a platform file.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use gridloom::{
    BUILTIN_LINALG, GRID_ROLES, Roles, TestbedGridConfig, default_python, program_path, read_text, why_no_linalg,
};
use gridloom_keys::{GRID_VARIABLE, Identity, KEYS_VARIABLE, KeysFolder, Role, UnixTime, default_name};
use gridloom_platform::deployment::{self, Process};
use gridloom_platform::{HostId, Platform};
use gridloom_testbed::folder;
use gridloom_testbed::kernel::hosts::address;
use gridloom_testbed::model::topology::Tuning;
use gridloom_testbed::signals::Signals;
use gridloom_testbed::spec::Deployed;
use gridloom_testbed::spec::{Launch, Spec, read_platform};
use gridloom_testbed::tool::{CleanupProcess, Testbed};

use super::run_supervisor;
use super::speeds::{self, SpeedOptions, Speeds};
use crate::commands::deploy::deployed;
use crate::commands::offering::OfferingOptions;
use crate::commands::up::{PYTHON_PATH, code_folder, python_path};
use crate::commands::{absolute, count, print_line};

/// Name of the grid in its certificates.
const GRID: &str = "testbed";
/// Port of the agent inside a testbed.
const AGENT_PORT: u16 = 7711;

/// Start a testbed with agent and servers, run a program on the client's host, and take everything down again.
///
/// Any grid that the program starts or connects to is the testbed's. The command ends with the program's exit status.
/// It prints the traffic of each link, and whether this machine was fast enough for the platform.
///
/// An interrupt (SIGINT) at the terminal is sent to the program; a second one ends the program at once. An interrupt that
/// only this command gets is forwarded to the program. If the program still runs 5 s later, it gets SIGTERM, and is
/// killed after 5 s more. SIGTERM is forwarded, too, and the program is killed after 5 s. The exit status is then 128
/// plus the signal's number.
///
/// With a deployment of processes, the program starts once for each process, on its host, as 'gridloom deploy' does on
/// one machine. A process runs from its start time to its kill time. Each line of its output follows its name. The run
/// ends when all processes have ended, with the first exit status that is not 0. Processes called agent or server are
/// parts of the grid, which the other processes may open. With --no-grid, or if such a process has an argument that is
/// not KEY=VALUE, all processes are the program's. If neither the deployment nor a host's role names agent or server,
/// there is no grid. A grid measures its links, which costs traffic: run processes that only exchange messages with
/// --no-grid.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom testbed run -p two-sites.toml -- python program.py\n  \
gridloom testbed run -p two-sites.toml -d processes.toml -- python program.py")]
pub struct Run {
    #[command(flatten)]
    common: Common,
    /// Do not print the report of the testbed
    #[arg(long)]
    quiet: bool,
    /// Print the report of the testbed as JSON
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// Start a testbed and keep it running until 'gridloom testbed down' or an interrupt.
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
    /// Deployment file: the parts of the grid and the processes of the program that run on each host
    #[arg(short, long, value_name = "FILE")]
    deployment: Option<PathBuf>,
    /// Name of the testbed [default: its process identifier]
    #[arg(long)]
    name: Option<String>,
    /// Start hosts and links only, without agent and servers: all deployed processes are the program's
    #[arg(long)]
    no_grid: bool,
    #[command(flatten)]
    offering: OfferingOptions,
    /// Let servers run any Python function that the program sends, as those of gridloom.local do
    #[arg(long)]
    run_code: bool,
    /// Let delays of links vary by up to this fraction of their latency, up and down
    #[arg(long, default_value_t = 0.0, value_parser = parse_part, value_name = "PART")]
    jitter: f64,
    /// Slow down by this factor a platform that is too fast for this machine. Bandwidths and emulated speeds are
    /// divided by it; latencies and dates of profiles and deployments are multiplied. Programs themselves sleep and
    /// compute as fast as before
    #[arg(long, default_value_t = 1.0, value_parser = parse_slower, value_name = "TIMES")]
    slower: f64,
    /// Run a platform whose routes exceed by far what this machine can carry, with a warning instead of an error
    #[arg(long)]
    overload: bool,
    /// How processor speeds are emulated. auto: by quota where permitted, else by slowing calls down; quota or
    /// slowdown: by this method, or the testbed is refused; none: not at all
    #[arg(long, value_enum, default_value_t = Speeds::Auto)]
    speeds: Speeds,
    /// Seed of the jitter
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print the logs of agent and servers
    #[arg(long)]
    verbose: bool,
}

pub fn run(options: &Run) -> Result<ExitCode> {
    let platform = read_platform(&options.common.platform)?;
    let parts = options.common.parts(&platform)?;
    let mut spec = options.common.spec(&platform, &parts, &options.program, options.quiet)?;
    if parts.processes.is_empty() {
        let host = parts.grid.as_ref().map_or(0, |roles| roles.client.0 as usize);
        let (label, command, environment) = ("program".to_string(), options.program.clone(), Vec::new());
        spec.program = Some(Launch { host, label, command, environment, computes: false });
    }
    let is_with_processes = !parts.processes.is_empty() && parts.grid.is_some();
    if is_with_processes && !options.quiet {
        gridloom_base::stderr_line!(
            "gridloom: testbed: an agent and {} run in addition to the processes, measure the links and cost \
             traffic; --no-grid leaves them out",
            count(spec.services.len() - 1, "server")
        );
    }
    let build = |keeper: CleanupProcess, signals: &Signals| {
        let mut spec = spec;
        spec.processes = parts.deployed(&platform, &options.program, options.common.slower, keeper.folder());
        options.common.start(keeper, spec, &platform, options.quiet, signals)
    };
    run_supervisor(&options.common.name(), build, options.quiet, options.json)
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
    let spec = options.common.spec(&platform, &parts, &[], false)?;
    let build = |keeper: CleanupProcess, signals: &Signals| {
        let testbed = options.common.start(keeper, spec, &platform, false, signals)?;
        print_line(&format!("testbed {} is up", options.common.name()))?;
        Ok(testbed)
    };
    run_supervisor(&options.common.name(), build, false, false)
}

/// The processes on the hosts.
struct Parts {
    grid: Option<Roles>,
    /// Processes of the program.
    processes: Vec<Process>,
}

impl Parts {
    fn deployed(&self, platform: &Platform, program: &[OsString], slower: f64, folder: &Path) -> Vec<Deployed> {
        let hosts = || platform.hosts().iter().enumerate();
        let addresses = hosts().map(|(number, host)| (host.name.clone(), IpAddr::V4(address(number)))).collect();
        let number = |name: &str| hosts().position(|(_, host)| host.name == name).expect("it was looked for");
        let mut deployed = deployed(&self.processes, 1, program, &addresses, folder, number);
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
        keeper: CleanupProcess,
        mut spec: Spec,
        platform: &Platform,
        quiet: bool,
        signals: &Signals,
    ) -> Result<Testbed> {
        if !spec.services.is_empty() {
            make_keys(&mut spec, keeper.folder())?;
        }
        let asked = SpeedOptions { speeds: self.speeds, overload: self.overload, name: &self.name(), quiet };
        speeds::apply(&asked, &mut spec, platform, |group| folder::record_group(keeper.folder(), group))?;
        Ok(Testbed::start(keeper, &spec, Some(signals))?)
    }

    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| std::process::id().to_string())
    }

    /// Returns what each server offers, as arguments of 'gridloom serve'. `blas` is the BLAS that comes with `python`.
    fn offered(&self, blas: Option<&Path>, quiet: bool) -> Result<Vec<OsString>> {
        let mut offered = self.offering.functions()?.into_iter().map(OsString::from).collect::<Vec<_>>();
        let libraries = self.offering.libraries()?;
        let named: Vec<PathBuf> = libraries.iter().cloned().chain(blas.map(PathBuf::from)).collect();
        let is_asked_for = offered.iter().any(|word| word == BUILTIN_LINALG);
        match why_no_linalg(&named) {
            Some(why) if is_asked_for => return Err(why.into()),
            Some(_) if !quiet => gridloom_base::stderr_line!(
                "gridloom: testbed: linalg/... is not offered: no BLAS library is found; --library or GRIDLOOM_BLAS names one"
            ),
            None if !is_asked_for => offered.insert(0, BUILTIN_LINALG.into()),
            _ => {}
        }
        for program in self.offering.programs() {
            offered.extend(program.serve_arguments()?);
        }
        if self.run_code {
            offered.push("--run-code".into());
        } else if offered.is_empty() {
            offered.push("--no-functions".into());
        }
        for library in &libraries {
            offered.extend(["--library".into(), library.clone().into_os_string()]);
        }
        Ok(offered)
    }

    /// Returns the variable by which a server on that host finds the modules in the program's folder. They need not be
    /// copied on this machine.
    fn code(&self, platform: &Platform, host: HostId) -> Result<Option<(String, OsString)>> {
        let host = &platform.hosts()[host.0 as usize];
        let folder = |code| code_folder(&self.platform, code).and_then(|folder| python_path(&folder));
        let path = host.properties.get("code").map(|code| folder(code)).transpose();
        let path = path.with_context(|| format!("host '{}'", host.name))?;
        Ok(path.map(|path| (PYTHON_PATH.to_string(), path)))
    }

    fn parts(&self, platform: &Platform) -> Result<Parts> {
        let Some(file) = &self.deployment else {
            let grid = if self.no_grid { None } else { Some(Roles::new(platform, None)?) };
            return Ok(Parts { grid, processes: Vec::new() });
        };
        let name = file.display().to_string();
        let text = read_text(file)?;
        let mut processes = deployment::parse(&text, &name)?;
        ensure!(!processes.is_empty(), "{name}: no process is deployed");
        if let Some(process) = processes.iter().find(|process| platform.host(&process.host).is_none()) {
            bail!("{name}: the platform has no host '{}'", process.host);
        }
        let is_part = |process: &Process| GRID_ROLES.contains(&process.function.as_str());
        // Arguments of a part of the grid are properties; any other argument is for a function of the program.
        let is_told = |process: &Process| process.arguments.iter().any(|argument| !argument.contains('='));
        if !self.no_grid && processes.iter().all(|process| is_part(process) && !is_told(process)) {
            return Ok(Parts { grid: Some(Roles::new(platform, Some(file))?), processes: Vec::new() });
        }
        let mut parts = Vec::new();
        if !self.no_grid && !processes.iter().any(|process| is_part(process) && is_told(process)) {
            (parts, processes) = processes.into_iter().partition(is_part);
        }
        ensure!(
            parts.iter().all(|part| part.function != "client"),
            "{name}: 'client' together with processes of the program, which are the grid's clients themselves: \
             leave it out, or use --no-grid if it is a function of the program"
        );
        let grid = if self.no_grid { None } else { Roles::beside_processes(platform, &parts, &name)? };
        Ok(Parts { grid, processes })
    }

    /// Returns the specification of the testbed, without a program yet.
    fn spec(&self, platform: &Platform, parts: &Parts, program: &[OsString], quiet: bool) -> Result<Spec> {
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
        let Some(roles) = &parts.grid else { return Ok(spec) };
        let agent_host = roles.agent.0 as usize;
        let agent = format!("{}:{AGENT_PORT}", address(agent_host));
        let environment = vec![("GRIDLOOM_AGENT".to_string(), agent.clone())];
        let python = self.offering.python(program).unwrap_or_else(default_python);
        let own = environment.iter().map(|(name, value)| (name.clone(), OsString::from(value)));
        let mut servers_environment: Vec<(String, OsString)> = own.collect();
        let blas = blas(&python);
        let offered = self.offered(blas.as_deref(), quiet)?;
        servers_environment.extend(blas.map(|library| ("GRIDLOOM_BLAS".to_string(), library.into_os_string())));
        let program = program_path(None).into_os_string();
        let service = |host: usize, label: &str, words: Vec<OsString>| {
            let mut command = vec![program.clone()];
            command.extend(words);
            command.push("--json".into());
            if !self.verbose {
                command.push("--quiet".into());
            }
            Launch { host, label: label.into(), command, environment: servers_environment.clone(), computes: false }
        };
        let words =
            ["agent", "--records", "none", "--listen"].map(OsString::from).into_iter().chain([agent.clone().into()]);
        spec.services.push(service(agent_host, "the agent", words.collect()));
        for part in &roles.servers {
            let server = part.server(platform, &[])?;
            let host = part.host.0 as usize;
            let mut words = vec![OsString::from("serve")];
            words.extend(offered.iter().cloned());
            words.extend([
                "--name".into(),
                server.name.clone().into(),
                "--slots".into(),
                server.slots.to_string().into(),
            ]);
            words.extend(["--memory".into(), format!("{}B", server.memory_bytes).into()]);
            words.extend([
                "--listen".into(),
                format!("{}:0", address(host)).into(),
                "--agent".into(),
                agent.clone().into(),
            ]);
            words.extend(["--python".into(), python.clone().into_os_string()]);
            // Times on an emulated processor are useless for another run.
            words.extend(["--models", "none"].map(OsString::from));
            // The functions are the program's own, and so is its environment.
            words.extend(["--env", "*"].map(OsString::from));
            if server.is_stateless {
                words.push("--plain".into());
            }
            let mut server = service(host, &format!("server '{}'", server.name), words);
            server.environment.extend(self.code(platform, part.host)?);
            spec.services.push(Launch { computes: true, ..server });
        }
        spec.environment = environment;
        let attach = TestbedGridConfig { agent, servers: roles.servers.len(), functions: self.offering.functions()? };
        spec.environment.push(attach.to_environment());
        Ok(spec)
    }
}

/// Makes a grid in the folder of the testbed, with which it is removed, for all its processes.
fn make_keys(spec: &mut Spec, folder: &Path) -> Result<()> {
    let folder = absolute(&folder.join("keys"))?;
    let role = Role::Administrator;
    KeysFolder::at(&folder).create(&Identity::new(GRID, role, &default_name(role))?, UnixTime::now())?;
    let path = folder.to_str().context("the name of the testbed's folder is not UTF-8")?;
    // The user may have chosen another grid.
    for (name, value) in [(KEYS_VARIABLE, path), (GRID_VARIABLE, GRID)] {
        for service in &mut spec.services {
            service.environment.push((name.into(), value.into()));
        }
        spec.environment.push((name.into(), value.into()));
    }
    Ok(())
}

/// Returns the BLAS library that comes with the Python package, unless another one is set or the package does not exist.
fn blas(python: &Path) -> Option<PathBuf> {
    if std::env::var_os("GRIDLOOM_BLAS").is_some() {
        return None;
    }
    let ask = "import gridloom, os, sys; sys.stdout.buffer.write(os.fsencode(gridloom.blas_library() or ''))";
    let output = Command::new(python).args(["-c", ask]).stderr(Stdio::null()).output().ok()?;
    (output.status.success() && !output.stdout.is_empty()).then(|| OsString::from_vec(output.stdout).into())
}

fn parse_slower(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(times) if (1.0..=1e6).contains(&times) => Ok(times),
        _ => Err("expected a number from 1 to 1000000".into()),
    }
}

fn parse_part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err("expected a number from 0 to 1".into()),
    }
}
