//! Memory that is read while it is being filled, from its first byte to its last.
//!
//! ```text
//!  0                filled                    len
//!  +------------------+------------------------+
//!  | any reader       | the one writer         |
//!  +------------------+------------------------+
//! ```
//! Memory may be filled in several ranges, each with its own filling.
//!
//! **Invariants.** The ranges of fillings of the same memory are disjoint. Bytes before `filled` are never written
//! again, and nobody reads the bytes after it. `filled` never decreases. A filling ends whole or broken: it is whole
//! if its writer declares it, and broken if the writer is dropped before. The filled part of a broken filling can be
//! kept, and another filling continues after it.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::payload::Payload;
use crate::segment::{Segment, SegmentMut};

/// Memory being filled, as readers see it.
pub struct PartialFill {
    segment: Arc<Segment>,
    /// Range within the segment.
    range: Range<usize>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug)]
struct State {
    filled: usize,
    end: Option<FillOutcome>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FillOutcome {
    Whole,
    Broken,
}

/// The only writer of a filling.
pub struct Filler {
    filling: Arc<PartialFill>,
    filled: usize,
}

impl SegmentMut {
    /// Starts filling the memory from its first byte to its last, while readers read.
    pub fn fill(self) -> Filler {
        let range = 0..self.segment().len() as usize;
        Filler::of(self.freeze(), range, 0)
    }

    /// Splits the memory into consecutive ranges of the given sizes, which must cover it.
    ///
    /// # Panics
    /// If they do not.
    pub fn in_ranges<const N: usize>(self, bytes: [u64; N]) -> [Unfilled; N] {
        assert_eq!(bytes.iter().sum::<u64>(), self.segment().len(), "the ranges cover the memory");
        let (segment, mut from) = (self.freeze(), 0);
        bytes.map(|bytes| {
            let range = from..from + bytes as usize;
            from = range.end;
            Unfilled { segment: segment.clone(), range }
        })
    }
}

/// A range of memory to be filled.
pub struct Unfilled {
    segment: Arc<Segment>,
    range: Range<usize>,
}

impl Unfilled {
    /// Starts filling the range from its first byte to its last, while readers read.
    pub fn fill(self) -> Filler {
        Filler::of(self.segment, self.range, 0)
    }
}

impl Filler {
    /// Creates the only writer of a range whose first `filled` bytes are filled.
    fn of(segment: Arc<Segment>, range: Range<usize>, filled: usize) -> Filler {
        let state = Mutex::new(State { filled, end: None });
        Filler { filling: Arc::new(PartialFill { segment, range, state, changed: Condvar::new() }), filled }
    }

    /// Returns the filling for readers.
    pub fn filling(&self) -> &Arc<PartialFill> {
        &self.filling
    }

    /// Returns the next bytes to fill, at most `at_most`; empty if all are filled.
    pub fn next_mut(&mut self, at_most: usize) -> &mut [u8] {
        let PartialFill { segment, range, .. } = &*self.filling;
        let from = range.start + self.filled;
        let count = at_most.min(range.end - from);
        // SAFETY: the segment was created from a `SegmentMut`, so its mapping is writable, has `len` bytes and belongs
        // to no other segment. Its ranges are disjoint. No other slice of this filling, of an earlier one or of a
        // `Partial` extends beyond `filled` (`PartialFill::read` stops there, and the bytes of the range are handed out
        // only when all are filled), and `&mut self` of the only writer makes this the only slice here.
        unsafe { std::slice::from_raw_parts_mut(segment.as_ptr().add(from), count) }
    }

    /// Declares the next `count` bytes as filled.
    ///
    /// # Panics
    /// If fewer bytes are left.
    pub fn advance(&mut self, count: usize) {
        let filled = self.filled + count;
        assert!(filled <= self.filling.range.len(), "more bytes are filled than there are");
        self.filled = filled;
        self.filling.lock().filled = filled;
        self.filling.changed.notify_all();
    }

    /// Ends the filling as broken and returns the filled part.
    pub fn break_off(self) -> Partial {
        self.filling.end(FillOutcome::Broken);
        Partial { segment: self.filling.segment.clone(), range: self.filling.range.clone(), filled: self.filled }
    }

    /// Ends the filling as whole, with valid content.
    ///
    /// # Panics
    /// If bytes are left to fill.
    pub fn finish(self) -> Payload {
        assert_eq!(self.filled, self.filling.range.len(), "bytes are left");
        self.filling.end(FillOutcome::Whole);
        self.filling.payload()
    }
}

/// The filled part of memory whose filling broke off.
pub struct Partial {
    segment: Arc<Segment>,
    range: Range<usize>,
    filled: usize,
}

impl Partial {
    /// Returns the filled bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as in `PartialFill::read`.
        unsafe { std::slice::from_raw_parts(self.segment.as_ptr().add(self.range.start), self.filled) }
    }

    /// Returns the size of the whole.
    pub fn size_bytes(&self) -> u64 {
        self.range.len() as u64
    }

    /// Continues filling the rest. There is one writer again: this value was created from the previous one and cannot be cloned.
    pub fn resume(self) -> Filler {
        Filler::of(self.segment, self.range, self.filled)
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.filling.end(FillOutcome::Broken);
    }
}

