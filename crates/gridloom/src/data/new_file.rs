//! Result files, written to a temporary file and then renamed: the old file stays until the new one is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::DataError;

/// A file written under a temporary name beside its path. Dropping it before [`PendingFile::place`] removes it.
pub struct PendingFile {
    /// The temporary path; `None` if the file was written in place: a device or a pipe, which renaming would replace.
    beside: Option<PathBuf>,
    path: PathBuf,
}

impl PendingFile {
    /// Writes the content of a result; errors name the result.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(result: &str, path: &Path, bytes: &[u8]) -> Result<PendingFile, DataError> {
        let failed = |error: io::Error| unwritable(result, path, &error);
        // A symbolic link stays one: its target is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let old = fs::metadata(&path).ok();
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            let mut file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
            file.write_all(bytes).map_err(failed)?;
            return Ok(PendingFile { beside: None, path });
        }
        let beside = temporary_path(&path);
        let mut file = File::create_new(&beside).map_err(failed)?;
        let new = PendingFile { beside: Some(beside), path: path.clone() };
        if let Some(old) = old {
            file.set_permissions(old.permissions()).map_err(failed)?;
        }
        file.write_all(bytes).map_err(failed)?;
        Ok(new)
    }

    /// Renames it to its path.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn place(mut self, result: &str) -> Result<(), DataError> {
        let Some(beside) = &self.beside else { return Ok(()) };
        fs::rename(beside, &self.path).map_err(|error| unwritable(result, &self.path, &error))?;
        self.beside = None;
        Ok(())
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = fs::remove_file(beside);
        }
    }
}

/// Returns a unique temporary path.
fn temporary_path(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".gridloom-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

fn unwritable(result: &str, path: &Path, error: &io::Error) -> DataError {
    DataError::Unwritable(format!("the file '{}' of result '{result}' cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("gridloom-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, link) = (folder.join("result"), folder.join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink("result", &link).unwrap();
        drop(PendingFile::write("r", &link, b"never").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        PendingFile::write("r", &link, b"new").unwrap().place("r").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left beside");
        fs::remove_dir_all(&folder).unwrap();
        PendingFile::write("r", Path::new("/dev/null"), b"x").unwrap().place("r").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn the_path_is_reported_if_it_cannot_be_written() {
        let Err(failed) = PendingFile::write("hits", Path::new("/nowhere/hits"), b"x") else {
            panic!("it was written")
        };
        assert!(failed.to_string().contains("'/nowhere/hits'") && failed.to_string().contains("'hits'"), "{failed}");
    }
}
