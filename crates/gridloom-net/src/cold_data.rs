//! The data in memory that can be moved to disk, in the order of their last use.

use std::collections::BTreeMap;

use gridloom_base::{DatumId, NodeId};

use crate::segment::ON_DISK_BYTES_MIN;

/// Minimum size of data to move; smaller data stay in memory because a file takes a page and a descriptor. Data
/// between this size and [`ON_DISK_BYTES_MIN`] are moved only if nothing larger can be.
pub(crate) const MOVED_BYTES_MIN: u64 = 64 << 10;
/// Maximum number of data of each client that are checked for one that can be moved. Data in use are used again later, so they are
/// rarely among the first.
const CHECKED_MAX: usize = 64;

/// Data by size, client and last use.
#[derive(Debug, Default)]
pub(crate) struct ColdData {
    large: Order,
    small: Order,
}

/// The data of each client by last use. No map is empty.
type Order = BTreeMap<NodeId, BTreeMap<u64, DatumId>>;

impl ColdData {
    fn of_size(&mut self, size_bytes: u64) -> Option<&mut Order> {
        match (size_bytes >= ON_DISK_BYTES_MIN, size_bytes >= MOVED_BYTES_MIN) {
            (true, _) => Some(&mut self.large),
            (false, true) => Some(&mut self.small),
            (false, false) => None,
        }
    }

    pub(crate) fn insert(&mut self, datum: DatumId, size_bytes: u64, last_use: u64) {
        if let Some(order) = self.of_size(size_bytes) {
            order.entry(datum.client).or_default().insert(last_use, datum);
        }
    }

    /// Removes a datum. Returns false if it is not there.
    pub(crate) fn remove(&mut self, datum: DatumId, size_bytes: u64, last_use: u64) -> bool {
        let Some(order) = self.of_size(size_bytes) else { return false };
        let Some(of_client) = order.get_mut(&datum.client) else { return false };
        let was_here = of_client.remove(&last_use).is_some();
        if of_client.is_empty() {
            order.remove(&datum.client);
        }
        was_here
    }

    /// Returns the least recently used datum of which `can_move` returns true, a large one if possible.
    pub(crate) fn coldest(&self, can_move: impl Fn(DatumId) -> bool) -> Option<DatumId> {
        [&self.large, &self.small].into_iter().find_map(|order| {
            let coldest_of = |of_client: &BTreeMap<u64, DatumId>| {
                let checked = of_client.iter().take(CHECKED_MAX);
                checked.map(|(last_use, datum)| (*last_use, *datum)).find(|(_, datum)| can_move(*datum))
            };
            order.values().filter_map(coldest_of).min().map(|(_, datum)| datum)
        })
    }
}
