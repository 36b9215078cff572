//! Shared memory: memory files that are written once, mapped by every reader on the host, and reused.
//!
//! A [`Pool`] returns a [`SegmentMut`], which has one writer; frozen it becomes a [`Segment`], which is never written
//! again. When its last owner drops it, the memory returns to the pool with its pages in place: a fresh page costs
//! more than the copy into it (1.2 against 6.9 GiB/s). A segment of another process is [imported](Segment::import) and
//! mapped privately, so that a program may write to its own view of it.
//!
//! **Invariants.** The memory of a live [`Segment`] that was handed out is not written through this module
//! ([`crate::filling`] hands it out when it is full). A file is sealed against shrinking before it is mapped, so a read never
//! goes beyond its end. A file's key ([`Segment::key`]) is never reused within the process, and stays the same when
//! the memory is reused: caches of mappings by key therefore stay warm, too.
//!
//! **Not done here.** Reused memory is not cleared, since most of it is overwritten completely: it contains old data
//! of the same server, and reports that ([`SegmentMut::take_zeroed`]), because a function that writes to it may leave
//! gaps. Which processes may see a segment, and how many bytes may be stored, is decided elsewhere.

mod disk;
mod mapping;
mod pool;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gridloom_base::EscapedBytes;
use serde::{Deserialize, Serialize};

use self::pool::Shared;
use crate::disk_use::DiskRoom;

pub use disk::Disk;
pub(crate) use disk::ON_DISK_BYTES_MIN;
pub use mapping::{Mapping, STORE_FILE, SharedWords, sealed_file};
pub(crate) use mapping::{PAGE_BYTES, SPARE_BYTES};
pub use pool::Pool;

/// A segment's id in the process that owns it. Pages reused for another datum keep it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct SegmentId(pub u64);

static NEXT_KEY: AtomicU64 = AtomicU64::new(1);
static DESTROYED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of memory files that this process has destroyed. While it does not change, no cached key has become stale.
pub fn destroyed_count() -> u64 {
    DESTROYED.load(Ordering::Acquire)
}

/// A memory file, or a file on disk, with its mapping.
#[derive(Debug)]
pub struct Memory {
    key: u64,
    fd: OwnedFd,
    mapping: Mapping,
    is_on_disk: bool,
}

impl Memory {
    fn new(fd: OwnedFd, mapping: Mapping) -> Arc<Memory> {
        Arc::new(Memory { key: NEXT_KEY.fetch_add(1, Ordering::Relaxed), fd, mapping, is_on_disk: false })
    }

    fn on_disk(fd: OwnedFd, mapping: Mapping) -> Arc<Memory> {
        Arc::new(Memory { key: NEXT_KEY.fetch_add(1, Ordering::Relaxed), fd, mapping, is_on_disk: true })
    }

    fn len(&self) -> u64 {
        self.mapping.len_bytes()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        DESTROYED.fetch_add(1, Ordering::Release);
    }
}

/// Immutable shared memory.
pub struct Segment {
    /// `None` only during drop.
    memory: Option<Arc<Memory>>,
    id: SegmentId,
    len: u64,
    home: Weak<Shared>,
    retired: AtomicBool,
    on_drop: Mutex<Option<OnDrop>>,
    /// Its room on disk, as far as it is reserved.
    room: Mutex<Option<DiskRoom>>,
}

/// Callback with a flag whether the segment was retired.
type OnDrop = Box<dyn FnOnce(bool) + Send>;

impl Segment {
    /// Imports a segment that another process names `id`. `on_drop` is called when this process no longer uses it, so
    /// that its owner can be notified; its argument is true if the segment was retired here.
    ///
    /// # Errors
    /// If the file is shorter than `len` bytes, can still shrink, or cannot be mapped; `on_drop` is not called then.
    pub fn import(fd: OwnedFd, len: u64, id: SegmentId, on_drop: OnDrop) -> io::Result<Arc<Segment>> {
        let mapping = Mapping::private(fd.as_fd(), len)?;
        Ok(Arc::new(Segment {
            memory: Some(Memory::new(fd, mapping)),
            id,
            len,
            home: Weak::new(),
            retired: AtomicBool::new(false),
            on_drop: Mutex::new(Some(on_drop)),
            room: Mutex::default(),
        }))
    }

