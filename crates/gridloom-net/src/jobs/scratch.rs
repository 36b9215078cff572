//! A worker's scratch folder for files, which is removed when the worker ends.

use std::io;
use std::path::{Path, PathBuf};

use crate::identity::random;

/// Name of a folder under the system's temporary folder (`TMPDIR`). The worker creates it when it first needs it, or,
/// if the worker is confined, the server does. Dropping this removes the folder with its content.
pub(super) struct Scratch {
    path: PathBuf,
    /// True if the folder exists and is the temporary folder of all that the worker runs.
    pub(super) is_confined: bool,
}

impl Scratch {
    /// Chooses a random name.
    pub(super) fn new() -> io::Result<Scratch> {
        let token = u64::from_ne_bytes(random()?);
        let path = std::env::temp_dir().join(format!("gridloom-{}-{token:016x}", std::process::id()));
        Ok(Scratch { path, is_confined: false })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path at which the worker may create a folder for the files of its calls.
    pub(super) fn of_calls(&self) -> PathBuf {
        if self.is_confined { self.path.join("calls") } else { self.path.clone() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Usually the folder was never created, or the worker has removed it.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
