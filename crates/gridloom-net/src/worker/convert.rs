//! Converts values to the form that this machine and the function need: byte order, memory order, alignment. The
//! receiver converts ("receiver makes right"): a sender sends its own form.

use gridloom_base::{ByteOrder, Dtype, Meta, Order};

use super::guarded::Guarded;
use crate::segment::SPARE_BYTES;

/// Alignment of every value passed to a function: a cache line, which suffices for any vector instruction.
const ALIGNMENT: usize = 64;

/// Bytes at an aligned address.
#[derive(Debug)]
pub struct Aligned(Memory);

#[derive(Debug)]
enum Memory {
    Plain {
        buffer: Vec<u8>,
        at: usize,
        len: usize,
    },
    /// Aligned as far as its length permits, so that it ends exactly at the guard page.
    Guarded(Guarded),
}

impl Aligned {
    /// Returns zeroed bytes. The pages of large buffers are not touched before they are used.
    pub fn zeroed(len: usize) -> Aligned {
        if let Some(guarded) = Guarded::zeroed(len) {
            return Aligned(Memory::Guarded(guarded));
        }
        let buffer = vec![0; len + ALIGNMENT + SPARE_BYTES];
        let at = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Aligned(Memory::Plain { buffer, at, len })
    }

    /// Returns an aligned copy.
    pub fn copied(bytes: &[u8]) -> Aligned {
        let mut copy = Aligned::zeroed(bytes.len());
        copy.bytes_mut().copy_from_slice(bytes);
        copy
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Memory::Plain { buffer, at, len } => &buffer[*at..*at + *len],
            Memory::Guarded(guarded) => guarded.bytes(),
        }
    }

    /// Returns the bytes for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Plain { buffer, at, len } => &mut buffer[*at..*at + *len],
            Memory::Guarded(guarded) => guarded.bytes_mut(),
        }
    }
}

/// Reports whether the value needs no conversion by [`to_native`].
pub fn is_native(meta: &Meta, wanted: Option<Order>) -> bool {
    match meta {
        Meta::Scalar { dtype, byte_order } => *byte_order == ByteOrder::NATIVE || dtype.swap_bytes() == 1,
        Meta::Text { .. } | Meta::Bytes { .. } | Meta::List { .. } => true,
        Meta::Array { dtype, byte_order, .. } => {
            (*byte_order == ByteOrder::NATIVE || dtype.swap_bytes() == 1) && !is_transposed(meta, wanted)
        }
    }
}

/// Writes the value into `to` in this machine's byte order and in the wanted memory order (`None` keeps the order),
/// and returns its new description.
///
/// # Errors
/// If the value cannot be converted; the text explains why.
///
/// # Panics
/// If the length of `from` or `to` differs from that of `meta`.
pub fn to_native(meta: &Meta, from: &[u8], wanted: Option<Order>, to: &mut [u8]) -> Result<Meta, String> {
    assert_eq!((from.len() as u64, to.len()), (meta.size_bytes(), from.len()), "a value's length was checked before");
    let mut native = meta.clone();
    let (dtype, foreign) = match &mut native {
        Meta::Text { .. } | Meta::Bytes { .. } | Meta::List { .. } => {
            to.copy_from_slice(from);
            return Ok(native);
        }
        Meta::Scalar { dtype, byte_order } => (*dtype, std::mem::replace(byte_order, ByteOrder::NATIVE)),
        Meta::Array { dtype, byte_order, .. } => (*dtype, std::mem::replace(byte_order, ByteOrder::NATIVE)),
    };
    let swap = foreign != ByteOrder::NATIVE && dtype.swap_bytes() > 1;
    if swap && matches!(dtype, Dtype::LongDouble | Dtype::ComplexLongDouble) {
        return Err(format!("a {dtype} from a platform with the other byte order cannot be converted; send float64"));
    }
    if is_transposed(meta, wanted)
        && let Meta::Array { order, shape, .. } = &mut native
    {
        transpose(from, to, shape, *order, dtype.size_bytes() as usize);
        *order = wanted.unwrap_or(*order);
    } else {
        to.copy_from_slice(from);
    }
    if swap {
        to.chunks_exact_mut(dtype.swap_bytes() as usize).for_each(<[u8]>::reverse);
    }
    Ok(native)
}

