//! The process that runs C code, and the library's data about it.
//!
//! **Invariant:** while C code of a process runs on a thread, [`CURRENT`] of that thread points to its [`Context`].
//! Its `process` is the only access to the `Process` in use. A call into C from within a call of `Process` stores the
//! reference that it was given there while C runs.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int};
use std::ptr::{null, null_mut};

use gridloom::process::{PeerId, Process};
use gridloom_process::BufferPool;

pub(crate) use gridloom_grpc::parts::to_c;

use crate::code::Failure;

thread_local! {
    static CURRENT: Cell<*const Context> = const { Cell::new(null()) };
    /// The last error when there is no process.
    static ERROR: RefCell<CString> = RefCell::default();
}

/// A process of C.
pub struct Context {
    process: Cell<*mut Process>,
    pub(crate) function: CString,
    pub(crate) host: CString,
    error: RefCell<CString>,
    pub(crate) remote_code: Cell<c_int>,
    /// The text passed to `gridloom_fail`, until it is read.
    pub(crate) failure: RefCell<String>,
    /// Configuration values that were returned to the program.
    pub(crate) texts: RefCell<BTreeMap<String, CString>>,
    /// Number of connections that the program may know; they are numbered from 0.
    peers: Cell<u64>,
    /// Memory of received messages: first address, and first address after it.
    pub(crate) arenas: RefCell<BTreeMap<usize, usize>>,
    /// Memory of messages that the program has freed, for reuse. A simulated process keeps none, because there may be
    /// very many processes.
    pub(crate) buffer_pool: Option<RefCell<BufferPool<u64>>>,
}

impl Context {
    pub(crate) fn new(process: &Process) -> Context {
        let spec = process.spec();
        Context {
            process: Cell::new(null_mut()),
            function: to_c(&spec.function),
            host: to_c(&spec.host),
            error: RefCell::default(),
            remote_code: Cell::new(0),
            failure: RefCell::default(),
            texts: RefCell::default(),
            peers: Cell::new(0),
            arenas: RefCell::default(),
            buffer_pool: (!process.is_simulated()).then(RefCell::default),
        }
    }

    /// Runs C code of this process; calls from it use `process`.
    pub(crate) fn run<R>(&self, process: &mut Process, code: impl FnOnce() -> R) -> R {
        let before = ContextGuard { current: CURRENT.get(), context: self, process: self.process.get() };
        CURRENT.set(self);
        self.process.set(process);
        let result = code();
        drop(before);
        result
    }

    /// Makes a connection known to the program, and returns its number.
    pub(crate) fn add_peer(&self, peer: PeerId) -> i64 {
        self.peers.set(self.peers.get().max(peer.0 + 1));
        peer.0 as i64
    }

    /// Returns the connection of that number, if the program can know it.
    pub(crate) fn peer(&self, number: i64) -> Result<PeerId, Failure> {
        let known = u64::try_from(number).ok().filter(|number| *number < self.peers.get());
        known.map(PeerId).ok_or_else(|| {
            let why = if number < 0 { "it is the code of a failure" } else { "it was never returned" };
            Failure::usage(format!(
                "{number} is not a connection of this process: {why}; use the result of gridloom_connect"
            ))
        })
    }

    pub(crate) fn set_error(&self, text: &str) {
        *self.error.borrow_mut() = to_c(text);
    }
}

/// Restores the previous state, also when C code is unwound.
struct ContextGuard<'a> {
    current: *const Context,
    context: &'a Context,
    process: *mut Process,
}

impl Drop for ContextGuard<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.current);
        self.context.process.set(self.process);
    }
}

/// Saves the current process while others run, and restores it when dropped.
pub(crate) struct SavedContext(*const Context);

impl SavedContext {
    pub(crate) fn new() -> SavedContext {
        SavedContext(CURRENT.get())
    }
}

impl Drop for SavedContext {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Returns the current process's context.
pub(crate) fn context<'a>() -> Result<&'a Context, Failure> {
    // SAFETY: `Context::run` borrows the context while its address is stored here, and C code, which calls this
    // function, runs within it only. The reference is not kept beyond the call from C that requests it.
    let context = unsafe { CURRENT.get().as_ref() };
    context.ok_or_else(|| Failure::usage("only a process can call this function, from the thread that runs it"))
}

/// Returns the current process's function and host. Allocates nothing, so a signal handler can call it.
pub(crate) fn names<'a>() -> Option<(&'a CStr, &'a CStr)> {
    // SAFETY: as in `context`.
    let context = unsafe { CURRENT.get().as_ref() };
    context.map(|context| (context.function.as_c_str(), context.host.as_c_str()))
}

/// Runs a call of the current process.
pub(crate) fn with<R>(call: impl FnOnce(&mut Process, &Context) -> Result<R, Failure>) -> Result<R, c_int> {
    let outcome = context().and_then(|context| {
        // SAFETY: `Context::run` stored an exclusive reference there, and its owner waits for C to return. If `call`
        // runs C code, it does so through `Context::run`, with a reference that derives from this one.
        let process = unsafe { &mut *context.process.get() };
        call(process, context)
    });
    outcome.map_err(record_error)
}

/// Like [`with`], for a call that returns only a code.
pub(crate) fn code_of(call: impl FnOnce(&mut Process, &Context) -> Result<(), Failure>) -> c_int {
    match with(call) {
        Ok(()) => crate::code::GRIDLOOM_OK,
        Err(code) => code,
    }
}

/// Records an error for `gridloom_last_error`, and returns its code.
pub(crate) fn record_error(failure: Failure) -> c_int {
    match context() {
        Ok(context) => {
            context.set_error(&failure.text);
            context.remote_code.set(failure.remote);
        }
        Err(_) => ERROR.with(|error| *error.borrow_mut() = to_c(&failure.text)),
    }
    failure.code
}

/// Returns the text of the last error.
pub(crate) fn last_error() -> *const std::ffi::c_char {
    match context() {
        Ok(context) => context.error.borrow().as_ptr(),
        Err(_) => ERROR.with(|error| error.borrow().as_ptr()),
    }
}

/// True if a simulated process of C runs on this thread.
pub(crate) fn is_simulated() -> bool {
    context().is_ok_and(|context| context.buffer_pool.is_none())
}
