//! Files that only their user can read, such as keys.
//!
//! **Guarantees:** a file that other users can read is refused, except that root may let a group read a file. A reader finds the complete old or the complete new
//! content, never a part. Of several processes that create a file at the same time, one succeeds.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether a file may exist before it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// An existing file is an error, [`ErrorKind::AlreadyExists`].
    Refused,
    Replaced,
}

/// Users who can read a file that they do not own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readers {
    Nobody,
    /// A group, which cannot change the file.
    Group(u32),
}

/// Reads a file that belongs to this user or root, and that no other user can read. If it belongs to root and the reader
/// is another user, its group may read it.
///
/// # Errors
/// If it cannot be read, is longer than `bytes_max`, or if other users can use it: the message has the mode and the remedy.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_for(path, bytes_max, Readers::Nobody)
}

/// Reads a file as [`read`]; with `readers`, its group may read it in any case.
///
/// # Errors
/// As [`read`].
pub fn read_for(path: &Path, bytes_max: u64, readers: Readers) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let status = file.metadata()?;
    if status.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder; name a file in it"));
    }
    // The mode of a pipe or a device does not determine which users can read it.
    if status.is_file() {
        let refused = |why| invalid(format!("{why}; run: chmod 600 '{}'", path.display()));
        check_for(&status, readers).map_err(refused)?;
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
    write_for(path, content, existing, Readers::Nobody)
}

/// Writes a file as [`write`], and makes it and a new folder readable for others.
///
/// # Errors
/// As [`write`]; or if this user cannot give files to the group.
pub fn write_for(path: &Path, content: &[u8], existing: Existing, readers: Readers) -> io::Result<()> {
    let folder =
        path.parent().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it is not the path of a file"))?;
    create_folder(folder)?;
    let (trial, mut open) = create_trial(folder)?;
    let opened = match readers {
        Readers::Nobody => Ok(()),
        Readers::Group(group) => open_to_group(folder, group, 0o750).and_then(|()| open_to_group(&trial, group, 0o640)),
    };
    let written = opened.and_then(|()| open.write_all(content)).and_then(|()| open.sync_all());
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

/// Makes a file or folder readable for a group.
///
/// # Errors
/// If this user cannot give it to the group.
pub fn open_to_group(path: &Path, group: u32, mode: u32) -> io::Result<()> {
    // The group is set first. Otherwise another group would have access until it is set.
    chown(path, None, Some(group))?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Checks that a file or folder belongs to this user or root, and that no other user can use it.
///
/// # Errors
/// With the owner or the mode.
pub fn check(status: &Metadata) -> Result<(), String> {
    check_mode(status, 0o077)
}

/// Checks a file or folder as [`check`], except that its group may read it: with `readers`, and if it belongs to root and
/// this is another user.
///
/// # Errors
/// With the owner or the mode.
pub fn check_for(status: &Metadata, readers: Readers) -> Result<(), String> {
    let is_of_root = status.uid() == 0 && !rustix::process::geteuid().is_root();
    check_mode(status, if is_of_root || readers != Readers::Nobody { 0o027 } else { 0o077 })
}

fn check_mode(status: &Metadata, forbidden: u32) -> Result<(), String> {
    let kind = if status.is_dir() { "folder" } else { "file" };
    let (own, owner, mode) = (rustix::process::geteuid().as_raw(), status.uid(), status.mode() & 0o777);
    if owner != own && owner != 0 {
        return Err(format!("the {kind} belongs to user {owner}, not to user {own}"));
    }
    match mode & forbidden {
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
    fn a_group_reads_files_that_are_written_for_it() {
        let folder = folder("groups").join("below");
        let (file, group) = (folder.join("key"), rustix::process::getegid().as_raw());
        let readers = Readers::Group(group);
        write_for(&file, b"content", Existing::Replaced, readers).unwrap();
        let modes = [&folder, &file].map(|path| fs::metadata(path).unwrap().mode() & 0o777);
        assert_eq!(modes, [0o750, 0o640]);
        assert_eq!(read_for(&file, 7, readers).unwrap(), b"content");
        assert!(read(&file, 7).unwrap_err().to_string().contains("(mode 0640)"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o660)).unwrap();
        assert!(read_for(&file, 7, readers).unwrap_err().to_string().contains("(mode 0660)"));
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
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
