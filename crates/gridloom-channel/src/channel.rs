//! A stream with its received frames and its queued frames. It never blocks.

use std::io::{self, Read, Write};

use super::inbound::{Buffers, ReadOutcome, ReceiveBuffer};
use super::outbound::Outbound;

/// One end of a channel.
#[derive(Debug)]
pub struct Channel<S> {
    stream: S,
    /// Received frames. The owner moves it out while it handles them.
    pub inbound: ReceiveBuffer,
    /// Queued frames.
    pub outbound: Outbound,
}

impl<S: Read + Write> Channel<S> {
    /// Creates a channel on a non-blocking stream. `credit` is in bytes.
    pub fn new(stream: S, credit: usize) -> Channel<S> {
        Channel { stream, inbound: ReceiveBuffer::default(), outbound: Outbound::new(credit) }
    }

    pub fn stream(&self) -> &S {
        &self.stream
    }

    pub fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Drops the channel and returns its stream.
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// Reads once.
    ///
    /// # Errors
    /// If the stream broke.
    pub fn fill(&mut self, buffers: &mut Buffers) -> io::Result<ReadOutcome> {
        self.inbound.fill(&mut self.stream, buffers)
    }

    /// Writes queued frames until the stream would block. Payloads that have been written are moved to `buffers` for
    /// reuse.
    ///
    /// # Errors
    /// If the stream broke, or more urgent frames wait than the credit allows.
    pub fn flush(&mut self, buffers: &mut Buffers) -> io::Result<()> {
        self.outbound.write(&mut self.stream, buffers)
    }
}
