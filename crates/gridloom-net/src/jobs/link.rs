//! The server's view of one worker process: its socket, its tasks, and the segments it has mapped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use gridloom_base::{DatumId, Meta, NodeId, TaskError, Time};
use gridloom_core::exec::WorkerUse;
use gridloom_core::graph::{Argument, Task};
use gridloom_core::node::version::VERSIONS;
use gridloom_core::node::{SessionAnswer, SessionResult};
use gridloom_idl::Definition;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, setrlimit, setsid};

use super::call_clock::CallClock;
use super::kind::Kind;
use super::orphans::MarkedChild;
use super::processes::processor_time;
use super::scratch::Scratch;
use super::watch::Excess;
use super::{HeldKeys, JobsConfig, RunAs, WorkerLimits, WorkerUser, environment};
use crate::identity::FUNCTION_KEYS_VARIABLE;
use crate::payload::Payload;
use crate::segment::{Memory, SegmentMut, SharedWords, destroyed_count};
use crate::worker::channel::{Inbox, Outbox};
use crate::worker::protocol::{Location, ProgressBoard, Run, TASKS_PER_WORKER_MAX, ToWorker, Value};
use crate::worker::{SERVER_PROTOCOL_VARIABLE, Setup};

/// Maximum number of segments that a worker keeps mapped. Each costs it a descriptor and a mapping; the usual limit is
/// 1024 descriptors.
const KNOWN_SEGMENTS_MAX: usize = 512;
/// Environment variable with the limit of open files, for messages of workers.
const FILES_LIMIT_VARIABLE: &str = "GRIDLOOM_WORKER_FILES";
/// Allocator settings of workers. glibc's malloc keeps up to 256 MiB of free memory between calls, and serves blocks
/// of up to 32 MiB from it. Otherwise each call of a function that creates arrays would return the memory and fault it
/// in again, page by page. Values set in the server's environment take precedence.
const ALLOCATOR_ENV: [(&str, &str); 2] =
    [("MALLOC_TRIM_THRESHOLD_", "268435456"), ("MALLOC_MMAP_THRESHOLD_", "33554432")];

/// A task with everything needed to run it.
pub(super) struct Pending {
    pub(super) task: Arc<Task>,
    pub(super) function: u32,
    pub(super) kind: Kind,
    /// The server that runs it in a simulation.
    pub(super) simulated_at: Option<NodeId>,
    /// The system user as whom its worker runs; `None` for the user of this process.
    pub(super) run_as: Option<Arc<RunAs>>,
    /// Value of each argument that is a datum.
    pub(super) inputs: Vec<Option<(Meta, Payload)>>,
    pub(super) outputs: Vec<PendingOutput>,
    /// Number of workers that ended before the task began, although nothing ran there.
    pub(super) attempts: u32,
    /// Number of workers that were killed while they ran the task.
    pub(super) killed: u32,
}

impl Pending {
    /// Checks that the files of arguments on disk have not been truncated.
    pub(super) fn check_inputs(&self, server: &str) -> Result<(), TaskError> {
        for (arg, input) in self.task.args.iter().zip(&self.inputs) {
            if let (Argument::Datum(datum), Some((_, payload))) = (arg, input) {
                check_intact(*datum, payload, server)?;
            }
        }
        Ok(())
    }
}

/// Checks that the file of a datum on disk has not been truncated.
pub(super) fn check_intact(datum: DatumId, payload: &Payload, server: &str) -> Result<(), TaskError> {
    let damaged = |error| TaskError::DatumLost { datum, why: format!("on server '{server}', {error}") };
    payload.check_intact().map_err(damaged)
}

/// A result to be produced.
pub(super) struct PendingOutput {
    pub(super) datum: DatumId,
    pub(super) meta: Meta,
    /// Memory for the result; `None` if the result is sent inline in the reply.
    pub(super) memory: Option<SegmentMut>,
}

/// A task that was sent to the worker.
pub(super) struct Sent {
    pub(super) serial: u64,
    pub(super) pending: Pending,
    /// True if the task was stopped: it ends as cancelled in any case.
    pub(super) stopped: bool,
}

/// How far a worker is in ending.
#[derive(Default)]
pub(super) struct Termination {
    /// True once the worker is killed or its socket is closed: no more messages are sent to it.
    pub(super) dying: bool,
    /// Why the worker was given up: the error that it reported, or its invalid message.
    pub(super) fault: Option<String>,
    /// True if its socket is no longer watched.
    pub(super) closed: bool,
    /// Time at which it was asked to end.
    pub(super) since: Option<Instant>,
    /// The limit for which the worker was killed.
    pub(super) excess: Option<Excess>,
    /// True if it kept running without its socket and was killed for that reason.
    pub(super) cut_off: bool,
}