impl PartialFill {
    /// Waits until more than `from` bytes are filled, and returns those after `from`; `None` if no more will be filled.
    pub fn read(&self, from: usize) -> Option<&[u8]> {
        let waiting = |state: &mut State| state.filled <= from && state.end.is_none();
        let state = *self.changed.wait_while(self.lock(), waiting).unwrap_or_else(PoisonError::into_inner);
        let is_more = state.end != Some(FillOutcome::Broken) && state.filled > from;
        // SAFETY: the first `filled` bytes are within the mapping, which lives as long as `self`, and are never written again.
        let at = self.range.start + from;
        is_more.then(|| unsafe { std::slice::from_raw_parts(self.segment.as_ptr().add(at), state.filled - from) })
    }

    /// Waits for the end of the filling. Returns the bytes if it is whole.
    pub fn whole(&self) -> Option<Payload> {
        let waiting = |state: &mut State| state.end.is_none();
        let state = self.changed.wait_while(self.lock(), waiting).unwrap_or_else(PoisonError::into_inner);
        (state.end == Some(FillOutcome::Whole)).then(|| self.payload())
    }

    /// Reports whether the filling is neither whole nor broken.
    pub fn is_in_progress(&self) -> bool {
        self.lock().end.is_none()
    }

    /// Reports whether these bytes are the content of this filling.
    pub fn is_of(&self, payload: &Payload) -> bool {
        let is_here = |offset: &u64| *offset as usize == self.range.start;
        matches!(payload, Payload::Segment { segment, offset, .. } if Arc::ptr_eq(segment, &self.segment) && is_here(offset))
    }

    /// Returns the size of the whole.
    pub fn size_bytes(&self) -> u64 {
        self.range.len() as u64
    }

    fn payload(&self) -> Payload {
        let (offset, size_bytes) = (self.range.start as u64, self.size_bytes());
        Payload::Segment { segment: self.segment.clone(), offset, size_bytes }
    }

    fn end(&self, end: FillOutcome) {
        self.lock().end.get_or_insert(end);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for PartialFill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filling").field("segment", &self.segment).field("state", &*self.lock()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crate::segment::Pool;

    #[test]
    fn readers_see_what_is_filled_and_wait_for_the_rest() {
        let mut filler = Pool::new(0).allocate(1000).unwrap().fill();
        let filling = filler.filling().clone();
        let reader = thread::spawn(move || {
            let mut read = Vec::new();
            while let Some(more) = filling.read(read.len()) {
                read.extend_from_slice(more);
            }
            (read, filling.whole().map(|whole| whole.bytes().to_vec()))
        });
        for value in 1..=10 {
            let part = filler.next_mut(100);
            part.fill(value);
            filler.advance(100);
        }
        assert!(filler.next_mut(1).is_empty() && filler.filling().is_in_progress());
        let segment = filler.finish();
        let expected: Vec<u8> = (1..=10).flat_map(|value| [value; 100]).collect();
        assert_eq!(reader.join().unwrap(), (expected.clone(), Some(expected.clone())));
        assert_eq!(segment.bytes(), expected);
    }

    #[test]
    fn what_broke_off_is_filled_on_behind_what_had_come() {
        let mut filler = Pool::new(0).allocate(1000).unwrap().fill();
        filler.next_mut(400).fill(1);
        filler.advance(400);
        let before = filler.filling().clone();
        let partial = filler.break_off();
        assert!(before.whole().is_none() && before.read(0).is_none());
        assert_eq!((partial.bytes(), partial.size_bytes()), (&[1; 400][..], 1000));
        let mut filler = partial.resume();
        assert_eq!(filler.filling().read(0), Some(&[1; 400][..]));
        filler.next_mut(1000).fill(2);
        filler.advance(600);
        assert_eq!(filler.finish().bytes(), [[1; 400].to_vec(), [2; 600].to_vec()].concat());
    }

    #[test]
    fn ranges_are_filled_side_by_side() {
        let [first, second] = Pool::new(0).allocate(1000).unwrap().in_ranges([600, 400]);
        let (mut first, mut second) = (first.fill(), second.fill());
        second.next_mut(400).fill(2);
        first.next_mut(1000).fill(1);
        second.advance(400);
        assert!(first.filling().is_in_progress());
        let second = second.finish();
        first.advance(200);
        assert_eq!((first.filling().read(0), second.bytes()), (Some(&[1; 200][..]), &[2; 400][..]));
        assert!(!first.filling().is_of(&second));
        let mut first = first.break_off().resume();
        assert_eq!(first.next_mut(1000).len(), 400);
        first.advance(400);
        let whole = first.filling().clone();
        assert_eq!(first.finish().bytes(), [1; 600]);
        assert_eq!(whole.whole().unwrap().size_bytes(), 600);
    }

    #[test]
    fn what_its_writer_leaves_is_broken() {
        let mut filler = Pool::new(0).allocate(1000).unwrap().fill();
        filler.advance(1000);
        let filling = filler.filling().clone();
        let reader = thread::spawn(move || (filling.read(0).is_some(), filling.whole().is_some()));
        drop(filler);
        let (_, is_whole) = reader.join().unwrap();
        assert!(!is_whole);
    }
}
