//! The last writer of each part of the program's memory, by which `grpc_map` finds dependencies.
//!
//! A call names memory by address and size. Memory that it writes is a region; memory that it reads is looked up in
//! the regions written before. Writing over part of a region keeps its other parts, which remember their offsets in
//! the whole.
//!
//! **Invariants:** regions are disjoint and not empty; they contain each part of a write that no later write covers,
//! at its place. Nothing here accesses the memory itself.

use std::collections::BTreeMap;

/// Disjoint regions of memory, each with its last writer.
#[derive(Clone, Debug)]
pub(crate) struct Regions<W> {
    /// Parts by their first addresses.
    parts: BTreeMap<usize, Part<W>>,
}

/// A part of a write that has not been overwritten.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part<W> {
    /// First address.
    pub(crate) start: usize,
    /// First address after it.
    pub(crate) end: usize,
    pub(crate) writer: W,
    /// Offset of this part in the write, and the size of the whole write, in bytes.
    pub(crate) offset: usize,
    pub(crate) whole: usize,
}

/// The result of looking up a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Writers<W> {
    /// No call wrote there.
    Nothing,
    /// Exactly the memory that this writer wrote.
    Whole(W),
    /// Parts of these writes, in the order of addresses; between them may be memory that no call wrote.
    Parts(Vec<Part<W>>),
}

impl<W> Part<W> {
    /// True if no later write covers any of it.
    pub(crate) fn is_whole(&self) -> bool {
        self.end - self.start == self.whole
    }
}

impl<W> Part<W> {
    /// Returns the same memory with another writer.
    pub(crate) fn of<V>(self, writer: V) -> Part<V> {
        let Part { start, end, offset, whole, .. } = self;
        Part { start, end, writer, offset, whole }
    }
}

impl<W: Clone> Part<W> {
    /// Returns its part between these addresses, which must overlap it.
    pub(crate) fn within(&self, start: usize, end: usize) -> Part<W> {
        let first = self.start.max(start);
        Part { start: first, end: self.end.min(end), offset: self.offset + (first - self.start), ..self.clone() }
    }
}

impl<W> Default for Regions<W> {
    fn default() -> Regions<W> {
        Regions { parts: BTreeMap::new() }
    }
}

impl<W: Clone> Regions<W> {
    /// Records that a call writes `bytes` bytes from `start`, which replaces previous writes. 0 bytes are no write.
    ///
    /// # Panics
    /// If the memory exceeds the last address, as no memory does.
    pub(crate) fn write(&mut self, start: usize, bytes: usize, writer: W) {
        self.forget(start, bytes);
        if bytes > 0 {
            let end = end_of(start, bytes);
            self.parts.insert(start, Part { start, end, writer, offset: 0, whole: bytes });
        }
    }

    /// Removes the writes to this memory.
    pub(crate) fn forget(&mut self, start: usize, bytes: usize) {
        let end = end_of(start, bytes);
        for part in self.over(start, end) {
            self.parts.remove(&part.start);
            if part.start < start {
                self.parts.insert(part.start, Part { end: start, ..part.clone() });
            }
            if part.end > end {
                let offset = part.offset + (end - part.start);
                self.parts.insert(end, Part { start: end, offset, ..part });
            }
        }
    }

    /// Looks up a read of `bytes` bytes from `start`.
    pub(crate) fn read(&self, start: usize, bytes: usize) -> Writers<W> {
        let mut found = self.over(start, end_of(start, bytes));
        match found.as_slice() {
            [] => Writers::Nothing,
            [part] if part.start == start && part.whole == bytes && part.is_whole() => {
                Writers::Whole(found.remove(0).writer)
            }
            _ => Writers::Parts(found),
        }
    }

    /// Returns the part of the last write to that address.
    pub(crate) fn at(&self, address: usize) -> Option<&Part<W>> {
        let (_, part) = self.parts.range(..=address).next_back()?;
        (address < part.end).then_some(part)
    }

    /// Returns first address and size of the last write to that address, parts of which may have been overwritten since.
    pub(crate) fn whole_at(&self, address: usize) -> Option<(usize, usize)> {
        let part = self.at(address)?;
        Some((part.start - part.offset, part.whole))
    }

