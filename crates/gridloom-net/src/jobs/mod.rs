//! The slots of a server: worker processes, and the tasks that run in them.

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;

use gridloom_core::base::{DatumId, Meta, TaskError, TaskId};
use gridloom_core::graph::Task;
use gridloom_core::idl::Definition;

use crate::store::Store;

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

/// The slots.
pub struct Jobs {
    config: JobsConfig,
}

impl Jobs {
    /// Slots without workers.
    pub fn new(config: JobsConfig) -> Jobs {
        Jobs { config }
    }

    /// Starts workers now, so that the first tasks need not wait for them.
    pub fn prestart(&mut self) {}

    /// Runs a task, as soon as a slot is free; its inputs are in the store. Ends in exactly one event.
    pub fn start(&mut self, _task: Arc<Task>, _store: &Store) {}

    /// Kills a started task.
    pub fn stop(&mut self, _task: TaskId) {}

    /// Changes of what is to be watched, in order.
    pub fn take_registrations(&mut self) -> Vec<Registration> {
        Vec::new()
    }

    /// A worker's descriptor is readable or writable.
    pub fn ready(&mut self, _token: WorkerToken, _store: &Store) {}

    /// Writes what `start` and `ready` have batched.
    pub fn flush(&mut self) {}

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<JobEvent> {
        Vec::new()
    }

    /// Ends and reaps all workers.
    pub fn shutdown(self) {
        drop(self.config);
    }
}
