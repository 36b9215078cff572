//! The chares of one array on this element.

use super::chare::{Chare, Context};
use super::core::Core;
use super::error::ChareError;
use super::id::{ArrayId, Pe, Priority};
use super::location_table::Location;
use super::mail::{Outcome, Work, WorkItem};
use super::packing::Packing;
use super::payload::Payload;
use super::record;
use super::waiting_methods::{TAGS, name_of, split_state};

pub(crate) struct Array<C> {
    /// Chares by slot. A chare that moved away leaves an empty slot.
    pub(crate) chares: Vec<Option<C>>,
    /// Number of chares that began on this element. They have the first slots.
    pub(crate) initial_count: u32,
    /// How to pack chares; only for a migratable array.
    pub(crate) packing: Option<Packing<C>>,
}

/// The chares of an array, without their type.
pub(crate) trait AnyArray {
    /// Runs the next message of that priority, which must exist. Returns true if a chare ran; it did not if the
    /// message was forwarded to a chare that has moved.
    fn run(&mut self, core: &mut Core, array: ArrayId, priority: Priority) -> bool;

    /// Returns the number, next reduction round and state of each chare.
    ///
    /// # Errors
    /// Returns an error if a chare cannot be saved.
    fn save(&mut self, core: &mut Core, array: ArrayId) -> Result<Vec<(u32, u32, Vec<u8>)>, ChareError>;

    /// Restores the chare in a slot from its saved state.
    ///
    /// # Errors
    /// Returns an error if `state` is not a state of the chare.
    fn restore(&mut self, core: &mut Core, array: ArrayId, slot: u32, state: &[u8]) -> Result<(), ChareError>;

    /// Moves the chare in a slot to another element, if it can move.
    fn migrate(&mut self, core: &mut Core, array: ArrayId, slot: u32, to: Pe);

    /// Returns what waiting chares wait for, with their numbers, for chares that report it.
    fn waits(&self, core: &Core, array: ArrayId) -> Vec<(u32, String)>;

    /// Unpacks a chare that has arrived from another element. `body` is the body of its record.
    ///
    /// # Errors
    /// Returns an error if no such chare can arrive.
    fn arrive(&mut self, core: &mut Core, array: ArrayId, from: Pe, number: u32, body: &[u8])
    -> Result<(), ChareError>;
}

impl<C: Chare> AnyArray for Array<C> {
    fn run(&mut self, core: &mut Core, array: ArrayId, priority: Priority) -> bool {
        let (slot, work, debt) = match core.mail::<C::Message>(array).take(priority) {
            WorkItem::One { slot, work, debt } => (slot, work, debt),
            WorkItem::AllFrom { slot, work, debt } if slot + 1 < self.initial_count => {
                let rest = WorkItem::AllFrom { slot: slot + 1, work: work.clone(), debt: debt.clone() };
                core.mail::<C::Message>(array).put_back(priority, rest);
                core.ready.put_back(array, priority);
                (slot, work, debt)
            }
            WorkItem::AllFrom { slot, work, debt } => (slot, work, debt),
        };
        let Some(chare) = &mut self.chares[slot as usize] else {
            core.forward_item(array, slot, priority, (work, debt));
            return false;
        };
        if !core.ready.parking.is_empty() && core.ready.parking.is_parked((array, slot)) {
            core.hold((array, slot), &debt);
            core.mail::<C::Message>(array).park(slot, priority, WorkItem::One { slot, work, debt });
            return false;
        }
        if core.account.is_named() {
            let name = match &work {
                Work::Message(message) => message.entry_method(),
                Work::Outcome(outcome) if outcome.tag >= TAGS => name_of(outcome.tag),
                Work::Outcome(outcome) => chare.name_of_outcome(outcome.tag),
            };
            let number = core.roster(array).number(slot);
            core.account.runs(array, number, &name);
        }
        core.outbound.credits.begin_entry();
        let mut cx = Context::new(core, array, slot);
        match work {
            Work::Message(message) => chare.entry(message, &mut cx),
            Work::Outcome(outcome) => {
                let Outcome { tag, value } = *outcome;
                match tag < TAGS {
                    true => chare.on_result(tag, value, &mut cx),
                    false => cx.deliver(tag, value),
                }
            }
        }
        if core.waits.is_woken() {
            core.resume(array, slot, &mut self.chares[slot as usize]);
        }
        let is_over = core.outbound.credits.is_over();
        core.return_credit(debt);
        if core.transit.is_attentive() {
            self.after_entry(core, array, slot);
        }
        if is_over && self.chares[slot as usize].is_some() {
            core.park(array, slot);
        }
        true
    }

