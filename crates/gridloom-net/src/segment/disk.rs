//! Memory backed by files in a folder, for data that do not fit into memory.
//!
//! The files are mapped like memory files, and the system's page cache keeps in memory what is read of them, as far as
//! there is room. A datum may therefore be larger than all memory, and is forwarded and read like any other.
//!
//! **Invariants.** A file has no name, so none is left when its process ends, in whatever manner. Its disk space is
//! allocated before its bytes are written: a full disk is an error, and never kills the process. The file cannot be
//! sealed, so it is passed only to workers of this server, through a read-only descriptor.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use super::Memory;
use super::mapping::{Mapping, PAGE_BYTES};

/// Minimum size of data on disk; smaller data stay in memory, because creating a file takes longer.
pub(crate) const ON_DISK_BYTES_MIN: u64 = 1 << 20;

/// A folder for data, and the memory use from which data are stored there.
#[derive(Clone, Debug)]
pub struct Disk {
    folder: PathBuf,
    memory_bytes_max: u64,
}

impl Disk {
    /// Opens the folder for data that exceed this number of bytes in memory.
    ///
    /// # Errors
    /// If no file can be created there, or its space cannot be allocated.
    pub fn open(folder: &Path, memory_bytes_max: u64) -> io::Result<Disk> {
        let disk = Disk { folder: folder.to_path_buf(), memory_bytes_max };
        disk.allocate(PAGE_BYTES)?;
        Ok(disk)
    }

    /// Returns the number of bytes of data that stay in memory.
    pub(super) fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes_max
    }

    /// Allocates whole pages of zeros.
    ///
    /// # Errors
    /// If the disk is full or fails.
    pub(super) fn allocate(&self, size_bytes: u64) -> io::Result<Arc<Memory>> {
        let here = |error: io::Error| {
            let why = format!("{size_bytes} bytes in folder '{}': {error}", self.folder.display());
            io::Error::new(error.kind(), why)
        };
        let (written, read) = self.file(size_bytes).map_err(here)?;
        let mapping = Mapping::of_file(written.as_fd(), size_bytes).map_err(here)?;
        Ok(Memory::on_disk(read, mapping))
    }

    /// Creates a file; returns a descriptor for writing and a read-only one.
    fn file(&self, size_bytes: u64) -> io::Result<(File, OwnedFd)> {
        let written = tempfile::tempfile_in(&self.folder)?;
        rustix::fs::fallocate(&written, FallocateFlags::empty(), 0, size_bytes)?;
        let read = File::open(format!("/proc/self/fd/{}", written.as_raw_fd()))?;
        written.set_permissions(Permissions::from_mode(0o400))?;
        Ok((written, read.into()))
    }
}
