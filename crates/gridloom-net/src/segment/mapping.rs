//! Memory files and their mappings; apart from this module, nothing maps files.
//!
//! **Invariant:** a file is sealed against shrinking before it is mapped, so a read never goes beyond its end;
//! [`Mapping`] rejects any other file. The exception are a server's files on disk ([`super::disk`]), for itself and
//! its workers.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Number of readable bytes after each array of a function: more than the widest vector register of today's processors.
/// Some kernels of OpenBLAS 0.3.21 read a few bytes past the end of a matrix, and would crash if no memory were mapped there.
pub(crate) const SPARE_BYTES: usize = 256;

/// Granularity of every mapping. The kernel rounds up further if hardware pages are larger.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// A mapped file.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    len: usize,
    /// Length of the readable memory after the file.
    spare: usize,
    writable: bool,
}

// SAFETY: a mapping is plain memory that any thread may read; writing needs `&mut` or uses atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above: `&Mapping` provides only shared slices and atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len_bytes` bytes of a file that a worker got from its server, for reading: a write through the
    /// slice crashes the process.
    ///
    /// # Errors
    /// If the file is shorter, can still shrink and is not on disk, or cannot be mapped.
    pub fn read_only(fd: BorrowedFd<'_>, len_bytes: u64) -> io::Result<Mapping> {
        match rustix::fs::fcntl_get_seals(fd) {
            // A file on disk has no seals, and none can be added to a file of tmpfs.
            Err(rustix::io::Errno::INVAL) => check_size(fd, len_bytes)?,
            Ok(SealFlags::SEAL) => check_size(fd, len_bytes)?,
            _ => check(fd, len_bytes)?,
        }
        Mapping::map(fd, len_bytes, ProtFlags::READ, MapFlags::SHARED, SPARE_BYTES)
    }

    /// Maps the first `len_bytes` bytes of a file on disk that this process created, for writing to the file.
    ///
    /// # Errors
    /// If the file is shorter, or cannot be mapped.
    pub(super) fn of_file(fd: BorrowedFd<'_>, len_bytes: u64) -> io::Result<Mapping> {
        check_size(fd, len_bytes)?;
        Mapping::map(fd, len_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, 0)
    }

    /// Maps the first `len_bytes` bytes for writing to the file.
    ///
    /// # Errors
    /// As [`Mapping::read_only`].
    pub fn read_write(fd: BorrowedFd<'_>, len_bytes: u64) -> io::Result<Mapping> {
        check(fd, len_bytes)?;
        Mapping::map(fd, len_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, 0)
    }

    /// As [`Mapping::read_write`], for an array that a function writes to: the memory after it can be read.
    ///
    /// # Errors
    /// As [`Mapping::read_only`].
    pub fn read_write_in_function(fd: BorrowedFd<'_>, len_bytes: u64) -> io::Result<Mapping> {
        check(fd, len_bytes)?;
        Mapping::map(fd, len_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, SPARE_BYTES)
    }

    /// Maps the first `len_bytes` bytes so that writes stay in this process.
    ///
    /// # Errors
    /// As [`Mapping::read_only`].
    pub fn private(fd: BorrowedFd<'_>, len_bytes: u64) -> io::Result<Mapping> {
        check(fd, len_bytes)?;
        Mapping::map(fd, len_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE, 0)
    }

    /// Maps the file, with at least `spare` readable bytes after it.
    fn map(fd: BorrowedFd<'_>, len_bytes: u64, prot: ProtFlags, flags: MapFlags, spare: usize) -> io::Result<Mapping> {
        let len = usize::try_from(len_bytes.max(1).next_multiple_of(PAGE_BYTES)).map_err(io::Error::other)?;
        if spare == 0 {
            // SAFETY: a new mapping at an address chosen by the kernel overlaps no memory known to Rust.
            let at = unsafe { mmap(null_mut(), len, prot, flags, fd, 0)? };
            return Ok(Mapping { at: not_null(at), len, spare, writable: prot.contains(ProtFlags::WRITE) });
        }
        let spare = spare.next_multiple_of(PAGE_BYTES as usize);
        // SAFETY: as above.
        let at = unsafe { mmap_anonymous(null_mut(), len + spare, ProtFlags::READ, MapFlags::PRIVATE)? };
        let mapping = Mapping { at: not_null(at), len, spare, writable: prot.contains(ProtFlags::WRITE) };
        // SAFETY: the file replaces the first part of the pages mapped above, which nothing refers to.
        unsafe { mmap(at, len, prot, flags | MapFlags::FIXED, fd, 0)? };
        Ok(mapping)
    }

    /// Returns its length, whole pages.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len as u64
    }

    /// Returns its bytes, rounded up to whole pages.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `at..at + len` is mapped readable until `self` is dropped, and the file cannot shrink (`check`). No
        // thread writes while another reads: a segment is frozen, or full, before its bytes are read (see the module's
        // invariant).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }

    /// Returns its bytes, for the only writer.
    ///
    /// # Panics
    /// If it was mapped read-only.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.writable, "a mapping for reading is not written");
        // SAFETY: as in `bytes`; mapped writable, and `&mut self` makes this the only slice of this mapping.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }

    /// Returns a pointer to the mapping, for foreign code that follows its own rules. Writing is sound only on a private mapping.
    pub fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own, and no slice of it outlives `self`. A failure would only leak the
        // mapping, and cannot happen for a range that `mmap` returned.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len + self.spare) };
    }
}

