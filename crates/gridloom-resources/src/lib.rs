//! The processors and the memory that this process may use, which are counted only here; the readers of
//! [text files](text_file) and of [files that only their user can read](private_file).
//!
//! - **Processors:** the affinity of the thread, and the quotas of processor time of all control groups on the path from
//!   the process's own to the root, in both versions. The smallest number is used; a fraction of a processor counts as one.
//! - **Memory:** the memory of the machine, the limits of the control groups on the path, and the limit of the address space.
//!
//! Missing or unreadable files limit nothing: a machine without control groups is not an error.
//!
//! **Limits:** swap is not counted. A quota of a group outside the mounted hierarchy (of the machine around a container) cannot be
//! seen from inside.

mod groups;
mod memory;
pub mod private_file;
mod processors;
pub mod text_file;

pub use memory::Memory;
pub use processors::Processors;

use std::fs;
use std::path::{Path, PathBuf};

/// Folder from which the kernel's files are read; `/` except in tests.
#[derive(Clone, Debug)]
struct Root(PathBuf);

impl Root {
    fn system() -> Root {
        Root(PathBuf::from("/"))
    }

    /// Returns the text of a file, if it can be read. Paths of mounts need not be UTF-8.
    fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let path = path.as_ref();
        let bytes = fs::read(self.0.join(path.strip_prefix("/").unwrap_or(path))).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the number in a file, if it contains nothing else.
    fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.trim().parse().ok()
    }
}

/// Returns the number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().map(str::split_whitespace).find_map(|mut words| {
        let is_it = words.next() == Some(name);
        is_it.then_some(words)
    })?;
    words.next()?.parse().ok()
}

/// Returns the number of processors that this process may use, at least 1.
pub fn processors() -> usize {
    Processors::find().count()
}

#[cfg(test)]
mod fake_root;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "MemAvailableHigh: 1 kB\nMemAvailable:    42 kB\nanon 7\n";
        assert_eq!((field(text, "MemAvailable:"), field(text, "anon"), field(text, "an")), (Some(42), Some(7), None));
    }
}
