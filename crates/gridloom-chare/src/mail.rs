//! The messages of one array that wait, with their own type: none is boxed, and none is copied before several chares get it.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::id::Priority;
use super::payload::{Codec, Payload};
use super::value::Value;

/// What a chare is run for.
#[derive(Clone, Debug)]
pub(crate) enum Work<M> {
    Message(M),
    Outcome(Box<Outcome>),
}

/// The result of a reduction, or that all is quiet.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) tag: u32,
    pub(crate) value: Value,
}

/// Something that waits.
#[derive(Clone, Debug)]
pub(crate) enum Item<M> {
    One {
        slot: u32,
        work: Work<M>,
    },
    /// For the natives of this element from that slot on.
    From {
        slot: u32,
        work: Work<M>,
    },
}

/// Which chares of this element something is for: all that began here, or those in some slots.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slots<'a> {
    All,
    Some(&'a [u32]),
}

pub(crate) struct Mail<M: Payload> {
    /// Of the usual priority.
    plain: VecDeque<Item<M>>,
    other: BTreeMap<Priority, VecDeque<Item<M>>>,
    pub(crate) codec: M::Codec,
}

impl<M: Payload> Mail<M> {
    /// # Errors
    /// If `M` is no message type.
    pub(crate) fn new() -> Result<Mail<M>, String> {
        Ok(Mail { plain: VecDeque::new(), other: BTreeMap::new(), codec: M::Codec::new()? })
    }

    pub(crate) fn put(&mut self, priority: Priority, item: Item<M>) {
        self.queue(priority).push_back(item);
    }

    pub(crate) fn put_back(&mut self, priority: Priority, item: Item<M>) {
        self.queue(priority).push_front(item);
    }

    pub(crate) fn take(&mut self, priority: Priority) -> Item<M> {
        if priority == Priority::default() {
            return self.plain.pop_front().expect("the ready queue counts what waits");
        }
        let queue = self.queue(priority);
        let item = queue.pop_front().expect("the ready queue counts what waits");
        if queue.is_empty() {
            self.other.remove(&priority);
        }
        item
    }

    fn queue(&mut self, priority: Priority) -> &mut VecDeque<Item<M>> {
        if priority == Priority::default() { &mut self.plain } else { self.other.entry(priority).or_default() }
    }

    /// How many items it put.
    fn put_for(&mut self, slots: Slots<'_>, priority: Priority, work: Work<M>) -> usize {
        match slots {
            Slots::All => {
                self.put(priority, Item::From { slot: 0, work });
                1
            }
            Slots::Some(slots) => {
                let Some((last, others)) = slots.split_last() else { return 0 };
                others.iter().for_each(|slot| self.put(priority, Item::One { slot: *slot, work: work.clone() }));
                self.put(priority, Item::One { slot: *last, work });
                slots.len()
            }
        }
    }
}

/// The mail of an array of any type.
pub(crate) trait AnyMail: Any {
    /// A message from another element. How many items wait more.
    ///
    /// # Errors
    /// If these are not the bytes of a message.
    fn put_bytes(&mut self, slots: Slots<'_>, priority: Priority, bytes: &[u8]) -> Result<usize, String>;

    /// How many items wait more.
    fn put_outcome(&mut self, slots: Slots<'_>, outcome: Outcome) -> usize;

    /// Takes out of these the slots of single chares for which something waits.
    fn retain_unused(&self, slots: &mut BTreeSet<u32>);
}

impl<M: Payload> AnyMail for Mail<M> {
    fn put_bytes(&mut self, slots: Slots<'_>, priority: Priority, bytes: &[u8]) -> Result<usize, String> {
        let message = self.codec.decode(bytes)?;
        Ok(self.put_for(slots, priority, Work::Message(message)))
    }

    fn put_outcome(&mut self, slots: Slots<'_>, outcome: Outcome) -> usize {
        self.put_for(slots, Priority::default(), Work::Outcome(Box::new(outcome)))
    }

    fn retain_unused(&self, slots: &mut BTreeSet<u32>) {
        for item in self.plain.iter().chain(self.other.values().flatten()) {
            match item {
                Item::One { slot, .. } => _ = slots.remove(slot),
                Item::From { .. } => {}
            }
        }
    }
}