    /// Returns the memory between these addresses that no call wrote: first addresses, and first addresses after it.
    pub(crate) fn gaps(&self, start: usize, end: usize) -> Vec<(usize, usize)> {
        let (mut gaps, mut at) = (Vec::new(), start);
        for part in self.over(start, end) {
            if part.start > at {
                gaps.push((at, part.start));
            }
            at = part.end;
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// Returns all parts in the order of addresses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Part<W>> {
        self.parts.values()
    }

    /// Returns the same memory with other writers.
    pub(crate) fn map<V>(self, name: impl Fn(W) -> V) -> Regions<V> {
        let part = |(start, part): (usize, Part<W>)| {
            let Part { end, writer, offset, whole, .. } = part;
            (start, Part { start, end, writer: name(writer), offset, whole })
        };
        Regions { parts: self.parts.into_iter().map(part).collect() }
    }

    /// Restores a part of a write, which replaces writes to the same memory.
    pub(crate) fn restore(&mut self, part: Part<W>) {
        self.forget(part.start, part.end - part.start);
        self.parts.insert(part.start, part);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the parts that overlap this memory.
    pub(crate) fn parts(&self, start: usize, bytes: usize) -> Vec<Part<W>> {
        self.over(start, end_of(start, bytes))
    }

    fn over(&self, start: usize, end: usize) -> Vec<Part<W>> {
        if start == end {
            return Vec::new();
        }
        let before = self.parts.range(..start).next_back().map(|(_, part)| part).filter(|part| part.end > start);
        before.into_iter().chain(self.parts.range(start..end).map(|(_, part)| part)).cloned().collect()
    }
}

fn end_of(start: usize, bytes: usize) -> usize {
    start.checked_add(bytes).expect("memory ends before addresses do")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows addresses, writer, and offset in the whole: `4-8a+4/16`.
    fn shown(regions: &Regions<char>) -> String {
        let parts: Vec<String> =
            regions.iter().map(|p| format!("{}-{}{}+{}/{}", p.start, p.end, p.writer, p.offset, p.whole)).collect();
        parts.join(" ")
    }

    fn written(writes: &[(usize, usize, char)]) -> Regions<char> {
        let mut regions = Regions::default();
        writes.iter().for_each(|(start, bytes, writer)| regions.write(*start, *bytes, *writer));
        regions
    }

    #[test]
    fn the_last_writer_counts() {
        assert_eq!(shown(&written(&[(8, 8, 'a'), (8, 8, 'b')])), "8-16b+0/8");
        assert_eq!(shown(&written(&[(8, 8, 'a'), (0, 32, 'b')])), "0-32b+0/32");
        assert_eq!(shown(&written(&[(0, 8, 'a'), (8, 8, 'b'), (4, 8, 'c')])), "0-4a+0/8 4-12c+0/8 12-16b+4/8");
        assert_eq!(shown(&written(&[(0, 12, 'a'), (4, 4, 'b')])), "0-4a+0/12 4-8b+0/4 8-12a+8/12");
        assert_eq!(
            shown(&written(&[(0, 12, 'a'), (4, 4, 'b'), (9, 1, 'c')])),
            "0-4a+0/12 4-8b+0/4 8-9a+8/12 9-10c+0/1 10-12a+10/12"
        );
        assert_eq!(shown(&written(&[(0, 8, 'a'), (4, 0, 'b')])), "0-8a+0/8");
    }

    #[test]
    fn a_read_finds_all_of_one_or_parts() {
        let mut regions = written(&[(0, 8, 'a'), (8, 8, 'b'), (20, 4, 'c')]);
        assert_eq!(regions.read(8, 8), Writers::Whole('b'));
        assert_eq!(regions.read(16, 4), Writers::Nothing);
        assert_eq!(regions.read(8, 0), Writers::Nothing);
        let writers = |found: Writers<char>| match found {
            Writers::Parts(parts) => parts.iter().map(|part| part.writer).collect::<String>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(writers(regions.read(0, 16)), "ab");
        assert_eq!(writers(regions.read(0, 4)), "a");
        assert_eq!(writers(regions.read(0, 9)), "ab");
        assert_eq!(writers(regions.read(12, 10)), "bc");
        assert_eq!(writers(regions.read(7, 14)), "abc");
        // After a write into it, the memory is no longer whole, even if a read covers all its remaining parts.
        regions.write(4, 4, 'd');
        assert_eq!(writers(regions.read(0, 4)), "a");
        assert_eq!(regions.read(4, 4), Writers::Whole('d'));
    }

    #[test]
    fn what_is_forgotten_was_written_by_nobody() {
        let mut regions = written(&[(0, 16, 'a')]);
        regions.forget(4, 4);
        assert_eq!(shown(&regions), "0-4a+0/16 8-16a+8/16");
        assert_eq!(regions.at(4), None);
        assert_eq!(regions.at(8).map(|part| part.offset), Some(8));
        regions.forget(0, 16);
        assert_eq!(shown(&regions), "");
    }

    #[test]
    fn parts_are_cut_and_gaps_are_what_is_between() {
        let regions = written(&[(4, 8, 'a'), (20, 4, 'b')]);
        assert_eq!(regions.gaps(0, 30), [(0, 4), (12, 20), (24, 30)]);
        assert_eq!(regions.gaps(6, 20), [(12, 20)]);
        assert_eq!(regions.gaps(4, 12), []);
        let cut = regions.at(4).unwrap().within(6, 100);
        assert_eq!((cut.start, cut.end, cut.offset, cut.whole), (6, 12, 2, 8));
        let cut = regions.at(4).unwrap().within(0, 5);
        assert_eq!((cut.start, cut.end, cut.offset, cut.whole), (4, 5, 0, 8));
    }

    /// Compares with an array of bytes that each know their writer.
    #[test]
    fn random_writes_are_as_byte_by_byte() {
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % below as u64) as usize
        };
        for _ in 0..200 {
            let (mut regions, mut bytes) = (Regions::default(), [None; 64]);
            for number in 0..40 {
                let start = next(64);
                let length = next(64 - start + 1);
                let is_write = next(4) > 0;
                if is_write {
                    regions.write(start, length, number);
                } else {
                    regions.forget(start, length);
                }
                for (at, byte) in bytes[start..start + length].iter_mut().enumerate() {
                    *byte = is_write.then_some((number, at, length));
                }
                for (address, byte) in bytes.iter().enumerate() {
                    let part = regions.at(address);
                    assert_eq!(part.map(|p| (p.writer, p.offset + address - p.start, p.whole)), *byte);
                }
                let ends: Vec<(usize, usize)> = regions.iter().map(|part| (part.start, part.end)).collect();
                assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0) && ends.iter().all(|(a, b)| a < b));
            }
        }
    }
}
