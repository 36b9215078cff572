//! Frames: how the bytes of a channel are split into control messages, small data and process messages.
//!
//! ```text
//!  0       4       8              16
//!  +-------+-------+---------------+-------- - -
//!  | body  | seq   | kind          | body
//!  | length|       |               |
//!  +-------+-------+---------------+-------- - -
//!   u32 LE  u32 LE  u64 LE
//! ```
//! The upper half of a process message's kind is the upper half of its length, which may exceed 4 GiB.
//!
//! The header has 16 bytes so that a long body is aligned in the buffers of the kernel and of both processes. Copies
//! between unaligned buffers are slow: a round trip of 200 kB took 1.5 times as long.
//!
//! `seq` counts the frames of one direction of one channel from 0, so that bytes that are no frames close the channel. A data frame's body is the length of a postcard `DataHeader` (u32 LE), the `DataHeader`, and the
//! payload in the sender's memory representation. The body of a process message is its payload, the name of its type,
//! and the length of that name (u8). This order lets a payload that is read into memory of its own stay there.
//!
//! **Promise:** no input makes the decoder panic or allocate more than the frame's stated length, which is limited.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use gridloom_base::limits::FRAME_BYTES_MAX;
use gridloom_base::{DatumId, Meta};

use super::wire_version::WireVersion;

/// Length of the header, which precedes the body.
pub const HEADER_BYTES: usize = 16;

/// The kind of a frame's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A control message.
    Message = 1,
    /// A small datum.
    Data = 2,
    /// The handshake. Later, messages between the worlds of two nodes.
    Hello = 3,
    /// A message between processes.
    ProcessMessage = 4,
}

/// Precedes the payload of a data frame.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DataHeader {
    pub datum: DatumId,
    /// Its description. The size matches that of the payload.
    pub meta: Meta,
}

/// Longest frames, in bytes of their bodies.
#[derive(Clone, Copy, Debug)]
pub struct FrameLimits {
    /// Limit for handshakes, control messages and data.
    pub control: usize,
    /// Limit for process messages; 0 where none are allowed.
    pub process_message: usize,
}

impl FrameLimits {
    /// Limits of an established control connection.
    pub const CONTROL: FrameLimits = FrameLimits { control: FRAME_BYTES_MAX, process_message: 0 };
}

/// An error in received bytes.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    #[error("frame of {length} bytes exceeds the limit of {limit}")]
    TooLong {
        /// Length of its body in bytes.
        length: usize,
        /// The limit for its kind in bytes.
        limit: usize,
    },
    #[error("frame number {got} where {expected} was due (replayed, lost or injected)")]
    OutOfSequence {
        /// The number that was due.
        expected: u32,
        /// The number received.
        got: u32,
    },
    #[error("unknown frame kind {kind}")]
    UnknownKind {
        /// The received kind.
        kind: u64,
    },
    #[error("malformed frame body: {why}")]
    Malformed {
        /// The violation of the format.
        why: String,
    },
}

/// A frame within the received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    pub kind: Kind,
    pub body: &'a [u8],
}

/// The decoded header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) length: usize,
}

/// Splits the bytes of one direction of a channel into frames and checks their sequence.
#[derive(Debug, Default)]
pub struct Decoder {
    sequence: u32,
}

