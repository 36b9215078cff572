//! Copies of programs' folders on a host, named by the hash of their content; and which copies of Gridloom itself are kept.
//!
//! ```text
//!  $XDG_CACHE_HOME/gridloom/code/   ~/.cache without the variable; for this user only
//!    HASH/                          a folder that was sent: whole, and never changed by Gridloom
//!    .lock                          held while one is received: hosts may share this folder
//!    .part                          one that is being unpacked
//! ```
//!
//! **Invariants:** a copy gets its name when it is whole, and when its bytes have the hash that it is named by. A copy that a server uses is
//! not removed. Of the others, the last few stay.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};

use super::code::{CODE_BYTES_MAX, hash_of, is_hash};

/// Copies that stay though no server uses them: the next grid may have the same folder.
const KEPT: usize = 4;
/// The same for copies of the program: another version may be tried, and left again.
const PROGRAMS_KEPT: usize = 2;
/// Of the archive beside its files: headers, and what fills up blocks.
const ARCHIVE_BYTES_MAX: u64 = 2 * CODE_BYTES_MAX;

/// The copy of that hash, whether or not it is there.
pub fn path(hash: &str) -> Result<PathBuf> {
    ensure!(is_hash(hash), "'{hash}' is no hash of a folder");
    Ok(folder()?.join(hash))
}

/// Takes the folder of that hash, unless it is there; gives whether it was. `bytes` of an archive are in `input`. `used` are copies that
/// servers use.
pub fn receive(hash: &str, bytes: u64, input: impl Read, used: impl FnOnce() -> Vec<String>) -> Result<bool> {
    let copy = path(hash)?;
    let folder = folder()?;
    let at = || format!("copies of programs in '{}'", folder.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(at)?;
    let is_there = || {
        let lock = File::create(folder.join(".lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let is_there = copy.is_dir();
        if is_there {
            touch(&copy)?;
        }
        io::Result::Ok((is_there, lock))
    };
    if is_there().with_context(at)?.0 {
        return Ok(true);
    }
    ensure!(bytes <= ARCHIVE_BYTES_MAX, "a folder of {bytes} bytes is too large: at most {ARCHIVE_BYTES_MAX}");
    let mut archive = Vec::new();
    input.take(bytes).read_to_end(&mut archive).context("standard input")?;
    ensure!(hash_of(&archive) == hash, "the folder has not come whole: {} of {bytes} bytes", archive.len());
    // Not while it comes: a client that has gone would keep all others waiting. Another may have brought it meanwhile.
    let (is_there, _lock) = is_there().with_context(at)?;
    if is_there {
        return Ok(true);
    }
    let part = folder.join(".part");
    remove(&part).with_context(at)?;
    fs::DirBuilder::new().mode(0o700).create(&part).with_context(at)?;
    let unpacked = unpack(&archive, &part).and_then(|()| fs::rename(&part, &copy));
    if unpacked.is_err() {
        // A disk that is full gets its room back.
        let _ = remove(&part);
    }
    unpacked.with_context(at)?;
    let mut used = used();
    used.push(hash.into());
    remove_old(&folder, is_hash, &used, KEPT).with_context(at)?;
    Ok(false)
}

fn unpack(archive: &[u8], folder: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(archive);
    archive.set_preserve_mtime(false);
    archive.unpack(folder)
}

/// Removes copies of the program that no part uses, but for the last, if this program is such a copy. `used` are files.
pub fn remove_old_programs(used: &[PathBuf]) -> io::Result<()> {
    let own = std::env::current_exe()?;
    let Some(folder) = own.parent().filter(|folder| folder.ends_with(".cache/gridloom/bin")) else { return Ok(()) };
    touch(&own)?;
    let names = used.iter().chain([&own]).filter(|file| file.parent() == Some(folder));
    let names: Vec<String> = names.filter_map(|file| Some(file.file_name()?.to_str()?.to_string())).collect();
    remove_old(folder, |name| name.starts_with("gridloom-"), &names, PROGRAMS_KEPT)
}

/// Removes those that nothing uses, but for the last.
fn remove_old(folder: &Path, is_copy: impl Fn(&str) -> bool, used: &[String], kept: usize) -> io::Result<()> {
    let mut unused: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        // A host with the same home folder may have removed it meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        let is_unused = name.to_str().is_some_and(|name| is_copy(name) && !used.iter().any(|used| used == name));
        if is_unused {
            unused.push((metadata.modified()?, entry.path()));
        }
    }
    unused.sort();
    let old = unused.len().saturating_sub(kept);
    unused[..old].iter().try_for_each(|(_, copy)| remove(copy))
}

fn remove(copy: &Path) -> io::Result<()> {
    match if copy.is_dir() { fs::remove_dir_all(copy) } else { fs::remove_file(copy) } {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// It is the last one that was used.
fn touch(copy: &Path) -> io::Result<()> {
    File::open(copy)?.set_modified(SystemTime::now())
}

fn folder() -> Result<PathBuf> {
    let set = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let cache = set.or_else(|| Some(std::env::home_dir()?.join(".cache")));
    Ok(cache.context("this user has no home folder: set XDG_CACHE_HOME")?.join("gridloom/code"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_are_used_stay_and_of_the_others_the_last() {
        let folder = std::env::temp_dir().join(format!("gridloom-copies-{}", std::process::id()));
        let name = |number: u64| format!("{number:032x}");
        for number in 0..8 {
            let copy = folder.join(name(number));
            fs::create_dir_all(copy.join("package")).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number);
            File::open(&copy).unwrap().set_modified(time).unwrap();
        }
        fs::create_dir_all(folder.join("another")).unwrap();
        touch(&folder.join(name(1))).unwrap();
        remove_old(&folder, is_hash, &[name(0), name(7)], KEPT).unwrap();
        let left: Vec<u64> = (0..8).filter(|number| folder.join(name(*number)).exists()).collect();
        assert_eq!(left, [0, 1, 4, 5, 6, 7]);
        assert!(folder.join("another").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
