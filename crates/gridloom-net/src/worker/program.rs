//! Programs as functions: a call runs a gang of processes of one program, as many as it has slots.
//!
//! ```text
//! worker                                          caller
//!   |<- Wanted, arguments of the program (the call) ---|
//!   |-- calls back: Ready (ports of its processes) --->|   this server has provided its slots
//!   |<------------ Start (instructions per process) ---|   all servers of the gang have
//!   | starts the processes, forwards their output      |
//!   |-- calls back: ProcessEnd of the first failure -->|   if any; the worker does not wait for a reply
//!   |-- a list of ProcessEnd, records ---------------->|   all have ended
//! ```
//! The worker creates the sockets on which the processes listen, and passes each process its own as standard input, so
//! that no other process can take a port in between. The arguments are a list and never pass through a shell.
//!
//! **Guarantee:** no process that the worker has started for a gang outlives its call. The processes are in the
//! worker's process group, which the server kills if the call is cancelled, its client is lost, or the worker dies. If
//! the server dies with its workers, the kernel kills the processes that the worker has started. Orphans of a process
//! end with the call, too, within the limits described at [`orphans`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gridloom_base::{Meta, TaskError, each_line, list};
use gridloom_idl::{Body, Definition};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;

use super::initial::QueryInitial;
use super::native::{LibraryVariable, Native};
use super::output::LINE_BYTES_MAX;
use super::values::{cannot_run, refused};
use super::{ArgView, CallbackTarget, Functions, OutView, Room, Setup, nested};
use crate::process::{DEPLOY_VARIABLE, GANG_VARIABLE, Gang, PROCESSOR_VARIABLE, ProcessConfig, READY_FILE_VARIABLE};
use crate::transport::emulated_sites::Site;

mod bound;
pub mod checkpoints;
mod messages;
mod orphans;

use bound::ReservedProcessors;
use checkpoints::FolderMark;
pub use messages::{FAILED, GangRequest, GangStart, ProcessEnd, READY, Reading, Ready, ReplyTimes};
use orphans::OrphanReaper;

/// Time between the first failure of a process and the killing of the others, which end by themselves as soon as they notice it.
pub const GANG_GRACE: Duration = Duration::from_secs(10);
/// Time for which output is read after the end of a process. Its orphans may keep the output open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// A started process of a call.
struct StartedProcess {
    process: OwnedFd,
    files: Files,
}

/// Files that a process writes for its worker. They are in memory, so nothing is left behind if the worker is killed.
struct Files {
    /// Contains one byte until the process reads its configuration.
    ready: File,
    /// Records of what the process did, for a timeline.
    records: File,
}

impl Files {
    fn new() -> io::Result<Files> {
        let made = |name| Ok::<_, io::Error>(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?));
        let (mut ready, records) = (made("ready")?, made("records")?);
        ready.write_all(b"?")?;
        Ok(Files { ready, records })
    }
}

