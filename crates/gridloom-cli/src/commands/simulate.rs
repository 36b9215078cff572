//! `gridloom simulate`.

use gridloom_base::EscapedBytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use gridloom::{SimulateConfig, SimulationReport, default_python, ignored_text};
use gridloom_flow::NetworkModel;
use gridloom_net::process::PROCESS_VARIABLES;
use gridloom_testbed::kernel::sys;

use super::offering::OfferingOptions;
use super::simulated_programs::SimulatedPrograms;
use super::{OwnFolder, absolute, count, print_json, print_line, read_text};

/// Run a program, unchanged, on a simulated grid.
///
/// Any grid that the program starts or connects to is the simulated one. It has the same agent, servers and mapper, on
/// the hosts and links of the platform, in virtual time. Functions are not executed (results are zeros of the right
/// shape) unless --execute is given. Host properties in the platform describe the grid: role (agent, server, client),
/// slots, functions, memory, plain. Without them the first host is client and agent, and every other host a server.
/// With a deployment of processes each process exchanges messages, and may open the grid as a client on its own host.
/// The simulation follows the platform's profiles: speeds, bandwidths, latencies, and times when a host or link is
/// off. It prints virtual seconds, makespans, bytes by link, and a hash of the trace, which is the same for the same
/// program, platform and seed. The command ends with the program's exit status.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom simulate -p two-sites.toml -- python program.py")]
pub struct Options {
    /// Platform file: TOML, or SimGrid's XML
    #[arg(short, long, value_name = "FILE")]
    platform: PathBuf,
    /// Deployment file: which process runs on which host
    #[arg(short, long, value_name = "FILE")]
    deployment: Option<PathBuf>,
    /// Scenario of faults, one per line (docs/faults.md)
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    #[command(flatten)]
    offering: OfferingOptions,
    /// Execute the functions
    #[arg(long)]
    execute: bool,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Network model: warm-tcp (the default), cm02 or lv08
    #[arg(long)]
    network: Option<String>,
    /// Fraction of a host's speed that each function uses: JSON such as {"linalg/dgemm": 0.9}; other functions use all of it
    #[arg(long, value_name = "FILE")]
    efficiencies: Option<PathBuf>,
    /// Write the report into this file too, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the timeline of all groups into this file, a page for a browser
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Write a trace for a viewer into this file: Chrome's format (Perfetto, chrome://tracing), or Paje's if the name
    /// ends in .paje
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Record the durations of measured blocks in this file, so that --replay can repeat the run
    #[arg(long, value_name = "FILE", requires = "deployment", conflicts_with = "replay")]
    record: Option<PathBuf>,
    /// Take the durations of measured blocks from this file, written by --record
    #[arg(long, value_name = "FILE", requires = "deployment")]
    replay: Option<PathBuf>,
    /// End a run of processes after this many seconds of virtual time, with status 1 if one still runs then
    #[arg(long, value_name = "SECONDS", requires = "deployment", value_parser = seconds)]
    until: Option<f64>,
    /// Print the report as JSON on standard output, and the program's output on standard error
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let own = OwnFolder::new("simulate")?;
    let (report, timeline) = (own.0.join("report.json"), own.0.join("timeline.html"));
    let config = SimulateConfig {
        report: Some(report.clone()),
        timeline: options.timeline.as_ref().map(|_| timeline.clone()),
        ..config(options)?
    };
    config.check()?;
    if let Some(ignored) = ignored_text(&super::platform::read(&options.platform)?) {
        let file = options.platform.display();
        gridloom_base::stderr_line!("gridloom: {file}: ignored parts that Gridloom does not use: {ignored}");
    }
    options.report.as_deref().map_or(Ok(()), claim)?;
    options.timeline.as_deref().map_or(Ok(()), claim)?;
    config.record.as_deref().map_or(Ok(()), claim)?;
    config.trace.as_deref().map_or(Ok(()), claim)?;
    if let Some(name) = &config.network {
        NetworkModel::by_name(name)?;
    }
    let status = run_program(options, &config)?;
    let mut incomplete = false;
    match std::fs::read_to_string(&report) {
        Ok(text) => {
            options.report.as_deref().map_or(Ok(()), |file| copy_result(&report, file))?;
            let report: SimulationReport = serde_json::from_str(&text).context("the simulation's report")?;
            // The program has reported the failure.
            incomplete = report.failure.is_some();
            if let Some(file) = &options.timeline {
                if !timeline.exists() {
                    bail!("the timeline was not written to {}", file.display());
                }
                copy_result(&timeline, file)?;
            }
            if let Some(record) = config.record.as_deref().filter(|record| !record.exists()) {
                bail!("nothing was recorded in {}: the program ran no processes", record.display());
            }
            if let Some(trace) = config.trace.as_deref().filter(|trace| !trace.exists()) {
                bail!("the trace was not written to {}", trace.display());
            }
            match options.json {
                true => print_json(&serde_json::to_value(&report)?)?,
                false => print(&report)?,
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound && status.success() => {
            let processes = if options.deployment.is_some() { " and ran no processes of the deployment" } else { "" };
            gridloom_base::stderr_line!("gridloom: the program used no grid{processes}; nothing was simulated");
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| report.display().to_string()),
    }
    if status.success() && incomplete {
        return Ok(ExitCode::FAILURE);
    }
    Ok(exit_code(status))
}

/// Copies a file from this command's folder to the user's path.
fn copy_result(own: &Path, file: &Path) -> Result<()> {
    let text = std::fs::read(own).with_context(|| own.display().to_string())?;
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Checks that the file can be written, and removes it: the file of an earlier run must not be taken for this one's.
pub(super) fn claim(file: &Path) -> Result<()> {
    // A terminal or a pipe is not a regular file, and is not removed.
    let remove = |made: std::fs::File| if made.metadata()?.is_file() { std::fs::remove_file(file) } else { Ok(()) };
    let claimed = std::fs::File::create(file).and_then(remove);
    claimed.with_context(|| format!("cannot write {}", file.display()))
}

fn config(options: &Options) -> Result<SimulateConfig> {
    Ok(SimulateConfig {
        platform: options.platform.clone(),
        deployment: options.deployment.clone(),
        faults: options.faults.clone(),
        functions: options.offering.functions()?,
        libraries: options.offering.libraries()?,
        execute: options.execute,
        seed: options.seed,
        network: options.network.clone(),
        reference_flops: None,
        without_latency: BTreeSet::new(),
        until: options.until,
        efficiencies: options.efficiencies.as_deref().map(read_efficiencies).transpose()?.unwrap_or_default(),
        report: None,
        timeline: None,
        trace: options.trace.as_ref().map(std::path::absolute).transpose()?,
        record: options.record.as_ref().map(std::path::absolute).transpose()?,
        replay: options.replay.as_deref().map(absolute).transpose()?,
        blas: None,
        python: options.offering.python(&options.program),
        python_options: Vec::new(),
        program: std::env::current_exe().ok(),
    })
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds, such as 3600".to_string())?;
    let is_time = (0.0..=UNTIL_MAX_S).contains(&seconds);
    is_time.then_some(seconds).ok_or_else(|| format!("expected seconds from 0 to {UNTIL_MAX_S}"))
}

/// The clock of virtual time cannot count much further than this.
const UNTIL_MAX_S: f64 = 4e9;

fn read_efficiencies(file: &Path) -> Result<BTreeMap<String, f64>> {
    let name = || file.display().to_string();
    let text = read_text(file)?;
    let efficiencies: BTreeMap<String, f64> =
        serde_json::from_str(&text).with_context(|| format!("{}: expected {{\"function\": number, ...}}", name()))?;
    if let Some((function, value)) = efficiencies.iter().find(|(_, value)| !value.is_finite() || **value <= 0.0) {
        bail!("{}: the efficiency of '{function}' is {value}; it must be above 0", name());
    }
    Ok(efficiencies)
}

fn run_program(options: &Options, config: &SimulateConfig) -> Result<ExitStatus> {
    let mut config = config.clone();
    // The program may run in another folder; errors before it starts name the files as the caller did.
    config.platform = absolute(&config.platform)?;
    config.deployment = config.deployment.as_deref().map(absolute).transpose()?;
    config.faults = config.faults.as_deref().map(absolute).transpose()?;
    let python = options.offering.python(&options.program).unwrap_or_else(default_python);
    let programs = options.offering.programs().iter().map(|program| program.command(&python)).collect::<Result<_>>()?;
    let variables = [SimulatedPrograms::new(&config, programs).to_environment()];
    let output = if options.json { Output::ToStandardError } else { Output::AsItIs };
    run_simulated(&options.program, &config, &variables, output)
}

/// Destination of a simulated program's standard output.
pub(super) enum Output {
    AsItIs,
    ToStandardError,
}

/// Runs the program to its end in that simulation, with additional environment variables. The paths of the simulation
/// are absolute.
pub(super) fn run_simulated(
    words: &[OsString],
    config: &SimulateConfig,
    variables: &[(String, String)],
    output: Output,
) -> Result<ExitStatus> {
    let (name, value) = config.to_environment();
    let mut command = Command::new(&words[0]);
    // The simulated program is not a process of the outer deployment or gang.
    PROCESS_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    command.args(&words[1..]).env(name, value).envs(variables.iter().cloned());
    if matches!(output, Output::ToStandardError) {
        command.stdout(std::io::stderr());
    }
    // The program ends with this thread: killing this process leaves no simulation running.
    sys::end_with_this_thread(&mut command);
    // An interrupt at the terminal is meant for the program, which then ends its simulation.
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::default())?;
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM])?;
    let mut child = command.spawn().with_context(|| format!("cannot run '{}'", EscapedBytes::of(&words[0])))?;
    let pid = rustix::process::Pid::from_child(&child);
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            // This fails only if the program has ended already.
            let _ = rustix::process::pidfd_send_signal(&process, rustix::process::Signal::TERM);
        }
    });
    Ok(child.wait()?)
}

