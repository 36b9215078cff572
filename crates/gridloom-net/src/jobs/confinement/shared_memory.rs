//! Shared memory of a confined worker: an own `/dev/shm`, and own System V segments, semaphores and message queues. Only a
//! server that root runs can do this, because a process needs a privilege to enter namespaces.

use std::ffi::CStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null;

/// Where `shm_open` and Python's `multiprocessing` create files.
const FOLDER: &CStr = c"/dev/shm";

/// Gives this process shared memory of its own, which the processes that it starts share with it. Allocates nothing, so
/// that it can be called between fork and exec.
///
/// # Errors
/// If the process lacks the privilege, or there is no such folder.
pub(super) fn separate() -> io::Result<()> {
    let checked = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the call reads no memory. The process has one thread, since it was forked.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC) })?;
    let no_data = null::<libc::c_void>();
    // Later mounts of the system appear in the worker, and the one below does not appear in the system.
    // SAFETY: the strings are constants; the other pointers may be null for this operation.
    checked(unsafe { libc::mount(c"none".as_ptr(), c"/".as_ptr(), null(), libc::MS_REC | libc::MS_SLAVE, no_data) })?;
    let (system, flags) = (c"tmpfs".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV);
    // SAFETY: all strings are constants.
    checked(unsafe { libc::mount(c"gridloom".as_ptr(), FOLDER.as_ptr(), system, flags, c"mode=1777".as_ptr().cast()) })
}

/// Reports whether this process may call [`separate`], by trying it in a process that executes nothing.
pub(super) fn can_separate() -> bool {
    let mut command = Command::new("/");
    let attempt = || separate().and(Err(io::Error::from_raw_os_error(libc::ECANCELED)));
    // SAFETY: between fork and exec the closure makes system calls and allocates nothing.
    unsafe { command.pre_exec(attempt) };
    command.spawn().is_err_and(|error| error.raw_os_error() == Some(libc::ECANCELED))
}
