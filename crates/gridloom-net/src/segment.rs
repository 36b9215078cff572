//! Shared memory: memory files that are written once, mapped by everyone on the host who reads them, and reused warm.
//!
//! A [`Pool`] gives a [`SegmentMut`], which has one writer; frozen it is a [`Segment`], which nobody writes any more.
//! When its last owner lets go, the memory goes back to the pool with its pages in place: a fresh page costs more than
//! the copy into it (1.2 against 6.9 GiB/s). A segment of another process is [imported](Segment::import) and mapped
//! privately, so that a program may write on its own view of it.
//!
//! **Invariants.** The memory of a live [`Segment`] is not written through this module. A file is sealed against
//! shrinking before anybody maps it, so a read never leaves it. A file's key ([`Segment::key`]) is never reused
//! within the process, and outlives reuse of the memory: whoever caches mappings by key keeps them warm too.
//!
//! **Not done here.** Reused memory is not cleared: it holds what the same server held before. Who may see a segment,
//! and how many bytes may be held, is decided elsewhere.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use serde::{Deserialize, Serialize};

/// A segment's name in the process that owns it; pages reused for another datum keep it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct SegmentId(pub u64);

/// Granularity of every mapping. A larger hardware page only rounds further up inside the kernel.
const PAGE_BYTES: u64 = 4096;

static NEXT_KEY: AtomicU64 = AtomicU64::new(1);
static DESTROYED: AtomicU64 = AtomicU64::new(0);

/// How many memory files this process has given up so far. While it stands still, no cached key has gone stale.
pub fn destroyed_count() -> u64 {
    DESTROYED.load(Ordering::Acquire)
}

/// A mapped file.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: a mapping is plain memory that any thread may read; writing needs `&mut` or goes through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above: `&Mapping` gives only shared slices and atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len_bytes` bytes for reading: a write by whoever got the slice stops the process.
    ///
    /// # Errors
    /// If the file is shorter, can still shrink, or cannot be mapped.
    pub fn read_only(fd: BorrowedFd<'_>, len_bytes: u64) -> io::Result<Mapping> {
        check(fd, len_bytes)?;
        Mapping::map(fd, len_bytes, ProtFlags::READ, MapFlags::SHARED)
    }

    /// Maps the first `len_bytes` bytes for writing into the file.
    ///
    /// # Errors
    /// As [`Mapping::read_only`].
    pub fn read_write(fd: BorrowedFd<'_>, len_bytes: u64) -> io::Result<Mapping> {
        check(fd, len_bytes)?;
        Mapping::map(fd, len_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
    }

    /// Maps the first `len_bytes` bytes so that writes stay in this process.
    ///
    /// # Errors
    /// As [`Mapping::read_only`].
    pub fn private(fd: BorrowedFd<'_>, len_bytes: u64) -> io::Result<Mapping> {
        check(fd, len_bytes)?;
        Mapping::map(fd, len_bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }

    fn map(fd: BorrowedFd<'_>, len_bytes: u64, prot: ProtFlags, flags: MapFlags) -> io::Result<Mapping> {
        let len = usize::try_from(len_bytes.max(1).next_multiple_of(PAGE_BYTES)).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no memory that Rust knows.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, fd, 0)? };
        let at = NonNull::new(at.cast()).expect("the kernel maps nothing at address 0 unasked");
        Ok(Mapping { at, len, writable: prot.contains(ProtFlags::WRITE) })
    }

    /// Its bytes, rounded up to whole pages.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `at..at + len` is mapped readable until `self` is dropped, and the file cannot shrink (`check`).
        // Nobody writes while a reader looks: a segment is frozen before its bytes are read (module's invariant).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }

    /// Its bytes, for the only writer.
    ///
    /// # Panics
    /// If it was mapped for reading only.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.writable, "a mapping for reading is not written");
        // SAFETY: as in `bytes`; mapped writable, and `&mut self` makes this the only slice of this mapping.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }

    /// Where it lies, for foreign code that keeps its own rules. Writing is sound only on a private mapping.
    pub fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own, and no slice of it outlives `self`.
        // A failure would only leak the mapping, and cannot happen for a range that `mmap` returned.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// A few words that two processes share.
#[derive(Debug)]
pub struct SharedWords {
    fd: OwnedFd,
    mapping: Mapping,
}

impl SharedWords {
    /// So many words, all 0.
    ///
    /// # Errors
    /// If the system is out of memory or file descriptors.
    pub fn new(count: usize) -> io::Result<SharedWords> {
        let fd = sealed_file(((count * 8) as u64).max(1).next_multiple_of(PAGE_BYTES))?;
        SharedWords::open(fd, count)
    }

    /// The words that the other process made.
    ///
    /// # Errors
    /// If there are fewer, or they cannot be mapped.
    pub fn open(fd: OwnedFd, count: usize) -> io::Result<SharedWords> {
        let mapping = Mapping::read_write(fd.as_fd(), (count * 8) as u64)?;
        Ok(SharedWords { fd, mapping })
    }

