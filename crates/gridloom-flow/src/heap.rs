//! Binary heaps of keys by slot. A slot's key can be changed or removed.
//!
//! **Invariant:** for each slot in a heap, its position in [`Positions`] is its index in `entries`. Several heaps can
//! share one [`Positions`] if no slot is in two of them. Equal keys are ordered by serial number: events at the same time
//! happen in the order in which they were started.

/// The position of each slot in its heap.
#[derive(Clone, Debug, Default)]
pub(super) struct Positions(Vec<u32>);

const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) key: f64,
    pub(super) serial: u64,
    pub(super) slot: u32,
}

impl Entry {
    fn precedes(&self, other: &Entry) -> bool {
        self.key < other.key || self.key == other.key && self.serial < other.serial
    }
}

/// A heap. All operations take the positions, which it may share with other heaps.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap {
    entries: Vec<Entry>,
}

impl Heap {
    /// Returns the entry with the least key.
    pub(super) fn first(&self) -> Option<&Entry> {
        self.entries.first()
    }

    /// Returns the number of slots in the heap.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Sets or changes a slot's key, which must not be NaN.
    pub(super) fn set(&mut self, places: &mut Positions, slot: u32, serial: u64, key: f64) {
        if slot as usize >= places.0.len() {
            places.0.resize(slot as usize + 1, NOWHERE);
        }
        let entry = Entry { key, serial, slot };
        let mut at = places.0[slot as usize];
        if at == NOWHERE {
            at = self.entries.len() as u32;
            self.entries.push(entry);
        }
        self.settle(places, at as usize, entry);
    }

    /// Removes a slot and returns its key.
    pub(super) fn remove(&mut self, places: &mut Positions, slot: u32) -> Option<f64> {
        let at = places.0.get(slot as usize).copied().filter(|at| *at != NOWHERE)?;
        let key = self.entries[at as usize].key;
        places.0[slot as usize] = NOWHERE;
        let last = self.entries.pop().expect("a slot with a place is in the heap");
        if last.slot != slot {
            self.settle(places, at as usize, last);
        }
        Some(key)
    }

    /// Subtracts an amount from all keys.
    pub(super) fn subtract(&mut self, places: &mut Positions, amount: f64) {
        self.entries.iter_mut().for_each(|entry| entry.key -= amount);
        // Keys that became equal by rounding may violate the order of serial numbers.
        for at in (0..self.entries.len()).rev() {
            self.settle(places, at, self.entries[at]);
        }
    }

    fn put(&mut self, places: &mut Positions, at: usize, entry: Entry) {
        self.entries[at] = entry;
        places.0[entry.slot as usize] = at as u32;
    }

    fn settle(&mut self, places: &mut Positions, mut at: usize, entry: Entry) {
        while at > 0 && entry.precedes(&self.entries[(at - 1) / 2]) {
            self.put(places, at, self.entries[(at - 1) / 2]);
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
            self.put(places, at, self.entries[child]);
            at = child;
        }
        self.put(places, at, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Compares the heap with a sorted map under any sequence of insertions and removals.
        #[test]
        fn the_first_is_always_the_least(steps in prop::collection::vec((0u32..12, prop::option::of(0u8..6)), 0..200)) {
            let (mut heap, mut places, mut model) = (Heap::default(), Positions::default(), BTreeMap::new());
            for (slot, date) in steps {
                match date {
                    Some(date) => {
                        heap.set(&mut places, slot, u64::from(slot), f64::from(date));
                        model.insert(slot, date);
                    }
                    None => {
                        let removed = heap.remove(&mut places, slot);
                        prop_assert_eq!(removed, model.remove(&slot).map(f64::from));
                    }
                }
                let least = model.iter().map(|(slot, date)| (*date, *slot)).min();
                prop_assert_eq!(heap.first().map(|entry| (entry.key, entry.slot)), least.map(|(date, slot)| (f64::from(date), slot)));
            }
        }
    }
}
