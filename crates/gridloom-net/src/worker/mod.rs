//! The worker's side: a process that runs functions for a server, so that a crash takes down nothing else.
//!
//! [`serve`] is the loop that every kind of worker has; what a function is, a [`Functions`] knows: [`native`] calls
//! symbols of shared libraries, the Python package calls Python functions.

mod asked;
mod call_back;
pub(crate) mod channel;
pub mod convert;
mod files;
mod guarded;
pub mod initial;
mod list;
mod marshalled;
pub mod native;
pub mod nested;
mod program;
pub(crate) mod protocol;
mod said;
mod serve;
mod values;

use std::sync::Arc;

use gridloom_base::{DatumId, Meta, TaskError};
use gridloom_idl::Definition;

pub use call_back::Program;
pub use files::FILES_VARIABLE;
pub use program::{Answered, FAILED, GANG_GRACE, ProcessEnd, READY, Reading, Ready, Start, Wanted, kept, native_main};
pub use protocol::{SERVER_PROTOCOL_VARIABLE, Setup};
pub use serve::{inherited, serve};
pub(crate) use values::{relabelled, wanted_order};

use crate::segment::Mapping;

/// What a worker can run. Functions have the numbers that the server gave them.
pub trait Functions {
    /// Called once, first.
    ///
    /// # Errors
    /// If nothing can be run at all; each call gets the text.
    fn setup(&mut self, _setup: &Setup) -> Result<(), String> {
        Ok(())
    }

    /// Makes a function ready.
    ///
    /// # Errors
    /// If it cannot be run; the text becomes the `why` of [`TaskError::CannotRun`].
    fn load(&mut self, function: u32, definition: &Definition) -> Result<(), String>;

    /// Calls a function, which may call the program back. The room of each `INOUT` parameter holds the argument already; that of an `OUT` parameter
    /// holds zeros, or is [`OutView::stale`] and must be overwritten or [cleared](OutView::clear): results never show
    /// what another call left.
    ///
    /// # Errors
    /// As the function fails. `function` and `server` in the error may be left empty: the server fills them in.
    fn call(
        &mut self,
        function: u32,
        args: &[ArgView<'_>],
        outs: &mut [OutView<'_>],
        program: &mut dyn Program,
    ) -> Result<(), TaskError>;
}

/// An argument: `IN` and `INOUT` parameters in declaration order.
#[derive(Clone, Debug)]
pub struct ArgView<'a> {
    /// Its description, in this machine's byte order and the memory order that the parameter asks for.
    pub meta: Meta,
    /// Its bytes, aligned. They may be mapped for reading only.
    pub bytes: &'a [u8],
    /// Set if `bytes` are shared memory: code that keeps this may look at them after the call, at contents that may have
    /// changed by then.
    pub mapping: Option<Arc<Mapping>>,
    /// The datum that has these bytes, as they lie in the server's memory.
    pub datum: Option<DatumId>,
}

/// Room for a result: `OUT` and `INOUT` parameters in declaration order.
#[derive(Debug)]
pub struct OutView<'a> {
    /// Its description. That of a text or bytes result is made from what was put into the room.
    pub meta: Meta,
    /// Its room.
    pub room: Room<'a>,
    /// The room holds what another call left there.
    pub stale: bool,
}

impl OutView<'_> {
    /// Sets stale room to zeros.
    pub fn clear(&mut self) {
        if let (true, Room::Fixed(bytes)) = (std::mem::take(&mut self.stale), &mut self.room) {
            bytes.fill(0);
        }
    }
}

/// Where a result is written.
#[derive(Debug)]
pub enum Room<'a> {
    /// Exactly as many bytes as the description says, aligned.
    Fixed(&'a mut [u8]),
    /// Text or bytes, as long as they become.
    Growing(&'a mut Vec<u8>),
}

impl Room<'_> {
    /// What it holds.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Room::Fixed(bytes) => bytes,
            Room::Growing(bytes) => bytes,
        }
    }
}
