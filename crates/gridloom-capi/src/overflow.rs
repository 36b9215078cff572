//! A simulated process that ends the program by a signal is named before the program ends. It may run over its stack, follow a
//! pointer to nowhere, divide by zero, or call `abort`.
//!
//! Below a coroutine's stack lies a page that may not be touched. The handler says which process it was, at which time. Then it
//! lets the fault happen again with the system's own handling, so that debuggers and core files see it where it is. It does not
//! replace a handler that the program has.
//!
//! **Limit:** a frame that is larger than the page and does not touch it may land in another stack, unnoticed
//! (`-fstack-clash-protection` touches it).

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gridloom::process::STACK_BYTES;
use gridloom_base::Time;

use crate::current;

/// Where the stack of the process that runs begins; 0 if none does.
static TOP: AtomicUsize = AtomicUsize::new(0);
/// The virtual time of the process that runs.
static NOW_NS: AtomicU64 = AtomicU64::new(0);
/// The signals, in words.
const SIGNALS: [(c_int, &CStr); 5] = [
    (libc::SIGSEGV, c"segmentation fault"),
    (libc::SIGBUS, c"bus error"),
    (libc::SIGFPE, c"arithmetic error"),
    (libc::SIGILL, c"illegal instruction"),
    (libc::SIGABRT, c"it called abort, or an assertion failed"),
];
/// So far below a stack a fault is still the stack's.
const REACH_BYTES: usize = 64 << 20;
/// For the handler: it cannot run on the stack that is full.
const HANDLER_STACK_BYTES: usize = 64 << 10;

/// The process that runs now; its stack begins at that address.
pub(crate) fn stands_at(top: usize) {
    TOP.store(top, Ordering::Relaxed);
}

/// The virtual time of the process that runs now.
pub(crate) fn time_is(now: Time) {
    NOW_NS.store(now.0, Ordering::Relaxed);
}

/// Tells of overflows from now on, on this thread.
pub(crate) fn watch() {
    // It stays as long as the program.
    let stack = Box::leak(vec![0u8; HANDLER_STACK_BYTES].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: HANDLER_STACK_BYTES };
    // SAFETY: a handler's stack that is never freed. If it is refused, signals are handled as ever.
    if unsafe { libc::sigaltstack(&raw const stack, null_mut()) } != 0 {
        return;
    }
    for (signal, _) in SIGNALS {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: an action with all fields set or zero, which is none and an empty mask; the handler calls only
        // what a handler may. Failures leave everything as it was.
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

/// Names the process. The system's own handling is back by then, and the fault comes again; a signal that somebody sent is
/// sent again.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    tell(signal, info);
    // SAFETY: the system's description of the signal; `raise` may be called in a handler, and takes effect at its end.
    unsafe {
        if (*info).si_code <= 0 {
            libc::raise(signal);
        }
    }
}

fn tell(signal: c_int, info: *mut libc::siginfo_t) {
    // Outside of processes it is no process's.
    let Some((function, host)) = current::names() else { return };
    // SAFETY: the system's description of the fault.
    let address = unsafe { (*info).si_addr() }.addr();
    let end = TOP.load(Ordering::Relaxed).saturating_sub(STACK_BYTES);
    say(c"gridloom: process '");
    say(function);
    say(c"@");
    say(host);
    say(c"' at ");
    say_seconds(NOW_NS.load(Ordering::Relaxed));
    // The top is known to a few frames only.
    if signal == libc::SIGSEGV && (end.saturating_sub(REACH_BYTES)..=end + 16_384).contains(&address) {
        return say(c" s ran over its stack of 1 MiB; allocate large arrays (malloc), and do not recurse so deep\n");
    }
    say(c" s: ");
    say(SIGNALS.iter().find(|(known, _)| *known == signal).map_or(c"a signal", |(_, text)| text));
    say(c"\n");
}

/// Writes seconds with six digits behind the point, without memory of the allocator's.
fn say_seconds(ns: u64) {
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
    say(CStr::from_bytes_until_nul(&text[at..]).unwrap_or(c"?"));
}

/// Of a second: microseconds.
const DECIMALS: u32 = 6;

/// Writes to standard error, as a handler may.
fn say(text: &CStr) {
    let bytes = text.to_bytes();
    // SAFETY: the bytes of a text. What cannot be written cannot be told.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}

// The text above says it.
const _: () = assert!(STACK_BYTES == 1 << 20);
