//! A worker's scratch folder for files, which is removed when the worker ends.

use std::io;
use std::path::{Path, PathBuf};

use crate::identity::random;

/// Name of a folder under the system's temporary folder (`TMPDIR`). The worker creates it when it first needs it.
/// Dropping this removes the folder with its content.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Chooses a random name.
    pub(super) fn new() -> io::Result<Scratch> {
        let token = u64::from_ne_bytes(random()?);
        Ok(Scratch(std::env::temp_dir().join(format!("gridloom-{}-{token:016x}", std::process::id()))))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Usually the folder was never created, or the worker has removed it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
