//! The checkpoint folders of programs that a server offers: below the folder that the operator configures, each by its name.
//!
//! ```text
//! DIR/PROGRAM/NAME/7/complete           marks checkpoint 7 of that name as complete; contains the number of elements and the run
//! DIR/PROGRAM/gridloom-gang-RUN-START   left by a starting gang, so that its next server sees that both use one folder
//! ```
//! An identifier stored in the folder could not distinguish a copy of the folder from the original.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::GangRequest;

/// Name of the file that marks a checkpoint as complete.
pub const COMPLETE: &str = "complete";
/// Maximum length of a checkpoint name.
const NAME_BYTES_MAX: usize = 64;
/// Prefix of the mark files that gangs leave.
const MARK: &str = "gridloom-gang-";
/// Maximum age of a mark. An older one was left by a worker that was killed.
const MARK_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Returns the folder of this checkpoint name, below that of a program.
///
/// # Errors
/// If there is no folder for checkpoints, or the name could refer to another folder.
pub fn folder_of(folder: Option<&Path>, name: &str) -> Result<PathBuf, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with('.') || !name.bytes().all(is_plain) {
        return Err(format!(
            "checkpoints '{name}': on servers, checkpoints are given by name, not by folder: up to {NAME_BYTES_MAX} \
             letters, digits, '-', '_' and '.'"
        ));
    }
    let none = || {
        format!(
            "checkpoints '{name}': the server stores no checkpoints; 'gridloom serve --checkpoints DIR' sets a \
             folder for them"
        )
    };
    Ok(folder.ok_or_else(none)?.join(name))
}

/// A file that shows the servers of a gang whether their folders are the same. It exists until all of them have checked.
#[derive(Debug)]
pub(super) struct FolderMark {
    /// Path of the file; `None` if another server has left it.
    own: Option<PathBuf>,
}

impl FolderMark {
    /// Leaves the mark of a starting gang, if there is none. Creates the folder if needed.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub(super) fn leave(folder: &Path, wanted: &GangRequest) -> io::Result<FolderMark> {
        fs::create_dir_all(folder)?;
        sweep(folder)?;
        let path = folder.join(format!("{MARK}{:016x}-{}", wanted.run, wanted.start));
        match File::create_new(&path) {
            Ok(_) => Ok(FolderMark { own: Some(path) }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(FolderMark { own: None }),
            Err(error) => Err(error),
        }
    }

    pub(super) fn was_there(&self) -> bool {
        self.own.is_none()
    }
}

impl Drop for FolderMark {
    fn drop(&mut self) {
        // If this fails, the file is deleted once it is old.
        let _ = self.own.take().map(fs::remove_file);
    }
}

/// Deletes marks that no server looks for any more.
fn sweep(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_mark = entry.file_name().to_str().is_some_and(|name| name.starts_with(MARK));
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_mark && age().is_some_and(|age| age > MARK_AGE) {
            // Another server may be deleting it at the same time.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// The content of a completion mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompletionMark {
    /// Number of elements that saved the checkpoint.
    pub elements: u32,
    /// The run: all starts of its elements by one command.
    pub run: u64,
}

impl CompletionMark {
    /// Formats the content of the file.
    pub fn to_text(self) -> String {
        format!("{} {:016x}", self.elements, self.run)
    }

    /// Reads the mark of the checkpoint in this folder. Returns `None` if the checkpoint is not complete.
    ///
    /// # Errors
    /// If it cannot be read. [`ErrorKind::InvalidData`] if the file is something else.
    pub fn read(folder: &Path) -> io::Result<Option<CompletionMark>> {
        let text = match fs::read_to_string(folder.join(COMPLETE)) {
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            other => other?,
        };
        let parts = text.split_once(' ').and_then(|(elements, run)| {
            Some(CompletionMark { elements: elements.parse().ok()?, run: u64::from_str_radix(run, 16).ok()? })
        });
        let wrong = || {
            format!(
                "'{COMPLETE}' contains '{text}', which no checkpoint writes: delete the folder, or restart from \
                 another checkpoint"
            )
        };
        parts.map(Some).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, wrong()))
    }
}

/// Returns the number of the last complete checkpoint, if any; only of `run`, if given. Folders that are not
/// checkpoints may have such names, and files of their own with the name of the mark.
///
/// # Errors
/// If the folder or a mark cannot be read.
pub fn last_complete(folder: &Path, run: Option<u64>) -> io::Result<Option<u64>> {
    let mut all = numbers(folder)?;
    all.sort_unstable();
    for number in all.into_iter().rev() {
        let mark = match CompletionMark::read(&folder.join(number.to_string())) {
            Err(why) if matches!(why.kind(), ErrorKind::InvalidData | ErrorKind::IsADirectory) => None,
            mark => mark?,
        };
        if mark.is_some_and(|mark| run.is_none_or(|run| run == mark.run)) {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// Returns a number that no checkpoint has had.
///
/// # Errors
/// As [`last_complete`].
pub fn next_number(folder: &Path) -> io::Result<u64> {
    Ok(numbers(folder)?.into_iter().max().map_or(0, |number| number + 1))
}

/// Returns the numbers of all checkpoints, in no particular order.
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
            assert!(folder_of(Some(folder), name).unwrap_err().contains("by name, not by folder"), "{name}");
        }
        assert!(folder_of(None, "heat").unwrap_err().contains("serve --checkpoints DIR"));
    }

    #[test]
    fn servers_see_whether_their_folders_are_one() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let wanted = GangRequest { run: 7, ..GangRequest::default() };
        let first = FolderMark::leave(&one.path().join("heat"), &wanted).unwrap();
        assert!(!first.was_there());
        // A copy of the folder in its earlier state is a different folder.
        assert!(!FolderMark::leave(&other.path().join("heat"), &wanted).unwrap().was_there());
        assert!(FolderMark::leave(&one.path().join("heat"), &wanted).unwrap().was_there());
        assert!(!FolderMark::leave(&one.path().join("heat"), &GangRequest { start: 1, ..wanted }).unwrap().was_there());
        drop(first);
        assert_eq!(fs::read_dir(one.path().join("heat")).unwrap().count(), 0);
    }

    #[test]
    fn the_last_checkpoint_is_that_of_a_run_or_of_any() {
        let folder = tempfile::tempdir().unwrap();
        for (number, run) in [(9, 1), (10, 2), (11, 0)] {
            let path = folder.path().join(number.to_string());
            fs::create_dir(&path).unwrap();
            if run > 0 {
                fs::write(path.join(COMPLETE), CompletionMark { elements: 3, run }.to_text()).unwrap();
            }
        }
        let last = |run| last_complete(folder.path(), run).unwrap();
        assert_eq!((last(None), last(Some(1)), last(Some(3))), (Some(10), Some(9), None));
        assert_eq!(next_number(folder.path()).unwrap(), 12);
        // Folders of the user.
        fs::create_dir_all(folder.path().join("2025").join(COMPLETE)).unwrap();
        fs::create_dir(folder.path().join("2026")).unwrap();
        fs::write(folder.path().join("2026").join(COMPLETE), "all done").unwrap();
        assert_eq!((last(None), last(Some(1))), (Some(10), Some(9)));
        let why = CompletionMark::read(&folder.path().join("2026")).unwrap_err().to_string();
        assert!(why.contains("'all done'") && why.contains("restart from another"), "{why}");
    }
}
