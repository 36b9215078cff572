//! A node's identity: its key, the host it runs on, and the secret that admits it to its grid.
//!
//! **Promises:** two nodes have the same [`HostId`] only if they run on one kernel and in one network namespace, so unix
//! sockets of one user can connect them and shared memory can pass between them; a [`Secret`] is
//! never printed and never leaves the process.
//!
//! **Not here:** encryption.

mod node_key;
mod secret;

use std::os::linux::fs::MetadataExt;
use std::{fs, io};

pub use node_key::{Credentials, NodeKey};
pub(crate) use node_key::{SIGNATURE_BYTES, has_signed, id_of};
pub(crate) use secret::Ticket;
pub use secret::{SECRET_FILE_VARIABLE, SECRET_VARIABLE, Secret, TICKET_VARIABLE, secret_file};

/// Kernel and network namespace, in words; empty where memory is not to be shared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostId(pub String);

impl HostId {
    /// This process's, empty if the system does not say.
    pub fn here() -> HostId {
        let read = || -> io::Result<String> {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
            let namespace = fs::metadata("/proc/self/ns/net")?.st_ino();
            Ok(format!("{}/{namespace}", boot.trim()))
        };
        HostId(read().unwrap_or_default())
    }
}

/// Random bytes from the system.
///
/// # Errors
/// If the system has none to give.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(format!("no random bytes: {error}")))?;
    Ok(bytes)
}
