//! Folders of running testbeds, by which other commands find them.
//!
//! ```text
//!  $XDG_RUNTIME_DIR or /tmp
//!    gridloom-testbed-UID/      for this user only; there as long as a testbed is
//!      .lock                    held while folders are made, removed, or looked at
//!      NAME/                    locked by the keeper of that testbed, as long as it lives
//!        lock  groups  spec.json  hosts  control  report.json
//! ```
//!
//! **Invariants:** a process that holds the lock of all folders sees each folder finished: locked by its keeper, or without one.
//! A keeper makes its folder itself, so that it exists before what it has to remove; a control group is noted there
//! before it is made.

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
/// Names and addresses of the hosts, as `/etc/hosts` has them.
pub const HOSTS: &str = "hosts";
/// The control socket.
pub const CONTROL: &str = "control";
/// Folder of the sockets of its nodes.
pub const SOCKETS: &str = "sockets";
/// The testbed's report, once it has ended.
pub const REPORT: &str = "report.json";
/// Control groups of the testbed, a line each, so that a later version finds them too.
pub const GROUPS: &str = "groups";
const LOCK: &str = "lock";
/// The lock of all folders, in the folder that has them.
const LOCK_OF_ALL: &str = ".lock";
/// Longest wait for the processes of a control group to end; the next testbed removes what is left.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// A testbed's folder, locked; removed when dropped, with the control groups that it lists.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// `None` in a copy of the process that has it.
    lock: Option<OwnedFd>,
}

impl Folder {
    /// Makes the folder of a new testbed, and removes those that ended without doing so.
    ///
    /// # Errors
    /// If a testbed of that name runs, or the folder cannot be made.
    pub fn new(name: &str) -> Result<Folder, Error> {
        let path = path_of(name)?;
        let of_all = OfAll::made()?;
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

    /// In a copy of this process: the folder and its lock are the original's. Where it is.
    pub fn leave(mut self) -> PathBuf {
        drop(self.lock.take());
        std::mem::take(&mut self.path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            remove_groups(&self.path);
            // Without the lock, at worst another process removes them at the same time.
            let _of_all = self.path.parent().map(OfAll::existing);
            remove_files(&self.path);
        }
    }
}

fn lock(path: &Path) -> io::Result<OwnedFd> {
    let lock = File::create(path.join(LOCK))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock.into())
}

/// Where the testbed of that name is kept.
///
/// # Errors
/// If it is no name for one.
pub fn path_of(name: &str) -> Result<PathBuf, Error> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(Error::Usage(format!("'{name}' is no name for a testbed: use letters, digits, '-' and '_'")));
    }
    Ok(base().join(name))
}

/// Notes a control group in the folder of its testbed before it is made, so that the end of the testbed removes it.
///
/// # Errors
/// If that cannot be written down.
pub fn note_group(path: &Path, group: &Path) -> io::Result<()> {
    let mut groups = File::options().create(true).append(true).open(path.join(GROUPS))?;
    groups.write_all(format!("{}\n", group.display()).as_bytes())
}

/// The folder of the running testbed of that name, or of the only one.
///
/// # Errors
/// If there is none, or there are several to choose from.
pub fn find(name: Option<&str>) -> Result<PathBuf, Error> {
    let running: Vec<PathBuf> = match OfAll::existing(&base())? {
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

/// Removes a testbed's folder, and the control groups that it lists, if its keeper was killed.
pub fn remove_orphan(path: &Path) {
    // The next testbed removes what cannot be removed now.
    let Some(Ok(Some(_of_all))) = path.parent().map(OfAll::existing) else { return };
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
        // Its processes are dead or dying; the kernel reports busy until the last has gone.
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
    // At worst a folder of this user's is left; the next testbed tries again.
    let _ = fs::remove_dir_all(path);
}

/// The folder of all testbeds, locked. Dropping it unlocks it, and removes it if it is empty.
struct OfAll {
    base: PathBuf,
    lock: File,
}

impl OfAll {
    /// Made where there is none.
    fn made() -> Result<OfAll, Error> {
        loop {
            make_base()?;
            if let Some(of_all) = OfAll::existing(&base())? {
                return Ok(of_all);
            }
            // The last testbed has ended between the two calls.
        }
    }

    /// `None` if no testbed is there.
    fn existing(base: &Path) -> Result<Option<OfAll>, Error> {
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
            // The former holder may have removed the folder, and another process made a new one.
            let number = file.metadata().map_err(failed)?.ino();
            if fs::metadata(base.join(LOCK_OF_ALL)).is_ok_and(|facts| facts.ino() == number) {
                return Ok(Some(OfAll { base: base.to_path_buf(), lock: file }));
            }
        }
    }
}

impl Drop for OfAll {
    fn drop(&mut self) {
        let is_lock = |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() == LOCK_OF_ALL);
        if fs::read_dir(&self.base).is_ok_and(|mut entries| entries.all(is_lock)) {
            // A process that waits for the lock then sees that the folder is gone.
            let _ = fs::remove_file(self.base.join(LOCK_OF_ALL)).and_then(|()| fs::remove_dir(&self.base));
        }
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

/// All folders, and whether the keeper of each is alive.
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

/// Whether the folder is there, and no other user can have written to it.
fn check_base(path: &Path) -> Result<bool, Error> {
    let facts = match fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::system(path.display().to_string())(error)),
    };
    if !facts.is_dir() || facts.uid() != rustix::process::geteuid().as_raw() || facts.mode() & 0o077 != 0 {
        return Err(Error::Forbidden(format!("{} is not a folder of this user's alone; remove it", path.display())));
    }
    Ok(true)
}

/// Waits until the testbed of that folder has ended, and nothing of it is left.
///
/// # Errors
/// If the system does not let it wait.
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