    /// Returns the first `len` bytes of a file on disk that nobody changes.
    ///
    /// # Errors
    /// If the file is shorter, is not whole pages, or cannot be mapped.
    pub(crate) fn of_file(file: File, len: u64) -> io::Result<Arc<Segment>> {
        let mapping = Mapping::read_only(file.as_fd(), len)?;
        let memory = Memory::on_disk(file.into(), mapping);
        Ok(Arc::new(Segment {
            id: SegmentId(memory.key),
            memory: Some(memory),
            len,
            home: Weak::new(),
            retired: AtomicBool::new(false),
            on_drop: Mutex::new(None),
            room: Mutex::default(),
        }))
    }

    /// Returns its id in its owner's process.
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// Returns the number of bytes, as requested; the mapping is longer by part of a size class.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Reports whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reports whether it is on disk: other nodes receive its bytes and not the file.
    pub fn is_on_disk(&self) -> bool {
        self.memory().is_on_disk
    }

    /// Checks that its file has not been truncated, if it is on disk: reading a mapping beyond the end of its file kills the
    /// process.
    ///
    /// # Errors
    /// Names the damage and the remedy.
    pub fn check_intact(&self) -> io::Result<()> {
        if !self.is_on_disk() {
            return Ok(());
        }
        let size_bytes = rustix::fs::fstat(self.fd())?.st_size;
        if u64::try_from(size_bytes).is_ok_and(|size_bytes| size_bytes >= self.len) {
            return Ok(());
        }
        let (file, should_be) = (self.file(), self.len);
        Err(io::Error::other(format!(
            "{file} was truncated to {size_bytes} bytes and should have {should_be}; restore the file, or put the data again"
        )))
    }

    /// Names its file for an error.
    fn file(&self) -> String {
        match std::fs::read_link(format!("/proc/self/fd/{}", self.fd().as_raw_fd())) {
            Ok(path) => format!("its file '{}'", EscapedBytes::of(&path)),
            Err(_) => "its file on disk".into(),
        }
    }

    /// Copies bytes into the caller's memory. A file on disk is read without its mapping, so that a truncated file is an
    /// error.
    ///
    /// # Errors
    /// If the file was truncated, or the disk fails.
    pub fn read_at(&self, from: u64, into: &mut [u8]) -> io::Result<()> {
        if !self.is_on_disk() {
            into.copy_from_slice(self.part(from, into.len() as u64));
            return Ok(());
        }
        let mut read_bytes = 0;
        while read_bytes < into.len() {
            match rustix::io::pread(self.fd(), &mut into[read_bytes..], from + read_bytes as u64) {
                Ok(0) => return self.check_intact().and(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(more) => read_bytes += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns its file, for passing to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory().fd.as_fd()
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory().mapping.bytes()[..self.len as usize]
    }

    /// Returns a range of its bytes. Other bytes may be written meanwhile ([`crate::filling`]).
    ///
    /// # Panics
    /// If the range exceeds the segment.
    pub fn part(&self, from: u64, size_bytes: u64) -> &[u8] {
        assert!(from.checked_add(size_bytes).is_some_and(|end| end <= self.len), "the part lies within");
        // SAFETY: the range is within the mapping, which lives as long as `self`. Bytes of a segment that were handed
        // out are never written again.
        unsafe { std::slice::from_raw_parts(self.as_ptr().add(from as usize), size_bytes as usize) }
    }

    /// Returns a pointer to its bytes, for a foreign array. Writing is sound only if the segment was imported; the
    /// writes then stay in this process.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory().mapping.as_ptr()
    }

    /// Returns the key of the memory in this process, which is never given to other memory.
    pub fn key(&self) -> u64 {
        self.memory().key
    }

    /// Returns the size of the underlying memory, at least [`Segment::len`]. Other processes map all of it, so that
    /// the mapping remains useful when the memory is reused.
    pub fn mapped_len(&self) -> u64 {
        self.memory().len()
    }

    /// Returns a weak reference to the memory. The memory outlives the segment if the pool keeps it.
    pub fn memory_weak(&self) -> Weak<Memory> {
        Arc::downgrade(self.memory())
    }

    /// Calls `count` with its reserved room on disk, if there is any.
    pub(crate) fn with_room(&self, count: impl FnOnce(Option<&mut DiskRoom>)) {
        count(self.room.lock().unwrap_or_else(PoisonError::into_inner).as_mut());
    }

    /// Prevents reuse of its memory: another process may still read it.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    fn memory(&self) -> &Arc<Memory> {
        self.memory.as_ref().expect("memory is there until the segment is dropped")
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take()
            && let Some(home) = self.home.upgrade()
        {
            home.release(memory, self.retired.load(Ordering::Acquire));
        }
        let on_drop = self.on_drop.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(on_drop) = on_drop {
            on_drop(self.retired.load(Ordering::Acquire));
        }
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment").field("id", &self.id).field("len", &self.len).finish_non_exhaustive()
    }
}

/// Shared memory that still has its only writer.
#[derive(Debug)]
pub struct SegmentMut {
    segment: Segment,
    zeroed: bool,
}

impl SegmentMut {
    /// Returns its bytes, with unspecified contents.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.zeroed = false;
        let len = self.segment.len as usize;
        let memory = self.segment.memory.as_mut().expect("memory is there until the segment is dropped");
        let at = memory.mapping.as_ptr();
        // SAFETY: a writable mapping of at least `len` bytes that lives as long as `self`; no other segment has this
        // memory (it was taken from the pool), and weak references never return bytes, so this slice is the only one.
        unsafe { std::slice::from_raw_parts_mut(at, len) }
    }

