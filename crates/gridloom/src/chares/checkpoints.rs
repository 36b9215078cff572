//! Checkpoints as files.
//!
//! ```text
//! DIR/7/element-0   chares of an element: a header line, the run (u64 LE), the FNV-1a hash of the rest (u64 LE), the rest
//! DIR/7/element-1
//! DIR/7/complete    the number of files, and the run; written when all files are
//! ```
//! **Promises:** a checkpoint is marked complete only when every element's file is on disk and all files are from one
//! run. Only then are older checkpoints deleted, also those of another run. If two runs share a folder, one of them
//! ends with an error: a run neither writes into a checkpoint of another run nor below one that has a greater number.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use gridloom_base::Fnv;
use gridloom_chare::Pe;
use gridloom_net::worker::checkpoints::{COMPLETE, CompletionMark, last_complete, next_number, numbers};

use crate::Error;

/// The header line of a file.
const LINE: &[u8] = b"gridloom: chares of an element, 3\n";
/// Bytes before the saved state of an element.
const HEAD_BYTES: usize = LINE.len() + 16;
/// The error if two runs share a folder.
const OF_ANOTHER: &str = "another run keeps its checkpoints there; give each run its own folder or name";

/// The folder of a program's checkpoints.
#[derive(Debug)]
pub struct CheckpointFolder(PathBuf);

/// The state from which the program begins or resumes.
#[derive(Debug)]
pub(super) enum Origin {
    Beginning,
    /// The checkpoint of that number in a folder, or the last one.
    Folder(CheckpointFolder, Option<u64>),
    /// The parts that each element of a simulation saved before their number changed.
    Parts(Vec<Vec<u8>>),
    Memory(u64),
}

fn error(what: &str, path: &Path, why: impl std::fmt::Display) -> Error {
    Error::Input(format!("checkpoint: cannot {what} {}: {why}", path.display()))
}

impl CheckpointFolder {
    pub fn new(path: impl Into<PathBuf>) -> CheckpointFolder {
        CheckpointFolder(path.into())
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.clone()
    }

    /// Writes the saved state of an element of that run.
    ///
    /// # Errors
    /// If it cannot be written, or another run writes there.
    pub(super) fn write(&self, number: u64, (element, run): (Pe, u64), bytes: &[u8]) -> Result<(), Error> {
        let folder = self.0.join(number.to_string());
        if folder.join(COMPLETE).exists() {
            let why = "it is complete, and belongs to another run; keep these checkpoints elsewhere, or delete those";
            return Err(error("write into", &folder, why));
        }
        // The other run deletes checkpoints below its own, and may have deleted files of this one.
        let greater = self.numbers()?.into_iter().filter(|other| *other > number);
        if let Some(other) = greater.map(|other| self.0.join(other.to_string())).find(|other| has_another(other, run)) {
            return Err(error("write below", &other, OF_ANOTHER));
        }
        fs::create_dir_all(&folder).map_err(|why| error("make", &folder, why))?;
        let file = folder.join(format!("element-{}", element.0));
        if run_of(&file).is_ok_and(|other| other != run) {
            return Err(error("write", &file, OF_ANOTHER));
        }
        write_whole(&file, &[LINE, &run.to_le_bytes(), &hash(bytes).to_le_bytes(), bytes])
    }

    /// Marks a checkpoint complete once all elements have written their files, and deletes earlier checkpoints.
    ///
    /// # Errors
    /// If the mark cannot be written, or another run has deleted or written a file.
    pub(super) fn complete(&self, number: u64, elements: u32, run: u64) -> Result<(), Error> {
        self.mark_complete(number, elements, run)?;
        self.delete_before(number)
    }

    /// Marks a checkpoint complete once all elements have written their files. Earlier checkpoints stay.
    ///
    /// # Errors
    /// As [`CheckpointFolder::complete`].
    pub(super) fn mark_complete(&self, number: u64, elements: u32, run: u64) -> Result<(), Error> {
        let folder = self.0.join(number.to_string());
        let check = || {
            (0..elements).map(|element| folder.join(format!("element-{element}"))).try_for_each(|file| {
                match run_of(&file) {
                    Ok(of) if of == run => Ok(()),
                    Ok(_) => Err(error("complete", &file, OF_ANOTHER)),
                    Err(why) => Err(error("complete", &file, format!("{why}: maybe {OF_ANOTHER}"))),
                }
            })
        };
        check()?;
        let file = folder.join(COMPLETE);
        write_whole(&file, &[CompletionMark { elements, run }.to_text().as_bytes()])?;
        // Another run may have begun to delete the files before the mark was there.
        check().inspect_err(|_| _ = fs::remove_file(&file))
    }

