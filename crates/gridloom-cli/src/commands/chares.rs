//! `gridloom chares`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use gridloom::chares::{
    Balancer, CheckpointFolder, CheckpointOptions, ELEMENT_FUNCTION, ElementPlacement, FilterSpec, InMemory, Restart,
};
use gridloom::process::PROCESSOR_VARIABLE;
use gridloom_base::limits::PROCESSING_ELEMENTS_MAX;
use gridloom_base::stderr_line;
use gridloom_net::process::processors;
use gridloom_platform::deployment::Process;
use gridloom_platform::{Host, Platform};
use gridloom_testbed::fleet::{self, Limits};
use gridloom_testbed::run_output::OutputFormat;
use gridloom_testbed::spec::{Deployed, Launch};
use serde_json::json;

use super::deploy::{command_of, deployed, loopback_address};
use super::simulate::seconds;
use super::site_options::{SitesOptions, filter};
use super::{OwnFolder, absolute, print_text};

mod advise;
mod changes;
mod on_servers;
mod resize;
mod timeline_file;

use changes::ElementChanges;

pub use timeline_file::TimelineFile;

/// Run programs of message-driven objects (chares)
#[derive(clap::Subcommand)]
pub enum Options {
    Run(Run),
    Resize(resize::Options),
    Deployment(Deployment),
    Advise(advise::Options),
}

/// Run a program of chares on several processing elements of this machine.
///
/// The command starts the program once for each processing element and connects the elements. Each line of output
/// begins with the name of its element. The command ends when all elements have ended, with the first exit status that
/// is not 0. After a failure the other elements have 10 s to end. With --sites and --latency, messages between
/// elements of different sites are delayed by that time, as if the sites were far apart. Other filters (--filter) can,
/// for instance, limit the rate.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  gridloom chares run -n 2 --sites 2 --latency 16ms -- target/release/examples/stencil\n  gridloom chares run -n 4 --agent agent.example.org:7711 -- stencil --chares 64"
)]
pub struct Run {
    /// Number of processing elements
    #[arg(short, long, value_name = "NUMBER", default_value = "2")]
    number: usize,
    /// Run a program that servers of this agent's grid offer by name ('gridloom serve --program NAME=PATH'): PROGRAM
    /// is its name. Its elements take slots of these servers, either all that they need or none. The agent's address
    /// may be left out if GRIDLOOM_AGENT has it, as on a testbed, and in simulation
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, default_missing_value = "", conflicts_with = "sites")]
    agent: Option<String>,
    #[command(flatten)]
    apart: SitesOptions,
    /// Bind each element to a processor of its own, the first element to the first processor, and so on. An element
    /// that waits for a message then spins for up to 0.1 ms (after long messages up to 1 ms) before it yields its
    /// processor. So messages take less time while other elements compute. There must be at least as many processors
    /// as elements
    #[arg(long)]
    bind: bool,
    /// Processing elements of each process, which run as its threads: messages between them are passed by pointer. For
    /// programs in Rust; elements of Python programs are processes
    #[arg(long, value_name = "NUMBER", default_value = "1", conflicts_with = "agent")]
    ppn: usize,
    /// Load balancer that moves chares to other elements: none, greedy, refine, hierarchical or grid-aware [default: the
    /// program's]
    #[arg(long, value_name = "NAME", value_parser = balancer)]
    balance: Option<String>,
    /// Store the checkpoints of the program in this folder, which all elements share. Only the last one is kept. With
    /// 'memory' each element stores its part in its own memory, and a copy in that of another element. With --agent
    /// this is a name: the servers choose the folder ('gridloom serve --checkpoints DIR')
    #[arg(long, value_name = "DIR|memory")]
    checkpoint: Option<PathBuf>,
    /// Save only every NUMBER-th of the checkpoints that the program requests
    #[arg(long, value_name = "NUMBER", default_value = "1", requires = "checkpoint", value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Restart from the last checkpoint in this folder (with --agent: of this name), with any number of elements
    #[arg(long, value_name = "DIR")]
    restart: Option<PathBuf>,
    /// If an element fails, restart all of them from the last checkpoint, at most this many times. With '--checkpoint
    /// memory' only elements that were killed are restarted; the others return to the checkpoint
    #[arg(long, value_name = "NUMBER", default_value = "0", requires = "checkpoint", conflicts_with = "until")]
    restarts: u32,
    /// Write a timeline of the elements into this file: Chrome's format (Perfetto, chrome://tracing), or Paje's if the name
    /// ends in .paje
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// End the run after this many seconds, with status 1 if an element still runs then
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    until: Option<f64>,
    /// Print JSON, a line for each line that an element prints, for each end, and for the end of the run
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// Print the deployment file of a program of chares on a platform.
///
/// The elements are divided among the platform's hosts in order. Hosts with different values of the property `site`
/// are different sites. 'gridloom simulate', 'gridloom testbed run' and 'gridloom deploy' run the program with this
/// file.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gridloom chares deployment -p two-sites.toml -n 64 > elements.toml")]
pub struct Deployment {
    /// Platform file: TOML, or SimGrid's XML
    #[arg(short, long, value_name = "FILE")]
    platform: PathBuf,
    /// Number of processing elements [default: one for each host]
    #[arg(short, long, value_name = "NUMBER")]
    number: Option<usize>,
    /// Load balancer that moves chares to other elements: none, greedy, refine, hierarchical or grid-aware [default: the
    /// program's]
    #[arg(long, value_name = "NAME", value_parser = balancer)]
    balance: Option<String>,
    /// Filter for messages between sites, in addition to the platform's links: compress, rate=10MBps, stripe=4,
    /// delay=16ms or jitter=2ms
    #[arg(long = "filter", value_name = "NAME[=VALUE]", value_parser = filter)]
    filters: Vec<FilterSpec>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    match options {
        Options::Run(run) => start(run),
        Options::Resize(resize) => resize::run(resize),
        Options::Deployment(deployment) => print_deployment(deployment),
        Options::Advise(advise) => advise::run(advise),
    }
}

