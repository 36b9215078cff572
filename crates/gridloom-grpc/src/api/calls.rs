//! Calls: the functions that `calls.c` calls before and after it has read the arguments of a variadic function.
//!
//! Rust does not export C definitions from a shared library. So each variadic function is a jump to the one in
//! `calls.c`, which leaves registers and stack unchanged.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::super::call::Call;
use super::super::code::{Failed, GRPC_FUNCTION_NOT_FOUND, Outcome, run};
use super::super::handles::{CFunctionHandle, CObjectHandle, CallerArguments, Slot};
use super::super::latest::{record_ended, record_started};
use super::super::library::{Library, library};
use super::super::limits::Limits;
use super::super::{map, memory};

/// `gridloom_open_call`.
#[derive(Debug)]
#[repr(C)]
pub struct OpenCall {
    reads: *const u8,
    count: usize,
    own: *mut c_void,
}

impl OpenCall {
    /// Gives the call time limits of its own.
    ///
    /// # Safety
    /// The call is open.
    pub unsafe fn limit(&mut self, limits: Limits) {
        // SAFETY: promised by the caller: `own` was set by `open`.
        unsafe { (*self.own.cast::<Call>()).own_limits = Some(limits) };
    }

    /// Closes it without a call.
    ///
    /// # Safety
    /// The call is open.
    pub unsafe fn close(&mut self) {
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(self.own.cast::<Call>()) });
    }
}

/// Returns a call through a handle of a function.
///
/// # Safety
/// Null, or memory for a handle.
pub unsafe fn call_of(handle: *mut CFunctionHandle) -> Outcome<Call> {
    let library = library()?;
    // SAFETY: promised by the caller.
    let given = unsafe { memory::program_memory(handle, "the handle")?.read() };
    let bound = library.handles.find(&given)?;
    Ok(Call { library, bound, handle: handle.expose_provenance(), number: given.number(), own_limits: None })
}

/// Returns a call of that method of an object.
///
/// # Safety
/// The handle is null, or memory for a handle; the name is null, or a C string.
pub unsafe fn method_of(handle: *mut CObjectHandle, name: *const c_char) -> Outcome<Call> {
    let library = library()?;
    // SAFETY: promised by the caller.
    let given = unsafe { memory::program_memory(handle, "the handle")?.read() };
    // SAFETY: as above.
    let name = unsafe { memory::name(name, "the method's name", GRPC_FUNCTION_NOT_FOUND) }?;
    let bound = library.objects.find(&given)?.method(&library.grid, name, library.limits)?;
    Ok(Call { library, bound, handle: handle.expose_provenance(), number: given.number(), own_limits: None })
}

/// Makes the call, waits, and writes the results.
///
/// # Safety
/// The arguments match the signature (`memory`).
pub(super) unsafe fn run_call(call: &Call, given: CallerArguments<'_>) -> Outcome<()> {
    // SAFETY: promised by the caller, here and below.
    let survey = unsafe { call.survey(given, map::has_value) }?;
    if map::is_open() {
        return unsafe { map::call(call, survey) };
    }
    let Library { staying, .. } = &*call.library;
    let origin = call.origin();
    let work = unsafe { call.send_plain(survey) }?;
    // Other threads may cancel it, although it has no id.
    let _blocking = call.library.sessions.blocking(work.canceller());
    let outcome = unsafe { work.collect(&call.library.places(), staying) };
    record_ended(origin, call.library.grid.now(), &outcome);
    outcome
}

/// Starts the call, and returns the session's id.
///
/// # Safety
/// As for [`run_call`], until the session is waited for.
pub(super) unsafe fn begin_call(call: &Call, given: CallerArguments<'_>) -> Outcome<c_int> {
    let origin = call.origin();
    // SAFETY: promised by the caller, here and below.
    let survey = unsafe { call.survey(given, map::has_value) }?;
    if map::is_open() {
        return unsafe { map::begin(call, survey) };
    }
    let work = unsafe { call.send_plain(survey) }?;
    let id = call.library.sessions.begin(work, origin).id;
    record_started(id);
    Ok(id)
}

