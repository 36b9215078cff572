//! Processes of a program on the hosts of a file: `gridloom deploy --hosts`.
//!
//! Each process has a connection of its own, whose command runs it there (`running`). Closing the standard input of
//! that command ends the process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::net::ToSocketAddrs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gridloom::process::READY_FILE_VARIABLE;
use gridloom_keys::{Grant, GridFolder, Identity, KeysFolder, Role, UnixTime};
use gridloom_net::process::Addresses;
use gridloom_testbed::fleet::{AfterEnd, ExitCause, RunController};
use gridloom_testbed::spec::{Deployed, Launch, read_platform};

use super::plan::{ConnectOptions, ProcessHost, process_host};
use super::remote::Connection;
use super::request::{Action, Request, RunRequest, VERSION};
use super::slurm::JOB_VARIABLE;
use super::ssh::FAILED;
use super::{CommandWords, parse_words};

/// Time for the answer of a host, in addition to the time to connect.
const REACH_LIMIT: Duration = Duration::from_secs(30);

/// Options for processes on several machines.
#[derive(clap::Args)]
pub struct Options {
    /// Run each process on its host of this file, which 'gridloom up' reads, too
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// Reach the hosts as nodes of the Slurm allocation in which this command runs
    #[arg(long, requires = "hosts")]
    slurm: bool,
    /// The ssh command, with its first arguments
    #[arg(long, default_value = "ssh", value_name = "COMMAND", value_parser = parse_words, requires = "hosts")]
    ssh: CommandWords,
    /// Seconds that a host has to answer ssh
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=600), requires = "hosts")]
    connect_timeout: u32,
}

/// The hosts of a deployment.
pub struct Hosts {
    hosts: BTreeMap<String, ProcessHost>,
    pub addresses: Addresses,
    keys: GridFolder,
    /// Standard input of the commands, which keeps their processes running.
    inputs: Arc<Mutex<Vec<PipeWriter>>>,
    /// The requests, by the name of the file that identifies the process.
    requests: Mutex<BTreeMap<OsString, SentRequest>>,
}

/// A request for a process, in the pipe of the command that reaches its host.
struct SentRequest {
    pipe: PipeReader,
    is_written: Arc<AtomicBool>,
}

impl SentRequest {
    /// True if nobody has read the end of the request, and nobody can: the command has ended.
    fn is_unread(&self) -> bool {
        !self.is_written.load(Ordering::Acquire)
            || rustix::io::ioctl_fionread(&self.pipe).is_ok_and(|unread_bytes| unread_bytes > 0)
    }
}

impl Options {
    /// Returns the hosts with these names after each has answered; `None` if all processes run on this machine.
    pub fn find(&self, names: &BTreeSet<&str>) -> Result<Option<Hosts>> {
        let Some(file) = &self.hosts else { return Ok(None) };
        let job = match self.slurm {
            true => Some(std::env::var(JOB_VARIABLE).context("--slurm: there is no allocation of Slurm here")?),
            false => None,
        };
        let reach = ConnectOptions { ssh: self.ssh.0.clone(), connect_s: self.connect_timeout };
        Hosts::find(file, names, job.as_deref(), &reach).map(Some)
    }
}

impl Hosts {
    fn find(file: &Path, names: &BTreeSet<&str>, job: Option<&str>, reach: &ConnectOptions) -> Result<Hosts> {
        let platform = read_platform(file)?;
        let (mut hosts, mut addresses) = (BTreeMap::new(), Addresses::new());
        for name in names {
            let host = process_host(file, &platform, name, job, reach)?;
            let all: Vec<_> = (host.address.as_str(), 0).to_socket_addrs().into_iter().flatten().collect();
            // Hosts without IPv6 are more frequent than hosts without IPv4.
            let found = all.iter().find(|found| found.is_ipv4()).or(all.first());
            let found = found.with_context(|| {
                format!(
                    "{}: host '{name}': its address '{}' is unknown; correct the property 'address'",
                    file.display(),
                    host.address
                )
            })?;
            addresses.insert(name.to_string(), found.ip());
            hosts.insert(name.to_string(), host);
        }
        check_addresses(file, &addresses)?;
        let keys = KeysFolder::find()?.existing_or_new(UnixTime::now())?;
        keys.authority()?;
        let hosts = Hosts { hosts, addresses, keys, inputs: Arc::default(), requests: Mutex::default() };
        hosts.reach()?;
        Ok(hosts)
    }

