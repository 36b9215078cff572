//! Folders of running testbeds, through which other commands find them.
//!
//! ```text
//!  $XDG_RUNTIME_DIR or /tmp
//!    gridloom-testbed-UID/      for this user only; exists as long as a testbed does
//!      .lock                    locked while folders are created, removed, or listed
//!      NAME/                    locked by the keeper of that testbed, as long as it runs
//!        lock  groups  spec.json  hosts  control  report.json
//! ```
//!
//! **Invariants:** a process that holds the lock of all folders sees each folder in a finished state: locked by its
//! keeper, or without one. A keeper creates its folder itself, so that the folder exists before anything that the
//! keeper has to remove; a control group is recorded there before it is created.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::error::Error;

/// File names in a testbed's folder.
pub const SPEC: &str = "spec.json";
/// Names and addresses of the hosts, in the format of `/etc/hosts`.
pub const HOSTS: &str = "hosts";
/// The control socket.
pub const CONTROL: &str = "control";
/// Folder of the sockets of the testbed's nodes.
pub const SOCKETS: &str = "sockets";
/// The testbed's report, once it has ended.
pub const REPORT: &str = "report.json";
/// List of the testbed's control groups, one per line, so that a later version finds them too.
pub const GROUPS: &str = "groups";
const LOCK: &str = "lock";
/// Name of the lock of all folders, in their common folder.
const LOCK_OF_ALL: &str = ".lock";
/// Maximum wait for the processes of a control group to end; the next testbed removes what is left.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// A testbed's locked folder. Dropping it removes it, together with the control groups that it lists.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// `None` in a copy of the process that holds it.
    lock: Option<OwnedFd>,
}

impl Folder {
    /// Creates the folder of a new testbed, and removes those of testbeds that ended without removing theirs.
    ///
    /// # Errors
    /// If a testbed of this name is running, or the folder cannot be created.
    pub fn new(name: &str) -> Result<Folder, Error> {
        let path = path_of(name)?;
        let of_all = CommonFolder::made()?;
        for (path, is_running) in all(&of_all.base)? {
            if !is_running {
                remove_all_of(&path);
            }
        }
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::Usage(format!("a testbed '{name}' is running; choose another --name, or end it")));
            }
            Err(error) => return Err(Error::system(path.display().to_string())(error)),
        }
        match lock(&path) {
            Ok(lock) => Ok(Folder { path, lock: Some(lock) }),
            Err(error) => {
                let _ = fs::remove_dir_all(&path);
                Err(Error::system("the testbed's lock")(error))
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives up the folder in a copy of this process, since folder and lock belong to the original. Returns its path.
    pub fn leave(mut self) -> PathBuf {
        drop(self.lock.take());
        std::mem::take(&mut self.path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            remove_groups(&self.path);
            // If locking fails, at worst another process removes the files at the same time.
            let _of_all = self.path.parent().map(CommonFolder::existing);
            remove_files(&self.path);
        }
    }
}

fn lock(path: &Path) -> io::Result<OwnedFd> {
    let lock = File::create(path.join(LOCK))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock.into())
}

/// Returns the path of the testbed of this name.
///
/// # Errors
/// If the name is invalid.
pub fn path_of(name: &str) -> Result<PathBuf, Error> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(Error::Usage(format!("'{name}' is not a valid testbed name: use letters, digits, '-' and '_'")));
    }
    Ok(base().join(name))
}

/// Records a control group in the folder of its testbed before it is created, so that the end of the testbed removes it.
///
/// # Errors
/// If it cannot be recorded.
pub fn record_group(path: &Path, group: &Path) -> io::Result<()> {
    let mut groups = File::options().create(true).append(true).open(path.join(GROUPS))?;
    groups.write_all(format!("{}\n", group.display()).as_bytes())
}

/// Returns the folder of the running testbed of this name, or of the only one.
///
/// # Errors
/// If there is none, or several match.
pub fn find(name: Option<&str>) -> Result<PathBuf, Error> {
    let running: Vec<PathBuf> = match CommonFolder::existing(&base())? {
        Some(of_all) => all(&of_all.base)?.into_iter().filter(|(_, runs)| *runs).map(|(path, _)| path).collect(),
        None => Vec::new(),
    };
    let names = || running.iter().filter_map(|path| path.file_name()?.to_str()).collect::<Vec<_>>().join(", ");
    match (name, &running[..]) {
        (_, []) => Err(Error::Usage("no testbed is running; start one with 'gridloom testbed up'".into())),
        (None, [path]) => Ok(path.clone()),
        (None, _) => Err(Error::Usage(format!("several testbeds are running; choose one with --name: {}", names()))),
        (Some(name), _) => running
            .iter()
            .find(|path| path.file_name().is_some_and(|own| own == name))
            .cloned()
            .ok_or_else(|| Error::Usage(format!("no testbed '{name}' is running; there are {}", names()))),
    }
}

