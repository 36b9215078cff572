//! Where a worker may make files: a folder that is its own and does not outlive it.

use std::io;
use std::path::{Path, PathBuf};

use crate::identity::random;

/// The name of a folder that the worker makes when it first needs one, under the system's folder for temporary files
/// (`TMPDIR`). What is there in the end is removed with this.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// A random name.
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
        // Mostly it was never made, or the worker has removed it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
