//! What the slots are given, and what they tell.

use std::os::fd::RawFd;
use std::path::PathBuf;

use gridloom_base::{DatumId, Meta, TaskError, TaskId};
use gridloom_core::call::{CallBack, Said};
use gridloom_idl::Definition;

/// How the slots are set up.
#[derive(Clone, Debug)]
pub struct JobsConfig {
    /// The server's name, for errors.
    pub server_name: String,
    /// Tasks that run at a time.
    pub slots: u32,
    /// What is offered.
    pub definitions: Vec<Definition>,
    /// Shared libraries, searched in this order for symbols.
    pub libraries: Vec<PathBuf>,
    /// Program that serves native functions, run as `PROGRAM worker --fd N`.
    pub worker_program: PathBuf,
    /// Interpreter that serves Python functions, run as `PYTHON -m gridloom.worker --fd N`.
    pub python: PathBuf,
    /// Files of Python modules.
    pub modules: Vec<PathBuf>,
    /// Tasks that one worker holds at a time, the running one included.
    pub queue_depth: u32,
    /// Variables added to the workers' environment.
    pub env: Vec<(String, String)>,
    /// Variables of this process that workers get beside the common ones; a star at the end stands for any rest.
    pub pass_env: Vec<String>,
    /// The user as whom workers run; `None` for that of this process.
    pub run_as: Option<RunAs>,
    /// How many times as long as they need calls take, 1 for a server that is as fast as it can be: the speed of a
    /// slower processor, emulated.
    pub slowdown: f64,
    /// The control group that workers join, by its file `cgroup.procs`.
    pub worker_group: Option<PathBuf>,
}

/// A user as whom workers run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunAs {
    pub name: String,
    pub user: u32,
    pub group: u32,
    pub home: PathBuf,
}

/// Variables by which numerical libraries (OpenMP, OpenBLAS, MKL, BLIS, NumExpr) are told how many threads a call may have.
const THREADS: [&str; 5] =
    ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS"];

/// An equal share of this machine's processors, as threads of numerical libraries, for each of so many calls at a time. What the
/// environment says already counts.
pub fn shared_threads(calls: u32) -> Vec<(String, String)> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (processors / calls.max(1) as usize).max(1).to_string();
    let unset = THREADS.iter().filter(|name| std::env::var_os(name).is_none());
    unset.map(|name| (name.to_string(), threads.clone())).collect()
}

/// What happened.
#[derive(Clone, PartialEq, Debug)]
pub enum JobEvent {
    /// A started task ended; its results are in the store.
    Ended {
        /// The task.
        task: TaskId,
        /// Its results' true descriptions, or why there are none.
        outcome: Result<Vec<(DatumId, Meta)>, TaskError>,
        /// Nanoseconds that the function ran.
        run_ns: u64,
    },
    /// A started task calls its program back, and waits for [`super::Jobs::answer`].
    CallsBack(CallBack),
    /// A started task says something.
    Said(Said),
    /// A started task waits for calls that it made itself, or goes on.
    Calling {
        /// The task.
        task: TaskId,
        /// Whether it waits.
        waits: bool,
    },
}

/// A worker, as the poller names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerToken(pub u64);

/// A change of what the poller watches. A worker has two descriptors under one token: its socket and its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Registration {
    /// Watch for reading.
    Add(RawFd, WorkerToken),
    /// Watch for writing too, or no longer.
    Writable(RawFd, WorkerToken, bool),
    /// Watch no longer. The descriptor may be closed already (which removes it from an epoll by itself).
    Remove(RawFd, WorkerToken),
}