    /// Checks that each host answers, and sends this program where the file requests that.
    fn reach(&self) -> Result<()> {
        let failures: Vec<String> = std::thread::scope(|scope| {
            let ask = |(name, host): (&String, &ProcessHost)| {
                let answer = host.target.request(name, &request(Action::Reach), REACH_LIMIT);
                answer.err().map(|failure| format!("{name}: {}; {}", failure.why, failure.remedy))
            };
            let asked: Vec<_> = self.hosts.iter().map(|one| scope.spawn(move || ask(one))).collect();
            asked
                .into_iter()
                .filter_map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        ensure!(failures.is_empty(), "{}\nno process was started", failures.join("\n"));
        Ok(())
    }

    /// Returns the command that runs a process on that host.
    pub fn command(&self, host: &str, launch: &Launch) -> Result<Command> {
        let text = |word: &std::ffi::OsString| match word.to_str() {
            Some(text) => Ok(text.to_string()),
            None => bail!("'{}' is not UTF-8, and cannot be sent to a host", word.display()),
        };
        let ProcessHost { target, folder, .. } = self.hosts.get(host).context("a host of the deployment")?;
        let environment = launch.environment.iter().filter(|(name, _)| name != READY_FILE_VARIABLE);
        let run = RunRequest {
            command: launch.command.iter().map(text).collect::<Result<_>>()?,
            environment: environment.map(|(name, value)| Ok((name.clone(), text(value)?))).collect::<Result<_>>()?,
            folder: folder.clone(),
            keys: self.issue()?,
        };
        let mut line = serde_json::to_string(&request(Action::Run(run)))?;
        line.push('\n');
        let words = target.host_command()?;
        let (input, mut writer) = pipe().context("a pipe")?;
        let is_written = Arc::new(AtomicBool::new(false));
        let sent = SentRequest { pipe: input.try_clone().context("a pipe")?, is_written: is_written.clone() };
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).insert(identity(launch), sent);
        let inputs = self.inputs.clone();
        // In a thread, because a large request does not fit into the pipe. A failed write needs no error: the connection reports its own.
        std::thread::spawn(move || {
            if writer.write_all(line.as_bytes()).is_ok() {
                is_written.store(true, Ordering::Release);
                inputs.lock().unwrap_or_else(PoisonError::into_inner).push(writer);
            }
        });
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(input);
        Ok(command)
    }

    /// True if the command of a process has ended before the process began, because its host has not read the whole
    /// request.
    fn has_not_begun(&self, launch: &Launch) -> bool {
        let request = self.requests.lock().unwrap_or_else(PoisonError::into_inner).remove(&identity(launch));
        request.is_some_and(|request| request.is_unread())
    }

    /// Issues the keys of a process.
    fn issue(&self) -> Result<String> {
        let identity = Identity::new(self.keys.grid(), Role::Client, "gridloom deploy")?;
        let grant = Grant { lifetime: Grant::LIFETIME_OF_PROCESS, ..Grant::new(identity) };
        Ok(self.keys.issue(&grant, UnixTime::now())?.to_pem())
    }
}

/// Returns the name of the file that identifies a process.
fn identity(launch: &Launch) -> OsString {
    let ready = launch.environment.iter().find(|(name, _)| name == READY_FILE_VARIABLE);
    ready.map(|(_, file)| file.clone()).unwrap_or_default()
}

/// Repeats connections that a host has dropped before a process began. Each process has a connection of its own, and by
/// default `sshd` drops some of them while more than 10 have not logged in yet (`MaxStartups`).
pub struct Reconnects<'a> {
    hosts: &'a Hosts,
    names: &'a [&'a str],
    until: Instant,
}

impl<'a> Reconnects<'a> {
    /// `names` are the names of the hosts on which the processes run.
    pub fn new(hosts: &'a Hosts, names: &'a [&'a str]) -> Reconnects<'a> {
        Reconnects { hosts, names, until: Instant::now() + REACH_LIMIT }
    }
}

impl RunController for Reconnects<'_> {
    fn ended(&mut self, launch: &Launch, end: ExitCause) -> Result<AfterEnd, gridloom_testbed::Error> {
        let host = self.hosts.hosts.get(self.names[launch.host]);
        let is_by_ssh = host.is_some_and(|host| matches!(host.target.connection, Connection::Ssh(_)));
        let was_dropped = self.hosts.has_not_begun(launch) && is_by_ssh && end == ExitCause::Status(FAILED);
        Ok(if was_dropped && Instant::now() < self.until { AfterEnd::Restarts } else { AfterEnd::Counts })
    }

    fn more(&mut self) -> Result<Vec<Deployed>, gridloom_testbed::Error> {
        Ok(Vec::new())
    }

    fn to_end(&self, _: &Launch) -> Option<Instant> {
        None
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Refuses loopback addresses together with others: all hosts get the same addresses, and each would connect to itself.
fn check_addresses(file: &Path, addresses: &Addresses) -> Result<()> {
    let one = |is_loopback: bool| addresses.iter().find(|(_, address)| address.is_loopback() == is_loopback);
    if let (Some((name, address)), Some((other, other_address))) = (one(true), one(false)) {
        bail!(
            "{}: host '{name}' has the loopback address {address}, so host '{other}' ({other_address}) cannot reach it; set the \
             property 'address' of '{name}' to an address that the other hosts can reach\nno process was started",
            file.display()
        );
    }
    Ok(())
}

fn request(action: Action) -> Request {
    Request { version: VERSION.into(), grid: "deploy".into(), grid_id: String::new(), action }
}
