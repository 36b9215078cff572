//! Direct addresses that did not answer, of nodes that can also be reached through a relay.
//!
//! If a firewall drops the packets, a dial fails only at its time limit. Later dials use the relay at once, and try the
//! direct address again after [`RETRY_AFTER`].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time after which a direct address is preferred again.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Maximum number of addresses that are remembered.
const ADDRESSES_MAX: usize = 1024;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Unreachable(Mutex<BTreeMap<SocketAddr, Instant>>);

impl Unreachable {
    /// Records that an address did not answer.
    pub(crate) fn add(&self, address: SocketAddr) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, since| since.elapsed() < RETRY_AFTER);
        if all.len() < ADDRESSES_MAX {
            all.insert(address, Instant::now());
        }
    }

    /// Reports whether an address did not answer lately.
    pub(crate) fn has(&self, address: &SocketAddr) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(address).is_some_and(|since| since.elapsed() < RETRY_AFTER)
    }

    /// Records that an address has answered.
    pub(crate) fn remove(&self, address: &SocketAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(address);
    }
}
