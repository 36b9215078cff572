//! The chares of one array that are on this element.

use super::chare::{Chare, Context};
use super::core::Core;
use super::id::{ArrayId, Priority};
use super::mail::{Item, Outcome, Work};

/// In the order of their slots.
pub(crate) struct Array<C> {
    pub(crate) chares: Vec<C>,
}

/// The chares of an array of any type.
pub(crate) trait AnyArray {
    /// Runs the next message of that priority, of which there is one.
    fn run(&mut self, core: &mut Core, array: ArrayId, priority: Priority);
}

impl<C: Chare> AnyArray for Array<C> {
    fn run(&mut self, core: &mut Core, array: ArrayId, priority: Priority) {
        let (slot, work) = match core.mail::<C::Message>(array).take(priority) {
            Item::One { slot, work } => (slot, work),
            Item::From { slot, work } if slot as usize + 1 < self.chares.len() => {
                let rest = Item::From { slot: slot + 1, work: work.clone() };
                core.mail::<C::Message>(array).put_back(priority, rest);
                core.ready.put_back(array, priority);
                (slot, work)
            }
            Item::From { slot, work } => (slot, work),
        };
        let chare = &mut self.chares[slot as usize];
        let mut cx = Context::new(core, array, slot);
        match work {
            Work::Message(message) => chare.entry(message, &mut cx),
            Work::Outcome(outcome) => {
                let Outcome { tag, value } = *outcome;
                chare.outcome(tag, value, &mut cx);
            }
        }
    }
}