fn not_null(at: *mut c_void) -> NonNull<u8> {
    NonNull::new(at.cast()).expect("the kernel maps nothing at address 0 unasked")
}

/// Atomic words that two processes share.
#[derive(Debug)]
pub struct SharedWords {
    mapping: Mapping,
}

impl SharedWords {
    /// Creates `count` words, all 0, and the descriptor by which the other process opens them.
    ///
    /// # Errors
    /// If the system is out of memory or file descriptors.
    pub fn new(count: usize) -> io::Result<(SharedWords, OwnedFd)> {
        let fd = sealed_file(((count * 8) as u64).max(1).next_multiple_of(PAGE_BYTES))?;
        Ok((SharedWords::open(fd.as_fd(), count)?, fd))
    }

    /// Opens the words that the other process created.
    ///
    /// # Errors
    /// If there are fewer, or they cannot be mapped.
    pub fn open(fd: BorrowedFd<'_>, count: usize) -> io::Result<SharedWords> {
        Ok(SharedWords { mapping: Mapping::read_write(fd, (count * 8) as u64)? })
    }

    /// Returns the words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, writable, lives as long as `self`, and is accessed only through these
        // atomics (it is private to this type).
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().cast::<AtomicU64>(), self.mapping.len / 8) }
    }
}

/// Name of the store's memory files, by which they are recognized among the mappings of a process.
const STORE_FILE_NAME: &str = "gridloom-store";
/// The path of these files in `/proc/PID/smaps`.
pub const STORE_FILE: &str = "/memfd:gridloom-store (deleted)";

/// Creates a memory file that can neither shrink nor grow, as [`Pool::adopt`](super::pool::Pool::adopt) requires.
///
/// # Errors
/// If the system is out of memory or file descriptors.
pub fn sealed_file(size_bytes: u64) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(STORE_FILE_NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, size_bytes)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Checks the seals and the size. A read beyond the end of a file crashes the process, so the file's creator must be
/// unable to shorten it.
fn check(fd: BorrowedFd<'_>, len_bytes: u64) -> io::Result<()> {
    if !rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "shared memory is not sealed against shrinking"));
    }
    check_size(fd, len_bytes)
}

fn check_size(fd: BorrowedFd<'_>, len_bytes: u64) -> io::Result<()> {
    let size = rustix::fs::fstat(fd)?.st_size as u64;
    // The file is whole pages, so the mapped bytes beyond `len_bytes` exist, too.
    if !size.is_multiple_of(PAGE_BYTES) || size < len_bytes {
        let why = format!("shared memory has {size} bytes instead of the stated {len_bytes}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn bytes_behind_the_memory_of_functions_can_be_read() {
        let fd = sealed_file(PAGE_BYTES).unwrap();
        let of = [Mapping::read_only, Mapping::read_write_in_function];
        for mapping in of.map(|map| map(fd.as_fd(), PAGE_BYTES).unwrap()) {
            assert_eq!(mapping.bytes().len(), PAGE_BYTES as usize);
            // SAFETY: `SPARE_BYTES` bytes after the file are mapped.
            let spare = unsafe { std::slice::from_raw_parts(mapping.as_ptr().add(mapping.len), SPARE_BYTES) };
            assert!(spare.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn two_mappings_share_their_words() {
        let (ours, fd) = SharedWords::new(64).unwrap();
        let theirs = SharedWords::open(fd.as_fd(), 64).unwrap();
        ours.words()[63].store(5, Ordering::Release);
        assert_eq!(theirs.words()[63].load(Ordering::Acquire), 5);
        assert!(ours.words().len() >= 64);
    }
}
