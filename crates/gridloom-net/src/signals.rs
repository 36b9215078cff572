//! Resets the signals of a process at its start. A process inherits ignored and blocked signals from its parent. Shells, job
//! wrappers and container entry points ignore some signals, and without a reset a server, its workers and the processes
//! that functions start would ignore them, too.
//!
//! SIGHUP, SIGINT and SIGQUIT are not reset, because `nohup` and shells ignore them to detach a process from its terminal.
//! The stop signals of a terminal are not reset either.

use std::mem::MaybeUninit;

/// Signals that have their default action in every process of Gridloom. A process that ignores SIGCHLD cannot wait for a
/// child; a child that ignores SIGTERM cannot be terminated by it.
const DEFAULT: [libc::c_int; 6] =
    [libc::SIGCHLD, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGABRT];

/// Sets the default action of these signals and unblocks all signals. A program must call this first.
pub fn reset() {
    let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sets default actions only, before the process has handlers; the set is filled before it is used.
    unsafe {
        for signal in DEFAULT {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}
