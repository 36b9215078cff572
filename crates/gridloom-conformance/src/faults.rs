//! A stream with faults, for tests: where a channel meets what networks do to it.

use std::io::{self, ErrorKind, Read, Write};

/// What goes wrong on a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// A read or write moves so many bytes at most.
    pub cut_bytes: usize,
    /// Every so many-th call does nothing but say that it would block.
    pub block_every: u64,
    /// The stream breaks when so many bytes have been written.
    pub break_after_bytes: u64,
}

impl Faults {
    /// None.
    pub const NONE: Faults = Faults { cut_bytes: usize::MAX, block_every: u64::MAX, break_after_bytes: u64::MAX };
}

/// A stream that has them.
#[derive(Debug)]
pub struct Faulty<S> {
    /// The stream itself.
    pub stream: S,
    faults: Faults,
    calls: u64,
    written: u64,
}

impl<S> Faulty<S> {
    /// Around a stream.
    pub fn new(stream: S, faults: Faults) -> Faulty<S> {
        Faulty { stream, faults, calls: 0, written: 0 }
    }

    /// How many bytes the next call moves at most.
    fn room(&mut self, bytes: usize) -> io::Result<usize> {
        self.calls += 1;
        if self.written >= self.faults.break_after_bytes {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if self.calls.is_multiple_of(self.faults.block_every) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(bytes.min(self.faults.cut_bytes))
    }
}

impl<S: Read> Read for Faulty<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = self.room(into.len())?;
        self.stream.read(&mut into[..most])
    }
}

impl<S: Write> Write for Faulty<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = self.room(bytes.len())?;
        let written = self.stream.write(&bytes[..most])?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
