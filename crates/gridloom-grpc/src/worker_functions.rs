//! Shared data for functions that run in a worker of a server.
//!
//! A function's library cannot use its own copy of this library for that: only the worker's copy knows which call
//! runs, and notifies the server when it waits. So the worker sets [`gridloom_functions_np`] in each library that it
//! loads, and in the libraries linked with it, and functions of the headers are forwarded there.
//! `gridloom-idl/prelude/functions.h` is the same for compiled bodies, which are linked with nothing.
//!
//! **Invariant:** the table only grows, at its end. A table that is too small is ignored.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gridloom_base::NodeId;
use gridloom_net::worker::initial::InitialArguments;
use gridloom_net::worker::nested;

use super::code::{
    Failed, GRPC_ALREADY_INITIALIZED, GRPC_COMMUNICATION_FAILED, GRPC_NOT_INITIALIZED, GRPC_OTHER_ERROR_CODE, Outcome,
    record_error,
};
use super::config::Config;
use super::library::{Library, begin_library, library};

/// `struct gridloom_functions_np`.
#[allow(missing_docs, reason = "the headers say what each function does")]
#[derive(Debug)]
#[repr(C)]
pub struct WorkerFunctions {
    pub size: usize,
    pub last_error: extern "C-unwind" fn() -> c_int,
    pub last_error_text: extern "C-unwind" fn() -> *const c_char,
    pub shared_put: unsafe extern "C-unwind" fn(*const c_char, *const c_void, usize, c_int, c_int) -> c_int,
    pub shared_get: unsafe extern "C-unwind" fn(*const c_char, *mut c_void, usize, f64) -> c_int,
    pub shared_get_new: unsafe extern "C-unwind" fn(*const c_char, *mut *mut c_void, *mut usize, f64) -> c_int,
    pub shared_size: unsafe extern "C-unwind" fn(*const c_char, *mut usize, f64) -> c_int,
    pub shared_wait: unsafe extern "C-unwind" fn(*const c_char, f64) -> c_int,
    pub shared_exists: unsafe extern "C-unwind" fn(*const c_char, *mut c_int) -> c_int,
    pub shared_place: unsafe extern "C-unwind" fn(*const c_char, *const *const c_char) -> c_int,
    pub shared_delete: unsafe extern "C-unwind" fn(*const c_char) -> c_int,
    pub omst_put: unsafe extern "C-unwind" fn(*const c_char, *const c_void, usize, c_int) -> *mut c_void,
    pub omst_wait: extern "C-unwind" fn(*mut c_void) -> c_int,
    pub omst_get: unsafe extern "C-unwind" fn(*const c_char, *mut c_void, usize) -> *mut c_void,
    pub omst_limit: extern "C-unwind" fn(f64) -> c_int,
    pub shared_get_part: unsafe extern "C-unwind" fn(*const c_char, usize, *mut c_void, usize, f64) -> c_int,
    pub shared_begin_put:
        unsafe extern "C-unwind" fn(*mut *mut c_void, *const c_char, *const c_void, usize, c_int, c_int) -> c_int,
    pub shared_begin_get:
        unsafe extern "C-unwind" fn(*mut *mut c_void, *const c_char, *mut c_void, usize, f64) -> c_int,
    pub shared_begin_wait: unsafe extern "C-unwind" fn(*mut *mut c_void, *const c_char, f64) -> c_int,
    pub shared_finish: unsafe extern "C-unwind" fn(*mut c_void, f64) -> c_int,
    pub shared_cancel: extern "C-unwind" fn(*mut c_void) -> c_int,
    pub shared_share: unsafe extern "C-unwind" fn(*const c_char, *const *const c_char) -> c_int,
}

/// The worker's functions; null in a program, and in the worker itself.
#[allow(non_upper_case_globals, reason = "it is a variable of C")]
#[unsafe(no_mangle)]
pub static gridloom_functions_np: AtomicPtr<WorkerFunctions> = AtomicPtr::new(std::ptr::null_mut());

/// Lets the worker that loaded this library do it, if there is one. An error there becomes this thread's last error here.
pub(crate) fn by_worker<R>(ask: impl FnOnce(&WorkerFunctions) -> R, fails: impl FnOnce(&R) -> bool) -> Option<R> {
    let table = gridloom_functions_np.load(Ordering::Acquire);
    // SAFETY: a worker sets it to a table that exists as long as the process, and whose first field is its size.
    let is_whole = !table.is_null() && unsafe { (*table).size } >= size_of::<WorkerFunctions>();
    // SAFETY: as above.
    let functions = if is_whole { unsafe { &*table } } else { return None };
    let result = ask(functions);
    if fails(&result) {
        // SAFETY: a C string of this thread.
        let text = unsafe { CStr::from_ptr((functions.last_error_text)()) }.to_string_lossy().into_owned();
        record_error(&Failed::new((functions.last_error)(), text));
    }
    Some(result)
}

/// Returns the session of this process. In a worker it is a session with the grid of its server, which the first
/// function that needs it begins.
pub(crate) fn session() -> Outcome<Arc<Library>> {
    if let Some(server) = nested::simulated_at() {
        return session_at(server);
    }
    library().or_else(|none| if nested::depth() > 0 { session_of_worker() } else { Err(none) })
}

/// Returns the session of this worker at a simulated server: a worker serves all servers of a simulation.
fn session_at(server: NodeId) -> Outcome<Arc<Library>> {
    static SESSIONS: Mutex<BTreeMap<NodeId, Arc<Library>>> = Mutex::new(BTreeMap::new());
    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = sessions.get(&server) {
        return Ok(library.clone());
    }
    let library = Arc::new(Library::open(&Config::default())?);
    sessions.insert(server, library.clone());
    Ok(library)
}

/// Asks how a client wants a module initialised whose function is about to run in this worker.
///
/// # Errors
/// If the grid does not answer.
pub fn request_initial(client: NodeId, module: &str, known: Option<u64>) -> Result<Option<InitialArguments>, String> {
    if !has_agent() {
        return Ok(None);
    }
    let library = session().map_err(|failed| failed.text)?;
    library.grid.initial(client, module, known).map_err(|error| error.to_string())
}

fn has_agent() -> bool {
    std::env::var_os(nested::SERVER_VARIABLE).is_some()
}

fn session_of_worker() -> Outcome<Arc<Library>> {
    if !has_agent() {
        let text = "a function accesses shared data through its server's agent: this server has none";
        return Err(Failed::new(GRPC_NOT_INITIALIZED, text));
    }
    match begin_library(|| Ok(Config::default())) {
        // Another thread of the function has begun it a moment ago.
        Err(Failed { code: GRPC_ALREADY_INITIALIZED, .. }) | Ok(()) => library(),
        Err(Failed { code: GRPC_OTHER_ERROR_CODE, text }) => Err(Failed::new(GRPC_COMMUNICATION_FAILED, text)),
        Err(failed) => Err(failed),
    }
}