    /// Deletes earlier checkpoints.
    ///
    /// # Errors
    /// If one cannot be deleted.
    pub(super) fn delete_before(&self, number: u64) -> Result<(), Error> {
        for earlier in self.numbers()?.into_iter().filter(|earlier| *earlier < number) {
            let folder = self.0.join(earlier.to_string());
            delete(&folder).map_err(|why| error("delete", &folder, why))?;
        }
        Ok(())
    }

    /// Returns a number that no checkpoint has had.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(super) fn next(&self) -> Result<u64, Error> {
        next_number(&self.0).map_err(|why| error("read", &self.0, why))
    }

    /// Reads the saved states of all elements from the checkpoint of that number, or else from the last complete one.
    ///
    /// # Errors
    /// If there is no such checkpoint, or a file is damaged.
    pub(super) fn read(&self, number: Option<u64>) -> Result<Vec<Vec<u8>>, Error> {
        let Some(number) = number.map_or_else(|| self.last(None), |number| Ok(Some(number)))? else {
            return Err(error("begin from", &self.0, "it has no complete checkpoint"));
        };
        let folder = self.0.join(number.to_string());
        let mark = CompletionMark::read(&folder).map_err(|why| error("read", &folder, why))?;
        let Some(CompletionMark { elements, run }) = mark else {
            return Err(error("read", &folder, "it is not complete"));
        };
        let part = |element| {
            let file = folder.join(format!("element-{element}"));
            match read_whole(&file)? {
                (of, bytes) if of == run => Ok(bytes),
                _ => Err(error(
                    "read",
                    &file,
                    "it belongs to a different run than the others: two runs have kept checkpoints there",
                )),
            }
        };
        (0..elements).map(part).collect()
    }

    /// Returns the number of the last complete checkpoint, if any; only of the given run, if one is given.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn last(&self, run: Option<u64>) -> Result<Option<u64>, Error> {
        last_complete(&self.0, run).map_err(|why| error("read", &self.0, why))
    }

    fn numbers(&self) -> Result<Vec<u64>, Error> {
        numbers(&self.0).map_err(|why| error("read", &self.0, why))
    }
}

/// Deletes a checkpoint. Other files and folders may have similar names: only the checkpoint's own files are deleted.
fn delete(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    // Without its mark it is no checkpoint, even if the deletion is interrupted.
    unmark(folder)?;
    let is_own = |path: &PathBuf| {
        let name = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.strip_prefix("element-"));
        name.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let paths: io::Result<Vec<PathBuf>> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
    let own: Vec<PathBuf> = paths?.into_iter().filter(is_own).collect();
    own.iter().try_for_each(fs::remove_file)?;
    if own.is_empty() {
        return Ok(());
    }
    // Another run may have written the mark meanwhile.
    unmark(folder)?;
    match fs::remove_dir(folder) {
        Err(why) if why.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
}

fn unmark(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join(COMPLETE)) {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

/// True if another run has written a file of that checkpoint.
fn has_another(folder: &Path, run: u64) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| run_of(&entry.path()).is_ok_and(|other| other != run))
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hash = Fnv::default();
    bytes.iter().for_each(|byte| hash.byte(*byte));
    hash.0
}

/// Writes a file atomically.
fn write_whole(path: &Path, parts: &[&[u8]]) -> Result<(), Error> {
    let new = path.with_extension("new");
    let written = || {
        let mut file = fs::File::create(&new)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        let folder = path.parent().expect("a file of a folder");
        fs::File::open(folder)?.sync_all()
    };
    written().map_err(|why| error("write", path, why))
}

/// Returns the run that has written the file.
fn run_of(path: &Path) -> io::Result<u64> {
    let mut head = [0; HEAD_BYTES];
    fs::File::open(path)?.read_exact(&mut head)?;
    let run = head.strip_prefix(LINE).and_then(<[u8]>::first_chunk::<8>);
    run.map(|run| u64::from_le_bytes(*run)).ok_or_else(|| io::Error::other("it is not as it was written"))
}

