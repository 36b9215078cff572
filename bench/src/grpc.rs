//! GridRPC as called from C: through the variadic functions of the library.

#![allow(unsafe_code, reason = "the functions are C's")]

use std::ffi::{CString, c_char, c_int};
use std::path::Path;
use std::time::Instant;

// Linked for its functions, which are found by name.
use gridloom_capi as _;

use crate::{CALLS, Figure, ROUNDS, against_ping_pong, one_by_one};

unsafe extern "C-unwind" {
    fn grpc_initialize(configuration: *const c_char) -> c_int;
    fn grpc_finalize() -> c_int;
    fn grpc_function_handle_default(handle: *mut Handle, function: *const c_char) -> c_int;
    fn grpc_call(handle: *mut Handle, ...) -> c_int;
    fn grpc_call_async(handle: *mut Handle, session: *mut c_int, ...) -> c_int;
    fn grpc_wait_all() -> c_int;
}

/// `grpc_function_handle_t`.
type Handle = [u64; 2];

/// Calls that are outstanding at once.
const OUTSTANDING: usize = 100_000;

/// A session with one server of the kernels, and a handle of the null function.
struct Session(Handle);

impl Session {
    fn begin(out: &Path) -> Session {
        let file = out.join("grpc.toml");
        let text = "[local]\nservers = 1\nfunctions = [\"kernels.idl\"]\nlibraries = [\"libkernels.so\"]\n";
        std::fs::write(&file, text).expect("out/bench is writable");
        let file = CString::new(file.to_string_lossy().into_owned()).expect("a path without NUL");
        let mut handle = Handle::default();
        // SAFETY: the arguments are texts and memory for a handle.
        unsafe {
            must(grpc_initialize(file.as_ptr()));
            must(grpc_function_handle_default(&raw mut handle, c"bench/null".as_ptr()));
        }
        Session(handle)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: no call is in progress.
        must(unsafe { grpc_finalize() });
    }
}

fn must(code: c_int) {
    assert_eq!(code, 0, "a function of GridRPC failed");
}

/// Calls one after the other.
pub(crate) fn null_call(out: &Path, name: &'static str) -> Figure {
    let mut session = Session::begin(out);
    // SAFETY: a handle of a function without arguments.
    let mut call = || must(unsafe { grpc_call(&raw mut session.0) });
    against_ping_pong(name, || one_by_one(&mut call, CALLS))
}

/// Very many asynchronous calls, and a wait for all of them.
pub(crate) fn outstanding(out: &Path) -> Figure {
    let mut session = Session::begin(out);
    let mut round = || {
        let start = Instant::now();
        for _ in 0..OUTSTANDING {
            let mut id = 0;
            // SAFETY: the handle is of a function without arguments, and `id` is memory for an id.
            must(unsafe { grpc_call_async(&raw mut session.0, &raw mut id) });
        }
        // SAFETY: it has no arguments.
        must(unsafe { grpc_wait_all() });
        OUTSTANDING as f64 / start.elapsed().as_secs_f64()
    };
    let rates: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    Figure {
        name: "100,000 null calls outstanding from C, 1/s",
        ours: format!("{:.0}", crate::stats::Samples::new(rates.clone()).median()),
        limit: String::new(),
        ratios: vec![f64::NAN],
        aim: "",
    }
}