    /// Keeps reserved room on disk as long as the segment exists.
    pub(crate) fn in_room(mut self, room: DiskRoom) -> SegmentMut {
        self.segment.room = Mutex::new(Some(room));
        self
    }

    /// Returns the segment, for passing to the process that writes it.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Reports whether its bytes are all 0, as in memory that is used for the first time. Returns true at most once,
    /// since the caller is about to pass the memory to a writer.
    pub fn take_zeroed(&mut self) -> bool {
        std::mem::replace(&mut self.zeroed, false)
    }

    /// Ends writing.
    pub fn freeze(self) -> Arc<Segment> {
        Arc::new(self.segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_is_writable_without_touching_the_owner() {
        let pool = Pool::new(0);
        let mut own = pool.allocate(5000).unwrap();
        own.bytes_mut().fill(3);
        let own = own.freeze();
        let (told, dropped) = std::sync::mpsc::channel();
        let fd = own.fd().try_clone_to_owned().unwrap();
        let import = Segment::import(fd, 5000, own.id(), Box::new(move |retired| told.send(retired).unwrap())).unwrap();
        assert_eq!(import.bytes(), own.bytes());
        // SAFETY: the import is private to this process, and no slice of it is alive.
        unsafe { import.as_ptr().write(9) };
        assert_eq!((import.bytes()[0], own.bytes()[0]), (9, 3));
        drop(import);
        assert!(!dropped.recv().unwrap());
    }

    #[test]
    fn a_forwarded_import_that_may_still_be_used_is_marked_when_it_is_dropped() {
        let own = Pool::new(0).allocate(5000).unwrap().freeze();
        let (told, dropped) = std::sync::mpsc::channel();
        let fd = own.fd().try_clone_to_owned().unwrap();
        let import = Segment::import(fd, 5000, own.id(), Box::new(move |retired| told.send(retired).unwrap())).unwrap();
        import.retire();
        drop(import);
        assert!(dropped.recv().unwrap());
    }

    #[test]
    fn a_short_or_unsealed_file_is_refused() {
        let fd = rustix::fs::memfd_create("t", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(Segment::import(fd, 1, SegmentId(1), Box::new(|_| ())).is_err());
        let fd = sealed_file(4096).unwrap();
        assert!(Segment::import(fd, 4097, SegmentId(1), Box::new(|_| ())).is_err());
    }
}
