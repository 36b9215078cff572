//! The waiting messages of one array, with their own type: none is boxed, and a message is copied only if several chares get it.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::credit::CreditDue;
use super::id::Priority;
use super::payload::{Codec, Payload};
use super::value::Value;

/// Something that a chare is run for.
#[derive(Clone, Debug)]
pub(crate) enum Work<M> {
    Message(M),
    Outcome(Box<Outcome>),
}

/// A reduction result, or the notification that the program is quiet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) tag: u32,
    pub(crate) value: Value,
}

/// A waiting work item.
#[derive(Clone, Debug)]
pub(crate) enum WorkItem<M> {
    One {
        slot: u32,
        work: Work<M>,
        debt: CreditDue,
    },
    /// For the chares that began on this element, from that slot on.
    AllFrom {
        slot: u32,
        work: Work<M>,
        debt: CreditDue,
    },
}

/// The chares of this element that an item is for: all that began here, or those in some slots.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slots<'a> {
    All,
    Some(&'a [u32]),
}

pub(crate) struct Mail<M: Payload> {
    /// Items with the default priority.
    default_priority: VecDeque<WorkItem<M>>,
    other: BTreeMap<Priority, VecDeque<WorkItem<M>>>,
    /// Items for parked chares, by slot.
    parked: BTreeMap<u32, Vec<(Priority, WorkItem<M>)>>,
    pub(crate) codec: M::Codec,
}

impl<M: Payload> Mail<M> {
    /// # Errors
    /// If `M` is not a message type.
    pub(crate) fn new() -> Result<Mail<M>, String> {
        let codec = M::Codec::new()?;
        Ok(Mail { default_priority: VecDeque::new(), other: BTreeMap::new(), parked: BTreeMap::new(), codec })
    }

    pub(crate) fn put(&mut self, priority: Priority, item: WorkItem<M>) {
        self.queue(priority).push_back(item);
    }

    pub(crate) fn put_back(&mut self, priority: Priority, item: WorkItem<M>) {
        self.queue(priority).push_front(item);
    }

    pub(crate) fn take(&mut self, priority: Priority) -> WorkItem<M> {
        if priority == Priority::default() {
            return self.default_priority.pop_front().expect("the ready queue counts the waiting items");
        }
        let queue = self.queue(priority);
        let item = queue.pop_front().expect("the ready queue counts the waiting items");
        if queue.is_empty() {
            self.other.remove(&priority);
        }
        item
    }

    fn queue(&mut self, priority: Priority) -> &mut VecDeque<WorkItem<M>> {
        if priority == Priority::default() {
            &mut self.default_priority
        } else {
            self.other.entry(priority).or_default()
        }
    }

    /// Holds an item until the chare in its slot is no longer parked.
    pub(crate) fn park(&mut self, slot: u32, priority: Priority, item: WorkItem<M>) {
        self.parked.entry(slot).or_default().push((priority, item));
    }

    /// Adds items for these slots. They share the debt. Returns the number of items added.
    fn put_for(&mut self, slots: Slots<'_>, priority: Priority, work: Work<M>, debt: CreditDue) -> usize {
        match slots {
            Slots::All => {
                self.put(priority, WorkItem::AllFrom { slot: 0, work, debt });
                1
            }
            Slots::Some(slots) => {
                let Some((last, others)) = slots.split_last() else { return 0 };
                let one = |slot: &u32, work| WorkItem::One { slot: *slot, work, debt: debt.clone() };
                others.iter().for_each(|slot| self.put(priority, one(slot, work.clone())));
                self.put(priority, WorkItem::One { slot: *last, work, debt });
                slots.len()
            }
        }
    }
}

/// The mail of an array, without its message type.
pub(crate) trait AnyMail: Any {
    /// Adds a message from another element. Returns the number of items added.
    ///
    /// # Errors
    /// If these are not the bytes of a message.
    fn put_bytes(
        &mut self,
        slots: Slots<'_>,
        priority: Priority,
        bytes: &[u8],
        debt: CreditDue,
    ) -> Result<usize, String>;

    /// Puts the items parked for a slot back in front of the queue. Returns the priority and debt of each, last one first.
    fn unpark(&mut self, slot: u32) -> Vec<(Priority, CreditDue)>;

    /// Adds a result. Returns the number of items added.
    fn put_outcome(&mut self, slots: Slots<'_>, outcome: Outcome) -> usize;

    /// Removes from `slots` those for which an item to a single chare waits.
    fn retain_unused(&self, slots: &mut BTreeSet<u32>);
}

impl<M: Payload> AnyMail for Mail<M> {
    fn put_bytes(
        &mut self,
        slots: Slots<'_>,
        priority: Priority,
        bytes: &[u8],
        debt: CreditDue,
    ) -> Result<usize, String> {
        let message = self.codec.decode(bytes)?;
        Ok(self.put_for(slots, priority, Work::Message(message), debt))
    }

    fn unpark(&mut self, slot: u32) -> Vec<(Priority, CreditDue)> {
        let parked = self.parked.remove(&slot).unwrap_or_default();
        let back = |(priority, item)| {
            let (WorkItem::One { debt, .. } | WorkItem::AllFrom { debt, .. }) = &item;
            let debt = debt.clone();
            self.put_back(priority, item);
            (priority, debt)
        };
        parked.into_iter().rev().map(back).collect()
    }

    fn put_outcome(&mut self, slots: Slots<'_>, outcome: Outcome) -> usize {
        self.put_for(slots, Priority::default(), Work::Outcome(Box::new(outcome)), CreditDue::NONE)
    }

    fn retain_unused(&self, slots: &mut BTreeSet<u32>) {
        for item in self.default_priority.iter().chain(self.other.values().flatten()) {
            match item {
                WorkItem::One { slot, .. } => _ = slots.remove(slot),
                WorkItem::AllFrom { .. } => {}
            }
        }
    }
}