/// Opens a call for `calls.c`, and describes how its arguments are read.
///
/// # Safety
/// `call` points to memory for it.
unsafe fn open(call: *mut OpenCall, found: Call) {
    let own = Box::new(found);
    let reads = &own.bound.plan.reads;
    let (reads, count) = (reads.as_ptr(), reads.len());
    // SAFETY: promised by the caller. The memory of `reads` exists as long as `own`.
    unsafe { call.write(OpenCall { reads, count, own: Box::into_raw(own).cast() }) };
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_grpc_enter(pointer: *const c_void) {
    map::leave_if_gone(pointer.addr());
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_open(handle: *mut CFunctionHandle, call: *mut OpenCall) -> c_int {
    run(|| {
        // SAFETY: memory of the program, as the header requires; `calls.c` provides memory for the call.
        unsafe { open(call, call_of(handle)?) };
        Ok(())
    })
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_open_named(function: *const c_char, call: *mut OpenCall) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: a C string, as the header requires.
        let function = unsafe { memory::name(function, "the function's name", GRPC_FUNCTION_NOT_FOUND) }?;
        // Programs written for NetSolve append parentheses to the name.
        let bound = Arc::new(library.bind(None, function.strip_suffix("()").unwrap_or(function))?);
        // SAFETY: `calls.c` provides memory for it.
        unsafe { open(call, Call { library, bound, handle: 0, number: 0, own_limits: None }) };
        Ok(())
    })
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_open_module(module: *const c_char, call: *mut OpenCall) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: a C string, as the header requires.
        let module = unsafe { memory::name(module, "the module's name", GRPC_FUNCTION_NOT_FOUND) }?;
        let bound = Arc::new(library.bind(None, &format!("{module}/Initialize"))?);
        // SAFETY: `calls.c` provides memory for it.
        unsafe { open(call, Call { library, bound, handle: 0, number: 0, own_limits: None }) };
        Ok(())
    })
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_initialize_module(call: *mut OpenCall, slots: *const Slot) -> c_int {
    // SAFETY: as for `gridloom_grpc_run`.
    run(|| unsafe {
        let (call, given) = take_call(call, slots);
        if map::is_open() {
            return Err(Failed::other("OmniRpcModuleInit was called inside grpc_map; call it before the block"));
        }
        call.initialize_module(call.survey(given, map::has_value)?)
    })
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_open_method(
    handle: *mut CObjectHandle,
    method: *const c_char,
    call: *mut OpenCall,
) -> c_int {
    run(|| {
        // SAFETY: as the header requires; `calls.c` provides memory for it.
        unsafe { open(call, method_of(handle, method)?) };
        Ok(())
    })
}

/// Takes back the call that [`gridloom_grpc_open`] opened, with the slots that were read.
///
/// # Safety
/// The call is open, and it has as many slots as it requires.
unsafe fn take_call<'a>(call: *mut OpenCall, slots: *const Slot) -> (Box<Call>, CallerArguments<'a>) {
    // SAFETY: promised by the caller.
    unsafe {
        let OpenCall { count, own, .. } = call.read();
        (Box::from_raw(own.cast()), CallerArguments::Slots(std::slice::from_raw_parts(slots, count)))
    }
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_run(call: *mut OpenCall, slots: *const Slot) -> c_int {
    // SAFETY: `calls.c` opened it and read its slots; the memory that they point to is as the header requires.
    run(|| unsafe {
        let (call, given) = take_call(call, slots);
        run_call(&call, given)
    })
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_begin(
    call: *mut OpenCall,
    slots: *const Slot,
    session_id: *mut c_int,
) -> c_int {
    // SAFETY: as for `gridloom_grpc_run`.
    run(|| unsafe {
        let (call, given) = take_call(call, slots);
        let place = memory::program_memory(session_id, "the pointer for the session's id")?;
        place.write(begin_call(&call, given)?);
        Ok(())
    })
}

/// The instruction that jumps to a function of C.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! jump {
    () => {
        "jmp {}"
    };
}
/// The instruction that jumps to a function of C.
#[cfg(target_arch = "aarch64")]
#[doc(hidden)]
#[macro_export]
macro_rules! jump {
    () => {
        "b {}"
    };
}

/// Defines functions that are variadic in C: each is a jump to the one in a file `calls.c`.
#[doc(hidden)]
#[macro_export]
macro_rules! variadic {
    ($($name:ident => $target:ident, $header:literal;)*) => {
        unsafe extern "C-unwind" {
            $(fn $target();)*
        }

        $(
            #[doc = concat!("See `", $header, "`.")]
            #[allow(non_snake_case, reason = "names of the headers")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub extern "C-unwind" fn $name() {
                // SAFETY: a jump to a function with the same calling convention.
                core::arch::naked_asm!($crate::jump!(), sym $target)
            }
        )*
    };
}

variadic! {
    grpc_map_next_np => gridloom_map_next, "grpc_map.h";
    grpc_call => gridloom_variadic_grpc_call, "grpc.h";
    grpc_call_async => gridloom_variadic_grpc_call_async, "grpc.h";
    mynetsl => gridloom_variadic_mynetsl, "grpc_remote.h";
    mynetslnb => gridloom_variadic_mynetslnb, "grpc_remote.h";
    netsl => gridloom_variadic_netsl, "grpc_remote.h";
    netslnb => gridloom_variadic_netslnb, "grpc_remote.h";
    grpc_invoke_np => gridloom_variadic_grpc_invoke_np, "grpc_objects.h";
    grpc_invoke_async_np => gridloom_variadic_grpc_invoke_async_np, "grpc_objects.h";
}
