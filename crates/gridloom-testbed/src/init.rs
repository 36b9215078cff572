//! The first process inside the box: it builds the hosts, runs the forwarder, starts the processes, and ends with the
//! program. The kernel then kills all processes that still run inside.

use gridloom_base::EscapedBytes;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use rustix::thread::UnshareFlags;

use crate::control::{self, Reply, ReplyBody, Request};
use crate::error::Error;
use crate::forwarder::{self, Shared};
use crate::kernel::groups;
use crate::kernel::hosts::{self, HostNetwork};
use crate::kernel::sys;
use crate::model::topology::{QUEUE_OF_MARK, Topology};
use crate::processors::{self, ProcessorMonitor};
use crate::profiles::{Change, ProfileSchedule};
use crate::report::Report;
use crate::spec::{Launch, Quota, Spec, read_platform};
use crate::{fleet, folder};

/// Byte sent on the channel when all services are ready.
pub const READY: u8 = b'r';
/// Environment variable with the host of a testbed on which a program runs.
pub const HOST_VARIABLE: &str = "GRIDLOOM_TESTBED_HOST";
/// Environment variable with the folder of the nodes' sockets.
const SOCKETS_VARIABLE: &str = "GRIDLOOM_SOCKETS";

/// State shared by the threads of the first process.
struct TestbedState {
    topology: Topology,
    hosts: Vec<HostNetwork>,
    shared: Shared,
    /// Environment variables of programs on the hosts.
    environment: Vec<(String, String)>,
    quotas: Vec<Quota>,
    /// Factors of the quotas: as requested, and by the platform's profiles.
    scales: Mutex<Vec<(f64, f64)>>,
    has_grid: bool,
    processors: Mutex<Option<ProcessorMonitor>>,
    /// Pid of the program. The processes of a deployment are ended by signals to this process itself.
    program: OnceLock<Pid>,
    has_program: bool,
}

/// Builds and runs the testbed of this folder.
///
/// # Errors
/// If it cannot be built, or a service does not start.
pub fn run(folder_path: &Path, mut channel: UnixStream) -> Result<ExitCode, Error> {
    let text =
        fs::read_to_string(folder_path.join(folder::SPEC)).map_err(Error::system("the testbed's description"))?;
    let spec: Spec = serde_json::from_str(&text).expect("written by the tool of the same version");
    if spec.processes.is_empty() {
        sys::hold_interrupts()
    } else {
        sys::free_signals()
    }
    let platform = read_platform(&spec.platform)?;
    let topology = Topology::new(&platform, &spec.tuning)?;
    let listener =
        UnixListener::bind(folder_path.join(folder::CONTROL)).map_err(Error::system("the control socket"))?;
    mounts(folder_path, &topology)?;
    let (hosts, rings) = hosts::build(&topology)?;
    // The nodes' sockets are removed with the testbed.
    let sockets = (SOCKETS_VARIABLE.to_string(), folder_path.join(folder::SOCKETS).display().to_string());
    let shared = Shared::new(topology.network());
    let addresses: Vec<Ipv4Addr> = hosts.iter().map(|host| host.address).collect();
    let has_quota = |host: usize| spec.quotas.iter().any(|quota| quota.host == host);
    let course = ProfileSchedule::new(&platform, &topology, spec.tuning.slower, has_quota);
    let world = Arc::new(TestbedState {
        topology,
        hosts,
        shared,
        environment: spec.environment.iter().cloned().chain([sockets]).collect(),
        quotas: spec.quotas.clone(),
        scales: Mutex::new(vec![(1.0, 1.0); spec.quotas.len()]),
        has_grid: !spec.services.is_empty(),
        processors: Mutex::new(None),
        program: OnceLock::new(),
        has_program: spec.program.is_some(),
    });
    let network = world.shared.clone();
    std::thread::spawn(move || {
        if let Err(error) = forwarder::run(&network, rings, &addresses) {
            tracing::error!(target: "gridloom.testbed", why = %error, "the network has stopped");
            std::process::exit(1);
        }
    });
    let (steered, path) = (world.clone(), folder_path.to_path_buf());
    std::thread::spawn(move || control::serve(&listener, |request| steered.handle_request(request, &path)));
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
            tracing::warn!(target: "gridloom.testbed", node = label.as_str(), how, "a service has ended");
        }
    };
    if !spec.processes.is_empty() {
        world.is_up(course);
        channel.write_all(&[READY]).map_err(Error::system("the tool"))?;
        let command = |launch: &Launch| {
            let mut command = world.command(launch, false)?;
            command.stdin(Stdio::null());
            Ok(command)
        };
        let status = fleet::run(&spec.processes, command, tell)?;
        world.write_report(folder_path);
        return Ok(ExitCode::from(status));
    }
    // Sent before the program starts: its output may cause an interrupt to be sent to the tool, and that interrupt is
    // meant for the program.
    channel.write_all(&[READY]).map_err(Error::system("the tool"))?;
    let program = spec.program.as_ref().map(|program| world.start(program, false)).transpose()?;
    let program = program.map(|child| Pid::from_child(&child));
    if let Some(program) = program {
        world.program.set(program).expect("there is one program");
    }
    world.is_up(course);
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == program => {
                world.write_report(folder_path);
                let code = status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0));
                return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
            }
            Ok(Some((pid, status))) => tell(pid, status),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            // No process is left: only a request can end the testbed.
            Err(rustix::io::Errno::CHILD) => loop {
                std::thread::park();
            },
            Err(error) => return Err(Error::system("waiting for processes")(error)),
        }
    }
}

