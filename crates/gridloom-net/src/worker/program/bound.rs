//! Reserves processors for the exclusive use of a gang's processes.
//!
//! A worker holds a lock on a file for each processor that it has assigned to a process. Two gangs of one user on one machine
//! therefore never share a processor, and the kernel frees the processors of a killed worker. The files are in a folder
//! of the user, so that no other user can take their names or hold their locks.
//!
//! **Limits:** the gangs of two users do not see each other, nor do containers with separate home folders.
//! `gridloom chares run --bind` without `--agent` reserves nothing.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::process::processors;

/// Reserved processors, until this is dropped.
#[derive(Debug)]
pub(super) struct ReservedProcessors {
    _held: Vec<File>,
    pub(super) processors: Vec<usize>,
}

impl ReservedProcessors {
    /// Reserves `count` processors.
    ///
    /// # Errors
    /// If fewer processors are free.
    pub(super) fn take(count: usize) -> Result<ReservedProcessors, String> {
        let folder = folder().map_err(|error| format!("--bind: no folder for the locks of processors: {error}"))?;
        ReservedProcessors::take_in(&folder, count)
    }

    fn take_in(folder: &Path, count: usize) -> Result<ReservedProcessors, String> {
        let all = processors().map_err(|error| format!("cannot query the processors: {error}"))?;
        let number = all.len();
        let (mut held, mut processors) = (Vec::new(), Vec::new());
        for processor in all {
            if processors.len() == count {
                break;
            }
            let lock = reserve(folder, processor)
                .map_err(|error| format!("--bind: the lock of a processor in '{}': {error}", folder.display()))?;
            if let Some(lock) = lock {
                held.push(lock);
                processors.push(processor);
            }
        }
        if processors.len() < count {
            let free = processors.len();
            return Err(format!(
                "--bind: {count} elements are to run here, but only {free} of the {number} processors are free: use \
                 a smaller -n, or omit --bind"
            ));
        }
        Ok(ReservedProcessors { _held: held, processors })
    }
}

/// Returns the folder of this user's locks for this machine. Home folders are often shared between machines, and
/// emulated hosts share one, so its name has the machine's and that of the network's namespace.
fn folder() -> io::Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| io::Error::other("HOME is not set to a folder"))?;
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let network = std::fs::read_link("/proc/self/ns/net")?;
    let number: String = network.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let folder = home.join(".local/state/gridloom/processors").join(format!("{}-{number}", machine.trim()));
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    Ok(folder)
}

/// Reserves a processor. Returns `None` if another worker holds it.
fn reserve(folder: &Path, processor: usize) -> io::Result<Option<File>> {
    let path = folder.join(processor.to_string());
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    #[test]
    fn a_processor_is_reserved_once_and_free_when_its_worker_ends() {
        let folder = tempfile::tempdir().unwrap();
        let number = processors().unwrap().len();
        // Any user can hold names of sockets.
        let names = (0..number).map(|one| SocketAddr::from_abstract_name(format!("gridloom-processor-{one}")).unwrap());
        let _neighbours: Vec<_> = names.map(|name| UnixListener::bind_addr(&name)).collect();
        let all = ReservedProcessors::take_in(folder.path(), number).unwrap();
        assert_eq!(all.processors, processors().unwrap());
        let why = ReservedProcessors::take_in(folder.path(), 1).unwrap_err();
        assert!(why.contains(&format!("only 0 of the {number} processors are free")), "{why}");
        drop(all);
        assert_eq!(ReservedProcessors::take_in(folder.path(), 1).unwrap().processors.len(), 1);
    }
}
