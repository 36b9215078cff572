//! Attributes of handles (`grpc_ninfg.h`): stored, and used to make handles.

use std::ffi::{CString, c_char, c_int, c_void};

use gridloom_grpc::parts::{Failed, Outcome, call_of, last_error, library, memory, run, run_for};
use gridloom_grpc::{CFunctionHandle, CObjectHandle, GRPC_NO_ERROR, grpc_object_handle_array_init_np};

use crate::attributes::{Field, WAIT, copied, get, no_attribute, set};

/// `grpc_handle_attr_t_np`.
#[derive(Debug)]
#[repr(C)]
pub struct CHandleAttr {
    host: *mut c_char,
    port: c_int,
    job_manager: *mut c_char,
    subject: *mut c_char,
    function: *mut c_char,
    start_timeout: c_int,
    stop_timeout: c_int,
    transfer: c_int,
    queue: *mut c_char,
    ranks: c_int,
}

/// Returns the attribute of that number, which C counts from 0.
///
/// # Safety
/// Points to initialized attributes.
unsafe fn handle_field(attr: *mut CHandleAttr, name: c_int) -> Outcome<Field> {
    let attr = memory::program_memory(attr, "the attributes")?.pointer();
    // SAFETY: promised by the caller; only pointers to fields are made.
    unsafe {
        Ok(match name {
            0 => Field::Text(&raw mut (*attr).host),
            1 => Field::Number(&raw mut (*attr).port),
            2 => Field::Text(&raw mut (*attr).job_manager),
            3 => Field::Text(&raw mut (*attr).subject),
            4 => Field::Text(&raw mut (*attr).function),
            5 => Field::Number(&raw mut (*attr).start_timeout),
            6 => Field::Number(&raw mut (*attr).stop_timeout),
            7 => Field::Number(&raw mut (*attr).transfer),
            8 => Field::Text(&raw mut (*attr).queue),
            9 => Field::Number(&raw mut (*attr).ranks),
            _ => return Err(no_attribute(name)),
        })
    }
}

