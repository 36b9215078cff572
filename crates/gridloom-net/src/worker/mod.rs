//! The worker's side: a process that runs functions for a server, so that a crash affects nothing else.
//!
//! [`fn@serve`] is the main loop of every kind of worker. An implementation of [`Functions`] defines how functions run:
//! [`native`] calls symbols of shared libraries, the Python package calls Python functions.

mod call_back;
pub(crate) mod channel;
pub mod convert;
mod files;
mod guarded;
mod incoming;
pub mod initial;
mod list;
mod marshalled;
pub mod native;
pub mod nested;
mod output;
mod program;
pub(crate) mod protocol;
mod queries;
mod serve;
mod values;
mod xerbla;

use std::sync::Arc;

use gridloom_base::{DatumId, Meta, TaskError};
use gridloom_idl::Definition;

pub use call_back::CallbackTarget;
pub use files::FILES_VARIABLE;
pub use program::{
    FAILED, GANG_GRACE, GangRequest, GangStart, ProcessEnd, READY, Reading, Ready, ReplyTimes, checkpoints, native_main,
};
pub use protocol::{SERVER_PROTOCOL_VARIABLE, Setup};
pub use serve::{inherited, serve};
pub(crate) use values::{relabelled, wanted_order};

use crate::segment::Mapping;

/// The functions that a worker can run, identified by the numbers that the server assigned.
pub trait Functions {
    /// Called once, before anything else.
    ///
    /// # Errors
    /// If nothing can be run at all; each call fails with this text.
    fn setup(&mut self, _setup: &Setup) -> Result<(), String> {
        Ok(())
    }

    /// Prepares a function.
    ///
    /// # Errors
    /// If it cannot be run; the text becomes the `why` of [`TaskError::CannotRun`].
    fn load(&mut self, function: u32, definition: &Definition) -> Result<(), String>;

    /// Calls a function, which may call the program back. The buffer of each `INOUT` parameter already contains the
    /// argument. The buffer of an `OUT` parameter contains zeros, or is [`OutView::stale`] and must be overwritten or
    /// [cleared](OutView::clear): results must never reveal data of another call.
    ///
    /// # Errors
    /// If the function fails. `function` and `server` in the error may be left empty: the server fills them in.
    fn call(
        &mut self,
        function: u32,
        args: &[ArgView<'_>],
        outs: &mut [OutView<'_>],
        program: &mut dyn CallbackTarget,
    ) -> Result<(), TaskError>;
}

/// An argument: `IN` and `INOUT` parameters in declaration order.
#[derive(Clone, Debug)]
pub struct ArgView<'a> {
    /// Its description, in this machine's byte order and the memory order that the parameter requires.
    pub meta: Meta,
    /// Its bytes, aligned. They may be mapped read-only.
    pub bytes: &'a [u8],
    /// Present if `bytes` are in shared memory: code that keeps this may access them after the call, when their
    /// contents may have changed.
    pub mapping: Option<Arc<Mapping>>,
    /// The datum whose bytes these are, unchanged from the server's memory.
    pub datum: Option<DatumId>,
}

/// The buffer of a result: `OUT` and `INOUT` parameters in declaration order.
#[derive(Debug)]
pub struct OutView<'a> {
    /// Its description. That of a text or bytes result is derived from what was written to the buffer.
    pub meta: Meta,
    /// The buffer.
    pub room: Room<'a>,
    /// True if the buffer contains data left by another call.
    pub stale: bool,
}

impl OutView<'_> {
    /// Sets a stale buffer to zeros.
    pub fn clear(&mut self) {
        if let (true, Room::Fixed(bytes)) = (std::mem::take(&mut self.stale), &mut self.room) {
            bytes.fill(0);
        }
    }
}

/// The buffer into which a result is written.
#[derive(Debug)]
pub enum Room<'a> {
    /// Exactly the number of bytes of the description, aligned.
    Fixed(&'a mut [u8]),
    /// Text or bytes of any length.
    Growing(&'a mut Vec<u8>),
}

impl Room<'_> {
    /// Returns the content.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Room::Fixed(bytes) => bytes,
            Room::Growing(bytes) => bytes,
        }
    }
}
