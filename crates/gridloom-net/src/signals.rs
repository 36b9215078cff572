//! Signals of a process at its start. A process inherits ignored and blocked signals from whatever started it: shells, job wrappers and
//! container entry points ignore some, and what they ignore would otherwise hold for a server, its workers, and all that functions start.
//!
//! SIGHUP, SIGINT and SIGQUIT stay ignored, which is how `nohup` and shells detach a process from its terminal. Those that stop a process at a
//! terminal stay as they are, too.

use std::mem::MaybeUninit;

/// Signals whose default action holds in every process of Gridloom. With SIGCHLD ignored, no end of a child can be waited for; with SIGTERM
/// ignored, no child can be ended by it.
const DEFAULT: [libc::c_int; 6] =
    [libc::SIGCHLD, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGABRT];

/// Sets the default action of these signals, and blocks no signal. A program calls this first.
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
