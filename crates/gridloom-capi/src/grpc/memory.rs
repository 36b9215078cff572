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

/// A text, which must be there.
///
/// # Safety
/// See the module.
pub(super) unsafe fn text<'a>(pointer: *const std::ffi::c_char, what: &str) -> Outcome<&'a str> {
    if pointer.is_null() {
        return Err(Failed::null(what));
    }
    // SAFETY: a string that ends in a NUL, promised by the caller.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failed::other(format!("{what} is not UTF-8: '{}'", text.to_string_lossy())))
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
