//! Large data over TCP: blocking sockets, `writev` from where the bytes lie, read to where they shall lie.
//!
//! ```text
//!  0        4
//!  +--------+------------------+--------- - - --+---------+
//!  | header | CargoHeader      | bytes          | tag     |
//!  | length | (postcard)       |                | of all  |
//!  +--------+------------------+--------- - - --+---------+
//!   u32 LE                                       16 bytes
//! ```
//! **Promises:** a receiver allocates what a header states only if it is within the node's bound and fits the
//! description; a datum without room is read past, so that the ones behind it still come. A header that breaks the
//! rules ends the peer's connection (`fault`), an ordinary end of the stream does not.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use gridloom_base::limits::{self, CUT_THROUGH_BYTES_MIN};
use gridloom_channel::tags::{Tagged, Tagger};
use gridloom_channel::{Key, frame};
use gridloom_core::node::Role;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::notice::{Inbox, Link, Notice};
use super::{CARGO_HEADER_BYTES_MAX, Cargo, CargoHeader};
use crate::moving::Moving;
use crate::payload::Payload;
use crate::segment::{Filling, Segment, SegmentMut};
use crate::store::{Coming, Store};

/// Data are written and read in parts, so that people see how far they have come, and others get what has.
const PART_BYTES: usize = limits::PART_BYTES as usize;
/// Bytes of a probe are zeros, written from one block.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Writes a datum, and tells `moving` how far it is.
///
/// # Errors
/// If the stream breaks.
pub fn write_datum(stream: &mut impl Write, header: &CargoHeader, bytes: &[u8], moving: &Moving) -> io::Result<()> {
    let head = encode_header(header);
    let (first, rest) = bytes.split_at(bytes.len().min(PART_BYTES));
    if rest.is_empty() {
        return write_all_of(stream, &head, bytes);
    }
    let passage = header.cargo.datum().map(|datum| moving.begin(datum, true, header.size_bytes));
    let advance = |part: &[u8]| passage.iter().for_each(|passage| passage.advance(part.len()));
    write_all_of(stream, &head, first)?;
    advance(first);
    for part in rest.chunks(PART_BYTES) {
        stream.write_all(part)?;
        advance(part);
    }
    Ok(())
}

/// Writes a datum as it comes here, and tells `moving` how far it is.
///
/// # Errors
/// If the stream breaks, or what comes does.
pub fn write_coming(
    stream: &mut impl Write,
    header: &CargoHeader,
    coming: &Filling,
    moving: &Moving,
) -> io::Result<()> {
    let passage = header.cargo.datum().map(|datum| moving.begin(datum, true, header.size_bytes));
    let (mut head, mut written) = (encode_header(header), 0);
    while (written as u64) < coming.size_bytes() {
        for part in coming.read(written).ok_or_else(broken_off)?.chunks(PART_BYTES) {
            write_all_of(stream, &std::mem::take(&mut head), part)?;
            written += part.len();
            passage.iter().for_each(|passage| passage.advance(part.len()));
        }
    }
    // Its own tag was checked by then.
    coming.whole().map(drop).ok_or_else(broken_off)
}

/// Why a datum that comes here cannot be passed on.
pub fn broken_off() -> io::Error {
    io::Error::other("it broke off on its way here")
}

/// Writes a probe.
///
/// # Errors
/// If the stream breaks.
pub fn write_probe(stream: &mut impl Write, header: &CargoHeader) -> io::Result<()> {
    stream.write_all(&encode_header(header))?;
    let mut left = header.size_bytes;
    while left > 0 {
        let block = left.min(ZEROS.len() as u64);
        stream.write_all(&ZEROS[..block as usize])?;
        left -= block;
    }
    Ok(())
}

