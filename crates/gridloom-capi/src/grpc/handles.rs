//! Handles of functions: the program's memory has a number, the table here what it stands for.
//!
//! **Invariant:** a number is given once in a process's life, so that a handle that has ended, or is of an earlier
//! session, is none.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use gridloom::{Error, Function};
use gridloom_core::idl::class_of;
use gridloom_core::perf::{GridView, ServerView, host_of};

use super::code::{Failed, GRPC_FUNCTION_NOT_FOUND, GRPC_INVALID_FUNCTION_HANDLE, GRPC_SERVER_NOT_FOUND, Outcome, run};
use super::library::{Library, library};
use super::map;
use super::memory;
use super::slots::ReadingPlan;

/// In memory that is a handle. Zeros and filled memory are none.
const MARK: u64 = 0x4772_6964_4c6f_6f6d;

/// `grpc_function_handle_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CFunctionHandle {
    mark: u64,
    number: u64,
}

/// What a handle stands for.
pub(super) struct Bound {
    /// Bound to its server, if it has one.
    pub(super) function: Function,
    pub(super) plan: ReadingPlan,
    /// Name of the one that runs all its calls, if one does.
    pub(super) server: Option<String>,
    limit: Mutex<Option<Duration>>,
}

impl Bound {
    /// The time that a call may take.
    pub(super) fn limit(&self) -> Option<Duration> {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_limit(&self, limit: Option<Duration>) {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
    }
}

/// The number of the next handle.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The number of a new handle, of a function or an object.
pub(super) fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// All handles of a session, by number.
#[derive(Default)]
pub(super) struct Handles(RwLock<HashMap<u64, Arc<Bound>>>);

impl Handles {
    fn add(&self, bound: Bound) -> CFunctionHandle {
        let number = next_number();
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(bound));
        CFunctionHandle { mark: MARK, number }
    }

    /// What that handle stands for.
    pub(super) fn find(&self, handle: &CFunctionHandle) -> Outcome<Arc<Bound>> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(&handle.number).filter(|_| handle.mark == MARK).cloned();
        found.ok_or_else(|| handle.invalid())
    }

    /// The number that the next one gets.
    pub(super) fn next() -> u64 {
        NEXT.load(Ordering::Relaxed)
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(&number)
    }

    pub(super) fn remove(&self, handle: &CFunctionHandle) -> Outcome<()> {
        self.find(handle)?;
        if map::keeps_handle(handle.number) {
            return Ok(());
        }
        let removed = self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.number);
        removed.map(drop).ok_or_else(|| handle.invalid())
    }
}

impl CFunctionHandle {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    fn invalid(&self) -> Failed {
        let why = match self.mark == MARK {
            true => "it has ended, or is of an earlier session; make it anew",
            false => "nothing made it; call grpc_function_handle_default or _init first",
        };
        Failed::new(GRPC_INVALID_FUNCTION_HANDLE, format!("this is no handle of a function: {why}"))
    }
}

impl Library {
    /// A handle of a function, on that server if one is named.
    pub(super) fn make_handle(&self, server: Option<&str>, function: &str) -> Outcome<CFunctionHandle> {
        Ok(self.handles.add(self.bind(server, function)?))
    }

    /// What such a handle stands for.
    pub(super) fn bind(&self, server: Option<&str>, function: &str) -> Outcome<Bound> {
        let view = self.some_servers()?;
        let candidates = server.map(|name| self.servers_named(name, &view.servers)).transpose()?;
        let mut function = self.grid.function(function).map_err(|error| self.not_offered(error))?;
        if let Some((class, _)) = class_of(function.name()) {
            let text = format!("{} is a method: make an object of class '{class}', and call it there", function.name());
            return Err(Failed::new(GRPC_FUNCTION_NOT_FOUND, text));
        }
        let server = match candidates {
            None => None,
            Some(candidates) => {
                let offers = |server: &&&ServerView| server.functions.contains_key(function.name());
                let found = candidates.iter().find(offers).ok_or_else(|| {
                    let text = format!("server '{}' does not offer function '{}'", candidates[0].name, function.name());
                    Failed::new(GRPC_FUNCTION_NOT_FOUND, format!("{text}; 'gridloom functions' lists what is offered"))
                });
                let found = found?;
                function = function.bound_to(found.node);
                Some(found.name.clone())
            }
        };
        self.bound_to(function, server)
    }

    /// What a handle of that function stands for.
    pub(super) fn bound_to(&self, function: Function, server: Option<String>) -> Outcome<Bound> {
        let plan = ReadingPlan::new(function.signature())?;
        Ok(Bound { function, plan, server, limit: Mutex::new(self.limit) })
    }

