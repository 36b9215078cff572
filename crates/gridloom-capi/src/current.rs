//! The process that runs C code, and what the library keeps for it.
//!
//! **Invariant:** while C code of a process runs on a thread, [`CURRENT`] of that thread leads to its [`Context`]. The
//! `process` there is the only way to the `Process` in use. A call into C from within a call of `Process` puts the
//! reference that it was given there, for as long as C runs.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int};
use std::ptr::{null, null_mut};

use gridloom::process::{PeerId, Process};
use gridloom_process::Spares;

use crate::code::Failure;

thread_local! {
    static CURRENT: Cell<*const Context> = const { Cell::new(null()) };
    /// The last error where there is no process.
    static ERROR: RefCell<CString> = RefCell::default();
}

/// A process of C.
pub struct Context {
    process: Cell<*mut Process>,
    pub(crate) function: CString,
    pub(crate) host: CString,
    error: RefCell<CString>,
    pub(crate) remote_code: Cell<c_int>,
    /// What `gridloom_fail` said, until somebody asks.
    pub(crate) failure: RefCell<String>,
    /// Values of the configuration that were handed out.
    pub(crate) texts: RefCell<BTreeMap<String, CString>>,
    /// How many connections the program may know of; they are numbered from 0.
    peers: Cell<u64>,
    /// Memory of received messages: where it begins and ends.
    pub(crate) arenas: RefCell<BTreeMap<usize, usize>>,
    /// Memory of messages that the program has freed. A simulated process keeps none: there may be very many.
    pub(crate) spares: Option<RefCell<Spares<u64>>>,
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
            spares: (!process.is_simulated()).then(RefCell::default),
        }
    }

    /// Runs C code of this process, with `process` for its calls.
    pub(crate) fn run<R>(&self, process: &mut Process, code: impl FnOnce() -> R) -> R {
        let before = Before { current: CURRENT.get(), context: self, process: self.process.get() };
        CURRENT.set(self);
        self.process.set(process);
        let result = code();
        drop(before);
        result
    }

    /// The program learns of a connection; its number.
    pub(crate) fn learn(&self, peer: PeerId) -> i64 {
        self.peers.set(self.peers.get().max(peer.0 + 1));
        peer.0 as i64
    }

    /// The connection of that number, if the program can know it.
    pub(crate) fn peer(&self, number: i64) -> Result<PeerId, Failure> {
        let known = u64::try_from(number).ok().filter(|number| *number < self.peers.get());
        known.map(PeerId).ok_or_else(|| {
            let why = if number < 0 { "it is the code of a failure" } else { "nothing came from it" };
            Failure::usage(format!("{number} is no connection of this process: {why}; see what gridloom_connect gave"))
        })
    }

    pub(crate) fn set_error(&self, text: &str) {
        *self.error.borrow_mut() = to_c(text);
    }
}

/// Puts everything as it was, also when C code is unwound.
struct Before<'a> {
    current: *const Context,
    context: &'a Context,
    process: *mut Process,
}

impl Drop for Before<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.current);
        self.context.process.set(self.process);
    }
}

/// Keeps the current process while others run: put in place again when dropped.
pub(crate) struct Kept(*const Context);

impl Kept {
    pub(crate) fn new() -> Kept {
        Kept(CURRENT.get())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// The current process's context.
pub(crate) fn context<'a>() -> Result<&'a Context, Failure> {
    // SAFETY: `Context::run` has the context borrowed for as long as its address stands here, and C code, which calls us,
    // runs within it only. The reference is not kept beyond the call from C that asks for it.
    let context = unsafe { CURRENT.get().as_ref() };
    context.ok_or_else(|| Failure::usage("this can be called by a process only, and by the thread that runs it"))
}

/// The current process's function and host; allocates nothing, for the handler of a signal.
pub(crate) fn names<'a>() -> Option<(&'a CStr, &'a CStr)> {
    // SAFETY: as in `context`.
    let context = unsafe { CURRENT.get().as_ref() };
    context.map(|context| (context.function.as_c_str(), context.host.as_c_str()))
}

/// Runs a call of the current process.
pub(crate) fn with<R>(call: impl FnOnce(&mut Process, &Context) -> Result<R, Failure>) -> Result<R, c_int> {
    let outcome = context().and_then(|context| {
        // SAFETY: `Context::run` put an exclusive reference there, and its owner is waiting for C to return. If
        // `call` runs C code, it does so by `Context::run`, with a reference that derives from this one.
        let process = unsafe { &mut *context.process.get() };
        call(process, context)
    });
    outcome.map_err(tell)
}

/// As [`with`], for a call that gives a code only.
pub(crate) fn code_of(call: impl FnOnce(&mut Process, &Context) -> Result<(), Failure>) -> c_int {
    match with(call) {
        Ok(()) => crate::code::GRIDLOOM_OK,
        Err(code) => code,
    }
}

/// Notes an error for `gridloom_last_error`; its code.
pub(crate) fn tell(failure: Failure) -> c_int {
    match context() {
        Ok(context) => {
            context.set_error(&failure.text);
            context.remote_code.set(failure.remote);
        }
        Err(_) => ERROR.with(|error| *error.borrow_mut() = to_c(&failure.text)),
    }
    failure.code
}

/// The text of the last error.
pub(crate) fn last_error() -> *const std::ffi::c_char {
    match context() {
        Ok(context) => context.error.borrow().as_ptr(),
        Err(_) => ERROR.with(|error| error.borrow().as_ptr()),
    }
}

/// A text for C, up to a NUL in it.
pub(crate) fn to_c(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).expect("it was cut before its first NUL")
}
