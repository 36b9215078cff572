//! A folder with the files of `/proc` and `/sys` that a test needs.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Root;

/// The folder, which is removed when this is dropped.
pub(crate) struct FakeRoot(PathBuf);

impl FakeRoot {
    pub(crate) fn new(files: &[(&str, &str)]) -> FakeRoot {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("gridloom-root-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        FakeRoot(folder)
    }

    pub(crate) fn root(&self) -> Root {
        Root(self.0.clone())
    }
}

impl Drop for FakeRoot {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}
