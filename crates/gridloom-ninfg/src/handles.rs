//! Another configuration during the session, handles of sessions, and checks whether handles are ready.

use std::ffi::{c_char, c_int};
use std::io::Write as _;

use gridloom_grpc::parts::{call_of, library, memory, name_of, run};
use gridloom_grpc::{CFunctionHandle, CObjectHandle, GRPC_NO_ERROR, grpc_get_handle, grpc_get_object_handle_np};

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_config_file_read_np(config_file_name: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: a C string, as the header requires.
        let name = unsafe { memory::text(config_file_name, "the name of the configuration") }?;
        library.read_configuration(name)
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_get_from_session_np(
    handle: *mut *mut CFunctionHandle,
    session_id: c_int,
) -> c_int {
    // SAFETY: required by the header.
    unsafe { grpc_get_handle(handle, session_id) }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_get_from_session_np(
    handle: *mut *mut CObjectHandle,
    session_id: c_int,
) -> c_int {
    // SAFETY: required by the header.
    unsafe { grpc_get_object_handle_np(handle, session_id) }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_is_ready_np(handle: *mut CFunctionHandle) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { call_of(handle)?.check_server() })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_is_ready_np(handle: *mut CObjectHandle) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe {
        let library = library()?;
        library.check_server(library.object(handle)?.server())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_get_error_np(handle: *mut CFunctionHandle) -> c_int {
    // SAFETY: required by the header.
    unsafe { grpc_function_handle_is_ready_np(handle) }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_get_error_np(handle: *mut CObjectHandle) -> c_int {
    // SAFETY: required by the header.
    unsafe { grpc_object_handle_is_ready_np(handle) }
}

/// Prints a text, followed by the name of a handle's error.
///
/// # Safety
/// Null, or a C string.
unsafe fn print_handle_error(text: *const c_char, code: c_int) -> c_int {
    // SAFETY: promised by the caller.
    let text = unsafe { memory::string_or_null(text.cast()) }.unwrap_or_default();
    // If standard error is closed, there is no place to report it.
    let _ = writeln!(std::io::stderr(), "{}: {}", String::from_utf8_lossy(text), name_of(code).to_string_lossy());
    GRPC_NO_ERROR
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_perror_np(
    handle: *mut CFunctionHandle,
    text: *const c_char,
) -> c_int {
    // SAFETY: required by the header.
    unsafe { print_handle_error(text, grpc_function_handle_is_ready_np(handle)) }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_perror_np(handle: *mut CObjectHandle, text: *const c_char) -> c_int {
    // SAFETY: required by the header.
    unsafe { print_handle_error(text, grpc_object_handle_is_ready_np(handle)) }
}
