//! Folders of running testbeds: where a tool that wants something of one finds it.
//!
//! ```text
//!  $XDG_RUNTIME_DIR or /tmp
//!    gridloom-testbed-UID/      for this user only
//!      .lock                    held while folders are made, removed, or looked at
//!      NAME/                    locked by the tool that runs it, as long as it lives
//!        lock  groups  spec.json  hosts  control  report.json
//! ```
//!
//! **Invariant:** whoever sees a folder under the lock of all sees it finished: locked by its tool, or without one.

use std::fs::{self, File};
use std::io;
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
/// What the testbed did, when it has ended.
pub const REPORT: &str = "report.json";
/// Control groups of the testbed, a line each, so that a later version finds them too.
pub const GROUPS: &str = "groups";
const LOCK: &str = "lock";
/// The lock of all folders, in the folder that has them.
const LOCK_OF_ALL: &str = ".lock";
/// How long the processes of a control group get to be gone; what is left then, the next testbed removes.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(5);

/// A testbed's folder, locked; removed when dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: OwnedFd,
}

impl Folder {
    /// Makes the folder of a new testbed, and removes those that ended without doing so.
    ///
    /// # Errors
    /// If a testbed of that name runs, or the folder cannot be made.
    pub fn new(name: &str) -> Result<Folder, Error> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
            return Err(Error::Usage(format!("'{name}' is no name for a testbed: use letters, digits, '-' and '_'")));
        }
        let base = base()?;
        let _of_all = lock_all(&base)?;
        for (path, is_running) in all(&base)? {
            if !is_running {
                remove_groups(&path);
                remove_files(&path);
            }
        }
        let path = base.join(name);
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::Usage(format!("a testbed '{name}' is running; choose another --name, or end it")));
            }
            Err(error) => return Err(Error::system(path.display().to_string())(error)),
        }
        let lock: OwnedFd = File::create(path.join(LOCK)).map_err(Error::system("the testbed's lock"))?.into();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(Error::system("the testbed's lock"))?;
        Ok(Folder { path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// The folder of the running testbed of that name, or of the only one.
///
/// # Errors
/// If there is none, or there are several to choose from.
pub fn find(name: Option<&str>) -> Result<PathBuf, Error> {
    let base = base()?;
    let of_all = lock_all(&base)?;
    let running: Vec<PathBuf> = all(&base)?.into_iter().filter(|(_, runs)| *runs).map(|(path, _)| path).collect();
    drop(of_all);
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

/// Removes a testbed's folder, and the control groups that it lists.
pub fn remove(path: &Path) {
    remove_groups(path);
    // Without it, at worst another removes them at the same time.
    let _of_all = path.parent().map(lock_all);
    remove_files(path);
}

fn remove_groups(path: &Path) {
    let groups = fs::read_to_string(path.join(GROUPS)).unwrap_or_default();
    for group in groups.lines() {
        // Its processes are dead or dying; the kernel says busy until the last is gone.
        let deadline = Instant::now() + REMOVAL_PATIENCE;
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
    // Litter in a folder of this user's, at worst; the next testbed tries again.
    let _ = fs::remove_dir_all(path);
}

/// Waits for the lock of all folders; given back when dropped.
fn lock_all(base: &Path) -> Result<OwnedFd, Error> {
    let what = "the lock of all testbeds";
    let file = File::options().create(true).append(true).open(base.join(LOCK_OF_ALL)).map_err(Error::system(what))?;
    flock(&file, FlockOperation::LockExclusive).map_err(Error::system(what))?;
    Ok(file.into())
}

/// All folders, and whether the tool of each is alive.
fn all(base: &Path) -> Result<Vec<(PathBuf, bool)>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(base).map_err(Error::system(base.display().to_string()))?.flatten() {
        let path = entry.path();
        if entry.file_name() == LOCK_OF_ALL {
            continue;
        }
        let lock = File::open(path.join(LOCK));
        let is_running = lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err());
        found.push((path, is_running));
    }
    found.sort();
    Ok(found)
}

fn base() -> Result<PathBuf, Error> {
    let user = rustix::process::geteuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    let path = runtime.unwrap_or_else(std::env::temp_dir).join(format!("gridloom-testbed-{user}"));
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::system(path.display().to_string())(error));
        }
        _ => {}
    }
    let facts = fs::symlink_metadata(&path).map_err(Error::system(path.display().to_string()))?;
    if !facts.is_dir() || facts.uid() != user || facts.mode() & 0o077 != 0 {
        return Err(Error::Forbidden(format!("{} is not a folder of this user's alone; remove it", path.display())));
    }
    Ok(path)
}

/// Waits until the tool of that folder has ended.
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
