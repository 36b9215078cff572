//! `gridloom testbed run` and `up`: from a platform file to processes on hosts.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use gridloom::{AttachConfig, Cast, program_path};
use gridloom_core::platform::Platform;
use gridloom_net::identity;
use gridloom_testbed::folder::Folder;
use gridloom_testbed::kernel::hosts::address;
use gridloom_testbed::model::topology::Tuning;
use gridloom_testbed::spec::{Launch, Spec, read_platform};
use gridloom_testbed::tool::Testbed;

use super::speeds::Speeds;
use super::{finish, keeper};
use crate::commands::{absolute, print_line};

/// Port of the agent inside a testbed.
const AGENT_PORT: u16 = 7711;

/// Start a testbed with agent and servers, run a program on the client's host, and take everything down again.
///
/// Whatever grid the program starts or connects to is the testbed's. Ends with the program's exit status, and says what
/// crossed each link, and whether this machine was fast enough for what was asked of it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom testbed run -p two-sites.toml -- python program.py")]
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
    /// Deployment file: who runs on which host
    #[arg(short, long, value_name = "FILE")]
    deployment: Option<PathBuf>,
    /// Name of the testbed [default: its process identifier]
    #[arg(long)]
    name: Option<String>,
    /// Hosts and links only: no agent, no servers
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
    /// Make everything so many times slower: links and processors that are too fast for this machine keep their
    /// proportion; divide measured times by it
    #[arg(long, default_value_t = 1.0, value_parser = parse_slower, value_name = "TIMES")]
    slower: f64,
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
    let (mut spec, platform) = options.common.spec(&options.program)?;
    let client = options.common.client(&platform)?;
    let command = options.program.clone();
    let (label, environment) = ("program".to_string(), Vec::new());
    spec.program = Some(Launch { host: client, label, command, environment, computes: false });
    // An interrupt at the terminal is for the program, which ends the testbed by its end.
    signal_hook::flag::register(signal_hook::consts::SIGINT, std::sync::Arc::default())?;
    let testbed = options.common.start(spec, &platform, options.quiet)?;
    finish(testbed, options.quiet, options.json)
}

pub fn up(options: &Up) -> Result<ExitCode> {
    let (spec, platform) = options.common.spec(&[])?;
    let testbed = options.common.start(spec, &platform, false)?;
    print_line(&format!("testbed {} is up", options.common.name()))?;
    finish(testbed, false, false)
}

impl Common {
    fn start(&self, mut spec: Spec, platform: &Platform, quiet: bool) -> Result<Testbed> {
        let name = self.name();
        let folder = Folder::new(&name)?;
        let made = self.speeds.apply(&mut spec, platform, &name, quiet)?;
        let testbed = Testbed::start(folder, &spec, keeper()?)?;
        made.keep();
        Ok(testbed)
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

    fn cast(&self, platform: &Platform) -> Result<Cast> {
        Ok(Cast::new(platform, self.deployment.as_deref())?)
    }

    fn client(&self, platform: &Platform) -> Result<usize> {
        Ok(if self.no_grid { 0 } else { self.cast(platform)?.client.0 as usize })
    }

    /// The testbed, without a program yet.
    fn spec(&self, program: &[String]) -> Result<(Spec, Platform)> {
        let platform_file = absolute(&self.platform)?;
        let platform = read_platform(&self.platform)?;
        let tuning = Tuning { slower: self.slower, jitter: self.jitter, seed: self.seed };
        let mut spec = Spec {
            platform: platform_file,
            tuning,
            services: Vec::new(),
            environment: Vec::new(),
            groups: Vec::new(),
            program: None,
        };
        if self.no_grid {
            return Ok((spec, platform));
        }
        let cast = self.cast(&platform)?;
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
            Launch {
                host,
                label: label.into(),
                command,
                environment: servers_environment.clone(),
                computes: false,
            }
        };
        let words = vec!["agent".to_string(), "--listen".into(), agent.clone()];
        spec.services.push(service(agent_host, "the agent", words));
        for part in &cast.servers {
            let server = part.server(&platform, &[])?;
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
            if server.plain {
                words.push("--plain".into());
            }
            let server = service(host, &format!("server '{}'", server.name), words);
            spec.services.push(Launch { computes: true, ..server });
        }
        let functions = self.functions.iter().map(|file| absolute(file)).collect::<Result<_>>()?;
        spec.environment = environment;
        spec.environment.push(AttachConfig { agent, servers: cast.servers.len(), functions }.to_environment());
        Ok((spec, platform))
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
