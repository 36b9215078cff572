//! Shared data (`grpc_shared.h`). In a function, the worker's library does the work ([`super::super::worker_functions`]).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

use gridloom::PutOptions;

use super::super::code::{Failed, GRPC_INVALID_NAME_NP, GRPC_NO_ERROR, Outcome, run};
use super::super::library::Library;
use super::super::worker_functions::{WorkerFunctions, by_worker, session};
use super::super::{map, memory};

/// Maximum number of names in a list, in case the program has forgotten to end it.
const LISTED_MAX: usize = 1 << 16;

/// Runs the body of a function of the header with the session, or lets the worker run it.
pub(super) fn with_session(
    ask: impl FnOnce(&WorkerFunctions) -> c_int,
    body: impl FnOnce(&Library) -> Outcome<()>,
) -> c_int {
    by_worker(ask, |code| *code != GRPC_NO_ERROR).unwrap_or_else(|| run(|| body(&*plain_session()?)))
}

/// Returns the session, if the thread is not in a block that is being discovered.
pub(super) fn plain_session() -> Outcome<Arc<Library>> {
    let session = session()?;
    match map::discovering(|_, _| ()) {
        None => Ok(session),
        Some(()) => Err(Failed::other("shared data in a block of grpc_map: move this call into grpc_local")),
    }
}

/// Returns a name of shared data. Only its bytes are checked here; the grid checks everything else.
///
/// # Safety
/// Null, or a C string.
pub(super) unsafe fn shared_name<'a>(name: *const c_char) -> Outcome<&'a str> {
    if name.is_null() {
        return Err(Failed::new(GRPC_INVALID_NAME_NP, "the name is NULL, which cannot name shared data"));
    }
    // SAFETY: promised by the caller.
    unsafe { memory::name(name, "the name", GRPC_INVALID_NAME_NP) }
}

/// Converts a time to wait; `None` is no limit.
pub(super) fn wait_limit(seconds: f64) -> Outcome<Option<Duration>> {
    match seconds {
        _ if seconds.is_nan() => {
            Err(Failed::other("seconds is not a number; 0 checks once, GRPC_FOR_EVER_NP has no limit"))
        }
        _ if seconds < 0.0 => Ok(None),
        // A longer time is no limit in practice.
        _ => Ok(Duration::try_from_secs_f64(seconds).ok().filter(|limit| limit.as_secs() < 4_000_000_000)),
    }
}

/// `GRPC_REPLACES_NP`.
const REPLACES: c_int = 1;
/// `GRPC_DURABLE_NP`.
const DURABLE: c_int = 2;

/// Converts flags and a number of replicas.
pub(super) fn put_options(flags: c_int, replicas: c_int) -> Outcome<PutOptions> {
    if flags & !(REPLACES | DURABLE) != 0 {
        let text =
            format!("flags {flags} are not valid for a put: use GRPC_REPLACES_NP, GRPC_DURABLE_NP, both OR-ed, or 0");
        return Err(Failed::other(text));
    }
    // An invalid number becomes 0, which the grid refuses like any other invalid number.
    let replicas = u16::try_from(replicas).unwrap_or(0);
    Ok(PutOptions {
        replaces: flags & REPLACES != 0,
        replicas,
        is_durable: flags & DURABLE != 0,
        ..PutOptions::default()
    })
}

