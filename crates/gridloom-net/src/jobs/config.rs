//! Configuration and events of the slots.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use gridloom_base::limits::STORE_BYTES_DEFAULT;
use gridloom_base::{DatumId, Meta, Pattern, TaskError, TaskId};
use gridloom_core::call::{Callback, TaskOutput};
use gridloom_core::exec::Separation;
use gridloom_core::node::SessionRequest;
use gridloom_idl::Definition;
use gridloom_resources::Memory;
use rustix::process::{Resource, getrlimit};

use super::{Confinement, SystemUsers};

/// The configuration of the slots.
#[derive(Clone, Debug)]
pub struct JobsConfig {
    /// Server name, for error messages.
    pub server_name: String,
    /// Number of tasks that run at a time.
    pub slots: u32,
    /// Definitions of the offered functions.
    pub definitions: Vec<Definition>,
    /// Shared libraries, searched for symbols in this order.
    pub libraries: Vec<PathBuf>,
    /// Program that serves native functions, run as `PROGRAM worker --fd N`.
    pub worker_program: PathBuf,
    /// Interpreter that serves Python functions, run as `PYTHON OPTIONS -m gridloom.worker --fd N`.
    pub python: Interpreter,
    /// Files of Python modules.
    pub modules: Vec<PathBuf>,
    /// Maximum number of tasks that one worker holds, including the running one.
    pub queue_depth: u32,
    /// Variables added to the workers' environment.
    pub env: Vec<(String, OsString)>,
    /// Variables of this process that workers inherit in addition to the common ones; a trailing star matches any suffix.
    pub pass_env: Vec<String>,
    /// Users as whom workers run.
    pub system_users: SystemUsers,
    /// Keys of functions, if each worker serves one user from its start; otherwise `env` names the folder.
    pub function_keys: Option<Arc<dyn FunctionKeyFolders>>,
    /// Factor by which calls take longer than they need, to emulate a slower processor. 1 means full speed.
    pub slowdown: f64,
    /// The functions whose workers serve one user each.
    pub separation: Separation,
    /// Limits of one worker.
    pub limits: WorkerLimits,
    /// Control group that workers join, as the path of its `cgroup.procs` file.
    pub worker_group: Option<PathBuf>,
    /// How workers are confined; `None` if they are not.
    pub confinement: Option<Confinement>,
}

impl JobsConfig {
    /// Returns the limit of the shared memory that a confined worker has for itself: that of its memory. Without one, all workers together
    /// get at most half of the memory of this machine; `None` if that is unknown.
    pub(super) fn shared_memory_bytes(&self) -> Option<u64> {
        let share = || Some(Memory::find().total_bytes? / 2 / u64::from(self.slots.max(1)));
        self.limits.memory_bytes.or_else(share)
    }
}

/// What one worker and the processes that it has started may use; `None` means no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerLimits {
    /// Private memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Number of processes, the worker included.
    pub processes: Option<u64>,
    /// Number of open files of each process. If the system permits this process fewer, that number applies.
    pub files: Option<u64>,
    /// Time that a call may compute, without waits for its program and for calls of its own.
    pub call_time: Option<Duration>,
}

impl WorkerLimits {
    /// Range of the limit of open files: a worker needs some itself.
    pub const FILES: RangeInclusive<u64> = 64..=1 << 20;
    /// Returns the largest limit of open files that the system permits, if it permits fewer than `limit`.
    pub fn files_permitted(limit: u64) -> Option<u64> {
        getrlimit(Resource::Nofile).maximum.filter(|maximum| *maximum < limit)
    }

    /// Shortest limit of the time of a call. It is checked ten times a second.
    pub const CALL_TIME_MIN: Duration = Duration::from_millis(100);
}

/// A Python interpreter, and its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interpreter {
    pub program: PathBuf,
    /// Options such as `-O` or `-Werror`, one word each.
    pub options: Vec<String>,
}

impl Interpreter {
    /// Returns the command that runs a module.
    pub fn command(&self, module: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options).args(["-m", module]);
        command
    }
}

impl<P: AsRef<Path>> From<P> for Interpreter {
    fn from(program: P) -> Interpreter {
        Interpreter { program: program.as_ref().to_path_buf(), options: Vec::new() }
    }
}

