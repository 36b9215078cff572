//! The receiving direction: bytes are read once and split into frames.
//!
//! A frame that fits into the buffer is returned in place. A longer one is read into its own memory, which is returned
//! with it. The owner lends the buffer ([`Buffers`]) and gets it back when it is empty, so that idle channels hold
//! none.
//!
//! **Invariant:** `head <= tail <= buffer.len()`; the buffer is absent only if `head == tail`.
//! **Promise:** a stated length alone allocates at most [`TRUST_BYTES`]; more memory is allocated as bytes arrive.

use std::io::{self, ErrorKind, IoSliceMut, Read};

use gridloom_base::limits::POOLED_BYTES_MAX;

use super::buffer_pool::BufferPool;
use super::frame::{Decoder, FrameError, FrameLimits, HEADER_BYTES, Kind};

/// Size of the buffer for one read.
const BUFFER_BYTES: usize = 64 << 10;
/// Largest allocation for a length that a peer states before its bytes arrive: the size of the largest pooled buffer.
const TRUST_BYTES: usize = POOLED_BYTES_MAX;
/// Increment by which the memory of a longer frame grows as its bytes arrive.
const GROWTH_BYTES: usize = 1 << 20;

/// Memory that the channels of one owner share.
#[derive(Debug, Default)]
pub struct Buffers {
    /// The buffer that the next channel reads into. Empty while it is lent.
    read: Vec<u8>,
    /// Payloads that are no longer needed.
    pub pool: BufferPool<u8>,
}

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOutcome {
    /// No bytes were available.
    Nothing,
    /// Bytes were read, and the stream is empty: a short read means that a stream socket has been emptied (epoll(7)).
    Drained,
    /// Bytes were read, and there may be more.
    More,
    /// The peer closed the stream.
    Closed,
}

/// The body of a frame.
#[derive(Debug)]
pub enum Body<'a> {
    /// A body in the channel's buffer.
    Borrowed(&'a [u8]),
    /// A body in memory of its own.
    Owned(Vec<u8>),
}

impl Body<'_> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Body::Borrowed(bytes) => bytes,
            Body::Owned(bytes) => bytes,
        }
    }

    /// Returns the bytes in memory of their own: copied to a pooled buffer if they are in the channel's.
    pub fn into_owned(self, spares: &mut BufferPool<u8>) -> Vec<u8> {
        match self {
            Body::Borrowed(bytes) => {
                let mut owned = spares.take(bytes.len());
                owned.copy_from_slice(bytes);
                owned
            }
            Body::Owned(bytes) => bytes,
        }
    }
}

/// A frame longer than the buffer, while it is being received.
#[derive(Debug)]
struct LongFrame {
    kind: Kind,
    /// Grows up to `length` bytes.
    body: Vec<u8>,
    received: usize,
    /// Length of the body.
    length: usize,
}

/// Bytes that have been received and not handled yet.
#[derive(Debug, Default)]
pub struct ReceiveBuffer {
    decoder: Decoder,
    buffer: Vec<u8>,
    head: usize,
    tail: usize,
    long: Option<LongFrame>,
}

impl ReceiveBuffer {
    /// Returns the next complete frame, if there is one.
    ///
    /// # Errors
    /// The channel must be closed after any error.
    pub fn next(&mut self, limits: FrameLimits, buffers: &mut Buffers) -> Result<Option<(Kind, Body<'_>)>, FrameError> {
        if self.long.is_none() {
            let bytes = &self.buffer[self.head..self.tail];
            let Some(header) = self.decoder.header(bytes, limits)? else { return Ok(None) };
            let end = HEADER_BYTES + header.length;
            if end <= BUFFER_BYTES {
                if bytes.len() < end {
                    return Ok(None);
                }
                self.decoder.advance();
                let body = &self.buffer[self.head + HEADER_BYTES..self.head + end];
                self.head += end;
                return Ok(Some((header.kind, Body::Borrowed(body))));
            }
            let came = &bytes[HEADER_BYTES..bytes.len().min(end)];
            let mut body = buffers.pool.take(header.length.min(TRUST_BYTES));
            body[..came.len()].copy_from_slice(came);
            let received = came.len();
            self.head += HEADER_BYTES + received;
            self.long = Some(LongFrame { kind: header.kind, body, received, length: header.length });
        }
        let Some(long) = self.long.take_if(|long| long.received == long.length) else { return Ok(None) };
        self.decoder.advance();
        Ok(Some((long.kind, Body::Owned(long.body))))
    }

    /// True while a frame longer than the buffer is being read: each read may then take more than a mebibyte.
    pub fn is_long(&self) -> bool {
        self.long.is_some()
    }

