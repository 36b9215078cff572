//! Slices of shared data. A large datum can be sent to a server in two slices at the same time, each from a different
//! server.
//!
//! A slice has an identifier that is derived from that of the whole datum. Most code treats it like any other datum.

use std::ops::Range;

use crate::DatumId;

/// Number of slices of a datum.
pub const SLICES: usize = 2;
/// Position of the slice number in the identifier's upper bits. Slices are numbered from 1 there; 0 is the whole datum.
const SHIFT: u32 = 62;
/// Slices start at page boundaries.
const PAGE_BYTES: u64 = 4096;

impl DatumId {
    /// Returns the identifier of the shared datum with that number.
    pub fn shared(number: u64) -> DatumId {
        DatumId { client: crate::NodeId::CATALOG, serial: number & (u64::MAX >> (64 - SHIFT)) }
    }

    /// Returns the number of the slice, from 0, or `None` for a whole datum.
    pub fn slice(self) -> Option<usize> {
        let number = (self.serial >> SHIFT) as usize;
        (self.is_shared() && (1..=SLICES).contains(&number)).then(|| number - 1)
    }

    /// Returns the datum that this is a slice of, or the datum itself if it is whole.
    pub fn whole(self) -> DatumId {
        match self.slice() {
            Some(_) => DatumId::shared(self.serial),
            None => self,
        }
    }

    /// Returns the slices of a shared datum.
    pub fn slices(self) -> [DatumId; SLICES] {
        let whole = self.whole();
        std::array::from_fn(|number| DatumId { serial: whole.serial | (number as u64 + 1) << SHIFT, ..whole })
    }
}

/// Returns the byte range of a slice in a datum of that size.
pub fn slice_bytes(size_bytes: u64, number: usize) -> Range<u64> {
    let each = size_bytes.div_ceil(SLICES as u64).next_multiple_of(PAGE_BYTES);
    let bound = |number: usize| (number as u64).saturating_mul(each).min(size_bytes);
    bound(number)..bound(number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn slices_know_what_they_are_of() {
        let whole = DatumId::shared(u64::MAX - 7);
        let [first, second] = whole.slices();
        assert_eq!((whole.slice(), first.slice(), second.slice()), (None, Some(0), Some(1)));
        assert!([whole, first, second].iter().all(|datum| datum.whole() == whole && datum.is_shared()));
        assert_eq!(second.slices(), [first, second]);
        let of_a_client = DatumId { client: NodeId(1), ..first };
        assert_eq!((of_a_client.slice(), of_a_client.whole()), (None, of_a_client));
        let none = DatumId { serial: u64::MAX, ..whole };
        assert_eq!((none.slice(), none.whole()), (None, none));
    }

    #[test]
    fn slices_cover_a_datum_once() {
        for size_bytes in [0, 1, 4096, 8192, 8193, (64 << 20) + 5, u64::MAX] {
            let [first, second] = [0, 1].map(|number| slice_bytes(size_bytes, number));
            assert_eq!((first.start, first.end, second.end), (0, second.start, size_bytes));
            assert!(first.end % PAGE_BYTES == 0 || first.end == size_bytes);
        }
    }
}
