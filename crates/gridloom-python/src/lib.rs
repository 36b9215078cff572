//! `_gridloom`: what the Python package needs of Gridloom, thin. The public interface is in `python/gridloom`.
//!
//! | file | what it holds |
//! |---|---|
//! | [`memory`] | NumPy arrays over memory that Rust owns, and descriptions of NumPy's element types |
//! | [`convert`] | Python objects to values and back |
//! | [`plain`] | records as dictionaries, and back |
//! | [`session`] | what Python holds of a session, and how it is taken away |
//! | [`grid`] | grids |
//! | [`function`] | functions, calls under way |
//! | [`group`] | groups, handles, reports |
//! | [`graph`] | described graphs |
//! | [`plan`] | plans, and heuristics that are Python functions |
//! | [`shared`], [`begun`] | shared data, by name; puts and gets of them under way |
//! | [`calibrate`] | calibrations, with Python functions that make arguments and see progress |
//! | [`process`] | processes that talk by messages |
//! | [`chares`], [`chare`], [`chare_calls`] | message-driven objects: what a program makes and runs; the objects and their messages; what methods ask for |
//! | [`message`] | objects as typed messages |
//! | [`wait`] | waits that let other threads run and that an interrupt ends |
//! | [`errors`] | Rust's errors as Python exceptions |
//! | [`log`] | the log of sessions as that of Python's `logging` |
//! | [`define`] | signatures of Python functions |
//! | [`worker`] | the process that runs Python functions for a server |
//!
//! **Invariants.** The GIL is released around everything that may block or takes a lock of the session. Memory that a
//! NumPy array shows is owned by the array's base object. Arrays are made from, and filled
//! through, NumPy's array interface, so that no `unsafe` is needed for it.

#![deny(unsafe_code)]
#![allow(clippy::result_large_err, reason = "the errors are those of the session, of its size")]

mod begun;
mod calibrate;
mod chare;
mod chare_calls;
mod chare_value;
mod chares;
mod convert;
mod define;
mod errors;
mod function;
mod graph;
mod grid;
mod group;
mod log;
mod memory;
mod message;
mod plain;
mod plan;
mod process;
mod session;
mod shared;
mod snapshots;
mod wait;
mod worker;

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

#[pymodule]
mod _gridloom {
    use gridloom_base::limits::REGROUP_BODIES_MAX;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::begun::{RawBegun, begin_get_shared, begin_wait_shared};
    #[pymodule_export]
    use crate::chare::{RawEntry, RawTarget, chare_entry, chare_target};
    #[pymodule_export]
    use crate::chare_calls::{
        chare_checkpoint, chare_compute, chare_contribute, chare_exit, chare_migrate, chare_now, chare_resize,
        chare_when_quiet,
    };
    #[pymodule_export]
    use crate::chares::{RawJob, run_chares};
    #[pymodule_export]
    use crate::define::{RawSignature, build_signature};
    #[pymodule_export]
    use crate::function::{RawFunction, RawObject, RawPending};
    #[pymodule_export]
    use crate::graph::RawGraph;
    #[pymodule_export]
    use crate::grid::{RawGrid, connect, connect_servers, local, simulate};
    #[pymodule_export]
    use crate::group::{RawGroup, RawHandle, RawLoop, RawReport};
    #[pymodule_export]
    use crate::memory::Memory;
    #[pymodule_export]
    use crate::message::RawMessageType;
    #[pymodule_export]
    use crate::plan::{RawPlan, RawQuestion};
    #[pymodule_export]
    use crate::process::{RawProcess, read_settings, run_processes};
    #[pymodule_export]
    use crate::session::forked;
    #[pymodule_export]
    use crate::shared::{
        begin_put_file_shared, begin_put_shared, delete_shared, find_shared, get_shared_rows, list_shared,
        place_shared, shared_exists,
    };
    #[pymodule_export]
    use crate::wait::{RawWaiting, begin_wait};
    #[pymodule_export]
    use crate::worker::{print_to_program, tell_progress, worker_main};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::log::start();
        module.add("REGROUP_BODIES_MAX", REGROUP_BODIES_MAX)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// A module of NumPy's or of the package's, by name: a look-up in `sys.modules` after the first time.
fn import<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyModule>> {
    PyModule::import(py, name)
}

/// Locks what a panic leaves as it should be.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
