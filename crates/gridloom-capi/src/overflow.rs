//! If a simulated process ends the program by a signal, prints the name of that process first. The process may have
//! overflowed its stack, followed an invalid pointer, divided by zero, or called `abort`.
//!
//! Below a coroutine's stack there is a guard page. The signal handler prints the process and the time. Then it lets
//! the fault occur again with the system's default action, so that debuggers and core files see it at its origin. A
//! handler that the program has installed is not replaced.
//!
//! **Limit:** a stack frame that is larger than the guard page and does not touch it may reach another stack undetected
//! (`-fstack-clash-protection` makes it touch the page).

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gridloom::process::STACK_BYTES;
use gridloom_base::Time;

use crate::current;

/// Start of the running process's stack; 0 if no process runs.
static TOP: AtomicUsize = AtomicUsize::new(0);
/// Virtual time of the running process.
static NOW_NS: AtomicU64 = AtomicU64::new(0);
/// Descriptions of the signals.
const SIGNALS: [(c_int, &CStr); 5] = [
    (libc::SIGSEGV, c"segmentation fault"),
    (libc::SIGBUS, c"bus error"),
    (libc::SIGFPE, c"arithmetic error"),
    (libc::SIGILL, c"illegal instruction"),
    (libc::SIGABRT, c"it called abort, or an assertion failed"),
];
/// A fault up to this far below a stack is attributed to the stack.
const REACH_BYTES: usize = 64 << 20;
/// Size of the handler's own stack: it cannot run on the stack that is full.
const HANDLER_STACK_BYTES: usize = 64 << 10;

/// Sets the start of the running process's stack.
pub(crate) fn set_stack_top(top: usize) {
    TOP.store(top, Ordering::Relaxed);
}

/// Sets the virtual time of the running process.
pub(crate) fn set_time(now: Time) {
    NOW_NS.store(now.0, Ordering::Relaxed);
}

/// Starts reporting overflows on this thread.
pub(crate) fn install_handler() {
    // The handler's stack is never freed.
    let stack = Box::leak(vec![0u8; HANDLER_STACK_BYTES].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: HANDLER_STACK_BYTES };
    // SAFETY: the memory of the handler's stack is never freed. If the call fails, signals are handled as before.
    if unsafe { libc::sigaltstack(&raw const stack, null_mut()) } != 0 {
        return;
    }
    for (signal, _) in SIGNALS {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all fields of the action are set, or zero (an empty mask, no flags); the handler calls only
        // async-signal-safe functions. If a call fails, everything is as before.
        unsafe {
            let mut before = MaybeUninit::<libc::sigaction>::zeroed();
            let is_known = libc::sigaction(signal, null_mut(), before.as_mut_ptr()) == 0;
            if !is_known || before.assume_init_ref().sa_sigaction != libc::SIG_DFL {
                continue;
            }
            let wanted = action.assume_init_mut();
            wanted.sa_sigaction = on_fault as *const () as usize;
            wanted.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND;
            libc::sigaction(signal, wanted, null_mut());
        }
    }
}

/// Prints the name of the process. The default action is in force again by then: a fault occurs again when the handler
/// returns, and a signal that was sent is raised again.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    print_fault(signal, info);
    // SAFETY: the system's description of the signal; `raise` may be called in a handler, and takes effect at its end.
    unsafe {
        if (*info).si_code <= 0 {
            libc::raise(signal);
        }
    }
}

fn print_fault(signal: c_int, info: *mut libc::siginfo_t) {
    // No simulated process was running.
    let Some((function, host)) = current::names() else { return };
    // SAFETY: the system's description of the fault.
    let address = unsafe { (*info).si_addr() }.addr();
    let end = TOP.load(Ordering::Relaxed).saturating_sub(STACK_BYTES);
    write_stderr(c"gridloom: process '");
    write_stderr(function);
    write_stderr(c"@");
    write_stderr(host);
    write_stderr(c"' at ");
    write_seconds(NOW_NS.load(Ordering::Relaxed));
    // The start of the stack is known only to within a few frames.
    if signal == libc::SIGSEGV && (end.saturating_sub(REACH_BYTES)..=end + 16_384).contains(&address) {
        return write_stderr(
            c" s overflowed its stack of 1 MiB; allocate large arrays with malloc, or recurse less deeply\n",
        );
    }
    write_stderr(c" s: ");
    write_stderr(SIGNALS.iter().find(|(known, _)| *known == signal).map_or(c"a signal", |(_, text)| text));
    write_stderr(c"\n");
}

/// Writes seconds with six digits after the point, without allocating memory.
fn write_seconds(ns: u64) {
    let mut text = [0u8; 32];
    let (mut rest, mut at) = (ns / 1000, text.len() - 1);
    let mut digits = 0;
    while digits <= DECIMALS || rest > 0 {
        if digits == DECIMALS {
            at -= 1;
            text[at] = b'.';
        }
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        digits += 1;
    }
    write_stderr(CStr::from_bytes_until_nul(&text[at..]).unwrap_or(c"?"));
}

/// Number of decimals of a second, for microseconds.
const DECIMALS: u32 = 6;

/// Writes to standard error; a signal handler may call it.
fn write_stderr(text: &CStr) {
    let bytes = text.to_bytes();
    // SAFETY: the bytes of a text. If writing fails, there is no place to report it.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}

// The text above names this size.
const _: () = assert!(STACK_BYTES == 1 << 20);
