//! Reserves processors for the exclusive use of a gang's processes.
//!
//! A worker holds an abstract socket for each processor that it has assigned to a process. Two gangs on one machine
//! therefore never share a processor, and the kernel frees the processors of a killed worker.
//!
//! **Limit:** containers with separate networks do not see each other's sockets, and `gridloom chares run --bind`
//! without `--agent` does not see them either.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::process::processors;

/// Reserved processors, until this is dropped.
#[derive(Debug)]
pub(super) struct ReservedProcessors {
    _held: Vec<UnixListener>,
    pub(super) processors: Vec<usize>,
}

impl ReservedProcessors {
    /// Reserves `count` processors.
    ///
    /// # Errors
    /// If fewer processors are free.
    pub(super) fn take(count: usize) -> Result<ReservedProcessors, String> {
        let all = processors().map_err(|error| format!("cannot query the processors: {error}"))?;
        let number = all.len();
        let taken = all.into_iter().filter_map(|processor| Some((reserve(processor)?, processor))).take(count);
        let (held, processors): (Vec<_>, Vec<_>) = taken.unzip();
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

/// Reserves a processor. Returns `None` if another worker holds it.
fn reserve(processor: usize) -> Option<UnixListener> {
    let address = SocketAddr::from_abstract_name(format!("gridloom-processor-{processor}")).ok()?;
    UnixListener::bind_addr(&address).ok()
}
