//! A node's identity: its keys, and the host it runs on.
//!
//! **Guarantees:** two nodes have the same [`HostId`] only if they run on one kernel and in one network namespace, so
//! unix sockets of one user can connect them and shared memory can be passed between them.
//!
//! **Not here:** encryption ([`crate::transport::tls`]).

pub(crate) mod keys;
mod tls_configs;

use std::os::linux::fs::MetadataExt;
use std::{fs, io};

pub use keys::{Credentials, FUNCTION_KEYS_VARIABLE, FunctionKeys, IssuedKeys, Keys, NodeKeys};
pub(crate) use keys::{acts_for_callers, id_of};
pub use tls_configs::TlsConfigs;

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

/// Returns the name of this machine, for display.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
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
