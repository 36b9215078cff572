//! OmniRPC's functions for C (`OmniRpc.h`), based on those of GridRPC (`gridloom-grpc`). `gridloom-capi` links them into the
//! library. A request is a session's id, converted to a pointer.

#![allow(
    clippy::missing_safety_doc,
    reason = "what a function expects of its pointers is the header's to say: a pointer is valid for what it is declared \
              to lead to, as for any function of C"
)]
#![allow(unsafe_code, reason = "this is the boundary to C")]

use std::ffi::{CStr, c_char, c_int, c_void};

use gridloom_grpc::parts::{VOID, last_error, memory, name_of};
use gridloom_grpc::{
    GRPC_ALREADY_INITIALIZED, GRPC_NO_ERROR, GRPC_NOT_COMPLETED, GRPC_SESSION_FAILED, grpc_finalize, grpc_initialize,
    grpc_probe, grpc_wait, grpc_wait_or,
};

const OMRPC_OK: c_int = 0;
const OMRPC_ERROR: c_int = -1;

/// Prints an error on standard error, where programs for OmniRPC expect it. Returns the status.
fn status(of: &str, code: c_int) -> c_int {
    if code == GRPC_NO_ERROR {
        return OMRPC_OK;
    }
    // SAFETY: a C string of this thread.
    let text = unsafe { CStr::from_ptr(last_error().1) }.to_string_lossy().into_owned();
    gridloom_base::stderr_line!("{of}: {}: {text}", name_of(code).to_string_lossy());
    OMRPC_ERROR
}

/// Returns the session of a request; an invalid id if it cannot be one.
fn session_of(request: *mut c_void) -> c_int {
    c_int::try_from(request.addr()).ok().filter(|id| *id > 0).unwrap_or(VOID)
}

/// Returns the program's requests as sessions.
///
/// # Safety
/// Null, or an array of `n` requests.
unsafe fn sessions_of(n: c_int, requests: *const *mut c_void) -> Option<Vec<c_int>> {
    // SAFETY: promised by the caller.
    let requests = unsafe { memory::array(requests, usize::try_from(n).ok()?, "the array of requests") }.ok()?;
    Some(requests.into_iter().map(|request| if request.is_null() { 0 } else { session_of(request) }).collect())
}

/// See `omnirpc_calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_omnirpc_status(entry: *const c_char, error: c_int) -> c_int {
    // SAFETY: null, or a text, as the header requires.
    let entry = if entry.is_null() { "NULL".into() } else { unsafe { CStr::from_ptr(entry) }.to_string_lossy() };
    status(&format!("OmniRPC: {entry}"), error)
}

/// See `OmniRpc.h`.
#[allow(non_snake_case, reason = "OmniRPC's name")]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn OmniRpcInit(argc: *mut c_int, argv: *mut *mut *mut c_char) {
    // SAFETY: the arguments of main, or NULL, as the header requires.
    unsafe { take_options(argc, argv) };
    // SAFETY: no configuration is named.
    let code = unsafe { grpc_initialize(std::ptr::null()) };
    if code != GRPC_ALREADY_INITIALIZED && status("OmniRpcInit", code) == OMRPC_ERROR {
        std::process::exit(1);
    }
}

/// Removes OmniRPC's options from a program's arguments.
///
/// # Safety
/// The arguments of main, or null.
unsafe fn take_options(argc: *mut c_int, argv: *mut *mut *mut c_char) {
    let (Ok(argc), Ok(argv)) = (memory::program_memory(argc, "argc"), memory::program_memory(argv, "argv")) else {
        return;
    };
    // SAFETY: promised by the caller.
    let (count, words) = unsafe { (usize::try_from(argc.read()).unwrap_or(0), argv.read()) };
    if words.is_null() || count == 0 {
        return;
    }
    // SAFETY: as above.
    let word = |at: usize| unsafe { words.add(at).read() };
    // SAFETY: as above: C strings.
    let is = |at: usize, option: &CStr| !word(at).is_null() && unsafe { CStr::from_ptr(word(at)) } == option;
    let (mut from, mut to) = (1, 1);
    while from < count {
        if is(from, c"--debug") {
            from += 1;
        } else if is(from, c"--hostfile") && from + 1 < count {
            from += 2;
        } else {
            // SAFETY: as above; no further than was read.
            unsafe { words.add(to).write(word(from)) };
            (from, to) = (from + 1, to + 1);
        }
    }
    if to < count {
        // SAFETY: as above: the list ends with NULL, as before.
        unsafe {
            words.add(to).write(std::ptr::null_mut());
            argc.write(to as c_int);
        }
    }
}

/// See `OmniRpc.h`.
#[allow(non_snake_case, reason = "OmniRPC's name")]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn OmniRpcFinalize() {
    status("OmniRpcFinalize", grpc_finalize());
}

/// See `OmniRpc.h`.
#[allow(non_snake_case, reason = "OmniRPC's name")]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn OmniRpcWait(request: *mut c_void) -> c_int {
    status("OmniRpcWait", grpc_wait(session_of(request)))
}

/// See `OmniRpc.h`.
#[allow(non_snake_case, reason = "OmniRPC's name")]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn OmniRpcProbe(request: *mut c_void) -> c_int {
    match grpc_probe(session_of(request)) {
        GRPC_NO_ERROR => 1,
        GRPC_NOT_COMPLETED => 0,
        code => status("OmniRpcProbe", code),
    }
}

/// See `OmniRpc.h`.
#[allow(non_snake_case, reason = "OmniRPC's name")]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn OmniRpcWaitAll(n: c_int, requests: *mut *mut c_void) -> c_int {
    // SAFETY: required by the header.
    let Some(sessions) = (unsafe { sessions_of(n, requests) }) else {
        gridloom_base::stderr_line!("OmniRpcWaitAll: {n} requests cannot be at {requests:?}");
        return OMRPC_ERROR;
    };
    let waited = sessions.into_iter().map(|session| status("OmniRpcWaitAll", grpc_wait(session)));
    waited.fold(OMRPC_OK, c_int::min)
}

/// See `OmniRpc.h`.
#[allow(non_snake_case, reason = "OmniRPC's name")]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn OmniRpcWaitAny(n: c_int, requests: *mut *mut c_void) -> c_int {
    // SAFETY: required by the header.
    let Some(sessions) = (unsafe { sessions_of(n, requests) }) else {
        gridloom_base::stderr_line!("OmniRpcWaitAny: {n} requests cannot be at {requests:?}");
        return OMRPC_ERROR;
    };
    let known: Vec<c_int> = sessions.iter().copied().filter(|session| *session != 0).collect();
    if known.is_empty() {
        return OMRPC_ERROR;
    }
    let mut first = VOID;
    // SAFETY: an array and a variable of this function.
    let code = unsafe { grpc_wait_or(known.as_ptr(), known.len(), &raw mut first) };
    status("OmniRpcWaitAny", code);
    match code {
        GRPC_NO_ERROR | GRPC_SESSION_FAILED => {
            sessions.iter().position(|session| *session == first).map_or(OMRPC_ERROR, |at| at as c_int)
        }
        _ => OMRPC_ERROR,
    }
}

gridloom_grpc::variadic! {
    OmniRpcModuleInit => gridloom_variadic_OmniRpcModuleInit, "OmniRpc.h";
    OmniRpcCall => gridloom_variadic_OmniRpcCall, "OmniRpc.h";
    OmniRpcCallAsync => gridloom_variadic_OmniRpcCallAsync, "OmniRpc.h";
}
