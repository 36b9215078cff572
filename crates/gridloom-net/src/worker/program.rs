//! Programs as functions: a call runs a gang of processes of one, as many as it has slots.
//!
//! ```text
//! worker                                          caller
//!   |-- calls back: Ready (ports of its processes) -->|   this server has given its slots
//!   |<------------ Start (what each process is told) --|   all servers of the gang have
//!   | starts the processes, hands on what they print   |
//!   |-- a list of ProcessEnd ------------------------->|   all have ended
//! ```
//! The worker makes the sockets on which the processes listen, and each gets its own as its standard input. So no other process can take a
//! port between the two. The arguments are a list, and no shell sees them.
//!
//! **Promise:** no process of a gang outlives its call. They are in the process group of the worker, which the server kills if the call is
//! cancelled, its client is lost, or the worker dies. If the server dies with its workers, the kernel kills the processes that the worker has
//! started.
//! **Limit:** what such a process has started itself may go on until the worker ends. What it prints after the call goes to the server's log.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gridloom_base::{Meta, TaskError, each_line, list};
use gridloom_idl::{Body, Definition};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::initial::AskInitial;
use super::native::{LibraryVariable, Native};
use super::said::LINE_BYTES_MAX;
use super::values::{cannot_run, refused};
use super::{ArgView, Functions, OutView, Program, Room, Setup, nested};
use crate::process::{ASKED_VARIABLE, DEPLOY_VARIABLE, ProcessConfig};
use crate::transport::apart::Site;

/// From the first failure of a process to the end of the others, which end by themselves as soon as they notice it.
pub const GANG_GRACE: Duration = Duration::from_secs(10);
/// What a process has left behind may keep its output open. It is read no longer than that after its end.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// A worker has the slots and sockets of its processes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Where each process listens.
    pub ports: Vec<u16>,
    /// The site of the server, empty if it has none.
    pub site: String,
}

/// What the processes are told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    pub config: ProcessConfig,
    /// The last argument of each, which differs from the others'.
    pub own: Vec<String>,
}

/// How a process has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessEnd {
    /// Its number among those of its call.
    pub process: usize,
    /// As the system says it.
    pub wait_status: i32,
    /// It was ended because another one had failed.
    pub was_killed: bool,
    /// It has asked which process it is.
    pub has_asked: bool,
}

/// A process of a call.
struct Begun {
    process: OwnedFd,
    /// Holds a byte until the process asks which one it is. A file in memory leaves nothing behind if the worker is killed.
    asked: File,
}

impl Begun {
    /// A file that cannot be seen says nothing against its process.
    fn has_asked(&self) -> bool {
        self.asked.metadata().map_or(true, |found| found.len() == 0)
    }

