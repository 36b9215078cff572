//! Typed messages of a process: encodes and decodes Rust values with the native data representation of `gridloom_layout`.
//!
//! The message's type name is that of the Rust type. The first message of a type on a connection
//! carries the type's declaration, so that a receiver with a different declaration can report where they differ.
//!
//! **Invariant:** a received message is checked completely before a value is made of it. A wrong message is an error of
//! the process that handles it, and harms nothing else. The error names the type, the field and what was expected.

use gridloom_layout::{LayoutError, Message};
use gridloom_process::{PeerId, ProcessError};

use super::Process;

impl Process {
    /// Sends a message. Returns once it is handed to the connection.
    ///
    /// # Errors
    /// If the connection is closed, the message too large, or its values do not fit its type
    /// ([`ProcessError::WrongMessage`]).
    ///
    /// # Panics
    /// If `M` is not a valid message type: two of its parts have the same name in C.
    pub fn send<M: Message>(&mut self, to: PeerId, message: &M) -> Result<(), ProcessError> {
        let schema = self.types.get::<M>().schema().clone();
        let is_new = !self.knows_declaration(to, schema.hash());
        let typed = self.types.get::<M>();
        let encoded = if is_new { typed.encode_described(message) } else { typed.encode(message) };
        let payload = encoded.map_err(|error| wrong(schema.name(), error))?;
        self.send_bytes(to, schema.name(), payload)?;
        self.note_declared(to, schema.hash());
        Ok(())
    }

    /// Registers a callback, which [`Process::handle`] calls for messages of that type. An error that it returns, or
    /// the error of a wrong message, is logged and sent to the sender, which receives it where it waits for an answer.
    ///
    /// # Panics
    /// As for [`Process::send`].
    pub fn on<M: Message>(
        &mut self,
        mut callback: impl FnMut(&mut Process, PeerId, M) -> Result<(), ProcessError> + Send + 'static,
    ) {
        let kind = self.types.get::<M>().schema().name().to_string();
        self.on_bytes(&kind, move |process, from, letter| {
            let message = process.decode(&letter.kind, &letter.payload);
            process.recycle(letter.payload);
            callback(process, from, message?)
        });
    }

    /// Waits for a message of that type, from that peer if one is given, for at most the time limit. Other messages
    /// are queued meanwhile.
    ///
    /// # Errors
    /// As for [`Process::wait_for`], and [`ProcessError::WrongMessage`] if the received message is invalid; it is discarded.
    ///
    /// # Panics
    /// As for [`Process::send`].
    pub fn wait<M: Message>(
        &mut self,
        from: Option<PeerId>,
        seconds: Option<f64>,
    ) -> Result<(PeerId, M), ProcessError> {
        let kind = self.types.get::<M>().schema().name().to_string();
        let (from, payload) = self.wait_for(&kind, from, seconds)?;
        let message = self.decode(&kind, &payload);
        self.recycle(payload);
        Ok((from, message?))
    }

    /// True if a peer was sent the declaration of a message type, by its hash. For programs that encode messages themselves.
    pub fn knows_declaration(&self, peer: PeerId, hash: u64) -> bool {
        self.types.knows(peer, hash)
    }

    /// Notes that a peer was sent the declaration.
    pub fn note_declared(&mut self, peer: PeerId, hash: u64) {
        self.types.introduced(peer, hash);
    }

    fn decode<M: Message>(&mut self, kind: &str, payload: &[u8]) -> Result<M, ProcessError> {
        self.types.get::<M>().decode(payload).map_err(|error| wrong(kind, error))
    }
}

fn wrong(kind: &str, error: LayoutError) -> ProcessError {
    ProcessError::WrongMessage { kind: kind.into(), why: error.to_string() }
}
