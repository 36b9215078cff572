//! The unix sockets through which nodes of one user on one host connect.
//!
//! ```text
//!  GRIDLOOM_SOCKETS or /tmp/gridloom-UID        the user's, mode 0700
//!    NETNS                                      number of the network namespace, to which ports and nodes belong
//!      near-127.0.0.1:7711                      control connections to the node that listens there
//!      node-0123456789abcdef                    shared memory for that node
//! ```
//! **Guarantees:** no other user can create a socket there, and both ends of a connection check each other's user. If
//! the folder is not exclusively the user's, there are no such sockets, and nodes of the host connect over TCP.
//!
//! A killed process leaves its sockets behind. The user's next node removes them.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use gridloom_base::NodeId;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::credentials::check_user;
use super::handshake::HANDSHAKE_NS_MAX;
use crate::pid::pid;

/// Environment variable with the folder of the sockets.
const FOLDER_VARIABLE: &str = "GRIDLOOM_SOCKETS";
/// Maximum length of a socket's path: the size of the system's address structure, without the terminating zero.
const PATH_BYTES_MAX: usize = 107;
/// Maximum length of a socket's name: `near-127.255.255.255:65535`.
const NAME_BYTES_MAX: usize = 26;
/// Minimum age at which a leftover socket is removed. A younger one may belong to a process that is just creating it.
const YOUNG: Duration = Duration::from_secs(60);

/// The folder of this user's sockets in this network namespace.
#[derive(Clone, Debug)]
pub struct HostSockets(PathBuf);

/// The file of a socket. It is removed on drop, but not when a copy in a forked process is dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    pid: u32,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.pid == pid() {
            // If another process has already removed it, nothing is left to do.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl HostSockets {
    /// Opens the folder, creating it if needed.
    ///
    /// # Errors
    /// If it cannot be created, or is not exclusively this user's: another user may have taken its name.
    pub fn open() -> io::Result<HostSockets> {
        let usual = || PathBuf::from(format!("/tmp/gridloom-{}", rustix::process::geteuid().as_raw()));
        HostSockets::open_in(&env::var_os(FOLDER_VARIABLE).map_or_else(usual, PathBuf::from))
    }

    /// Like [`HostSockets::open`], with a given folder.
    ///
    /// # Errors
    /// As [`HostSockets::open`].
    pub fn open_in(root: &Path) -> io::Result<HostSockets> {
        let namespace = fs::metadata("/proc/self/ns/net")?.ino();
        let folder = root.join(namespace.to_string());
        if folder.as_os_str().len() + 1 + NAME_BYTES_MAX > PATH_BYTES_MAX {
            let why = format!(
                "the path '{}' is too long for sockets; set {FOLDER_VARIABLE} to a shorter one",
                root.display()
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        make(root)?;
        make(&folder)?;
        let sockets = HostSockets(folder);
        sockets.sweep();
        Ok(sockets)
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Listens for control connections to `address`, on which this process listens over TCP.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn listen_control(&self, address: std::net::SocketAddr) -> io::Result<(UnixListener, SocketFile)> {
        self.bind(&near_name(address))
    }

    /// Connects to the node that listens on this address of this host.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if no node of this user listens there, [`ErrorKind::PermissionDenied`] if another user
    /// listens there, any other kind if the node accepts no connection now.
    pub fn connect_control(&self, address: std::net::SocketAddr) -> io::Result<mio::net::UnixStream> {
        let stream = mio::net::UnixStream::connect(self.0.join(near_name(address)))?;
        check_user(stream.as_fd())?;
        Ok(stream)
    }

    /// Listens for nodes of this host that pass memory to `node`.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn listen_node(&self, node: NodeId) -> io::Result<(UnixListener, SocketFile)> {
        self.bind(&node_name(node))
    }

    /// Connects to the socket on which `node` accepts memory.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] or [`ErrorKind::ConnectionRefused`] if it does not run here as this user,
    /// [`ErrorKind::PermissionDenied`] if another user listens there, any other kind if the node accepts no connection
    /// now.
    pub fn connect_node(&self, node: NodeId) -> io::Result<UnixStream> {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // If the listener's backlog is full, connecting waits too.
        set_socket_timeout(&socket, Timeout::Send, Some(Duration::from_nanos(HANDSHAKE_NS_MAX)))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(self.0.join(node_name(node)))?)?;
        set_socket_timeout(&socket, Timeout::Send, None)?;
        check_user(socket.as_fd())?;
        Ok(socket.into())
    }

    /// Binds a socket of this name. Only the caller can have the name, because it contains the caller's port or random
    /// identifier. An existing file is therefore a leftover.
    fn bind(&self, name: &str) -> io::Result<(UnixListener, SocketFile)> {
        let path = self.0.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        Ok((listener, SocketFile { path, pid: pid() }))
    }

    /// Removes sockets whose processes have ended without removing them. Sockets that cannot be checked or removed stay.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.0) else { return };
        let old: Vec<PathBuf> = entries
            .flatten()
            .filter(|entry| {
                let made = entry.metadata().and_then(|status| status.modified());
                made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > YOUNG))
            })
            .map(|entry| entry.path())
            .collect();
        if old.is_empty() {
            return;
        }
        // Read after the folder: a file that is not in this list was not bound by a live process at that time.
        let Ok(bound) = fs::read_to_string("/proc/net/unix") else { return };
        let bound: Vec<&str> = bound.lines().filter_map(|line| line.split_whitespace().nth(7)).collect();
        for path in old.iter().filter(|path| !bound.iter().any(|bound| Path::new(bound) == **path)) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Creates a folder exclusively for this user, or checks that it is one.
