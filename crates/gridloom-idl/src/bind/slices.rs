//! Slices: the caller sends a part of an array, `x[size : start, end, step]` for each dimension. The part is sent packed.
//! The caller and the function both have the whole array in memory.
//!
//! **Invariant:** a parameter's extents are those of its part ([`Slice::extent`]), so that code that
//! handles values alone need not know of slices.

use super::error::BindError;
use super::extents::Sizes;
use crate::expr::Expr;
use crate::signature::{BaseType, Signature};
use crate::slice::Slice;
use gridloom_base::{Meta, Order};

/// A slice with evaluated bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Strided {
    pub size: u64,
    pub start: u64,
    pub step: u64,
    pub count: u64,
}

/// The whole array of which a part is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WholeArray {
    /// Outermost first.
    pub dims: Vec<Strided>,
    /// Memory order of the whole and of the part.
    pub order: Order,
    pub element_bytes: u64,
    /// Size of the whole array.
    pub size_bytes: u64,
}

impl Signature {
    /// Returns the whole array of a parameter, if only a part of it is sent. `scalars` are as for [`Signature::shapes`].
    ///
    /// # Errors
    /// If the part is not inside the whole array, or the whole array is larger than memory can be.
    pub fn whole(&self, index: usize, scalars: Vec<Option<(Meta, Vec<u8>)>>) -> Result<Option<WholeArray>, BindError> {
        let sizes = Sizes { signature: self, scalars, source: vec![None; self.params.len()] };
        let param = &self.params[index];
        let (Some(dims), BaseType::Number(dtype)) = (sizes.strides(index)?, param.base) else { return Ok(None) };
        let element_bytes = dtype.size_bytes();
        let size_bytes = dims.iter().try_fold(element_bytes, |bytes, dim| bytes.checked_mul(dim.size));
        match size_bytes.filter(|bytes| isize::try_from(*bytes).is_ok()) {
            Some(size_bytes) => Ok(Some(WholeArray { dims, order: param.memory_order(), element_bytes, size_bytes })),
            None => Err(sizes.malformed(param, "its whole is past 2^63 bytes".to_string())),
        }
    }
}

impl Sizes<'_> {
    /// Returns the evaluated slices of an array, if it has any.
    pub(super) fn strides(&self, index: usize) -> Result<Option<Vec<Strided>>, BindError> {
        let param = &self.signature.params[index];
        let Some(slices) = &param.slices else { return Ok(None) };
        let strided = |(at, slice): (usize, &Slice)| {
            let what = || format!("slice {} of '{}'", at + 1, param.name);
            let value = |expr: &Expr| {
                expr.extent_of(&self.signature.params, &self.scalars).map_err(|error| self.eval_error(error, what()))
            };
            let (size, start) = (value(&slice.size)?, value(&slice.start)?);
            let end = Some(value(&slice.end)?).filter(|end| *end != 0).unwrap_or(size);
            let step = value(&slice.step)?.max(1);
            if start > end || end > size {
                let why = format!("[{size} : {start}, {end}, {step}], expected 0 <= start <= end <= size");
                return Err(BindError::Value { function: self.function(), what: what(), why });
            }
            Ok(Strided { size, start, step, count: (end - start).div_ceil(step) })
        };
        slices.iter().enumerate().map(strided).collect::<Result<_, _>>().map(Some)
    }
}

