//! `gridloom simulate`.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use gridloom::{SimulateConfig, SimulationReport};

use super::{print_json, print_line};

/// Run a program, unchanged, on a simulated grid.
///
/// Whatever grid the program starts or connects to is the simulated one: the same agent, servers and mapper, on the
/// hosts and links of the platform, in virtual time. Bodies of functions are skipped (results are zeros of the right
/// shape) unless --execute is given. Host properties in the platform say who is what: role (agent, server, client),
/// slots, functions, memory, plain. Without them the first host is client and agent and every other a server.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom simulate -p two-sites.toml -- python program.py")]
pub struct Options {
    /// Platform file: TOML, or SimGrid's XML
    #[arg(short, long, value_name = "FILE")]
    platform: PathBuf,
    /// Deployment file: who runs on which host
    #[arg(short, long, value_name = "FILE")]
    deployment: Option<PathBuf>,
    /// What the servers offer beside linear algebra: .idl and .py files; may be repeated
    #[arg(long, value_name = "FILE")]
    functions: Vec<PathBuf>,
    /// Libraries for the .idl files, with --execute
    #[arg(long = "library", value_name = "FILE")]
    libraries: Vec<PathBuf>,
    /// Run the bodies of functions
    #[arg(long)]
    execute: bool,
    /// For what is drawn at random
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Network model: plain, cm02 or lv08
    #[arg(long)]
    network: Option<String>,
    /// Interpreter for Python modules
    #[arg(long)]
    python: Option<PathBuf>,
    /// Also write the report there, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print the report as JSON on standard output, and the program's output on standard error
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<String>,
}

pub fn run(options: Options) -> Result<ExitCode> {
    let kept = options.report.clone();
    let path =
        kept.clone().unwrap_or_else(|| std::env::temp_dir().join(format!("gridloom-{}.json", std::process::id())));
    let config = SimulateConfig {
        platform: absolute(&options.platform)?,
        deployment: options.deployment.as_ref().map(absolute).transpose()?,
        functions: options.functions.clone(),
        libraries: options.libraries.clone(),
        execute: options.execute,
        seed: options.seed,
        network: options.network.clone(),
        report: Some(std::path::absolute(&path)?),
        blas: None,
        python: options.python.clone(),
        program: std::env::current_exe().ok(),
    };
    config.check()?;
    let (name, value) = config.to_environment();
    let mut command = Command::new(&options.program[0]);
    command.args(&options.program[1..]).env(name, value);
    if options.json {
        command.stdout(std::io::stderr());
    }
    let status = command.status().with_context(|| format!("cannot run '{}'", options.program[0]))?;
    let text = std::fs::read_to_string(&path);
    if kept.is_none() {
        let _ = std::fs::remove_file(&path);
    }
    match text {
        Ok(text) => {
            let report: SimulationReport = serde_json::from_str(&text).context("the simulation's report")?;
            match options.json {
                true => print_json(&serde_json::to_value(&report)?)?,
                false => print(&report)?,
            }
        }
        Err(_) if status.success() => eprintln!("gridloom: the program used no grid; nothing was simulated"),
        Err(_) => {}
    }
    Ok(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)))
}

fn absolute(path: &PathBuf) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| path.display().to_string())
}

fn print(report: &SimulationReport) -> Result<()> {
    print_line(&format!("simulated {:.6} s", report.seconds))?;
    for (heuristic, predicted, simulated) in &report.groups {
        print_line(&format!("group by {heuristic}: predicted {predicted:.6} s, simulated {simulated:.6} s"))?;
    }
    for (link, bytes) in &report.bytes_by_link {
        print_line(&format!("link {link}: {bytes} bytes"))?;
    }
    for (pair, bytes) in &report.bytes_by_pair {
        print_line(&format!("{pair}: {bytes} bytes"))?;
    }
    print_line(&format!("trace hash {}", report.trace_hash))
}
