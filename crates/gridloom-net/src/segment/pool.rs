//! Allocates segments, and keeps the memory of dropped ones for the next segment of about the same size.
//!
//! With a [`Disk`], data received while memory is full are stored on it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, ON_DISK_BYTES_MIN};
use super::mapping::{Mapping, PAGE_BYTES, sealed_file};
use super::{Memory, Segment, SegmentId, SegmentMut};
use crate::descriptors::kept_segments_max;

/// A pool of segments. Clones share the pool.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

pub(super) struct Shared {
    keep_bytes_max: u64,
    /// Limit of kept segments, each of which takes a descriptor.
    keep_count_max: u64,
    disk: Option<Disk>,
    /// Bytes of the segments that the pool allocated or adopted, and that are in use and in memory.
    used_bytes: AtomicU64,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    bytes: u64,
    count: u64,
    /// Free memory by size class.
    memory: BTreeMap<u64, Vec<Arc<Memory>>>,
}

impl Pool {
    /// Creates an empty pool that keeps at most `keep_bytes_max` for reuse, using at most an eighth of the descriptors.
    pub fn new(keep_bytes_max: u64) -> Pool {
        Pool::with_disk(keep_bytes_max, None)
    }

    /// Creates a pool with a disk for data that do not fit into memory.
    pub fn with_disk(keep_bytes_max: u64, disk: Option<Disk>) -> Pool {
        let keep_count_max = kept_segments_max();
        let (used_bytes, free) = Default::default();
        Pool(Arc::new(Shared { keep_bytes_max, keep_count_max, disk, used_bytes, free }))
    }

    /// Returns the number of bytes of data that may stay in memory, if there is a disk for the others.
    pub fn memory_bytes_max(&self) -> Option<u64> {
        self.0.disk.as_ref().map(Disk::memory_bytes_max)
    }

    /// Allocates memory for data about to be received: on disk, if there is one and memory is full.
    ///
    /// # Errors
    /// As [`Pool::allocate`]; also if the disk is full or fails.
    pub fn allocate_for_data(&self, size_bytes: u64) -> io::Result<SegmentMut> {
        let used_bytes = self.0.used_bytes.load(Ordering::Relaxed);
        let is_full = |limit: u64| used_bytes.saturating_add(size_bytes) > limit;
        match self.memory_bytes_max().is_some_and(is_full) && size_bytes >= ON_DISK_BYTES_MIN {
            true => self.allocate_on_disk(size_bytes),
            false => self.allocate(size_bytes),
        }
    }

    /// Allocates memory on disk.
    ///
    /// # Errors
    /// If there is no disk, or it is full or fails.
    pub fn allocate_on_disk(&self, size_bytes: u64) -> io::Result<SegmentMut> {
        let disk = self.0.disk.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        let size = size_bytes.max(1).checked_next_multiple_of(PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SegmentMut { segment: self.segment(disk.allocate(size)?, size_bytes, true), zeroed: true })
    }

    /// Allocates `size_bytes` bytes. Memory is reused if there is any of the size class; its contents are unspecified then.
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

    /// Adopts a file that a worker of this process has created and filled, and no longer writes.
    ///
    /// # Errors
    /// If the file is shorter than `len` bytes, can still shrink, or cannot be mapped.
    pub fn adopt(&self, fd: OwnedFd, len: u64) -> io::Result<Arc<Segment>> {
        let mapping = Mapping::read_write(fd.as_fd(), len)?;
        Ok(Arc::new(self.segment(Memory::new(fd, mapping), len, true)))
    }

    /// Returns the number of bytes that are kept for reuse and not in use.
    pub fn kept_bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    fn segment(&self, memory: Arc<Memory>, len: u64, retired: bool) -> Segment {
        if !memory.is_on_disk {
            self.0.used_bytes.fetch_add(memory.len(), Ordering::Relaxed);
        }
        Segment {
            id: SegmentId(memory.key),
            memory: Some(memory),
            len,
            home: Arc::downgrade(&self.0),
            retired: AtomicBool::new(retired),
            on_drop: Mutex::new(None),
            room: Mutex::default(),
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

    /// Returns memory that is no longer used; it is kept for reuse, unless another process may still read it.
    pub(super) fn release(&self, memory: Arc<Memory>, is_retired: bool) {
        if memory.is_on_disk {
            return;
        }
        self.used_bytes.fetch_sub(memory.len(), Ordering::Relaxed);
        if is_retired {
            return;
        }
        let mut free = self.lock();
        if free.bytes + memory.len() <= self.keep_bytes_max && free.count < self.keep_count_max {
            free.bytes += memory.len();
            free.count += 1;
            free.memory.entry(memory.len()).or_default().push(memory);
        }
    }
}

/// Rounds a size up to an eighth of a power of two in whole pages: at most 1/8 is wasted, and a freed segment fits the
/// next one of nearly its size.
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
    fn what_comes_when_memory_is_full_goes_to_the_disk() {
        let folder = std::env::temp_dir();
        let pool = Pool::with_disk(0, Some(Disk::open(&folder, 3 << 20).unwrap()));
        let first = pool.allocate_for_data(2 << 20).unwrap().freeze();
        let mut second = pool.allocate_for_data(5 << 20).unwrap();
        second.bytes_mut().fill(7);
        let second = second.freeze();
        assert!(!first.is_on_disk() && second.is_on_disk());
        // A worker can read it but not write it.
        let mapping = Mapping::read_only(second.fd(), second.len()).unwrap();
        assert!(mapping.bytes()[..5 << 20].iter().all(|byte| *byte == 7));
        assert!(Mapping::read_write(second.fd(), second.len()).is_err());
        assert!(rustix::fs::ftruncate(second.fd(), 0).is_err());
        // Another node does not accept the file.
        let file = second.fd().try_clone_to_owned().unwrap();
        assert!(Segment::import(file, second.len(), second.id(), Box::new(|_| ())).is_err());
        drop(first);
        let small = pool.allocate_for_data(100).unwrap();
        let third = pool.allocate_for_data(2 << 20).unwrap();
        assert!(!small.segment().is_on_disk() && !third.segment().is_on_disk());
        let Err(error) = pool.allocate_on_disk(1 << 60) else { panic!("no disk is as large") };
        assert!(error.to_string().contains(&*folder.to_string_lossy()), "{error}");
    }

    #[test]
    fn retired_memory_and_memory_past_the_bound_are_abandoned() {
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
