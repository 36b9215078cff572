//! Checks the user of the process at the other end of a unix socket. Root can connect to any socket.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Checks that the other end belongs to this process's user. The kernel reports the user that owned it when it
/// connected or listened.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if it does not.
pub(super) fn check_user(socket: BorrowedFd<'_>) -> io::Result<()> {
    check_is(socket, rustix::process::geteuid().as_raw())
}

fn check_is(socket: BorrowedFd<'_>, own: u32) -> io::Result<()> {
    let peer = user_of(socket)?;
    if peer == own {
        return Ok(());
    }
    let why = format!("the peer of a local connection is user {peer}, not user {own}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Does not use rustix, whose pid cannot be 0; a process of another namespace has pid 0.
fn user_of(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the descriptor is open as long as it is borrowed; the kernel writes at most `length` bytes to a
    // structure of that size, for which all bit patterns are valid.
    let done =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut credentials).cast(), &raw mut length) };
    match done {
        0 => Ok(credentials.uid),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_own_user_passes_and_another_does_not() {
        let (here, _there) = UnixStream::pair().unwrap();
        check_user(here.as_fd()).unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(check_is(here.as_fd(), own ^ 1).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_socket_that_has_no_user_is_an_error() {
        let file = crate::segment::sealed_file(4096).unwrap();
        assert!(check_user(file.as_fd()).is_err());
    }
}