impl TestbedState {
    fn start(&self, launch: &Launch, is_service: bool) -> Result<Child, Error> {
        let what = format!("cannot run '{}'", EscapedBytes::of(&launch.command[0]));
        self.command(launch, is_service)?.spawn().map_err(Error::system(what))
    }

    fn command(&self, launch: &Launch, is_service: bool) -> Result<Command, Error> {
        let host = &self.hosts[launch.host];
        let mut command = Command::new(&launch.command[0]);
        command.args(&launch.command[1..]).envs(launch.environment.iter().cloned());
        if !is_service {
            command.envs(self.environment_on(launch.host));
        } else {
            command.envs(self.environment.iter().filter(|(name, _)| name == SOCKETS_VARIABLE).cloned());
            // An interrupt at the terminal is meant for the program.
            command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        }
        let namespace = host.namespace.try_clone().map_err(Error::system("a host's namespace"))?;
        let name = self.topology.hosts[launch.host].clone();
        sys::before_exec(&mut command, move || {
            // Signals that this process blocks must not be blocked in its children.
            sys::free_signals();
            join(&namespace, &name)
        });
        Ok(command)
    }

    /// Returns the environment variables of programs on this host.
    fn environment_on(&self, host: usize) -> Vec<(String, String)> {
        let own = (HOST_VARIABLE.to_string(), self.topology.hosts[host].clone());
        self.environment.iter().cloned().chain([own]).collect()
    }

    fn handle_request(&self, request: Request, folder_path: &Path) -> Reply {
        match request {
            Request::Cut(link) => self.switch(&link, false).into(),
            Request::Restore(link) => self.switch(&link, true).into(),
            Request::Slow(host, factor) => self.slow(&host, factor).unwrap_or_else(ReplyBody::Refused).into(),
            Request::Show => ReplyBody::Report(Box::new(self.report())).into(),
            Request::Signal(signal) => self.pass_signal(signal),
            Request::Down => {
                self.write_report(folder_path);
                std::process::exit(0);
            }
            Request::Enter(host) => match self.namespaces(&host) {
                Ok((index, namespaces)) => {
                    Reply { answer: ReplyBody::Namespaces(self.environment_on(index)), namespaces, then: None }
                }
                Err(error) => ReplyBody::Refused(error.to_string()).into(),
            },
        }
    }

    fn switch(&self, name: &str, is_up: bool) -> ReplyBody {
        let links = self.topology.links_named(name);
        if links.is_empty() {
            let known = self.topology.link_names.join(", ");
            return ReplyBody::Refused(format!("no route crosses a link '{name}'; there are {known}"));
        }
        let mut state = self.shared.lock();
        links.iter().for_each(|link| state.network.link_mut(*link).set_up(is_up));
        ReplyBody::Done(format!("link {name} is {}", if is_up { "restored" } else { "cut" }))
    }

