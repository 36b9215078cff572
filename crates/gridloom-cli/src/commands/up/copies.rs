//! Copies of programs' folders on a host, named by the hash of their content. Also decides which copies of Gridloom
//! itself are kept.
//!
//! ```text
//!  $XDG_CACHE_HOME/gridloom/code/   ~/.cache without the variable; for this user only
//!    HASH/                          a folder that was sent: complete, and never changed by Gridloom
//!    HASH.2/                        another copy of the same folder, if the first one was changed while a server used it
//!    .lock                          locked while a copy is moved into place: hosts may share this folder
//!    .part                          a copy that is being unpacked
//!    .used-HASH  .used-HASH.2       locked by each server that uses the copy, also by servers on other hosts
//! ```
//!
//! **Invariants:** a copy gets its name once it is complete and its bytes have the hash in its name. A server that
//! starts gets no copy with other content. A copy with other content is replaced. While a server uses such a copy, or
//! if it cannot be read or removed, it is kept, and the good copy gets the next name. A copy that a server uses is not
//! removed. Of the others, the last few are kept. No lock is held while the content of a copy is checked, so the copy
//! may be removed meanwhile. It is handed to a server only if, under the lock, it still exists.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};

use super::code::{CODE_BYTES_MAX, hash_in, hash_of, is_copy, is_whole};

/// Number of copies that are kept although no server uses them: the next grid may have the same folder.
const UNUSED_COPIES_MAX: usize = 4;
/// The same for copies of the program: a user may try another version and then return to the old one.
const UNUSED_PROGRAMS_MAX: usize = 2;
/// Maximum size of the archive, including headers and padding of blocks.
const ARCHIVE_BYTES_MAX: u64 = 2 * CODE_BYTES_MAX;

/// Returns the path of the copy of that name, which may not exist.
pub fn path(copy: &str) -> Result<PathBuf> {
    ensure!(is_copy(copy), "'{copy}' is not the name of a copy of a folder");
    Ok(folder()?.join(copy))
}

/// A copy that a server can use.
pub struct ReceivedCopy {
    pub copy: String,
    pub was_there: bool,
}

/// Receives the folder of that hash, unless a complete copy exists. `input` has an archive of `bytes` bytes. `used`
/// returns the copies that servers use.
pub fn receive(hash: &str, bytes: u64, input: impl Read, used: impl FnOnce() -> Vec<String>) -> Result<ReceivedCopy> {
    receive_in(&folder()?, hash, bytes, input, used, |copy| is_whole(copy, hash))
}

