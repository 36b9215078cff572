//! Identifiers of processing elements, arrays and chares.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use gridloom_base::Priority;

/// A processing element, numbered from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Pe(pub u32);

/// An array of chares, numbered in the order in which every element creates its arrays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ArrayId(pub u32);

/// A chare of a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ChareId {
    pub array: ArrayId,
    pub index: Index,
}

/// Maximum number of integers in an index.
pub const INDEX_DIMENSIONS_MAX: usize = 6;

/// A chare's position in its array: 1 to 6 integers. `3`, `(1, 2)` and `[1, 2, 3]` convert into it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Index {
    length: u8,
    at: [i32; INDEX_DIMENSIONS_MAX],
}

impl Index {
    /// # Panics
    /// If these are not 1 to 6 integers.
    pub fn new(integers: &[i32]) -> Index {
        let length = integers.len();
        assert!((1..=INDEX_DIMENSIONS_MAX).contains(&length), "an index has 1 to 6 integers, not {length}");
        let mut at = [0; INDEX_DIMENSIONS_MAX];
        at[..length].copy_from_slice(integers);
        Index { length: length as u8, at }
    }

    pub fn dimensions(&self) -> usize {
        usize::from(self.length)
    }

    pub fn as_slice(&self) -> &[i32] {
        &self.at[..self.dimensions()]
    }
}

/// Returns one integer of the index.
///
/// # Panics
/// If `dimension` is not one of its dimensions.
impl std::ops::Index<usize> for Index {
    type Output = i32;

    fn index(&self, dimension: usize) -> &i32 {
        &self.as_slice()[dimension]
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (number, integer) in self.as_slice().iter().enumerate() {
            write!(f, "{}{integer}", if number > 0 { ", " } else { "" })?;
        }
        f.write_str(")")
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl<const N: usize> From<[i32; N]> for Index {
    fn from(integers: [i32; N]) -> Index {
        Index::new(&integers)
    }
}

impl<const N: usize> From<[usize; N]> for Index {
    fn from(integers: [usize; N]) -> Index {
        Index::new(&integers.map(|integer| i32::try_from(integer).expect("integers of an index are below 2^31")))
    }
}

macro_rules! index_from {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Index {
            fn from(at: $integer) -> Index {
                [at].into()
            }
        }

        impl From<($integer, $integer)> for Index {
            fn from(at: ($integer, $integer)) -> Index {
                [at.0, at.1].into()
            }
        }

        impl From<($integer, $integer, $integer)> for Index {
            fn from(at: ($integer, $integer, $integer)) -> Index {
                [at.0, at.1, at.2].into()
            }
        }
    )*};
}

index_from!(i32, usize);
