//! `_gridloom`: a thin wrapper of the parts of Gridloom that the Python package needs. The public interface is in
//! `python/gridloom`.
//!
//! | file | content |
//! |---|---|
//! | [`memory`] | NumPy arrays over memory that Rust owns, and descriptions of NumPy's element types |
//! | [`arguments`], [`results`] | Python objects to arguments of calls; values to Python objects |
//! | [`plain`] | records as dictionaries, and back |
//! | [`session`] | Python's objects of a session, and how they are released |
//! | [`grid`] | grids |
//! | [`function`] | functions, and calls in progress |
//! | [`handle`], [`group`] | handles of results; groups, reports |
//! | [`graph`] | declared graphs |
//! | [`plan`] | plans, and heuristics that are Python functions |
//! | [`shared`], [`pending_names`] | shared data, by name; puts and gets in progress |
//! | [`calibrate`] | calibrations, with Python functions that make arguments and receive progress |
//! | [`process`] | processes that exchange messages |
//! | [`chares`], [`chare`], [`chare_calls`] | message-driven objects: programs and their runs; the objects and their messages; requests of methods |
//! | [`message`] | objects as typed messages |
//! | [`wait`] | waits that let other threads run and that can be interrupted |
//! | [`errors`] | Rust's errors as Python exceptions |
//! | [`log`] | forwards the log of sessions to Python's `logging` |
//! | [`define`] | signatures of Python functions |
//! | [`worker`] | the process that runs Python functions for a server |
//!
//! **Invariants.** The GIL is released around everything that may block or takes a lock of the session. The memory of a
//! NumPy array is owned by the array's base object. Arrays are made and filled through NumPy's array interface, so that
//! no `unsafe` is needed for it.

#![deny(unsafe_code)]
#![allow(clippy::result_large_err, reason = "the errors are those of the session, of its size")]

mod arguments;
mod calibrate;
mod chare;
mod chare_calls;
mod chare_value;
mod chares;
mod define;
mod errors;
mod function;
mod graph;
mod grid;
mod group;
mod handle;
mod log;
mod memory;
mod message;
mod pending_names;
mod plain;
mod plan;
mod process;
mod results;
mod session;
mod shared;
mod snapshots;
mod wait;
mod worker;

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

#[pymodule]
mod _gridloom {
    use gridloom_base::limits::REGROUP_BODIES_MAX;
    use pyo3::prelude::*;

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
    use crate::group::{RawGroup, RawLoop, RawReport};
    #[pymodule_export]
    use crate::handle::RawHandle;
    #[pymodule_export]
    use crate::memory::Memory;
    #[pymodule_export]
    use crate::message::RawMessageType;
    #[pymodule_export]
    use crate::pending_names::{RawPendingNames, begin_get_shared, begin_wait_shared};
    #[pymodule_export]
    use crate::plan::{RawPlan, RawQuestion};
    #[pymodule_export]
    use crate::process::{RawProcess, read_settings, run_processes};
    #[pymodule_export]
    use crate::session::{forked, parse_size, processors};
    #[pymodule_export]
    use crate::shared::{
        begin_put_file_shared, begin_put_shared, delete_shared, find_shared, get_shared_rows, list_shared,
        place_shared, share_name, shared_exists,
    };
    #[pymodule_export]
    use crate::wait::{RawWaiting, begin_wait};
    #[pymodule_export]
    use crate::worker::{print_to_program, tell_progress, worker_main};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::log::start();
        gridloom::set_program_name(&crate::program_name(module.py())?);
        module.add("REGROUP_BODIES_MAX", REGROUP_BODIES_MAX)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// Returns the name of the program that runs: that of its script, `python` without one, and `notebook` in a kernel.
fn program_name(py: Python<'_>) -> PyResult<String> {
    let arguments: Vec<OsString> = PyModule::import(py, "sys")?.getattr("argv")?.extract().unwrap_or_default();
    let script = Path::new(arguments.first().map_or("".as_ref(), OsString::as_os_str)).file_name();
    Ok(match script.map(|name| name.to_string_lossy()).as_deref() {
        None | Some("" | "-c" | "-") => "python".into(),
        Some("ipykernel_launcher.py") => "notebook".into(),
        Some(name) => name.into(),
    })
}

/// Imports a module of NumPy or of the package, by name: a look-up in `sys.modules` after the first time.
fn import<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyModule>> {
    PyModule::import(py, name)
}

/// Locks a mutex whose data are still consistent after a panic.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
