//! The state of the program's memory in a run of a block: its last writers, its buffers, and the values that were passed.

use std::collections::{BTreeMap, BTreeSet};

use super::super::remote_results::Regions;

/// First address and size in bytes of memory.
pub(super) type Range = (usize, usize);

/// Regions with their writers, and values for memory that was passed.
pub(super) struct MemoryState<W, P> {
    pub(super) regions: Regions<W>,
    buffers: Buffers,
    /// Values that were passed, until something else is written there.
    passed: BTreeMap<Range, Vec<P>>,
    longest_passed: usize,
    /// Addresses in buffers that the program's next own work changes.
    to_write: Vec<usize>,
}

impl<W: Clone, P> MemoryState<W, P> {
    pub(super) fn new(regions: Regions<W>) -> MemoryState<W, P> {
        let (buffers, passed) = (Buffers::default(), BTreeMap::new());
        MemoryState { regions, buffers, passed, longest_passed: 0, to_write: Vec::new() }
    }

    /// Records that a call writes there.
    pub(super) fn write(&mut self, start: usize, bytes: usize, writer: W) {
        self.forget_passed(start, bytes);
        self.regions.write(start, bytes, writer);
        self.buffers.add(start, bytes);
    }

    /// Returns the buffer at an address, as it was passed to calls.
    pub(super) fn buffer_at(&self, address: usize) -> Option<Range> {
        self.buffers.largest_at(address).or_else(|| self.regions.whole_at(address))
    }

    /// Returns the values that were passed for that memory.
    pub(super) fn passed(&self, range: Range) -> &[P] {
        self.passed.get(&range).map_or(&[], Vec::as_slice)
    }

    pub(super) fn passed_mut(&mut self, range: Range) -> &mut Vec<P> {
        self.longest_passed = self.longest_passed.max(range.1);
        self.passed.entry(range).or_default()
    }

    /// Removes the values that were passed for this memory, which has other content from now on.
    pub(super) fn forget_passed(&mut self, start: usize, bytes: usize) {
        let near = (start.saturating_sub(self.longest_passed), 0)..(start.saturating_add(bytes), 0);
        let met = self.passed.range(near).map(|(range, _)| *range).filter(|(first, size)| first + size > start);
        let met: Vec<Range> = met.collect();
        met.iter().for_each(|range| drop(self.passed.remove(range)));
    }

    /// Records that the program's next own work changes these buffers.
    pub(super) fn will_be_written(&mut self, addresses: &[usize]) {
        self.to_write.extend(addresses);
    }

    /// Begins the program's own work. Returns addresses in the buffers that it changes, and removes the values that
    /// were passed for them.
    pub(super) fn take_to_write(&mut self) -> Vec<usize> {
        let addresses = std::mem::take(&mut self.to_write);
        addresses.iter().for_each(|address| self.forget_passed(*address, 1));
        addresses
    }
}

/// The buffers that were passed to calls; parts of each may have been written since.
#[derive(Clone, Debug, Default)]
struct Buffers {
    /// First addresses and sizes.
    all: BTreeSet<Range>,
    longest: usize,
}

impl Buffers {
    fn add(&mut self, start: usize, bytes: usize) {
        self.longest = self.longest.max(bytes);
        self.all.insert((start, bytes));
    }

    /// Returns the largest buffer at an address.
    fn largest_at(&self, address: usize) -> Option<Range> {
        let near = self.all.range((address.saturating_sub(self.longest), 0)..=(address, usize::MAX));
        let over = near.filter(|(start, bytes)| address - start < *bytes);
        over.max_by_key(|(_, bytes)| *bytes).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_buffer_over_an_address_is_found() {
        let mut buffers = Buffers::default();
        for (start, bytes) in [(8, 100), (8, 4), (40, 4), (200, 8)] {
            buffers.add(start, bytes);
        }
        let over = [7, 8, 41, 107, 108, 207].map(|address| buffers.largest_at(address));
        let first = Some((8, 100));
        assert_eq!(over, [None, first, first, first, None, Some((200, 8))]);
    }

    #[test]
    fn what_is_written_over_was_not_passed() {
        let mut known: MemoryState<u8, char> = MemoryState::new(Regions::default());
        for (range, what) in [((0, 100), 'a'), ((40, 8), 'b'), ((96, 8), 'c'), ((104, 8), 'd')] {
            known.passed_mut(range).push(what);
        }
        known.write(98, 4, 1);
        assert_eq!([(0, 100), (40, 8), (96, 8), (104, 8)].map(|range| known.passed(range).len()), [0, 1, 0, 1]);
        known.will_be_written(&[41]);
        assert_eq!((known.take_to_write(), known.passed((40, 8)).len()), (vec![41], 0));
    }
}
