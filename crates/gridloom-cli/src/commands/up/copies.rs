//! Copies of programs' folders on a host, named by the hash of their content; and which copies of Gridloom itself are kept.
//!
//! ```text
//!  $XDG_CACHE_HOME/gridloom/code/   ~/.cache without the variable; for this user only
//!    HASH/                          a folder that was sent: whole, and never changed by Gridloom
//!    HASH.2/                        another copy of the same folder: the first one was changed while a server used it
//!    .lock                          held while one gets its place: hosts may share this folder
//!    .part                          one that is being unpacked
//!    .used-HASH  .used-HASH.2       locked by each server that uses the copy, also by one on another host
//! ```
//!
//! **Invariants:** a copy gets its name when it is whole, and when its bytes have the hash that it is named by. A copy with another content is
//! given to no server that starts: it is replaced, or, while a server uses it, stays as it is and gets another one beside it. A copy that a server
//! uses is not removed. Of the others, the last few stay. No lock is held while the content of a copy is looked through.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};

use super::code::{CODE_BYTES_MAX, hash_in, hash_of, is_copy, is_whole};

/// Copies that stay though no server uses them: the next grid may have the same folder.
const KEPT: usize = 4;
/// The same for copies of the program: another version may be tried, and left again.
const PROGRAMS_KEPT: usize = 2;
/// Of the archive beside its files: headers, and what fills up blocks.
const ARCHIVE_BYTES_MAX: u64 = 2 * CODE_BYTES_MAX;

/// The copy of that name, whether or not it is there.
pub fn path(copy: &str) -> Result<PathBuf> {
    ensure!(is_copy(copy), "'{copy}' is no name of a copy of a folder");
    Ok(folder()?.join(copy))
}

/// A copy that a server can use.
pub struct Received {
    pub copy: String,
    pub was_there: bool,
}

/// Takes the folder of that hash, unless a whole copy is there. `bytes` of an archive are in `input`. `used` are copies that servers use.
pub fn receive(hash: &str, bytes: u64, input: impl Read, used: impl FnOnce() -> Vec<String>) -> Result<Received> {
    let folder = folder()?;
    let at = || format!("copies of programs in '{}'", folder.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(at)?;
    let there = |copy: String| -> Result<Received> {
        touch(&folder.join(&copy)).with_context(at)?;
        Ok(Received { copy, was_there: true })
    };
    // A copy that is on its way is waited for.
    let lock = lock(&folder, FlockOperation::LockShared).with_context(at)?;
    let known = Copies::find(&folder, hash).with_context(at)?;
    drop(lock);
    // A disk or a function may have damaged it.
    if let Some(whole) = known.0.iter().find(|copy| is_whole(&folder.join(&copy.name), hash)) {
        return there(whole.name.clone());
    }
    ensure!(bytes <= ARCHIVE_BYTES_MAX, "a folder of {bytes} bytes is too large: at most {ARCHIVE_BYTES_MAX}");
    let mut archive = Vec::new();
    input.take(bytes).read_to_end(&mut archive).context("standard input")?;
    ensure!(hash_of(&archive) == hash, "the folder has not come whole: {} of {bytes} bytes", archive.len());
    // Not while it comes: a client that has gone would keep all others waiting.
    let _lock = self::lock(&folder, FlockOperation::LockExclusive).with_context(at)?;
    let now = Copies::find(&folder, hash).with_context(at)?;
    // Another may have brought it meanwhile.
    if let Some(brought) = now.0.into_iter().find(|copy| known.0.iter().all(|known| known.inode != copy.inode)) {
        return there(brought.name);
    }
    let part = folder.join(".part");
    remove(&part).with_context(at)?;
    fs::DirBuilder::new().mode(0o700).create(&part).with_context(at)?;
    let mut used = used();
    let placed = unpack(&archive, &part).and_then(|()| place(&part, hash, &known, &used));
    if placed.is_err() {
        // A disk that is full gets its room back.
        let _ = remove(&part);
    }
    let copy = placed.with_context(at)?;
    used.push(copy.clone());
    remove_old(&folder, is_copy, &used, KEPT).with_context(at)?;
    Ok(Received { copy, was_there: false })
}

/// Copies of one folder, the last one that was used first.
struct Copies(Vec<Copy>);

struct Copy {
    name: String,
    /// No two copies have the same one, also if they had the same name one after the other.
    inode: u64,
}

impl Copies {
    fn find(folder: &Path, hash: &str) -> io::Result<Copies> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (name, metadata) = (entry.file_name(), entry.metadata());
            // A host with the same home folder may have removed it meanwhile.
            let (Some(name), Ok(metadata)) = (name.to_str(), metadata) else { continue };
            if is_copy(name) && hash_in(name) == hash {
                found.push((metadata.modified()?, Copy { name: name.into(), inode: metadata.ino() }));
            }
        }
        found.sort_by(|(one, copy), (other, another)| other.cmp(one).then_with(|| copy.name.cmp(&another.name)));
        Ok(Copies(found.into_iter().map(|(_, copy)| copy).collect()))
    }
}

/// Gives the unpacked folder the first name that is free, and gives that. `damaged` copies go, but for those that servers use.
fn place(part: &Path, hash: &str, damaged: &Copies, used: &[String]) -> io::Result<String> {
    let free = |copy: &&Copy| !used.contains(&copy.name) && !is_held(&part.with_file_name(&copy.name));
    for copy in damaged.0.iter().filter(free) {
        remove(&part.with_file_name(&copy.name))?;
    }
    let names = std::iter::once(hash.to_string()).chain((2..).map(|number: u32| format!("{hash}.{number}")));
    let is_free = |name: &String| part.with_file_name(name).symlink_metadata().is_err();
    let name = names.into_iter().find(is_free).ok_or(io::ErrorKind::AlreadyExists)?;
    fs::rename(part, part.with_file_name(&name))?;
    Ok(name)
}

fn lock(folder: &Path, how: FlockOperation) -> io::Result<File> {
    let lock = lock_file(&folder.join(".lock"))?;
    flock(&lock, how)?;
    Ok(lock)
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
            remove_old(&folder, is_copy, &[name(0), name(7)], KEPT).unwrap();
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