fn print_deployment(options: &Deployment) -> Result<ExitCode> {
    let Deployment { platform: file, number, balance, filters } = options;
    let platform = super::platform::read(file)?;
    let places = ElementPlacement { balance: balance.clone(), filters: filters.clone(), ..ElementPlacement::default() };
    print_text(&deployment_text(&platform, file, *number, places)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the deployment of `number` elements (`None`: one for each host) on the platform of that file.
fn deployment_text(
    platform: &Platform,
    file: &Path,
    number: Option<usize>,
    places: ElementPlacement,
) -> Result<String> {
    let hosts = platform.hosts();
    ensure!(!hosts.is_empty(), "{}: it has no host", file.display());
    let number = number.unwrap_or(hosts.len());
    check_number(number)?;
    let hosts: Vec<&str> = (0..number).map(|element| &hosts[element * hosts.len() / number].name[..]).collect();
    Ok(deployment_of(&ElementPlacement { elements: numbered_sites(platform, &hosts), ..places }))
}

/// Returns these hosts of the platform, each with the number of its site.
fn numbered_sites(platform: &Platform, hosts: &[&str]) -> Vec<(String, u32)> {
    let mut sites: Vec<&str> = platform.hosts().iter().map(site_of).collect();
    sites.sort_unstable();
    sites.dedup();
    let site = |name: &str| {
        let host = platform.hosts().iter().find(|host| host.name == name).expect("a host of the platform");
        sites.binary_search(&site_of(host)).expect("the site of a host") as u32
    };
    hosts.iter().map(|name| (name.to_string(), site(name))).collect()
}

/// Returns the deployment of these elements.
fn deployment_of(places: &ElementPlacement) -> String {
    let mut text = String::new();
    for Process { host, function, arguments, .. } in processes(places) {
        // A JSON string is also a valid TOML string.
        let [host, function, arguments] = [json!(host), json!(function), json!(arguments)];
        text += &format!("[[process]]\nhost = {host}\nfunction = {function}\narguments = {arguments}\n\n");
    }
    text
}

fn site_of(host: &Host) -> &str {
    host.properties.get("site").map_or("", String::as_str)
}

fn check_number(number: usize) -> Result<()> {
    ensure!(
        (1..=PROCESSING_ELEMENTS_MAX).contains(&number),
        "-n {number}: from 1 to {PROCESSING_ELEMENTS_MAX} elements"
    );
    Ok(())
}

fn start(options: &Run) -> Result<ExitCode> {
    if let Some(agent) = &options.agent {
        return on_servers::run(options, agent);
    }
    let Run { number, until, ppn, .. } = *options;
    let (sites, filters) = (options.apart.sites, options.apart.filters()?);
    check_number(number)?;
    ensure!((1..=number).contains(&ppn), "--ppn {ppn}: from 1 to the number of elements, {number}");
    let telling = if options.json { OutputFormat::Json } else { OutputFormat::Text };
    let folder = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    let is_in_memory = options.checkpoint.as_deref() == Some(Path::new("memory"));
    ensure!(!is_in_memory || number > 1, "--checkpoint memory: an element needs another one, so -n 2 or more");
    ensure!(
        !is_in_memory || ppn == 1,
        "--checkpoint memory: an element and the one with its copy may be in one process; leave --ppn out, or give --checkpoint DIR"
    );
    ensure!(
        !is_in_memory || options.restart.is_none(),
        "--restart begins from a folder: give --checkpoint DIR with it"
    );
    let checkpoint = if is_in_memory { None } else { folder(&options.checkpoint)? };
    let run = run_number()?;
    let checkpoint = checkpoint.map(|folder| CheckpointOptions { folder, every: options.every, run, next: 0 });
    let restart = folder(&options.restart)?.map(|folder| Restart { folder, number: None });
    let balance = options.balance.clone();
    let timeline = options.trace.as_deref().map(TimelineFile::claim).transpose()?;
    let records = timeline.as_ref().map(TimelineFile::records).transpose()?;
    let places = ElementPlacement { filters, balance, checkpoint, restart, records, ..ElementPlacement::default() };
    let mut elements = Elements { number, ppn, sites, until, output_format: telling, binds: options.bind, places };
    let (mut folder, changing) = changes::prepared(&elements, is_in_memory)?;
    elements.places.resizing = Some(changing);
    let mut left = options.restarts;
    if is_in_memory {
        elements.places.memory = Some(InMemory { every: options.every });
    }
    let mut counts = Vec::new();
    loop {
        let asked = OwnFolder::new("chares")?;
        let successors = if is_in_memory { left } else { 0 };
        let mut course = ElementChanges::new(folder, &elements, &options.program, &asked, successors)?;
        let status = run_changing(&options.program, &elements, &asked, &mut course)?;
        counts.append(&mut course.counts);
        let number = course.number();
        folder = course.into_folder();
        if status == 0 || left == 0 || is_in_memory || INTERRUPTS.contains(&status) {
            if let Some(timeline) = &timeline {
                timeline.write(&counts)?;
            }
            return Ok(ExitCode::from(status));
        }
        left -= 1;
        elements.number = number;
        let places = &mut elements.places;
        places.records.iter_mut().for_each(|records| records.run = counts.len() as u32);
        if let Some(keep) = &places.checkpoint
            && let Some(number) = CheckpointFolder::new(&keep.folder).last(Some(run))?
        {
            places.restart = Some(Restart { folder: keep.folder.clone(), number: Some(number) });
        }
        let from = if places.restart.is_some() { "the last checkpoint" } else { "the beginning" };
        stderr_line!("gridloom: restarts all elements from {from}; {left} restarts left");
    }
}

/// Returns a number that distinguishes this run from all others that store checkpoints.
fn run_number() -> Result<u64> {
    Ok(u64::from_le_bytes(gridloom_net::identity::random()?))
}

/// Exit statuses of a run that was ended by SIGHUP, SIGINT or SIGTERM.
const INTERRUPTS: [u8; 3] = [129, 130, 143];

/// The processing elements of a run on this machine.
pub struct Elements {
    pub number: usize,
    /// Number of elements that are threads of one process.
    pub ppn: usize,
    pub sites: usize,
    pub until: Option<f64>,
    pub output_format: OutputFormat,
    /// True if each element is bound to a processor of its own.
    pub binds: bool,
    /// Data that each element gets in addition to the places of the elements.
    pub places: ElementPlacement,
}

/// Runs the program once for each element, in a temporary folder of that name. Returns the exit status.
pub fn run_elements(name: &str, program: &[OsString], elements: &Elements) -> Result<u8> {
    let folder = OwnFolder::new(name)?;
    let deployed = checked(program, elements, &folder)?;
    Ok(fleet::run_within(&deployed, &elements.limits(), |launch| Ok(command_of(launch)), |_, _| {})?)
}

/// Like [`run_elements`], but the number of elements may change during the run.
fn run_changing(
    program: &[OsString],
    elements: &Elements,
    folder: &OwnFolder,
    course: &mut ElementChanges<'_>,
) -> Result<u8> {
    let deployed = checked(program, elements, folder)?;
    let command = |launch: &Launch| Ok(command_of(launch));
    Ok(fleet::run_changing(&deployed, &elements.limits(), command, |_, _| {}, course)?)
}

impl Elements {
    fn limits(&self) -> Limits {
        Limits {
            until_s: self.until,
            grace_s: Some(GRACE_S),
            first: None,
            shows_running: true,
            format: self.output_format,
        }
    }
}

/// Returns the processes of a run, or an error if the machine cannot run this many.
fn checked(program: &[OsString], elements: &Elements, folder: &OwnFolder) -> Result<Vec<Deployed>> {
    let Elements { number, sites, binds, .. } = *elements;
    ensure!(
        (1..=PROCESSING_ELEMENTS_MAX).contains(&number),
        "{number} elements: from 1 to {PROCESSING_ELEMENTS_MAX} of them"
    );
    ensure!((1..=number).contains(&sites), "--sites {sites}: from 1 to the number of elements, {number}");
    let may_use = if binds { processors()?.len() } else { number };
    ensure!(
        number <= may_use,
        "--bind: {number} elements, and this command may use {may_use} processors: give -n {may_use} or fewer, or leave --bind out"
    );
    deployed_of(elements, number, program, &folder.0)
}

/// Returns the processes of `number` elements. `folder` is for the files by which processes report that they have read
/// which element they are.
fn deployed_of(elements: &Elements, number: usize, program: &[OsString], folder: &Path) -> Result<Vec<Deployed>> {
    let Elements { ppn, binds, .. } = *elements;
    let named =
        hosts_of(elements, number).into_iter().enumerate().map(|(element, (_, site))| (element.to_string(), site));
    let places = ElementPlacement { elements: named.collect(), ..elements.places.clone() };
    let addresses = (0..number).map(|element| (element.to_string(), loopback_address(element))).collect();
    let mut deployed = deployed(&processes(&places), ppn, program, &addresses, folder, |_| 0);
    let processors = if binds { processors()? } else { Vec::new() };
    for (process, processors) in deployed.iter_mut().zip(processors.chunks(ppn)) {
        let processors: Vec<String> = processors.iter().map(usize::to_string).collect();
        process.launch.environment.push((PROCESSOR_VARIABLE.to_string(), processors.join(",").into()));
    }
    Ok(deployed)
}

/// Returns the places of `number` elements: each element has an address of its own, as if it were a host.
fn hosts_of(elements: &Elements, number: usize) -> Vec<(String, u32)> {
    let site = |element: usize| (element * elements.sites / number) as u32;
    (0..number).map(|element| (loopback_address(element).to_string(), site(element))).collect()
}

/// Prefix of a run's folder, by which another command finds the run.
const FOLDER_NAME: &str = "chares-run";

/// Seconds from the first failure to the forced end of the other elements; they end by themselves as soon as they notice it.
const GRACE_S: f64 = 10.0;

/// Returns the processes of a program, with these data for each of them.
fn processes(places: &ElementPlacement) -> Vec<Process> {
    let process = |(number, (host, _)): (u32, &(String, u32))| Process {
        host: host.clone(),
        function: ELEMENT_FUNCTION.into(),
        arguments: vec![ElementPlacement { number, ..places.clone() }.to_argument()],
        start_time: None,
        kill_time: None,
        restart: false,
        properties: BTreeMap::new(),
        program: Vec::new(),
    };
    (0..).zip(&places.elements).map(process).collect()
}

fn balancer(name: &str) -> Result<String, String> {
    Balancer::by_name(name).map(|balancer| balancer.name.to_string())
}