    /// To be handed to the other process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, writable, as long as `self`, and accessed only through these atomics
        // (it is private to this type).
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().cast::<AtomicU64>(), self.mapping.len / 8) }
    }
}

/// A memory file with its mapping.
#[derive(Debug)]
pub struct Memory {
    key: u64,
    fd: OwnedFd,
    mapping: Mapping,
}

impl Memory {
    fn new(fd: OwnedFd, mapping: Mapping) -> Arc<Memory> {
        Arc::new(Memory { key: NEXT_KEY.fetch_add(1, Ordering::Relaxed), fd, mapping })
    }

    fn len(&self) -> u64 {
        self.mapping.len as u64
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        DESTROYED.fetch_add(1, Ordering::Release);
    }
}

/// Immutable shared memory.
pub struct Segment {
    /// `Some` until dropped.
    memory: Option<Arc<Memory>>,
    id: SegmentId,
    len: u64,
    home: Weak<Shared>,
    retired: AtomicBool,
    on_drop: Mutex<Option<OnDrop>>,
}

/// Told whether it was retired.
type OnDrop = Box<dyn FnOnce(bool) + Send>;

impl Segment {
    /// A segment of another process, whose name there is `id`. `on_drop` is called when nobody here uses it any more,
    /// so that its owner can be told, and also whether it was retired here.
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
        }))
    }

    /// Its name in its owner's process.
    pub fn id(&self) -> SegmentId {
        self.id
    }

    /// Its bytes' number, as asked for; the mapping is longer by part of a size class.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its file, to be handed to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory().fd.as_fd()
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.memory().mapping.bytes()[..self.len as usize]
    }

    /// Where its bytes lie, for a foreign array. Writing is sound only if it was imported, and then stays here.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory().mapping.as_ptr()
    }

    /// Name of the memory in this process, never given to other memory.
    pub fn key(&self) -> u64 {
        self.memory().key
    }

    /// Bytes of the memory behind it, at least [`Segment::len`]: what others map, so that the mapping serves reuse too.
    pub fn mapped_len(&self) -> u64 {
        self.memory().len()
    }

    /// The memory without keeping it: it outlives the segment if the pool keeps it.
    pub fn memory_weak(&self) -> Weak<Memory> {
        Arc::downgrade(self.memory())
    }

    /// Its memory is not reused: someone outside may still look at it.
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
            && !self.retired.load(Ordering::Acquire)
            && let Some(home) = self.home.upgrade()
        {
            home.give_back(memory);
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

/// Shared memory that still has its one writer.
#[derive(Debug)]
pub struct SegmentMut(Segment);

impl SegmentMut {
    /// Its bytes, whatever they held before.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.0.len as usize;
        let memory = self.0.memory.as_mut().expect("memory is there until the segment is dropped");
        let at = memory.mapping.as_ptr();
        // SAFETY: a mapping for writing of at least `len` bytes that lives as long as `self`; no other segment has
        // this memory (it left the pool), weak references never give bytes, so this slice is the only one.
        unsafe { std::slice::from_raw_parts_mut(at, len) }
    }

    /// The segment as it is handed to the process that writes it.
    pub fn segment(&self) -> &Segment {
        &self.0
    }

    /// No more writing.
    pub fn freeze(self) -> Arc<Segment> {
        Arc::new(self.0)
    }
}

/// Maker and keeper of segments; clones share.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    keep_bytes_max: u64,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    bytes: u64,
    /// By size class.
    memory: BTreeMap<u64, Vec<Arc<Memory>>>,
}

impl Pool {
    /// An empty pool that keeps at most so many bytes warm.
    pub fn new(keep_bytes_max: u64) -> Pool {
        Pool(Arc::new(Shared { keep_bytes_max, free: Mutex::default() }))
    }

    /// Memory of `size_bytes` bytes: warm if there is any of its size class, with unspecified contents then.
    ///
    /// # Errors
    /// If the system is out of memory, mappings or file descriptors.
    pub fn allocate(&self, size_bytes: u64) -> io::Result<SegmentMut> {
        let class = class_bytes(size_bytes)?;
        let memory = match self.0.take(class) {
            Some(memory) => memory,
            None => {
                let fd = sealed_file(class)?;
                let mapping = Mapping::read_write(fd.as_fd(), class)?;
                Memory::new(fd, mapping)
            }
        };
        Ok(self.segment(memory, size_bytes, false))
    }

    /// Takes over a file that a worker of this process made and filled, and no longer writes.
    ///
    /// # Errors
    /// If the file is shorter than `len` bytes, can still shrink, or cannot be mapped.
    pub fn adopt(&self, fd: OwnedFd, len: u64) -> io::Result<Arc<Segment>> {
        let mapping = Mapping::read_write(fd.as_fd(), len)?;
        Ok(self.segment(Memory::new(fd, mapping), len, true).freeze())
    }