/// Removes the folder of a testbed whose keeper was killed, and the control groups that it lists.
pub fn remove_orphan(path: &Path) {
    // The next testbed removes what cannot be removed now.
    let Some(Ok(Some(_of_all))) = path.parent().map(CommonFolder::existing) else { return };
    if path.exists() && !is_running(path) {
        remove_all_of(path);
    }
}

fn remove_all_of(path: &Path) {
    remove_groups(path);
    remove_files(path);
}

fn remove_groups(path: &Path) {
    let groups = fs::read_to_string(path.join(GROUPS)).unwrap_or_default();
    for group in groups.lines() {
        // Its processes are dead or dying; the kernel reports "busy" until the last one is gone.
        let deadline = Instant::now() + REMOVAL_TIMEOUT;
        while fs::remove_dir(group).is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn remove_files(path: &Path) {
    let groups = fs::read_to_string(path.join(GROUPS)).unwrap_or_default();
    if groups.lines().any(|group| Path::new(group).exists()) {
        return;
    }
    // At worst a folder of this user is left; the next testbed tries again.
    let _ = fs::remove_dir_all(path);
}

/// The locked folder of all testbeds. Dropping it unlocks it, and removes it if it is empty.
struct CommonFolder {
    base: PathBuf,
    lock: File,
}

impl CommonFolder {
    /// Locks the folder, creating it if needed.
    fn made() -> Result<CommonFolder, Error> {
        loop {
            make_base()?;
            if let Some(of_all) = CommonFolder::existing(&base())? {
                return Ok(of_all);
            }
            // The last testbed has ended between the two calls.
        }
    }

    /// Locks the existing folder. Returns `None` if there is no testbed.
    fn existing(base: &Path) -> Result<Option<CommonFolder>, Error> {
        fn failed<E: Into<io::Error>>(error: E) -> Error {
            Error::system("the lock of all testbeds")(error)
        }
        loop {
            if !check_base(base)? {
                return Ok(None);
            }
            let file = match File::options().create(true).append(true).open(base.join(LOCK_OF_ALL)) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(failed(error)),
            };
            flock(&file, FlockOperation::LockExclusive).map_err(failed)?;
            // The former holder may have removed the folder, and another process created a new one.
            let number = file.metadata().map_err(failed)?.ino();
            if fs::metadata(base.join(LOCK_OF_ALL)).is_ok_and(|facts| facts.ino() == number) {
                return Ok(Some(CommonFolder { base: base.to_path_buf(), lock: file }));
            }
        }
    }
}

impl Drop for CommonFolder {
    fn drop(&mut self) {
        let is_lock = |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() == LOCK_OF_ALL);
        if fs::read_dir(&self.base).is_ok_and(|mut entries| entries.all(is_lock)) {
            // A process that waits for the lock then sees that the folder is gone.
            let _ = fs::remove_file(self.base.join(LOCK_OF_ALL)).and_then(|()| fs::remove_dir(&self.base));
        }
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

/// Returns all folders, and whether the keeper of each is running.
fn all(base: &Path) -> Result<Vec<(PathBuf, bool)>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(base).map_err(Error::system(base.display().to_string()))?.flatten() {
        if entry.file_name() != LOCK_OF_ALL {
            found.push((entry.path(), is_running(&entry.path())));
        }
    }
    found.sort();
    Ok(found)
}

fn is_running(path: &Path) -> bool {
    File::open(path.join(LOCK)).is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err())
}

fn base() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    runtime.unwrap_or_else(std::env::temp_dir).join(format!("gridloom-testbed-{user}"))
}

fn make_base() -> Result<(), Error> {
    match fs::DirBuilder::new().mode(0o700).create(base()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::system(base().display().to_string())(error))
        }
        _ => Ok(()),
    }
}

/// Reports whether the folder exists, and fails if another user can have written to it.
fn check_base(path: &Path) -> Result<bool, Error> {
    let facts = match fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::system(path.display().to_string())(error)),
    };
    if !facts.is_dir() || facts.uid() != rustix::process::geteuid().as_raw() || facts.mode() & 0o077 != 0 {
        return Err(Error::Forbidden(format!("{} is not a private folder of this user; remove it", path.display())));
    }
    Ok(true)
}

/// Waits until the testbed of this folder has ended and everything of it is removed.
///
/// # Errors
/// If the system cannot wait for the lock.
pub fn await_end(path: &Path) -> Result<(), Error> {
    match File::open(path.join(LOCK)) {
        Ok(lock) => flock(&lock, FlockOperation::LockShared).map_err(Error::system("the testbed's end")),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_made_and_removed_at_once_do_not_meet() {
        let start = |thread: usize| {
            std::thread::spawn(move || {
                for round in 0..50 {
                    let name = format!("unit-{}-{thread}-{}", std::process::id(), round % 2);
                    let folder = Folder::new(&name).unwrap();
                    assert_eq!(find(Some(&name)).unwrap(), folder.path());
                }
            })
        };
        let threads: Vec<_> = (0..8).map(start).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