    /// True if no received bytes wait.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail && self.long.is_none()
    }

    /// Returns the buffer to its owner if it is empty. Must be called after the frames of a read have been handled.
    pub fn release(&mut self, buffers: &mut Buffers) {
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
            let own = std::mem::take(&mut self.buffer);
            // If another channel has already returned one, this one is dropped: idle channels hold none.
            if buffers.read.is_empty() {
                buffers.read = own;
            }
        }
    }

    /// Reads once.
    pub(super) fn fill(&mut self, stream: &mut impl Read, buffers: &mut Buffers) -> io::Result<ReadOutcome> {
        self.make_room(buffers);
        let rest = &mut self.buffer[self.tail..];
        let (read, room) = match &mut self.long {
            None => {
                let room = rest.len();
                assert!(room > 0, "the frames of one read are taken before the next read");
                (retried(|| stream.read(rest)), room)
            }
            // The bytes that follow a long frame are read by the same call.
            Some(long) => {
                if long.received == long.body.len() {
                    long.body.resize(long.length.min(long.received + GROWTH_BYTES), 0);
                }
                let is_last = long.body.len() == long.length;
                let own = &mut long.body[long.received..];
                let rest = if is_last { rest } else { &mut [] };
                let room = own.len() + rest.len();
                let mut slices = [IoSliceMut::new(own), IoSliceMut::new(rest)];
                (retried(|| stream.read_vectored(&mut slices)), room)
            }
        };
        match read {
            Ok(0) => Ok(ReadOutcome::Closed),
            Ok(length) => {
                let mut behind = length;
                if let Some(long) = &mut self.long {
                    let own = length.min(long.body.len() - long.received);
                    long.received += own;
                    behind -= own;
                }
                self.tail += behind;
                Ok(if length < room { ReadOutcome::Drained } else { ReadOutcome::More })
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(ReadOutcome::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Moves unhandled bytes to the front if they need the whole buffer.
    fn make_room(&mut self, buffers: &mut Buffers) {
        if self.buffer.is_empty() {
            self.buffer = std::mem::take(&mut buffers.read);
            self.buffer.resize(BUFFER_BYTES, 0);
        }
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
        } else if self.buffer.len() - self.tail < BUFFER_BYTES / 2 {
            self.buffer.copy_within(self.head..self.tail, 0);
            (self.tail, self.head) = (self.tail - self.head, 0);
        }
    }
}

/// Repeats a read that a signal interrupted.
fn retried(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BulkFrame, Channel, Outbound};

    const LIMITS: FrameLimits = FrameLimits { control: 4096, process_message: 32 << 20 };

    fn written(sizes: &[usize]) -> Vec<u8> {
        let (mut outbound, mut bytes) = (Outbound::new(usize::MAX), Vec::new());
        for (number, size) in sizes.iter().enumerate() {
            let payload = (0..*size).map(|at| (at / 251 + at + number) as u8).collect();
            outbound.offer(BulkFrame { kind: Kind::ProcessMessage, payload, trailer: vec![number as u8] }).unwrap();
        }
        outbound.write(&mut bytes, &mut Buffers::default()).unwrap();
        bytes
    }

    #[test]
    fn frames_survive_any_cut() {
        struct ShortReads<'a>(&'a [u8], usize);
        impl Read for ShortReads<'_> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                let most = self.1.min(into.len());
                self.0.read(&mut into[..most])
            }
        }
        impl std::io::Write for ShortReads<'_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let fits = BUFFER_BYTES - HEADER_BYTES - 1;
        let sizes = [0, 3, fits, fits + 1, 40, TRUST_BYTES + GROWTH_BYTES + 3, 5, 3 * BUFFER_BYTES, TRUST_BYTES];
        let steps = [997, BUFFER_BYTES - 1, BUFFER_BYTES, TRUST_BYTES / 2, usize::MAX];
        for step in steps {
            let bytes = written(&sizes);
            let (mut channel, mut buffers) = (Channel::new(ShortReads(&bytes, step), 0), Buffers::default());
            // Old contents of a reused buffer must not show.
            buffers.pool.put(vec![0xff; 3 * BUFFER_BYTES]);
            let mut got = Vec::new();
            while channel.fill(&mut buffers).unwrap() != ReadOutcome::Closed {
                while let Some((kind, body)) = channel.inbound.next(LIMITS, &mut buffers).unwrap() {
                    assert_eq!(kind, Kind::ProcessMessage);
                    let body = body.into_owned(&mut BufferPool::default());
                    let number = got.len();
                    assert_eq!(body.len(), sizes[number] + 1);
                    assert_eq!(body[sizes[number]], number as u8);
                    let right = |(at, byte): (usize, &u8)| *byte == (at / 251 + at + number) as u8;
                    assert!(body[..sizes[number]].iter().enumerate().all(right), "frame {number} in parts of {step}");
                    got.push(body.len());
                }
                channel.inbound.release(&mut buffers);
            }
            assert_eq!(got.len(), sizes.len());
            assert!(channel.inbound.is_empty());
        }
    }

    #[test]
    fn lengths_out_of_bounds_and_kinds_out_of_place_are_refused() {
        let refused = |bytes: &[u8], limits: FrameLimits| {
            let (mut inbound, mut buffers) = (ReceiveBuffer::default(), Buffers::default());
            inbound.fill(&mut &*bytes, &mut buffers).unwrap();
            inbound.next(limits, &mut buffers).unwrap_err()
        };
        let letter = written(&[5]);
        assert_eq!(refused(&letter, FrameLimits { process_message: 0, ..LIMITS }), FrameError::UnknownKind { kind: 4 });
        assert_eq!(
            refused(&letter, FrameLimits { process_message: 5, ..LIMITS }),
            FrameError::TooLong { length: 6, limit: 5 }
        );
        let mut long = vec![0xff; 4];
        long.extend([0, 0, 0, 0, Kind::Message as u8, 0, 0, 0, 0, 0, 0, 0]);
        assert!(matches!(refused(&long, LIMITS), FrameError::TooLong { .. }));
    }
}
