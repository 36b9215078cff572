//! Handles of objects: the program's memory has a number, the table here the object that it stands for.
//!
//! **Invariants.** Numbers are those of function handles, so that a block knows which of both are of before it. In the first
//! run of a block no object is made and none ends: a handle then stands for its class only.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gridloom::{Object, Pending};
use gridloom_core::base::NodeId;
use gridloom_core::idl::method::INITIALIZE;
use gridloom_core::perf::ServerView;

use super::calls::Opened;
use super::code::{Failed, GRPC_CLASS_NOT_FOUND_NP, GRPC_INVALID_OBJECT_HANDLE_NP, Outcome, run};
use super::handles::{Bound, make_all, next_number, server_or_any};
use super::library::{Library, library};
use super::map;
use super::memory;

/// In memory that is a handle of an object. Zeros and filled memory are none.
const MARK: u64 = 0x4772_6964_4f62_6a65;

/// `grpc_object_handle_t_np`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CObjectHandle {
    mark: u64,
    number: u64,
}

/// What a handle stands for.
pub(super) struct Held {
    class: String,
    /// `None` in the first run of a block.
    object: Option<Object>,
    /// Its methods that were called.
    methods: Mutex<BTreeMap<String, Arc<Bound>>>,
}

/// All objects of a session, by number.
#[derive(Default)]
pub(super) struct Objects(RwLock<HashMap<u64, Arc<Held>>>);

impl Objects {
    fn add(&self, held: Held) -> CObjectHandle {
        let number = next_number();
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(held));
        CObjectHandle { mark: MARK, number }
    }

    fn find(&self, handle: &CObjectHandle) -> Outcome<Arc<Held>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(&handle.number).filter(|_| handle.mark == MARK).cloned();
        found.ok_or_else(|| handle.invalid())
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(&number)
    }

    fn take(&self, handle: &CObjectHandle) -> Outcome<Arc<Held>> {
        self.find(handle)?;
        let taken = self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.number);
        taken.ok_or_else(|| handle.invalid())
    }
}

impl CObjectHandle {
    fn invalid(&self) -> Failed {
        let why = match self.mark == MARK {
            true => "it has ended, or is of an earlier session; make it anew",
            false => "nothing made it; call grpc_object_handle_default_np or _init_np first",
        };
        Failed::new(GRPC_INVALID_OBJECT_HANDLE_NP, format!("this is no handle of an object: {why}"))
    }
}

impl Held {
    /// What a call of that method needs.
    fn method(&self, library: &Library, name: &str) -> Outcome<Arc<Bound>> {
        let mut methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bound) = methods.get(name) {
            return Ok(bound.clone());
        }
        let bound = match &self.object {
            Some(object) => library.bound_to(object.method(name)?, None)?,
            None => library.bound_to(library.grid.function(&format!("{}.{name}", self.class))?, None)?,
        };
        let bound = Arc::new(bound);
        methods.insert(name.to_string(), bound.clone());
        Ok(bound)
    }
}

impl Library {
    /// Makes an object, on that server if one is named. In the first run of a block none is made.
    fn make_object(&self, server: Option<&str>, class: &str) -> Outcome<Held> {
        let view = self.some_servers()?;
        let candidates = server.map(|name| self.servers_named(name, &view.servers)).transpose()?;
        let class = self.grid.class(class)?;
        let server = candidates.map(|candidates| offering(&candidates, &class)).transpose()?;
        let object = match map::discovering(|_, _| ()) {
            Some(()) => None,
            None => Some(self.grid.object(&class, server, self.limit)?),
        };
        Ok(Held { class, object, methods: Mutex::default() })
    }