fn receive_in(
    folder: &Path,
    hash: &str,
    bytes: u64,
    input: impl Read,
    used: impl FnOnce() -> Vec<String>,
    is_whole: impl Fn(&Path) -> Result<bool>,
) -> Result<ReceivedCopy> {
    let at = || format!("copies of programs in '{}'", folder.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(at)?;
    // Waits for a copy that is being received.
    let shared = lock(folder, FlockOperation::LockShared).with_context(at)?;
    let known = FolderCopy::find(folder, hash).with_context(at)?;
    drop(shared);
    let mut damaged = Vec::new();
    for copy in &known {
        match is_whole(&folder.join(&copy.name)) {
            Ok(true) => {
                if mark_used(folder, copy).with_context(at)? {
                    return Ok(ReceivedCopy { copy: copy.name.clone(), was_there: true });
                }
            }
            // Changed by a disk fault or by a function.
            Ok(false) => damaged.push(copy),
            // It may be complete: another command may be about to start a server with it.
            Err(_) => {}
        }
    }
    ensure!(bytes <= ARCHIVE_BYTES_MAX, "a folder of {bytes} bytes is too large: at most {ARCHIVE_BYTES_MAX}");
    let mut archive = Vec::new();
    input.take(bytes).read_to_end(&mut archive).context("standard input")?;
    ensure!(hash_of(&archive) == hash, "the folder was not received completely: {} of {bytes} bytes", archive.len());
    // The lock is not held while the data arrive: a client that has died would block all others.
    let _lock = lock(folder, FlockOperation::LockExclusive).with_context(at)?;
    let now = FolderCopy::find(folder, hash).with_context(at)?;
    // Another client may have sent it meanwhile.
    if let Some(brought) = now.into_iter().find(|copy| known.iter().all(|known| known.made != copy.made)) {
        touch(&folder.join(&brought.name)).with_context(at)?;
        return Ok(ReceivedCopy { copy: brought.name, was_there: true });
    }
    let part = folder.join(".part");
    remove(&part).with_context(at)?;
    fs::DirBuilder::new().mode(0o700).create(&part).with_context(at)?;
    let mut used = used();
    let placed = unpack(&archive, &part).and_then(|()| place(&part, hash, &damaged, &used));
    if placed.is_err() {
        // Frees the space on a full disk.
        let _ = remove(&part);
    }
    let copy = placed.with_context(at)?;
    used.push(copy.clone());
    remove_old(folder, is_copy, &used, UNUSED_COPIES_MAX).with_context(at)?;
    Ok(ReceivedCopy { copy, was_there: false })
}

struct FolderCopy {
    name: String,
    made: CopyIdentity,
}

/// Distinguishes a copy from a later one of the same name. A replacement has another inode, because both exist for a
/// while. After a copy was removed, a file system may reuse its inode: then the creation time of the folder differs,
/// if the file system records it.
#[derive(PartialEq, Eq)]
struct CopyIdentity(u64, Option<SystemTime>);

impl CopyIdentity {
    fn of(metadata: &Metadata) -> CopyIdentity {
        CopyIdentity(metadata.ino(), metadata.created().ok())
    }
}

impl FolderCopy {
    /// Returns the copies of one folder, the most recently used first.
    fn find(folder: &Path, hash: &str) -> io::Result<Vec<FolderCopy>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (name, metadata) = (entry.file_name(), entry.metadata());
            // A host with the same home folder may have removed it meanwhile.
            let (Some(name), Ok(metadata)) = (name.to_str(), metadata) else { continue };
            if is_copy(name) && hash_in(name) == hash {
                found.push((metadata.modified()?, FolderCopy { name: name.into(), made: CopyIdentity::of(&metadata) }));
            }
        }
        found.sort_by(|(one, copy), (other, another)| other.cmp(one).then_with(|| copy.name.cmp(&another.name)));
        Ok(found.into_iter().map(|(_, copy)| copy).collect())
    }
}

/// Marks a copy as most recently used, so that nobody removes it. Returns whether it still exists.
fn mark_used(folder: &Path, copy: &FolderCopy) -> io::Result<bool> {
    let _lock = lock(folder, FlockOperation::LockShared)?;
    let path = folder.join(&copy.name);
    let is_there = path.symlink_metadata().is_ok_and(|metadata| CopyIdentity::of(&metadata) == copy.made);
    if is_there {
        touch(&path)?;
    }
    Ok(is_there)
}