impl WholeArray {
    /// Calls `each` for every run of bytes that is contiguous in both the whole and the part, with its offset in each and its
    /// length.
    pub fn runs(&self, mut each: impl FnMut(usize, usize, usize)) {
        if self.dims.iter().any(|dim| dim.count == 0) {
            return;
        }
        // From the index that varies fastest, with the distance of its neighbours in the whole.
        let mut dims: Vec<Strided> = self.dims.clone();
        if self.order == Order::C {
            dims.reverse();
        }
        let mut distance = self.element_bytes as usize;
        let mut begin = 0;
        let mut axes: Vec<(u64, usize)> = Vec::with_capacity(dims.len());
        for dim in &dims {
            begin += dim.start as usize * distance;
            axes.push((dim.count, dim.step as usize * distance));
            distance *= dim.size as usize;
        }
        let mut length = self.element_bytes as usize;
        if let Some((count, step)) = axes.first().copied()
            && step == length
        {
            length *= count as usize;
            axes.remove(0);
        }
        let mut at = vec![0; axes.len()];
        let (mut there, mut here) = (begin, 0);
        'runs: loop {
            each(there, here, length);
            here += length;
            for (at, (count, step)) in at.iter_mut().zip(&axes) {
                *at += 1;
                there += step;
                if *at < *count {
                    continue 'runs;
                }
                there -= step * *count as usize;
                *at = 0;
            }
            return;
        }
    }

    /// Copies the part out of the whole.
    pub fn gather(&self, whole: &[u8], part: &mut [u8]) {
        self.runs(|there, here, length| part[here..here + length].copy_from_slice(&whole[there..there + length]));
    }

    /// Copies the part into the whole; the other elements are unchanged.
    pub fn scatter(&self, part: &[u8], whole: &mut [u8]) {
        self.runs(|there, here, length| whole[there..there + length].copy_from_slice(&part[here..here + length]));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::parse::parse;
    use gridloom_base::Dtype;

    fn of(definition: &str) -> Signature {
        parse(&format!("Module m; {definition}"), "t.idl").unwrap().remove(0).signature
    }

    fn ints(values: &[i32], count: usize) -> Vec<Option<(Meta, Vec<u8>)>> {
        let known = |value: &i32| Some((Meta::scalar(Dtype::Int32), value.to_ne_bytes().to_vec()));
        let mut all: Vec<_> = values.iter().map(known).collect();
        all.resize(count, None);
        all
    }

    #[test]
    fn defaults_are_the_beginning_the_end_and_each() {
        let f = of(
            "Define f(IN int n, IN int k, IN double x[n : k], INOUT double y[n : k, n], OUT double z[n : 1, n, k], \
                    IN double w[k][n : 2]) Shrink \"yes\" Calls f(n, k, x, y, z, w);",
        );
        assert_eq!(
            f.to_string(),
            "m/f(n, k: int32, x: float64[n : 0, k, 1], y: float64[n : k, n, 1], w: float64[k][n : 0, 2, 1]) -> \
             (y: float64[n : k, n, 1], z: float64[n : 1, n, k])"
        );
        let whole = |index| f.whole(index, ints(&[10, 3], 6)).unwrap().unwrap().dims;
        let strided = |size, start, step, count| Strided { size, start, step, count };
        assert_eq!(whole(2), [strided(10, 0, 1, 3)]);
        assert_eq!(whole(3), [strided(10, 3, 1, 7)]);
        assert_eq!(whole(4), [strided(10, 1, 3, 3)]);
        assert_eq!(whole(5), [strided(3, 0, 1, 3), strided(10, 0, 1, 2)]);
        assert_eq!(f.whole(0, ints(&[10, 3], 6)), Ok(None));
        let shapes = f.shapes(ints(&[10, 3], 6)).unwrap();
        assert_eq!(shapes[2..], [Some(vec![3]), Some(vec![7]), Some(vec![3]), Some(vec![3, 2])]);
    }

    #[test]
    fn a_part_lies_in_the_whole() {
        let f = of(
            "Define f(IN int n, IN int a, IN int b, IN int s, IN double x[n : a, b, s]) Shrink \"yes\" Calls f(n, a, b, s, x);",
        );
        let refused = |values: &[i32]| f.shapes(ints(values, 5)).unwrap_err().to_string();
        assert_eq!(
            refused(&[10, 2, 11, 1]),
            "m/f: slice 1 of 'x': [10 : 2, 11, 1], expected 0 <= start <= end <= size"
        );
        assert!(refused(&[10, 3, 2, 1]).contains("slice 1 of 'x'"));
        assert!(refused(&[10, -1, 2, 1]).contains("is -1"));
        assert_eq!(f.shapes(ints(&[10, 5, 5, 3], 5)).unwrap()[4], Some(vec![0]));
    }

    #[test]
    fn an_end_of_0_is_the_size_and_a_step_of_0_is_1() {
        let f = of(
            "Define f(IN int n, IN int a, IN int b, IN int s, IN double x[n : a, b, s], IN double y[n : 0]) Shrink \"yes\" \
                Calls f(n, a, b, s, x, y);",
        );
        for (values, count) in [([10, 2, 0, 3], 3), ([10, 2, 8, 0], 6), ([10, 0, 0, 0], 10), ([0, 0, 0, 0], 0)] {
            assert_eq!(f.shapes(ints(&values, 6)).unwrap()[4], Some(vec![count]), "{values:?}");
            assert_eq!(f.whole(4, ints(&values, 6)).unwrap().unwrap().dims[0].count, count, "{values:?}");
        }
        assert_eq!(f.whole(5, ints(&[10, 0, 0, 0], 6)), Ok(None), "the whole is no part");
    }

    #[test]
    fn without_shrink_the_whole_array_travels() {
        let f = of("Define f(IN int n, IN double x[n : 1, n, 2]) Calls f(n, x);");
        assert_eq!(
            (f.to_string().as_str(), f.params[1].slices.is_none()),
            ("m/f(x: float64[n]; n: int32) -> ()", true)
        );
    }

    proptest! {
        #[test]
        fn parts_are_those_of_the_indices(
            dims in proptest::collection::vec((1u64..6, 0u64..6, 0u64..6, 1u64..4), 0..4),
            is_columns: bool,
        ) {
            let strided = |(size, a, b, step): &(u64, u64, u64, u64)| {
                let (start, end) = ((*a).min(*b).min(*size), (*a).max(*b).min(*size));
                Strided { size: *size, start, step: *step, count: (end - start).div_ceil(*step) }
            };
            let dims: Vec<Strided> = dims.iter().map(strided).collect();
            let order = if is_columns { Order::F } else { Order::C };
            let total: u64 = dims.iter().map(|dim| dim.size).product();
            let count: u64 = dims.iter().map(|dim| dim.count).product();
            let whole = WholeArray { dims: dims.clone(), order, element_bytes: 2, size_bytes: 2 * total };
            let memory: Vec<u8> = (0..total as u16).flat_map(u16::to_ne_bytes).collect();
            let mut part = vec![0; 2 * count as usize];
            whole.gather(&memory, &mut part);
            // Reference: one element after the other, by its indices.
            let outer_first: Vec<usize> = if is_columns { (0..dims.len()).rev().collect() } else { (0..dims.len()).collect() };
            let mut expected = Vec::new();
            for at in 0..count {
                let (mut rest, mut place, mut distance) = (at, 0, 1);
                for dim in outer_first.iter().rev().map(|dim| &dims[*dim]) {
                    place += (dim.start + rest % dim.count * dim.step) * distance;
                    rest /= dim.count;
                    distance *= dim.size;
                }
                expected.extend((place as u16).to_ne_bytes());
            }
            prop_assert_eq!(&part, &expected);
            let mut back = vec![0xff; memory.len()];
            whole.scatter(&part, &mut back);
            for (at, (new, old)) in back.chunks(2).zip(memory.chunks(2)).enumerate() {
                let is_part = part.chunks(2).any(|element| element == old);
                prop_assert_eq!(new, if is_part { old } else { &[0xff; 2][..] }, "{}", at);
            }
        }
    }
}
