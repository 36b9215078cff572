//! `gridloom deploy`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Result, bail, ensure};
use gridloom::process::{CHECK_VARIABLE, DEPLOY_VARIABLE, ProcessSpec, READY_FILE_VARIABLE};
use gridloom_net::process::{Addresses, PROCESS_VARIABLES, ProcessConfig};
use gridloom_platform::deployment::{self, Process};
use gridloom_testbed::fleet::{self, Limits};
use gridloom_testbed::init::HOST_VARIABLE;
use gridloom_testbed::run_output::OutputFormat;
use gridloom_testbed::spec::Deployed;
use gridloom_testbed::spec::Launch;

use super::simulate::seconds;
use super::up::{ProcessHostOptions, Reconnects};
use super::{OwnFolder, read_text};

/// Run the processes of a deployment as real processes, on this machine or on several.
///
/// The command starts the program once for each process of the deployment. On this machine each host has a loopback
/// address of its own, so processes of different hosts may listen on the same port. With --hosts each process runs on
/// its host in that file. Hosts are reached in the same way as by 'gridloom up', and must have the program; keys are
/// issued on this machine. Each line of output begins with the name of its process. Without --hosts, the first process
/// checks the whole deployment: if the program lacks a function, or if arguments do not fit one, no other process starts,
/// and start and kill times count from the end of this check. The command ends when all processes have ended, with the
/// first exit status that is not 0. After a failure the other processes have 10 s to end. SIGINT and SIGTERM kill all
/// processes; the exit status is then 128 plus the signal's number. For an emulated network between the hosts, see
/// 'gridloom testbed run'.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom deploy -d two-processes.toml -- python program.py\n  \
                  gridloom deploy -d two-processes.toml --hosts grid.toml -- ./program")]
pub struct Options {
    /// Deployment file: which function runs on which host with which arguments
    #[arg(short, long, value_name = "FILE")]
    deployment: PathBuf,
    #[command(flatten)]
    hosts: ProcessHostOptions,
    /// End the run after this many seconds, with status 1 if a process still runs then
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    until: Option<f64>,
    /// Seconds from the first failure to the end of the other processes
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    grace: f64,
    /// Keep the other processes running after a failure
    #[arg(long, conflicts_with = "grace")]
    keep_going: bool,
    /// Print JSON, a line for each line that a process prints, for each end, and for the end of the run
    #[arg(long)]
    json: bool,
    /// The program and its arguments, for processes whose entry in the file names none
    #[arg(last = true)]
    program: Vec<OsString>,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    if let Ok(host) = std::env::var(HOST_VARIABLE) {
        bail!(
            "this is host '{host}' of a testbed, on which all processes of the deployment would run, without a link between \
             them: 'gridloom testbed run -p PLATFORM -d {} -- PROGRAM' runs each on its own host",
            options.deployment.display()
        );
    }
    let name = options.deployment.display().to_string();
    let text = read_text(&options.deployment)?;
    let processes = deployment::parse(&text, &name)?;
    ensure!(!processes.is_empty(), "{name}: no process is deployed");
    if let Some(process) = processes.iter().find(|process| process.program.is_empty() && options.program.is_empty()) {
        bail!(
            "which program is '{}@{}' a process of? 'gridloom deploy -d {name} -- PROGRAM', or 'program = [\"PROGRAM\"]' in the \
             file",
            process.function,
            process.host
        );
    }
    let is_one = processes.iter().all(|process| process.program == processes[0].program);
    let names: BTreeSet<&str> = processes.iter().map(|process| process.host.as_str()).collect();
    let hosts = options.hosts.find(&names)?;
    let addresses = hosts.as_ref().map_or_else(|| loopback_addresses(&processes), |hosts| hosts.addresses.clone());
    let folder = OwnFolder::new("deploy")?;
    let names: Vec<&str> = names.into_iter().collect();
    let number = |name: &str| names.iter().position(|host| *host == name).expect("a host of the deployment");
    let deployed = deployed(&processes, 1, &options.program, &addresses, &folder.0, number);
    let command = |launch: &Launch| match &hosts {
        None => Ok(command_of(launch)),
        Some(hosts) => hosts
            .command(names[launch.host], launch)
            .map_err(|error| gridloom_testbed::Error::Usage(format!("{}: {error:#}", launch.label))),
    };
    // Each host checks that its process has read which process it is.
    for one in deployed.iter().filter(|_| hosts.is_some()) {
        std::fs::write(&one.ready_file, "")?;
    }
    let is_checked = is_one && hosts.is_none();
    let file = options.deployment.canonicalize().ok().filter(|file| is_checked && file.is_file());
    let limits = Limits {
        until_s: options.until,
        grace_s: (!options.keep_going).then_some(options.grace),
        first: file.map(|file| (CHECK_VARIABLE.to_string(), file.into_os_string())),
        shows_running: true,
        format: if options.json { OutputFormat::Json } else { OutputFormat::Text },
    };
    Ok(ExitCode::from(match &hosts {
        None => fleet::run_within(&deployed, &limits, command, |_, _| {})?,
        Some(hosts) => {
            let mut reconnects = Reconnects::new(hosts, &names);
            fleet::run_changing(&deployed, &limits, command, |_, _| {}, &mut reconnects)?
        }
    }))
}

