//! The first process inside the box: it builds the hosts, is the network, starts the processes, and ends with the
//! program. Whatever still runs then is killed by the kernel with it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use rustix::thread::UnshareFlags;

use crate::control::{self, Answer, Request};
use crate::error::Error;
use crate::forwarder::{self, Shared};
use crate::kernel::groups;
use crate::kernel::hosts::{self, HostNetwork};
use crate::kernel::sys;
use crate::model::topology::Topology;
use crate::report::Report;
use crate::spec::{Launch, Quota, Spec, read_platform};
use crate::{fleet, folder};

/// Says on the channel that all services are ready.
pub const READY: &[u8] = b"r";
/// Tells a program on which host of a testbed it runs.
pub const HOST_VARIABLE: &str = "GRIDLOOM_TESTBED_HOST";

/// What the threads of the first process have in common.
struct World {
    topology: Topology,
    hosts: Vec<HostNetwork>,
    shared: Shared,
    /// For programs on the hosts.
    environment: Vec<(String, String)>,
    quotas: Vec<Quota>,
}

/// Builds and runs the testbed of that folder.
///
/// # Errors
/// If it cannot be built, or a service does not start.
pub fn run(folder_path: &Path, mut channel: UnixStream) -> Result<ExitCode, Error> {
    let text =
        fs::read_to_string(folder_path.join(folder::SPEC)).map_err(Error::system("the testbed's description"))?;
    let spec: Spec = serde_json::from_str(&text).expect("written by the tool of the same version");
    let platform = read_platform(&spec.platform)?;
    let topology = Topology::new(&platform, &spec.tuning)?;
    let listener =
        UnixListener::bind(folder_path.join(folder::CONTROL)).map_err(Error::system("the control socket"))?;
    mounts(folder_path, &topology)?;
    let (hosts, rings) = hosts::build(&topology)?;
    let shared = Shared::new(topology.network());
    let addresses: Vec<Ipv4Addr> = hosts.iter().map(|host| host.address).collect();
    let world =
        Arc::new(World { topology, hosts, shared, environment: spec.environment.clone(), quotas: spec.quotas.clone() });
    let network = world.shared.clone();
    std::thread::spawn(move || {
        if let Err(error) = forwarder::run(&network, rings, &addresses) {
            gridloom_core::say!("gridloom: testbed: the network has stopped: {error}");
            std::process::exit(1);
        }
    });
    let (steered, path) = (world.clone(), folder_path.to_path_buf());
    std::thread::spawn(move || control::serve(&listener, |request| steered.answer(request, &path)));
    let mut names: Vec<(Pid, String)> = Vec::new();
    for service in &spec.services {
        let child = world.start(service, true)?;
        names.push((Pid::from_child(&child), service.label.clone()));
        await_ready(child, &service.label)?;
    }
    let tell = |pid: Pid, status: WaitStatus| {
        if let Some((_, label)) = names.iter().find(|(known, _)| *known == pid) {
            let how = status.exit_status().map(|code| format!("exit status {code}"));
            let how = how.or_else(|| status.terminating_signal().map(|signal| format!("signal {signal}")));
            gridloom_core::say!("gridloom: testbed: {label} has ended ({})", how.unwrap_or_default());
        }
    };
    if !spec.processes.is_empty() {
        channel.write_all(READY).map_err(Error::system("the tool"))?;
        let status = fleet::run(&spec.processes, |launch| world.command(launch, false), tell)?;
        world.write_report(folder_path);
        return Ok(ExitCode::from(status));
    }
    let program = spec.program.as_ref().map(|program| world.start(program, false)).transpose()?;
    let program = program.map(|child| Pid::from_child(&child));
    channel.write_all(READY).map_err(Error::system("the tool"))?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == program => {
                world.write_report(folder_path);
                let code = status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0));
                return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
            }
            Ok(Some((pid, status))) => tell(pid, status),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            // No process is left: nothing but a request can end it.
            Err(rustix::io::Errno::CHILD) => loop {
                std::thread::park();
            },
            Err(error) => return Err(Error::system("waiting for processes")(error)),
        }
    }
}

impl World {
    fn start(&self, launch: &Launch, is_service: bool) -> Result<Child, Error> {
        let what = format!("cannot run '{}'", launch.command[0]);
        self.command(launch, is_service)?.spawn().map_err(Error::system(what))
    }

    fn command(&self, launch: &Launch, is_service: bool) -> Result<Command, Error> {
        let host = &self.hosts[launch.host];
        let mut command = Command::new(&launch.command[0]);
        command.args(&launch.command[1..]).envs(launch.environment.iter().cloned());
        if !is_service {
            command.envs(self.environment_on(launch.host));
        } else {
            // An interrupt at the terminal is for the program.
            command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        }
        let namespace = host.namespace.try_clone().map_err(Error::system("a host's namespace"))?;
        let name = self.topology.hosts[launch.host].clone();
        sys::before_exec(&mut command, move || join(&namespace, &name));
        Ok(command)
    }

    /// Of programs on that host.
    fn environment_on(&self, host: usize) -> Vec<(String, String)> {
        let own = (HOST_VARIABLE.to_string(), self.topology.hosts[host].clone());
        self.environment.iter().cloned().chain([own]).collect()
    }