/// Gets data of exactly that size, if one is given, and passes the bytes on.
///
/// # Safety
/// There is memory for this many bytes.
pub(super) unsafe fn get(
    library: &Library,
    name: &str,
    data: *mut c_void,
    size_bytes: usize,
    limit: Option<Duration>,
) -> Outcome<()> {
    if data.is_null() && size_bytes > 0 {
        return Err(Failed::null("the pointer for the data"));
    }
    library.with_shared(name, limit, Some(size_bytes), |bytes| {
        // SAFETY: promised by the caller; the number of bytes is exact.
        unsafe { memory::write(data, bytes) };
        Ok(())
    })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_put_np(
    name: *const c_char,
    data: *const c_void,
    size_bytes: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: required by the header.
    unsafe { grpc_shared_put_replicas_np(name, data, size_bytes, flags, 1) }
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_put_replicas_np(
    name: *const c_char,
    data: *const c_void,
    size_bytes: usize,
    flags: c_int,
    replicas: c_int,
) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe { (worker.shared_put)(name, data, size_bytes, flags, replicas) };
    with_session(ask, |library| {
        let options = put_options(flags, replicas)?;
        let (name, bytes) = unsafe { (shared_name(name)?, library.copied(data, size_bytes)?) };
        library.put_shared(name, bytes, options)
    })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_get_np(
    name: *const c_char,
    data: *mut c_void,
    size_bytes: usize,
    seconds: f64,
) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe { (worker.shared_get)(name, data, size_bytes, seconds) };
    with_session(ask, |library| unsafe { get(library, shared_name(name)?, data, size_bytes, wait_limit(seconds)?) })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_get_part_np(
    name: *const c_char,
    from_byte: usize,
    data: *mut c_void,
    size_bytes: usize,
    seconds: f64,
) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask =
        |worker: &WorkerFunctions| unsafe { (worker.shared_get_part)(name, from_byte, data, size_bytes, seconds) };
    with_session(ask, |library| {
        if data.is_null() && size_bytes > 0 {
            return Err(Failed::null("the pointer for the data"));
        }
        let (name, limit) = (unsafe { shared_name(name) }?, wait_limit(seconds)?);
        library.take_part_of_shared(name, limit, (from_byte, size_bytes), |bytes| {
            // SAFETY: promised by the caller; the number of bytes is exact.
            unsafe { memory::write(data, bytes) };
        })
    })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_get_new_np(
    name: *const c_char,
    data: *mut *mut c_void,
    size_bytes: *mut usize,
    seconds: f64,
) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe { (worker.shared_get_new)(name, data, size_bytes, seconds) };
    with_session(ask, |library| {
        let place = memory::program_memory(data, "the pointer for the address")?;
        let name = unsafe { shared_name(name) }?;
        library.with_shared(name, wait_limit(seconds)?, None, |bytes| {
            let allocated = memory::allocated(bytes, &format!("'{name}'"))?;
            unsafe { allocated.store(place.pointer()) };
            if let Ok(place) = memory::program_memory(size_bytes, "the pointer for the size") {
                unsafe { place.write(bytes.len()) };
            }
            Ok(())
        })
    })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_size_np(
    name: *const c_char,
    size_bytes: *mut usize,
    seconds: f64,
) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe { (worker.shared_size)(name, size_bytes, seconds) };
    with_session(ask, |library| {
        let place = memory::program_memory(size_bytes, "the pointer for the size")?;
        let meta = library.grid.shared().meta(unsafe { shared_name(name) }?, wait_limit(seconds)?)?;
        unsafe { place.write(meta.size_bytes() as usize) };
        Ok(())
    })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_wait_np(name: *const c_char, seconds: f64) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe { (worker.shared_wait)(name, seconds) };
    with_session(ask, |library| {
        library.grid.shared().meta(unsafe { shared_name(name) }?, wait_limit(seconds)?)?;
        Ok(())
    })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_exists_np(name: *const c_char, exists: *mut c_int) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe { (worker.shared_exists)(name, exists) };
    with_session(ask, |library| {
        let place = memory::program_memory(exists, "the pointer for the answer")?;
        let found = library.grid.shared().exists(unsafe { shared_name(name) }?)?;
        unsafe { place.write(c_int::from(found)) };
        Ok(())
    })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_place_np(name: *const c_char, servers: *const *const c_char) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe { (worker.shared_place)(name, servers) };
    with_session(ask, |library| {
        let (name, listed) = unsafe { (shared_name(name)?, list(servers, "servers")?) };
        if listed.is_empty() && !servers.is_null() {
            return Err(Failed::other("the list of servers is empty; NULL in its place means all servers"));
        }
        Ok(library.grid.shared().place(name, &listed)?)
    })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_share_np(name: *const c_char, users: *const *const c_char) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe { (worker.shared_share)(name, users) };
    with_session(ask, |library| {
        let (name, users) = unsafe { (shared_name(name)?, list(users, "users")?) };
        Ok(library.grid.shared().share(name, &users)?)
    })
}

/// See `grpc_shared.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_shared_delete_np(name: *const c_char) -> c_int {
    // SAFETY: required by the header, here and below.
    let ask = |worker: &WorkerFunctions| unsafe { (worker.shared_delete)(name) };
    with_session(ask, |library| Ok(library.grid.shared().delete(unsafe { shared_name(name) }?)?))
}

/// Returns the texts of a list that ends with NULL; none for NULL in its place.
///
/// # Safety
/// Null, or such a list.
unsafe fn list(texts: *const *const c_char, what: &str) -> Outcome<Vec<String>> {
    let mut listed = Vec::new();
    while !texts.is_null() {
        // SAFETY: promised by the caller: no previous element ended the list.
        let text = unsafe { texts.add(listed.len()).read() };
        if text.is_null() {
            break;
        }
        // SAFETY: promised by the caller.
        listed.push(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        if listed.len() > LISTED_MAX {
            return Err(Failed::other(format!("the {what} have no end within {LISTED_MAX}; end them with NULL")));
        }
    }
    Ok(listed)
}
