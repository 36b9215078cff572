//! A binary heap of dates by slot, in which a slot's date can be changed or removed.
//!
//! **Invariant:** `places[slot]` is the slot's index in `entries`, or [`NOWHERE`]. Equal dates come out in order of
//! serial number, so that what happens at the same time happens in the order in which it was begun.

const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    date: f64,
    serial: u64,
    slot: u32,
}

impl Entry {
    fn precedes(&self, other: &Entry) -> bool {
        self.date.total_cmp(&other.date).then(self.serial.cmp(&other.serial)).is_lt()
    }
}

/// The heap.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap {
    entries: Vec<Entry>,
    places: Vec<u32>,
}

impl Heap {
    /// The earliest date and its slot.
    pub(super) fn first(&self) -> Option<(f64, u32)> {
        self.entries.first().map(|entry| (entry.date, entry.slot))
    }

    /// Sets or moves a slot's date.
    pub(super) fn set(&mut self, slot: u32, serial: u64, date: f64) {
        if slot as usize >= self.places.len() {
            self.places.resize(slot as usize + 1, NOWHERE);
        }
        let entry = Entry { date, serial, slot };
        let mut at = self.places[slot as usize];
        if at == NOWHERE {
            at = self.entries.len() as u32;
            self.entries.push(entry);
        }
        self.put(at as usize, entry);
        self.settle(at as usize);
    }

    /// Removes a slot's date, if it has one.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(at) = self.places.get(slot as usize).copied().filter(|at| *at != NOWHERE) else { return };
        self.places[slot as usize] = NOWHERE;
        let last = self.entries.pop().expect("a slot with a place is in the heap");
        if last.slot != slot {
            self.put(at as usize, last);
            self.settle(at as usize);
        }
    }

    fn put(&mut self, at: usize, entry: Entry) {
        self.entries[at] = entry;
        self.places[entry.slot as usize] = at as u32;
    }

    fn settle(&mut self, mut at: usize) {
        let entry = self.entries[at];
        while at > 0 && entry.precedes(&self.entries[(at - 1) / 2]) {
            self.put(at, self.entries[(at - 1) / 2]);
            at = (at - 1) / 2;
        }
        loop {
            let mut child = 2 * at + 1;
            if child + 1 < self.entries.len() && self.entries[child + 1].precedes(&self.entries[child]) {
                child += 1;
            }
            if child >= self.entries.len() || !self.entries[child].precedes(&entry) {
                break;
            }
            self.put(at, self.entries[child]);
            at = child;
        }
        self.put(at, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against a sorted map, under any sequence of settings and removals.
        #[test]
        fn the_first_is_always_the_least(steps in prop::collection::vec((0u32..12, prop::option::of(0u8..6)), 0..200)) {
            let (mut heap, mut model) = (Heap::default(), BTreeMap::new());
            for (slot, date) in steps {
                match date {
                    Some(date) => {
                        heap.set(slot, u64::from(slot), f64::from(date));
                        model.insert(slot, date);
                    }
                    None => {
                        heap.remove(slot);
                        model.remove(&slot);
                    }
                }
                let least = model.iter().map(|(slot, date)| (*date, *slot)).min();
                prop_assert_eq!(heap.first(), least.map(|(date, slot)| (f64::from(date), slot)));
            }
        }
    }
}