    fn slow(&self, host: &str, factor: f64) -> Result<ReplyBody, String> {
        let index = self.host(host)?;
        let Some(place) = self.quotas.iter().position(|quota| quota.host == index) else {
            return Err(match (self.has_grid, self.quotas.is_empty()) {
                (false, _) => format!(
                    "the speed of host '{host}' is not emulated: speeds are emulated only for calls on servers, and \
                     there are none; start the testbed with a grid (without --no-grid) and with --speeds quota"
                ),
                (true, true) => format!(
                    "host '{host}' has no quota of processor time: speeds are emulated in another way here, or not \
                     at all; start the testbed with --speeds quota, which needs a user who may create control groups"
                ),
                (true, false) => format!("host '{host}' has no server whose calls could be slowed down"),
            });
        };
        self.scale(place, |scales| scales.0 = factor).map_err(|why| format!("the quota of host '{host}': {why}"))?;
        Ok(ReplyBody::Done(format!("host {host} computes at {factor} times its speed")))
    }

    /// Changes a factor of a quota, and applies the new quota.
    fn scale(&self, place: usize, change: impl FnOnce(&mut (f64, f64))) -> Result<(), String> {
        let quota = &self.quotas[place];
        let mut scales = self.scales.lock().expect("no panic while held");
        let mut changed = scales[place];
        change(&mut changed);
        let cores = quota.cores * changed.0 * changed.1;
        if changed.1 > 0.0 && cores < groups::CORES_MIN {
            let least = groups::CORES_MIN / quota.cores;
            return Err(format!("the minimum here is {least:.2e} of the host's speed"));
        }
        groups::set(&quota.group, cores.max(groups::CORES_MIN)).map_err(|error| error.to_string())?;
        scales[place] = changed;
        Ok(())
    }

    /// Starts following the profiles and observing the processors.
    fn is_up(self: &Arc<Self>, course: ProfileSchedule) {
        let watched = self.clone();
        *self.processors.lock().expect("no panic while held") = Some(ProcessorMonitor::new(&self.quotas));
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(processors::WINDOW);
                watched
                    .processors
                    .lock()
                    .expect("no panic while held")
                    .iter_mut()
                    .for_each(ProcessorMonitor::end_window);
            }
        });
        if course.next_s().is_some() {
            let changed = self.clone();
            std::thread::spawn(move || course.follow(|change| changed.change(change)));
        }
    }

    fn change(&self, change: Change) {
        match change {
            Change::Bandwidth(link, bandwidth) => {
                let mark_bytes = self.topology.mark_bytes(link, bandwidth);
                let mut state = self.shared.lock();
                state.network.link_mut(link).set_bandwidth(bandwidth, mark_bytes, mark_bytes * QUEUE_OF_MARK);
            }
            Change::Latency(link, latency_ns) => self.shared.lock().network.link_mut(link).set_latency(latency_ns),
            Change::State(link, is_up) => self.shared.lock().network.link_mut(link).set_up(is_up),
            Change::Speed(host, factor) => {
                let place = self.quotas.iter().position(|quota| quota.host == host).expect("it has a quota");
                if let Err(why) = self.scale(place, |scales| scales.1 = factor) {
                    let name = &self.topology.hosts[host];
                    tracing::warn!(target: "gridloom.testbed", host = name.as_str(), why, "a host's speed stays as it is");
                }
            }
        }
    }

    /// Passes a signal on, after replying: an interrupt goes to all processes that a terminal would interrupt, unless
    /// the signal is from a terminal.
    fn pass_signal(&self, signal: i32) -> Reply {
        let Some(known) = Signal::from_named_raw(signal) else {
            return ReplyBody::Refused(format!("no signal {signal}")).into();
        };
        // If the program is just being started, it will have started in a moment, or the testbed ends.
        let program = self.has_program.then(|| *self.program.wait());
        let was_alone = signal != Signal::INT.as_raw() || program.is_none() || !sys::take_interrupt();
        let pass_on = move || {
            let told = program.map_or_else(|| vec![rustix::process::getpid()], with_its_group);
            // The processes may have ended meanwhile.
            for pid in told {
                let _ = kill_process(pid, known);
            }
        };
        let then = was_alone.then(|| Box::new(pass_on) as Box<dyn FnOnce()>);
        Reply { answer: ReplyBody::Signalled { was_alone }, namespaces: Vec::new(), then }
    }

    /// Returns the host's number.
    fn host(&self, host: &str) -> Result<usize, String> {
        let known = || self.topology.hosts.join(", ");
        let found = self.topology.hosts.iter().position(|name| name == host);
        found.ok_or_else(|| format!("no host '{host}'; there are {}", known()))
    }

    /// Returns the host's number and its namespaces.
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

    fn report(&self) -> Report {
        let mut watch = self.processors.lock().expect("no panic while held");
        watch.iter_mut().for_each(ProcessorMonitor::end_window);
        let processors = watch.as_ref().map(ProcessorMonitor::seen).unwrap_or_default();
        Report::now(&self.topology, &self.shared, processors)
    }

    fn write_report(&self, folder_path: &Path) {
        let text = serde_json::to_string(&self.report()).expect("a report of names and numbers");
        if let Err(error) = fs::write(folder_path.join(folder::REPORT), text) {
            tracing::error!(target: "gridloom.testbed", why = %error, "cannot write the report");
        }
    }
}

