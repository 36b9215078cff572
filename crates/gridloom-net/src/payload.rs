//! The location of a value's bytes. Cloning a payload never copies them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::{fmt, io};

use gridloom_base::Meta;
use gridloom_base::limits::PARTS;

use crate::segment::Segment;

/// The bytes of one value; immutable, shared by its clones.
#[derive(Clone)]
pub enum Payload {
    /// Bytes in the heap of this process.
    Inline(Arc<[u8]>),
    /// Bytes in shared memory.
    Segment {
        /// The memory.
        segment: Arc<Segment>,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        size_bytes: u64,
    },
    /// In memory of another owner, such as a NumPy array, which keeps it alive while this payload exists.
    Foreign(Arc<dyn Foreign>),
}

/// Memory of another owner that stays unchanged while this value exists.
pub trait Foreign: Send + Sync {
    /// Returns the bytes.
    fn bytes(&self) -> &[u8];
}

impl Payload {
    /// Returns a payload that owns a copy of `bytes`.
    pub fn copied(bytes: &[u8]) -> Payload {
        Payload::Inline(bytes.into())
    }

    /// Returns a payload that is a whole segment.
    pub fn segment(segment: Arc<Segment>) -> Payload {
        Payload::Segment { offset: 0, size_bytes: segment.len(), segment }
    }

    /// Returns the bytes. If they are on disk and the file is truncated meanwhile, reading them kills the process, so a
    /// server uses [`Payload::read`] or [`Payload::visit`] for data that may be on disk.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Inline(bytes) => bytes,
            Payload::Segment { segment, offset, size_bytes } => segment.part(*offset, *size_bytes),
            Payload::Foreign(memory) => memory.bytes(),
        }
    }

    /// Checks that its file has not been truncated, if it is on disk.
    ///
    /// # Errors
    /// Names the damage and the remedy.
    pub fn check_intact(&self) -> io::Result<()> {
        match self {
            Payload::Segment { segment, .. } => segment.check_intact(),
            Payload::Inline(_) | Payload::Foreign(_) => Ok(()),
        }
    }

    /// Copies the bytes into memory of the same size.
    ///
    /// # Errors
    /// If they are on disk, and the file was truncated or cannot be read.
    pub fn copy_to(&self, into: &mut [u8]) -> io::Result<()> {
        match self {
            Payload::Segment { segment, offset, .. } => segment.read_at(*offset, into),
            Payload::Inline(_) | Payload::Foreign(_) => {
                into.copy_from_slice(self.bytes());
                Ok(())
            }
        }
    }

    /// Returns the bytes; a copy if they are on disk.
    ///
    /// # Errors
    /// As [`Payload::copy_to`].
    pub fn read(&self) -> io::Result<Cow<'_, [u8]>> {
        if !self.is_on_disk() {
            return Ok(Cow::Borrowed(self.bytes()));
        }
        let mut bytes = vec![0; self.size_bytes() as usize];
        self.copy_to(&mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// Calls `visit` with successive parts of a range of the bytes. Bytes in memory are not copied.
    ///
    /// # Errors
    /// As [`Payload::copy_to`], and the first error of `visit`.
    pub fn visit(
        &self,
        range: Range<usize>,
        part_bytes: usize,
        mut visit: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Payload::Segment { segment, offset, .. } = self else {
            return self.bytes()[range].chunks(part_bytes).try_for_each(visit);
        };
        if !segment.is_on_disk() {
            return self.bytes()[range].chunks(part_bytes).try_for_each(visit);
        }
        let mut buffer = vec![0; part_bytes.min(range.len())];
        for from in range.clone().step_by(part_bytes) {
            let part = &mut buffer[..part_bytes.min(range.end - from)];
            segment.read_at(*offset + from as u64, part)?;
            visit(part)?;
        }
        Ok(())
    }

    fn is_on_disk(&self) -> bool {
        matches!(self, Payload::Segment { segment, .. } if segment.is_on_disk())
    }

    /// Returns a range of the bytes, if the payload has them. Bytes in shared memory are not copied.
    pub fn part(&self, from_byte: u64, size_bytes: u64) -> Option<Payload> {
        let end = from_byte.checked_add(size_bytes).filter(|end| *end <= self.size_bytes())?;
        Some(match self {
            Payload::Segment { segment, offset, .. } => {
                Payload::Segment { segment: segment.clone(), offset: offset + from_byte, size_bytes }
            }
            Payload::Inline(_) | Payload::Foreign(_) => {
                Payload::copied(&self.bytes()[from_byte as usize..end as usize])
            }
        })
    }

    /// Returns the BLAKE3 digest of a value with this description and these bytes.
    pub fn digest(&self, meta: &Meta) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        let meta = postcard::to_stdvec(meta).expect("postcard into a vector fails for no type of ours");
        hasher.update(&(meta.len() as u64).to_le_bytes());
        hasher.update(&meta);
        hasher.update(self.bytes());
        *hasher.finalize().as_bytes()
    }

    /// Returns the BLAKE3 digest of a range of the bytes.
    ///
    /// # Errors
    /// As [`Payload::copy_to`].
    pub fn digest_of_part(&self, range: Range<usize>) -> io::Result<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        self.visit(range, PARTS.most_bytes as usize, |part| {
            hasher.update(part);
            Ok(())
        })?;
        Ok(*hasher.finalize().as_bytes())
    }

    /// Returns the number of bytes.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Payload::Segment { size_bytes, .. } => *size_bytes,
            Payload::Inline(_) | Payload::Foreign(_) => self.bytes().len() as u64,
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self {
            Payload::Inline(_) => "inline",
            Payload::Segment { .. } => "segment",
            Payload::Foreign(_) => "foreign",
        };
        write!(f, "Payload({place}, {} bytes)", self.size_bytes())
    }
}