    /// As many handles as there are places, or none.
    ///
    /// # Safety
    /// The names are texts, or null where one may be left out; the places are for handles.
    unsafe fn make_objects(
        &self,
        places: *mut CObjectHandle,
        count: usize,
        server: *const c_char,
        class: *const c_char,
    ) -> Outcome<()> {
        // SAFETY: texts, promised by the caller.
        let class = unsafe { memory::text(class, "the class's name") }?;
        // SAFETY: as above.
        let server = unsafe { server_or_any(server) }?;
        let make = || Ok(self.objects.add(self.make_object(server, class)?));
        // Its end is not waited for: it is the error that is told.
        let give_up = |handle: CObjectHandle| self.end_object(&handle).map(drop);
        // SAFETY: as above.
        unsafe { make_all(places, count, make, give_up) }
    }

    /// Ends objects, all of them before the first is waited for; the first error counts.
    fn end_objects(&self, handles: &[CObjectHandle]) -> Outcome<()> {
        let ends: Vec<Outcome<Option<Pending>>> = handles.iter().map(|handle| self.end_object(handle)).collect();
        let ended: Vec<Outcome<()>> = ends
            .into_iter()
            .map(|end| match end? {
                Some(pending) => Ok(pending.wait().map(drop)?),
                None => Ok(()),
            })
            .collect();
        ended.into_iter().collect()
    }

    fn end_object(&self, handle: &CObjectHandle) -> Outcome<Option<Pending>> {
        self.objects.find(handle)?;
        if map::keeps_handle(handle.number) {
            return Ok(None);
        }
        let held = self.objects.take(handle)?;
        Ok(held.object.as_ref().map(|object| object.end(self.limit)).transpose()?)
    }
}

/// The first of these servers that offers the class.
fn offering(candidates: &[&ServerView], class: &str) -> Outcome<NodeId> {
    let initialize = format!("{class}.{INITIALIZE}");
    let found = candidates.iter().find(|server| server.functions.contains_key(&initialize));
    found.map(|server| server.node).ok_or_else(|| {
        let text = format!("server '{}' does not offer class '{class}'", candidates[0].name);
        Failed::new(GRPC_CLASS_NOT_FOUND_NP, format!("{text}; 'gridloom functions' lists what is offered"))
    })
}

impl Opened {
    /// A call of that method.
    ///
    /// # Safety
    /// Null, or memory for a handle; null, or a text.
    pub(super) unsafe fn method(handle: *mut CObjectHandle, name: *const c_char) -> Outcome<Opened> {
        let library = library()?;
        // SAFETY: promised by the caller.
        let given = unsafe { memory::place(handle, "the handle")?.read() };
        // SAFETY: as above.
        let name = unsafe { memory::text(name, "the method's name") }?;
        let bound = library.objects.find(&given)?.method(&library, name)?;
        Ok(Opened::of(library, bound, handle.expose_provenance(), given.number))
    }
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_default_np(
    handle: *mut CObjectHandle,
    class_name: *const c_char,
) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe { library()?.make_objects(handle, 1, std::ptr::null(), class_name) })
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_init_np(
    handle: *mut CObjectHandle,
    server_name: *const c_char,
    class_name: *const c_char,
) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe { library()?.make_objects(handle, 1, server_name, class_name) })
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_destruct_np(handle: *mut CObjectHandle) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: memory of the program, as the header asks.
        library.end_objects(&[unsafe { memory::place(handle, "the handle")?.read() }])
    })
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_array_default_np(
    handles: *mut CObjectHandle,
    count: usize,
    class_name: *const c_char,
) -> c_int {
    // SAFETY: as the header asks.
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
    // SAFETY: as the header asks.
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
        // SAFETY: as the header asks.
        library.end_objects(&unsafe { memory::array(handles, count, "the array of handles") }?)
    })
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_get_object_handle_np(handle: *mut *mut CObjectHandle, session_id: c_int) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::place(handle, "the place for the handle")?;
        let origin = library.origin_of(session_id)?;
        if !library.objects.has(origin.number) {
            let text = format!("session {session_id} was not begun through an object that is there");
            return Err(Failed::new(GRPC_INVALID_OBJECT_HANDLE_NP, text));
        }
        // SAFETY: as the header asks.
        unsafe { place.write(std::ptr::with_exposed_provenance_mut(origin.handle)) };
        Ok(())
    })
}