    /// Bytes kept warm and not in use.
    pub fn kept_bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    fn segment(&self, memory: Arc<Memory>, len: u64, retired: bool) -> SegmentMut {
        SegmentMut(Segment {
            id: SegmentId(memory.key),
            memory: Some(memory),
            len,
            home: Arc::downgrade(&self.0),
            retired: AtomicBool::new(retired),
            on_drop: Mutex::new(None),
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, class: u64) -> Option<Arc<Memory>> {
        let mut free = self.lock();
        let memory = free.memory.get_mut(&class)?.pop()?;
        free.bytes -= memory.len();
        Some(memory)
    }

    fn give_back(&self, memory: Arc<Memory>) {
        let mut free = self.lock();
        if free.bytes + memory.len() <= self.keep_bytes_max {
            free.bytes += memory.len();
            free.memory.entry(memory.len()).or_default().push(memory);
        }
    }
}

/// Lets this process have as many descriptors as it may: each segment takes one, and the usual default is 1024.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // A refusal leaves the limit as it is; running out is an error with its own words later.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// A memory file of that size that can neither shrink nor grow, such as [`Pool::adopt`] takes.
///
/// # Errors
/// If the system is out of memory or file descriptors.
pub fn sealed_file(size_bytes: u64) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("gridloom", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, size_bytes)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// A read behind the end of a file stops the process, so whoever made it must be unable to shorten it.
fn check(fd: BorrowedFd<'_>, len_bytes: u64) -> io::Result<()> {
    if !rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "shared memory is not sealed against shrinking"));
    }
    let size = rustix::fs::fstat(fd)?.st_size as u64;
    // The file is whole pages, so what is mapped beyond `len_bytes` is there too.
    if !size.is_multiple_of(PAGE_BYTES) || size < len_bytes {
        let why = format!("shared memory of {size} bytes where {len_bytes} were stated");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(())
}

/// Sizes are rounded up to eighths of a power of two, whole pages: at most 1/8 is wasted, and a freed segment fits the
/// next of nearly its size.
fn class_bytes(size_bytes: u64) -> io::Result<u64> {
    let step = (size_bytes.checked_next_power_of_two().unwrap_or(0) / 16).max(PAGE_BYTES);
    size_bytes.max(1).checked_next_multiple_of(step).filter(|size| *size < 1 << 46).ok_or_else(|| {
        io::Error::new(io::ErrorKind::OutOfMemory, format!("{size_bytes} bytes are more than this machine can map"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_returns_warm_and_keeps_its_key() {
        let pool = Pool::new(1 << 20);
        let mut first = pool.allocate(100_000).unwrap();
        first.bytes_mut().fill(7);
        let first = first.freeze();
        let (key, at) = (first.key(), first.as_ptr());
        let second = first.clone();
        drop(first);
        assert_eq!(pool.kept_bytes(), 0);
        drop(second);
        assert!(pool.kept_bytes() >= 100_000);
        let again = pool.allocate(100_001).unwrap();
        assert_eq!((again.segment().key(), again.segment().as_ptr()), (key, at));
        assert_eq!(again.segment().bytes()[99_999], 7);
    }

    #[test]
    fn retired_memory_and_memory_past_the_bound_are_given_up() {
        let pool = Pool::new(8192);
        let retired = pool.allocate(10).unwrap().freeze();
        let weak = retired.memory_weak();
        retired.retire();
        let before = destroyed_count();
        drop(retired);
        assert_eq!((pool.kept_bytes(), weak.strong_count()), (0, 0));
        assert!(destroyed_count() > before);
        drop(pool.allocate(10_000).unwrap());
        assert_eq!(pool.kept_bytes(), 0);
    }

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
    fn an_import_that_was_passed_on_and_may_still_be_used_says_so_when_it_is_dropped() {
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
        let fd = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(Segment::import(fd, 1, SegmentId(1), Box::new(|_| ())).is_err());
        let fd = sealed_file(4096).unwrap();
        assert!(Segment::import(fd, 4097, SegmentId(1), Box::new(|_| ())).is_err());
    }

    #[test]
    fn size_classes_waste_at_most_an_eighth() {
        for size in [0u64, 1, 4096, 4097, 100_000, 1 << 20, (1 << 20) + 1, (1 << 33) + 5] {
            let class = class_bytes(size).unwrap();
            assert!(
                class >= size && class.is_multiple_of(PAGE_BYTES) && class <= (size + size / 8 + PAGE_BYTES),
                "{size} {class}"
            );
        }
        assert!(class_bytes(u64::MAX).is_err());
    }

    #[test]
    fn two_mappings_share_their_words() {
        let ours = SharedWords::new(64).unwrap();
        let theirs = SharedWords::open(ours.fd().try_clone_to_owned().unwrap(), 64).unwrap();
        ours.words()[63].store(5, Ordering::Release);
        assert_eq!(theirs.words()[63].load(Ordering::Acquire), 5);
        assert!(ours.words().len() >= 64);
    }
}