/// Returns the path under which a process of this worker can open the file.
fn path_of(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

impl StartedProcess {
    /// Reports whether the process has read its configuration. If the file cannot be queried, assumes that it has.
    fn has_read_config(&self) -> bool {
        self.files.ready.metadata().map_or(true, |found| found.len() == 0)
    }

    /// Returns its records for reading; empty if it has written none.
    fn into_records(mut self) -> io::Result<File> {
        self.files.records.seek(SeekFrom::Start(0))?;
        Ok(self.files.records)
    }

    fn kill(&self) {
        // Fails only if the process has ended, which is the goal.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

/// The main function of the program that runs native functions and programs: runs until the server ends it. Libraries
/// get these variables, and `ask` determines how their modules are initialised.
///
/// # Errors
/// If `fd` is not a server's socket, or the server sends an invalid message.
pub fn native_main(fd: i32, variables: &[LibraryVariable], ask: Option<QueryInitial>) -> io::Result<()> {
    let mut functions = WithPrograms { native: Native::new(variables, ask), programs: BTreeMap::new() };
    super::serve(super::inherited(fd)?, &mut functions)
}

/// Native functions and programs.
struct WithPrograms {
    native: Native,
    programs: BTreeMap<u32, Offered>,
}

/// A program, as offered by the server's operator.
struct Offered {
    command: Vec<OsString>,
    listen: IpAddr,
    /// Folder for its checkpoints.
    folder: Option<PathBuf>,
}

impl Functions for WithPrograms {
    fn setup(&mut self, setup: &Setup) -> Result<(), String> {
        self.native.setup(setup)
    }

    fn load(&mut self, function: u32, definition: &Definition) -> Result<(), String> {
        let Body::Program { command, listen, checkpoints } = &definition.body else {
            return self.native.load(function, definition);
        };
        let listen = listen.parse().map_err(|error| format!("it cannot listen on '{listen}': {error}"))?;
        let name = definition.signature.name.rsplit('/').next().unwrap_or_default();
        let (command, folder) = (command.clone(), checkpoints.as_ref().map(|all| all.join(name)));
        self.programs.insert(function, Offered { command, listen, folder });
        Ok(())
    }

    fn call(
        &mut self,
        function: u32,
        args: &[ArgView<'_>],
        outs: &mut [OutView<'_>],
        program: &mut dyn CallbackTarget,
    ) -> Result<(), TaskError> {
        let Some(offered) = self.programs.get(&function) else {
            return self.native.call(function, args, outs, program);
        };
        let (ends, records) = offered.run(args, program)?;
        let results = [serde_json::to_vec(&ends).expect("numbers"), records];
        for (out, result) in outs.iter_mut().zip(results) {
            if let Room::Growing(room) = &mut out.room {
                **room = result;
            }
        }
        Ok(())
    }
}

impl Offered {
    /// Runs a gang until it ends. Returns how its processes ended, and their records.
    fn run(
        &self,
        args: &[ArgView<'_>],
        program: &mut dyn CallbackTarget,
    ) -> Result<(Vec<ProcessEnd>, Vec<u8>), TaskError> {
        let count = nested::gang() as usize;
        if count == 0 {
            return Err(refused(
                "it runs as a gang of processes; start it with 'gridloom chares run --agent HOST:PORT'".into(),
            ));
        }
        let mut arguments =
            args.first().and_then(|argument| list::unpack(argument.bytes)).unwrap_or_default().into_iter();
        let wanted = arguments.next().flatten().unwrap_or_default();
        let wanted: GangRequest = serde_json::from_slice(wanted)
            .map_err(|error| refused(format!("its caller's request cannot be decoded: {error}")))?;
        let arguments: Vec<&OsStr> = arguments.flatten().map(OsStr::from_bytes).collect();
        let failed = |what: &str, error: io::Error| cannot_run(format!("{what}: {error}"));
        let listeners: io::Result<Vec<TcpListener>> = (0..count).map(|_| TcpListener::bind((self.listen, 0))).collect();
        let listeners = listeners.map_err(|error| failed(&format!("no free port on {}", self.listen), error))?;
        let bound = wanted.binds.then(|| ReservedProcessors::take(count)).transpose().map_err(refused)?;
        let mark = self.mark(&wanted)?;
        let ready = self.ready(&wanted, &listeners, mark.as_ref())?;
        let start = ask(&ready, program).map_err(cannot_run)?;
        drop(mark);
        let mut told = Gang { checkpoints: self.folder.clone(), ..Gang::default() };
        if let Some(answered) = &start.records {
            told.shift_ns = messages::shift_ns(&ready.clock, answered, &Reading::now());
        }
        let strays = OrphanReaper::watch().map_err(|error| failed("its orphan processes cannot be adopted", error))?;
        let (ended, ends) = channel();
        let (copying, copied) = channel::<()>();
        let mut processes = Vec::new();
        for (at, listener) in listeners.into_iter().enumerate() {
            let own = start.own.get(at).cloned().unwrap_or_default();
            let mut config = start.config.clone();
            config.listens = listener.local_addr().ok().map(|address| address.port());
            let label = format!("{}@{own}", config.spec.function);
            config.spec.arguments.push(own);
            let mut command = prepared(&self.command, &arguments, &config, listener);
            if let Some(bound) = &bound {
                command.env(PROCESSOR_VARIABLE, bound.processors[at].to_string());
            }
            let begun = Files::new().and_then(|files| {
                let records = start.records.is_some().then(|| path_of(&files.records).into());
                command.env(GANG_VARIABLE, Gang { records, ..told.clone() }.to_variable());
                begin(&mut command, at, &label, &ended, &copying, files)
            });
            match begun {
                Ok(process) => processes.push(process),
                Err(error) => {
                    processes.iter().for_each(StartedProcess::kill);
                    drop(ended);
                    // Wait until all processes have been reaped.
                    ends.iter().for_each(drop);
                    return Err(failed(&format!("'{}' cannot be started", command.get_program().display()), error));
                }
            }
        }
        drop((ended, copying));
        let all = wait(&processes, &ends, program, GANG_GRACE)?;
        drop(strays);
        // Nothing is ever sent: the wait ends when the last output has ended, or at the timeout.
        let _ = copied.recv_timeout(OUTPUT_TIMEOUT);
        if start.records.is_none() {
            return Ok((all, Vec::new()));
        }
        let records: io::Result<Vec<File>> = processes.into_iter().map(StartedProcess::into_records).collect();
        let records = records.and_then(|records| list::pack_read(records.into_iter()));
        Ok((all, records.map_err(|error| failed("the records of its processes cannot be read", error))?))
    }

    /// Leaves a mark in the checkpoint folder, if checkpoints are wanted.
    fn mark(&self, wanted: &GangRequest) -> Result<Option<FolderMark>, TaskError> {
        let is_kept = wanted.checkpoint.is_some() || wanted.restart.is_some();
        let Some(folder) = self.folder.as_deref().filter(|_| is_kept) else { return Ok(None) };
        FolderMark::leave(folder, wanted).map(Some).map_err(|error| unusable(folder, &error))
    }

    /// Returns what the caller needs to know about this server.
    fn ready(
        &self,
        wanted: &GangRequest,
        listeners: &[TcpListener],
        mark: Option<&FolderMark>,
    ) -> Result<Ready, TaskError> {
        let ports = listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<io::Result<_>>();
        let ports = ports.map_err(|error| cannot_run(error.to_string()))?;
        let site = Site::of_environment().map_err(cannot_run)?.map_or(String::new(), |site| site.name().to_string());
        let (mut last, mut next) = ([None, None], 0);
        if let Some(name) = &wanted.checkpoint {
            let folder = checkpoints::folder_of(self.folder.as_deref(), name).map_err(refused)?;
            last[0] =
                checkpoints::last_complete(&folder, Some(wanted.run)).map_err(|error| unusable(&folder, &error))?;
            next = checkpoints::next_number(&folder).map_err(|error| unusable(&folder, &error))?;
        }
        if let Some(name) = &wanted.restart {
            let folder = checkpoints::folder_of(self.folder.as_deref(), name).map_err(refused)?;
            last[1] = checkpoints::last_complete(&folder, None).map_err(|error| unusable(&folder, &error))?;
        }
        let shares = mark.map(FolderMark::was_there);
        Ok(Ready { ports, site, shares, last, next, clock: Reading::now() })
    }
}

fn unusable(folder: &Path, error: &io::Error) -> TaskError {
    cannot_run(format!("--checkpoints: {}: {error}", folder.display()))
}

/// Waits until all processes have ended, and reports the first failure to the caller. After `grace` the remaining
/// processes are killed. Returns the ends in the order in which the processes ended.
fn wait(
    processes: &[StartedProcess],
    ends: &Receiver<(usize, i32)>,
    program: &mut dyn CallbackTarget,
    grace: Duration,
) -> Result<Vec<ProcessEnd>, TaskError> {
    let mut all: Vec<ProcessEnd> = Vec::with_capacity(processes.len());
    let (mut kill_at, mut was_killed) = (None, false);
    while all.len() < processes.len() {
        let left = kill_at.map_or(Duration::MAX, |at: Instant| at.saturating_duration_since(Instant::now()));
        match ends.recv_timeout(left) {
            Ok((process, wait_status)) => {
                let has_asked = processes[process].has_read_config();
                let end = ProcessEnd { process, wait_status, was_killed, has_read_config: has_asked };
                all.push(end);
                if end.has_failed() && kill_at.is_none() {
                    kill_at = Some(Instant::now() + grace);
                    // The worker does not wait for the reply: a caller that hangs would occupy the slots.
                    program.notify(FAILED, vec![text(&end)]);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let has_ended = |process: usize| all.iter().any(|end| end.process == process);
                let left = processes.iter().enumerate().filter(|(process, _)| !has_ended(*process));
                left.for_each(|(_, process)| process.kill());
                (kill_at, was_killed) = (None, true);
            }
            Err(RecvTimeoutError::Disconnected) => return Err(cannot_run("cannot wait for its processes".into())),
        }
    }
    Ok(all)
}

/// Reports to the caller that the slots are available, and waits until the whole gang is ready.
fn ask(ready: &Ready, program: &mut dyn CallbackTarget) -> Result<GangStart, String> {
    let answer = program.call_back(READY, vec![text(ready)])?;
    let [(_, start)] = &answer[..] else {
        return Err(format!("its caller returned {} values, expected one", answer.len()));
    };
    serde_json::from_slice(start)
        .map_err(|error| format!("the instructions for its processes cannot be decoded: {error}"))
}

fn text(what: &impl Serialize) -> (Meta, Vec<u8>) {
    let text = serde_json::to_vec(what).expect("texts and numbers");
    (Meta::Text { size_bytes: text.len() as u64 }, text)
}

fn prepared(command: &[OsString], arguments: &[&OsStr], config: &ProcessConfig, listener: TcpListener) -> Command {
    let mut prepared = Command::new(&command[0]);
    prepared.args(&command[1..]).args(arguments);
    prepared.env(DEPLOY_VARIABLE, serde_json::to_string(config).expect("names and numbers"));
    prepared.stdin(OwnedFd::from(listener)).stdout(Stdio::piped()).stderr(Stdio::piped());
    prepared
}

/// Starts a process. Threads forward its output and report its end.
fn begin(
    command: &mut Command,
    at: usize,
    label: &str,
    ended: &Sender<(usize, i32)>,
    copying: &Sender<()>,
    files: Files,
) -> io::Result<StartedProcess> {
    command.env(READY_FILE_VARIABLE, path_of(&files.ready));
    let worker = rustix::process::getpid();
    let ends_with_worker = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The worker may have ended just before.
        if rustix::process::getppid() == Some(worker) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(ends_with_worker) };
    let mut child = command.spawn()?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| {
        // Nothing else could end it.
        let _ = child.kill().and_then(|()| child.wait());
    })?;
    copy(child.stdout.take().expect("it is piped"), label, false, copying.clone());
    copy(child.stderr.take().expect("it is piped"), label, true, copying.clone());
    let ended = ended.clone();
    thread::spawn(move || {
        // A process whose end cannot be determined counts as failed.
        let wait_status = child.wait().map_or(1 << 8, ExitStatusExt::into_raw);
        // The call may have ended earlier.
        let _ = ended.send((at, wait_status));
    });
    Ok(StartedProcess { process, files })
}

/// Forwards output line by line, each with its label; long lines are split.
fn copy(from: impl Read + Send + 'static, label: &str, is_error: bool, copying: Sender<()>) {
    let (label, call) = (label.to_string(), nested::serial());
    thread::spawn(move || {
        each_line(BufReader::new(from), LINE_BYTES_MAX, |line| {
            let line = format!("{label}| {line}");
            if !nested::print_of(call, is_error, &format!("{line}\n")) {
                gridloom_base::stderr_line!("{line}");
            }
        });
        drop(copying);
    });
}

#[cfg(test)]
mod tests {
    use gridloom_core::call::CallbackAnswer;

    use super::*;

    /// A caller that never replies.
    #[derive(Default)]
    struct Silent {
        told: Vec<u32>,
    }

    impl CallbackTarget for Silent {
        fn call_back(&mut self, _: u32, _: Vec<(Meta, Vec<u8>)>) -> CallbackAnswer {
            panic!("it would wait for ever");
        }

        fn notify(&mut self, callback: u32, _: Vec<(Meta, Vec<u8>)>) {
            self.told.push(callback);
        }
    }

    #[test]
    fn a_failure_ends_the_others_whether_the_caller_answers_or_not() {
        let ((ended, ends), (copying, _copied)) = (channel(), channel());
        let begun = |at, script| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            begin(&mut command, at, "process", &ended, &copying, Files::new().unwrap()).unwrap()
        };
        let processes = [begun(0, "exec sleep 1000"), begun(1, "exit 3")];
        let mut caller = Silent::default();
        let all = wait(&processes, &ends, &mut caller, Duration::from_millis(10)).unwrap();
        let ends: Vec<(usize, bool)> = all.iter().map(|end| (end.process, end.was_killed)).collect();
        assert_eq!((ends, caller.told), (vec![(1, false), (0, true)], vec![FAILED]));
    }
}
