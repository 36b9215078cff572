//! Configuration and events of the slots.

use std::os::fd::RawFd;
use std::path::PathBuf;

use gridloom_base::{DatumId, Meta, TaskError, TaskId};
use gridloom_core::call::{Callback, TaskOutput};
use gridloom_idl::Definition;

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
    /// Interpreter that serves Python functions, run as `PYTHON -m gridloom.worker --fd N`.
    pub python: PathBuf,
    /// Files of Python modules.
    pub modules: Vec<PathBuf>,
    /// Maximum number of tasks that one worker holds, including the running one.
    pub queue_depth: u32,
    /// Variables added to the workers' environment.
    pub env: Vec<(String, String)>,
    /// Variables of this process that workers inherit in addition to the common ones; a trailing star matches any suffix.
    pub pass_env: Vec<String>,
    /// User as whom workers run; `None` for the user of this process.
    pub run_as: Option<RunAs>,
    /// Factor by which calls take longer than they need, to emulate a slower processor. 1 means full speed.
    pub slowdown: f64,
    /// Control group that workers join, as the path of its `cgroup.procs` file.
    pub worker_group: Option<PathBuf>,
}

/// The user as whom workers run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunAs {
    pub name: String,
    pub user: u32,
    pub group: u32,
    pub home: PathBuf,
}

/// Variables that tell numerical libraries (OpenMP, OpenBLAS, MKL, BLIS, NumExpr) how many threads a call may use.
const THREADS: [&str; 5] =
    ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS"];

/// Returns thread limits for numerical libraries that give each of `calls` concurrent calls an equal share of this
/// machine's processors. Variables that are already set are left alone.
pub fn shared_threads(calls: u32) -> Vec<(String, String)> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (processors / calls.max(1) as usize).max(1).to_string();
    let unset = THREADS.iter().filter(|name| std::env::var_os(name).is_none());
    unset.map(|name| (name.to_string(), threads.clone())).collect()
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
