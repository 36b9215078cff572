//! Files that only their user can read, such as keys.
//!
//! **Guarantees:** a file that other users can read is refused. A reader finds the complete old or the complete new
//! content, never a part. Of several processes that create a file at the same time, one succeeds.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether a file may exist before it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// An existing file is an error, [`ErrorKind::AlreadyExists`].
    Refused,
    Replaced,
}

/// Reads a file that belongs to this user or root, and that no other user can read.
///
/// # Errors
/// If it cannot be read, is longer than `bytes_max`, or if other users can use it: the message has the mode and the remedy.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let status = file.metadata()?;
    if status.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder; name a file in it"));
    }
    // The mode of a pipe or a device does not determine which users can read it.
    if status.is_file() {
        let refused = |why| invalid(format!("{why}; run: chmod 600 '{}'", path.display()));
        check(&status).map_err(refused)?;
    }
    read_at_most(file, bytes_max)
}

/// Reads to the end.
///
/// # Errors
/// If there are more than `bytes_max` bytes, or the source cannot be read.
pub fn read_at_most(from: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(invalid(format!("it has more than {bytes_max} bytes, which is the limit"))),
        false => Ok(bytes),
    }
}

/// Writes a file with mode 0600, and creates its folder with mode 0700 if there is none.
///
/// # Errors
/// If the folder or the file cannot be written, or if the file exists and that is refused.
pub fn write(path: &Path, content: &[u8], existing: Existing) -> io::Result<()> {
    let folder =
        path.parent().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it is not the path of a file"))?;
    create_folder(folder)?;
    let (trial, mut open) = create_trial(folder)?;
    let written = open.write_all(content).and_then(|()| open.sync_all());
    let done = written.and_then(|()| match existing {
        Existing::Refused => fs::hard_link(&trial, path),
        Existing::Replaced => fs::rename(&trial, path),
    });
    // After a rename this file no longer exists.
    let _ = fs::remove_file(&trial);
    done
}

/// Creates a folder and those above it with mode 0700, if it does not exist.
///
/// # Errors
/// If it cannot be created.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Checks that a file or folder belongs to this user or root, and that no other user can use it.
///
/// # Errors
/// With the owner or the mode.
pub fn check(status: &Metadata) -> Result<(), String> {
    let kind = if status.is_dir() { "folder" } else { "file" };
    let (own, owner, mode) = (rustix::process::geteuid().as_raw(), status.uid(), status.mode() & 0o777);
    if owner != own && owner != 0 {
        return Err(format!("the {kind} belongs to user {owner}, not to user {own}"));
    }
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(format!("other users can use the {kind} (mode {mode:04o})")),
    }
}

/// Creates a file under a name that no other process uses, also not one on another host that mounts the folder.
fn create_trial(folder: &Path) -> io::Result<(PathBuf, File)> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let trial = folder.join(format!(".new-{}-{number}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&trial) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (trial, file)),
        }
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gridloom-private-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_file_that_others_can_use_is_refused_with_mode_and_remedy() {
        let folder = folder("modes");
        let file = folder.join("key");
        write(&file, b"content", Existing::Refused).unwrap();
        assert_eq!(read(&file, 7).unwrap(), b"content");
        for mode in [0o644, 0o640, 0o606, 0o660, 0o610] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let error = read(&file, 100).unwrap_err().to_string();
            assert!(error.contains(&format!("(mode {mode:04o}); run: chmod 600 '{}'", file.display())), "{error}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
        assert!(read(&file, 6).unwrap_err().to_string().contains("more than 6 bytes"));
        assert!(read(&folder, 6).unwrap_err().to_string().contains("it is a folder"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn of_many_that_create_a_file_one_succeeds() {
        let folder = folder("once");
        let file = folder.join("below").join("key");
        let made = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8u8)
                .map(|number| {
                    let file = &file;
                    scope.spawn(move || write(file, &[number], Existing::Refused).is_ok().then_some(number))
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<u8>>()
        });
        assert_eq!((made.len(), fs::read(&file).unwrap()), (1, made));
        let (own, above) = (fs::metadata(&file).unwrap(), fs::metadata(file.parent().unwrap()).unwrap());
        assert_eq!((own.mode() & 0o777, above.mode() & 0o777), (0o600, 0o700));
        write(&file, b"other", Existing::Replaced).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"other");
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "no trial is left");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn names_left_by_a_killed_process_are_passed_over() {
        let folder = folder("left");
        for number in 0..50 {
            fs::write(folder.join(format!(".new-{}-{number}", std::process::id())), "").unwrap();
        }
        write(&folder.join("key"), b"x", Existing::Refused).unwrap();
        assert_eq!(fs::read(folder.join("key")).unwrap(), b"x");
        fs::remove_dir_all(folder).unwrap();
    }
}
