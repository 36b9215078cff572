//! The folders in which programs that a server offers keep their checkpoints: below the folder that the operator names, each by its name.
//!
//! ```text
//! DIR/gridloom-storage        says which folder it is: the same on all servers that share it
//! DIR/NAME/7/complete         the checkpoint 7 of that name is complete
//! ```

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::storage::Storage;

/// Name of the file that stands for all files of a checkpoint being there.
pub const COMPLETE: &str = "complete";
/// Longest name.
const NAME_BYTES_MAX: usize = 64;

/// The folder of that name.
///
/// # Errors
/// If there is no folder for checkpoints, or the name could be that of another one.
pub fn folder_of(folder: Option<&Path>, name: &str) -> Result<PathBuf, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with('.') || !name.bytes().all(is_plain) {
        return Err(format!(
            "checkpoints '{name}': on servers they have a name, not a folder: up to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"
        ));
    }
    let none = || {
        format!(
            "checkpoints '{name}': the server keeps none: 'gridloom serve --checkpoints DIR' names a folder for them"
        )
    };
    Ok(folder.ok_or_else(none)?.join(name))
}

/// Which folder it is that the server names.
///
/// # Errors
/// If nothing can be written there.
pub(super) fn id_of(folder: &Path) -> io::Result<u64> {
    Ok(Storage::open(folder)?.id().0)
}

/// The number of the last complete checkpoint, if there is one.
///
/// # Errors
/// If the folder cannot be read.
pub fn last_complete(folder: &Path) -> io::Result<Option<u64>> {
    let complete = |number: &u64| folder.join(number.to_string()).join(COMPLETE).exists();
    Ok(numbers(folder)?.into_iter().filter(complete).max())
}

/// The numbers of all checkpoints, in no order.
///
/// # Errors
/// As [`last_complete`].
pub fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(folder) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_below_the_folder() {
        let folder = Path::new("/kept");
        assert_eq!(folder_of(Some(folder), "heat-2.a").unwrap(), Path::new("/kept/heat-2.a"));
        for name in ["", ".", "..", "../x", "/etc", "a/b", "a b", &"x".repeat(65)] {
            assert!(folder_of(Some(folder), name).unwrap_err().contains("a name, not a folder"), "{name}");
        }
        assert!(folder_of(None, "heat").unwrap_err().contains("serve --checkpoints DIR"));
    }
}
