//! Parked chares, which have too many sent bytes waiting for credit, and the detection of elements that wait for one
//! another in a cycle.
//!
//! Items for a parked chare wait, and other chares run. An element that lacks credit is *blocked* here if all of its
//! messages on this element are for parked chares: it gets no credit until one of these resumes, whatever else runs
//! here. This element then sends a probe to the elements for which these chares wait. An element forwards the probe if
//! the probe's sender is blocked there. A probe that returns to its origin has traversed a cycle of elements none of
//! which can proceed by itself. Its origin then lets those chares send more.
//!
//! A cycle closes at the element that becomes blocked last, so a probe is sent each time an element becomes blocked.
//!
//! Source: K. M. Chandy, J. Misra, L. M. Haas, *Distributed deadlock detection*, ACM TOCS 1983 (communication model,
//! without replies: a falsely detected cycle costs memory at the sender).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::id::{ArrayId, Pe};

/// A chare, by array and slot.
pub(crate) type ChareSlot = (ArrayId, u32);

#[derive(Debug, Default)]
struct Parked {
    /// The elements whose credit it waits for.
    awaited_credit: BTreeSet<Pe>,
    /// The elements with messages that wait for it.
    senders: BTreeSet<Pe>,
}

/// A probe that is forwarded around a cycle of waiting elements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct DeadlockProbe {
    /// The element that sent the probe first.
    pub(crate) by: Pe,
    /// The element that is blocked at `by`.
    pub(crate) blocked: Pe,
    /// Sequence number; later probes have greater numbers.
    pub(crate) number: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Parking {
    parked: BTreeMap<ChareSlot, Parked>,
    /// Number of items held for parked chares.
    held: usize,
    probes_sent: u64,
    /// The last probe about each blocked element.
    last_probes: BTreeMap<Pe, u64>,
    /// The last probe of each origin about each blocked element, and the elements to which it was forwarded.
    forwarded: BTreeMap<(Pe, Pe), (u64, BTreeSet<Pe>)>,
}

impl Parking {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    pub(crate) fn is_parked(&self, at: ChareSlot) -> bool {
        self.parked.contains_key(&at)
    }

    pub(crate) fn park(&mut self, at: ChareSlot, on: Vec<Pe>) {
        if !on.is_empty() {
            self.parked.entry(at).or_default().awaited_credit.extend(on);
        }
    }

    /// Counts an item held for a parked chare. `sender` is the sending element if it is another one.
    pub(crate) fn hold(&mut self, at: ChareSlot, sender: Option<Pe>) {
        self.held += 1;
        if let (Some(sender), Some(parked)) = (sender, self.parked.get_mut(&at)) {
            parked.senders.insert(sender);
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Removes a chare that is no longer parked, with `held` items that are back in the queue.
    pub(crate) fn remove(&mut self, at: ChareSlot, held: usize) {
        self.parked.remove(&at);
        self.held -= held;
    }

    /// Removes an element from all lists of awaited credit. Returns the chares that now wait for no element.
    pub(crate) fn relieved(&mut self, of: Pe) -> Vec<ChareSlot> {
        self.parked.values_mut().for_each(|parked| _ = parked.awaited_credit.remove(&of));
        self.parked.iter().filter(|(_, parked)| parked.awaited_credit.is_empty()).map(|(at, _)| *at).collect()
    }

    fn with_messages_of(&self, sender: Pe) -> impl Iterator<Item = (&ChareSlot, &Parked)> {
        self.parked.iter().filter(move |(_, parked)| parked.senders.contains(&sender))
    }

    /// Returns the chares for which messages of an element wait.
    pub(crate) fn chares_holding(&self, sender: Pe) -> Vec<ChareSlot> {
        self.with_messages_of(sender).map(|(at, _)| *at).collect()
    }

    /// Returns the elements whose credit these chares wait for.
    pub(crate) fn waits_for(&self, sender: Pe) -> BTreeSet<Pe> {
        self.with_messages_of(sender).flat_map(|(_, parked)| parked.awaited_credit.iter().copied()).collect()
    }

    /// Creates a new probe of this element about a blocked element.
    pub(crate) fn new_probe(&mut self, me: Pe, blocked: Pe) -> DeadlockProbe {
        self.probes_sent += 1;
        self.last_probes.insert(blocked, self.probes_sent);
        DeadlockProbe { by: me, blocked, number: self.probes_sent }
    }

    /// Reports whether a returned probe is the last one about its blocked element, which is then forgotten.
    pub(crate) fn is_current_probe(&mut self, question: DeadlockProbe) -> bool {
        let is_last = self.last_probes.get(&question.blocked) == Some(&question.number);
        if is_last {
            self.last_probes.remove(&question.blocked);
        }
        is_last
    }

    /// Returns the elements to which a probe must be forwarded. A probe may return to its origin several times, for
    /// other blocked elements.
    pub(crate) fn forward_to(&mut self, question: DeadlockProbe, to: BTreeSet<Pe>) -> Vec<Pe> {
        let (last, told) = self.forwarded.entry((question.by, question.blocked)).or_default();
        if question.number < *last {
            return Vec::new();
        }
        if question.number > *last {
            (*last, *told) = (question.number, BTreeSet::new());
        }
        to.into_iter().filter(|element| told.insert(*element)).collect()
    }
}
