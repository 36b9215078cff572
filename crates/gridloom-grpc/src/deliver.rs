//! Writes results from values to the program's memory.

use std::borrow::Cow;

use gridloom::Value;
use gridloom::data::PendingFile;
use gridloom_base::{Meta, Order};
use gridloom_idl::{BaseType, WholeArray};

use super::arguments::{Destination, Target};
use super::code::{Failed, Outcome};
use super::lists::{ListTarget, ReadyItem};
use super::memory::{self, Allocated};

impl Destination {
    /// Checks that a result has the expected form.
    fn check(&self, value: &Value) -> Outcome<()> {
        let got = value.meta();
        let expected = match &self.target {
            Target::List(list) if !list.fits(value) => "an array of strings or of files".to_string(),
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

/// A result that only has to be stored; this can fail only for files.
enum CheckedResult<'a> {
    Bytes(usize, Cow<'a, [u8]>),
    Part(usize, Cow<'a, [u8]>, &'a WholeArray),
    Text(usize, Allocated),
    File(PendingFile, &'a str),
    List(&'a ListTarget, Vec<ReadyItem<'a>>, &'a str),
}

/// Writes a call's results to their destinations: all of them, or none if one has an unexpected form or cannot be written.
///
/// # Safety
/// The pointers of the call still match the signature (`memory`).
pub(crate) unsafe fn deliver(values: &[Value], destinations: &[Destination]) -> Outcome<()> {
    let results = || values.iter().zip(destinations);
    results().try_for_each(|(value, destination)| destination.check(value))?;
    let ready = results().filter_map(|(value, destination)| ready(value, destination).transpose());
    for ready in ready.collect::<Outcome<Vec<CheckedResult<'_>>>>()? {
        match ready {
            // SAFETY: promised by the caller: memory for a value of that form, and this has its size.
            CheckedResult::Bytes(address, bytes) => unsafe {
                memory::write(std::ptr::with_exposed_provenance_mut(address), &bytes);
            },
            CheckedResult::Part(address, bytes, whole) => whole.runs(|there, here, length| {
                // SAFETY: promised by the caller: memory for the whole array.
                unsafe {
                    let place = std::ptr::with_exposed_provenance_mut::<u8>(address).add(there);
                    memory::write(place.cast(), &bytes[here..here + length]);
                }
            }),
            // SAFETY: promised by the caller: memory for a pointer.
            CheckedResult::Text(address, text) => unsafe { text.store(std::ptr::with_exposed_provenance_mut(address)) },
            CheckedResult::File(file, name) => file.place(name)?,
            // SAFETY: promised by the caller.
            CheckedResult::List(list, items, name) => unsafe { list.put(name, items) }?,
        }
    }
    Ok(())
}

fn ready<'a>(value: &'a Value, destination: &'a Destination) -> Outcome<Option<CheckedResult<'a>>> {
    let name = &destination.name;
    let bytes = |meta: &Meta| value.bytes_as(meta);
    let copy = |bytes: Option<Cow<'_, [u8]>>| {
        bytes.map(|bytes| memory::allocated(&bytes, &format!("result '{name}'"))).transpose()
    };
    // A simulation that does not run bodies has no content: then nothing is written.
    Ok(match &destination.target {
        Target::Unwanted | Target::Remote(..) => None,
        Target::Memory { address, meta } => bytes(meta).map(|bytes| CheckedResult::Bytes(*address, bytes)),
        Target::Part { address, meta, whole } => bytes(meta).map(|bytes| CheckedResult::Part(*address, bytes, whole)),
        Target::Fresh { address } => {
            let mut rows = value.meta().clone();
            if let Meta::Array { order, .. } = &mut rows {
                *order = Order::C;
            }
            copy(bytes(&rows))?.map(|text| CheckedResult::Text(*address, text))
        }
        Target::List(list) => Some(CheckedResult::List(list, list.ready(name, value)?, name)),
        // The function has set it to NULL.
        Target::Text { address }
            if matches!(value.meta(), Meta::Bytes { size_bytes: 0 }) && value.payload().is_some() =>
        {
            Some(CheckedResult::Bytes(*address, Cow::Owned(vec![0; size_of::<usize>()])))
        }
        Target::Text { address } => copy(bytes(value.meta()))?.map(|text| CheckedResult::Text(*address, text)),
        // The function made no file.
        Target::File(_) if matches!(value.meta(), Meta::Text { .. }) => None,
        Target::File(path) => match value.payload() {
            Some(payload) => Some(CheckedResult::File(PendingFile::write(name, path, payload.bytes())?, name)),
            None => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::{ByteOrder, Dtype};
    use gridloom_net::payload::Payload;

    fn meta(order: Order, byte_order: ByteOrder, shape: &[u64]) -> Meta {
        Meta::Array { dtype: Dtype::Uint16, byte_order, order, shape: shape.to_vec() }
    }

    fn bytes(elements: &[u16]) -> Vec<u8> {
        elements.iter().flat_map(|element| element.to_ne_bytes()).collect()
    }

    #[test]
    fn a_result_of_another_size_is_not_written() {
        let mut place = [7u16; 2];
        let address = place.as_mut_ptr().expose_provenance();
        let value = Value::new(meta(Order::C, ByteOrder::NATIVE, &[1]), Payload::copied(&bytes(&[1]))).unwrap();
        let target = Target::Memory { address, meta: meta(Order::C, ByteOrder::NATIVE, &[2]) };
        let to = Destination { name: "y".into(), target };
        // SAFETY: memory for two elements.
        let failed = unsafe { deliver(&[value], &[to]) }.unwrap_err();
        assert!(failed.text.contains("'y'"), "{}", failed.text);
        assert_eq!(place, [7, 7]);
    }
}
