//! A stream with injected faults, for tests of channels.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// The faults to inject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Largest number of bytes per read or write.
    pub cut_bytes: usize,
    /// Each call whose number is a multiple of this only reports that it would block.
    pub block_every: u64,
    /// The stream breaks after this many bytes have been written.
    pub break_after_bytes: u64,
}

impl Faults {
    /// No faults.
    pub const NONE: Faults = Faults { cut_bytes: usize::MAX, block_every: u64::MAX, break_after_bytes: u64::MAX };
}

/// A stream with injected faults.
#[derive(Debug)]
pub struct FaultyStream<S> {
    pub stream: S,
    faults: Faults,
    calls: u64,
    written: u64,
}

impl<S> FaultyStream<S> {
    pub fn new(stream: S, faults: Faults) -> FaultyStream<S> {
        FaultyStream { stream, faults, calls: 0, written: 0 }
    }

    /// Returns how many bytes the next call may move.
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

impl<S: Read> Read for FaultyStream<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = self.room(into.len())?;
        self.stream.read(&mut into[..most])
    }
}

impl<S: AsFd> AsFd for FaultyStream<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl<S: Write> Write for FaultyStream<S> {
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
