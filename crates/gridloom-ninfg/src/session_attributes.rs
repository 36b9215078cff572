//! Attributes of sessions (`grpc_ninfg.h`), and calls with them.

use std::ffi::{c_char, c_int, c_void};

use gridloom::TransferLimits;

use gridloom_grpc::parts::{
    Failed, Limits, Outcome, begin_stack, call_of, call_stack, library, limit, memory, method_of, run, run_for,
    whole_seconds,
};
use gridloom_grpc::{ArgStack, CFunctionHandle, CObjectHandle, GRPC_NO_ERROR, OpenCall};

use crate::attributes::{Field, WAIT, get, no_attribute, set};

/// `grpc_session_attr_t_np`.
#[derive(Debug)]
#[repr(C)]
pub struct CSessionAttr {
    transfer: c_int,
    timeout: c_int,
    transfers: [c_int; 4],
}

/// Returns the session attribute with this number.
///
/// # Safety
/// `attr` points to initialized attributes.
unsafe fn session_field(attr: *mut CSessionAttr, name: c_int) -> Outcome<Field> {
    let attr = memory::program_memory(attr, "the attributes")?.pointer();
    // SAFETY: promised by the caller; only pointers to fields are made.
    unsafe {
        Ok(match name {
            0 => Field::Number(&raw mut (*attr).transfer),
            1 => Field::Number(&raw mut (*attr).timeout),
            2..=5 => Field::Number((&raw mut (*attr).transfers).cast::<c_int>().add(name as usize - 2)),
            _ => return Err(no_attribute(name)),
        })
    }
}

/// `grpc_session_attr_name_t_np`.
pub type CSessionAttrName = u32;

/// Writes the default attributes of calls.
///
/// # Safety
/// `attr` points to memory for attributes.
unsafe fn begin_attributes(attr: *mut CSessionAttr, limits: Limits) -> Outcome<()> {
    let TransferLimits { arguments, results } = limits.transfers;
    let transfers = [whole_seconds(arguments), whole_seconds(results), 0, 0];
    let fresh = CSessionAttr { transfer: WAIT, timeout: whole_seconds(limits.whole), transfers };
    // SAFETY: promised by the caller.
    unsafe { memory::program_memory(attr, "the pointer for the attributes")?.write_new(fresh) };
    Ok(())
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_attr_initialize_np(
    handle: *mut CFunctionHandle,
    attr: *mut CSessionAttr,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { begin_attributes(attr, call_of(handle)?.limits()) })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_attr_initialize_with_object_handle_np(
    handle: *mut CObjectHandle,
    attr: *mut CSessionAttr,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe {
        let library = library()?;
        library.object(handle)?;
        begin_attributes(attr, library.limits())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_attr_destruct_np(attr: *mut CSessionAttr) -> c_int {
    run(|| memory::program_memory(attr, "the attributes").map(drop))
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_attr_set_np(
    attr: *mut CSessionAttr,
    name: CSessionAttrName,
    value: *mut c_void,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { set(session_field(attr, name as c_int)?, value) })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_attr_get_np(
    attr: *mut CSessionAttr,
    name: CSessionAttrName,
    value: *mut *mut c_void,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { get(session_field(attr, name as c_int)?, value) })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_attr_release_np(value: *mut c_void) -> c_int {
    // SAFETY: null, or a copy that was returned to the program, as the header requires.
    unsafe { libc::free(value) };
    GRPC_NO_ERROR
}

/// Returns the time limits of a call that its attributes specify.
///
/// # Safety
/// `attr` points to initialized attributes.
unsafe fn limits_of(attr: *const CSessionAttr) -> Outcome<Limits> {
    // SAFETY: promised by the caller.
    let given = unsafe { &*memory::program_memory(attr.cast_mut(), "the attributes")?.pointer() };
    let limit =
        |seconds: c_int| limit(f64::from(seconds)).map_err(|why| Failed::other(format!("the time limit is {why}")));
    let [arguments, results, ..] = given.transfers;
    let transfers = TransferLimits { arguments: limit(arguments)?, results: limit(results)? };
    Ok(Limits { whole: limit(given.timeout)?, transfers })
}

/// See `ninfg_calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_within(call: *mut OpenCall, attr: *const CSessionAttr) -> c_int {
    // SAFETY: `calls.c` opened it; the attributes are as the header requires.
    run(|| unsafe {
        match limits_of(attr) {
            Ok(limits) => (*call).limit(limits),
            Err(failed) => {
                (*call).close();
                return Err(failed);
            }
        }
        Ok(())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_call_arg_stack_with_attr_np(
    handle: *mut CFunctionHandle,
    attr: *mut CSessionAttr,
    stack: *mut ArgStack,
) -> c_int {
    // SAFETY: required by the header.
    run_for(|| unsafe { call_stack(&call_of(handle)?.within(limits_of(attr)?), stack) }.map(|()| 0), -1)
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_call_arg_stack_async_with_attr_np(
    handle: *mut CFunctionHandle,
    attr: *mut CSessionAttr,
    stack: *mut ArgStack,
) -> c_int {
    // SAFETY: required by the header.
    run_for(|| unsafe { begin_stack(&call_of(handle)?.within(limits_of(attr)?), stack) }, -1)
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_invoke_arg_stack_with_attr_np(
    handle: *mut CObjectHandle,
    method: *const c_char,
    attr: *mut CSessionAttr,
    stack: *mut ArgStack,
) -> c_int {
    // SAFETY: required by the header.
    run_for(|| unsafe { call_stack(&method_of(handle, method)?.within(limits_of(attr)?), stack) }.map(|()| 0), -1)
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_invoke_arg_stack_async_with_attr_np(
    handle: *mut CObjectHandle,
    method: *const c_char,
    attr: *mut CSessionAttr,
    stack: *mut ArgStack,
) -> c_int {
    // SAFETY: required by the header.
    run_for(|| unsafe { begin_stack(&method_of(handle, method)?.within(limits_of(attr)?), stack) }, -1)
}

gridloom_grpc::variadic! {
    grpc_call_with_attr_np => gridloom_variadic_grpc_call_with_attr_np, "grpc_ninfg.h";
    grpc_call_async_with_attr_np => gridloom_variadic_grpc_call_async_with_attr_np, "grpc_ninfg.h";
    grpc_invoke_with_attr_np => gridloom_variadic_grpc_invoke_with_attr_np, "grpc_ninfg.h";
    grpc_invoke_async_with_attr_np => gridloom_variadic_grpc_invoke_async_with_attr_np, "grpc_ninfg.h";
}
