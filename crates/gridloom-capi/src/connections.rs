//! Connections by host and port, and messages sent through them.

use std::ffi::{c_char, c_int, c_void};

use gridloom::process::{PeerId, Process, ProcessMessage};

use crate::code::{Failure, GRIDLOOM_OK};
use crate::current::{self, Context, code_of, with};
use crate::declare::text;
use crate::memory::{Addresses, address_of};
use crate::message::{CMessage, OwnedMessage};
use crate::types::{self, MessageType};

/// Returns a string that must not be null.
pub(crate) unsafe fn required_string(pointer: *const c_char, what: &str) -> Result<String, Failure> {
    // SAFETY: null or a C string, guaranteed by the caller.
    unsafe { text(pointer) }.ok_or_else(|| Failure::usage(format!("{what} is NULL; pass a string")))
}

/// Converts a time limit; `None` is no limit.
pub(crate) fn limit(seconds: f64) -> Result<Option<f64>, Failure> {
    if seconds.is_nan() {
        return Err(Failure::usage("a time of NaN seconds; give a number, or GRIDLOOM_FOREVER"));
    }
    Ok((seconds >= 0.0).then_some(seconds))
}

fn port_of(port: c_int) -> Result<u16, Failure> {
    u16::try_from(port).map_err(|_| Failure::usage(format!("{port} is not a port; ports are 0 to 65535")))
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_listen(port: c_int) -> c_int {
    with(|process, _| Ok(c_int::from(process.listen(port_of(port)?)?))).unwrap_or_else(|code| code)
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_connect(host: *const c_char, port: c_int, patience: f64) -> i64 {
    let connected = with(|process, context| {
        // SAFETY: a C string, as the header requires.
        let host = unsafe { required_string(host, "the host's name") }?;
        let patience = limit(patience)?.unwrap_or(f64::INFINITY);
        Ok(context.add_peer(process.connect(&host, port_of(port)?, patience)?))
    });
    connected.unwrap_or_else(i64::from)
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_close(peer: i64) {
    // An invalid connection need not be closed; `gridloom_last_error` has the text.
    let _ = with(|process, context| {
        process.close(context.peer(peer)?);
        Ok(())
    });
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_describe(peer: i64, text: *mut c_char, size: usize) -> usize {
    let described = with(|process, context| Ok(process.describe(context.peer(peer)?))).unwrap_or_default();
    if size > 0 && !text.is_null() {
        let length = described.len().min(size - 1);
        // SAFETY: there is room for `size` characters, as the header requires.
        unsafe {
            std::ptr::copy_nonoverlapping(described.as_ptr(), text.cast(), length);
            *text.add(length) = 0;
        }
    }
    described.len()
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_send(peer: i64, kind: *const c_char, value: *const c_void) -> c_int {
    code_of(|process, context| {
        // SAFETY: a C string, as the header requires.
        let kind = unsafe { required_string(kind, "the message type") }?;
        let peer = context.peer(peer)?;
        // SAFETY: a value of the type, as the header requires.
        unsafe { send(process, peer, &kind, value) }
    })
}

/// Sends the message at `value`. The first message of its type to a peer carries the type's declaration, so that a
/// receiver with another declaration can report the difference.
unsafe fn send(process: &mut Process, peer: PeerId, kind: &str, value: *const c_void) -> Result<(), Failure> {
    let MessageType { form, is_signal, .. } = types::types().get(kind)?;
    match (is_signal, value.is_null()) {
        (true, false) => {
            return Err(Failure::usage(format!("message type '{kind}' is a signal, without data; send it with NULL")));
        }
        (false, true) => {
            let text = format!("a message of type '{kind}' is sent with NULL; give the address of its struct");
            return Err(Failure::usage(text));
        }
        (true, true) | (false, false) => {}
    }
    // SAFETY: the caller's value, or the single byte of a signal, matches its declaration, and this thread is in the encoder.
    let memory = unsafe { Addresses::new() };
    let unused = [0u8];
    let address = address_of(if *is_signal { unused.as_ptr().cast() } else { value });
    let hash = form.schema().hash();
    let is_new = !process.knows_declaration(peer, hash);
    let mut payload = process.buffer();
    form.encode_into(&mut payload, &memory, address, is_new)?;
    process.send_bytes(peer, kind, payload)?;
    process.note_declared(peer, hash);
    Ok(())
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_send_bytes(
    peer: i64,
    kind: *const c_char,
    bytes: *const c_void,
    size: usize,
) -> c_int {
    code_of(|process, context| {
        // SAFETY: a C string, as the header requires.
        let kind = unsafe { required_string(kind, "the message type") }?;
        if bytes.is_null() && size > 0 {
            return Err(Failure::usage(format!("{size} bytes at NULL; give their address")));
        }
        let given = match size {
            0 => &[],
            // SAFETY: there are `size` bytes, as the header requires.
            _ => unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) },
        };
        let peer = context.peer(peer)?;
        let mut payload = process.buffer();
        payload.extend_from_slice(given);
        Ok(process.send_bytes(peer, &kind, payload)?)
    })
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_wait_for(
    kind: *const c_char,
    from: i64,
    seconds: f64,
    message: *mut *mut CMessage,
) -> c_int {
    // SAFETY: a C string, as the header requires.
    let got = with(|process, context| {
        wait_for(process, context, &unsafe { required_string(kind, "the message type") }?, from, seconds)
    });
    match got {
        Ok(owned) if !message.is_null() => {
            // SAFETY: memory for a pointer, as the header requires.
            unsafe { *message = owned.into_raw() };
            GRIDLOOM_OK
        }
        // Without memory for the pointer, the caller could not free the message.
        Ok(_) => GRIDLOOM_OK,
        Err(code) => code,
    }
}

fn wait_for(
    process: &mut Process,
    context: &Context,
    kind: &str,
    from: i64,
    seconds: f64,
) -> Result<Box<OwnedMessage>, Failure> {
    let from = if from == -1 { None } else { Some(context.peer(from)?) };
    let (from, payload) = process.wait_for(kind, from, limit(seconds)?)?;
    OwnedMessage::new(process, context, from, ProcessMessage { kind: kind.into(), payload })
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_last_error() -> *const c_char {
    current::last_error()
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_remote_code() -> c_int {
    current::context().map_or(0, |context| context.remote_code.get())
}
