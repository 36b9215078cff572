//! `gridloom mpirun`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use gridloom::chares::ElementPlacement;
use gridloom_testbed::run_output::OutputFormat;

use super::chares::{Elements, TimelineFile, run_elements};
use super::simulate::seconds;
use super::site_options::SitesOptions;

/// Run an mpi4py program on many ranks, which share the processors of this machine.
///
/// The command runs the Python program unmodified: 'import mpi4py' imports Gridloom's module. Each rank is a chare
/// with a stack of its own. A call that has to wait lets the other ranks of its processing element run. With --sites
/// and --latency, messages between elements of different sites are delayed by that time, as if the sites were far
/// apart. The command ends when all ranks have ended, with the first exit status that is not 0.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom mpirun -n 64 examples/mpi/jacobi.py --size 256")]
pub struct Options {
    /// Number of ranks
    #[arg(short, long, value_name = "NUMBER")]
    number: usize,
    /// Number of processing elements, each a process [default: one for each processor, at most one for each rank]
    #[arg(long, value_name = "NUMBER")]
    elements: Option<usize>,
    /// Placement of the ranks: blocks, round-robin or by-site
    #[arg(long, value_name = "NAME", default_value = "blocks", value_parser = ["blocks", "round-robin", "by-site"])]
    placement: String,
    #[command(flatten)]
    apart: SitesOptions,
    /// Write a timeline of the elements into this file: Chrome's format (Perfetto, chrome://tracing), or Paje's if the name
    /// ends in .paje
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// End the run after this many seconds, with status 1 if a rank still runs then
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    until: Option<f64>,
    /// At the end, print which modules each rank has for itself, and which the ranks of an element share
    #[arg(long)]
    list_modules: bool,
    /// Begin each line of output with the name of its element
    #[arg(long, conflicts_with = "json")]
    label: bool,
    /// Print JSON, a line for each line that an element prints, for each end, and for the end of the run
    #[arg(long)]
    json: bool,
    /// Interpreter that runs the program
    #[arg(long, env = "GRIDLOOM_PYTHON", default_value = "python3")]
    python: PathBuf,
    /// The program and its arguments; an interpreter may precede it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    ensure!(options.number >= 1, "-n {}: at least one rank", options.number);
    let cores = gridloom_resources::processors();
    let elements = options.elements.unwrap_or(cores).min(options.number);
    let (python, words) = match &options.program[..] {
        [python, rest @ ..] if is_interpreter(python) => (python.clone(), rest),
        words => (options.python.clone().into_os_string(), words),
    };
    ensure!(!words.is_empty(), "{}: name the program after the interpreter", python.display());
    let ranks = options.number.to_string();
    let mut command = vec![python];
    command.extend(["-m", "gridloom.mpi", "-n", &ranks, "--placement", &options.placement].map(OsString::from));
    command.extend(options.list_modules.then(|| "--list-modules".into()));
    command.extend_from_slice(words);
    let telling = match (options.json, options.label) {
        (true, _) => OutputFormat::Json,
        (false, true) => OutputFormat::Text,
        (false, false) => OutputFormat::Plain,
    };
    let timeline = options.trace.as_deref().map(TimelineFile::claim).transpose()?;
    let records = timeline.as_ref().map(TimelineFile::records).transpose()?;
    let places = ElementPlacement { filters: options.apart.filters()?, records, ..ElementPlacement::default() };
    let (sites, until) = (options.apart.sites, options.until);
    let run = Elements { number: elements, ppn: 1, sites, until, output_format: telling, binds: false, places };
    let status = run_elements("mpirun", &command, &run)?;
    if let Some(timeline) = timeline {
        timeline.write(&[elements as u32])?;
    }
    Ok(ExitCode::from(status))
}

/// True for an interpreter such as python3 or /usr/bin/python.
fn is_interpreter(word: &OsStr) -> bool {
    let name = Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("python") && !name.ends_with(".py")
}