    fn answer(&self, request: Request, folder_path: &Path) -> (Answer, Vec<OwnedFd>) {
        let answer = match request {
            Request::Cut(link) => self.switch(&link, false),
            Request::Restore(link) => self.switch(&link, true),
            Request::Slow(host, factor) => self.slow(&host, factor).unwrap_or_else(Answer::Refused),
            Request::Show => Answer::Report(Box::new(Report::now(&self.topology, &self.shared))),
            Request::Down => {
                self.write_report(folder_path);
                std::process::exit(0);
            }
            Request::Enter(host) => match self.namespaces(&host) {
                Ok((index, namespaces)) => return (Answer::Namespaces(self.environment_on(index)), namespaces),
                Err(error) => Answer::Refused(error.to_string()),
            },
        };
        (answer, Vec::new())
    }

    fn switch(&self, name: &str, is_up: bool) -> Answer {
        let links = self.topology.links_named(name);
        if links.is_empty() {
            let known = self.topology.link_names.join(", ");
            return Answer::Refused(format!("no route crosses a link '{name}'; there are {known}"));
        }
        let mut state = self.shared.lock();
        links.iter().for_each(|link| state.network.link_mut(*link).set_up(is_up));
        Answer::Done(format!("link {name} is {}", if is_up { "restored" } else { "cut" }))
    }

    fn slow(&self, host: &str, factor: f64) -> Result<Answer, String> {
        let index = self.host(host)?;
        let Some(quota) = self.quotas.iter().find(|quota| quota.host == index) else {
            return Err(format!(
                "host '{host}' has no quota of processor time that could be changed: its servers' speed is emulated                  otherwise, or not at all, or it has none; start the testbed with --speeds quota"
            ));
        };
        let cores = quota.cores * factor;
        if cores < groups::CORES_MIN {
            let least = groups::CORES_MIN / quota.cores;
            return Err(format!("host '{host}' cannot be made slower than {least:.2e} times its speed here"));
        }
        groups::set(&quota.group, cores).map_err(|error| format!("the quota of host '{host}': {error}"))?;
        Ok(Answer::Done(format!("host {host} computes at {factor} times its speed")))
    }

    /// Its number.
    fn host(&self, host: &str) -> Result<usize, String> {
        let known = || self.topology.hosts.join(", ");
        let found = self.topology.hosts.iter().position(|name| name == host);
        found.ok_or_else(|| format!("no host '{host}'; there are {}", known()))
    }

    /// The host's number, and its namespaces.
    fn namespaces(&self, host: &str) -> Result<(usize, Vec<OwnedFd>), Error> {
        let index = self.host(host).map_err(Error::Usage)?;
        let failed = || Error::system("the testbed's namespaces");
        let own = ["user", "mnt", "pid_for_children"].map(|kind| fs::File::open(format!("/proc/self/ns/{kind}")));
        let mut all = Vec::new();
        for namespace in own {
            all.push(namespace.map_err(failed())?.into());
        }
        all.push(self.hosts[index].namespace.try_clone().map_err(failed())?);
        Ok((index, all))
    }

    fn write_report(&self, folder_path: &Path) {
        let report = Report::now(&self.topology, &self.shared);
        let text = serde_json::to_string(&report).expect("a report of names and numbers");
        if let Err(error) = fs::write(folder_path.join(folder::REPORT), text) {
            gridloom_core::say!("gridloom: testbed: cannot write its report: {error}");
        }
    }
}

/// In a process that is to be on a host: into its network, under its name.
///
/// # Errors
/// If the kernel refuses.
pub fn join(namespace: &OwnedFd, name: &str) -> std::io::Result<()> {
    hosts::enter(namespace.as_fd())?;
    // The forwarder goes first: it is the network, and costs the others little.
    rustix::process::nice(NICE)?;
    sys::unshare(UnshareFlags::NEWUTS)?;
    let name = name.as_bytes();
    Ok(rustix::system::sethostname(&name[..name.len().min(HOST_NAME_BYTES_MAX)])?)
}

/// How much the processes on hosts make way for the forwarder.
const NICE: i32 = 10;
/// The kernel's own limit.
const HOST_NAME_BYTES_MAX: usize = 64;

/// A mount table of the box's own: its processes in `/proc`, its hosts in `/etc/hosts`.
fn mounts(folder_path: &Path, topology: &Topology) -> Result<(), Error> {
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private).map_err(Error::system("a mount table of its own"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // In some containers it is forbidden; then process numbers in /proc are those outside, which nothing here needs.
    let _ = mount("proc", "/proc", "proc", flags, None);
    let mut text = String::from("127.0.0.1 localhost\n");
    for (index, name) in topology.hosts.iter().enumerate() {
        text.push_str(&format!("{} {name}\n", hosts::address(index)));
    }
    let file = folder_path.join(folder::HOSTS);
    fs::write(&file, text).map_err(Error::system("the list of hosts"))?;
    // A system without that file has nothing to put it over; addresses work all the same.
    let _ = mount_bind(&file, "/etc/hosts");
    Ok(())
}

/// A service is ready when it has said its first line.
fn await_ready(mut child: Child, label: &str) -> Result<(), Error> {
    let mut output = BufReader::new(child.stdout.take().expect("its output is piped"));
    let mut line = String::new();
    output.read_line(&mut line).map_err(Error::system(label))?;
    if line.is_empty() {
        return Err(Error::Usage(format!("{label} did not start; see its message above")));
    }
    // What it says further is read, so that it never waits for a reader.
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    Ok(())
}
