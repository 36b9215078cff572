//! The system calls of landlock, as in `linux/landlock.h`.
//!
//! A *ruleset* names rights, and the files to which they are granted. A process that enters it, and everything that it
//! starts, is refused these rights to all other files for ever.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::null;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const MAKE_FIFO: u64 = 1 << 10;
const MAKE_BLOCK: u64 = 1 << 11;
const MAKE_SYM: u64 = 1 << 12;
/// Moving a file to another folder; since ABI 2.
const REFER: u64 = 1 << 13;
/// Since ABI 3.
const TRUNCATE: u64 = 1 << 14;
/// `ioctl` on devices; since ABI 5.
const IOCTL_DEV: u64 = 1 << 15;
/// Connections to unix sockets with a path that processes outside of the ruleset have created; since ABI 9.
const RESOLVE_UNIX: u64 = 1 << 16;

const READ: u64 = EXECUTE | READ_FILE | READ_DIR;
/// Devices cannot be created.
const WRITE: u64 = WRITE_FILE
    | REMOVE_DIR
    | REMOVE_FILE
    | MAKE_DIR
    | MAKE_REG
    | MAKE_SOCK
    | MAKE_FIFO
    | MAKE_SYM
    | REFER
    | TRUNCATE
    | RESOLVE_UNIX;
const ALL: u64 = READ | WRITE | MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV;
/// The rights that a file can have which is not a folder.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX;

/// Connections to abstract unix sockets of other processes; since ABI 6.
const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1 << 0;
/// Signals to other processes; since ABI 6.
const SCOPE_SIGNAL: u64 = 1 << 1;

/// The first ABI in which signals are restricted.
pub(super) const ABI_WITH_SIGNALS: u32 = 6;
/// The first ABI in which connections to unix sockets with a path are restricted.
pub(super) const ABI_WITH_SOCKETS: u32 = 9;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneathAttributes {
    allowed_access: u64,
    parent_fd: i32,
}

/// Permitted accesses to a file, or to all files in a folder.
#[derive(Clone, Copy, Debug)]
pub(super) enum Access {
    /// Read and execute.
    Read,
    /// Read, execute and change, and connect to sockets.
    Write,
    /// Read, write and control devices.
    Device,
    /// Connect to sockets.
    Connect,
    /// Create sockets and connect to them.
    Sockets,
}

impl Access {
    fn rights(self) -> u64 {
        match self {
            Access::Read => READ,
            Access::Write => READ | WRITE,
            Access::Device => READ_FILE | READ_DIR | WRITE_FILE | IOCTL_DEV,
            Access::Connect => RESOLVE_UNIX,
            Access::Sockets => MAKE_SOCK | RESOLVE_UNIX,
        }
    }
}

/// Returns the version of landlock in this kernel.
///
/// # Errors
/// `ENOSYS` if the kernel was built without it, `EOPNOTSUPP` if it was not enabled when the kernel started.
pub(super) fn abi() -> io::Result<u32> {
    // SAFETY: with this flag, the call reads no memory.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, null::<RulesetAttributes>(), 0_usize, CREATE_RULESET_VERSION)
    };
    u32::try_from(version).map_err(|_| io::Error::last_os_error())
}

/// A ruleset to which files can be added.
pub(super) struct Ruleset {
    descriptor: OwnedFd,
    handled: u64,
}

impl Ruleset {
    /// Creates a ruleset that grants nothing.
    ///
    /// # Errors
    /// If the system call fails.
    pub(super) fn new(abi: u32) -> io::Result<Ruleset> {
        let handled = handled(abi);
        let scoped = if abi >= ABI_WITH_SIGNALS { SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL } else { 0 };
        let attributes = RulesetAttributes { handled_access_fs: handled, handled_access_net: 0, scoped };
        // SAFETY: the structure has the size that is passed. Older kernels accept a longer structure than theirs if the
        // rest is zero.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const attributes,
                size_of::<RulesetAttributes>(),
                0_u32,
            )
        };
        match i32::try_from(descriptor) {
            // SAFETY: the kernel has just opened it for the caller; it is closed on exec.
            Ok(descriptor @ 0..) => Ok(Ruleset { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) }, handled }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Grants access to a file, or to a folder and everything in it. Links are followed. With a short path, this allocates
    /// nothing, so that it can be called between fork and exec.
    ///
    /// # Errors
    /// If it cannot be opened, [`io::ErrorKind::NotFound`] if it does not exist.
    pub(super) fn grant(&self, path: &Path, access: Access) -> io::Result<()> {
        let file = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let is_folder = FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::Directory;
        let rights = access.rights() & self.handled & if is_folder { u64::MAX } else { OF_FILES };
        if rights == 0 {
            return Ok(());
        }
        let attributes = PathBeneathAttributes { allowed_access: rights, parent_fd: file.as_raw_fd() };
        // SAFETY: the structure is that of this type of rule; both descriptors are open.
        let added = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                self.descriptor.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const attributes,
                0_u32,
            )
        };
        if added == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Applies the ruleset to this thread and to all processes that it starts. The thread must have given up new
    /// privileges. Allocates nothing, so that it can be called between fork and exec.
    ///
    /// # Errors
    /// If the system call fails.
    pub(super) fn enter(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open; the call reads no memory.
        let entered = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.descriptor.as_raw_fd(), 0_u32) };
        if entered == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Returns the rights that a version of landlock can restrict. A kernel rejects a ruleset with others.
fn handled(abi: u32) -> u64 {
    let newer = [(2, REFER), (3, TRUNCATE), (5, IOCTL_DEV), (ABI_WITH_SOCKETS, RESOLVE_UNIX)];
    newer.iter().filter(|(since, _)| abi < *since).fold(ALL, |rights, (_, right)| rights & !right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_kernels_get_only_the_rights_that_they_know() {
        // The number of rights of each version, from the kernel's documentation.
        let counts = [1, 2, 3, 4, 5, 6, 7, 8, 9].map(|abi| handled(abi).count_ones());
        assert_eq!(counts, [13, 14, 15, 15, 16, 16, 16, 16, 17]);
        assert_eq!(handled(1), (1 << 13) - 1);
    }
}