fn make(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // A symbolic link could lead to a folder chosen by someone else.
    let status = fs::symlink_metadata(folder)?;
    let (own, owner, mode) = (rustix::process::geteuid().as_raw(), status.uid(), status.mode() & 0o777);
    let wrong = match () {
        () if !status.is_dir() => "it is not a folder".to_string(),
        () if owner != own => format!("it belongs to user {owner}"),
        () if mode & 0o077 != 0 => {
            format!("other users can use it (mode {mode:04o}); run: chmod 700 '{}'", folder.display())
        }
        () => return Ok(()),
    };
    let why = format!("the folder '{}' is not private to user {own}: {wrong}", folder.display());
    Err(io::Error::new(ErrorKind::PermissionDenied, why))
}

fn near_name(address: std::net::SocketAddr) -> String {
    format!("near-{address}")
}

fn node_name(node: NodeId) -> String {
    format!("node-{:016x}", node.0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn root(name: &str) -> PathBuf {
        // The path of a socket is short, and that of TMPDIR may be long.
        let root = PathBuf::from(format!("/tmp/gridloom-sockets-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        root
    }

    #[test]
    fn a_folder_that_others_may_use_is_refused() {
        let root = root("modes");
        HostSockets::open_in(&root).unwrap();
        assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        let error = HostSockets::open_in(&root).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("(mode 0755); run: chmod 700"), "{error}");
        fs::remove_dir_all(&root).unwrap();
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&root, root.with_extension("link")).unwrap();
        let error = HostSockets::open_in(&root.with_extension("link")).unwrap_err();
        assert!(error.to_string().contains("it is not a folder"), "{error}");
        if std::os::unix::fs::chown(&root, Some(65534), None).is_ok() {
            let error = HostSockets::open_in(&root).unwrap_err();
            assert!(error.to_string().contains("it belongs to user 65534"), "{error}");
        }
        fs::remove_file(root.with_extension("link")).unwrap();
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_socket_goes_with_its_listener_and_what_is_left_is_replaced() {
        let root = root("bound");
        let sockets = HostSockets::open_in(&root).unwrap();
        let address = "127.0.0.1:7711".parse().unwrap();
        let kind = |done: io::Result<mio::net::UnixStream>| done.unwrap_err().kind();
        assert_eq!(kind(sockets.connect_control(address)), ErrorKind::NotFound);
        // Left like this by a killed process.
        std::mem::forget(sockets.listen_control(address).unwrap().1);
        assert_eq!(kind(sockets.connect_control(address)), ErrorKind::ConnectionRefused);
        let bound = sockets.listen_control(address).unwrap();
        sockets.connect_control(address).unwrap();
        drop(bound);
        assert_eq!(kind(sockets.connect_control(address)), ErrorKind::NotFound);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn rests_are_swept_and_live_sockets_stay() {
        let root = root("swept");
        let sockets = HostSockets::open_in(&root).unwrap();
        let live = sockets.listen_node(NodeId(1)).unwrap();
        std::mem::forget(sockets.listen_node(NodeId(2)).unwrap().1);
        std::mem::forget(sockets.listen_node(NodeId(3)).unwrap().1);
        for node in [1, 2] {
            let path = sockets.0.join(node_name(NodeId(node)));
            let old = rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 };
            let times = rustix::fs::Timestamps { last_access: old, last_modification: old };
            rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
        }
        HostSockets::open_in(&root).unwrap();
        let is_there = |node| sockets.0.join(node_name(NodeId(node))).exists();
        assert_eq!([1, 2, 3].map(is_there), [true, false, true]);
        drop(live);
        fs::remove_dir_all(&root).unwrap();
    }
}
