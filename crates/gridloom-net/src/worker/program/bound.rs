//! Processors that each process of a gang uses alone.
//!
//! A worker holds an abstract socket for each processor that it has given to a process. So two gangs of one machine never share one, and the
//! kernel frees what a killed worker held.
//!
//! **Limit:** containers with networks of their own do not see one another's, nor does `gridloom chares run --bind` without `--agent`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::process::processors;

/// Holds them until it is dropped.
#[derive(Debug)]
pub(super) struct Bound {
    _held: Vec<UnixListener>,
    pub(super) processors: Vec<usize>,
}

impl Bound {
    /// Takes so many.
    ///
    /// # Errors
    /// If there are not so many that nobody holds.
    pub(super) fn take(count: usize) -> Result<Bound, String> {
        let all = processors().map_err(|error| format!("the processors are not known: {error}"))?;
        let number = all.len();
        let taken = all.into_iter().filter_map(|processor| Some((hold(processor)?, processor))).take(count);
        let (held, processors): (Vec<_>, Vec<_>) = taken.unzip();
        if processors.len() < count {
            let free = processors.len();
            return Err(format!(
                "--bind: {count} elements here, and {free} of the {number} processors are free for them: give fewer with -n, or leave \
                 --bind out"
            ));
        }
        Ok(Bound { _held: held, processors })
    }
}

/// Nothing if another worker holds it.
fn hold(processor: usize) -> Option<UnixListener> {
    let address = SocketAddr::from_abstract_name(format!("gridloom-processor-{processor}")).ok()?;
    UnixListener::bind_addr(&address).ok()
}
