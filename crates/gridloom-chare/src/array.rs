//! The chares of one array that are on this element.

use super::chare::{Chare, Context};
use super::core::Core;
use super::error::ChareError;
use super::id::{ArrayId, Pe, Priority};
use super::mail::{Item, Outcome, Work};
use super::packing::Packing;
use super::record;
use super::roster::Place;

pub(crate) struct Array<C> {
    /// By slot. A chare that has moved away leaves an empty one.
    pub(crate) chares: Vec<Option<C>>,
    /// How many began here: in the first slots.
    pub(crate) natives: u32,
    /// Of a migratable array.
    pub(crate) packing: Option<Packing<C>>,
}

/// The chares of an array of any type.
pub(crate) trait AnyArray {
    /// Runs the next message of that priority, of which there is one.
    fn run(&mut self, core: &mut Core, array: ArrayId, priority: Priority);

    /// A chare comes from another element: the body of its record.
    ///
    /// # Errors
    /// If no such chare can come.
    fn arrive(&mut self, core: &mut Core, array: ArrayId, from: Pe, number: u32, body: &[u8])
    -> Result<(), ChareError>;
}

impl<C: Chare> AnyArray for Array<C> {
    fn run(&mut self, core: &mut Core, array: ArrayId, priority: Priority) {
        let (slot, work) = match core.mail::<C::Message>(array).take(priority) {
            Item::One { slot, work } => (slot, work),
            Item::From { slot, work } if slot + 1 < self.natives => {
                let rest = Item::From { slot: slot + 1, work: work.clone() };
                core.mail::<C::Message>(array).put_back(priority, rest);
                core.ready.put_back(array, priority);
                (slot, work)
            }
            Item::From { slot, work } => (slot, work),
        };
        let Some(chare) = &mut self.chares[slot as usize] else { return core.follow(array, slot, priority, work) };
        let mut cx = Context::new(core, array, slot);
        match work {
            Work::Message(message) => chare.entry(message, &mut cx),
            Work::Outcome(outcome) => {
                let Outcome { tag, value } = *outcome;
                chare.outcome(tag, value, &mut cx);
            }
        }
        if let Some(to) = core.transit.leaving.take() {
            self.depart(core, array, slot, to);
        }
    }

    fn arrive(
        &mut self,
        core: &mut Core,
        array: ArrayId,
        from: Pe,
        number: u32,
        body: &[u8],
    ) -> Result<(), ChareError> {
        let wrong = |why| ChareError::Letter { from, why };
        let (moves, rest) = record::number(body).map_err(wrong)?;
        let (round, state) = record::number(rest).map_err(wrong)?;
        let roster = core.roster(array);
        let Some(packing) = self.packing.as_mut() else {
            return Err(wrong(format!("a chare of array {}, whose chares do not move", roster.name)));
        };
        if !matches!(roster.place(number), Some(Place::At(_))) || moves <= roster.moves(number) {
            return Err(wrong(format!("chare {number} of array {} cannot come after {moves} moves", roster.name)));
        }
        let index = roster.shape.index(number);
        let chare = (packing.unpack)(index, state).map_err(|why| {
            let array = roster.name.clone();
            ChareError::Migration { array, index, why }
        })?;
        let slot = core.arrive(array, number, moves, round);
        if slot as usize == self.chares.len() {
            self.chares.push(None);
        }
        self.chares[slot as usize] = Some(chare);
        core.release(array, number, slot)
    }
}

impl<C> Array<C> {
    fn depart(&mut self, core: &mut Core, array: ArrayId, slot: u32, to: Pe) {
        let packing = self.packing.as_mut().expect("only chares of a migratable array leave");
        let chare = self.chares[slot as usize].take().expect("it has just run");
        match (packing.pack)(&chare) {
            Ok(state) => core.depart(array, slot, to, &state),
            Err(why) => core.cannot_move(array, core.roster(array).number(slot), why),
        }
    }
}
