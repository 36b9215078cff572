//! Dictionaries from strings to pointers, in alphabetical order, so that the order of iteration is the same in every run.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ops::Bound;

/// `gridloom_dictionary`.
#[derive(Debug, Default)]
pub struct Dictionary(BTreeMap<CString, *mut c_void>);

/// Returns a key; null is the empty string.
///
/// # Safety
/// Null, or a C string.
unsafe fn key_of<'a>(key: *const c_char) -> &'a CStr {
    // SAFETY: promised by the caller.
    if key.is_null() { c"" } else { unsafe { CStr::from_ptr(key) } }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_dictionary_new() -> *mut Dictionary {
    Box::into_raw(Box::default())
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_dictionary_free(dictionary: *mut Dictionary) {
    if !dictionary.is_null() {
        // SAFETY: made by `gridloom_dictionary_new`, as the header requires.
        drop(unsafe { Box::from_raw(dictionary) });
    }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_dictionary_count(dictionary: *const Dictionary) -> usize {
    // SAFETY: null or a dictionary, as the header requires.
    unsafe { dictionary.as_ref() }.map_or(0, |dictionary| dictionary.0.len())
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_dictionary_set(
    dictionary: *mut Dictionary,
    key: *const c_char,
    value: *mut c_void,
) -> *mut c_void {
    // SAFETY: a dictionary and a text, as the header requires.
    let (dictionary, key) = unsafe { (&mut *dictionary, key_of(key)) };
    match dictionary.0.get_mut(key) {
        // The key is not replaced: `gridloom_dictionary_next` may have returned a pointer to it.
        Some(place) => std::mem::replace(place, value),
        None => {
            dictionary.0.insert(key.to_owned(), value);
            std::ptr::null_mut()
        }
    }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_dictionary_get(
    dictionary: *const Dictionary,
    key: *const c_char,
) -> *mut c_void {
    // SAFETY: a dictionary and a text, as the header requires.
    let (dictionary, key) = unsafe { (dictionary.as_ref(), key_of(key)) };
    dictionary.and_then(|dictionary| dictionary.0.get(key).copied()).unwrap_or(std::ptr::null_mut())
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_dictionary_remove(
    dictionary: *mut Dictionary,
    key: *const c_char,
) -> *mut c_void {
    // SAFETY: a dictionary and a text, as the header requires.
    let (dictionary, key) = unsafe { (dictionary.as_mut(), key_of(key)) };
    dictionary.and_then(|dictionary| dictionary.0.remove(key)).unwrap_or(std::ptr::null_mut())
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_dictionary_next(
    dictionary: *const Dictionary,
    after: *const c_char,
) -> *const c_char {
    // SAFETY: a dictionary, as the header requires.
    let Some(dictionary) = (unsafe { dictionary.as_ref() }) else { return std::ptr::null() };
    let from = match after.is_null() {
        true => Bound::Unbounded,
        // SAFETY: a C string, as the header requires.
        false => Bound::Excluded(unsafe { key_of(after) }),
    };
    let next = dictionary.0.range::<CStr, _>((from, Bound::Unbounded)).next();
    next.map_or(std::ptr::null(), |(key, _)| key.as_ptr())
}
