//! The sending end of a bulk stream; the receiving end is [`super::bulk`].

use std::io::{self, ErrorKind, IoSlice, Write};
use std::time::Instant;

use gridloom_base::limits::PARTS;
use gridloom_channel::WireVersion;
use serde::Serialize;

use super::CargoHeader;
use super::bulk::part_bytes;
use super::paced::Pacer;
use super::stripes::PartBoundary;
use crate::filling::PartialFill;
use crate::payload::Payload;
use crate::transfers::Transfers;
use crate::uploads::Uploads;

/// Source block for the bytes of probes, which are zeros.
static ZEROS: [u8; PARTS.most_bytes as usize] = [0; PARTS.most_bytes as usize];

/// Destination of data: writes headers and parts.
pub struct Sink<'a, W> {
    stream: &'a mut W,
    uploads: Option<&'a Uploads>,
    /// Present if the peer is in another site.
    paced: Option<&'a mut Pacer>,
    wire_version: WireVersion,
}

impl<'a, W: Write + PartBoundary> Sink<'a, W> {
    pub fn new(stream: &'a mut W) -> Sink<'a, W> {
        Sink { stream, uploads: None, paced: None, wire_version: WireVersion::CURRENT }
    }

    /// Counts written data against this limit.
    pub fn within(self, uploads: Option<&'a Uploads>) -> Sink<'a, W> {
        Sink { uploads, ..self }
    }

    /// Paces written data for the link to another site.
    pub(super) fn paced_by(self, paced: Option<&'a mut Pacer>) -> Sink<'a, W> {
        Sink { paced, ..self }
    }

    /// Encodes headers in the wire version of the peer.
    pub fn with_wire_version(self, wire_version: WireVersion) -> Sink<'a, W> {
        Sink { wire_version, ..self }
    }

    /// Writes what is due before a part, and then the part.
    fn write_part(&mut self, head: &mut Vec<u8>, part: &[u8]) -> io::Result<()> {
        self.uploads.iter().for_each(|uploads| uploads.wait(part.len()));
        if let Some(paced) = &mut self.paced {
            // The receiver measures the time from the header on.
            self.stream.write_all(&std::mem::take(head))?;
            paced.part(part.len())?;
        }
        write_all_of(self.stream, [&std::mem::take(head), part])?;
        self.stream.next_part();
        Ok(())
    }

    /// Writes a datum and reports its progress to `moving`.
    ///
    /// # Errors
    /// If the stream breaks, or the datum is on disk and cannot be read.
    pub fn datum(&mut self, header: &CargoHeader, payload: &Payload, moving: &Transfers) -> io::Result<()> {
        let mut head = encode_header(header, self.wire_version);
        let part_bytes = part_bytes(header);
        let had_bytes = header.resume_from_byte() as usize;
        let size_bytes = payload.size_bytes() as usize;
        let is_long = size_bytes > part_bytes;
        let datum = header.cargo.datum().filter(|_| is_long);
        let passage = datum.map(|datum| moving.begin(datum, true, header.size_bytes));
        passage.iter().for_each(|passage| passage.advance(had_bytes));
        payload.visit(had_bytes..size_bytes, part_bytes, |part| {
            self.write_part(&mut head, part)?;
            passage.iter().for_each(|passage| passage.advance(part.len()));
            Ok(())
        })?;
        // A datum without bytes.
        self.stream.write_all(&head)
    }

    /// Writes a datum while it is being received here, and reports its progress to `moving`.
    ///
    /// # Errors
    /// If the stream breaks, or the reception of the datum does.
    pub fn forward(&mut self, header: &CargoHeader, coming: &PartialFill, moving: &Transfers) -> io::Result<()> {
        let passage = header.cargo.datum().map(|datum| moving.begin(datum, true, header.size_bytes));
        let (mut head, mut written) = (encode_header(header, self.wire_version), header.resume_from_byte() as usize);
        passage.iter().for_each(|passage| passage.advance(written));
        let part_bytes = part_bytes(header);
        while (written as u64) < coming.size_bytes() {
            let here = coming.read(written).ok_or_else(broken_off)?;
            if let Some(paced) = &mut self.paced {
                paced.hold(Instant::now())?;
            }
            for part in here.chunks(part_bytes) {
                self.write_part(&mut head, part)?;
                written += part.len();
                passage.iter().for_each(|passage| passage.advance(part.len()));
            }
        }
        coming.whole().map(drop).ok_or_else(broken_off)
    }

    /// Writes a probe.
    ///
    /// # Errors
    /// If the stream breaks.
    pub fn probe(&mut self, header: &CargoHeader) -> io::Result<()> {
        let mut head = encode_header(header, self.wire_version);
        let (mut left, part_bytes) = (header.size_bytes as usize, part_bytes(header));
        while left > 0 {
            let part = &ZEROS[..left.min(part_bytes)];
            self.write_part(&mut head, part)?;
            left -= part.len();
        }
        self.stream.write_all(&head)
    }
}

/// Returns the error for a datum whose reception broke off, so that it cannot be forwarded.
pub fn broken_off() -> io::Error {
    io::Error::other("its transfer to this node broke off")
}

/// Encodes a header, preceded by its length.
pub fn encode_header<T: Serialize>(header: &T, wire_version: WireVersion) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    wire_version.append(header, &mut bytes);
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn write_all_of(stream: &mut impl Write, pieces: [&[u8]; 2]) -> io::Result<()> {
    let mut pieces = pieces.map(IoSlice::new);
    let mut left = &mut pieces[..];
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match stream.write_vectored(left) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => IoSlice::advance_slices(&mut left, length),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::segment::Segment;
    use crate::transport::bulk::decode_header;
    use crate::transport::bulk::tests::header;

    /// Earlier, a server that was sending such a file was killed by SIGBUS.
    #[test]
    fn a_file_that_is_truncated_while_it_is_sent_is_an_error() {
        struct Truncating(File);
        impl Write for Truncating {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.set_len(0)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        impl PartBoundary for Truncating {
            fn next_part(&mut self) {}
        }
        let file = tempfile::tempfile().unwrap();
        let size_bytes = 4 * PARTS.most_bytes;
        file.set_len(size_bytes).unwrap();
        let payload = Payload::segment(Segment::of_file(file.try_clone().unwrap(), size_bytes).unwrap());
        let mut out = Truncating(file);
        let error = Sink::new(&mut out).datum(&header(size_bytes), &payload, &Transfers::default()).unwrap_err();
        assert!(error.to_string().contains("was truncated to 0 bytes"), "{error}");
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
        impl PartBoundary for Short {
            fn next_part(&mut self) {}
        }
        let mut out = Short(Vec::new());
        Sink::new(&mut out).datum(&header(9), &Payload::copied(&[7; 9]), &Transfers::default()).unwrap();
        let (length, mut rest) = out.0.split_first_chunk::<4>().unwrap();
        assert_eq!(decode_header::<CargoHeader>(*length, &mut rest, WireVersion::CURRENT).unwrap(), header(9));
        assert_eq!(rest, [7; 9]);
    }
}
