//! Results, from values to the program's memory.

use std::borrow::Cow;
use std::ffi::c_void;
use std::sync::Arc;

use gridloom::Value;
use gridloom_core::base::{ByteOrder, Meta, Order};
use gridloom_net::payload::Payload;

use super::code::{Failed, Outcome};
use super::memory;
use super::remote::Remote;

/// Where a result goes: an address that the program gave, 0 if it does not want it.
#[derive(Clone)]
pub(super) struct Destination {
    name: String,
    address: usize,
    /// As the program expects it in memory.
    meta: Meta,
    /// It stays where it is made, under this name.
    remote: Option<Arc<Remote>>,
}

impl Destination {
    pub(super) fn new(name: &str, pointer: *mut c_void, meta: Meta) -> Destination {
        Destination { name: name.to_string(), address: pointer.expose_provenance(), meta, remote: None }
    }

    /// It is to stay where it is made.
    pub(super) fn stays(name: &str, remote: Arc<Remote>, meta: Meta) -> Destination {
        Destination { name: name.to_string(), address: 0, meta, remote: Some(remote) }
    }

    /// Whether it is to be written to the program's memory.
    pub(super) fn is_wanted(&self) -> bool {
        self.address != 0
    }

    pub(super) fn remote(&self) -> Option<&Remote> {
        self.remote.as_deref()
    }
}

/// Writes a call's results where they go, all or, if one is not as expected, none.
///
/// # Safety
/// The pointers of the call still lead to what the signature says (`memory`).
pub(super) unsafe fn deliver(values: &[Value], destinations: &[Destination]) -> Outcome<()> {
    let results = || values.iter().zip(destinations).filter(|(_, destination)| destination.is_wanted());
    if let Some((value, Destination { name, meta, .. })) =
        results().find(|(value, to)| value.meta().checked_size_bytes() != Some(to.meta.size_bytes()))
    {
        return Err(Failed::other(format!("result '{name}' is {}, expected {meta}; nothing is written", value.meta())));
    }
    for (value, destination) in results() {
        // A simulation that does not run bodies has no content.
        let Some(payload) = value.payload() else { continue };
        let bytes = arranged(value.meta(), payload, &destination.meta);
        // SAFETY: promised by the caller: room for a value of that description, whose size this has.
        unsafe { memory::write(std::ptr::with_exposed_provenance_mut(destination.address), &bytes) };
    }
    Ok(())
}

/// The bytes in this machine's byte order and the memory order that the program expects.
pub(super) fn arranged<'a>(from: &Meta, payload: &'a Payload, to: &Meta) -> Cow<'a, [u8]> {
    let mut bytes = Cow::Borrowed(payload.bytes());
    let (Meta::Scalar { dtype, byte_order } | Meta::Array { dtype, byte_order, .. }) = from else { return bytes };
    if *byte_order != ByteOrder::NATIVE && dtype.swap_bytes() > 1 {
        bytes.to_mut().chunks_exact_mut(dtype.swap_bytes() as usize).for_each(<[u8]>::reverse);
    }
    let (Meta::Array { order, shape, .. }, Meta::Array { order: wanted, .. }) = (from, to) else { return bytes };
    match order == wanted || shape.iter().filter(|extent| **extent > 1).count() < 2 {
        true => bytes,
        false => Cow::Owned(turned(&bytes, dtype.size_bytes() as usize, shape, *order)),
    }
}

/// An array's elements in the other memory order.
fn turned(bytes: &[u8], size: usize, shape: &[u64], from: Order) -> Vec<u8> {
    // The order that goes through the target from its beginning, fastest index first.
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
    use gridloom_core::base::Dtype;

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
        assert_eq!(turned(&columns, 2, &[2, 3], Order::F), rows);
        assert_eq!(turned(&rows, 2, &[2, 3], Order::C), columns);
        let cube: Vec<u16> = (0..24).collect();
        let there = turned(&bytes(&cube), 2, &[2, 3, 4], Order::C);
        assert_ne!(there, bytes(&cube));
        assert_eq!(turned(&there, 2, &[2, 3, 4], Order::F), bytes(&cube));
    }

    #[test]
    fn the_other_byte_order_is_turned() {
        let other = if ByteOrder::NATIVE == ByteOrder::Big { ByteOrder::Little } else { ByteOrder::Big };
        let payload = Payload::copied(&bytes(&[0x0102, 0x0304]));
        let native = meta(Order::C, ByteOrder::NATIVE, &[2]);
        assert_eq!(*arranged(&meta(Order::C, other, &[2]), &payload, &native), bytes(&[0x0201, 0x0403]));
        assert_eq!(*arranged(&native, &payload, &native), bytes(&[0x0102, 0x0304]));
    }

    #[test]
    fn a_result_of_another_size_is_not_written() {
        let mut place = [7u16; 2];
        let pointer = std::ptr::from_mut(&mut place).cast();
        let value = Value::new(meta(Order::C, ByteOrder::NATIVE, &[1]), Payload::copied(&bytes(&[1]))).unwrap();
        let to = Destination::new("y", pointer, meta(Order::C, ByteOrder::NATIVE, &[2]));
        // SAFETY: room for two elements.
        let failed = unsafe { deliver(&[value], &[to]) }.unwrap_err();
        assert!(failed.text.contains("'y'"), "{}", failed.text);
        assert_eq!(place, [7, 7]);
    }
}
