//! Results, from values to the program's memory.

use std::borrow::Cow;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use gridloom::Value;
use gridloom_core::base::{ByteOrder, Meta, Order};
use gridloom_core::idl::{BaseType, Mode, Param, Whole};
use gridloom_net::payload::Payload;

use super::code::{Failed, Outcome};
use super::datum::Remote;
use super::files::NewFile;
use super::memory::{self, Allocated};

/// A result's name, and where it goes.
#[derive(Clone)]
pub(super) struct Destination {
    name: String,
    target: Target,
}

/// Where a result goes.
#[derive(Clone)]
pub(super) enum Target {
    /// The program does not want it.
    Unwanted,
    /// To an address, as the program expects it there.
    Memory { address: usize, meta: Meta },
    /// To part of an array at an address, whose other elements stay.
    Part { address: usize, meta: Meta, whole: Whole },
    /// A copy of `malloc` with a zero byte behind it, whose address goes to that address.
    Text { address: usize },
    /// Likewise an array, row by row.
    Fresh { address: usize },
    /// To a file of that name.
    File(PathBuf),
    /// It stays where it is made, under that name; as the program expects it in memory.
    Remote(Arc<Remote>, Meta),
}

impl Target {
    /// For what the program gave a pointer: to memory for what is described, or for a pointer to what is not.
    pub(super) fn new(param: &Param, pointer: *mut c_void, meta: Option<Meta>, whole: Option<Whole>) -> Target {
        match (pointer.expose_provenance(), meta, whole) {
            (0, _, _) => Target::Unwanted,
            (address, Some(meta), Some(whole)) => Target::Part { address, meta, whole },
            (address, Some(meta), None) => Target::Memory { address, meta },
            (address, None, _) if param.mode == Mode::VarOut => Target::Fresh { address },
            (address, None, _) => Target::Text { address },
        }
    }
}

impl Destination {
    pub(super) fn new(name: &str, target: Target) -> Destination {
        Destination { name: name.to_string(), target }
    }

    /// Whether it is to come to the program.
    pub(super) fn is_wanted(&self) -> bool {
        !matches!(self.target, Target::Unwanted | Target::Remote(..))
    }

    /// First address and bytes of the memory that it is written to.
    pub(super) fn range(&self) -> Option<(usize, usize)> {
        match &self.target {
            Target::Memory { address, meta } => Some((*address, usize::try_from(meta.size_bytes()).ok()?)),
            Target::Part { address, whole, .. } => Some((*address, usize::try_from(whole.size_bytes).ok()?)),
            _ => None,
        }
    }

    /// The datum that it is to be.
    pub(super) fn remote(&self) -> Option<&Remote> {
        self.remote_as().map(|(remote, _)| remote)
    }

    /// The same, and how the program expects it in memory.
    pub(super) fn remote_as(&self) -> Option<(&Remote, &Meta)> {
        match &self.target {
            Target::Remote(remote, meta) => Some((remote, meta)),
            _ => None,
        }
    }

    /// Whether a result is what is expected.
    fn check(&self, got: &Meta) -> Outcome<()> {
        let expected = match &self.target {
            Target::Memory { meta, .. } | Target::Part { meta, .. }
                if got.checked_size_bytes() != Some(meta.size_bytes()) =>
            {
                meta.to_string()
            }
            // A simulation that does not run bodies has bytes instead.
            Target::Fresh { .. } if !matches!(got, Meta::Array { .. } | Meta::Bytes { .. }) => "an array".to_string(),
            Target::Text { .. } if !matches!(got, Meta::Text { .. } | Meta::Bytes { .. }) => "a string".to_string(),
            Target::File(_) if !BaseType::File.holds(got) => "the content of a file".to_string(),
            _ => return Ok(()),
        };
        Err(Failed::other(format!("result '{}' is {got}, expected {expected}; nothing is written", self.name)))
    }
}

/// A result that only has to be put in its place, which cannot fail but for the names of files.
enum Ready<'a> {
    Bytes(usize, Cow<'a, [u8]>),
    Part(usize, Cow<'a, [u8]>, &'a Whole),
    Text(usize, Allocated),
    File(NewFile, &'a str),
}

/// Writes a call's results where they go, all or, if one is not as expected or cannot be written, none.
///
/// # Safety
/// The pointers of the call still lead to what the signature says (`memory`).
pub(super) unsafe fn deliver(values: &[Value], destinations: &[Destination]) -> Outcome<()> {
    let results = || values.iter().zip(destinations);
    results().try_for_each(|(value, destination)| destination.check(value.meta()))?;
    let ready = results().filter_map(|(value, destination)| ready(value, destination).transpose());
    for ready in ready.collect::<Outcome<Vec<Ready<'_>>>>()? {
        match ready {
            // SAFETY: promised by the caller: room for a value of that description, whose size this has.
            Ready::Bytes(address, bytes) => unsafe {
                memory::write(std::ptr::with_exposed_provenance_mut(address), &bytes);
            },
            Ready::Part(address, bytes, whole) => whole.runs(|there, here, length| {
                // SAFETY: promised by the caller: room for the whole array.
                unsafe {
                    let place = std::ptr::with_exposed_provenance_mut::<u8>(address).add(there);
                    memory::write(place.cast(), &bytes[here..here + length]);
                }
            }),
            // SAFETY: promised by the caller: a place for a pointer.
            Ready::Text(address, text) => unsafe { text.give(std::ptr::with_exposed_provenance_mut(address)) },
            Ready::File(file, name) => file.place(name)?,
        }
    }
    Ok(())
}

fn ready<'a>(value: &'a Value, destination: &'a Destination) -> Outcome<Option<Ready<'a>>> {
    // A simulation that does not run bodies has no content.
    let Some(payload) = value.payload() else { return Ok(None) };
    let name = &destination.name;
    Ok(match &destination.target {
        Target::Unwanted | Target::Remote(..) => None,
        Target::Memory { address, meta } => Some(Ready::Bytes(*address, arranged(value.meta(), payload, meta))),
        Target::Part { address, meta, whole } => {
            Some(Ready::Part(*address, arranged(value.meta(), payload, meta), whole))
        }
        Target::Fresh { address } => {
            let mut rows = value.meta().clone();
            if let Meta::Array { order, .. } = &mut rows {
                *order = Order::C;
            }
            let bytes = arranged(value.meta(), payload, &rows);
            Some(Ready::Text(*address, memory::allocated(&bytes, &format!("result '{name}'"))?))
        }
        Target::Text { address } => {
            Some(Ready::Text(*address, memory::allocated(payload.bytes(), &format!("result '{name}'"))?))
        }
        // The function made none.
        Target::File(_) if matches!(value.meta(), Meta::Text { .. }) => None,
        Target::File(path) => Some(Ready::File(NewFile::write(name, path, payload.bytes())?, name)),
    })
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
        let param = Param::scalar("y", Mode::Out, BaseType::Number(Dtype::Uint16));
        let to = Target::new(&param, pointer, Some(meta(Order::C, ByteOrder::NATIVE, &[2])), None);
        let to = Destination::new("y", to);
        // SAFETY: room for two elements.
        let failed = unsafe { deliver(&[value], &[to]) }.unwrap_err();
        assert!(failed.text.contains("'y'"), "{}", failed.text);
        assert_eq!(place, [7, 7]);
    }
}
