//! Makes segments, and keeps the memory of those that were let go for the next of about the same size.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::descriptors::{KEPT_PART, descriptor_limit};
use super::mapping::{Mapping, PAGE_BYTES, sealed_file};
use super::{Memory, Segment, SegmentId, SegmentMut};

/// Maker and keeper of segments; clones share.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

pub(super) struct Shared {
    keep_bytes_max: u64,
    /// Each takes a descriptor.
    keep_count_max: u64,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    bytes: u64,
    count: u64,
    /// By size class.
    memory: BTreeMap<u64, Vec<Arc<Memory>>>,
}

impl Pool {
    /// An empty pool that keeps at most so many bytes warm, in at most an eighth of the descriptors.
    pub fn new(keep_bytes_max: u64) -> Pool {
        let keep_count_max = descriptor_limit() / KEPT_PART;
        Pool(Arc::new(Shared { keep_bytes_max, keep_count_max, free: Mutex::default() }))
    }

    /// Memory of `size_bytes` bytes: warm if there is any of its size class, with unspecified contents then.
    ///
    /// # Errors
    /// If the system is out of memory, mappings or file descriptors.
    pub fn allocate(&self, size_bytes: u64) -> io::Result<SegmentMut> {
        let class = class_bytes(size_bytes)?;
        if let Some(memory) = self.0.take(class) {
            return Ok(SegmentMut { segment: self.segment(memory, size_bytes, false), zeroed: false });
        }
        let fd = sealed_file(class)?;
        let mapping = Mapping::read_write(fd.as_fd(), class)?;
        Ok(SegmentMut { segment: self.segment(Memory::new(fd, mapping), size_bytes, false), zeroed: true })
    }

    /// Takes over a file that a worker of this process made and filled, and no longer writes.
    ///
    /// # Errors
    /// If the file is shorter than `len` bytes, can still shrink, or cannot be mapped.
    pub fn adopt(&self, fd: OwnedFd, len: u64) -> io::Result<Arc<Segment>> {
        let mapping = Mapping::read_write(fd.as_fd(), len)?;
        Ok(Arc::new(self.segment(Memory::new(fd, mapping), len, true)))
    }

    /// Bytes kept warm and not in use.
    pub fn kept_bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    fn segment(&self, memory: Arc<Memory>, len: u64, retired: bool) -> Segment {
        Segment {
            id: SegmentId(memory.key),
            memory: Some(memory),
            len,
            home: Arc::downgrade(&self.0),
            retired: AtomicBool::new(retired),
            on_drop: Mutex::new(None),
        }
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
        free.count -= 1;
        Some(memory)
    }

    pub(super) fn give_back(&self, memory: Arc<Memory>) {
        let mut free = self.lock();
        if free.bytes + memory.len() <= self.keep_bytes_max && free.count < self.keep_count_max {
            free.bytes += memory.len();
            free.count += 1;
            free.memory.entry(memory.len()).or_default().push(memory);
        }
    }
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
    use super::super::destroyed_count;
    use super::*;

    #[test]
    fn memory_returns_warm_and_keeps_its_key() {
        let pool = Pool::new(1 << 20);
        let mut first = pool.allocate(100_000).unwrap();
        assert!(first.take_zeroed() && !first.take_zeroed());
        first.bytes_mut().fill(7);
        let first = first.freeze();
        let (key, at) = (first.key(), first.as_ptr());
        let second = first.clone();
        drop(first);
        assert_eq!(pool.kept_bytes(), 0);
        drop(second);
        assert!(pool.kept_bytes() >= 100_000);
        let mut again = pool.allocate(100_001).unwrap();
        assert!(!again.take_zeroed());
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
}
