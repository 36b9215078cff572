//! Large data that are on their way over sockets, for people waiting for them. What is handed over in shared memory takes no time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_base::DatumId;

/// How far one datum has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnTheWay {
    /// Tells it from all others of the node.
    pub number: u64,
    pub datum: DatumId,
    /// It is sent; else it is received.
    pub is_sent: bool,
    pub size_bytes: u64,
    pub done_bytes: u64,
}

/// All of a node.
#[derive(Debug, Default)]
pub struct Moving(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    data: BTreeMap<u64, (OnTheWay, Arc<AtomicU64>)>,
}

impl Moving {
    /// A datum is on its way until the guard is dropped.
    pub fn begin(&self, datum: DatumId, is_sent: bool, size_bytes: u64) -> Passage<'_> {
        let mut table = self.table();
        table.next += 1;
        let (number, done) = (table.next, Arc::new(AtomicU64::new(0)));
        let begun = OnTheWay { number, datum, is_sent, size_bytes, done_bytes: 0 };
        table.data.insert(number, (begun, done.clone()));
        Passage { moving: self, number, done }
    }

    /// What is on its way now, those first that began first.
    pub fn list(&self) -> Vec<OnTheWay> {
        let table = self.table();
        let far =
            |(one, done): &(OnTheWay, Arc<AtomicU64>)| OnTheWay { done_bytes: done.load(Ordering::Relaxed), ..*one };
        table.data.values().map(far).collect()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A datum on its way.
pub struct Passage<'a> {
    moving: &'a Moving,
    number: u64,
    done: Arc<AtomicU64>,
}

impl Passage<'_> {
    /// So many bytes more have come, or gone.
    pub fn advance(&self, bytes: usize) {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.moving.table().data.remove(&self.number);
    }
}
