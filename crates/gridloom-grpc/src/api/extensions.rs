//! Extensions of the standard, modelled on Ninf-G: texts of errors, details of sessions, time limits.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io::Write as _;

use gridloom::Function;
use gridloom_base::Priority;

use super::super::code::{Failed, GRPC_RPC_REFUSED, Outcome, last_error, name_of, run, run_for};
use super::super::handles::CFunctionHandle;
use super::super::library::library;
use super::super::limits::limit;
use super::super::memory;
use super::super::sessions::no_session;
use crate::code::to_c;

/// `grpc_session_details_np`.
#[derive(Debug)]
#[repr(C)]
pub struct CSessionInfo {
    /// `GRPC_NO_ERROR` while it runs.
    pub error: c_int,
    /// Nonzero if it has ended.
    pub is_done: c_int,
    /// The server that ran it.
    pub server: [c_char; 256],
    /// Unknown: -1.
    pub transfer_s: f64,
    /// Unknown: -1.
    pub queue_s: f64,
    /// Seconds in the function.
    pub run_s: f64,
    /// Seconds from the call to its end.
    pub total_s: f64,
}

thread_local! {
    static SESSION_TEXT: RefCell<CString> = RefCell::default();
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_now_np() -> f64 {
    run_for(|| Ok(library()?.grid.now()), -1.0)
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_last_error_text_np() -> *const c_char {
    last_error().1
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_last_error_get_np() -> c_int {
    last_error().0
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_perror_np(text: *const c_char) -> c_int {
    run(|| {
        let (code, error) = last_error();
        // SAFETY: a C string or NULL, as the header requires; and the library's own string.
        let (text, error) = unsafe { (lossy(text), lossy(error)) };
        // If standard error is closed, there is no place to report it.
        let _ = writeln!(std::io::stderr(), "{text}: {}: {error}", name_of(code).to_string_lossy());
        Ok(())
    })
}

/// Copies a text that is only shown: an invalid text must not suppress the error that is reported with it.
///
/// # Safety
/// Null, or a C string.
unsafe fn lossy(text: *const c_char) -> String {
    // SAFETY: promised by the caller.
    if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_session_error_text_np(session_id: c_int) -> *const c_char {
    let text = run_for(|| Ok(library()?.error_of(session_id)?.1), String::new());
    let kept = SESSION_TEXT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        *kept = to_c(&text);
        kept.as_ptr()
    });
    // A thread that is ending no longer has one.
    kept.unwrap_or(c"".as_ptr())
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_details_get_np(session_id: c_int, info: *mut CSessionInfo) -> c_int {
    run(|| {
        let found = session_info(session_id)?;
        if info.is_null() {
            return Err(Failed::null("the memory for the session's details"));
        }
        // SAFETY: memory for it, as the header requires. Its previous content is not read.
        unsafe { info.write(found) };
        Ok(())
    })
}

fn session_info(id: c_int) -> Outcome<CSessionInfo> {
    let library = library()?;
    let open = library.sessions.lock().open(id).cloned();
    let record = match open {
        Ok(session) => session.current_record(&library.grid),
        Err(_) => Some(library.sessions.lock().known(id)?.clone()),
    };
    let none = -1.0;
    let mut info = CSessionInfo {
        error: record.as_ref().map_or(0, |record| record.code),
        is_done: c_int::from(record.is_some()),
        server: [0; 256],
        transfer_s: none,
        queue_s: none,
        run_s: record.as_ref().map_or(none, |record| record.run_s),
        total_s: record.as_ref().map_or(none, |record| record.total_s),
    };
    let name = record.map(|record| record.server).unwrap_or_default();
    // The last byte remains NUL.
    for (place, byte) in info.server.iter_mut().take(255).zip(name.bytes()) {
        *place = byte as c_char;
    }
    Ok(info)
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_session_info_remove_np(session_id: c_int) -> c_int {
    run(|| match library()?.sessions.lock().remembered.forget(session_id) {
        true => Ok(()),
        false => Err(no_session(session_id)),
    })
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_set_timeout_np(
    handle: *mut CFunctionHandle,
    seconds: f64,
) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: required by the header.
        let bound = library.handles.find(&unsafe { memory::program_memory(handle, "the handle")?.read() })?;
        bound.set_limit(limit(seconds).map_err(|why| Failed::other(format!("the time limit is {why}")))?);
        Ok(())
    })
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_set_priority_np(
    handle: *mut CFunctionHandle,
    priority: c_int,
) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: required by the header.
        let bound = library.handles.find(&unsafe { memory::program_memory(handle, "the handle")?.read() })?;
        bound.set_priority(Priority(priority));
        Ok(())
    })
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_set_priority_np(priority: c_int) -> c_int {
    run(|| {
        library()?.grid.set_priority(Some(Priority(priority)));
        Ok(())
    })
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_signature_np(
    handle: *mut CFunctionHandle,
    text: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: required by the header.
    unsafe { write_text_of_handle(handle, text, size, |function| Ok(function.signature().to_string())) }
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_prototype_np(
    handle: *mut CFunctionHandle,
    text: *mut c_char,
    size: usize,
) -> c_int {
    let prototype = |function: &Function| function.c_prototype().map_err(|why| Failed::new(GRPC_RPC_REFUSED, why));
    // SAFETY: required by the header.
    unsafe { write_text_of_handle(handle, text, size, prototype) }
}

/// Writes a text about a handle's function as `snprintf` does.
///
/// # Safety
/// A handle; and null, or memory for `size` characters.
unsafe fn write_text_of_handle(
    handle: *mut CFunctionHandle,
    text: *mut c_char,
    size: usize,
    tell: impl FnOnce(&Function) -> Outcome<String>,
) -> c_int {
    let write = || {
        let library = library()?;
        // SAFETY: promised by the caller.
        let bound = library.handles.find(&unsafe { memory::program_memory(handle, "the handle")?.read() })?;
        let told = tell(&bound.function)?;
        // SAFETY: memory for `size` characters, promised by the caller.
        Ok(unsafe { memory::write_text(&told, text, size) })
    };
    run_for(write, -1)
}
