//! Shared memory of a confined worker: an own `/dev/shm`, and own System V segments, semaphores and message queues. Only a
//! server that root runs can do this, because a process needs a privilege to enter namespaces.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null;

/// Where `shm_open` and Python's `multiprocessing` create files.
const FOLDER: &CStr = c"/dev/shm";

/// Maximum number of files in the folder. The kernel needs memory for each, even if it is empty.
const FILES_MAX: u32 = 65_536;

/// Returns the options of the folder's file system. `size_bytes`: its limit; `None` for the default of the system.
pub(super) fn options(size_bytes: Option<u64>) -> CString {
    // No limit is 0 there.
    let size = size_bytes.map(|bytes| format!(",size={}", bytes.max(1))).unwrap_or_default();
    CString::new(format!("mode=1777,nr_inodes={FILES_MAX}{size}")).expect("numbers have no zero byte")
}

/// Gives this process shared memory of its own, which the processes that it starts share with it. Allocates nothing, so
/// that it can be called between fork and exec. `options` are those of [`options`].
///
/// # Errors
/// If the process lacks the privilege, or there is no such folder.
pub(super) fn separate(options: &CStr) -> io::Result<()> {
    let checked = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the call reads no memory. The process has one thread, since it was forked.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC) })?;
    let no_data = null::<libc::c_void>();
    // Later mounts of the system appear in the worker, and the one below does not appear in the system.
    // SAFETY: the strings are constants; the other pointers may be null for this operation.
    checked(unsafe { libc::mount(c"none".as_ptr(), c"/".as_ptr(), null(), libc::MS_REC | libc::MS_SLAVE, no_data) })?;
    let (system, flags) = (c"tmpfs".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV);
    // SAFETY: all strings end with a zero byte and live longer than the call.
    checked(unsafe { libc::mount(c"gridloom".as_ptr(), FOLDER.as_ptr(), system, flags, options.as_ptr().cast()) })
}

/// Reports whether this process may call [`separate`], by trying it in a process that executes nothing.
pub(super) fn can_separate() -> bool {
    let (mut command, options) = (Command::new("/"), options(None));
    let attempt = move || separate(&options).and(Err(io::Error::from_raw_os_error(libc::ECANCELED)));
    // SAFETY: between fork and exec the closure makes system calls and allocates nothing.
    unsafe { command.pre_exec(attempt) };
    command.spawn().is_err_and(|error| error.raw_os_error() == Some(libc::ECANCELED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_memory_of_a_worker_has_a_limit() {
        if !can_separate() {
            return;
        }
        let written = |size_bytes| {
            let (mut command, options) = (Command::new("sh"), options(size_bytes));
            command.args(["-c", "head -c 3000000 /dev/zero > /dev/shm/data; stat -c %s /dev/shm/data"]);
            // SAFETY: between fork and exec the closure makes system calls and allocates nothing.
            unsafe { command.pre_exec(move || separate(&options)) };
            let output = command.output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap()
        };
        assert_eq!((written(Some(1 << 20)), written(Some(4 << 20)), written(None)), (1 << 20, 3_000_000, 3_000_000));
        // The kernel takes 0 for no limit.
        assert_eq!(written(Some(0)), 4096);
    }
}