/// Returns the program, and the processes started by it that a terminal would interrupt with it: these are in the
/// tool's process group, in which nothing else inside is except this process.
fn with_its_group(program: Pid) -> Vec<Pid> {
    let group = sys::group_of(program.as_raw_pid());
    let is_own = fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() == "1");
    // If the box has no `/proc` of its own, the pids there are those of other processes.
    let entries = is_own.then(|| fs::read_dir("/proc").ok()).flatten().into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let others = numbers.filter(|pid| *pid != 1 && sys::group_of(*pid) == group).filter_map(Pid::from_raw);
    let mut all: Vec<Pid> = others.filter(|pid| *pid != program).collect();
    all.push(program);
    all
}

/// Moves a process to a host: into its network, under its name.
///
/// # Errors
/// If a system call fails.
pub fn join(namespace: &OwnedFd, name: &str) -> std::io::Result<()> {
    hosts::enter(namespace.as_fd())?;
    // The forwarder has priority: it is the network, and takes little time from the others.
    rustix::process::nice(NICE)?;
    sys::unshare(UnshareFlags::NEWUTS)?;
    let name = name.as_bytes();
    Ok(rustix::system::sethostname(&name[..name.len().min(HOST_NAME_BYTES_MAX)])?)
}

/// Niceness of the processes on hosts, which gives the forwarder priority.
const NICE: i32 = 10;
/// Maximum length of a host name, the kernel's own limit.
const HOST_NAME_BYTES_MAX: usize = 64;

/// Sets up the box's own mount table: its processes in `/proc`, its hosts in `/etc/hosts`.
fn mounts(folder_path: &Path, topology: &Topology) -> Result<(), Error> {
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private).map_err(Error::system("a private mount table"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // In some containers this is forbidden; then the pids in /proc are those outside, which nothing here needs.
    let _ = mount("proc", "/proc", "proc", flags, None);
    let mut text = String::from("127.0.0.1 localhost\n");
    for (index, name) in topology.hosts.iter().enumerate() {
        text.push_str(&format!("{} {name}\n", hosts::address(index)));
    }
    let file = folder_path.join(folder::HOSTS);
    fs::write(&file, text).map_err(Error::system("the list of hosts"))?;
    // A system without that file has nothing to mount over; addresses work all the same.
    let _ = mount_bind(&file, "/etc/hosts");
    Ok(())
}

/// Waits until a service is ready, which it reports by printing its first line.
fn await_ready(mut child: Child, label: &str) -> Result<(), Error> {
    let mut output = BufReader::new(child.stdout.take().expect("its output is piped"));
    let mut line = String::new();
    output.read_line(&mut line).map_err(Error::system(label))?;
    if line.is_empty() {
        return Err(Error::Usage(format!("{label} did not start; see its message above")));
    }
    // Keep reading its output, so that the service never blocks on a full pipe.
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    Ok(())
}