    /// The servers, of which there is at least one.
    pub(super) fn some_servers(&self) -> Outcome<Arc<GridView>> {
        let view = self.grid.servers();
        if view.servers.is_empty() {
            let text = "the grid has no server; start one with 'gridloom serve'";
            return Err(Failed::new(GRPC_SERVER_NOT_FOUND, text));
        }
        Ok(view)
    }

    /// A grid of the program's own has what its configuration says, which is easily forgotten.
    fn not_offered(&self, error: Error) -> Failed {
        let mut failed = Failed::from(error);
        if self.is_own_grid && failed.code == GRPC_FUNCTION_NOT_FOUND {
            failed.text.push_str(
                "; this is a grid of the program's own: GRIDLOOM_AGENT or 'agent' in the configuration names another, and \
                 'functions' of [local] says what this one offers",
            );
        }
        failed
    }

    /// The servers that are meant by a name: one by its own name, one of the configuration or an address, or those of a host.
    pub(super) fn servers_named<'a>(&self, name: &str, servers: &'a [ServerView]) -> Outcome<Vec<&'a ServerView>> {
        let address = self.server_names.get(name).map_or(name, String::as_str);
        let one = servers.iter().find(|server| server.name == name);
        let one = one.or_else(|| servers.iter().find(|server| server.address == address));
        let found: Vec<&ServerView> = match one {
            Some(server) => vec![server],
            None => servers.iter().filter(|server| host_of(&server.address) == address).collect(),
        };
        if found.is_empty() {
            let known: Vec<&str> = servers.iter().take(NAMES_MAX).map(|server| server.name.as_str()).collect();
            let text = format!("there is no server '{name}'; servers are {}", known.join(", "));
            return Err(Failed::new(GRPC_SERVER_NOT_FOUND, text));
        }
        Ok(found)
    }

    /// As many handles as there are places, or none.
    ///
    /// # Safety
    /// The names are texts, or null where one may be left out; the places are for handles.
    unsafe fn make_handles(
        &self,
        places: *mut CFunctionHandle,
        count: usize,
        server: *const c_char,
        function: *const c_char,
    ) -> Outcome<()> {
        // SAFETY: texts, promised by the caller.
        let function = unsafe { memory::text(function, "the function's name") }?;
        // SAFETY: as above.
        let server = unsafe { server_or_any(server) }?;
        let make = || self.make_handle(server, function);
        let give_up = |handle: CFunctionHandle| self.handles.remove(&handle);
        // SAFETY: as above.
        unsafe { make_all(places, count, make, give_up) }
    }
}

/// The server that a handle is asked for on; null and an empty text are none.
///
/// # Safety
/// A text, or null.
pub(super) unsafe fn server_or_any<'a>(server: *const c_char) -> Outcome<Option<&'a str>> {
    if server.is_null() {
        return Ok(None);
    }
    // SAFETY: promised by the caller.
    Ok(Some(unsafe { memory::text(server, "the server's name") }?).filter(|server| !server.is_empty()))
}

/// Puts as many handles as there are places, or gives up those that were made and puts none.
///
/// # Safety
/// The places are for handles.
pub(super) unsafe fn make_all<H>(
    places: *mut H,
    count: usize,
    mut make: impl FnMut() -> Outcome<H>,
    give_up: impl FnMut(H) -> Outcome<()>,
) -> Outcome<()> {
    if places.is_null() {
        return Err(Failed::null("the place for the handle"));
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
        // SAFETY: a place for a handle each, promised by the caller. What was there is not looked at.
        unsafe { places.add(index).write(handle) };
    }
    Ok(())
}

/// Servers that an error names.
const NAMES_MAX: usize = 8;

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_default(
    handle: *mut CFunctionHandle,
    func_name: *const c_char,
) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe { library()?.make_handles(handle, 1, std::ptr::null(), func_name) })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_init(
    handle: *mut CFunctionHandle,
    server_name: *const c_char,
    func_name: *const c_char,
) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe { library()?.make_handles(handle, 1, server_name, func_name) })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_destruct(handle: *mut CFunctionHandle) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: memory of the program, as the header asks.
        library.handles.remove(&unsafe { memory::place(handle, "the handle")?.read() })
    })
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_array_default_np(
    handles: *mut CFunctionHandle,
    count: usize,
    func_name: *const c_char,
) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe { library()?.make_handles(handles, count, std::ptr::null(), func_name) })
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_array_init_np(
    handles: *mut CFunctionHandle,
    count: usize,
    server_name: *const c_char,
    func_name: *const c_char,
) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe { library()?.make_handles(handles, count, server_name, func_name) })
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_array_destruct_np(
    handles: *mut CFunctionHandle,
    count: usize,
) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: as the header asks.
        let handles = unsafe { memory::array(handles, count, "the array of handles") }?;
        let ended: Vec<Outcome<()>> = handles.iter().map(|handle| library.handles.remove(handle)).collect();
        ended.into_iter().collect()
    })
}
