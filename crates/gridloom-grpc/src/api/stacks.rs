//! Argument stacks: calls whose arguments are known only at run time. The functions have two sets of names with the same meaning.

use std::ffi::{c_char, c_int, c_void};

use super::super::call::Call;
use super::super::code::{Failed, Outcome, run, run_for};
use super::super::handles::{CFunctionHandle, CObjectHandle, CallerArguments};
use super::super::waits::VOID;
use super::calls::{begin_call, call_of, method_of, run_call};

/// `grpc_arg_stack_t`.
#[derive(Debug)]
pub struct ArgStack {
    arguments: Vec<*mut c_void>,
    most: usize,
}

/// The value with which functions in Ninf-G's style report an error.
const FAILED: c_int = -1;

unsafe fn stack<'a>(stack: *mut ArgStack) -> Outcome<&'a mut ArgStack> {
    // SAFETY: null, or a stack that was made here and is used by one thread at a time, as the header requires.
    unsafe { stack.as_mut() }.ok_or_else(|| Failed::null("the argument stack"))
}

unsafe fn stack_arguments<'a>(arguments: *mut ArgStack) -> Outcome<CallerArguments<'a>> {
    // SAFETY: required by the header.
    Ok(CallerArguments::Pointers(&unsafe { stack(arguments) }?.arguments))
}

/// Starts a call with the arguments of a stack, and returns the session's id.
///
/// # Safety
/// As the header requires.
pub unsafe fn begin_stack(call: &Call, arguments: *mut ArgStack) -> Outcome<c_int> {
    // SAFETY: promised by the caller.
    unsafe { begin_call(call, stack_arguments(arguments)?) }
}

/// Makes a call with the arguments of a stack.
///
/// # Safety
/// As the header requires.
pub unsafe fn call_stack(call: &Call, arguments: *mut ArgStack) -> Outcome<()> {
    // SAFETY: promised by the caller.
    unsafe { run_call(call, stack_arguments(arguments)?) }
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_arg_stack_new(max_arguments: c_int) -> *mut ArgStack {
    let made = || {
        let most = usize::try_from(max_arguments).ok().filter(|most| *most > 0);
        let most = most.ok_or_else(|| {
            Failed::other(format!("an argument stack for {max_arguments} arguments; give a number above 0"))
        })?;
        // Memory is allocated as arguments are pushed.
        Ok(Box::into_raw(Box::new(ArgStack { arguments: Vec::new(), most })))
    };
    run_for(made, std::ptr::null_mut())
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_arg_stack_push_arg(arguments: *mut ArgStack, argument: *mut c_void) -> c_int {
    let push = || {
        // SAFETY: required by the header.
        let stack = unsafe { stack(arguments) }?;
        if stack.arguments.len() >= stack.most {
            return Err(Failed::other(format!("the argument stack is full: it was made for {}", stack.most)));
        }
        stack.arguments.push(argument);
        Ok(0)
    };
    run_for(push, FAILED)
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_arg_stack_pop_arg(arguments: *mut ArgStack) -> *mut c_void {
    let none = std::ptr::null_mut();
    // SAFETY: required by the header.
    run_for(|| Ok(unsafe { stack(arguments) }?.arguments.pop().unwrap_or(none)), none)
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_arg_stack_destruct(arguments: *mut ArgStack) -> c_int {
    let destruct = || {
        // SAFETY: a stack that was made here and is no longer used, as the header requires.
        unsafe {
            stack(arguments)?;
            drop(Box::from_raw(arguments));
        }
        Ok(0)
    };
    run_for(destruct, FAILED)
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_call_arg_stack(handle: *mut CFunctionHandle, arguments: *mut ArgStack) -> c_int {
    // SAFETY: required by the header.
    run_for(|| unsafe { call_stack(&call_of(handle)?, arguments) }.map(|()| 0), FAILED)
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_call_arg_stack_async(
    handle: *mut CFunctionHandle,
    arguments: *mut ArgStack,
) -> c_int {
    // SAFETY: required by the header.
    run_for(|| unsafe { begin_stack(&call_of(handle)?, arguments) }, FAILED)
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_invoke_arg_stack_np(
    handle: *mut CObjectHandle,
    method: *const c_char,
    arguments: *mut ArgStack,
) -> c_int {
    // SAFETY: required by the header.
    run_for(|| unsafe { call_stack(&method_of(handle, method)?, arguments) }.map(|()| 0), FAILED)
}

/// See `grpc_objects.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_invoke_arg_stack_async_np(
    handle: *mut CObjectHandle,
    method: *const c_char,
    arguments: *mut ArgStack,
) -> c_int {
    // SAFETY: required by the header.
    run_for(|| unsafe { begin_stack(&method_of(handle, method)?, arguments) }, FAILED)
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "NetSolve's name")]
pub extern "C-unwind" fn newArgStack(max_arguments: c_int) -> *mut ArgStack {
    grpc_arg_stack_new(max_arguments)
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "NetSolve's name")]
pub unsafe extern "C-unwind" fn pushArg(arguments: *mut ArgStack, argument: *mut c_void) -> c_int {
    // SAFETY: required by the header.
    unsafe { grpc_arg_stack_push_arg(arguments, argument) }
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "NetSolve's name")]
pub unsafe extern "C-unwind" fn popArg(arguments: *mut ArgStack) -> *mut c_void {
    // SAFETY: required by the header.
    unsafe { grpc_arg_stack_pop_arg(arguments) }
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "NetSolve's name")]
pub unsafe extern "C-unwind" fn destructArgStack(arguments: *mut ArgStack) -> c_int {
    // SAFETY: required by the header.
    unsafe { grpc_arg_stack_destruct(arguments) }
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_call_argstack(handle: *mut CFunctionHandle, arguments: *mut ArgStack) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { call_stack(&call_of(handle)?, arguments) })
}

/// See `grpc_extensions.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_call_argstack_async(
    handle: *mut CFunctionHandle,
    arguments: *mut ArgStack,
) -> c_int {
    // SAFETY: required by the header.
    run_for(|| unsafe { begin_stack(&call_of(handle)?, arguments) }, VOID)
}