/// Renames the unpacked folder to the first free name, and returns this name. Removes `damaged` copies, except those
/// that servers use.
fn place(part: &Path, hash: &str, damaged: &[&FolderCopy], used: &[String]) -> io::Result<String> {
    let free = |copy: &&&FolderCopy| !used.contains(&copy.name) && !is_in_use(&part.with_file_name(&copy.name));
    for copy in damaged.iter().filter(free) {
        // If this fails, the name is not free.
        let _ = remove(&part.with_file_name(&copy.name));
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

/// Marks a copy of a folder or of the program as used until the process that inherits the returned file has ended, for
/// all hosts that share it. Returns `None` if the file system does not support locks: then only the record of the
/// process shows the use.
pub fn mark_in_use(copy: &Path) -> Option<File> {
    let file = lock_file(&used_file(copy)?).ok()?;
    flock(&file, FlockOperation::LockShared).ok()?;
    fcntl_setfd(&file, FdFlags::empty()).ok()?;
    Some(file)
}

/// True if a process holds it.
fn is_in_use(copy: &Path) -> bool {
    let Some(file) = used_file(copy).filter(|file| file.exists()) else { return false };
    let free = lock_file(&file).is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
    !free
}

fn used_file(copy: &Path) -> Option<PathBuf> {
    Some(copy.with_file_name(format!(".used-{}", copy.file_name()?.to_str()?)))
}

/// Opens the file for reading and writing, because NFS requires this for the two kinds of lock.
fn lock_file(file: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(file)
}

fn unpack(archive: &[u8], folder: &Path) -> io::Result<()> {
    let mut archive = tar::Archive::new(archive);
    archive.set_preserve_mtime(false);
    archive.unpack(folder)
}

/// Removes copies of the program that no part uses, except the last few, if this program is such a copy. `used` lists files.
pub fn remove_old_programs(used: &[PathBuf]) -> io::Result<()> {
    let own = std::env::current_exe()?;
    let Some(folder) = program_copy(&own).and_then(|own| own.parent()) else { return Ok(()) };
    touch(&own)?;
    let names = used.iter().chain([&own]).filter(|file| file.parent() == Some(folder));
    let names: Vec<String> = names.filter_map(|file| Some(file.file_name()?.to_str()?.to_string())).collect();
    remove_old(folder, |name| name.starts_with("gridloom-"), &names, UNUSED_PROGRAMS_MAX)
}

/// Returns the program's file if it is a copy that was sent.
pub fn program_copy(program: &PathBuf) -> Option<&PathBuf> {
    Some(program).filter(|program| program.parent().is_some_and(|folder| folder.ends_with(".cache/gridloom/bin")))
}

/// Removes copies that nothing uses, except the last `kept`.
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
    for (_, copy) in unused[..old].iter().filter(|(_, copy)| !is_in_use(copy)) {
        // A copy that cannot be removed does not prevent a server from starting.
        let _ = remove(copy).and_then(|()| used_file(copy).iter().try_for_each(|file| remove(file)));
    }
    Ok(())
}

fn remove(copy: &Path) -> io::Result<()> {
    match if copy.is_dir() { fs::remove_dir_all(copy) } else { fs::remove_file(copy) } {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Marks it as most recently used.
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
    use std::os::unix::fs::PermissionsExt;

    use anyhow::bail;

    use super::super::code::Code;
    use super::*;

    /// A temporary folder for copies that contains one copy; it is removed with the guard.
    struct CopiesFolder {
        folder: PathBuf,
        code: Code,
    }

    impl CopiesFolder {
        fn new(name: &str) -> CopiesFolder {
            let folder = std::env::temp_dir().join(format!("gridloom-copies-{}-{name}", std::process::id()));
            fs::create_dir_all(folder.join("program")).unwrap();
            fs::write(folder.join("program/a.py"), "x = 1\n").unwrap();
            let place = CopiesFolder { code: Code::pack(&folder.join("program")).unwrap(), folder };
            assert_eq!(place.receive(|_| unreachable!()), (place.code.hash.clone(), false));
            place
        }

        /// Returns the name of the copy, and whether it existed.
        fn receive(&self, is_whole: impl Fn(&Path) -> Result<bool>) -> (String, bool) {
            let archive = &self.code.archive[..];
            let received =
                receive_in(&self.folder, &self.code.hash, archive.len() as u64, archive, Vec::new, is_whole).unwrap();
            (received.copy, received.was_there)
        }

        /// Returns the path of the first copy, and the name of the second.
        fn names(&self) -> (PathBuf, String) {
            (self.folder.join(&self.code.hash), format!("{}.2", self.code.hash))
        }
    }

    impl Drop for CopiesFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    #[test]
    fn a_copy_that_is_removed_while_it_is_looked_through_is_received_again() {
        let place = CopiesFolder::new("gone");
        let received = place.receive(|copy| {
            fs::remove_dir_all(copy)?;
            Ok(true)
        });
        assert_eq!(received, (place.code.hash.clone(), false));
        assert!(is_whole(&place.names().0, &place.code.hash).unwrap());
    }

    #[test]
    fn a_copy_that_cannot_be_read_stays_and_gets_another_beside_it() {
        let place = CopiesFolder::new("unread");
        let (first, second) = place.names();
        assert_eq!(place.receive(|_| bail!("too many open files")), (second.clone(), false));
        assert!(first.join("a.py").exists());
        assert_eq!(place.receive(|copy| Ok(copy != first)), (second, true));
        assert_eq!(place.receive(|_| Ok(false)), (place.code.hash.clone(), false));
    }

    #[test]
    fn a_damaged_copy_that_cannot_be_removed_gets_another_beside_it() {
        let place = CopiesFolder::new("fixed");
        let (first, second) = place.names();
        let set = |mode| fs::set_permissions(&first, fs::Permissions::from_mode(mode)).unwrap();
        set(0o500);
        let can_remove = fs::write(first.join("b.py"), "").is_ok();
        let received = place.receive(|_| Ok(false));
        if can_remove {
            // Root can read everything.
            return;
        }
        set(0o700);
        assert_eq!(received, (second, false));
    }

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
        // A process of another host marks it in the same way.
        let held = mark_in_use(&folder.join(name(2))).unwrap();
        let left = || {
            remove_old(&folder, is_copy, &[name(0), name(7)], UNUSED_COPIES_MAX).unwrap();
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
