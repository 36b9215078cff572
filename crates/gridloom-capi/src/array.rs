//! Growing arrays in the C library's memory, so that a program can free them itself.

use std::ffi::c_void;

use crate::current;

/// True if an address is in a received message, whose memory cannot grow.
fn is_received(data: *const c_void) -> bool {
    let address = data.addr();
    current::context().is_ok_and(|context| {
        let arenas = context.arenas.borrow();
        arenas.range(..=address).next_back().is_some_and(|(_, end)| address < *end)
    })
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_array_grown(
    data: *mut c_void,
    length: usize,
    capacity: *mut usize,
    element_size: usize,
    count: usize,
) -> *mut c_void {
    // SAFETY: the array's field, as the header requires.
    let capacity = unsafe { &mut *capacity };
    if count <= *capacity {
        return data;
    }
    let elements = count.max(capacity.saturating_mul(2)).max(4);
    let bytes = elements.saturating_mul(element_size.max(1));
    let is_received = is_received(data);
    // SAFETY: null, or allocated by the C library for this array.
    let grown = unsafe { libc::realloc(if is_received { std::ptr::null_mut() } else { data }, bytes) };
    assert!(!grown.is_null(), "no memory for an array of {elements} elements of {element_size} bytes");
    if is_received {
        // SAFETY: the array has this many elements, and the new memory is larger.
        unsafe { std::ptr::copy_nonoverlapping(data.cast::<u8>(), grown.cast(), length * element_size) };
    }
    *capacity = elements;
    grown
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_array_drop(data: *mut c_void) {
    if !is_received(data) {
        // SAFETY: null, or allocated by the C library for this array.
        unsafe { libc::free(data) };
    }
}
