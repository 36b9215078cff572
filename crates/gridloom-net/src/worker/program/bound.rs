//! Reserves processors for the exclusive use of a gang's processes.
//!
//! A worker holds a lock on a file for each processor that it has assigned to a process. Two gangs of one user on one machine
//! therefore never share a processor, and the kernel frees the processors of a killed worker. The files are in a folder
//! of the user, so that no other user can take their names or hold their locks.
//!
//! **Limits:** reservations of other users, and of containers with another home folder, are not visible.
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
        let folder = folder()
            .map_err(|error| format!("--bind: cannot create the folder for the locks of processors: {error}"))?;
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
                .map_err(|error| format!("--bind: cannot lock a processor in '{}': {error}", folder.display()))?;
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

/// Returns the folder of this user's locks on this machine: below HOME, or below XDG_RUNTIME_DIR if no home folder can be
/// written. Several machines, or emulated hosts, may share a home folder, so the folder's name contains the host name and
/// the number of the network namespace.
fn folder() -> io::Result<PathBuf> {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let network = std::fs::read_link("/proc/self/ns/net")?;
    let number: String = network.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let mut why = io::Error::other("neither HOME nor XDG_RUNTIME_DIR is set to a folder");
    for (variable, place) in [("HOME", ".local/state/gridloom"), ("XDG_RUNTIME_DIR", "gridloom")] {
        let Some(base) = std::env::var_os(variable).map(PathBuf::from).filter(|base| base.is_absolute()) else {
            continue;
        };
        let folder = base.join(place).join("processors").join(format!("{}-{number}", machine.trim()));
        match DirBuilder::new().recursive(true).mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => why = io::Error::other(format!("'{}' ({variable}): {error}", folder.display())),
        }
    }
    Err(why)
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
        // Any user can take these socket names.
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