/// A header with its length before it.
pub fn encode_header<T: Serialize>(header: &T) -> Vec<u8> {
    let mut bytes = postcard::to_extend(header, vec![0; 4]).expect("postcard into a vector fails for no type of ours");
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Parses a header of that stated length, read by `read`.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if it breaks the rules, another kind if the stream broke.
pub fn decode_header<T: DeserializeOwned>(length: [u8; 4], stream: &mut impl Read) -> io::Result<T> {
    let length = u32::from_le_bytes(length) as usize;
    if length > CARGO_HEADER_BYTES_MAX {
        return Err(invalid(format!("bulk header of {length} bytes exceeds the limit of {CARGO_HEADER_BYTES_MAX}")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    frame::parse(&bytes).map_err(|error| invalid(error.to_string()))
}

/// Checks a header against the one before it, its own description and the bound.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if it breaks the rules.
pub fn check_header(header: &CargoHeader, last_serial: u64) -> io::Result<()> {
    if header.serial <= last_serial {
        return Err(invalid(format!("bulk number {} after {last_serial} (replayed or injected)", header.serial)));
    }
    match &header.cargo {
        Cargo::Datum { meta, .. } if meta.checked_size_bytes() != Some(header.size_bytes) => {
            Err(invalid(format!("a description of {meta} with {} bytes", header.size_bytes)))
        }
        Cargo::Datum { .. } | Cargo::Probe => Ok(()),
    }
}

/// The receiving end of one stream.
#[derive(Clone)]
pub struct Receiver {
    pub link: Link,
    pub stream: u64,
    /// Where the news go.
    pub inbox: Arc<Inbox>,
    /// The store with the pool that gives the memory.
    pub store: Arc<Store>,
    /// Largest datum taken.
    pub datum_bytes_max: u64,
    /// What the sender is, if what it sends may be passed on while it comes.
    pub passes_on_from: Option<Role>,
}

impl Receiver {
    /// Receives until the stream ends, and tells the loop.
    pub fn run_tcp(self, mut stream: TcpStream, key: Key) {
        let mut tagger = Tagger::new(key);
        self.run(|serial| self.receive_one(Tagged::new(&mut stream, Some(&mut tagger)), serial));
    }

    /// `receive` takes in what comes after that serial number, and gives its own.
    pub fn run(&self, mut receive: impl FnMut(u64) -> io::Result<u64>) {
        let mut serial = 0;
        let end = loop {
            match receive(serial) {
                Ok(next) => serial = next,
                Err(error) => break error,
            }
        };
        let fault = (end.kind() == ErrorKind::InvalidData).then(|| end.to_string());
        self.inbox.post(Notice::StreamEnded { link: self.link, stream: self.stream, serial, fault });
    }

    /// Tells the loop of something whole, which took so many nanoseconds from its first byte to its last.
    pub fn arrived(&self, header: CargoHeader, payload: Payload, took_ns: u64) {
        let CargoHeader { serial, cargo, .. } = header;
        self.inbox.post(Notice::Arrived { link: self.link, stream: self.stream, serial, cargo, payload, took_ns });
    }

    /// Tells the loop of something that had no room.
    pub fn no_room(&self, header: CargoHeader, why: String) {
        let CargoHeader { serial, cargo, .. } = header;
        self.inbox.post(Notice::NoRoom { link: self.link, stream: self.stream, serial, cargo, why });
    }

    /// Nothing of it is believed before its tag was checked, but how much memory it wants.
    fn receive_one(&self, mut stream: Tagged<'_, TcpStream>, last_serial: u64) -> io::Result<u64> {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let header: CargoHeader = decode_header(length, &mut stream)?;
        check_header(&header, last_serial)?;
        let serial = header.serial;
        let room = match header.size_bytes > self.datum_bytes_max {
            true => Err(io::Error::other(format!("more than the {} bytes that this node takes", self.datum_bytes_max))),
            false => self.store.pool().allocate_for_data(header.size_bytes),
        };
        match room {
            Ok(memory) => {
                let started = Instant::now();
                let segment = self.read(stream, &header, memory)?;
                let took_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.arrived(header, Payload::segment(segment), took_ns);
            }
            Err(error) => {
                let skipped = io::copy(&mut Read::by_ref(&mut stream).take(header.size_bytes), &mut io::sink())?;
                if skipped < header.size_bytes {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                stream.check_tag()?;
                let why = format!("no room for {} bytes: {error}", header.size_bytes);
                self.no_room(header, why);
            }
        }
        Ok(serial)
    }
}

impl Receiver {
    /// Reads a datum to where it shall lie, and tells how far it is.
    fn read(
        &self,
        mut stream: Tagged<'_, TcpStream>,
        header: &CargoHeader,
        memory: SegmentMut,
    ) -> io::Result<Arc<Segment>> {
        let (mut filler, size_bytes) = (memory.fill(), header.size_bytes);
        let datum = header.cargo.datum().filter(|_| size_bytes > PART_BYTES as u64);
        let passage = datum.map(|datum| self.store.moving().begin(datum, false, size_bytes));
        let mut coming = None;
        loop {
            let part = filler.next_mut(PART_BYTES);
            let length = part.len();
            if length == 0 {
                break;
            }
            stream.read_exact(part)?;
            filler.advance(length);
            passage.iter().for_each(|passage| passage.advance(length));
            if coming.is_none() && self.passes_on_from.is_some() && size_bytes >= CUT_THROUGH_BYTES_MIN {
                coming = Some(self.begin(header, filler.filling()));
            }
        }
        stream.check_tag()?;
        coming.flatten().into_iter().for_each(Coming::keep);
        Ok(filler.finish())
    }

    /// The first part of a datum is here: it can be passed on from now on, unless it comes already by another stream, or its sender
    /// may not send it.
    fn begin(&self, header: &CargoHeader, filling: &Arc<Filling>) -> Option<Coming<'_>> {
        let Cargo::Datum { datum, meta } = &header.cargo else { return None };
        self.passes_on_from.filter(|role| role.may_send(self.link.peer, *datum))?;
        let coming = self.store.begin(*datum, meta, filling)?;
        self.inbox.post(Notice::Begun { link: self.link, datum: *datum });
        Some(coming)
    }
}

fn write_all_of(stream: &mut impl Write, mut head: &[u8], mut bytes: &[u8]) -> io::Result<()> {
    while !head.is_empty() {
        match stream.write_vectored(&[IoSlice::new(head), IoSlice::new(bytes)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => {
                let of_head = length.min(head.len());
                head = &head[of_head..];
                bytes = &bytes[length - of_head..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    stream.write_all(bytes)
}

fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use gridloom_base::{DatumId, Dtype, Meta, NodeId};

    use super::*;
    use crate::segment::Pool;

    fn header(size_bytes: u64) -> CargoHeader {
        let datum = DatumId { client: NodeId(1), serial: 2 };
        CargoHeader { serial: 5, cargo: Cargo::Datum { datum, meta: Meta::array(Dtype::Uint8, &[9]) }, size_bytes }
    }

    #[test]
    fn a_datum_is_written_whole_through_short_writes() {
        struct Short(Vec<u8>);
        impl Write for Short {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let length = bytes.len().min(3);
                self.0.extend_from_slice(&bytes[..length]);
                Ok(length)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut out = Short(Vec::new());
        write_datum(&mut out, &header(9), &[7; 9], &Moving::default()).unwrap();
        let (length, mut rest) = out.0.split_first_chunk::<4>().unwrap();
        assert_eq!(decode_header::<CargoHeader>(*length, &mut rest).unwrap(), header(9));
        assert_eq!(rest, [7; 9]);
    }

    #[test]
    fn what_a_client_may_not_send_is_not_passed_on() {
        let poll = mio::Poll::new().unwrap();
        let inbox = Arc::new(Inbox::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap()));
        let own = header(9);
        let begins = |peer: u64, passes_on_from| {
            let (link, store) = (Link { peer: NodeId(peer), generation: 0 }, Arc::new(Store::new(Pool::new(0))));
            let receiver =
                Receiver { link, stream: 1, inbox: inbox.clone(), store, datum_bytes_max: 9, passes_on_from };
            let filler = receiver.store.pool().allocate(9).unwrap().fill();
            receiver.begin(&own, filler.filling()).is_some()
        };
        assert!(begins(1, Some(Role::Client)) && begins(3, Some(Role::Server)));
        assert!(!begins(2, Some(Role::Client)) && !begins(1, None));
    }

    #[test]
    fn headers_that_lie_are_refused() {
        assert!(check_header(&header(9), 4).is_ok());
        assert!(check_header(&header(9), 5).is_err());
        assert!(check_header(&header(10), 4).is_err());
        let error = decode_header::<CargoHeader>([0, 0, 1, 0], &mut io::empty()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
