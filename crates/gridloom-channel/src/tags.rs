//! Tags: authenticate that a frame is from the peer and unchanged.
//!
//! The two ends of a connection derive a key for each direction from their handshake. The frames of a direction are
//! numbered from 0. The tag of a frame is the AEGIS-128L MAC of its bytes, with the direction's key and the frame's
//! number as the nonce. This detects a byte that was changed on the way, a frame that was dropped, repeated or
//! reordered, and a frame from a sender without the key. Nothing is encrypted.
//!
//! Source: D. Denis, S. Lucas, The AEGIS Family of Authenticated Encryption Algorithms (draft-irtf-cfrg-aegis-aead).

use std::fmt;
use std::io::{self, IoSlice, Read, Write};

use aegis::aegis128l::Aegis128LMac;

/// Length of a tag in bytes.
pub const TAG_BYTES: usize = 16;

/// Key of one direction.
#[derive(Clone)]
pub struct Key(pub [u8; 16]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The keys of a connection, as seen from one end.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Key of the frames that this end sends.
    pub send: Key,
    /// Key of the frames that the peer sends.
    pub receive: Key,
}

/// Computes the tags of the frames of one direction, in order.
#[derive(Debug)]
pub struct Tagger {
    key: Key,
    next: u64,
}

impl Tagger {
    /// Starts with frame number 0.
    pub fn new(key: Key) -> Tagger {
        Tagger { key, next: 0 }
    }

    /// Starts the tag of the next frame.
    pub fn begin(&mut self) -> Tag {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.next.to_le_bytes());
        self.next += 1;
        Tag(Aegis128LMac::new_with_nonce(&self.key.0, &nonce))
    }

    /// Returns the tag of the next frame, which consists of these parts.
    pub fn tag(&mut self, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        let mut tag = self.begin();
        parts.iter().for_each(|part| tag.update(part));
        tag.finish()
    }

    /// True if `tag` is the tag of the next frame, which consists of these parts.
    pub fn is_tag(&mut self, parts: &[&[u8]], tag: &[u8]) -> bool {
        are_equal(&self.tag(parts), tag)
    }
}

/// A tag that is being computed.
#[derive(Debug)]
pub struct Tag(Aegis128LMac<TAG_BYTES>);

impl Tag {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> [u8; TAG_BYTES] {
        self.0.finalize()
    }
}

/// Compares in constant time for a given length, independent of where the two differ.
pub fn are_equal(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |differing, (a, b)| differing | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differing) == 0
}

/// A stream that computes the tag of the bytes that pass through it. Without a tag it passes them unchanged.
#[derive(Debug)]
pub struct TaggedStream<'a, S> {
    pub stream: &'a mut S,
    tag: Option<Tag>,
}

impl<'a, S> TaggedStream<'a, S> {
    /// Starts the next tag of `tagger`, over the bytes that pass from now on.
    pub fn new(stream: &'a mut S, tagger: Option<&mut Tagger>) -> TaggedStream<'a, S> {
        TaggedStream { stream, tag: tagger.map(Tagger::begin) }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.tag.iter_mut().for_each(|tag| tag.update(bytes));
    }
}

impl<S: Write> TaggedStream<'_, S> {
    /// Writes the tag of the bytes that have passed.
    ///
    /// # Errors
    /// If the stream breaks.
    pub fn write_tag(self) -> io::Result<()> {
        self.tag.map_or(Ok(()), |tag| self.stream.write_all(&tag.finish()))
    }
}

impl<S: Read> TaggedStream<'_, S> {
    /// Reads a tag and checks it against the bytes that have passed.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the tags differ; another kind if the stream breaks.
    pub fn check_tag(self) -> io::Result<()> {
        let Some(tag) = self.tag else { return Ok(()) };
        let mut theirs = [0; TAG_BYTES];
        self.stream.read_exact(&mut theirs)?;
        match are_equal(&tag.finish(), &theirs) {
            true => Ok(()),
            false => Err(TagMismatch.into()),
        }
    }
}

impl<S: Read> Read for TaggedStream<'_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(into)?;
        self.update(&into[..length]);
        Ok(length)
    }
}

impl<S: Write> Write for TaggedStream<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.stream.write(bytes)?;
        self.update(&bytes[..length]);
        Ok(length)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let length = self.stream.write_vectored(parts)?;
        let mut left = length;
        for part in parts {
            let of_part = left.min(part.len());
            self.update(&part[..of_part]);
            left -= of_part;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The error for bytes that do not match their tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TagMismatch;

impl TagMismatch {
    /// True if `error` is this error.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<TagMismatch>())
    }
}

impl fmt::Display for TagMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TAG_MISMATCH_TEXT)
    }
}

impl std::error::Error for TagMismatch {}

impl From<TagMismatch> for io::Error {
    fn from(changed: TagMismatch) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, changed)
    }
}

/// The error text for a tag that does not match.
pub const TAG_MISMATCH_TEXT: &str = "the received bytes differ from those that were sent: something between the two changed, removed or inserted bytes; the connection is closed";

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key([byte; 16])
    }

    #[test]
    fn a_tag_depends_on_key_number_and_bytes_and_not_on_the_parts() {
        let tag = Tagger::new(key(1)).tag(&[b"ab", b"c"]);
        assert_eq!(tag, Tagger::new(key(1)).tag(&[b"a", b"", b"bc"]));
        assert_ne!(tag, Tagger::new(key(2)).tag(&[b"abc"]));
        assert_ne!(tag, Tagger::new(key(1)).tag(&[b"abd"]));
        let mut tagger = Tagger::new(key(1));
        assert!(tagger.is_tag(&[b"abc"], &tag));
        assert!(!tagger.is_tag(&[b"abc"], &tag), "a repeated frame");
        assert!(!Tagger::new(key(1)).is_tag(&[b"abc"], &tag[..15]));
    }

    #[test]
    fn any_changed_bit_of_a_stream_is_noticed() {
        let (mut sent, bytes) = (Vec::new(), vec![7; 1000]);
        let mut tagger = Tagger::new(key(3));
        let mut stream = TaggedStream::new(&mut sent, Some(&mut tagger));
        stream.write_all(&bytes[..400]).unwrap();
        assert_eq!(stream.write_vectored(&[IoSlice::new(&bytes[..250]), IoSlice::new(&bytes[..350])]).unwrap(), 600);
        stream.write_tag().unwrap();
        let check = |sent: &[u8]| {
            let (mut sent, mut tagger) = (sent, Tagger::new(key(3)));
            let mut stream = TaggedStream::new(&mut sent, Some(&mut tagger));
            stream.read_exact(&mut [0; 1000]).unwrap();
            stream.check_tag()
        };
        check(&sent).unwrap();
        for at in (0..sent.len()).step_by(13).chain([sent.len() - 1]) {
            let mut changed = sent.clone();
            changed[at] ^= 1;
            assert_eq!(check(&changed).unwrap_err().kind(), io::ErrorKind::InvalidData, "byte {at}");
        }
    }
}
