//! Messages as bytes, for chares of other elements.

use std::borrow::Cow;

use gridloom_layout::{Message, Typed};

/// What chares send one another. Every type with `#[derive(gridloom::Message)]` that can be cloned is one.
///
/// Only a message that leaves its element becomes bytes. Only one to several chares is cloned.
pub trait Payload: Clone + 'static {
    type Codec: Codec<Self>;

    /// The entry method, as a timeline calls it.
    fn entry_method(&self) -> Cow<'static, str>;
}

/// Writes and reads the messages of one type. An element makes one for each array.
pub trait Codec<M>: Sized + 'static {
    /// # Errors
    /// If `M` is no message type.
    fn new() -> Result<Self, String>;

    /// Appends the message's bytes.
    ///
    /// # Errors
    /// If the message has none.
    fn encode(&mut self, message: &M, out: &mut Vec<u8>) -> Result<(), String>;

    /// # Errors
    /// If these are not the bytes of a message.
    fn decode(&mut self, bytes: &[u8]) -> Result<M, String>;
}

impl<M: Message + Clone> Payload for M {
    type Codec = Typed<M>;

    fn entry_method(&self) -> Cow<'static, str> {
        self.variant().into()
    }
}

impl<M: Message> Codec<M> for Typed<M> {
    fn new() -> Result<Typed<M>, String> {
        Typed::new().map_err(|error| error.to_string())
    }

    fn encode(&mut self, message: &M, out: &mut Vec<u8>) -> Result<(), String> {
        let bytes = Typed::encode(self, message).map_err(|error| error.to_string())?;
        out.extend_from_slice(&bytes);
        Ok(())
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<M, String> {
        Typed::decode(self, bytes).map_err(|error| error.to_string())
    }
}
