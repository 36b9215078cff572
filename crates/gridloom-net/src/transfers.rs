//! Progress of large data being transferred over sockets, for users who wait for them. Data passed in shared memory
//! take no time and are not listed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_base::DatumId;

/// The progress of one transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferProgress {
    /// Number that is unique among the node's transfers.
    pub number: u64,
    pub datum: DatumId,
    /// True if the datum is being sent; false if it is being received.
    pub is_sent: bool,
    pub size_bytes: u64,
    pub done_bytes: u64,
}

/// All transfers of a node.
#[derive(Debug, Default)]
pub struct Transfers(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    data: BTreeMap<u64, (TransferProgress, Arc<AtomicU64>)>,
}

impl Transfers {
    /// Registers a transfer, which lasts until the guard is dropped.
    pub fn begin(&self, datum: DatumId, is_sent: bool, size_bytes: u64) -> Transfer<'_> {
        let mut table = self.table();
        table.next += 1;
        let (number, done) = (table.next, Arc::new(AtomicU64::new(0)));
        let begun = TransferProgress { number, datum, is_sent, size_bytes, done_bytes: 0 };
        table.data.insert(number, (begun, done.clone()));
        Transfer { moving: self, number, done }
    }

    /// Returns the transfers in progress, oldest first.
    pub fn list(&self) -> Vec<TransferProgress> {
        let table = self.table();
        let far = |(one, done): &(TransferProgress, Arc<AtomicU64>)| TransferProgress {
            done_bytes: done.load(Ordering::Relaxed),
            ..*one
        };
        table.data.values().map(far).collect()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transfer in progress.
pub struct Transfer<'a> {
    moving: &'a Transfers,
    number: u64,
    done: Arc<AtomicU64>,
}

impl Transfer<'_> {
    /// Adds bytes received or sent.
    pub fn advance(&self, bytes: usize) {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        self.moving.table().data.remove(&self.number);
    }
}
