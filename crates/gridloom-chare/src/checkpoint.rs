//! Checkpoints: the state of all chares at a moment of quiescence. A program can restart from one on the same or
//! another number of elements.
//!
//! ```text
//!  first element                         all elements
//!    │ quiet, and a chare wants to save   │
//!    │── save ───────────────────────────▶│ the owner stores the bytes
//!    │◀──────────────────────────── saved │
//!    │ the owner records that all exist   │
//!    │── callbacks ──────────────────────▶│ the program continues
//! ```
//! No message is waiting or in transit then. So the state consists of the chares' states and of the reduction rounds
//! to which some have contributed. A restarted program gets the same callbacks as the one that continued.

use serde::{Deserialize, Serialize};

use super::proxy::Callback;
use super::reduction::Partial;

/// The saved state of one array on an element.
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedArray {
    pub(crate) name: String,
    /// Number of chares of the array on all elements.
    pub(crate) count: u32,
    /// Number, next reduction round and state of each chare.
    pub(crate) chares: Vec<(u32, u32, Vec<u8>)>,
    /// Contributions to rounds that are not complete.
    pub(crate) rounds: Vec<(u32, Partial)>,
}

/// The saved state of an element.
#[derive(Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) arrays: Vec<SavedArray>,
    /// On the first element: the callbacks with which the program continues.
    pub(crate) callbacks: Vec<Callback>,
}

/// The checkpoint state of an element.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// The number of the checkpoint that this element must save.
    due: Option<u64>,
    /// True if the program was restarted from a checkpoint.
    is_restarted: bool,
    /// On the first element: only every n-th request to save creates a checkpoint; never if 0.
    every: u64,
    /// The number of the next checkpoint.
    next: u64,
    wanted: u64,
    /// The callbacks with which the program continues when all have saved.
    callbacks: Vec<Callback>,
    /// Number of elements that have yet to save.
    elements_saving: u32,
    /// The reason why an element could not save.
    failure: Option<String>,
    /// The number of a checkpoint that all elements have saved.
    complete: Option<u64>,
}

impl Checkpoints {
    /// On the first element: lets every n-th request to save create a checkpoint, the first of them with this number.
    pub(crate) fn set_schedule(&mut self, every: u64, next: u64) {
        (self.every, self.next) = (every, next);
    }

    pub(crate) fn is_restarted(&self) -> bool {
        self.is_restarted
    }

    pub(crate) fn set_restarted(&mut self) {
        self.is_restarted = true;
    }

    /// Records that this element must save a checkpoint.
    pub(crate) fn set_due(&mut self, number: u64) {
        self.due = Some(number);
    }

    /// Returns the number of the checkpoint that this element must save.
    pub(crate) fn due(&self) -> Option<u64> {
        self.due
    }

    pub(crate) fn take_due(&mut self) -> Option<u64> {
        self.due.take()
    }

    /// Returns the callbacks with which the program continues.
    pub(crate) fn callbacks(&self) -> &[Callback] {
        &self.callbacks
    }

    pub(crate) fn take_callbacks(&mut self) -> Vec<Callback> {
        std::mem::take(&mut self.callbacks)
    }

    /// Adds callbacks of the checkpoint from which the program restarts.
    pub(crate) fn restore_callbacks(&mut self, callbacks: Vec<Callback>) {
        self.callbacks.extend(callbacks);
    }

    /// Takes the number of a checkpoint that all elements have saved.
    pub(crate) fn take_complete(&mut self) -> Option<u64> {
        self.complete.take()
    }

    /// Starts a checkpoint at quiescence if chares want to save and one is due. Returns its number. `is_due` forces one.
    pub(crate) fn begin(&mut self, saves: bool, callbacks: Vec<Callback>, elements: u32, is_due: bool) -> Option<u64> {
        self.callbacks = callbacks;
        if !saves {
            return None;
        }
        self.wanted += 1;
        if !is_due && (self.every == 0 || !self.wanted.is_multiple_of(self.every)) {
            return None;
        }
        self.elements_saving = elements;
        self.next += 1;
        Some(self.next - 1)
    }

    /// Handles an element's report that it has saved, or cannot. After the last report, returns the reason if the
    /// checkpoint failed.
    pub(crate) fn saved(&mut self, number: u64, cannot: Option<String>) -> Option<String> {
        if number + 1 != self.next || self.elements_saving == 0 {
            return None;
        }
        self.elements_saving -= 1;
        self.failure = self.failure.take().or(cannot);
        if self.elements_saving > 0 {
            return None;
        }
        self.complete = self.failure.is_none().then_some(number);
        self.failure.take()
    }

    /// Reports whether elements are saving.
    pub(crate) fn is_busy(&self) -> bool {
        self.elements_saving > 0 || self.complete.is_some()
    }
}
