//! The location of a value's bytes. Cloning a payload never copies them.

use std::sync::Arc;
use std::{fmt, io};

use gridloom_base::Meta;

use crate::segment::Segment;

/// The bytes of one value; immutable, shared by its clones.
#[derive(Clone)]
pub enum Payload {
    /// In the heap of this process.
    Inline(Arc<[u8]>),
    /// In shared memory.
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

    /// Returns the bytes.
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