/// Returns the command that starts such a process here. This command may itself be a process of a deployment or gang.
pub fn command_of(launch: &Launch) -> Command {
    let mut command = Command::new(&launch.command[0]);
    PROCESS_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    command.args(&launch.command[1..]).envs(launch.environment.iter().cloned()).stdin(Stdio::null());
    command
}

/// Returns the processes to start. Each process learns from its environment which process it is and where the hosts
/// are. Each group of `threads` consecutive processes runs as threads of one process. `folder` is for the files by
/// which processes report that they have read their configuration; `number` returns a host's number in the platform.
pub fn deployed(
    processes: &[Process],
    threads: usize,
    program: &[OsString],
    addresses: &Addresses,
    folder: &Path,
    number: impl Fn(&str) -> usize,
) -> Vec<Deployed> {
    let spec = |process: &Process| {
        let Process { host, function, arguments, .. } = process.clone();
        ProcessSpec { function, host, arguments }
    };
    let one = |(index, processes): (usize, &[Process])| {
        let (process, beside) = processes.split_first().expect("a chunk is not empty");
        let (spec, threads) = (spec(process), beside.iter().map(spec).collect::<Vec<ProcessSpec>>());
        let until = threads.last().map(|last| format!("-{}", last.host)).unwrap_or_default();
        let label = format!("{}@{}{until}", spec.function, spec.host);
        let host_number = number(&spec.host);
        let config = ProcessConfig { spec, threads, addresses: addresses.clone(), ..ProcessConfig::default() };
        let config = serde_json::to_string(&config).expect("names and addresses");
        let ready = folder.join(format!("ready-{index}"));
        let environment = vec![
            (DEPLOY_VARIABLE.to_string(), config.into()),
            (READY_FILE_VARIABLE.to_string(), ready.clone().into_os_string()),
        ];
        let own: Vec<OsString> = process.program.iter().map(OsString::from).collect();
        let command = if own.is_empty() { program.to_vec() } else { own };
        let launch = Launch { host: host_number, label, command, computes: false, environment };
        Deployed { launch, start_s: process.start_time.unwrap_or(0.0), kill_s: process.kill_time, ready_file: ready }
    };
    processes.chunks(threads).enumerate().map(one).collect()
}

/// Returns a loopback address for each host: 127.x.y.z, with x and y from this process's number, so that two runs do not collide.
pub fn loopback_addresses(processes: &[Process]) -> Addresses {
    let hosts: BTreeSet<&str> = processes.iter().map(|process| process.host.as_str()).collect();
    hosts.into_iter().enumerate().map(|(number, host)| (host.to_string(), loopback_address(number))).collect()
}

/// Returns the loopback address of the host with this number.
pub fn loopback_address(number: usize) -> IpAddr {
    let (pid, [high, low]) = (std::process::id(), (number as u16 + 1).to_be_bytes());
    IpAddr::V4(Ipv4Addr::new(127, 64 + (pid % 128) as u8, high ^ (pid >> 7) as u8, low))
}