    fn save(&mut self, core: &mut Core, array: ArrayId) -> Result<Vec<(u32, u32, Vec<u8>)>, ChareError> {
        let here = (0..self.chares.len() as u32).filter(|slot| self.chares[*slot as usize].is_some());
        let here: Vec<u32> = here.collect();
        let saved = here.into_iter().map(|slot| {
            let packed = self.pack(core, array, slot);
            let (roster, reduction) = (core.roster(array), &core.reductions[array.0 as usize]);
            let number = roster.number(slot);
            let state = packed.map_err(|why| {
                let (array, index) = (roster.name.clone(), roster.shape.index(number));
                ChareError::Save { array, index, why }
            })?;
            Ok((number, reduction.round(slot), state))
        });
        saved.collect()
    }

    fn restore(&mut self, core: &mut Core, array: ArrayId, slot: u32, state: &[u8]) -> Result<(), ChareError> {
        let roster = core.roster(array);
        let (name, index) = (roster.name.clone(), roster.shape.index(roster.number(slot)));
        let wrong = |why| ChareError::Restore { array: name.clone(), why: format!("chare {index}: {why}") };
        let (state, kept) = split_state(state).map_err(wrong)?;
        let restored = match &mut self.packing {
            Some(packing) => (packing.unpack)(index, state),
            None => Err("its array is not migratable".into()),
        };
        self.chares[slot as usize] = Some(restored.map_err(wrong)?);
        core.unpack_kept::<C>(array, slot, kept).map_err(wrong)
    }

    fn migrate(&mut self, core: &mut Core, array: ArrayId, slot: u32, to: Pe) {
        let can_move = self.packing.as_ref().is_some_and(|packing| match &self.chares[slot as usize] {
            Some(chare) => core.waits.waits_for(array, slot).is_none() && (packing.can_move)(chare),
            None => false,
        });
        if can_move && self.depart(core, array, slot, to).is_err() {
            // The chare stays here; the balancer may order it to move again.
            core.transit.order_done(array, core.roster(array).number(slot));
        }
    }

    fn waits(&self, core: &Core, array: ArrayId) -> Vec<(u32, String)> {
        let here = (0..).zip(&self.chares).filter_map(|(slot, chare)| Some((slot, chare.as_ref()?)));
        let waits = |(slot, chare): (u32, &C)| {
            let kept = |count| format!("a method that receives its kept messages ({count})");
            let kept = Some(core.waits.kept(array, slot)).filter(|count| *count > 0).map(kept);
            let waits = chare.waits_for().or_else(|| core.waits.waits_for(array, slot)).or(kept)?;
            Some((core.roster(array).number(slot), waits))
        };
        here.filter_map(waits).collect()
    }

