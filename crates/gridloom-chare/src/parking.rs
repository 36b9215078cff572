//! Chares that are parked, since too much of what they sent waits for credit; and elements that wait for one another in a circle.
//!
//! What comes for a parked chare waits for it, and others run. If nothing else can run, its element is *stuck*: it asks the elements
//! that have to give it credit. One that is stuck passes the question on. A question that comes back has gone round a circle of elements
//! of which none can go on by itself. Then the one that asked lets its chares send more.
//!
//! Source: K. M. Chandy, J. Misra, L. M. Haas, *Distributed deadlock detection*, ACM TOCS 1983 (communication model, without replies: a circle
//! that was none costs some memory, and no harm).

use std::collections::{BTreeMap, BTreeSet};

use super::id::{ArrayId, Pe};

/// A chare, by array and slot.
type At = (ArrayId, u32);

#[derive(Debug, Default)]
pub(crate) struct Parking {
    /// The elements that each waits for to give credit.
    parked: BTreeMap<At, BTreeSet<Pe>>,
    /// What has come for parked chares.
    held: usize,
    is_stuck: bool,
    question: u64,
    /// The last question of each other element that was passed on.
    passed_on: BTreeMap<Pe, u64>,
}

impl Parking {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    pub(crate) fn is_parked(&self, at: At) -> bool {
        self.parked.contains_key(&at)
    }

    pub(crate) fn park(&mut self, at: At, on: Vec<Pe>) {
        if !on.is_empty() {
            self.parked.entry(at).or_default().extend(on);
        }
    }

    /// Something more waits for a parked chare.
    pub(crate) fn hold(&mut self) {
        self.held += 1;
    }

    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// That chare is parked no more, and so many messages wait for it in the queue again.
    pub(crate) fn free(&mut self, at: At, held: usize) {
        self.parked.remove(&at);
        self.held -= held;
    }

    /// The chares that wait for nobody's credit but that element's.
    pub(crate) fn relieved(&mut self, of: Pe) -> Vec<At> {
        self.parked.values_mut().for_each(|on| _ = on.remove(&of));
        self.parked.iter().filter(|(_, on)| on.is_empty()).map(|(at, _)| *at).collect()
    }

    pub(crate) fn all(&self) -> Vec<At> {
        self.parked.keys().copied().collect()
    }

    /// The elements that this one waits for to give credit.
    pub(crate) fn waits_for(&self) -> BTreeSet<Pe> {
        self.parked.values().flatten().copied().collect()
    }

    /// Something has run, or moved in a queue.
    #[inline]
    pub(crate) fn goes_on(&mut self) {
        self.is_stuck = false;
    }

    /// Nothing can run now: the number of the question to ask, once.
    pub(crate) fn stick(&mut self) -> Option<u64> {
        if self.held == 0 || std::mem::replace(&mut self.is_stuck, true) {
            return None;
        }
        self.question += 1;
        Some(self.question)
    }

    /// Whether that is the question that this element still asks.
    pub(crate) fn is_asked(&self, question: u64) -> bool {
        self.is_stuck && question == self.question
    }

    /// A stuck element got a question: whether it is to be passed on.
    pub(crate) fn passes_on(&mut self, of: Pe, question: u64) -> bool {
        let last = self.passed_on.entry(of).or_default();
        let is_new = question > *last;
        *last = question.max(*last);
        is_new
    }
}
