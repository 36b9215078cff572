//! A cache of compiled libraries in a folder of the user.
//!
//! An entry is for a source with its command lines. It contains a library and a list of the files that were read for it
//! (headers, object files), under a name derived from their sizes and dates. So a library is compiled again when any of
//! them has changed, and a running server keeps the one with which it started. One process makes an entry at a time.
//! Entries that have not been used for a long time are removed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gridloom_base::Fnv;
use rustix::fs::{FlockOperation, flock};

use super::{Build, CompiledLibrary, LIBRARY};
use crate::Error;

const FOLDER_VARIABLE: &str = "GRIDLOOM_CACHE";
/// Entries that have not been used for this long are removed.
const KEEP: Duration = Duration::from_secs(90 * 24 * 3600);

/// Returns the library that the recipe makes.
///
/// # Errors
/// If no folder is writable, or the library cannot be made.
pub(super) fn library_of(recipe: &Build) -> Result<CompiledLibrary, Error> {
    let folder = usual_folder().ok_or_else(|| {
        recipe.wrong(&format!("no folder for compiled libraries: neither {FOLDER_VARIABLE} nor HOME is set"))
    })?;
    let entry = folder.join(format!("{:016x}", key(recipe)));
    let wrong = |error: io::Error| {
        let entry = entry.display();
        recipe.wrong(&format!(
            "compiled libraries cannot be stored in {entry}: {error}; set {FOLDER_VARIABLE} to another folder"
        ))
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&entry).map_err(wrong)?;
    let lock = File::create(entry.join("lock")).map_err(wrong)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| wrong(error.into()))?;
    lock.set_modified(SystemTime::now()).map_err(wrong)?;
    if let Some(library) = kept(&entry) {
        return Ok(CompiledLibrary { library, warnings: String::new() });
    }
    let new = entry.join("new");
    // Left by a process that was killed.
    let _ = fs::remove_dir_all(&new);
    fs::create_dir(&new).map_err(wrong)?;
    let (warnings, inputs) = recipe.make(&new).inspect_err(|_| {
        // The next attempt removes leftover files.
        let _ = fs::remove_dir_all(&new);
    })?;
    let library = keep(&entry, &new, &inputs).map_err(wrong)?;
    remove_old(&folder);
    Ok(CompiledLibrary { library, warnings })
}

/// Returns `GRIDLOOM_CACHE`, or the default folder of the user; `None` if there is no home folder.
fn usual_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let usual =
        || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache"))).map(|cache| cache.join("gridloom"));
    let folder = set(FOLDER_VARIABLE).or_else(usual)?.join("idl");
    std::path::absolute(&folder).ok()
}

fn key(recipe: &Build) -> u64 {
    let mut hash = Fnv::default();
    hash.text(env!("CARGO_PKG_VERSION"));
    hash.text(&recipe.source);
    hash.text(recipe.source_name);
    let words = recipe.compile.iter().chain(&recipe.link).chain(&recipe.link_after);
    for word in words.map(|word| word.as_os_str()).chain([recipe.folder.as_os_str()]) {
        hash.number(word.len() as u64);
        word.as_bytes().iter().for_each(|byte| hash.byte(*byte));
    }
    hash.0
}

/// Returns a library of the entry whose input files are unchanged.
fn kept(entry: &Path) -> Option<PathBuf> {
    for file in fs::read_dir(entry).ok()?.flatten().map(|file| file.path()) {
        let (Some(stem), Some("inputs")) = (file.file_stem(), file.extension().and_then(|name| name.to_str())) else {
            continue;
        };
        let list = fs::read(&file).unwrap_or_default();
        let inputs: Vec<PathBuf> = list.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(path_of).collect();
        let library = entry.join(stem).with_extension("so");
        if state(&inputs).is_some_and(|state| stem == state.as_str()) && library.exists() {
            return Some(library);
        }
    }
    None
}

/// Moves the results to their places; the list is last, so that the library that it names is complete.
fn keep(entry: &Path, new: &Path, inputs: &[PathBuf]) -> io::Result<PathBuf> {
    let state = state(inputs).ok_or_else(|| io::Error::other("a file that was read does not exist any more"))?;
    let library = entry.join(&state).with_extension("so");
    fs::rename(new.join(LIBRARY), &library)?;
    let list: Vec<u8> = inputs.iter().flat_map(|path| [path.as_os_str().as_bytes(), &[0]].concat()).collect();
    fs::write(new.join("inputs"), list)?;
    fs::rename(new.join("inputs"), entry.join(&state).with_extension("inputs"))?;
    fs::remove_dir_all(new)?;
    Ok(library)
}

fn path_of(bytes: &[u8]) -> PathBuf {
    std::ffi::OsString::from_vec(bytes.to_vec()).into()
}

/// Encodes sizes and dates of the files as a name; `None` if a file is missing.
fn state(inputs: &[PathBuf]) -> Option<String> {
    let mut hash = Fnv::default();
    for path in inputs {
        let found = fs::metadata(path).ok()?;
        [found.size(), found.mtime() as u64, found.mtime_nsec() as u64].into_iter().for_each(|part| hash.number(part));
    }
    Some(format!("{:016x}", hash.0))
}

/// Removes entries that have not been used for a long time. Failures are ignored, since nothing depends on it.
fn remove_old(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let used = fs::metadata(entry.path().join("lock")).and_then(|lock| lock.modified());
        if used.is_ok_and(|used| used.elapsed().is_ok_and(|age| age > KEEP)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
