//! Received messages: each is one block of memory, which C may read and write until it frees it.

use std::ffi::{CString, c_char, c_void};

use gridloom::process::{PeerId, Process, ProcessMessage};

use crate::code::Failure;
use crate::current::{self, Context, to_c};
use crate::types::{self, MessageType};

/// `gridloom_message`.
#[repr(C)]
#[derive(Debug)]
pub struct CMessage {
    /// Its type.
    pub kind: *const c_char,
    /// Its sender.
    pub from: i64,
    /// Its struct.
    pub data: *mut c_void,
    /// Bytes of its memory.
    pub size: usize,
}

/// A message with its memory. C sees the first field.
#[repr(C)]
pub(crate) struct OwnedMessage {
    message: CMessage,
    kind: CString,
    /// Words, because messages need their alignment.
    arena: Vec<u64>,
    pub(crate) is_kept: bool,
}

impl OwnedMessage {
    /// Decodes a received message for that process.
    pub(crate) fn new(
        process: &mut Process,
        context: &Context,
        from: PeerId,
        letter: ProcessMessage,
    ) -> Result<Box<OwnedMessage>, Failure> {
        let owned = OwnedMessage::of(context, from, &letter);
        process.recycle(letter.payload);
        owned
    }

    fn of(context: &Context, from: PeerId, letter: &ProcessMessage) -> Result<Box<OwnedMessage>, Failure> {
        let mut owned = OwnedMessage {
            message: CMessage {
                kind: std::ptr::null(),
                from: context.add_peer(from),
                data: std::ptr::null_mut(),
                size: 0,
            },
            kind: to_c(&letter.kind),
            arena: Vec::new(),
            is_kept: false,
        };
        match types::types().find(&letter.kind) {
            // Bytes from a program that declares no types, which must be empty.
            Some(MessageType { is_signal: true, .. }) if letter.payload.is_empty() => {}
            Some(MessageType { receiver, is_signal, .. }) => {
                let mut receiver = types::lock(receiver);
                let incoming = receiver.open(&letter.payload)?;
                if !is_signal {
                    let memory = owned.room(context, incoming.size_bytes());
                    let base = memory.as_mut_ptr().expose_provenance();
                    let root = incoming.place(memory, base as u64)?;
                    owned.message.data = std::ptr::with_exposed_provenance_mut(root as usize);
                }
            }
            None => {
                let memory = owned.room(context, letter.payload.len());
                memory.copy_from_slice(&letter.payload);
                owned.message.data = memory.as_mut_ptr().cast();
            }
        }
        owned.message.kind = owned.kind.as_ptr();
        let start = owned.arena.as_ptr().addr();
        if !owned.arena.is_empty() {
            context.arenas.borrow_mut().insert(start, start + 8 * owned.arena.len());
        }
        Ok(Box::new(owned))
    }

    /// Returns memory for `bytes` bytes, all of which must be written.
    fn room(&mut self, context: &Context, bytes: usize) -> &mut [u8] {
        let words = bytes.div_ceil(8);
        self.arena = match &context.buffer_pool {
            Some(spares) => spares.borrow_mut().take(words),
            None => vec![0; words],
        };
        self.message.size = bytes;
        // SAFETY: the bytes of initialised words; the vector is not accessed until it is dropped.
        unsafe { std::slice::from_raw_parts_mut(self.arena.as_mut_ptr().cast(), bytes) }
    }

    /// Passes it to C, which frees it with `gridloom_message_free`.
    pub(crate) fn into_raw(self: Box<OwnedMessage>) -> *mut CMessage {
        Box::into_raw(self).cast()
    }

    /// Takes it back from C.
    ///
    /// # Safety
    /// The pointer comes from [`OwnedMessage::into_raw`] and has not been taken back yet.
    pub(crate) unsafe fn from_raw(message: *mut CMessage) -> Box<OwnedMessage> {
        // SAFETY: promised by the caller; a message is the first field of its owner.
        unsafe { Box::from_raw(message.cast()) }
    }
}

impl Drop for OwnedMessage {
    fn drop(&mut self) {
        if let Ok(context) = current::context() {
            context.arenas.borrow_mut().remove(&self.arena.as_ptr().addr());
            if let Some(spares) = &context.buffer_pool {
                spares.borrow_mut().put(std::mem::take(&mut self.arena));
            }
        }
    }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_message_free(message: *mut CMessage) {
    if !message.is_null() {
        // SAFETY: a message that belongs to C, as the header requires.
        drop(unsafe { OwnedMessage::from_raw(message) });
    }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_message_keep(message: *mut CMessage) -> *mut CMessage {
    // SAFETY: a message of this library, as the header requires.
    if let Some(owned) = unsafe { message.cast::<OwnedMessage>().as_mut() } {
        owned.is_kept = true;
    }
    message
}