/// Reports whether the elements are stored in a different order than wanted.
fn is_transposed(meta: &Meta, wanted: Option<Order>) -> bool {
    match meta {
        Meta::Array { order, shape, .. } => {
            wanted.is_some_and(|wanted| wanted != *order)
                && !shape.contains(&0)
                && shape.iter().filter(|extent| **extent > 1).count() > 1
        }
        Meta::Scalar { .. } | Meta::Text { .. } | Meta::Bytes { .. } | Meta::List { .. } => false,
    }
}

/// Copies the elements of a `from_order` array into the other order.
fn transpose(from: &[u8], to: &mut [u8], shape: &[u64], from_order: Order, element: usize) {
    // Extents, starting with the index that varies fastest in `to`, with the distance of its neighbours in `from`.
    let mut stride = element;
    let mut axes: Vec<(usize, usize)> = Vec::with_capacity(shape.len());
    let fastest_in_from: Box<dyn Iterator<Item = &u64>> = match from_order {
        Order::C => Box::new(shape.iter().rev()),
        Order::F => Box::new(shape.iter()),
    };
    for extent in fastest_in_from {
        axes.push((*extent as usize, stride));
        stride *= *extent as usize;
    }
    axes.reverse();
    let (inner, outer) = axes.split_first().expect("an array with two orders has two indices");
    let mut index = vec![0usize; outer.len()];
    for row in to.chunks_exact_mut(inner.0 * element) {
        let base: usize = index.iter().zip(outer).map(|(i, (_, stride))| i * stride).sum();
        for (i, place) in row.chunks_exact_mut(element).enumerate() {
            let at = base + i * inner.1;
            place.copy_from_slice(&from[at..at + element]);
        }
        for (i, (extent, _)) in index.iter_mut().zip(outer) {
            *i += 1;
            if *i < *extent {
                break;
            }
            *i = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(order: Order, byte_order: ByteOrder, dtype: Dtype, shape: &[u64]) -> Meta {
        Meta::Array { dtype, byte_order, order, shape: shape.to_vec() }
    }

    fn other() -> ByteOrder {
        if ByteOrder::NATIVE == ByteOrder::Little { ByteOrder::Big } else { ByteOrder::Little }
    }

    #[test]
    fn elements_find_their_place_in_the_other_order() {
        let shape = [2u64, 3, 4];
        let from: Vec<u8> = (0..24).collect();
        let mut to = vec![0; 24];
        let meta = array(Order::C, ByteOrder::NATIVE, Dtype::Uint8, &shape);
        let turned = to_native(&meta, &from, Some(Order::F), &mut to).unwrap();
        assert_eq!(turned, array(Order::F, ByteOrder::NATIVE, Dtype::Uint8, &shape));
        for i in 0..2 {
            for j in 0..3 {
                for k in 0..4 {
                    assert_eq!(to[i + 2 * (j + 3 * k)], from[(i * 3 + j) * 4 + k]);
                }
            }
        }
        let mut back = vec![0; 24];
        to_native(&turned, &to, Some(Order::C), &mut back).unwrap();
        assert_eq!(back, from);
    }

    #[test]
    fn bytes_are_reversed_by_half_elements() {
        let meta = array(Order::C, other(), Dtype::Complex64, &[1]);
        let mut to = [0; 8];
        to_native(&meta, &[1, 2, 3, 4, 5, 6, 7, 8], None, &mut to).unwrap();
        assert_eq!(to, [4, 3, 2, 1, 8, 7, 6, 5]);
        assert!(!is_native(&meta, None) && is_native(&array(Order::C, other(), Dtype::Int8, &[3]), None));
    }

    #[test]
    fn a_foreign_long_double_is_refused() {
        let meta = Meta::Scalar { dtype: Dtype::LongDouble, byte_order: other() };
        assert!(to_native(&meta, &[0; 16], None, &mut [0; 16]).unwrap_err().contains("send float64"));
    }

    #[test]
    fn memory_is_aligned() {
        for len in [0, 1, 63, 64, 65, 100_000] {
            let mut memory = Aligned::zeroed(len);
            assert_eq!(memory.bytes_mut().as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(memory.bytes().len(), len);
        }
    }
}
