//! The location table of an array: its chares, and where they are as far as this element knows.
//!
//! The chares that begin here are the *natives* of this element. They keep their slots forever, so that a message for
//! all chares of the array reaches each native once, through its slot. Chares that arrive later are *guests*.
//!
//! **Invariant:** of two known locations of a chare, the one after more moves is the later one, and is kept.

use std::collections::BTreeSet;

use super::id::{Index, Pe};
use super::shape::Shape;

/// The location of a chare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Location {
    Here { slot: u32 },
    At(Pe),
}

/// Marks a slot of this element in the table of locations.
const LOCAL: u32 = 1 << 31;
/// Minimum number of slots left by guests before the table checks which of them can be reused.
const LEFT_MIN: usize = 64;

pub(crate) struct LocationTable {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    /// True if its chares can move.
    pub(crate) is_migratable: bool,
    /// For each chare, true if it exchanges messages with other sites, according to its placement. Empty if the placement does not know.
    at_border: Vec<bool>,
    /// Location by chare number: an element, or [`LOCAL`] and a slot.
    places: Vec<u32>,
    /// Number of moves after which each chare was at its known location, by number. Empty until a chare is known to have moved.
    moves: Vec<u32>,
    /// The numbers of the chares here, by slot. Natives are in order. A slot keeps its number after its chare leaves.
    numbers: Vec<u32>,
    initial_chares: u32,
    /// Slots of guests that have left. Waiting messages may still refer to them.
    vacated_slots: Vec<u32>,
    /// Slots to which no message refers.
    free: Vec<u32>,
}

impl LocationTable {
    pub(crate) fn new(name: String, shape: Shape, is_migratable: bool) -> LocationTable {
        let places = vec![0; shape.len()];
        let (at_border, moves, numbers, vacated_slots, free) = Default::default();
        LocationTable {
            name,
            shape,
            is_migratable,
            at_border,
            places,
            moves,
            numbers,
            initial_chares: 0,
            vacated_slots,
            free,
        }
    }

    pub(crate) fn set_border(&mut self, at_border: Vec<bool>) {
        self.at_border = at_border;
    }

    pub(crate) fn is_at_border(&self, index: &Index) -> bool {
        !self.at_border.is_empty() && self.shape.number(index).is_some_and(|number| self.at_border[number as usize])
    }

    /// Records the initial element of a chare. The chares of one element must be added in the order of their numbers.
    pub(crate) fn begin_at(&mut self, number: u32, element: Pe, me: Pe) {
        self.places[number as usize] = if element == me {
            debug_assert!(self.numbers.last().is_none_or(|last| *last < number), "natives are in order");
            self.numbers.push(number);
            self.initial_chares += 1;
            LOCAL | (self.initial_chares - 1)
        } else {
            element.0
        };
    }

    #[inline]
    pub(crate) fn location(&self, number: u32) -> Option<Location> {
        let place = *self.places.get(number as usize)?;
        Some(if place & LOCAL != 0 { Location::Here { slot: place & !LOCAL } } else { Location::At(Pe(place)) })
    }

    /// Returns the number of moves after which the chare was at its known location.
    pub(crate) fn moves(&self, number: u32) -> u32 {
        self.moves.get(number as usize).copied().unwrap_or(0)
    }

    /// Returns the number of the chare in a slot, or of the last one that was there.
    pub(crate) fn number(&self, slot: u32) -> u32 {
        self.numbers[slot as usize]
    }

    /// Returns the numbers of the chares that began here, in the slots from 0 on.
    pub(crate) fn natives(&self) -> &[u32] {
        &self.numbers[..self.initial_chares as usize]
    }

    /// Records that a chare leaves for another element. Returns its number of moves.
    pub(crate) fn record_departure(&mut self, slot: u32, to: Pe) -> u32 {
        let number = self.number(slot);
        if slot >= self.initial_chares {
            self.vacated_slots.push(slot);
        }
        let moves = self.moves(number) + 1;
        self.set(number, to.0, moves);
        moves
    }

    /// Adds a chare that has arrived and returns its slot. `unused` removes from a set the slots to which messages refer.
    pub(crate) fn record_arrival(&mut self, number: u32, moves: u32, unused: impl FnOnce(&mut BTreeSet<u32>)) -> u32 {
        let slot = match self.natives().binary_search(&number) {
            Ok(slot) => slot as u32,
            Err(_) => self.guest_slot(unused),
        };
        self.numbers[slot as usize] = number;
        self.set(number, LOCAL | slot, moves);
        slot
    }

    fn guest_slot(&mut self, unused: impl FnOnce(&mut BTreeSet<u32>)) -> u32 {
        // Each scan of the messages is amortized over as many arrivals as there are slots.
        if self.free.is_empty() && self.vacated_slots.len() >= LEFT_MIN.max(self.numbers.len() / 2) {
            let mut slots = self.vacated_slots.iter().copied().collect();
            unused(&mut slots);
            self.vacated_slots.retain(|slot| !slots.contains(slot));
            self.free.extend(slots);
        }
        self.free.pop().unwrap_or_else(|| {
            self.numbers.push(0);
            (self.numbers.len() - 1) as u32
        })
    }

    /// Records a chare's location, unless the chare is here or a later location is known.
    pub(crate) fn record_location(&mut self, number: u32, at: Pe, moves: u32) {
        let is_away = matches!(self.location(number), Some(Location::At(_)));
        if is_away && moves > self.moves(number) {
            self.set(number, at.0, moves);
        }
    }

    fn set(&mut self, number: u32, place: u32, moves: u32) {
        if self.moves.is_empty() {
            self.moves = vec![0; self.places.len()];
        }
        self.places[number as usize] = place;
        self.moves[number as usize] = moves;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster() -> LocationTable {
        let mut roster = LocationTable::new("chares".into(), 10.into(), true);
        (0..10).for_each(|number| roster.begin_at(number, Pe(number % 2), Pe(0)));
        roster
    }

    #[test]
    fn a_native_has_its_slot_again_when_it_returns() {
        let mut roster = roster();
        assert_eq!(roster.natives(), [0, 2, 4, 6, 8]);
        assert_eq!(roster.location(4), Some(Location::Here { slot: 2 }));
        assert_eq!(roster.record_departure(2, Pe(1)), 1);
        assert_eq!((roster.location(4), roster.moves(4)), (Some(Location::At(Pe(1))), 1));
        assert_eq!(roster.record_arrival(4, 2, |_| {}), 2);
        assert_eq!((roster.location(4), roster.moves(4)), (Some(Location::Here { slot: 2 }), 2));
    }

    #[test]
    fn an_earlier_place_is_not_taken_for_a_later_one() {
        let mut roster = roster();
        roster.record_location(3, Pe(5), 4);
        roster.record_location(3, Pe(6), 4);
        roster.record_location(3, Pe(7), 3);
        roster.record_location(30, Pe(7), 3);
        assert_eq!((roster.location(3), roster.moves(3)), (Some(Location::At(Pe(5))), 4));
    }

    #[test]
    fn a_guest_s_slot_is_used_again_once_no_message_names_it() {
        let mut roster = roster();
        for round in 0..1000 {
            let slot = roster.record_arrival(1, 2 * round + 1, |slots| _ = slots.remove(&7));
            assert!((5..5 + 3 * LEFT_MIN as u32).contains(&slot), "round {round}: slot {slot}");
            assert!(slot != 7 || round < 5, "a message for the chare that was in it waits");
            assert_eq!((roster.number(slot), roster.location(1)), (1, Some(Location::Here { slot })));
            roster.record_departure(slot, Pe(1));
        }
    }
}