/// Returns the exit status; after a signal 128 plus its number, as in a shell.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn print(report: &SimulationReport) -> Result<()> {
    print_line(&format!("simulated {:.6} s", report.seconds))?;
    for (heuristic, predicted, simulated) in &report.groups {
        print_line(&format!("group by {heuristic}: predicted {predicted:.6} s, simulated {simulated:.6} s"))?;
    }
    let links = report.bytes_by_link.iter().map(|(link, bytes)| (format!("link {link}"), *bytes));
    print_busiest(links, "link")?;
    print_busiest(report.bytes_by_pair.iter().map(|(pair, bytes)| (pair.clone(), *bytes as f64)), "pair")?;
    print_line(&format!("trace hash {}", report.trace_hash))
}

/// Prints a line for each, if there are few; otherwise the busiest ones, and the rest in one line.
fn print_busiest(all: impl Iterator<Item = (String, f64)>, one: &str) -> Result<()> {
    let mut all: Vec<(String, f64)> = all.collect();
    if all.len() > LINES_MAX {
        all.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    }
    let rest = all.split_off(all.len().min(LINES_MAX));
    for (name, bytes) in all {
        print_line(&format!("{name}: {bytes} bytes"))?;
    }
    if !rest.is_empty() {
        let bytes: f64 = rest.iter().map(|(_, bytes)| bytes).sum();
        print_line(&format!(
            "{} with less: {bytes} bytes; --json lists all",
            count(rest.len(), &format!("more {one}"))
        ))?;
    }
    Ok(())
}

/// Maximum number of links, and of pairs, in the summary: with the program's output it should fit on a screen.
const LINES_MAX: usize = 10;
