//! Memory of data received in slices: the slices are stored side by side, so that the whole needs no copy.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gridloom_base::{DatumId, SLICES, slice_bytes};

use crate::filling::{Filler, Unfilled};
use crate::payload::Payload;
use crate::segment::SegmentMut;

/// Maximum number of partly received sliced data whose memory is kept.
const SLICED_MAX: usize = 16;

/// Unfilled memory of each datum, keyed by the whole datum.
#[derive(Default)]
pub struct Sliced(Mutex<BTreeMap<DatumId, [Option<Unfilled>; SLICES]>>);

impl Sliced {
    /// Returns the memory for a slice of a datum of `whole_bytes`. If its place is already in use, for example by a
    /// broken transfer, the slice gets separate memory.
    ///
    /// # Errors
    /// If no memory is available.
    pub fn room(
        &self,
        allocate: impl Fn(u64) -> io::Result<SegmentMut>,
        slice: DatumId,
        whole_bytes: u64,
    ) -> io::Result<Filler> {
        let number = slice.slice().ok_or(io::ErrorKind::InvalidInput)?;
        let bytes = |number| slice_bytes(whole_bytes, number).end - slice_bytes(whole_bytes, number).start;
        let mut all = self.lock();
        if !all.contains_key(&slice.whole()) && all.len() < SLICED_MAX {
            let memory = allocate(whole_bytes)?;
            let ranges = memory.in_ranges(std::array::from_fn::<u64, SLICES, _>(bytes));
            all.insert(slice.whole(), ranges.map(Some));
        }
        let own = all.get_mut(&slice.whole()).and_then(|ranges| ranges[number].take());
        drop(all);
        match own {
            Some(range) => Ok(range.fill()),
            None => Ok(allocate(bytes(number))?.fill()),
        }
    }

    /// Drops the memory of a datum that is complete or no longer received in slices.
    pub fn forget(&self, whole: DatumId) {
        // Unmapping gigabytes takes a while, so it is done without the lock.
        let forgotten = self.lock().remove(&whole);
        drop(forgotten);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<DatumId, [Option<Unfilled>; SLICES]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the whole datum of its slices. It uses their memory if they are stored side by side, and a copy otherwise.
pub fn joined(allocate: impl FnOnce(u64) -> io::Result<SegmentMut>, slices: &[Payload]) -> Payload {
    side_by_side(slices).unwrap_or_else(|| {
        let size_bytes = slices.iter().map(Payload::size_bytes).sum();
        match allocate(size_bytes) {
            Ok(mut memory) => {
                let mut left = memory.bytes_mut();
                for slice in slices {
                    left.split_off_mut(..slice.size_bytes() as usize)
                        .expect("there is room for all")
                        .copy_from_slice(slice.bytes());
                }
                Payload::segment(memory.freeze())
            }
            // Falls back to the heap so that the received data are not lost.
            Err(_) => Payload::Inline(slices.iter().flat_map(|slice| slice.bytes()).copied().collect()),
        }
    })
}

fn side_by_side(slices: &[Payload]) -> Option<Payload> {
    let (mut first, mut end) = (None, 0);
    for slice in slices {
        let Payload::Segment { segment, offset, size_bytes } = slice else { return None };
        let (of, from) = first.get_or_insert((segment, *offset));
        if segment.key() != of.key() || *offset != *from + end {
            return None;
        }
        end += size_bytes;
    }
    first.map(|(segment, offset)| Payload::Segment { segment: segment.clone(), offset, size_bytes: end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Pool;

    const BYTES: u64 = 10_000;

    fn filled(mut filler: Filler, with: u8) -> Payload {
        let room = filler.next_mut(usize::MAX);
        room.fill(with);
        let bytes = room.len();
        filler.advance(bytes);
        filler.finish()
    }

    fn whole(slices: [Payload; SLICES]) -> (Vec<u8>, bool) {
        let is_copied = side_by_side(&slices).is_none();
        (joined(|size| Pool::new(0).allocate_for_data(size), &slices).bytes().to_vec(), is_copied)
    }

    #[test]
    fn slices_that_lie_side_by_side_are_not_copied() {
        let (sliced, pool, datum) = (Sliced::default(), Pool::new(0), DatumId::shared(5));
        let room =
            |number: usize| sliced.room(|size| pool.allocate_for_data(size), datum.slices()[number], BYTES).unwrap();
        let (second, first) = (filled(room(1), 2), filled(room(0), 1));
        let all = [vec![1; 8192], vec![2; BYTES as usize - 8192]].concat();
        assert_eq!(whole([first.clone(), second.clone()]), (all.clone(), false));
        // A broken transfer that is repeated.
        let again = filled(room(0), 1);
        assert_eq!(whole([again, second]), (all, true));
        sliced.forget(datum);
        assert!(sliced.lock().is_empty());
        assert!(sliced.room(|size| pool.allocate_for_data(size), datum, BYTES).is_err(), "it is no slice");
    }
}
