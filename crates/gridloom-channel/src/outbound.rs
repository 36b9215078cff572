//! The sending direction: two lanes of frames that wait for the stream to take them.
//!
//! Urgent frames are encoded directly into one buffer, so that the frames of one turn leave in one system call. A bulk
//! frame is queued as it is and gets its header when it is its turn: frames are numbered in the order in which they
//! are written.
//!
//! **Invariant:** a bulk frame that has begun is written to its end before anything else.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};

use serde::Serialize;

use super::frame::{DataHeader, Encoder, FrameError, HEADER_BYTES, Kind};
use super::inbound::Buffers;
use super::wire_version::WireVersion;

/// A larger buffer is freed when it is empty.
const BUFFER_KEEP_BYTES: usize = 1 << 20;

/// A frame of the bulk lane. Its body is the payload followed by a short trailer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BulkFrame {
    pub kind: Kind,
    /// The contents, written without a copy.
    pub payload: Vec<u8>,
    /// Describes the payload.
    pub trailer: Vec<u8>,
}

/// The bulk frame that is being written.
#[derive(Debug)]
struct PartlyWritten {
    header: [u8; HEADER_BYTES],
    bulk: BulkFrame,
    written: usize,
}

/// The queued frames.
#[derive(Debug)]
pub struct Outbound {
    encoder: Encoder,
    /// Encoded frames of the urgent lane. The first `sent` bytes have been written.
    urgent: Vec<u8>,
    sent: usize,
    bulk: VecDeque<BulkFrame>,
    begun: Option<PartlyWritten>,
    /// Bytes of bulk frames that have not been written yet.
    bulk_bytes: usize,
    credit: usize,
    /// True if the stream keeps written bytes that the socket did not take.
    is_unflushed: bool,
}

impl BulkFrame {
    fn len(&self) -> usize {
        HEADER_BYTES + self.payload.len() + self.trailer.len()
    }
}

impl Outbound {
    /// Starts with empty lanes.
    pub fn new(credit: usize) -> Outbound {
        let (urgent, bulk) = Default::default();
        Outbound {
            encoder: Encoder::default(),
            urgent,
            sent: 0,
            bulk,
            begun: None,
            bulk_bytes: 0,
            credit,
            is_unflushed: false,
        }
    }

    /// Sets the wire version of messages, starting with the next frame.
    pub fn set_wire_version(&mut self, wire_version: WireVersion) {
        self.encoder.set_wire_version(wire_version);
    }

    /// Queues an urgent frame with `value` in postcard as its body.
    ///
    /// # Errors
    /// If it is too long.
    pub fn message<T: Serialize>(&mut self, kind: Kind, value: &T) -> Result<(), FrameError> {
        self.encoder.message(kind, value, &mut self.urgent)
    }

    /// Queues a small datum in the urgent lane, in order with the messages there.
    ///
    /// # Errors
    /// If it is too long.
    pub fn data(&mut self, header: &DataHeader, payload: &[u8]) -> Result<(), FrameError> {
        self.encoder.data(header, payload, &mut self.urgent)
    }

    /// Queues an urgent frame with that body.
    ///
    /// # Errors
    /// If it is too long.
    pub fn frame(&mut self, kind: Kind, body: &[u8]) -> Result<(), FrameError> {
        self.encoder.frame(kind, body, &mut self.urgent)
    }

    /// Queues a bulk frame, unless the queued bytes exceed the credit.
    ///
    /// # Errors
    /// The frame, to be offered again later.
    pub fn offer(&mut self, bulk: BulkFrame) -> Result<(), BulkFrame> {
        if self.is_full() {
            return Err(bulk);
        }
        self.bulk_bytes += bulk.len();
        self.bulk.push_back(bulk);
        Ok(())
    }

    /// True if the queued bytes exceed the credit, so that a bulk frame would be refused.
    pub fn is_full(&self) -> bool {
        self.waiting_bytes() > self.credit
    }

    /// True if urgent frames are queued.
    pub fn has_urgent(&self) -> bool {
        self.sent < self.urgent.len()
    }

    /// Returns the number of queued bytes in both lanes.
    pub fn waiting_bytes(&self) -> usize {
        self.urgent.len() - self.sent + self.bulk_bytes
    }

    /// True if frames wait for the stream to take more.
    pub fn is_blocked(&self) -> bool {
        self.waiting_bytes() > 0 || self.begun.is_some() || self.is_unflushed
    }

