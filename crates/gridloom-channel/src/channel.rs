//! A stream with the frames that have come and the frames that wait to go. It never waits.

use std::io::{self, Read, Write};

use super::inbound::{Buffers, Filled, Inbound};
use super::outbound::Outbound;
use super::tags::Keys;

/// One end of a channel.
#[derive(Debug)]
pub struct Channel<S> {
    stream: S,
    /// Taken out while its frames are handled.
    pub inbound: Inbound,
    /// What waits to go.
    pub outbound: Outbound,
}

impl<S: Read + Write> Channel<S> {
    /// Around a stream that does not block; `credit` is in bytes.
    pub fn new(stream: S, credit: usize) -> Channel<S> {
        Channel { stream, inbound: Inbound::default(), outbound: Outbound::new(credit) }
    }

    /// Its stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Its stream.
    pub fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Gives up the stream.
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// From the next frame on, both directions carry tags.
    pub fn authenticate(&mut self, keys: Keys) {
        self.outbound.authenticate(keys.send);
        self.inbound.authenticate(keys.receive);
    }

    /// Reads once.
    ///
    /// # Errors
    /// If the stream broke.
    pub fn fill(&mut self, buffers: &mut Buffers) -> io::Result<Filled> {
        self.inbound.fill(&mut self.stream, buffers)
    }

    /// Writes what waits, as far as the stream takes it. Payloads that are written go to `buffers`.
    ///
    /// # Errors
    /// If the stream broke, or more urgent frames wait than the credit allows.
    pub fn flush(&mut self, buffers: &mut Buffers) -> io::Result<()> {
        self.outbound.write(&mut self.stream, buffers)
    }
}
