//! A simulated process that runs over its stack is told so before the program ends.
//!
//! Below a coroutine's stack lies a page that may not be touched. The handler says whose stack it was, and lets the fault
//! happen again with the system's own handling, so that debuggers and core files see it where it is. It does not replace
//! a handler that the program has.
//!
//! **Limit:** a frame that is larger than the page and does not touch it may land in another stack, unnoticed
//! (`-fstack-clash-protection` touches it).

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use gridloom::process::STACK_BYTES;

use crate::current;

/// Where the stack of the process that runs begins; 0 if none does.
static TOP: AtomicUsize = AtomicUsize::new(0);
/// So far below a stack a fault is still the stack's.
const REACH_BYTES: usize = 64 << 20;
/// For the handler, whose own stack cannot be the one that is full.
const HANDLER_STACK_BYTES: usize = 64 << 10;

/// The process whose stack begins there runs now.
pub(crate) fn runs_at(top: usize) {
    TOP.store(top, Ordering::Relaxed);
}

/// Tells of overflows from now on, on this thread.
pub(crate) fn watch() {
    // It stays as long as the program.
    let stack = Box::leak(vec![0u8; HANDLER_STACK_BYTES].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: HANDLER_STACK_BYTES };
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a handler's stack that is never freed; an action whose fields are all set or zero, which is none and
    // an empty mask; a handler that calls only what a handler may. Failures leave everything as it was.
    unsafe {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        let is_known = libc::sigaction(libc::SIGSEGV, null_mut(), before.as_mut_ptr()) == 0;
        if !is_known || before.assume_init_ref().sa_sigaction != libc::SIG_DFL {
            return;
        }
        if libc::sigaltstack(&raw const stack, null_mut()) != 0 {
            return;
        }
        let wanted = action.assume_init_mut();
        wanted.sa_sigaction = on_fault as *const () as usize;
        wanted.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
        libc::sigaction(libc::SIGSEGV, wanted, null_mut());
    }
}

/// Says so, if it was the stack. The system's own handling is back by then, and the fault comes again.
extern "C" fn on_fault(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the system's description of the fault.
    let address = unsafe { (*info).si_addr() }.addr();
    let end = TOP.load(Ordering::Relaxed).saturating_sub(STACK_BYTES);
    // The top is known to a few frames only.
    if address < end.saturating_sub(REACH_BYTES) || address > end + 16_384 {
        return;
    }
    say(c"gridloom: process '");
    say(current::function().unwrap_or(c"?"));
    say(c"' ran over its stack of 1 MiB; allocate large arrays (malloc), and do not recurse so deep\n");
}

/// Writes to standard error, as a handler may.
fn say(text: &CStr) {
    let bytes = text.to_bytes();
    // SAFETY: the bytes of a text. What cannot be written cannot be told.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}

// The text above says it.
const _: () = assert!(STACK_BYTES == 1 << 20);
