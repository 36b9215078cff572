//! The agent's mappings of task graphs. Each runs on its own thread so that the node keeps working meanwhile. The
//! state machine limits their number.
//!
//! **Invariant:** each mapping ends with exactly one [`Notice::Mapped`], whatever its heuristic does.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use gridloom_core::node::MapJob;
use gridloom_map::{MapError, Stop};

use crate::transport::notice::{Inbox, Notice};

/// The mappings in progress. See the module documentation.
pub(super) struct Mappings {
    inbox: Arc<Inbox>,
    under_way: BTreeMap<u64, Mapping>,
}

struct Mapping {
    is_stopped: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Mappings {
    pub(super) fn new(inbox: Arc<Inbox>) -> Mappings {
        Mappings { inbox, under_way: BTreeMap::new() }
    }

    /// Starts a mapping.
    pub(super) fn begin(&mut self, number: u64, job: Arc<MapJob>) -> Result<(), MapError> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (stop, inbox) = (is_stopped.clone(), self.inbox.clone());
        let map = move || {
            let stop = Stop::when(move || stop.load(Ordering::Relaxed));
            let outcome = catch_unwind(AssertUnwindSafe(|| job.map(stop))).unwrap_or_else(|_| {
                let why = "the heuristic panicked: the agent's log has its message".into();
                Err(MapError::Failed { why })
            });
            inbox.post(Notice::Mapped { number, outcome });
        };
        let thread = Builder::new().name("mapping".into()).spawn(map).map_err(|error| MapError::Failed {
            why: format!("the agent cannot start a thread to map the group: {error}"),
        })?;
        self.under_way.insert(number, Mapping { is_stopped, thread });
        Ok(())
    }

    pub(super) fn stop(&mut self, number: u64) {
        if let Some(mapping) = self.under_way.get(&number) {
            mapping.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    /// Removes a mapping whose notice has arrived.
    pub(super) fn ended(&mut self, number: u64) {
        if let Some(mapping) = self.under_way.remove(&number) {
            // Posting is the last thing that the thread does, and it catches panics.
            let _ = mapping.thread.join();
        }
    }

    pub(super) fn shut_down(&mut self) {
        let mappings = std::mem::take(&mut self.under_way);
        mappings.values().for_each(|mapping| mapping.is_stopped.store(true, Ordering::Relaxed));
        mappings.into_values().for_each(|mapping| drop(mapping.thread.join()));
    }
}
