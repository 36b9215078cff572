//! Copies of programs' folders on a host, named by the hash of their content; and which copies of Gridloom itself are kept.
//!
//! ```text
//!  $XDG_CACHE_HOME/gridloom/code/   ~/.cache without the variable; for this user only
//!    HASH/                          a folder that was sent: whole, and never changed by Gridloom
//!    .lock                          held while one is received: hosts may share this folder
//!    .part                          one that is being unpacked
//!    .used-HASH                     locked by each server that uses the copy, also by one on another host
//! ```
//!
//! **Invariants:** a copy gets its name when it is whole, and when its bytes have the hash that it is named by. A copy with another content is
//! replaced before a server starts with it. A copy that a server uses is not removed. Of the others, the last few stay.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};

use super::code::{CODE_BYTES_MAX, hash_of, hash_of_copy, is_hash};

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
    let is_there = |how: FlockOperation| {
        let lock = lock_file(&folder.join(".lock"))?;
        flock(&lock, how)?;
        // A disk or a function may have damaged it.
        let is_there = copy.is_dir() && hash_of_copy(&copy).is_ok_and(|found| found == hash);
        if is_there {
            touch(&copy)?;
        }
        io::Result::Ok((is_there, lock))
    };
    if is_there(FlockOperation::LockShared).with_context(at)?.0 {
        return Ok(true);
    }
    ensure!(bytes <= ARCHIVE_BYTES_MAX, "a folder of {bytes} bytes is too large: at most {ARCHIVE_BYTES_MAX}");
    let mut archive = Vec::new();
    input.take(bytes).read_to_end(&mut archive).context("standard input")?;
    ensure!(hash_of(&archive) == hash, "the folder has not come whole: {} of {bytes} bytes", archive.len());
    // Not while it comes: a client that has gone would keep all others waiting. Another may have brought it meanwhile.
    let (is_there, _lock) = is_there(FlockOperation::LockExclusive).with_context(at)?;
    if is_there {
        return Ok(true);
    }
    let part = folder.join(".part");
    remove(&part).with_context(at)?;
    fs::DirBuilder::new().mode(0o700).create(&part).with_context(at)?;
    let unpacked = unpack(&archive, &part).and_then(|()| put(&part, &copy));
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

/// In place of one that is damaged, if there is one.
fn put(part: &Path, copy: &Path) -> io::Result<()> {
    if copy.exists() {
        let damaged = part.with_file_name(".damaged");
        remove(&damaged)?;
        fs::rename(copy, &damaged)?;
        fs::rename(part, copy)?;
        return remove(&damaged);
    }
    fs::rename(part, copy)
}

/// Marks a copy of a folder or of the program as used until the process that inherits this has ended, for all hosts that share it. `None` if
/// its file system knows no locks: then only what is written down of the process says so.
pub fn hold(copy: &Path) -> Option<File> {
    let file = lock_file(&used_file(copy)?).ok()?;
    flock(&file, FlockOperation::LockShared).ok()?;
    fcntl_setfd(&file, FdFlags::empty()).ok()?;
    Some(file)
}

/// Whether a process holds it.
fn is_held(copy: &Path) -> bool {
    let Some(file) = used_file(copy).filter(|file| file.exists()) else { return false };
    let free = lock_file(&file).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
    !free
}

fn used_file(copy: &Path) -> Option<PathBuf> {
    Some(copy.with_file_name(format!(".used-{}", copy.file_name()?.to_str()?)))
}

/// Open for both kinds of lock, which NFS wants to be.
fn lock_file(file: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(file)
}

fn unpack(archive: &[u8], folder: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(archive);
    archive.set_preserve_mtime(false);
    archive.unpack(folder)
}

/// Removes copies of the program that no part uses, but for the last, if this program is such a copy. `used` are files.
pub fn remove_old_programs(used: &[PathBuf]) -> io::Result<()> {
    let own = std::env::current_exe()?;
    let Some(folder) = program_copy(&own).and_then(|own| own.parent()) else { return Ok(()) };
    touch(&own)?;
    let names = used.iter().chain([&own]).filter(|file| file.parent() == Some(folder));
    let names: Vec<String> = names.filter_map(|file| Some(file.file_name()?.to_str()?.to_string())).collect();
    remove_old(folder, |name| name.starts_with("gridloom-"), &names, PROGRAMS_KEPT)
}

/// The program's file, if it is a copy that was sent.
pub fn program_copy(program: &PathBuf) -> Option<&PathBuf> {
    Some(program).filter(|program| program.parent().is_some_and(|folder| folder.ends_with(".cache/gridloom/bin")))
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
    for (_, copy) in unused[..old].iter().filter(|(_, copy)| !is_held(copy)) {
        remove(copy)?;
        used_file(copy).iter().try_for_each(|file| remove(file))?;
    }
    Ok(())
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
        // As by a process of another host.
        let held = hold(&folder.join(name(2))).unwrap();
        let left = || {
            remove_old(&folder, is_hash, &[name(0), name(7)], KEPT).unwrap();
            (0..8).filter(|number| folder.join(name(*number)).exists()).collect::<Vec<u64>>()
        };
        assert_eq!(left(), [0, 1, 2, 4, 5, 6, 7]);
        drop(held);
        assert_eq!(left(), [0, 1, 4, 5, 6, 7]);
        assert!(!folder.join(format!(".used-{}", name(2))).exists());
        assert!(folder.join("another").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
