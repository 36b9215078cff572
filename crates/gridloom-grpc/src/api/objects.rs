//! Handles of objects: made and ended, in arrays or one by one.

use std::ffi::{c_char, c_int};

use gridloom::PendingCall;
use gridloom_base::NodeId;
use gridloom_idl::method::INITIALIZE;
use gridloom_perf::ServerView;

use super::super::code::{Failed, GRPC_CLASS_NOT_FOUND_NP, GRPC_INVALID_OBJECT_HANDLE_NP, Outcome, run};
use super::super::handles::CObjectHandle;
use super::super::library::{Library, library};
use super::super::objects::ObjectSlot;
use super::super::{map, memory};
use super::handles::{make_all, server_or_any};
use super::waits::write_handle;

impl Library {
    /// Makes as many handles as there are places, or none.
    ///
    /// # Safety
    /// The names are C strings, or null where one may be left out; the places have memory for handles.
    unsafe fn make_objects(
        &self,
        places: *mut CObjectHandle,
        count: usize,
        server: *const c_char,
        class: *const c_char,
    ) -> Outcome<()> {
        // SAFETY: C strings, promised by the caller.
        let class = unsafe { memory::name(class, "the class's name", GRPC_CLASS_NOT_FOUND_NP) }?;
        // SAFETY: as above.
        let server = unsafe { server_or_any(server) }?;
        let make = || Ok(self.objects.add(self.make_object(server, class, !map::is_discovering())?));
        // Its end is not waited for: the original error is reported.
        let give_up = |handle: CObjectHandle| self.end_object(&handle).map(drop);
        // SAFETY: as above.
        unsafe { make_all(places, count, make, give_up) }
    }

    /// Makes an object, on that server if one is named; without `is_made`, only a representative of its class.
    fn make_object(&self, server: Option<&str>, class: &str, is_made: bool) -> Outcome<ObjectSlot> {
        let view = self.some_servers()?;
        let candidates = server.map(|name| self.servers_named(name, &view.servers)).transpose()?;
        let class = self.grid.class(class)?;
        let server = candidates.map(|candidates| offering(&candidates, &class)).transpose()?;
        let object = is_made.then(|| self.grid.object(&class, server, self.limits.whole));
        let object = object.transpose().map_err(Failed::of_method)?;
        Ok(ObjectSlot::new(class, object))
    }

    /// Ends objects: all are asked to end before the first is waited for. Returns the first error.
    fn end_objects(&self, handles: &[CObjectHandle]) -> Outcome<()> {
        let ends: Vec<Outcome<Option<PendingCall>>> = handles.iter().map(|handle| self.end_object(handle)).collect();
        let ended: Vec<Outcome<()>> = ends
            .into_iter()
            .map(|end| match end? {
                Some(pending) => pending.wait().map(drop).map_err(Failed::of_method),
                None => Ok(()),
            })
            .collect();
        ended.into_iter().collect()
    }

    fn end_object(&self, handle: &CObjectHandle) -> Outcome<Option<PendingCall>> {
        self.objects.find(handle)?;
        if map::keeps_handle(handle.number()) {
            return Ok(None);
        }
        self.objects.take(handle)?.end(self.limits.whole)
    }
}

/// Returns the first of these servers that offers the class.
fn offering(candidates: &[&ServerView], class: &str) -> Outcome<NodeId> {
    let initialize = format!("{class}.{INITIALIZE}");
    let found = candidates.iter().find(|server| server.functions.contains_key(&initialize));
    found.map(|server| server.node).ok_or_else(|| {
        let text = format!("server '{}' does not offer class '{class}'", candidates[0].name);
        Failed::new(GRPC_CLASS_NOT_FOUND_NP, format!("{text}; 'gridloom functions' lists the offered functions"))
    })
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_default_np(
    handle: *mut CObjectHandle,
    class_name: *const c_char,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { library()?.make_objects(handle, 1, std::ptr::null(), class_name) })
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_init_np(
    handle: *mut CObjectHandle,
    server_name: *const c_char,
    class_name: *const c_char,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { library()?.make_objects(handle, 1, server_name, class_name) })
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_destruct_np(handle: *mut CObjectHandle) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: memory of the program, as the header requires.
        library.end_objects(&[unsafe { memory::program_memory(handle, "the handle")?.read() }])
    })
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_array_default_np(
    handles: *mut CObjectHandle,
    count: usize,
    class_name: *const c_char,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { library()?.make_objects(handles, count, std::ptr::null(), class_name) })
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_array_init_np(
    handles: *mut CObjectHandle,
    count: usize,
    server_name: *const c_char,
    class_name: *const c_char,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { library()?.make_objects(handles, count, server_name, class_name) })
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_array_destruct_np(
    handles: *mut CObjectHandle,
    count: usize,
) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: required by the header.
        library.end_objects(&unsafe { memory::array(handles, count, "the array of handles") }?)
    })
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_get_object_handle_np(handle: *mut *mut CObjectHandle, session_id: c_int) -> c_int {
    let gone = || {
        let text = format!("session {session_id} was not started through an existing object");
        Failed::new(GRPC_INVALID_OBJECT_HANDLE_NP, text)
    };
    // SAFETY: required by the header.
    unsafe { write_handle(handle, session_id, |library| &library.objects, gone) }
}
