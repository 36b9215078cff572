//! Memory that lies in files of a folder: for data that find no room in memory.
//!
//! They are mapped like memory files, and the system keeps in memory what of them is read, as far as there is room. So a datum may be
//! larger than all memory, and is passed on and read as any other.
//!
//! **Invariants.** A file has no name, so none is left when its process ends, however it does. Its bytes have their place on the disk
//! before they are written: a full disk is an error, and never stops the process. It cannot be sealed, so it is handed to workers of
//! this server alone, by a descriptor that cannot write.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use super::Memory;
use super::mapping::{Mapping, PAGE_BYTES};

/// Smaller data stay in memory: a file takes longer to make.
pub(crate) const ON_DISK_BYTES_MIN: u64 = 1 << 20;

/// A folder for data, and from when on they go there.
#[derive(Clone, Debug)]
pub struct Disk {
    folder: PathBuf,
    memory_bytes_max: u64,
}

impl Disk {
    /// Data go to that folder when those in memory have so many bytes.
    ///
    /// # Errors
    /// If no file can be made there, or none with a place set aside for it.
    pub fn open(folder: &Path, memory_bytes_max: u64) -> io::Result<Disk> {
        let disk = Disk { folder: folder.to_path_buf(), memory_bytes_max };
        disk.allocate(PAGE_BYTES)?;
        Ok(disk)
    }

    /// Bytes of data that stay in memory.
    pub(super) fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes_max
    }

    /// So many bytes, whole pages, all 0.
    ///
    /// # Errors
    /// If the disk is full, or fails.
    pub(super) fn allocate(&self, size_bytes: u64) -> io::Result<Arc<Memory>> {
        let here = |error: io::Error| {
            let why = format!("{size_bytes} bytes in folder '{}': {error}", self.folder.display());
            io::Error::new(error.kind(), why)
        };
        let (written, read) = self.file(size_bytes).map_err(here)?;
        let mapping = Mapping::of_file(written.as_fd(), size_bytes).map_err(here)?;
        Ok(Memory::on_disk(read, mapping))
    }

    /// The file for writing, and for reading alone.
    fn file(&self, size_bytes: u64) -> io::Result<(File, OwnedFd)> {
        let written = tempfile::tempfile_in(&self.folder)?;
        rustix::fs::fallocate(&written, FallocateFlags::empty(), 0, size_bytes)?;
        let read = File::open(format!("/proc/self/fd/{}", written.as_raw_fd()))?;
        written.set_permissions(Permissions::from_mode(0o400))?;
        Ok((written, read.into()))
    }
}
