//! Values passed to calls of a group that is being recorded. If the same array, bytes or file is passed to several
//! calls, it is one value, which is copied and sent once.
//!
//! An array may change between two calls; the caller checks whether it did. Bytes do not change. A file is the same as long as its
//! size, its time and its location on disk are.

use std::collections::HashMap;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use gridloom::Value;
use gridloom_base::Meta;
use pyo3::prelude::*;

use crate::lock;

#[derive(Default)]
pub(crate) struct Snapshots(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// By identity of the object, which is kept alive so that its identity stays unique.
    objects: HashMap<usize, Snapshot>,
    files: HashMap<FileState, Value>,
}

struct Snapshot {
    _object: Py<PyAny>,
    meta: Meta,
    strides: Vec<isize>,
    value: Value,
}

/// The state of a file: device, inode, size in bytes, and time of the last change in seconds and nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileState([i64; 5]);

impl FileState {
    /// Returns the state of a file; `None` if it does not exist.
    pub(crate) fn of(path: &Path) -> Option<FileState> {
        let about = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let (device, number, size_bytes) = (about.dev() as i64, about.ino() as i64, about.len() as i64);
        Some(FileState([device, number, size_bytes, about.mtime(), about.mtime_nsec()]))
    }
}

impl Snapshots {
    /// Forgets all values: the program may change its arrays now.
    pub(crate) fn forget(&self) {
        // Objects may run Python code when they are dropped, so drop them without the lock.
        let known = mem::take(&mut *lock(&self.0));
        drop(known);
    }

    /// The value of that object, as it was when it was kept.
    pub(crate) fn object(&self, object: &Bound<'_, PyAny>, meta: &Meta, strides: &[isize]) -> Option<Value> {
        let known = lock(&self.0);
        let found = known.objects.get(&(object.as_ptr() as usize));
        found.filter(|found| found.meta == *meta && found.strides == strides).map(|found| found.value.clone())
    }

    pub(crate) fn keep_object(&self, object: &Bound<'_, PyAny>, meta: Meta, strides: Vec<isize>, value: Value) {
        let snapshot = Snapshot { _object: object.clone().unbind(), meta, strides, value };
        let before = lock(&self.0).objects.insert(object.as_ptr() as usize, snapshot);
        drop(before);
    }

    pub(crate) fn file(&self, state: FileState) -> Option<Value> {
        lock(&self.0).files.get(&state).cloned()
    }

    pub(crate) fn keep_file(&self, state: FileState, value: Value) {
        lock(&self.0).files.insert(state, value);
    }
}