/// Reason why a started task waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum WaitReason {
    /// The task runs.
    #[default]
    None,
    /// It waits for its program's reply.
    Answer,
    /// It waits for calls that it made itself.
    Calls,
}

/// Serial numbers of a worker's tasks.
struct Serials {
    next: u64,
    /// Largest serial that the worker has ended.
    ended: u64,
}

/// The segments that a worker keeps mapped.
struct KnownMemory {
    segments: BTreeMap<u64, Known>,
    segments_max: usize,
    /// Number of destroyed segments when the worker was last notified.
    destroyed_seen: u64,
}

struct Known {
    memory: Weak<Memory>,
    /// Serial of the last task that used the segment.
    used: u64,
}

impl KnownMemory {
    /// Records that a task uses the segment, if the worker has it mapped. Returns false if it has not.
    fn note_use(&mut self, key: u64, serial: u64) -> bool {
        self.segments.get_mut(&key).map(|known| known.used = serial).is_some()
    }

    /// If too many segments are mapped, returns the least recently used quarter, except those that this task uses.
    fn oldest_beyond_bound(&self, serial: u64) -> Vec<u64> {
        if self.segments.len() <= self.segments_max {
            return Vec::new();
        }
        let mut by_age: Vec<(u64, u64)> = self.segments.iter().map(|(key, known)| (known.used, *key)).collect();
        by_age.sort_unstable();
        by_age.truncate(self.segments_max / 4);
        by_age.into_iter().filter(|(used, _)| *used != serial).map(|(_, key)| key).collect()
    }

    /// Returns the segments that were destroyed since the last call.
    fn destroyed(&mut self) -> Vec<u64> {
        let destroyed = destroyed_count();
        if destroyed == self.destroyed_seen {
            return Vec::new();
        }
        self.destroyed_seen = destroyed;
        let gone = self.segments.iter().filter(|(_, known)| known.memory.strong_count() == 0);
        gone.map(|(key, _)| *key).collect()
    }

    fn remove(&mut self, keys: &[u64]) {
        keys.iter().for_each(|key| drop(self.segments.remove(key)));
    }
}

/// A worker process.
pub(super) struct Worker {
    pub(super) socket: OwnedFd,
    pub(super) process: OwnedFd,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    pub(super) kind: Kind,
    /// The calls that it has run or has queued.
    pub(super) used: WorkerUse,
    pub(super) tasks: VecDeque<Sent>,
    /// In a simulation: the task whose session has made a request that is not answered, by its serial. A worker makes
    /// one request at a time.
    pub(super) asks_session: Option<u64>,
    /// Reason why the first task waits.
    pub(super) pause: WaitReason,
    pub(super) ready: bool,
    pub(super) end: Termination,
    pub(super) clock: CallClock,
    pub(super) watched_for_writing: bool,
    child: MarkedChild,
    progress_words: SharedWords,
    known: KnownMemory,
    loaded: BTreeSet<u32>,
    serials: Serials,
    /// Scratch folder, removed with its content once the process has ended.
    _scratch: Scratch,
    /// The keys of its functions, if it serves one user.
    _keys: Option<HeldKeys>,
}