/// Returns the run that has written the file, and the saved state.
fn read_whole(path: &Path) -> Result<(u64, Vec<u8>), Error> {
    let mut bytes = fs::read(path).map_err(|why| error("read", path, why))?;
    let wrong = || error("read", path, "it is not as it was written");
    let (head, body) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(wrong)?;
    let numbers = head.strip_prefix(LINE).and_then(<[u8]>::split_first_chunk::<8>).ok_or_else(wrong)?;
    let (run, its_hash) = (u64::from_le_bytes(*numbers.0), numbers.1);
    if its_hash != hash(body).to_le_bytes() {
        return Err(wrong());
    }
    Ok((run, bytes.split_off(HEAD_BYTES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_complete_checkpoint_counts_and_earlier_ones_go() {
        let path = std::env::temp_dir().join(format!("gridloom-checkpoints-{}", std::process::id()));
        let folder = CheckpointFolder::new(&path);
        assert!(folder.read(None).unwrap_err().to_string().contains("no complete checkpoint"));
        assert_eq!(folder.next().unwrap(), 0);
        for number in 0..3 {
            for element in 0..2 {
                folder.write(number, (Pe(element), 5), &[number as u8, element as u8]).unwrap();
            }
            if number < 2 {
                folder.complete(number, 2, 5).unwrap();
            }
        }
        assert_eq!(folder.read(None).unwrap(), [[1, 0], [1, 1]], "the third one is not complete");
        assert_eq!(folder.next().unwrap(), 3);
        assert!(!path.join("0").exists());
        // Files of the user in the same folder.
        let results = [path.join("2/results.txt"), path.join("1/2024/results.txt")];
        fs::create_dir_all(path.join("1/2024")).unwrap();
        results.iter().for_each(|file| fs::write(file, "mine").unwrap());
        fs::write(path.join("0"), "mine").unwrap();
        for element in 0..2 {
            folder.write(3, (Pe(element), 5), &[3]).unwrap();
        }
        folder.complete(3, 2, 5).unwrap();
        assert!(results.iter().all(|file| file.exists()) && path.join("0").exists());
        assert!(!path.join("1/element-1").exists() && !path.join("2/element-0").exists());
        let file = path.join("3/element-1");
        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, bytes).unwrap();
        assert!(folder.read(None).unwrap_err().to_string().contains("not as it was written"));
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn files_of_two_runs_are_no_checkpoint() {
        let path = std::env::temp_dir().join(format!("gridloom-mixed-{}", std::process::id()));
        let folder = CheckpointFolder::new(&path);
        folder.write(0, (Pe(0), 5), &[1]).unwrap();
        folder.write(0, (Pe(1), 6), &[2]).unwrap();
        let why = folder.write(0, (Pe(1), 5), &[1]).unwrap_err().to_string();
        assert!(why.contains("another run keeps its checkpoints there"), "{why}");
        folder.write(0, (Pe(0), 5), &[3]).unwrap();
        // As if both runs had checked before either wrote.
        let why = folder.complete(0, 2, 5).unwrap_err().to_string();
        assert!(why.contains("element-1: another run keeps its checkpoints there"), "{why}");
        assert_eq!(folder.last(None).unwrap(), None);
        // A mark written before the check.
        write_whole(&path.join("0").join(COMPLETE), &[CompletionMark { elements: 2, run: 5 }.to_text().as_bytes()])
            .unwrap();
        let why = folder.read(None).unwrap_err().to_string();
        assert!(why.contains("element-1: it belongs to a different run than the others"), "{why}");
        assert_eq!((folder.last(Some(5)).unwrap(), folder.last(Some(6)).unwrap()), (Some(0), None));
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn of_two_runs_in_a_folder_the_one_with_the_lesser_number_ends() {
        let path = std::env::temp_dir().join(format!("gridloom-two-runs-{}", std::process::id()));
        let folder = CheckpointFolder::new(&path);
        folder.write(5, (Pe(0), 1), &[1]).unwrap();
        (0..2).for_each(|element| folder.write(6, (Pe(element), 2), &[2]).unwrap());
        folder.complete(6, 2, 2).unwrap();
        assert!(!path.join("5").exists());
        let why = folder.write(5, (Pe(1), 1), &[1]).unwrap_err().to_string();
        assert!(why.contains("write below") && why.contains("6: another run keeps its checkpoints there"), "{why}");
        // Another run creates the folder after the check.
        fs::create_dir(path.join("5")).unwrap();
        write_whole(&path.join("5/element-1"), &[LINE, &1_u64.to_le_bytes(), &hash(&[1]).to_le_bytes(), &[1]]).unwrap();
        let why = folder.complete(5, 2, 1).unwrap_err().to_string();
        assert!(why.contains("5/element-0: ") && why.contains("another run"), "{why}");
        assert_eq!((folder.last(Some(1)).unwrap(), folder.last(None).unwrap()), (None, Some(6)));
        fs::remove_dir_all(path).unwrap();
    }
}