impl CHandleAttr {
    fn empty() -> CHandleAttr {
        let none = std::ptr::null_mut();
        CHandleAttr {
            host: none,
            port: 0,
            job_manager: none,
            subject: none,
            function: none,
            start_timeout: 0,
            stop_timeout: 0,
            transfer: WAIT,
            queue: none,
            ranks: 0,
        }
    }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_handle_attr_initialize_np(attr: *mut CHandleAttr) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe {
        memory::program_memory(attr, "the attributes")?.write_new(CHandleAttr::empty());
        Ok(())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_handle_attr_destruct_np(attr: *mut CHandleAttr) -> c_int {
    // SAFETY: initialized, as the header requires, so its strings come from `malloc` or are null.
    run(|| unsafe {
        for name in [0, 2, 3, 4, 8] {
            set(handle_field(attr, name)?, std::ptr::null_mut())?;
        }
        Ok(())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_handle_attr_set_np(
    attr: *mut CHandleAttr,
    name: CHandleAttrName,
    value: *mut c_void,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { set(handle_field(attr, name as c_int)?, value) })
}

/// `grpc_handle_attr_name_t_np`, as C passes an enumeration.
pub type CHandleAttrName = u32;

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_handle_attr_get_np(
    attr: *mut CHandleAttr,
    name: CHandleAttrName,
    value: *mut *mut c_void,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { get(handle_field(attr, name as c_int)?, value) })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_handle_attr_release_np(value: *mut c_void) -> c_int {
    // SAFETY: null, or a copy that was returned to the program, as the header requires.
    unsafe { libc::free(value) };
    GRPC_NO_ERROR
}

/// The settings with which handles are made.
struct HandleSettings {
    server: Option<CString>,
    /// Name of a function or of a class.
    name: *const c_char,
    ranks: u32,
}

/// Reads the settings from attributes.
///
/// # Safety
/// Points to initialized attributes.
unsafe fn named(attr: *mut CHandleAttr) -> Outcome<HandleSettings> {
    // SAFETY: promised by the caller.
    unsafe {
        let attr = &*memory::program_memory(attr, "the attributes")?.pointer();
        let host = memory::string_or_null(attr.host.cast()).map(|host| String::from_utf8_lossy(host).into_owned());
        let server = match attr.port {
            0 => host,
            port => host.map(|host| format!("{host}:{port}")),
        };
        let ranks = u32::try_from(attr.ranks).map_err(|_| {
            let what = format!("GRPC_HANDLE_ATTR_MPI_NCPUS is {}", attr.ranks);
            Failed::other(format!("{what}; give the number of ranks, or 0 for those of the server"))
        })?;
        Ok(HandleSettings { server: to_text(server)?, name: attr.function, ranks })
    }
}

/// Converts a server's name for C.
fn to_text(server: Option<String>) -> Outcome<Option<CString>> {
    let text = server.map(CString::new).transpose();
    text.map_err(|_| Failed::other("the server's name has a zero byte in it"))
}

fn pointer(server: Option<&CString>) -> *const c_char {
    server.map_or(std::ptr::null(), |server| server.as_ptr())
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_array_init_with_attr_np(
    handles: *mut CFunctionHandle,
    count: usize,
    attr: *mut CHandleAttr,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe {
        let HandleSettings { server, name, ranks } = named(attr)?;
        library()?.make_handles(handles, count, pointer(server.as_ref()), name, ranks)
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_init_with_attr_np(
    handle: *mut CFunctionHandle,
    attr: *mut CHandleAttr,
) -> c_int {
    // SAFETY: required by the header.
    unsafe { grpc_function_handle_array_init_with_attr_np(handle, 1, attr) }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_array_init_with_attr_np(
    handles: *mut CObjectHandle,
    count: usize,
    attr: *mut CHandleAttr,
) -> c_int {
    // SAFETY: required by the header.
    match run_for(|| unsafe { named(attr) }.map(Some), None) {
        // SAFETY: as above.
        Some(told) => unsafe {
            grpc_object_handle_array_init_np(handles, count, pointer(told.server.as_ref()), told.name)
        },
        None => last_error().0,
    }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_init_with_attr_np(
    handle: *mut CObjectHandle,
    attr: *mut CHandleAttr,
) -> c_int {
    // SAFETY: required by the header.
    unsafe { grpc_object_handle_array_init_with_attr_np(handle, 1, attr) }
}

/// Writes the settings with which a handle was made.
///
/// # Safety
/// `attr` points to memory for attributes.
unsafe fn write_attributes(attr: *mut CHandleAttr, server: Option<&str>, name: &str, ranks: u32) -> Outcome<()> {
    let place = memory::program_memory(attr, "the pointer for the attributes")?;
    let text = |text: &str| CString::new(text).map_err(|_| Failed::other("a name has a zero byte in it"));
    let (name, server) = (text(name)?, server.map(text).transpose()?);
    let mut told = CHandleAttr { ranks: c_int::try_from(ranks).unwrap_or(c_int::MAX), ..CHandleAttr::empty() };
    // SAFETY: promised by the caller; the strings belong to this function.
    unsafe {
        told.function = copied(name.as_ptr())?;
        told.host = copied(pointer(server.as_ref()))?;
        place.write_new(told);
    }
    Ok(())
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_get_attr_np(
    handle: *mut CFunctionHandle,
    attr: *mut CHandleAttr,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe {
        let call = call_of(handle)?;
        write_attributes(attr, call.server(), call.function().name(), call.function().ranks())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_get_attr_np(
    handle: *mut CObjectHandle,
    attr: *mut CHandleAttr,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe {
        let library = library()?;
        let object = library.object(handle)?;
        let server = object.server().and_then(|node| library.server_name(node));
        write_attributes(attr, server.as_deref(), object.class(), 0)
    })
}