impl Worker {
    /// Starts a worker. Its socket is its descriptor 0, so that no other process inherits it accidentally; its
    /// standard output goes to our standard error. It leads a session that includes the processes that its
    /// functions start: these can join no process group of another session, and signals of the server's terminal do not reach them.
    pub(super) fn start(
        kind: Kind,
        config: &JobsConfig,
        run_as: Option<&RunAs>,
        user: Option<&WorkerUser>,
    ) -> io::Result<Worker> {
        let (socket, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let mut command = kind.command(config);
        command.env_clear().envs(environment::inherited(&config.pass_env));
        if let Some(RunAs { name, user, group, home }) = run_as {
            command.env("HOME", home).env("USER", name).env("LOGNAME", name);
            // A confined process first needs root.
            if config.confinement.is_none() {
                command.uid(*user).gid(*group);
            }
        }
        let kept = ALLOCATOR_ENV.iter().filter(|(name, _)| std::env::var_os(name).is_none());
        command.args(["--fd", "0"]).envs(kept.copied());
        // SAFETY: between fork and exec the closure makes a system call and allocates nothing.
        unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
        command.env(SERVER_PROTOCOL_VARIABLE, VERSIONS.1.to_string());
        command.envs(config.env.iter().map(|(name, value)| (name, value)));
        let keys = config.function_keys.as_ref().zip(user).map(|(keys, user)| keys.folder_of(user)).transpose()?;
        command.envs(keys.iter().map(|keys| (FUNCTION_KEYS_VARIABLE, &keys.folder)));
        command.stdin(Stdio::from(theirs)).stdout(Stdio::from(rustix::stdio::stderr().try_clone_to_owned()?));
        let (words, words_fd) = SharedWords::new(TASKS_PER_WORKER_MAX)?;
        let segments_max = limit_files(&mut command, config.limits.files);
        let mut scratch = Scratch::new()?;
        if let Some(confinement) = &config.confinement {
            let program = PathBuf::from(command.get_program());
            let owner = run_as.map(|run_as| (run_as.user, run_as.group));
            confinement
                .apply(
                    &mut command,
                    &mut scratch,
                    (&program, keys.as_ref().map(|keys| keys.folder.as_path())),
                    owner,
                    config.shared_memory_bytes(),
                )
                .map_err(|error| io::Error::new(error.kind(), format!("a worker cannot be confined: {error}")))?;
        }
        let mut child = MarkedChild::spawn(&mut command).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start '{}': {error}", command.get_program().display()))
        })?;
        if let Some(group) = &config.worker_group
            && let Err(error) = std::fs::write(group, child.id().to_string())
        {
            let _ = child.kill().and_then(|()| child.wait());
            let what = format!("a worker cannot join the control group '{}': {error}", group.display());
            return Err(io::Error::new(error.kind(), what));
        }
        let process = raw_pid(&child).ok_or(rustix::io::Errno::SRCH).and_then(|pid| {
            // The process is not reaped yet, so the pid is still its own.
            rustix::process::pidfd_open(pid, PidfdFlags::empty())
        });
        let process = match process {
            Ok(process) => process,
            Err(error) => {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(error.into());
            }
        };
        let setup = Setup {
            server_name: config.server_name.clone(),
            libraries: config.libraries.clone(),
            modules: config.modules.clone(),
            slowdown: config.slowdown,
            scratch: scratch.of_calls(),
        };
        let mut link = Worker {
            socket,
            process,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            kind,
            used: WorkerUse::default(),
            tasks: VecDeque::new(),
            asks_session: None,
            pause: WaitReason::default(),
            ready: false,
            end: Termination::default(),
            clock: CallClock::default(),
            watched_for_writing: false,
            child,
            progress_words: words,
            known: KnownMemory { segments: BTreeMap::new(), segments_max, destroyed_seen: destroyed_count() },
            loaded: BTreeSet::new(),
            serials: Serials { next: 1, ended: 0 },
            _scratch: scratch,
            _keys: keys,
        };
        link.outbox.push_fd(words_fd);
        link.outbox.push(&ToWorker::Setup(setup), std::iter::empty())?;
        Ok(link)
    }

    /// Reports whether the worker can take one more task.
    pub(super) fn has_room(&self, depth: usize) -> bool {
        !self.end.dying
            && self.tasks.len() < depth
            && self.serials.next - self.serials.ended < TASKS_PER_WORKER_MAX as u64
    }

    /// Reports whether the worker is alive and has no tasks.
    pub(super) fn is_idle(&self) -> bool {
        !self.end.dying && self.tasks.is_empty()
    }

    /// Appends a task to the outgoing messages. `first` is the function that initialises its module, if any.
    ///
    /// # Errors
    /// If the task cannot be encoded. The task is returned, and the worker must be given up.
    pub(super) fn send(
        &mut self,
        mut pending: Pending,
        definition: &Definition,
        first: Option<(u32, &Definition)>,
    ) -> Result<(), (Pending, io::Error)> {
        let serial = self.serials.next;
        self.serials.next += 1;
        ProgressBoard(self.progress_words.words()).queue(serial);
        let own = (pending.function, definition);
        let loaded =
            first.into_iter().chain([own]).try_for_each(|(function, definition)| self.load(function, definition));
        match loaded.and_then(|()| self.encode(serial, &mut pending)) {
            Ok(()) => {
                self.tasks.push_back(Sent { serial, pending, stopped: false });
                Ok(())
            }
            Err(error) => Err((pending, error)),
        }
    }

    fn load(&mut self, function: u32, definition: &Definition) -> io::Result<()> {
        if self.loaded.insert(function) {
            let load = ToWorker::Load { function, definition: definition.clone() };
            self.outbox.push(&load, std::iter::empty())?;
        }
        Ok(())
    }

    fn encode(&mut self, serial: u64, pending: &mut Pending) -> io::Result<()> {
        let mut inline: Vec<&[u8]> = Vec::with_capacity(pending.inputs.len());
        let mut args = Vec::with_capacity(pending.inputs.len());
        for (arg, input) in pending.task.args.iter().zip(&pending.inputs) {
            args.push(match (arg, input) {
                (Argument::Inline { meta, bytes }, _) => {
                    inline.push(bytes);
                    Value { meta: meta.clone(), place: Location::Inline { size_bytes: bytes.len() as u32 } }
                }
                (Argument::Datum(datum), Some((meta, Payload::Segment { segment, offset, size_bytes }))) => {
                    let (key, len) = (segment.key(), segment.mapped_len());
                    let new = self.note_use_or_announce(serial, key, || {
                        (segment.memory_weak(), segment.fd().try_clone_to_owned())
                    })?;
                    let (datum, offset, size_bytes) = (Some(*datum), *offset, *size_bytes);
                    let place = Location::Shared { datum, key, new, len, offset, size_bytes };
                    Value { meta: meta.clone(), place }
                }
                (Argument::Datum(_), Some((meta, payload))) => {
                    inline.push(payload.bytes());
                    Value { meta: meta.clone(), place: Location::Inline { size_bytes: payload.size_bytes() as u32 } }
                }
                (Argument::Datum(_), None) => unreachable!("every datum was fetched when the task came"),
            });
        }
        let mut outs = Vec::with_capacity(pending.outputs.len());
        for output in &mut pending.outputs {
            let place = match &mut output.memory {
                None => Location::Inline { size_bytes: 0 },
                Some(memory) => {
                    // A worker that dies may have written to the result memory, so it must be marked as not zeroed for
                    // the next worker.
                    let zeroed = memory.take_zeroed();
                    let segment = memory.segment();
                    let (key, len) = (segment.key(), segment.mapped_len());
                    let new = self.note_use_or_announce(serial, key, || {
                        (segment.memory_weak(), segment.fd().try_clone_to_owned())
                    })?;
                    Location::Room { key, new, len, size_bytes: segment.len(), zeroed }
                }
            };
            outs.push(Value { meta: output.meta.clone(), place });
        }
        let run = Run {
            serial,
            function: pending.function,
            simulated_at: pending.simulated_at,
            puts_as: pending.task.put_origin(),
            program: pending.task.program(),
            user: pending.task.options.user.clone().unwrap_or_default(),
            depth: pending.task.options.depth,
            priority: pending.task.options.priority,
            wants_output: pending.task.options.wants_output,
            ranks: pending.task.options.ranks,
            gang: pending.task.options.gang,
            args,
            outs,
        };
        self.outbox.push(&ToWorker::Run(run), inline.into_iter())?;
        let forgotten = self.known.oldest_beyond_bound(serial);
        self.forget(forgotten)?;
        Ok(())
    }

    /// Records the use of a segment. If the worker does not have it mapped, appends its descriptor and returns true.
    fn note_use_or_announce(
        &mut self,
        serial: u64,
        key: u64,
        describe: impl FnOnce() -> (Weak<Memory>, io::Result<OwnedFd>),
    ) -> io::Result<bool> {
        if self.known.note_use(key, serial) {
            return Ok(false);
        }
        let (memory, fd) = describe();
        self.outbox.push_fd(fd?);
        self.known.segments.insert(key, Known { memory, used: serial });
        Ok(true)
    }

    /// Notifies the worker of segments destroyed since the last call.
    pub(super) fn forget_destroyed(&mut self) -> io::Result<()> {
        let gone = self.known.destroyed();
        self.forget(gone)
    }

    fn forget(&mut self, keys: Vec<u64>) -> io::Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        self.known.remove(&keys);
        self.outbox.push(&ToWorker::Forget { keys }, std::iter::empty())
    }

    /// Returns the progress board of its tasks.
    pub(super) fn board(&self) -> ProgressBoard<'_> {
        ProgressBoard(self.progress_words.words())
    }

    /// Removes the task with this serial, which the worker reported as ended.
    pub(super) fn take_ended(&mut self, serial: u64) -> Option<Sent> {
        self.serials.ended = self.serials.ended.max(serial.min(self.serials.next - 1));
        let at = self.tasks.iter().position(|sent| sent.serial == serial)?;
        self.tasks.remove(at)
    }

    /// Answers a request of a task to its session when the task has ended.
    ///
    /// # Errors
    /// If the answer cannot be encoded.
    pub(super) fn end_session(&mut self, serial: u64) -> io::Result<()> {
        let result = SessionResult::Ended { why: "the call of this session has ended".into() };
        let answer = SessionAnswer { now: Time::ZERO, result };
        let message = ToWorker::Session { serial, answer, bytes: Location::Inline { size_bytes: 0 } };
        self.outbox.push(&message, std::iter::empty())
    }

    /// Kills the process and the processes that its functions have started. Its end is noticed like any other.
    pub(super) fn kill(&mut self) {
        self.end.dying = true;
        self.kill_group();
    }

    /// Kills its process group and the processes that a gang has left behind. The process is not reaped yet
    /// (`try_wait` and `end` do that last), so the number still identifies its group alone.
    fn kill_group(&self) {
        if let Some(group) = raw_pid(&self.child) {
            // Fails only if the group is empty, which is the goal.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        let has_gang = self.tasks.iter().any(|sent| sent.pending.task.options.gang > 0);
        if has_gang || self.end.excess.is_some() {
            self.child.kill_all();
        }
    }

    /// Returns its pid, unless it is ending.
    pub(super) fn pid(&self) -> Option<Pid> {
        if self.end.dying { None } else { raw_pid(&self.child) }
    }

    /// Returns the processor time that it has used.
    pub(super) fn processor_time(&self) -> Duration {
        processor_time(self.child.id() as i32).unwrap_or_default()
    }

    /// Returns how the process ended, if it has. Also kills the processes that its functions had started.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if rustix::process::waitid(WaitId::PidFd(self.process.as_fd()), look)?.is_none() {
            return Ok(None);
        }
        self.kill_group();
        self.child.try_wait()
    }

    /// Asks an idle worker to end: it reads the end of the stream.
    pub(super) fn close_if_idle(&self) {
        if self.tasks.is_empty() {
            // Fails only if the worker has closed the socket first.
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
    }

    /// Waits up to `limit_ms` for the process to end. Returns true if it has.
    pub(super) fn ends_within(&self, limit_ms: i64) -> bool {
        let mut watched = [rustix::event::PollFd::new(&self.process, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: limit_ms / 1000, tv_nsec: limit_ms % 1000 * 1_000_000 };
        rustix::event::poll(&mut watched, Some(&limit)).is_ok_and(|ended| ended > 0)
    }

    /// Gives an idle worker `grace_ms` to end by itself, kills any other, and reaps the worker.
    pub(super) fn end(mut self, grace_ms: i64) {
        if self.tasks.is_empty() && !self.end.dying {
            self.ends_within(grace_ms);
        }
        self.kill();
        // Fails only if the process was reaped already.
        let _ = self.child.wait();
    }

    /// Returns the descriptors of its socket and its process, for the poller.
    pub(super) fn fds(&self) -> [i32; 2] {
        use std::os::fd::AsRawFd;
        [self.socket.as_fd().as_raw_fd(), self.process.as_fd().as_raw_fd()]
    }
}

/// Limits the open files of a process that the command will start. Returns the number of segments that it may keep mapped.
fn limit_files(command: &mut Command, limit: Option<u64>) -> usize {
    let Some(limit) = limit else { return KNOWN_SEGMENTS_MAX };
    // Only root can raise the limit of this process, and the worker may run as another user.
    let limit = WorkerLimits::files_permitted(limit).unwrap_or(limit);
    command.env(FILES_LIMIT_VARIABLE, limit.to_string());
    let both = Rlimit { current: Some(limit), maximum: Some(limit) };
    // SAFETY: between fork and exec the closure makes a system call and allocates nothing.
    unsafe { command.pre_exec(move || Ok(setrlimit(Resource::Nofile, both)?)) };
    KNOWN_SEGMENTS_MAX.min(limit as usize / 2)
}

fn raw_pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// How a worker ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Death {
    /// Description for error messages.
    pub(super) how: String,
    /// True if something else ended it: the system for lack of memory, or a user.
    pub(super) was_killed: bool,
}

/// Describes how a process ended.
pub(super) fn describe(status: ExitStatus, end: &Termination) -> Death {
    let is_ours = end.excess.is_some() || end.cut_off || end.fault.is_some() || end.since.is_some();
    let was_killed = matches!(status.signal(), Some(1 | 9 | 15)) && !is_ours;
    let how = match (status.signal(), status.code()) {
        (Some(9), _) if end.cut_off => "SIGKILL from the server because the worker had closed its connection".into(),
        (Some(signal), _) => format!("signal {signal}{}", signal_name(signal)),
        (None, Some(code)) => format!("exit status {code}"),
        (None, None) => "an unknown cause".into(),
    };
    Death { how, was_killed }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL: killed, perhaps for lack of memory)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU)",
        31 => " (SIGSYS)",
        _ => "",
    }
}