/// A user of the grid whom a worker serves.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WorkerUser {
    /// The user's name.
    pub name: Box<str>,
    /// Functions that the user may call.
    pub functions: Vec<Pattern>,
    /// The main group of the system user as whom the worker runs; `None` for the user of this process.
    pub group: Option<u32>,
}

/// Makes folders with the keys of functions for workers that serve one user.
pub trait FunctionKeyFolders: fmt::Debug + Send + Sync {
    /// Returns a folder that the worker of this user can read.
    ///
    /// # Errors
    /// If the user is revoked, or the folder cannot be made.
    fn folder_of(&self, user: &WorkerUser) -> io::Result<HeldKeys>;
}

/// A folder with keys of functions, which is kept while a worker holds this.
#[derive(Clone, Debug)]
pub struct HeldKeys {
    pub folder: PathBuf,
    /// Shared by all workers that use the folder, and by its owner.
    pub holders: Arc<()>,
}

/// Variables that tell numerical libraries (OpenMP, OpenBLAS, MKL, BLIS, NumExpr) how many threads a call may use.
const THREADS: [&str; 5] =
    ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS"];

/// Returns thread limits for numerical libraries that give each of `calls` concurrent calls an equal share of the
/// processors that this process may use. Variables that are set in this process or in `own` are not changed. A library's
/// own variable overrides `OMP_NUM_THREADS`, so if the user has set `OMP_NUM_THREADS`, no other variable is added.
pub fn shared_threads(calls: u32, own: &[(OsString, OsString)]) -> Vec<(String, String)> {
    let is_set = |name: &str| std::env::var_os(name).is_some() || own.iter().any(|(set, _)| set == name);
    thread_limits(gridloom_resources::processors(), calls, is_set)
}

fn thread_limits(processors: usize, calls: u32, is_set: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    if is_set(THREADS[0]) {
        return Vec::new();
    }
    let threads = (processors / calls.max(1) as usize).max(1).to_string();
    let unset = THREADS.iter().filter(|name| !is_set(name));
    unset.map(|name| (name.to_string(), threads.clone())).collect()
}

/// Returns the default limit of each store if `servers` servers run on this machine. All stores together use at most half
/// of the memory that this process may use.
pub fn store_bytes_default(servers: usize) -> u64 {
    let share = Memory::find().total_bytes.map_or(u64::MAX, |total| total / 2 / servers.max(1) as u64);
    STORE_BYTES_DEFAULT.min(share)
}

/// An event of the slots.
#[derive(Clone, PartialEq, Debug)]
pub enum JobEvent {
    /// A started task ended; its results are in the store.
    Ended {
        /// The task.
        task: TaskId,
        /// Actual descriptions of its results, or the error.
        outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
        /// Run time of the function in nanoseconds.
        run_ns: u64,
    },
    /// A started task calls its program back and waits for [`super::Jobs::reply`].
    CallsBack(Callback),
    /// In a simulation: a started task uses its session and waits for [`super::Jobs::answer_session`].
    Session { task: TaskId, request: Box<SessionRequest>, bytes: Vec<u8> },
    /// Output of a started task.
    Output(TaskOutput),
    /// A started task begins or stops waiting for calls that it made itself.
    Calling {
        /// The task.
        task: TaskId,
        /// True if it waits.
        waits: bool,
    },
}

/// Identifies a worker to the poller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerToken(pub u64);

/// A change to the descriptors that the poller watches. A worker has two descriptors under one token: its socket and its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registration {
    /// Watch for readability.
    Add(RawFd, WorkerToken),
    /// Start or stop watching for writability.
    Writable(RawFd, WorkerToken, bool),
    /// Stop watching. The descriptor may be closed already, which removes it from an epoll.
    Remove(RawFd, WorkerToken),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_shared_unless_the_user_has_set_them() {
        let names = |limits: &[(String, String)]| limits.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let all = thread_limits(8, 3, |_| false);
        assert_eq!(names(&all), THREADS);
        assert!(all.iter().all(|(_, threads)| threads == "2"));
        assert!(thread_limits(2, 3, |_| false).iter().all(|(_, threads)| threads == "1"));
        assert!(!names(&thread_limits(8, 3, |name| name == "MKL_NUM_THREADS")).contains(&"MKL_NUM_THREADS".into()));
        // OPENBLAS_NUM_THREADS would override it.
        assert!(thread_limits(8, 3, |name| name == "OMP_NUM_THREADS").is_empty());
    }
}
