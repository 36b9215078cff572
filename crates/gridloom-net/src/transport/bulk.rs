//! Large data over TCP: blocking sockets, `writev` directly from the data's memory, read directly into their destination.
//!
//! ```text
//!  0        4
//!  +--------+-------------+-----+---------+-----+-- - - --+-----------+-----+
//!  | header | CargoHeader | tag | part 1  | tag |         | last part | tag |
//!  | length | (postcard)  |     |         |     |         |           |     |
//!  +--------+-------------+-----+---------+-----+-- - - --+-----------+-----+
//!   u32 LE                 16 B  `PARTS`                   (the rest)
//! ```
//! **Guarantees:** nothing is trusted, stored or forwarded before its own tag was checked: the header before memory is
//! allocated for it, each part before another node receives it. A receiver allocates what a header states only if it
//! is within the node's limit and matches the description. A datum without memory is read and discarded, so that the
//! following data still arrive. Bytes that differ from what was sent end the stream: its datum breaks off, and may be
//! requested again. An invalid header ends the peer's connection; an ordinary end of the stream does not.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::time::Instant;

use gridloom_base::limits::PARTS;
use gridloom_base::{DatumId, Meta, slice_bytes};
use gridloom_channel::{WireVersion, frame};
use gridloom_core::node::Role;
use serde::de::DeserializeOwned;

use super::notice::{CorruptedPart, Inbox, Link, Notice, StreamOutcome};
use super::stripes::{PartBoundary, Stripes};
use super::{CARGO_HEADER_BYTES_MAX, Cargo, CargoHeader, Resume};
use crate::filling::{Filler, PartialFill};
use crate::payload::Payload;
use crate::segment::SegmentMut;
use crate::store::{Incoming, Store};

/// Returns the part size. Data are written and read in parts, so that users see their progress and other nodes can
/// receive the parts that have arrived.
pub(super) fn part_bytes(header: &CargoHeader) -> usize {
    PARTS.part_bytes(header.size_bytes) as usize
}

