//! Common code for attributes of handles and of sessions: fields are set to copies, and returned as copies.

use std::ffi::{c_char, c_int, c_void};

use gridloom_grpc::parts::{Failed, Outcome, memory};

/// `GRPC_ARGUMENT_TRANSFER_WAIT`.
pub(crate) const WAIT: c_int = 1;

/// The location of an attribute.
pub(crate) enum Field {
    Text(*mut *mut c_char),
    Number(*mut c_int),
}

pub(crate) fn no_attribute(name: c_int) -> Failed {
    Failed::other(format!("there is no attribute {name}; the header lists the attributes"))
}

/// Sets a field to a copy of a value.
///
/// # Safety
/// The value has the field's type, or is null.
pub(crate) unsafe fn set(field: Field, value: *mut c_void) -> Outcome<()> {
    // SAFETY: promised by the caller; strings in fields come from `malloc`.
    unsafe {
        match field {
            Field::Text(place) => {
                let copy = copied(value.cast())?;
                libc::free((*place).cast());
                *place = copy;
            }
            Field::Number(place) => {
                *place = memory::program_memory(value.cast::<c_int>(), "the attribute's value")?.read()
            }
        }
    }
    Ok(())
}

/// Returns a copy of a field.
///
/// # Safety
/// `value` points to memory for a pointer.
pub(crate) unsafe fn get(field: Field, value: *mut *mut c_void) -> Outcome<()> {
    let place = memory::program_memory(value, "the pointer for the attribute's value")?;
    // SAFETY: promised by the caller.
    unsafe {
        let copy: *mut c_void = match field {
            Field::Text(text) => copied(*text)?.cast(),
            Field::Number(number) => {
                let copy: *mut c_int = libc::malloc(size_of::<c_int>()).cast();
                if copy.is_null() {
                    return Err(no_memory());
                }
                copy.write(*number);
                copy.cast()
            }
        };
        place.write(copy);
    }
    Ok(())
}

/// Returns a copy made by `malloc`; null for null.
///
/// # Safety
/// Null, or a C string.
pub(crate) unsafe fn copied(text: *const c_char) -> Outcome<*mut c_char> {
    if text.is_null() {
        return Ok(std::ptr::null_mut());
    }
    // SAFETY: promised by the caller.
    let copy = unsafe { libc::strdup(text) };
    if copy.is_null() { Err(no_memory()) } else { Ok(copy) }
}

fn no_memory() -> Failed {
    Failed::other("no memory for an attribute")
}
