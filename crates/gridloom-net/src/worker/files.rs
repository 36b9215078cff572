//! The functions of `builtin:files`, through which programs read and write files of a server.
//!
//! **Invariant:** no path outside of the folder that the operator configured (`GRIDLOOM_FILES`) can be accessed: paths
//! are relative and contain no `..`. (A link in the folder may lead elsewhere, because the operator has created it.)

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gridloom_libffi::middle::CodePtr;

/// Environment variable with the folder of the files that a server offers.
pub const FILES_VARIABLE: &str = "GRIDLOOM_FILES";

/// Returns the function of this name.
pub(super) fn function(symbol: &str) -> Option<CodePtr> {
    let code: *const c_void = match symbol {
        "gridloom_files_size" => gridloom_files_size as *const c_void,
        "gridloom_files_read" => gridloom_files_read as *const c_void,
        "gridloom_files_write" => gridloom_files_write as *const c_void,
        "gridloom_files_remove" => gridloom_files_remove as *const c_void,
        _ => return None,
    };
    Some(CodePtr(code.cast_mut()))
}

/// Returns the size of a file.
unsafe extern "C" fn gridloom_files_size(path: *const c_char, size_bytes: *mut i64, error: *mut c_int) {
    // SAFETY: guaranteed by the function's description, here and below.
    unsafe {
        let size = place(path).and_then(fs::metadata).map(|found| found.len() as i64);
        size_bytes.write(*size.as_ref().unwrap_or(&0));
        error.write(code(size));
    }
}

/// Reads the content of a file of at least `size_bytes`.
unsafe extern "C" fn gridloom_files_read(path: *const c_char, size_bytes: i64, content: *mut u8, error: *mut c_int) {
    // SAFETY: as above.
    unsafe {
        content.write_bytes(0, size_bytes as usize);
        let content = std::slice::from_raw_parts_mut(content, size_bytes as usize);
        error.write(code(place(path).and_then(File::open).and_then(|mut file| file.read_exact(content))));
    }
}

/// Writes a file. It is written under a temporary name first, so that the file is complete or absent.
unsafe extern "C" fn gridloom_files_write(path: *const c_char, size_bytes: i64, content: *const u8, error: *mut c_int) {
    // SAFETY: as above.
    unsafe {
        let content = std::slice::from_raw_parts(content, size_bytes as usize);
        error.write(code(place(path).and_then(|path| write(&path, content))));
    }
}

/// Deletes a file.
unsafe extern "C" fn gridloom_files_remove(path: *const c_char, error: *mut c_int) {
    // SAFETY: as above.
    unsafe { error.write(code(place(path).and_then(fs::remove_file))) }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    let mine = format!(".gridloom-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let beside = path.with_file_name(mine);
    // A file of this name was left by an earlier process with the same pid, which was killed while it wrote.
    let _ = fs::remove_file(&beside);
    let written = File::create_new(&beside).and_then(|mut file| file.write_all(content));
    let placed = written.and_then(|()| fs::rename(&beside, path));
    if placed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    placed
}

/// Returns the path of a file.
///
/// # Safety
/// `path` must be a zero-terminated string.
unsafe fn place(path: *const c_char) -> io::Result<PathBuf> {
    // SAFETY: promised by the caller.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    within(std::env::var_os(FILES_VARIABLE).map(PathBuf::from), path)
}

fn within(folder: Option<PathBuf>, path: &Path) -> io::Result<PathBuf> {
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    match folder {
        None => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        Some(_) if !is_inside || path.as_os_str().is_empty() => Err(io::Error::from_raw_os_error(libc::EACCES)),
        Some(folder) => Ok(folder.join(path)),
    }
}

/// Returns the system's error number, 0 for success.
fn code<T>(outcome: io::Result<T>) -> c_int {
    outcome.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_within_the_folder_are_names() {
        let folder = || Some(PathBuf::from("/data"));
        assert_eq!(within(folder(), Path::new("a/b")).unwrap(), Path::new("/data/a/b"));
        for path in ["", "..", "../a", "a/../../b", "/etc/passwd", "./a"] {
            assert_eq!(within(folder(), Path::new(path)).unwrap_err().raw_os_error(), Some(libc::EACCES), "{path}");
        }
        assert_eq!(code(within(None, Path::new("a"))), libc::ENODEV);
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let folder = std::env::temp_dir().join(format!("gridloom-worker-files-{}", std::process::id()));
        let path = folder.join("deep/file");
        write(&path, b"old").unwrap();
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside");
        fs::remove_dir_all(&folder).unwrap();
    }
}
