//! Ways on which data change: of some, drawn at random, a bit is another when they are there.
//!
//! What was sent has a tag, as in the real world, and what came is held against it. Small data travel with the messages: where one
//! is not what was sent, the connection is lost. Of large data the stream alone ends.
//!
//! **Not done.** Messages that change: they are as a connection that is reset.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom_base::SplitMix64;

use super::routes::HostPair;
use crate::store::StoredValue;
use crate::trace::digest;

/// Tells its draws from others.
const CHANGES: u64 = 0x6368_616e_6765_7321;

#[derive(Debug)]
pub(crate) struct Changes {
    /// What fraction of the data changes on a way.
    ways: BTreeMap<HostPair, f64>,
    random: SplitMix64,
}

impl Changes {
    pub(crate) fn new(seed: u64) -> Changes {
        Changes { ways: BTreeMap::new(), random: SplitMix64::new(seed ^ CHANGES) }
    }

    /// From now on that fraction of the data changes on a way.
    pub(crate) fn set(&mut self, way: HostPair, fraction: f64) {
        match fraction > 0.0 {
            true => self.ways.insert(way, fraction),
            false => self.ways.remove(&way),
        };
    }

    /// Nothing changes any more.
    pub(crate) fn end_all(&mut self) {
        self.ways.clear();
    }

    /// What came of a value over a way, if it is what was sent.
    pub(crate) fn receive(&mut self, way: HostPair, sent: StoredValue) -> Option<StoredValue> {
        let Some(fraction) = self.ways.get(&way).copied() else { return Some(sent) };
        if self.random.unit() >= fraction {
            return Some(sent);
        }
        // Where bytes do not matter, nobody would see the difference.
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
