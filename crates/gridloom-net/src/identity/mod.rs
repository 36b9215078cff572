//! A node's identity: its key, the host it runs on, and the secret that admits it to its grid.
//!
//! **Guarantees:** two nodes have the same [`HostId`] only if they run on one kernel and in one network namespace, so
//! unix sockets of one user can connect them and shared memory can be passed between them; a [`Secret`] is never
//! printed and never leaves the process.
//!
//! **Not here:** encryption ([`crate::transport::tls`]).

mod node_key;
mod secret;
mod tls_identity;

use std::os::linux::fs::MetadataExt;
use std::{fs, io};

pub use node_key::{Credentials, NodeKey};
pub(crate) use node_key::{SIGNATURE_BYTES, has_signed, id_of};
pub(crate) use secret::Ticket;
pub use secret::{SECRET_FILE_VARIABLE, SECRET_VARIABLE, Secret, TICKET_VARIABLE, secret_file};
pub use tls_identity::TlsIdentity;

/// Kernel and network namespace as text; empty if memory must not be shared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostId(pub String);

impl HostId {
    /// Returns the id of this process's host, empty if the system does not provide it.
    pub fn here() -> HostId {
        let read = || -> io::Result<String> {
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
            let namespace = fs::metadata("/proc/self/ns/net")?.st_ino();
            Ok(format!("{}/{namespace}", boot.trim()))
        };
        HostId(read().unwrap_or_default())
    }
}

/// Returns random bytes from the system.
///
/// # Errors
/// If the system has no entropy.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(format!("no random bytes: {error}")))?;
    Ok(bytes)
}
