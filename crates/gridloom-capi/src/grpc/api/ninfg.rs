//! Ninf-G's extensions of the standard (`grpc_ninfg.h`), except attributes: its configuration, and checks whether
//! handles are ready.

use std::ffi::{c_char, c_int};
use std::io::Write as _;

use super::super::code::{Failed, GRPC_NO_ERROR, GRPC_SERVER_NOT_FOUND, Outcome, name_of, run};
use super::super::config::Config;
use super::super::handles::{CFunctionHandle, CObjectHandle};
use super::super::library::{Library, library};
use super::super::memory;
use super::calls::call_of;
use super::objects::grpc_get_object_handle_np;
use super::waits::grpc_get_handle;

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_config_file_read_np(config_file_name: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: a C string, as the header requires.
        let name = unsafe { memory::text(config_file_name, "the name of the configuration") }?;
        library.reconfigure(&Config::read(Some(name))?);
        Ok(())
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

impl Library {
    /// Checks that this server exists; without a server, that any exists.
    fn check_server(&self, node: Option<gridloom_base::NodeId>) -> Outcome<()> {
        let view = self.some_servers()?;
        match node.is_none_or(|node| view.servers.iter().any(|server| server.node == node)) {
            true => Ok(()),
            false => Err(Failed::new(GRPC_SERVER_NOT_FOUND, "the handle's server has left; make a new handle")),
        }
    }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_is_ready_np(handle: *mut CFunctionHandle) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe {
        let call = call_of(handle)?;
        call.library.check_server(call.function().server())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_is_ready_np(handle: *mut CObjectHandle) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe {
        let library = library()?;
        let held = library.objects.find(&memory::program_memory(handle, "the handle")?.read())?;
        library.check_server(held.server())
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
