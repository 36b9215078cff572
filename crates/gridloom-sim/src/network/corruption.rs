//! Routes that corrupt data: a random fraction of the data arrives with one bit changed.
//!
//! As in the real network, the sender sends a digest, and the receiver compares the data with it. Small data travel
//! with the messages: if one is corrupted, the connection is closed. For large data, only their stream ends.
//!
//! **Not modelled.** Corrupted messages: they have the same effect as a connection reset.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom_base::SplitMix64;

use super::routes::Route;
use crate::store::StoredValue;
use crate::trace::digest;

/// Salt of this random stream.
const CHANGES: u64 = 0x6368_616e_6765_7321;

#[derive(Debug)]
pub(crate) struct Corruption {
    /// The fraction of data that a route corrupts.
    fractions: BTreeMap<Route, f64>,
    random: SplitMix64,
}

impl Corruption {
    pub(crate) fn new(seed: u64) -> Corruption {
        Corruption { fractions: BTreeMap::new(), random: SplitMix64::new(seed ^ CHANGES) }
    }

    /// Sets the fraction of data that a route corrupts.
    pub(crate) fn set(&mut self, way: Route, fraction: f64) {
        match fraction > 0.0 {
            true => self.fractions.insert(way, fraction),
            false => self.fractions.remove(&way),
        };
    }

    /// Ends all corruption.
    pub(crate) fn end_all(&mut self) {
        self.fractions.clear();
    }

    /// Returns the received value if it equals the sent one.
    pub(crate) fn receive(&mut self, way: Route, sent: StoredValue) -> Option<StoredValue> {
        let Some(fraction) = self.fractions.get(&way).copied() else { return Some(sent) };
        if self.random.unit() >= fraction {
            return Some(sent);
        }
        // If the bytes are not simulated, nobody would see the difference.
        let bytes = sent.bytes?;
        let came = self.with_a_bit_changed(&bytes);
        (digest(&came) == digest(&bytes)).then_some(StoredValue { bytes: Some(came), ..sent })
    }

    fn with_a_bit_changed(&mut self, bytes: &[u8]) -> Arc<[u8]> {
        let mut changed: Arc<[u8]> = bytes.into();
        if let Some(byte) = changed.len().checked_sub(1).map(|last| self.random.below(last as u64 + 1)) {
            Arc::make_mut(&mut changed)[byte as usize] ^= 1 << self.random.below(8);
        }
        changed
    }
}
