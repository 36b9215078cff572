//! Converts arrays to the byte order and memory order that their reader expects.

use std::borrow::Cow;

use gridloom_base::{ByteOrder, Meta, Order};

/// Returns the bytes in this machine's byte order and the memory order that the program expects.
pub(crate) fn in_layout<'a>(from: &Meta, bytes: &'a [u8], to: &Meta) -> Cow<'a, [u8]> {
    let mut bytes = Cow::Borrowed(bytes);
    let (Meta::Scalar { dtype, byte_order } | Meta::Array { dtype, byte_order, .. }) = from else { return bytes };
    if *byte_order != ByteOrder::NATIVE && dtype.swap_bytes() > 1 {
        bytes.to_mut().chunks_exact_mut(dtype.swap_bytes() as usize).for_each(<[u8]>::reverse);
    }
    let (Meta::Array { order, shape, .. }, Meta::Array { order: wanted, .. }) = (from, to) else { return bytes };
    match order == wanted || shape.iter().filter(|extent| **extent > 1).count() < 2 {
        true => bytes,
        false => Cow::Owned(reordered(&bytes, dtype.size_bytes() as usize, shape, *order)),
    }
}

/// Returns an array's elements in the other memory order.
fn reordered(bytes: &[u8], size: usize, shape: &[u64], from: Order) -> Vec<u8> {
    // The order of dimensions that walks the target from its beginning, fastest index first.
    let indices: Vec<usize> = match from {
        Order::C => (0..shape.len()).collect(),
        Order::F => (0..shape.len()).rev().collect(),
    };
    let mut strides = vec![0; shape.len()];
    let mut stride = size;
    for index in indices.iter().rev() {
        strides[*index] = stride;
        stride *= shape[*index] as usize;
    }
    let mut at = vec![0; shape.len()];
    let mut out = Vec::with_capacity(bytes.len());
    let mut place = 0;
    while out.len() < bytes.len() {
        out.extend_from_slice(&bytes[place..place + size]);
        for index in &indices {
            at[*index] += 1;
            place += strides[*index];
            if at[*index] < shape[*index] {
                break;
            }
            place -= strides[*index] * shape[*index] as usize;
            at[*index] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::Dtype;

    fn meta(order: Order, byte_order: ByteOrder, shape: &[u64]) -> Meta {
        Meta::Array { dtype: Dtype::Uint16, byte_order, order, shape: shape.to_vec() }
    }

    fn bytes(elements: &[u16]) -> Vec<u8> {
        elements.iter().flat_map(|element| element.to_ne_bytes()).collect()
    }

    #[test]
    fn arrays_are_turned_to_the_order_wanted() {
        // [[1, 2, 3], [4, 5, 6]], by columns and by rows.
        let (columns, rows) = (bytes(&[1, 4, 2, 5, 3, 6]), bytes(&[1, 2, 3, 4, 5, 6]));
        assert_eq!(reordered(&columns, 2, &[2, 3], Order::F), rows);
        assert_eq!(reordered(&rows, 2, &[2, 3], Order::C), columns);
        let cube: Vec<u16> = (0..24).collect();
        let there = reordered(&bytes(&cube), 2, &[2, 3, 4], Order::C);
        assert_ne!(there, bytes(&cube));
        assert_eq!(reordered(&there, 2, &[2, 3, 4], Order::F), bytes(&cube));
    }

    #[test]
    fn the_other_byte_order_is_turned() {
        let other = if ByteOrder::NATIVE == ByteOrder::Big { ByteOrder::Little } else { ByteOrder::Big };
        let elements = bytes(&[0x0102, 0x0304]);
        let native = meta(Order::C, ByteOrder::NATIVE, &[2]);
        assert_eq!(*in_layout(&meta(Order::C, other, &[2]), &elements, &native), bytes(&[0x0201, 0x0403]));
        assert_eq!(*in_layout(&native, &elements, &native), bytes(&[0x0102, 0x0304]));
    }
}
