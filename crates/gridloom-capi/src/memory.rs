//! C's memory, as the layout's encoder reads it.

use std::ffi::c_void;
use std::slice;

use gridloom_layout::ProcessMemory;

/// The memory of this program, while one message is encoded.
pub(crate) struct Addresses(());

impl Addresses {
    /// # Safety
    /// While it exists, every pointer of the message is null or points to what its declaration describes, as C would
    /// read it, and nobody writes there. `gridloom_send` requires this of its caller, as `fwrite` does; the thread
    /// that called it is in the encoder and nowhere else.
    pub(crate) unsafe fn new() -> Addresses {
        Addresses(())
    }
}

impl ProcessMemory for Addresses {
    fn bytes(&self, address: u64, length: u64) -> Option<&[u8]> {
        if length == 0 {
            return Some(&[]);
        }
        let (start, length) = (usize::try_from(address).ok()?, usize::try_from(length).ok()?);
        if start == 0 || isize::try_from(length).is_err() || start.checked_add(length).is_none() {
            return None;
        }
        // SAFETY: see `Addresses::new`; not null, and the length does not exceed that of a slice. Padding that C never
        // wrote has some value by the time that it is read here, since C allocated it out of this compiler's sight.
        Some(unsafe { slice::from_raw_parts(std::ptr::with_exposed_provenance(start), length) })
    }

    fn text_length(&self, address: u64, limit: u64) -> Option<u64> {
        let start = usize::try_from(address).ok().filter(|start| *start != 0)?;
        let limit = usize::try_from(limit).ok()?;
        // SAFETY: see `Addresses::new`: a string that ends with a NUL, of which `strnlen` reads no byte beyond its end.
        let length = unsafe { libc::strnlen(std::ptr::with_exposed_provenance(start), limit) };
        (length < limit).then_some(length as u64)
    }
}

/// Returns a pointer of C as an address for [`Addresses`].
pub(crate) fn address_of(pointer: *const c_void) -> u64 {
    pointer.expose_provenance() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_texts_are_found_and_null_is_not() {
        let text = c"three";
        // SAFETY: only the text below is read.
        let memory = unsafe { Addresses::new() };
        let at = address_of(text.as_ptr().cast());
        assert_eq!(memory.bytes(at, 5), Some(&b"three"[..]));
        assert_eq!(memory.text_length(at, 100), Some(5));
        assert_eq!(memory.text_length(at, 5), None);
        assert_eq!(memory.bytes(0, 1), None);
        assert_eq!(memory.bytes(0, 0), Some(&[][..]));
        assert_eq!(memory.bytes(u64::MAX, 2), None);
        assert_eq!(memory.text_length(0, 9), None);
    }
}