impl Decoder {
    /// Returns the complete frame at the start of `bytes` and its total length, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// The connection must be closed after any error.
    pub fn next<'a>(&mut self, bytes: &'a [u8], limits: FrameLimits) -> Result<Option<(Frame<'a>, usize)>, FrameError> {
        let Some(Header { kind, length }) = self.header(bytes, limits)? else { return Ok(None) };
        let end = HEADER_BYTES + length;
        if bytes.len() < end {
            return Ok(None);
        }
        self.advance();
        Ok(Some((Frame { kind, body: &bytes[HEADER_BYTES..end] }, end)))
    }

    /// Returns the checked header at the start of `bytes`, or `None` if it is not complete.
    pub(super) fn header(&self, bytes: &[u8], limits: FrameLimits) -> Result<Option<Header>, FrameError> {
        if bytes.len() < HEADER_BYTES {
            return Ok(None);
        }
        let low = u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let kind = u64::from_le_bytes(bytes[8..HEADER_BYTES].try_into().expect("eight bytes"));
        let (kind, length) = match limits.process_message > 0 && kind as u32 == Kind::ProcessMessage as u32 {
            true => (Kind::ProcessMessage as u64, low | kind >> 32 << 32),
            false => (kind, low),
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let too_long = |limit: usize| if length > limit { Err(FrameError::TooLong { length, limit }) } else { Ok(()) };
        too_long(limits.control.max(limits.process_message))?;
        let got = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if got != self.sequence {
            return Err(FrameError::OutOfSequence { expected: self.sequence, got });
        }
        let (kind, limit) = match kind {
            1 => (Kind::Message, limits.control),
            2 => (Kind::Data, limits.control),
            3 => (Kind::Hello, limits.control),
            4 if limits.process_message > 0 => (Kind::ProcessMessage, limits.process_message),
            kind => return Err(FrameError::UnknownKind { kind }),
        };
        too_long(limit)?;
        Ok(Some(Header { kind, length }))
    }

    /// Advances to the next frame.
    pub(super) fn advance(&mut self) {
        self.sequence = self.sequence.wrapping_add(1);
    }
}

/// Writes the frames of one direction of a channel.
#[derive(Debug, Default)]
pub struct Encoder {
    sequence: u32,
    wire_version: WireVersion,
}

impl Encoder {
    /// Sets the wire version of messages, starting with the next frame.
    pub fn set_wire_version(&mut self, wire_version: WireVersion) {
        self.wire_version = wire_version;
    }

    /// Appends a frame with `value` in postcard as its body.
    ///
    /// # Errors
    /// If the body exceeds the limit; `out` is unchanged then.
    pub fn message<T: Serialize>(&mut self, kind: Kind, value: &T, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let start = self.open(kind, out);
        self.wire_version.append(value, out);
        self.close(start, out)
    }

    /// Appends a data frame.
    ///
    /// # Errors
    /// If the body exceeds the limit; `out` is unchanged then.
    pub fn data(&mut self, header: &DataHeader, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let start = self.open(Kind::Data, out);
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        self.wire_version.append(header, out);
        let length = (out.len() - at - 4) as u32;
        out[at..at + 4].copy_from_slice(&length.to_le_bytes());
        out.extend_from_slice(payload);
        self.close(start, out)
    }

    /// Appends a frame with that body.
    ///
    /// # Errors
    /// If the body exceeds the limit; `out` is unchanged then.
    pub fn frame(&mut self, kind: Kind, body: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let start = self.open(kind, out);
        out.extend_from_slice(body);
        self.close(start, out)
    }

    /// Returns the header of the next frame, whose body is written separately.
    pub(super) fn header(&mut self, kind: Kind, length: usize) -> [u8; HEADER_BYTES] {
        let length = length as u64;
        debug_assert!(kind == Kind::ProcessMessage || length >> 32 == 0, "no other kind may be that long");
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&(length as u32).to_le_bytes());
        header[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        header[8..].copy_from_slice(&(kind as u64 | length >> 32 << 32).to_le_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        header
    }

    fn open(&mut self, kind: Kind, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&(kind as u64).to_le_bytes());
        start
    }

    fn close(&mut self, start: usize, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let length = out.len() - start - HEADER_BYTES;
        if length > FRAME_BYTES_MAX {
            out.truncate(start);
            return Err(FrameError::TooLong { length, limit: FRAME_BYTES_MAX });
        }
        out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }
}

/// Parses a body written by [`Encoder::message`].
///
/// # Errors
/// If it does not parse, or bytes are left over.
pub fn parse<T: DeserializeOwned>(body: &[u8], wire_version: WireVersion) -> Result<T, FrameError> {
    wire_version.parse(body).map_err(|why| FrameError::Malformed { why })
}

