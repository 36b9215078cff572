//! Non-blocking puts, gets and waits of shared data (`grpc_shared.h`). In a function, the worker's library does the
//! work ([`super::super::worker_functions`]).

use std::ffi::{c_char, c_int, c_void};

use super::super::code::{Failed, GRPC_NO_ERROR, GRPC_NOT_COMPLETED, run};
use super::super::library::Library;
use super::super::memory::{self, ProgramMemory};
use super::super::requests::Request;
use super::super::worker_functions::{WorkerFunctions, by_worker};
use super::shared::{plain_session, put_options, shared_name, wait_limit, with_session};

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_begin_put_np(
    request: *mut *mut c_void,
    name: *const c_char,
    data: *const c_void,
    size_bytes: usize,
    flags: c_int,
    replicas: c_int,
) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe {
        (worker.shared_begin_put)(request, name, data, size_bytes, flags, replicas)
    };
    with_session(ask, |library| {
        let place = memory::program_memory(request, "the pointer for the request")?;
        let options = put_options(flags, replicas)?;
        let (name, bytes) = unsafe { (shared_name(name)?, library.copied(data, size_bytes)?) };
        let begun = library.begin_put_shared(name, bytes, options)?;
        unsafe { add(library, place, Request::Put { name: name.into(), begun, is_for_all: false }) };
        Ok(())
    })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_begin_get_np(
    request: *mut *mut c_void,
    name: *const c_char,
    data: *mut c_void,
    size_bytes: usize,
    seconds: f64,
) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe { (worker.shared_begin_get)(request, name, data, size_bytes, seconds) };
    with_session(ask, |library| {
        let place = memory::program_memory(request, "the pointer for the request")?;
        if data.is_null() && size_bytes > 0 {
            return Err(Failed::null("the pointer for the data"));
        }
        let name = unsafe { shared_name(name) }?;
        let begun = library.grid.shared().begin_get(name, wait_limit(seconds)?);
        let address = data.expose_provenance();
        unsafe { add(library, place, Request::Get { name: name.into(), begun, address, size_bytes }) };
        Ok(())
    })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_begin_wait_np(
    request: *mut *mut c_void,
    name: *const c_char,
    seconds: f64,
) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe { (worker.shared_begin_wait)(request, name, seconds) };
    with_session(ask, |library| {
        let place = memory::program_memory(request, "the pointer for the request")?;
        let begun = library.grid.shared().begin_wait(unsafe { shared_name(name) }?, wait_limit(seconds)?);
        unsafe { add(library, place, Request::Wait(begun)) };
        Ok(())
    })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_finish_np(request: *mut c_void, seconds: f64) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe { (worker.shared_finish)(request, seconds) };
    let fails = |code: &c_int| !matches!(*code, GRPC_NO_ERROR | GRPC_NOT_COMPLETED);
    by_worker(ask, fails)
        .unwrap_or_else(|| run(|| unsafe { plain_session()?.finish_request(request.addr(), wait_limit(seconds)?) }))
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_shared_cancel_np(request: *mut c_void) -> c_int {
    with_session(|worker| (worker.shared_cancel)(request), |library| library.cancel_request(request.addr()))
}

/// Returns a request to the program, by its number.
///
/// # Safety
/// There is memory for a pointer, which nobody else uses meanwhile.
unsafe fn add(library: &Library, place: ProgramMemory<*mut c_void>, request: Request) {
    let number = library.requests.add(request);
    // SAFETY: promised by the caller.
    unsafe { place.write(std::ptr::without_provenance_mut(number)) };
}
