//! Encodes lists of strings or file contents as the bytes of one value, the same on every machine: the number of
//! items, then for each item its length and its bytes. Numbers are `u64`, little-endian. The length 2⁶⁴−1 marks a
//! missing item.

use std::io::{self, Read};

/// Returns the encoded list.
pub fn pack<'a>(items: impl ExactSizeIterator<Item = Option<&'a [u8]>>) -> Vec<u8> {
    let mut packed = (items.len() as u64).to_le_bytes().to_vec();
    for item in items {
        packed.extend(item.map_or(MISSING, |bytes| bytes.len() as u64).to_le_bytes());
        packed.extend(item.unwrap_or_default());
    }
    packed
}

/// Returns the encoded list of the contents of files or other readers. Each is read directly into the result and then
/// dropped.
///
/// # Errors
/// If an item cannot be read.
pub fn pack_read(items: impl ExactSizeIterator<Item = impl Read>) -> io::Result<Vec<u8>> {
    let mut packed = (items.len() as u64).to_le_bytes().to_vec();
    for mut item in items {
        let start = packed.len();
        packed.extend([0; 8]);
        let length = item.read_to_end(&mut packed)? as u64;
        packed[start..start + 8].copy_from_slice(&length.to_le_bytes());
    }
    Ok(packed)
}

/// Returns the items of a list, or `None` if the bytes do not encode one.
pub fn unpack(packed: &[u8]) -> Option<Vec<Option<&[u8]>>> {
    let (count, mut rest) = number(packed)?;
    // Each item takes at least the bytes of its length.
    let count = usize::try_from(count).ok().filter(|count| *count <= rest.len() / 8)?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, behind) = number(rest)?;
        rest = behind;
        if length == MISSING {
            items.push(None);
            continue;
        }
        let (item, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        items.push(Some(item));
        rest = behind;
    }
    rest.is_empty().then_some(items)
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*number), rest))
}

const MISSING: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let items = [Some(&b"one"[..]), None, Some(b""), Some(b"\0\xff")];
        assert_eq!(unpack(&pack(items.into_iter())).unwrap(), items);
        assert_eq!(unpack(&pack([].into_iter())).unwrap(), [None; 0]);
        let read = pack_read([&b"one"[..], b"", b"\0\xff"].into_iter()).unwrap();
        assert_eq!(read, pack([Some(&b"one"[..]), Some(b""), Some(b"\0\xff")].into_iter()));
    }

    #[test]
    fn other_bytes_are_no_list() {
        let packed = pack([Some(&b"one"[..]), None].into_iter());
        for cut in 0..packed.len() {
            assert_eq!(unpack(&packed[..cut]), None, "{cut}");
        }
        assert_eq!(unpack(&[&packed[..], b"x"].concat()), None);
        assert_eq!(unpack(&[0xff; 8]), None);
        assert_eq!(unpack(&[1, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
