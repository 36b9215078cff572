//! The set of chares of an array, numbered from 0.
//!
//! Boxes of indices are numbered row by row, like C arrays; lists are numbered in index order.

use std::sync::Arc;

use gridloom_base::limits::CHARES_MAX;

use super::id::{INDEX_DIMENSIONS_MAX, Index};

/// The indices of an array. `8`, `(4, 4)` and `[2, 2, 2]` convert into a box that begins at 0.
#[derive(Clone, Debug)]
pub struct Shape(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Box { dimensions: usize, extents: [u32; INDEX_DIMENSIONS_MAX] },
    List(Arc<[Index]>),
}

impl Shape {
    /// Returns a box of all indices from 0 up to these extents, exclusive.
    ///
    /// # Panics
    /// If there are not 1 to 6 extents, or if there are more chares than an array may have.
    pub fn of(extents: &[usize]) -> Shape {
        let dimensions = extents.len();
        assert!((1..=INDEX_DIMENSIONS_MAX).contains(&dimensions), "an array has 1 to 6 dimensions, not {dimensions}");
        let count = extents.iter().try_fold(1usize, |count, extent| count.checked_mul(*extent));
        assert!(
            count.is_some_and(|count| count <= CHARES_MAX),
            "an array of {extents:?} has more than {CHARES_MAX} chares: give each chare more to do"
        );
        let mut own = [1; INDEX_DIMENSIONS_MAX];
        for (own, extent) in own.iter_mut().zip(extents) {
            *own = *extent as u32;
        }
        Shape(Kind::Box { dimensions, extents: own })
    }

    /// Returns a sparse array with only these indices. Duplicates count once.
    ///
    /// # Panics
    /// If there are more indices than an array may have.
    pub fn sparse(indices: impl IntoIterator<Item = impl Into<Index>>) -> Shape {
        let mut list: Vec<Index> = indices.into_iter().map(Into::into).collect();
        list.sort_unstable();
        list.dedup();
        assert!(list.len() <= CHARES_MAX, "{} chares are more than {CHARES_MAX}: give each more to do", list.len());
        Shape(Kind::List(list.into()))
    }

    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Box { extents, .. } => extents.iter().map(|extent| *extent as usize).product(),
            Kind::List(list) => list.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of an index; `None` if the array has no such chare.
    pub fn number(&self, index: &Index) -> Option<u32> {
        match &self.0 {
            Kind::Box { dimensions, extents } => {
                let at = index.as_slice();
                if at.len() != *dimensions {
                    return None;
                }
                let mut number = 0u32;
                for (at, extent) in at.iter().zip(extents) {
                    // As unsigned, a negative integer is larger than any extent.
                    if *at as u32 >= *extent {
                        return None;
                    }
                    number = number * extent + *at as u32;
                }
                Some(number)
            }
            Kind::List(list) => list.binary_search(index).ok().map(|number| number as u32),
        }
    }

    /// Returns the index of a number below [`Shape::len`].
    pub fn index(&self, number: u32) -> Index {
        match &self.0 {
            Kind::Box { dimensions, extents } => {
                let (mut rest, mut at) = (number, [0; INDEX_DIMENSIONS_MAX]);
                for (at, extent) in at[..*dimensions].iter_mut().zip(extents).rev() {
                    *at = (rest % extent) as i32;
                    rest /= extent;
                }
                Index::new(&at[..*dimensions])
            }
            Kind::List(list) => list[number as usize],
        }
    }

    /// Describes the indices as text.
    pub(crate) fn in_words(&self) -> String {
        match &self.0 {
            Kind::Box { dimensions, extents } => {
                format!(
                    "it has indices from {} to below {:?}",
                    "0 ".repeat(*dimensions).trim_end(),
                    &extents[..*dimensions]
                )
            }
            Kind::List(list) => match (list.first(), list.last()) {
                (Some(first), Some(last)) => format!("it has {} indices from {first} to {last}", list.len()),
                _ => "it has none".into(),
            },
        }
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(extents: [usize; N]) -> Shape {
        Shape::of(&extents)
    }
}

impl From<usize> for Shape {
    fn from(extent: usize) -> Shape {
        Shape::of(&[extent])
    }
}

impl From<(usize, usize)> for Shape {
    fn from(extents: (usize, usize)) -> Shape {
        Shape::of(&[extents.0, extents.1])
    }
}

impl From<(usize, usize, usize)> for Shape {
    fn from(extents: (usize, usize, usize)) -> Shape {
        Shape::of(&[extents.0, extents.1, extents.2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_indices_are_inverse() {
        let shapes = [
            Shape::from(7),
            [3, 4].into(),
            [2, 3, 2].into(),
            Shape::of(&[2, 1, 3, 1, 2, 2]),
            Shape::sparse([5, -3, 5, 9]),
        ];
        for shape in shapes {
            for number in 0..shape.len() as u32 {
                assert_eq!(shape.number(&shape.index(number)), Some(number), "{shape:?}");
            }
        }
        assert_eq!(Shape::from([3, 4]).number(&[1, 2].into()), Some(6), "row by row");
        assert_eq!(Shape::sparse([5, -3, 5, 9]).len(), 3);
    }

    #[test]
    fn what_an_array_has_not_has_no_number() {
        let shape = Shape::from([3, 4]);
        for index in [Index::from([3, 0]), [0, 4].into(), [-1, 0].into(), 1.into(), [0, 0, 0].into()] {
            assert_eq!(shape.number(&index), None, "{index}");
        }
        assert_eq!(Shape::sparse([(1, 2)]).number(&(2, 1).into()), None);
    }
}