    fn arrive(
        &mut self,
        core: &mut Core,
        array: ArrayId,
        from: Pe,
        number: u32,
        body: &[u8],
    ) -> Result<(), ChareError> {
        let wrong = |why| ChareError::Batch { from, why };
        let (moves, rest) = record::number(body).map_err(wrong)?;
        let (round, rest) = record::number(rest).map_err(wrong)?;
        let (state, kept) = split_state(rest).map_err(wrong)?;
        let roster = core.roster(array);
        let Some(packing) = self.packing.as_mut() else {
            return Err(wrong(format!("a chare of array {}, which is not migratable", roster.name)));
        };
        if !matches!(roster.location(number), Some(Location::At(_))) || moves <= roster.moves(number) {
            return Err(wrong(format!("chare {number} of array {} cannot arrive after {moves} moves", roster.name)));
        }
        let (index, name) = (roster.shape.index(number), roster.name.clone());
        let began = core.move_begins();
        let chare = (packing.unpack)(index, state);
        let fails = |why| ChareError::Migration { array: name.clone(), index, why };
        let chare = chare.map_err(fails)?;
        let slot = core.arrive(array, number, moves, round);
        if slot as usize == self.chares.len() {
            self.chares.push(None);
        }
        self.chares[slot as usize] = Some(chare);
        core.unpack_kept::<C>(array, slot, kept).map_err(fails)?;
        core.move_ends(began);
        core.release(array, number, slot)
    }
}

impl<C: Chare> Array<C> {
    fn after_entry(&mut self, core: &mut Core, array: ArrayId, slot: u32) {
        let leaving = core.transit.destination.take();
        let ordered = core.after_entry(array, slot);
        if let Some(to) = leaving {
            if let Err(why) = self.depart(core, array, slot, to) {
                core.cannot_move(array, core.roster(array).number(slot), why);
            }
        } else if let Some(to) = ordered {
            self.migrate(core, array, slot, to);
        }
    }

    /// # Errors
    /// Returns the reason if the chare cannot be packed. It then stays here.
    fn depart(&mut self, core: &mut Core, array: ArrayId, slot: u32, to: Pe) -> Result<(), String> {
        let began = core.move_begins();
        let state = self.pack(core, array, slot)?;
        core.move_ends(began);
        core.depart(array, slot, to, &state);
        core.waits.forget(array, slot);
        self.chares[slot as usize] = None;
        Ok(())
    }

    /// Packs the state of a chare, with the messages and replies kept for it.
    ///
    /// # Errors
    /// Returns the reason if the chare cannot be packed.
    fn pack(&mut self, core: &mut Core, array: ArrayId, slot: u32) -> Result<Vec<u8>, String> {
        let Some(packing) = &mut self.packing else { return Err("its array is not migratable".into()) };
        if let Some(what) = core.waits.waits_for(array, slot) {
            return Err(format!("one of its methods waits for {what}; end such methods first"));
        }
        let chare = self.chares[slot as usize].as_ref().expect("the chare is here");
        let mut state = (packing.pack)(chare)?;
        core.pack_kept::<C>(array, slot, &mut state)?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use gridloom_base::Time;
    use gridloom_derive::Message;

    use super::*;
    use crate::balance::Balancer;
    use crate::element::{Element, Step};
    use crate::placement::{Elements, Placement};

    #[derive(Clone, Message)]
    #[message(crate = "gridloom_layout")]
    struct Go {
        to: u32,
    }

    struct Mover;

    impl Chare for Mover {
        type Message = Go;

        fn entry(&mut self, go: Go, cx: &mut Context<'_, Mover>) {
            cx.migrate_to(Pe(go.to));
        }
    }

    #[test]
    fn a_balancer_counts_the_time_of_moves_and_not_that_of_checkpoints() {
        let mut element = Element::new(Pe(0), Arc::new(Elements::single_site(2)));
        let now = Cell::new(0);
        element.set_clock(move || Time(now.replace(now.get() + 1)));
        let packing = Packing::new(|_: &Mover| Ok(Vec::new()), |_, _| Ok(Mover));
        let movers = element.migratable_array("movers", 1.into(), &Placement::RoundRobin, |_| Mover, packing).unwrap();
        element.set_balancer(Balancer::by_name("refine").unwrap());
        let moving_ns = |element: &Element| element.core.balancing.meter.as_ref().unwrap().moving_ns;
        assert_eq!(element.arrays[0].save(&mut element.core, ArrayId(0)).unwrap().len(), 1);
        assert_eq!(moving_ns(&element), 0);
        element.start(|cx| cx.send(movers.at(0), Go { to: 1 }));
        while element.step().unwrap() != Step::Idle {}
        assert!(moving_ns(&element) > 0);
    }
}
