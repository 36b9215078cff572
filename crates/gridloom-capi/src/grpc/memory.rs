//! The program's memory, read and written where it said that arguments are.
//!
//! **Safety of all here:** a pointer leads to as many bytes as the function's signature says, as `printf` asks of its
//! arguments; nobody writes there while it is read, and nobody else uses it while it is written.

use std::ffi::{CStr, c_void};
use std::slice;

use super::code::{Failed, Outcome};

/// So many bytes of an input, for as long as they are copied.
///
/// # Safety
/// See the module.
pub(super) unsafe fn read<'a>(pointer: *const c_void, size_bytes: u64) -> Option<&'a [u8]> {
    let size = usize::try_from(size_bytes).ok().filter(|size| isize::try_from(*size).is_ok())?;
    match (size, pointer.is_null()) {
        (0, _) => Some(&[]),
        (_, true) => None,
        // SAFETY: promised by the caller.
        _ => Some(unsafe { slice::from_raw_parts(pointer.cast(), size) }),
    }
}

/// Writes a result.
///
/// # Safety
/// See the module.
pub(super) unsafe fn write(pointer: *mut c_void, bytes: &[u8]) {
    // SAFETY: promised by the caller; what is written lies in memory of the library.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.cast(), bytes.len()) };
}

/// A string as it lies there, which must be there.
///
/// # Safety
/// See the module.
pub(super) unsafe fn string<'a>(pointer: *const std::ffi::c_char, what: &str) -> Outcome<&'a [u8]> {
    if pointer.is_null() {
        return Err(Failed::null(what));
    }
    // SAFETY: a string that ends in a NUL, promised by the caller.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// A copy that the program frees, of `malloc`; a zero byte follows it.
pub(super) fn allocated(bytes: &[u8], what: &str) -> Outcome<Allocated> {
    // SAFETY: `malloc` gives room for all, or null.
    unsafe {
        let memory: *mut u8 = libc::malloc(bytes.len() + 1).cast();
        if memory.is_null() {
            return Err(Failed::other(format!("no memory for {} bytes of {what}", bytes.len())));
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
        memory.add(bytes.len()).write(0);
        Ok(Allocated(memory.cast()))
    }
}

/// Memory of `malloc` until the program has it.
pub(super) struct Allocated(*mut c_void);

impl Allocated {
    /// Writes its address where the program wants it.
    ///
    /// # Safety
    /// See the module: a place for a pointer.
    pub(super) unsafe fn give(self, place: *mut *mut c_void) {
        // SAFETY: promised by the caller.
        unsafe { place.write_unaligned(self.0) };
        std::mem::forget(self);
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: of `malloc`, and nobody else has it.
        unsafe { libc::free(self.0) };
    }
}

/// A text, which must be there.
///
/// # Safety
/// See the module.
pub(super) unsafe fn text<'a>(pointer: *const std::ffi::c_char, what: &str) -> Outcome<&'a str> {
    // SAFETY: promised by the caller.
    let bytes = unsafe { string(pointer, what) }?;
    std::str::from_utf8(bytes)
        .map_err(|_| Failed::other(format!("{what} is not UTF-8: '{}'", String::from_utf8_lossy(bytes))))
}

/// A place for a result of a function of the header, which must be there.
///
/// # Safety
/// Null, or a place for a value of that type that nobody else uses meanwhile.
pub(super) unsafe fn place<'a, T>(pointer: *mut T, what: &str) -> Outcome<&'a mut T> {
    // SAFETY: promised by the caller.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failed::null(what))
}

/// An array of ids or pointers, which must be there if it has elements.
///
/// # Safety
/// Null, or so many elements that nobody changes meanwhile.
pub(super) unsafe fn array<'a, T>(pointer: *const T, length: usize, what: &str) -> Outcome<&'a [T]> {
    match (length, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Failed::null(what)),
        // SAFETY: promised by the caller.
        _ => Ok(unsafe { slice::from_raw_parts(pointer, length) }),
    }
}