/// Decodes a header of the given length, read from `stream`.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if it is invalid, another kind if the stream broke.
pub fn decode_header<T: DeserializeOwned>(
    length: [u8; 4],
    stream: &mut impl Read,
    wire_version: WireVersion,
) -> io::Result<T> {
    let length = u32::from_le_bytes(length) as usize;
    if length > CARGO_HEADER_BYTES_MAX {
        return Err(invalid(format!("bulk header of {length} bytes exceeds the limit of {CARGO_HEADER_BYTES_MAX}")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    frame::parse(&bytes, wire_version).map_err(|error| invalid(error.to_string()))
}

/// Checks a header against the previous serial, its own description and the limits.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if it is invalid.
pub fn check_header(header: &CargoHeader, last_serial: u64) -> io::Result<()> {
    if header.serial <= last_serial {
        return Err(invalid(format!("bulk number {} after {last_serial} (replayed or injected)", header.serial)));
    }
    match &header.cargo {
        Cargo::Datum { datum, meta } if described_bytes(*datum, meta) != Some(header.size_bytes) => {
            Err(invalid(format!("a description of {meta} does not match {} bytes", header.size_bytes)))
        }
        Cargo::Datum { .. } | Cargo::Probe => check_resume(header),
    }
}

/// Returns the size of a datum with this description, or of a slice of one.
fn described_bytes(datum: DatumId, meta: &Meta) -> Option<u64> {
    let whole_bytes = meta.checked_size_bytes()?;
    let of_slice = |number| slice_bytes(whole_bytes, number);
    Some(datum.slice().map_or(whole_bytes, |number| of_slice(number).end - of_slice(number).start))
}

fn check_resume(header: &CargoHeader) -> io::Result<()> {
    let Some(Resume { from_byte, .. }) = header.resume else { return Ok(()) };
    match header.cargo.datum().is_some() && may_resume_at(from_byte, header.size_bytes) {
        true => Ok(()),
        false => Err(invalid(format!("{} bytes cannot resume from byte {from_byte}", header.size_bytes))),
    }
}

/// Reports whether a datum of this size may be resumed at `from_byte`.
pub(crate) fn may_resume_at(from_byte: u64, size_bytes: u64) -> bool {
    from_byte > 0 && from_byte < size_bytes && from_byte.is_multiple_of(PARTS.part_bytes(size_bytes))
}

/// Returns the digest of the first bytes of a datum being received, once they are here; `None` if the reception breaks off before.
pub(crate) fn digest_of_incoming(coming: &PartialFill, bytes: u64) -> Option<[u8; 32]> {
    let (mut hasher, mut hashed) = (blake3::Hasher::new(), 0);
    while hashed < bytes as usize {
        let here = coming.read(hashed)?;
        let more = &here[..here.len().min(bytes as usize - hashed)];
        hasher.update(more);
        hashed += more.len();
    }
    Some(*hasher.finalize().as_bytes())
}

/// The receiving end of one stream.
#[derive(Clone)]
pub struct Receiver {
    pub link: Link,
    pub stream: u64,
    /// Inbox for notices.
    pub inbox: Arc<Inbox>,
    /// Store whose pool provides the memory.
    pub store: Arc<Store>,
    /// Largest accepted datum.
    pub datum_bytes_max: u64,
    /// Role of the sender, if its data may be forwarded while they are received.
    pub forwards_from: Option<Role>,
    /// Wire version of the sender's headers.
    pub wire_version: WireVersion,
}

impl Receiver {
    /// Receives until the stream ends, and posts notices to the loop.
    pub fn run_tcp(self, mut stream: Stripes) {
        self.run(|serial| self.receive_one(&mut stream, serial));
    }

    /// Calls `receive` with the last serial number until it fails; it receives what follows and returns its serial.
    pub fn run(&self, mut receive: impl FnMut(u64) -> Result<u64, StreamOutcome>) {
        let mut serial = 0;
        let end = loop {
            match receive(serial) {
                Ok(next) => serial = next,
                Err(end) => break end,
            }
        };
        if let StreamOutcome::Corrupted(Some(part)) = &end {
            // This node reports that datum itself.
            serial = part.serial;
        }
        self.inbox.post(Notice::StreamEnded { link: self.link, stream: self.stream, serial, end });
    }

    /// Posts the notice of a completely received datum; `took_ns` is the time from its first byte to its last.
    pub fn arrived(&self, header: CargoHeader, payload: Payload, took_ns: u64) {
        let CargoHeader { serial, cargo, .. } = header;
        self.inbox.post(Notice::Arrived { link: self.link, stream: self.stream, serial, cargo, payload, took_ns });
    }

    /// Posts the notice of a datum that was read and discarded.
    pub fn not_taken(&self, header: CargoHeader, no_memory: bool, why: String) {
        let CargoHeader { serial, cargo, .. } = header;
        self.inbox.post(Notice::Discarded { link: self.link, stream: self.stream, serial, cargo, no_memory, why });
    }

    fn receive_one(&self, stream: &mut Stripes, last_serial: u64) -> Result<u64, StreamOutcome> {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let header = decode_header::<CargoHeader>(length, stream, self.wire_version)?;
        check_header(&header, last_serial)?;
        let serial = header.serial;
        match self.filler(&header) {
            Ok(filler) => {
                let started = Instant::now();
                let payload = self.read(stream, &header, filler)?;
                let took_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
                // The time of the rest does not indicate the time of the whole.
                let took_ns = if header.resume.is_some() { 0 } else { took_ns };
                self.arrived(header, payload, took_ns);
            }
            Err((no_memory, why)) => {
                discard_rest(stream, &header)?;
                self.not_taken(header, no_memory, why);
            }
        }
        Ok(serial)
    }

    /// Returns the memory for a datum, including the part already received. On error, returns whether memory was
    /// lacking, and the reason.
    fn filler(&self, header: &CargoHeader) -> Result<Filler, (bool, String)> {
        let size_bytes = header.size_bytes;
        let no_room = |why: String| (true, format!("no room for {size_bytes} bytes: {why}"));
        if size_bytes > self.datum_bytes_max {
            return Err(no_room(format!("the limit of this node is {} bytes", self.datum_bytes_max)));
        }
        let (Some(Resume { from_byte, digest }), Cargo::Datum { datum, meta }) = (&header.resume, &header.cargo) else {
            let filler = match &header.cargo {
                Cargo::Datum { datum, meta } if datum.slice().is_some() => self.store.room_of_slice(*datum, meta),
                Cargo::Datum { datum, .. } => self.store.allocate_for(datum.client, size_bytes).map(SegmentMut::fill),
                Cargo::Probe => self.store.pool().allocate_for_data(size_bytes).map(SegmentMut::fill),
            };
            return filler.map_err(|error| no_room(error.to_string()));
        };
        let partial = self.store.partials().take(*datum, meta, *from_byte).filter(|_| self.may_receive(*datum));
        let partial =
            partial.ok_or_else(|| (false, format!("its first {from_byte} bytes are no longer stored here")))?;
        match blake3::hash(partial.bytes()) == blake3::Hash::from_bytes(*digest) {
            true => Ok(partial.resume()),
            false => Err((false, format!("its first {from_byte} bytes here differ from those of its sender"))),
        }
    }

    /// Reports whether the sender may send this datum, as far as this matters before the datum has arrived.
    fn may_receive(&self, datum: DatumId) -> bool {
        self.forwards_from.is_none_or(|role| role.may_send(self.link.peer, datum))
    }

    /// Keeps the received part of a datum that broke off.
    fn keep(&self, header: &CargoHeader, filler: Filler) {
        if let Cargo::Datum { datum, meta } = &header.cargo
            && self.may_receive(*datum)
        {
            self.store.partials().keep(*datum, meta.clone(), filler.break_off(), self.datum_bytes_max);
        }
    }
}

impl Receiver {
    /// Reads a datum into its memory, and reports its progress.
    fn read(&self, stream: &mut Stripes, header: &CargoHeader, mut filler: Filler) -> Result<Payload, StreamOutcome> {
        let (size_bytes, mut filled) = (header.size_bytes, header.resume_from_byte());
        let part_bytes = part_bytes(header);
        let datum = header.cargo.datum().filter(|_| size_bytes > part_bytes as u64);
        let passage = datum.map(|datum| self.store.transfers().begin(datum, false, size_bytes));
        passage.iter().for_each(|passage| passage.advance(filled as usize));
        let mut coming = None;
        loop {
            let part = filler.next_mut(part_bytes);
            let length = part.len();
            if length == 0 {
                break;
            }
            if let Err(error) = stream.read_exact(part) {
                self.keep(header, filler);
                return Err(changed_part(error, header, filled));
            }
            stream.next_part();
            filler.advance(length);
            filled += length as u64;
            passage.iter().for_each(|passage| passage.advance(length));
            if coming.is_none() && self.forwards_from.is_some() && PARTS.is_forwarded_early(size_bytes) {
                coming = Some(self.begin(header, filler.filling()));
            }
        }
        coming.flatten().into_iter().for_each(Incoming::keep);
        Ok(filler.finish())
    }

    /// Registers a datum whose first part was received: it can be forwarded from now on, unless it is already being
    /// received on another stream, or its sender may not send it.
    fn begin(&self, header: &CargoHeader, filling: &Arc<PartialFill>) -> Option<Incoming<'_>> {
        let Cargo::Datum { datum, meta } = &header.cargo else { return None };
        self.forwards_from.filter(|role| role.may_send(self.link.peer, *datum))?;
        let coming = self.store.begin(*datum, meta, filling)?;
        self.inbox.post(Notice::Started { link: self.link, datum: *datum });
        Some(coming)
    }
}

/// Reads all remaining parts of a datum and discards them.
fn discard_rest(stream: &mut Stripes, header: &CargoHeader) -> io::Result<()> {
    let (mut left, part_bytes) = (header.size_bytes - header.resume_from_byte(), part_bytes(header) as u64);
    while left > 0 {
        let part = left.min(part_bytes);
        if io::copy(&mut Read::by_ref(stream).take(part), &mut io::sink())? < part {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        stream.next_part();
        left -= part;
    }
    Ok(())
}

/// Returns the end of a stream for an error in the part that starts at this byte of a datum.
fn changed_part(error: io::Error, header: &CargoHeader, from_byte: u64) -> StreamOutcome {
    match (header.cargo.datum(), StreamOutcome::from(error)) {
        (Some(datum), StreamOutcome::Corrupted(_)) => {
            StreamOutcome::Corrupted(Some(CorruptedPart { serial: header.serial, datum, from_byte }))
        }
        (_, end) => end,
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
pub(super) mod tests {
    use gridloom_base::{Dtype, NodeId};

    use super::*;
    use crate::segment::Pool;

    pub(in crate::transport) fn header(size_bytes: u64) -> CargoHeader {
        let datum = DatumId { client: NodeId(1), serial: 2 };
        let cargo = Cargo::Datum { datum, meta: Meta::array(Dtype::Uint8, &[9]) };
        CargoHeader { serial: 5, cargo, size_bytes, resume: None }
    }

    #[test]
    fn what_a_client_may_not_send_is_not_forwarded() {
        let poll = mio::Poll::new().unwrap();
        let inbox = Arc::new(Inbox::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap()));
        let own = header(9);
        let begins = |peer: u64, passes_on_from| {
            let (link, store) = (Link { peer: NodeId(peer), generation: 0 }, Arc::new(Store::new(Pool::new(0))));
            let (inbox, wire_version) = (inbox.clone(), WireVersion::CURRENT);
            let receiver = Receiver {
                link,
                stream: 1,
                inbox,
                store,
                datum_bytes_max: 9,
                forwards_from: passes_on_from,
                wire_version,
            };
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
        let part_bytes = PARTS.part_bytes(1 << 20);
        assert!(may_resume_at(part_bytes, 1 << 20));
        assert!([0, 5, 1 << 20, 2 << 20].iter().all(|from_byte| !may_resume_at(*from_byte, 1 << 20)));
        let resume = Some(Resume { from_byte: part_bytes, digest: [0; 32] });
        assert!(check_header(&CargoHeader { resume, ..header(9) }, 4).is_err());
        let error = decode_header::<CargoHeader>([0, 0, 1, 0], &mut io::empty(), WireVersion::CURRENT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
