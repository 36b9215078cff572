//! Checkpoints: what all chares are at a moment when all is quiet, to begin again from on as many elements or on others.
//!
//! ```text
//!  first element                         all elements
//!    │ quiet, and a chare wants to save   │
//!    │── save ───────────────────────────▶│ the owner takes the bytes, and keeps them
//!    │◀──────────────────────────── saved │
//!    │ the owner notes that all are there │
//!    │── callbacks ──────────────────────▶│ the program goes on
//! ```
//! Nothing waits and nothing is on its way then, so the states of the chares are all that there is, and the rounds of reductions to
//! which some have contributed. A program that begins again gets the same callbacks as the one that went on.

use serde::{Deserialize, Serialize};

use super::proxy::Callback;
use super::reduction::Partial;
use super::resizing::Resizing;

/// What an element saves of one array.
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedArray {
    pub(crate) name: String,
    /// How many chares the array has, on all elements.
    pub(crate) count: u32,
    /// Number, next round of reductions, state.
    pub(crate) chares: Vec<(u32, u32, Vec<u8>)>,
    /// Parts of rounds that are not complete.
    pub(crate) rounds: Vec<(u32, Partial)>,
}

/// What an element saves.
#[derive(Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) arrays: Vec<SavedArray>,
    /// Of the first element: where the program goes on.
    pub(crate) callbacks: Vec<Callback>,
}

/// What an element has of checkpoints.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    /// This element is to save under that number.
    pub(crate) asked: Option<u64>,
    /// The program goes on from a checkpoint.
    pub(crate) is_restart: bool,
    /// At the first element: every so many times that chares want to save, something is saved; never if 0.
    pub(crate) every: u64,
    /// The number of the next one.
    pub(crate) next: u64,
    wanted: u64,
    /// Where the program goes on when all have saved.
    pub(crate) callbacks: Vec<Callback>,
    /// Elements that have still to save.
    awaited: u32,
    /// Why one of them could not.
    cannot: Option<String>,
    /// All have saved that one.
    pub(crate) complete: Option<u64>,
    pub(crate) resizing: Resizing,
}

impl Checkpoints {
    /// All is quiet, and perhaps chares want to save. The number of the checkpoint, if there is to be one: `is_due` says that there is.
    pub(crate) fn begin(&mut self, saves: bool, callbacks: Vec<Callback>, elements: u32, is_due: bool) -> Option<u64> {
        self.callbacks = callbacks;
        if !saves {
            return None;
        }
        self.wanted += 1;
        if !is_due && (self.every == 0 || !self.wanted.is_multiple_of(self.every)) {
            return None;
        }
        self.awaited = elements;
        self.next += 1;
        Some(self.next - 1)
    }

    /// An element has saved, or cannot. Why it is no checkpoint, once the last one has said so.
    pub(crate) fn saved(&mut self, number: u64, cannot: Option<String>) -> Option<String> {
        if number + 1 != self.next || self.awaited == 0 {
            return None;
        }
        self.awaited -= 1;
        self.cannot = self.cannot.take().or(cannot);
        if self.awaited > 0 {
            return None;
        }
        self.complete = self.cannot.is_none().then_some(number);
        self.cannot.take()
    }

    /// Whether elements are saving.
    pub(crate) fn is_busy(&self) -> bool {
        self.awaited > 0 || self.complete.is_some()
    }
}
