//! Creates and destroys function handles, singly or in arrays.

use std::ffi::{c_char, c_int};

use super::super::code::{Failed, GRPC_FUNCTION_NOT_FOUND, GRPC_SERVER_NOT_FOUND, Outcome, run};
use super::super::handles::CFunctionHandle;
use super::super::library::{Library, library};
use super::super::{map, memory};

impl Library {
    /// Destroys a handle. In the first run of a block, handles from before the block are kept for its second run.
    fn end_handle(&self, handle: &CFunctionHandle) -> Outcome<()> {
        match map::keeps_handle(handle.number()) {
            true => self.handles.find(handle).map(drop),
            false => self.handles.take(handle).map(drop),
        }
    }

    /// Creates `count` handles, or none. `ranks` is the number of ranks of their calls; with 0, calls have that of the
    /// configuration, or else that of the server.
    ///
    /// # Safety
    /// The names are C strings, or null where a name is optional. `places` has memory for `count` handles.
    pub unsafe fn make_handles(
        &self,
        places: *mut CFunctionHandle,
        count: usize,
        server: *const c_char,
        function: *const c_char,
        ranks: u32,
    ) -> Outcome<()> {
        // SAFETY: C strings, promised by the caller.
        let function = unsafe { memory::name(function, "the function's name", GRPC_FUNCTION_NOT_FOUND) }?;
        // SAFETY: as above.
        let server = unsafe { server_or_any(server) }?;
        let make = || {
            let bound = self.bind(server, function)?;
            let ranks = if ranks == 0 { self.ranks_of(server, bound.function.name()) } else { ranks };
            Ok(self.handles.add(bound.on_ranks(ranks)))
        };
        let give_up = |handle: CFunctionHandle| self.end_handle(&handle);
        // SAFETY: as above.
        unsafe { make_all(places, count, make, give_up) }
    }
}

/// Returns the server that a handle requests, or `None` if the pointer is null or the string is empty.
///
/// # Safety
/// The pointer is null, or points to a C string.
pub(super) unsafe fn server_or_any<'a>(server: *const c_char) -> Outcome<Option<&'a str>> {
    if server.is_null() {
        return Ok(None);
    }
    // SAFETY: promised by the caller.
    let server = unsafe { memory::name(server, "the server's name", GRPC_SERVER_NOT_FOUND) }?;
    Ok(Some(server).filter(|server| !server.is_empty()))
}

/// Fills all places with handles. If one cannot be created, destroys those that were created, and fills none.
///
/// # Safety
/// `places` has memory for `count` handles.
pub(super) unsafe fn make_all<H>(
    places: *mut H,
    count: usize,
    mut make: impl FnMut() -> Outcome<H>,
    give_up: impl FnMut(H) -> Outcome<()>,
) -> Outcome<()> {
    if places.is_null() {
        return Err(Failed::null("the pointer for the handle"));
    }
    let mut made = Vec::new();
    for _ in 0..count {
        match make() {
            Ok(handle) => made.push(handle),
            Err(failed) => {
                made.into_iter().try_for_each(give_up)?;
                return Err(failed);
            }
        }
    }
    for (index, handle) in made.into_iter().enumerate() {
        // SAFETY: each place has memory for a handle, promised by the caller. Its previous content is not read.
        unsafe { places.add(index).write(handle) };
    }
    Ok(())
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_default(
    handle: *mut CFunctionHandle,
    func_name: *const c_char,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { library()?.make_handles(handle, 1, std::ptr::null(), func_name, 0) })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_init(
    handle: *mut CFunctionHandle,
    server_name: *const c_char,
    func_name: *const c_char,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { library()?.make_handles(handle, 1, server_name, func_name, 0) })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_destruct(handle: *mut CFunctionHandle) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: memory of the program, as the header requires.
        library.end_handle(&unsafe { memory::program_memory(handle, "the handle")?.read() })
    })
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_array_default_np(
    handles: *mut CFunctionHandle,
    count: usize,
    func_name: *const c_char,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { library()?.make_handles(handles, count, std::ptr::null(), func_name, 0) })
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_array_init_np(
    handles: *mut CFunctionHandle,
    count: usize,
    server_name: *const c_char,
    func_name: *const c_char,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { library()?.make_handles(handles, count, server_name, func_name, 0) })
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_array_destruct_np(
    handles: *mut CFunctionHandle,
    count: usize,
) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: required by the header.
        let handles = unsafe { memory::array(handles, count, "the array of handles") }?;
        let ended: Vec<Outcome<()>> = handles.iter().map(|handle| library.end_handle(handle)).collect();
        ended.into_iter().collect()
    })
}
