//! Checkpoints as files.
//!
//! ```text
//! DIR/7/element-0   the chares of an element: a line that says what it is, which run (u64 LE), the FNV-1a hash of the rest (u64 LE), the rest
//! DIR/7/element-1
//! DIR/7/complete    how many files there are, and which run; written when all of them are
//! ```
//! **Promises:** a checkpoint is taken for complete only if every element has written its file, to the disk. Older ones are deleted only
//! then. Files of two runs are never taken for one checkpoint: a run does not write over another one's file, and reads none of its.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use gridloom_base::Fnv;
use gridloom_chare::Pe;
use gridloom_net::worker::kept::{COMPLETE, Complete, last_complete, next_number, numbers};

use crate::Error;

/// The first line of a file.
const LINE: &[u8] = b"gridloom: chares of an element, 2\n";
/// Bytes before what an element saves.
const HEAD_BYTES: usize = LINE.len() + 16;

/// The folder of a program's checkpoints.
#[derive(Debug)]
pub struct CheckpointFolder(PathBuf);

fn error(what: &str, path: &Path, why: impl std::fmt::Display) -> Error {
    Error::Input(format!("checkpoint: cannot {what} {}: {why}", path.display()))
}

impl CheckpointFolder {
    pub fn new(path: impl Into<PathBuf>) -> CheckpointFolder {
        CheckpointFolder(path.into())
    }

    /// Writes what an element of that run saves.
    ///
    /// # Errors
    /// If it cannot be written, or another run writes there.
    pub(super) fn write(&self, number: u64, (element, run): (Pe, u64), bytes: &[u8]) -> Result<(), Error> {
        let folder = self.0.join(number.to_string());
        if folder.join(COMPLETE).exists() {
            let why = "it is complete, and of another run; keep these checkpoints elsewhere, or delete those";
            return Err(error("write into", &folder, why));
        }
        fs::create_dir_all(&folder).map_err(|why| error("make", &folder, why))?;
        let file = folder.join(format!("element-{}", element.0));
        if file.exists() && read_whole(&file).is_ok_and(|(other, _)| other != run) {
            let why = "another run keeps its checkpoints there; give each a folder or a name of its own";
            return Err(error("write", &file, why));
        }
        write_whole(&file, &[LINE, &run.to_le_bytes(), &hash(bytes).to_le_bytes(), bytes])
    }

    /// All elements have written theirs. Earlier checkpoints are deleted.
    ///
    /// # Errors
    /// If that cannot be written.
    pub(super) fn complete(&self, number: u64, elements: u32, run: u64) -> Result<(), Error> {
        let file = self.0.join(number.to_string()).join(COMPLETE);
        write_whole(&file, &[Complete { elements, run }.to_text().as_bytes()])?;
        for earlier in self.numbers()?.into_iter().filter(|earlier| *earlier < number) {
            let folder = self.0.join(earlier.to_string());
            delete(&folder).map_err(|why| error("delete", &folder, why))?;
        }
        Ok(())
    }

    /// A number that no checkpoint has had.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(super) fn next(&self) -> Result<u64, Error> {
        next_number(&self.0).map_err(|why| error("read", &self.0, why))
    }

    /// What all elements saved in the checkpoint of that number, else in the last complete one.
    ///
    /// # Errors
    /// If there is none, or a file is not as it was written.
    pub(super) fn read(&self, number: Option<u64>) -> Result<Vec<Vec<u8>>, Error> {
        let Some(number) = number.map_or_else(|| self.last(None), |number| Ok(Some(number)))? else {
            return Err(error("begin from", &self.0, "it has no complete checkpoint"));
        };
        let folder = self.0.join(number.to_string());
        let mark = Complete::read(&folder).map_err(|why| error("read", &folder, why))?;
        let Some(Complete { elements, run }) = mark else {
            return Err(error("read", &folder, "it is not complete"));
        };
        let part = |element| {
            let file = folder.join(format!("element-{element}"));
            match read_whole(&file)? {
                (of, bytes) if of == run => Ok(bytes),
                _ => Err(error(
                    "read",
                    &file,
                    "it is of another run than the others: two runs have kept checkpoints there",
                )),
            }
        };
        (0..elements).map(part).collect()
    }

    /// The number of the last complete checkpoint, if there is one; of that run, if one is given.
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

/// Deletes a checkpoint. Folders and files of others may have such names: nothing of theirs is deleted.
fn delete(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    // Without its mark it is none, however far the deletion comes.
    match fs::remove_file(folder.join(COMPLETE)) {
        Err(why) if why.kind() != ErrorKind::NotFound => return Err(why),
        _ => {}
    }
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
    match fs::remove_dir(folder) {
        Err(why) if why.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hash = Fnv::default();
    bytes.iter().for_each(|byte| hash.byte(*byte));
    hash.0
}

/// Writes a file that is there whole or not at all.
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

/// The run that has written it, and what it saved.
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
        // Of the user, in the same folder.
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
        // As if both had looked before either wrote.
        folder.complete(0, 2, 5).unwrap();
        let why = folder.read(None).unwrap_err().to_string();
        assert!(why.contains("element-1: it is of another run than the others"), "{why}");
        assert_eq!((folder.last(Some(5)).unwrap(), folder.last(Some(6)).unwrap()), (Some(0), None));
        fs::remove_dir_all(path).unwrap();
    }
}
