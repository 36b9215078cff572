//! Serialization of messages to chares on other elements.

use std::borrow::Cow;

use gridloom_layout::{Message, MessageCodec};

/// A message type of chares. Implemented for every type that has `#[derive(gridloom::Message)]` and `Clone`.
///
/// A message is serialized only if it leaves its element, and cloned only if it is sent to several chares.
pub trait Payload: Clone + 'static {
    type Codec: Codec<Self>;

    /// Returns the name of the entry method in a timeline.
    fn entry_method(&self) -> Cow<'static, str>;
}

/// Encodes and decodes the messages of one type. An element creates one codec for each array.
pub trait Codec<M>: Sized + 'static {
    /// # Errors
    /// If `M` is not a message type.
    fn new() -> Result<Self, String>;

    /// Appends the encoded message.
    ///
    /// # Errors
    /// If the message cannot be encoded.
    fn encode(&mut self, message: &M, out: &mut Vec<u8>) -> Result<(), String>;

    /// # Errors
    /// If the bytes are not a valid message.
    fn decode(&mut self, bytes: &[u8]) -> Result<M, String>;
}

impl<M: Message + Clone> Payload for M {
    type Codec = MessageCodec<M>;

    fn entry_method(&self) -> Cow<'static, str> {
        self.variant().into()
    }
}

impl<M: Message> Codec<M> for MessageCodec<M> {
    fn new() -> Result<MessageCodec<M>, String> {
        MessageCodec::new().map_err(|error| error.to_string())
    }

    fn encode(&mut self, message: &M, out: &mut Vec<u8>) -> Result<(), String> {
        let bytes = MessageCodec::encode(self, message).map_err(|error| error.to_string())?;
        out.extend_from_slice(&bytes);
        Ok(())
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<M, String> {
        MessageCodec::decode(self, bytes).map_err(|error| error.to_string())
    }
}