/// Parses the body of a data frame into header and payload, and checks that the description matches the payload.
///
/// # Errors
/// If it does not parse or does not match.
pub fn parse_data(body: &[u8], wire_version: WireVersion) -> Result<(DataHeader, &[u8]), FrameError> {
    let malformed = |why: &str| FrameError::Malformed { why: why.into() };
    let (length, rest) = body.split_first_chunk::<4>().ok_or_else(|| malformed("no header length"))?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > rest.len() {
        return Err(malformed("header longer than the frame"));
    }
    let (header, payload) = rest.split_at(length);
    let header: DataHeader = parse(header, wire_version)?;
    if header.meta.checked_size_bytes() != Some(payload.len() as u64) {
        return Err(malformed("description does not match the payload"));
    }
    Ok((header, payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::{Dtype, NodeId};

    fn header() -> DataHeader {
        DataHeader { datum: DatumId { client: NodeId(7), serial: 3 }, meta: Meta::array(Dtype::Float64, &[2]) }
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::default();
        encoder.message(Kind::Message, &(1u32, "a"), &mut bytes).unwrap();
        encoder.data(&header(), &[5; 16], &mut bytes).unwrap();
        let mut decoder = Decoder::default();
        let (frame, end) = decoder.next(&bytes, FrameLimits::CONTROL).unwrap().unwrap();
        assert_eq!(parse::<(u32, String)>(frame.body, WireVersion::CURRENT).unwrap(), (1, "a".to_string()));
        let (frame, second) = decoder.next(&bytes[end..], FrameLimits::CONTROL).unwrap().unwrap();
        assert_eq!(parse_data(frame.body, WireVersion::CURRENT).unwrap(), (header(), &[5u8; 16][..]));
        assert_eq!(end + second, bytes.len());
    }

    #[test]
    fn every_truncation_waits_for_more() {
        let mut bytes = Vec::new();
        Encoder::default().data(&header(), &[5; 16], &mut bytes).unwrap();
        for cut in 0..bytes.len() {
            assert_eq!(Decoder::default().next(&bytes[..cut], FrameLimits::CONTROL), Ok(None));
        }
    }

    #[test]
    fn a_replayed_frame_is_refused() {
        let mut bytes = Vec::new();
        Encoder::default().message(Kind::Message, &1u32, &mut bytes).unwrap();
        let mut decoder = Decoder::default();
        decoder.next(&bytes, FrameLimits::CONTROL).unwrap().unwrap();
        assert_eq!(decoder.next(&bytes, FrameLimits::CONTROL), Err(FrameError::OutOfSequence { expected: 1, got: 0 }));
    }

    #[test]
    fn an_oversized_frame_is_refused_before_it_is_read() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        assert!(matches!(Decoder::default().next(&bytes, FrameLimits::CONTROL), Err(FrameError::TooLong { .. })));
    }

    #[test]
    fn every_byte_of_a_kind_counts() {
        let mut bytes = Vec::new();
        Encoder::default().message(Kind::Message, &1u32, &mut bytes).unwrap();
        for at in 8..HEADER_BYTES {
            let mut odd = bytes.clone();
            odd[at] ^= 0x80;
            let refused = Decoder::default().next(&odd, FrameLimits::CONTROL);
            assert!(matches!(refused, Err(FrameError::UnknownKind { .. })), "byte {at}");
        }
    }

    #[test]
    fn a_process_message_may_be_longer_than_4_gib() {
        let length = (5 << 32) + 7;
        let limits = FrameLimits { control: 0, process_message: length };
        let header = Encoder::default().header(Kind::ProcessMessage, length);
        let read = Decoder::default().header(&header, limits);
        assert_eq!(read, Ok(Some(Header { kind: Kind::ProcessMessage, length })));
        let limits = FrameLimits { process_message: length - 1, ..limits };
        let refused = Decoder::default().header(&header, limits);
        assert_eq!(refused, Err(FrameError::TooLong { length, limit: length - 1 }));
    }

    #[test]
    fn a_description_that_does_not_fit_is_refused() {
        let mut bytes = Vec::new();
        Encoder::default().data(&header(), &[5; 15], &mut bytes).unwrap();
        let (frame, _) = Decoder::default().next(&bytes, FrameLimits::CONTROL).unwrap().unwrap();
        assert!(parse_data(frame.body, WireVersion::CURRENT).is_err());
    }
}