    pub(super) fn write(&mut self, stream: &mut impl Write, buffers: &mut Buffers) -> io::Result<()> {
        loop {
            let written = if let Some(begun) = &mut self.begun {
                match begun.write(stream) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(length) => {
                        begun.written += length;
                        self.bulk_bytes -= length;
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            } else if self.sent < self.urgent.len() {
                match stream.write(&self.urgent[self.sent..]) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(length) => {
                        self.sent += length;
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            } else if let Some(bulk) = self.bulk.pop_front() {
                let header = self.encoder.header(bulk.kind, bulk.len() - HEADER_BYTES);
                self.begun = Some(PartlyWritten { header, bulk, written: 0 });
                Ok(())
            } else {
                return self.flush(stream);
            };
            match written {
                Ok(()) => self.release_written(buffers),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.check_credit(),
                Err(error) => return Err(error),
            }
        }
    }

    fn flush(&mut self, stream: &mut impl Write) -> io::Result<()> {
        self.is_unflushed = false;
        match stream.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_unflushed = true;
                Ok(())
            }
            flushed => flushed,
        }
    }

    /// Frees memory of written frames.
    fn release_written(&mut self, buffers: &mut Buffers) {
        if let Some(begun) = self.begun.take_if(|begun| begun.written == begun.bulk.len()) {
            buffers.pool.put(begun.bulk.payload);
        }
        if self.sent == self.urgent.len() {
            self.sent = 0;
            self.urgent.clear();
            if self.urgent.capacity() > BUFFER_KEEP_BYTES {
                self.urgent = Vec::new();
            }
        }
    }

    /// Called if the stream would block: fails if the queued urgent frames exceed the credit.
    fn check_credit(&mut self) -> io::Result<()> {
        let waiting = self.urgent.len() - self.sent;
        if waiting > self.credit {
            let why = format!("it does not read: {waiting} bytes are queued for it, the limit is {}", self.credit);
            return Err(io::Error::other(why));
        }
        // Sent bytes are removed once they are the larger part, so that each remaining byte is moved at most once.
        if self.sent > BUFFER_KEEP_BYTES && self.sent > waiting {
            self.urgent.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }
}

impl PartlyWritten {
    fn write(&self, stream: &mut impl Write) -> io::Result<usize> {
        let mut left = self.written;
        let parts = [&self.header[..], &self.bulk.payload, &self.bulk.trailer].map(|part| {
            let skipped = left.min(part.len());
            left -= skipped;
            IoSlice::new(&part[skipped..])
        });
        let first = parts.iter().position(|part| !part.is_empty()).unwrap_or(parts.len() - 1);
        stream.write_vectored(&parts[first..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, FrameLimits, ReceiveBuffer};

    /// Takes `room` bytes and then blocks.
    struct Narrow {
        room: usize,
        bytes: Vec<u8>,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            let length = bytes.len().min(self.room);
            self.room -= length;
            self.bytes.extend_from_slice(&bytes[..length]);
            Ok(length)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn bulk(byte: u8) -> BulkFrame {
        BulkFrame { kind: Kind::ProcessMessage, payload: vec![byte; 100], trailer: vec![byte] }
    }

    #[test]
    fn an_urgent_frame_passes_bulk_that_has_not_begun() {
        let (mut outbound, mut buffers) = (Outbound::new(1000), Buffers::default());
        let mut stream = Narrow { room: 20, bytes: Vec::new() };
        outbound.offer(bulk(1)).unwrap();
        outbound.offer(bulk(2)).unwrap();
        outbound.write(&mut stream, &mut buffers).unwrap();
        assert!(outbound.is_blocked());
        outbound.frame(Kind::Message, b"now").unwrap();
        stream.room = usize::MAX;
        outbound.write(&mut stream, &mut buffers).unwrap();
        assert!(!outbound.is_blocked());
        let mut inbound = ReceiveBuffer::default();
        inbound.fill(&mut &stream.bytes[..], &mut buffers).unwrap();
        let limits = FrameLimits { control: 100, process_message: 1000 };
        let mut order = Vec::new();
        while let Some((kind, body)) = inbound.next(limits, &mut buffers).unwrap() {
            assert!(matches!(body, Body::Borrowed(_)));
            order.push((kind, body.bytes()[0]));
        }
        assert_eq!(order, [(Kind::ProcessMessage, 1), (Kind::Message, b'n'), (Kind::ProcessMessage, 2)]);
    }

    #[test]
    fn credit_refuses_bulk_frames_and_abandons_a_peer_that_does_not_read() {
        let (mut outbound, mut buffers) = (Outbound::new(150), Buffers::default());
        let mut stream = Narrow { room: 0, bytes: Vec::new() };
        outbound.offer(bulk(1)).unwrap();
        outbound.offer(bulk(2)).unwrap();
        assert_eq!(outbound.offer(bulk(3)), Err(bulk(3)));
        outbound.write(&mut stream, &mut buffers).unwrap();
        stream.room = 118;
        outbound.write(&mut stream, &mut buffers).unwrap();
        outbound.offer(bulk(3)).unwrap();
        outbound.frame(Kind::Message, &[0; 150]).unwrap();
        let error = outbound.write(&mut stream, &mut buffers).unwrap_err().to_string();
        assert_eq!(error, "it does not read: 166 bytes are queued for it, the limit is 150");
    }
}
