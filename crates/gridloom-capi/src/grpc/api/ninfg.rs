//! What Ninf-G has beyond the standard: its configuration, attributes of handles and of sessions.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::Write as _;
use std::time::Duration;

use super::super::code::{Failed, GRPC_NO_ERROR, GRPC_SERVER_NOT_FOUND, Outcome, last, name_of, run, run_for};
use super::super::config::{self, Config};
use super::super::handles::{CFunctionHandle, CObjectHandle};
use super::super::library::{Library, library};
use super::super::memory;
use super::calls::{OpenCall, call_of, method_of};
use super::handles::grpc_function_handle_array_init_np;
use super::objects::{grpc_get_object_handle_np, grpc_object_handle_array_init_np};
use super::stacks::{ArgStack, begin_stack, call_stack};
use super::waits::grpc_get_handle;

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

/// `grpc_session_attr_t_np`.
#[derive(Debug)]
#[repr(C)]
pub struct CSessionAttr {
    transfer: c_int,
    timeout: c_int,
    transfers: [c_int; 4],
}

/// `GRPC_ARGUMENT_TRANSFER_WAIT`.
const WAIT: c_int = 1;

/// Where an attribute lies.
enum Field {
    Text(*mut *mut c_char),
    Number(*mut c_int),
}

/// The attribute of that number, which C counts from 0.
///
/// # Safety
/// Attributes that were initialized.
unsafe fn handle_field(attr: *mut CHandleAttr, name: c_int) -> Outcome<Field> {
    let attr = memory::place(attr, "the attributes")?.pointer();
    // SAFETY: promised by the caller; fields are only pointed to.
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

/// Likewise, of a session.
///
/// # Safety
/// Attributes that were initialized.
unsafe fn session_field(attr: *mut CSessionAttr, name: c_int) -> Outcome<Field> {
    let attr = memory::place(attr, "the attributes")?.pointer();
    // SAFETY: promised by the caller; fields are only pointed to.
    unsafe {
        Ok(match name {
            0 => Field::Number(&raw mut (*attr).transfer),
            1 => Field::Number(&raw mut (*attr).timeout),
            2..=5 => Field::Number((&raw mut (*attr).transfers).cast::<c_int>().add(name as usize - 2)),
            _ => return Err(no_attribute(name)),
        })
    }
}

fn no_attribute(name: c_int) -> Failed {
    Failed::other(format!("there is no attribute {name}; the header names those that there are"))
}

/// Sets a field to a copy of a value.
///
/// # Safety
/// The value is of the field's type, or null.
unsafe fn set(field: Field, value: *mut c_void) -> Outcome<()> {
    // SAFETY: promised by the caller; texts in fields are of `malloc`.
    unsafe {
        match field {
            Field::Text(place) => {
                let copy = copied(value.cast())?;
                libc::free((*place).cast());
                *place = copy;
            }
            Field::Number(place) => *place = memory::place(value.cast::<c_int>(), "the attribute's value")?.read(),
        }
    }
    Ok(())
}

/// Gives a copy of a field.
///
/// # Safety
/// A place for a pointer.
unsafe fn get(field: Field, value: *mut *mut c_void) -> Outcome<()> {
    let place = memory::place(value, "the place for the attribute's value")?;
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

/// A copy of `malloc`; null of null.
///
/// # Safety
/// Null, or a text.
unsafe fn copied(text: *const c_char) -> Outcome<*mut c_char> {
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
pub unsafe extern "C-unwind" fn grpc_config_file_read_np(config_file_name: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        // SAFETY: a text, as the header asks.
        let name = unsafe { memory::text(config_file_name, "the name of the configuration") }?;
        library.reconfigure(&Config::read(Some(name))?);
        Ok(())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_handle_attr_initialize_np(attr: *mut CHandleAttr) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe {
        memory::place(attr, "the attributes")?.write_new(CHandleAttr::empty());
        Ok(())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_handle_attr_destruct_np(attr: *mut CHandleAttr) -> c_int {
    // SAFETY: as the header asks: initialized, so that its texts are of `malloc` or null.
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
    // SAFETY: as the header asks.
    run(|| unsafe { set(handle_field(attr, name as c_int)?, value) })
}

/// `grpc_handle_attr_name_t_np`, as C passes an enumeration.
pub type CHandleAttrName = u32;
/// `grpc_session_attr_name_t_np`.
pub type CSessionAttrName = u32;

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_handle_attr_get_np(
    attr: *mut CHandleAttr,
    name: CHandleAttrName,
    value: *mut *mut c_void,
) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe { get(handle_field(attr, name as c_int)?, value) })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_handle_attr_release_np(value: *mut c_void) -> c_int {
    // SAFETY: as the header asks: what was given as a copy, or null.
    unsafe { libc::free(value) };
    GRPC_NO_ERROR
}

/// The server and the function or class that attributes name.
///
/// # Safety
/// Attributes that were initialized.
unsafe fn named(attr: *mut CHandleAttr) -> Outcome<(Option<String>, *const c_char)> {
    // SAFETY: promised by the caller.
    unsafe {
        let attr = &*memory::place(attr, "the attributes")?.pointer();
        let host = memory::string_or_null(attr.host.cast()).map(|host| String::from_utf8_lossy(host).into_owned());
        let server = match attr.port {
            0 => host,
            port => host.map(|host| format!("{host}:{port}")),
        };
        Ok((server, attr.function))
    }
}

/// Makes handles on the server and of the name that attributes tell.
///
/// # Safety
/// Attributes.
unsafe fn with_named(attr: *mut CHandleAttr, make: impl FnOnce(*const c_char, *const c_char) -> c_int) -> c_int {
    // SAFETY: promised by the caller.
    match run_for(|| unsafe { named(attr) }.and_then(|(server, name)| Ok(Some((to_text(server)?, name)))), None) {
        Some((server, name)) => make(pointer(server.as_ref()), name),
        None => last().0,
    }
}

/// As C passes a server's name.
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
    // SAFETY: as the header asks.
    unsafe { with_named(attr, |server, name| grpc_function_handle_array_init_np(handles, count, server, name)) }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_init_with_attr_np(
    handle: *mut CFunctionHandle,
    attr: *mut CHandleAttr,
) -> c_int {
    // SAFETY: as the header asks.
    unsafe { grpc_function_handle_array_init_with_attr_np(handle, 1, attr) }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_array_init_with_attr_np(
    handles: *mut CObjectHandle,
    count: usize,
    attr: *mut CHandleAttr,
) -> c_int {
    // SAFETY: as the header asks.
    unsafe { with_named(attr, |server, name| grpc_object_handle_array_init_np(handles, count, server, name)) }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_init_with_attr_np(
    handle: *mut CObjectHandle,
    attr: *mut CHandleAttr,
) -> c_int {
    // SAFETY: as the header asks.
    unsafe { grpc_object_handle_array_init_with_attr_np(handle, 1, attr) }
}

/// Writes what a handle was made with.
///
/// # Safety
/// A place for attributes.
unsafe fn tell(attr: *mut CHandleAttr, server: Option<&str>, name: &str) -> Outcome<()> {
    let place = memory::place(attr, "the place for the attributes")?;
    let text = |text: &str| CString::new(text).map_err(|_| Failed::other("a name has a zero byte in it"));
    let (name, server) = (text(name)?, server.map(text).transpose()?);
    let mut told = CHandleAttr::empty();
    // SAFETY: promised by the caller; texts of this function.
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
    // SAFETY: as the header asks.
    run(|| unsafe {
        let call = call_of(handle)?;
        tell(attr, call.bound.server.as_deref(), call.function().name())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_get_attr_np(
    handle: *mut CObjectHandle,
    attr: *mut CHandleAttr,
) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe {
        let library = library()?;
        let held = library.objects.find(&memory::place(handle, "the handle")?.read())?;
        let view = library.grid.servers();
        let server = held.server().and_then(|node| view.servers.iter().find(|server| server.node == node));
        tell(attr, server.map(|server| server.name.as_str()), held.class())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_get_from_session_np(
    handle: *mut *mut CFunctionHandle,
    session_id: c_int,
) -> c_int {
    // SAFETY: as the header asks.
    unsafe { grpc_get_handle(handle, session_id) }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_get_from_session_np(
    handle: *mut *mut CObjectHandle,
    session_id: c_int,
) -> c_int {
    // SAFETY: as the header asks.
    unsafe { grpc_get_object_handle_np(handle, session_id) }
}

impl Library {
    /// Whether that server is there, if one is needed; else, whether one is.
    fn check_server(&self, node: Option<gridloom_base::NodeId>) -> Outcome<()> {
        let view = self.some_servers()?;
        match node.is_none_or(|node| view.servers.iter().any(|server| server.node == node)) {
            true => Ok(()),
            false => Err(Failed::new(GRPC_SERVER_NOT_FOUND, "the handle's server has left; make the handle anew")),
        }
    }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_is_ready_np(handle: *mut CFunctionHandle) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe {
        let call = call_of(handle)?;
        call.library.check_server(call.function().server())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_is_ready_np(handle: *mut CObjectHandle) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe {
        let library = library()?;
        let held = library.objects.find(&memory::place(handle, "the handle")?.read())?;
        library.check_server(held.server())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_get_error_np(handle: *mut CFunctionHandle) -> c_int {
    // SAFETY: as the header asks.
    unsafe { grpc_function_handle_is_ready_np(handle) }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_get_error_np(handle: *mut CObjectHandle) -> c_int {
    // SAFETY: as the header asks.
    unsafe { grpc_object_handle_is_ready_np(handle) }
}

/// Writes the name of a handle's error behind a text.
///
/// # Safety
/// Null, or a text.
unsafe fn say(text: *const c_char, code: c_int) -> c_int {
    // SAFETY: promised by the caller.
    let text = unsafe { memory::string_or_null(text.cast()) }.unwrap_or_default();
    // Nobody reads on: there is nowhere to say it.
    let _ = writeln!(std::io::stderr(), "{}: {}", String::from_utf8_lossy(text), name_of(code).to_string_lossy());
    GRPC_NO_ERROR
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_function_handle_perror_np(
    handle: *mut CFunctionHandle,
    text: *const c_char,
) -> c_int {
    // SAFETY: as the header asks.
    unsafe { say(text, grpc_function_handle_is_ready_np(handle)) }
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_object_handle_perror_np(handle: *mut CObjectHandle, text: *const c_char) -> c_int {
    // SAFETY: as the header asks.
    unsafe { say(text, grpc_object_handle_is_ready_np(handle)) }
}

/// Writes the attributes that calls have by themselves.
///
/// # Safety
/// A place for attributes.
unsafe fn begin_attributes(attr: *mut CSessionAttr, limit: Option<Duration>) -> Outcome<()> {
    let timeout = limit.map_or(0, |limit| c_int::try_from(limit.as_secs().max(1)).unwrap_or(c_int::MAX));
    let fresh = CSessionAttr { transfer: WAIT, timeout, transfers: [0; 4] };
    // SAFETY: promised by the caller.
    unsafe { memory::place(attr, "the place for the attributes")?.write_new(fresh) };
    Ok(())
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_attr_initialize_np(
    handle: *mut CFunctionHandle,
    attr: *mut CSessionAttr,
) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe { begin_attributes(attr, call_of(handle)?.bound.limit()) })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_attr_initialize_with_object_handle_np(
    handle: *mut CObjectHandle,
    attr: *mut CSessionAttr,
) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe {
        let library = library()?;
        library.objects.find(&memory::place(handle, "the handle")?.read())?;
        begin_attributes(attr, library.limit)
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_attr_destruct_np(attr: *mut CSessionAttr) -> c_int {
    run(|| memory::place(attr, "the attributes").map(drop))
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_attr_set_np(
    attr: *mut CSessionAttr,
    name: CSessionAttrName,
    value: *mut c_void,
) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe { set(session_field(attr, name as c_int)?, value) })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_attr_get_np(
    attr: *mut CSessionAttr,
    name: CSessionAttrName,
    value: *mut *mut c_void,
) -> c_int {
    // SAFETY: as the header asks.
    run(|| unsafe { get(session_field(attr, name as c_int)?, value) })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_attr_release_np(value: *mut c_void) -> c_int {
    // SAFETY: as the header asks: what was given as a copy, or null.
    unsafe { libc::free(value) };
    GRPC_NO_ERROR
}

/// The time limit that attributes give a call.
///
/// # Safety
/// Attributes that were initialized.
unsafe fn limit_of(attr: *const CSessionAttr) -> Outcome<Option<Duration>> {
    // SAFETY: promised by the caller.
    let timeout = unsafe { (*memory::place(attr.cast_mut(), "the attributes")?.pointer()).timeout };
    config::limit(f64::from(timeout)).map_err(|why| Failed::other(format!("a time limit of {why}")))
}

/// See `calls.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_grpc_within(call: *mut OpenCall, attr: *const CSessionAttr) -> c_int {
    // SAFETY: `calls.c` opened it; the attributes are as the header asks.
    run(|| unsafe {
        match limit_of(attr) {
            Ok(limit) => (*call).limit(limit),
            Err(failed) => {
                (*call).give_up();
                return Err(failed);
            }
        }
        Ok(())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_call_arg_stack_with_attr_np(
    handle: *mut CFunctionHandle,
    attr: *mut CSessionAttr,
    stack: *mut ArgStack,
) -> c_int {
    // SAFETY: as the header asks.
    run_for(|| unsafe { call_stack(&call_of(handle)?.within(limit_of(attr)?), stack) }.map(|()| 0), -1)
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_call_arg_stack_async_with_attr_np(
    handle: *mut CFunctionHandle,
    attr: *mut CSessionAttr,
    stack: *mut ArgStack,
) -> c_int {
    // SAFETY: as the header asks.
    run_for(|| unsafe { begin_stack(&call_of(handle)?.within(limit_of(attr)?), stack) }, -1)
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_invoke_arg_stack_with_attr_np(
    handle: *mut CObjectHandle,
    method: *const c_char,
    attr: *mut CSessionAttr,
    stack: *mut ArgStack,
) -> c_int {
    // SAFETY: as the header asks.
    run_for(|| unsafe { call_stack(&method_of(handle, method)?.within(limit_of(attr)?), stack) }.map(|()| 0), -1)
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_invoke_arg_stack_async_with_attr_np(
    handle: *mut CObjectHandle,
    method: *const c_char,
    attr: *mut CSessionAttr,
    stack: *mut ArgStack,
) -> c_int {
    // SAFETY: as the header asks.
    run_for(|| unsafe { begin_stack(&method_of(handle, method)?.within(limit_of(attr)?), stack) }, -1)
}