    fn kill(&self) {
        // It fails only if the process has ended, which is what is wanted.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

/// Body of the program that serves native functions and programs: runs until the server ends it. Libraries of functions get those
/// variables, and `ask` tells how their modules are initialised.
///
/// # Errors
/// If `fd` is no socket of a server, or the server says what makes no sense.
pub fn native_main(fd: i32, variables: &[LibraryVariable], ask: Option<AskInitial>) -> io::Result<()> {
    let mut functions = WithPrograms { native: Native::new(variables, ask), programs: BTreeMap::new() };
    super::serve(super::inherited(fd)?, &mut functions)
}

/// Native functions, and programs beside them.
struct WithPrograms {
    native: Native,
    programs: BTreeMap<u32, (Vec<String>, IpAddr)>,
}

impl Functions for WithPrograms {
    fn setup(&mut self, setup: &Setup) -> Result<(), String> {
        self.native.setup(setup)
    }

    fn load(&mut self, function: u32, definition: &Definition) -> Result<(), String> {
        let Body::Program { command, listen } = &definition.body else { return self.native.load(function, definition) };
        let listen = listen.parse().map_err(|error| format!("it cannot listen on '{listen}': {error}"))?;
        self.programs.insert(function, (command.clone(), listen));
        Ok(())
    }

    fn call(
        &mut self,
        function: u32,
        args: &[ArgView<'_>],
        outs: &mut [OutView<'_>],
        program: &mut dyn Program,
    ) -> Result<(), TaskError> {
        let Some((command, listen)) = self.programs.get(&function) else {
            return self.native.call(function, args, outs, program);
        };
        let ends = run(command, *listen, args, program)?;
        if let Some(OutView { room: Room::Growing(text), .. }) = outs.first_mut() {
            **text = serde_json::to_vec(&ends).expect("numbers");
        }
        Ok(())
    }
}

fn run(
    command: &[String],
    listen: IpAddr,
    args: &[ArgView<'_>],
    program: &mut dyn Program,
) -> Result<Vec<ProcessEnd>, TaskError> {
    let count = nested::gang();
    if count == 0 {
        return Err(refused(
            "it runs as a gang of processes: call it by 'gridloom chares run --agent HOST:PORT'".into(),
        ));
    }
    let arguments = args.first().and_then(|argument| list::unpack(argument.bytes)).unwrap_or_default();
    let arguments: Vec<&OsStr> = arguments.into_iter().flatten().map(OsStr::from_bytes).collect();
    let failed = |what: &str, error: io::Error| cannot_run(format!("{what}: {error}"));
    let listeners: io::Result<Vec<TcpListener>> = (0..count).map(|_| TcpListener::bind((listen, 0))).collect();
    let listeners = listeners.map_err(|error| failed(&format!("no port on {listen}"), error))?;
    let start = ask(&listeners, program).map_err(cannot_run)?;
    let (ended, ends) = channel();
    let (copying, copied) = channel::<()>();
    let mut processes = Vec::new();
    for (at, listener) in listeners.into_iter().enumerate() {
        let own = start.own.get(at).cloned().unwrap_or_default();
        let mut config = start.config.clone();
        config.listens = listener.local_addr().ok().map(|address| address.port());
        let label = format!("{}@{own}", config.spec.function);
        config.spec.arguments.push(own);
        let mut command = prepared(command, &arguments, &config, listener);
        let begun = begin(&mut command, at, &label, &ended, &copying);
        match begun {
            Ok(process) => processes.push(process),
            Err(error) => {
                processes.iter().for_each(Begun::kill);
                return Err(failed(&format!("'{}' cannot be started", command.get_program().display()), error));
            }
        }
    }
    drop((ended, copying));
    let all = wait(&processes, &ends)?;
    // Nothing is sent: it ends when the last output has, or after the time.
    let _ = copied.recv_timeout(OUTPUT_TIMEOUT);
    Ok(all)
}

/// Waits until all have ended. Gives their ends in that order.
fn wait(processes: &[Begun], ends: &Receiver<(usize, i32)>) -> Result<Vec<ProcessEnd>, TaskError> {
    let mut all: Vec<ProcessEnd> = Vec::with_capacity(processes.len());
    let (mut kill_at, mut was_killed) = (None, false);
    while all.len() < processes.len() {
        let left = kill_at.map_or(Duration::MAX, |at: Instant| at.saturating_duration_since(Instant::now()));
        match ends.recv_timeout(left) {
            Ok((process, wait_status)) => {
                let has_asked = processes[process].has_asked();
                all.push(ProcessEnd { process, wait_status, was_killed, has_asked });
                if !(wait_status == 0 && has_asked || was_killed) {
                    kill_at.get_or_insert_with(|| Instant::now() + GANG_GRACE);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let has_ended = |process: usize| all.iter().any(|end| end.process == process);
                let left = processes.iter().enumerate().filter(|(process, _)| !has_ended(*process));
                left.for_each(|(_, process)| process.kill());
                (kill_at, was_killed) = (None, true);
            }
            Err(RecvTimeoutError::Disconnected) => return Err(cannot_run("its processes cannot be waited for".into())),
        }
    }
    Ok(all)
}

/// Tells the caller that the slots are here, and waits until all of the gang are.
fn ask(listeners: &[TcpListener], program: &mut dyn Program) -> Result<Start, String> {
    let ports = listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<io::Result<_>>();
    let ports = ports.map_err(|error| error.to_string())?;
    let site = Site::of_environment()?.map_or(String::new(), |site| site.name().to_string());
    let ready = serde_json::to_vec(&Ready { ports, site }).expect("a text and numbers");
    let answer = program.call_back(0, vec![(Meta::Text { size_bytes: ready.len() as u64 }, ready)])?;
    let [(_, start)] = &answer[..] else { return Err(format!("{} values came back, expected one", answer.len())) };
    serde_json::from_slice(start).map_err(|error| format!("what its processes are told is wrong: {error}"))
}

fn prepared(command: &[String], arguments: &[&OsStr], config: &ProcessConfig, listener: TcpListener) -> Command {
    let mut prepared = Command::new(&command[0]);
    prepared.args(&command[1..]).args(arguments);
    prepared.env(DEPLOY_VARIABLE, serde_json::to_string(config).expect("names and numbers"));
    prepared.stdin(OwnedFd::from(listener)).stdout(Stdio::piped()).stderr(Stdio::piped());
    prepared
}

/// Starts a process. Threads hand on what it prints, and tell of its end.
fn begin(
    command: &mut Command,
    at: usize,
    label: &str,
    ended: &Sender<(usize, i32)>,
    copying: &Sender<()>,
) -> io::Result<Begun> {
    let mut asked = File::from(memfd_create("asked", MemfdFlags::CLOEXEC)?);
    asked.write_all(b"?")?;
    command.env(ASKED_VARIABLE, format!("/proc/{}/fd/{}", std::process::id(), asked.as_raw_fd()));
    let worker = rustix::process::getpid();
    let ends_with_worker = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The worker may have ended a moment before.
        if rustix::process::getppid() == Some(worker) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec it makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(ends_with_worker) };
    let mut child = command.spawn()?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| {
        // Nobody else could end it.
        let _ = child.kill().and_then(|()| child.wait());
    })?;
    copy(child.stdout.take().expect("it is piped"), label, false, copying.clone());
    copy(child.stderr.take().expect("it is piped"), label, true, copying.clone());
    let ended = ended.clone();
    thread::spawn(move || {
        // A process of which the end cannot be known has failed.
        let wait_status = child.wait().map_or(1 << 8, ExitStatusExt::into_raw);
        // The call may have ended before.
        let _ = ended.send((at, wait_status));
    });
    Ok(Begun { process, asked })
}

/// Line by line, each with its label, in parts if it is long.
fn copy(from: impl Read + Send + 'static, label: &str, is_error: bool, copying: Sender<()>) {
    let (label, call) = (label.to_string(), nested::serial());
    thread::spawn(move || {
        each_line(BufReader::new(from), LINE_BYTES_MAX, |line| {
            let line = format!("{label}| {line}");
            if !nested::print_of(call, is_error, &format!("{line}\n")) {
                gridloom_base::say!("{line}");
            }
        });
        drop(copying);
    });
}
