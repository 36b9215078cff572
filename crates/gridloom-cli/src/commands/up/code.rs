//! The folder of a program's Python modules that is sent to hosts: which files it contains, and its hash.
//!
//! The files are packed into a tar archive, which each Python and each system can read. Order, times and owners are
//! always the same, so the BLAKE3 hash of the archive depends only on the content: names, bytes, and which files are
//! executable.
//!
//! **Invariant:** names that begin with a dot are never sent: `.git` and `.venv`, and files such as `.env`, which hold passwords.
//!
//! Files that match the folder's `.gitignore` and `.gridloomignore` files are left out, by the rules of git (crate
//! `ignore`, from ripgrep).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use gridloom_base::size::size_text;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde_json::{Value, json};

use crate::commands::{count, print_line};

/// Maximum size. A larger folder is hardly a program: it is sent to each host, and both sides hold it in memory.
pub const CODE_BYTES_MAX: u64 = 100 << 20;
/// Maximum number of files. Each takes some milliseconds on a file system that nodes share.
const CODE_FILES_MAX: usize = 10_000;
/// Number of sent files that are shown, the largest first.
const FILES_SHOWN_MAX: usize = 10;

/// A folder in the form in which it is sent.
pub struct Code {
    pub folder: PathBuf,
    /// Hash of the archive in hexadecimal digits, which names its copies.
    pub hash: String,
    pub archive: Vec<u8>,
    /// Paths in the folder, with sizes.
    files: Vec<(PathBuf, u64)>,
    skipped: Vec<SkippedFile>,
    /// Files and folders that match a file of [`IGNORE_FILES`].
    ignored: Vec<PathBuf>,
}

/// A file or folder that is not sent although no ignore file excludes it.
#[derive(Debug, PartialEq, Eq)]
struct SkippedFile {
    path: PathBuf,
    why: String,
    /// True if reading it failed.
    is_unread: bool,
}

impl SkippedFile {
    fn unreadable(path: PathBuf, error: &io::Error) -> SkippedFile {
        SkippedFile { path, why: format!("cannot be read ({error})"), is_unread: true }
    }
}

/// Files with patterns of what is not sent; a later file takes precedence.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".gridloomignore"];

impl Code {
    /// Reads the folder.
    ///
    /// # Errors
    /// If it has no files, too many files, or if they are too large.
    pub fn pack(folder: &Path) -> Result<Code> {
        let mut found = FolderScan::of(folder)?;
        found.check()?;
        let mut archive = tar::Builder::new(Vec::new());
        let mut files = Vec::new();
        for (path, is_executable) in found.files.keys().zip(found.files.values().map(|file| file.is_executable)) {
            let whole = folder.join(path);
            let content = match fs::read(&whole) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    found.left_out.push(SkippedFile::unreadable(path.clone(), &error));
                    continue;
                }
                read => read.with_context(|| format!("code: {}", whole.display()))?,
            };
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Regular);
            header.set_mode(if is_executable { 0o755 } else { 0o644 });
            header.set_size(content.len() as u64);
            header.set_mtime(0);
            archive.append_data(&mut header, path, &content[..]).context("code")?;
            files.push((path.clone(), content.len() as u64));
        }
        ensure!(!files.is_empty(), "code: '{}' has no file that can be read", folder.display());
        let archive = archive.into_inner().context("code")?;
        let hash = hash_of(&archive);
        Ok(Code { folder: folder.into(), hash, archive, files, skipped: found.left_out, ignored: found.ignored })
    }

    fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }

    pub fn json(&self, sent: &[String], held: &[String]) -> Value {
        let files: Vec<_> =
            self.files.iter().map(|(path, bytes)| json!({ "path": path.to_string_lossy(), "bytes": bytes })).collect();
        let left_out: Vec<_> = self.skipped.iter().map(|left| left.path.to_string_lossy()).collect();
        let ignored: Vec<_> = self.ignored.iter().map(|path| path.to_string_lossy()).collect();
        json!({ "code": self.folder.to_string_lossy(), "hash": self.hash, "bytes": self.bytes(), "files": files,
                "left_out": left_out, "ignored": ignored, "sent_to": sent, "held_by": held })
    }

    /// Prints a summary: what was sent to which hosts, and what was left out.
    pub fn print_summary(&self, sent: &[String], held: &[String]) -> Result<()> {
        let (files, bytes) = (count(self.files.len(), "file"), size_text(self.bytes()));
        let mut line = format!("code '{}': {files}, {bytes}, hash {}", self.folder.display(), self.hash);
        for (what, hosts) in [("sent to", sent), ("already on", held)] {
            if !hosts.is_empty() {
                line.push_str(&format!("; {what} {}", hosts.join(", ")));
            }
        }
        print_line(&line)?;
        if !sent.is_empty() {
            let mut files: Vec<_> = self.files.iter().collect();
            files.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
            for (path, bytes) in files.iter().take(FILES_SHOWN_MAX) {
                print_line(&format!("  {}: {}", path.display(), size_text(*bytes)))?;
            }
            if let Some(more) = files.len().checked_sub(FILES_SHOWN_MAX).filter(|more| *more > 0) {
                print_line(&format!("  and {more} more, which are no larger; --json lists all"))?;
            }
        }
        for SkippedFile { path, why, .. } in &self.skipped {
            gridloom_base::stderr_line!("gridloom: code: '{}' {why}, and was left out", path.display());
        }
        if !sent.is_empty() && !self.ignored.is_empty() {
            print_line(&format!("  left out by .gitignore or .gridloomignore: {}", self.ignored_text()))?;
        }
        Ok(())
    }

    fn ignored_text(&self) -> String {
        let shown =
            self.ignored.iter().take(FILES_SHOWN_MAX).map(|path| path.display().to_string()).collect::<Vec<_>>();
        let more = self.ignored.len().checked_sub(FILES_SHOWN_MAX).filter(|more| *more > 0);
        let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
        format!("{}{more}", shown.join(", "))
    }
}

/// True if a copy still has the content that was sent. Files that are never sent are ignored, such as `__pycache__`,
/// which Python creates there.
///
/// # Errors
/// If something in it cannot be read, at least at the moment.
pub fn is_whole(copy: &Path, hash: &str) -> Result<bool> {
    if !fs::metadata(copy)?.is_dir() {
        return Ok(false);
    }
    let found = match Code::pack(copy) {
        // The copy has too many files, or none.
        Err(error) if !error.root_cause().is::<io::Error>() => return Ok(false),
        found => found?,
    };
    if let Some(SkippedFile { path, why, .. }) = found.skipped.iter().find(|left| left.is_unread) {
        bail!("'{}' {why}", path.display());
    }
    // A copy has no excluded files when it is created, so such files were added later.
    Ok(found.hash == hash && found.skipped.is_empty() && found.ignored.is_empty())
}

/// Contents of folders that would be sent; each folder is scanned once.
#[derive(Default)]
pub struct SentFiles(RefCell<BTreeMap<PathBuf, BTreeSet<PathBuf>>>);

impl SentFiles {
    /// True if an argument is a file of that folder that is sent.
    ///
    /// # Errors
    /// If it is a file of the folder that is not sent.
    pub fn has(&self, folder: &Path, word: &str) -> Result<bool> {
        if !is_inside(folder, word) {
            return Ok(false);
        }
        let mut known = self.0.borrow_mut();
        if !known.contains_key(folder) {
            known.insert(folder.into(), FolderScan::of(folder)?.files.into_keys().collect());
        }
        let inner: PathBuf = Path::new(word).components().filter(|part| *part != Component::CurDir).collect();
        ensure!(
            known[folder].contains(&inner),
            "serve names '{word}', which is in the folder of 'code' but is not sent: its name or that of a folder of it begins with a dot, or \
             .gitignore or .gridloomignore excludes it; '!{}' in .gridloomignore includes it again",
            inner.display()
        );
        Ok(true)
    }
}

/// Enough digits that no two folders have the same hash.
const HASH_DIGITS: usize = 32;

/// True if the name can be that of a copy, which becomes part of a path: a hash, with a number if there are several copies.
pub fn is_copy(name: &str) -> bool {
    let hash = hash_in(name);
    let number = name[hash.len()..].strip_prefix('.').map(str::parse::<u32>);
    hash.len() == HASH_DIGITS
        && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        && (hash == name || matches!(number, Some(Ok(number)) if name == format!("{hash}.{number}")))
}

/// Returns the hash in the name of a copy.
pub fn hash_in(name: &str) -> &str {
    name.split_once('.').map_or(name, |(hash, _)| hash)
}

/// Returns the hash of an archive.
pub fn hash_of(archive: &[u8]) -> String {
    blake3::hash(archive).to_hex()[..HASH_DIGITS].to_string()
}

/// Returns the folder that the property `code` of that platform file names, relative to the folder of the file.
pub fn code_folder(file: &Path, code: &str) -> Result<PathBuf> {
    ensure!(!code.is_empty(), "code is empty: name a folder, such as \".\" for that of this file");
    let folder = match code.strip_prefix("~/") {
        Some(rest) => std::env::home_dir().context("this user has no home folder")?.join(rest),
        None => file.parent().unwrap_or(Path::new("")).join(code),
    };
    let folder = folder.canonicalize().with_context(|| format!("code: '{}'", folder.display()))?;
    ensure!(folder.is_dir(), "code: '{}' is not a folder", folder.display());
    Ok(folder)
}

/// True if an argument is a file inside that folder.
fn is_inside(folder: &Path, word: &str) -> bool {
    Path::new(word).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        && folder.join(word).is_file()
}

/// Returns Python's search path for modules, with that folder first.
pub fn python_path(code: &Path) -> Result<OsString> {
    let before = std::env::var_os(PYTHON_PATH).filter(|path| !path.is_empty());
    let folders = before.iter().flat_map(std::env::split_paths);
    std::env::join_paths(std::iter::once(code.to_path_buf()).chain(folders)).context("the path of Python's modules")
}

/// Environment variable with folders of Python's modules.
pub const PYTHON_PATH: &str = "PYTHONPATH";

/// A scan of a folder.
struct FolderScan<'a> {
    root: &'a Path,
    /// The files, by their paths in the folder.
    files: BTreeMap<PathBuf, FoundFile>,
    left_out: Vec<SkippedFile>,
    ignored: Vec<PathBuf>,
    /// The rules in [`IGNORE_FILES`] of all folders from the root to the current one.
    rules: Vec<Gitignore>,
}

struct FoundFile {
    bytes: u64,
    is_executable: bool,
}

impl FolderScan<'_> {
    fn of(root: &Path) -> Result<FolderScan<'_>> {
        let mut walk =
            FolderScan { root, files: BTreeMap::new(), left_out: Vec::new(), ignored: Vec::new(), rules: Vec::new() };
        walk.enter(Path::new(""))?;
        walk.ignored.sort();
        Ok(walk)
    }

    fn enter(&mut self, inner: &Path) -> Result<()> {
        let folder = self.root.join(inner);
        let at = || format!("code: {}", folder.display());
        let entries = match fs::read_dir(&folder) {
            // If the root itself cannot be read, there is nothing to send.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !inner.as_os_str().is_empty() => {
                self.left_out.push(SkippedFile::unreadable(inner.into(), &error));
                return Ok(());
            }
            read => read.with_context(at)?,
        };
        self.rules.push(rules_of(&folder)?);
        for entry in entries {
            let entry = entry.with_context(at)?;
            let (name, path) = (entry.file_name(), inner.join(entry.file_name()));
            let name = name.to_string_lossy();
            if name.starts_with('.') || name == "__pycache__" || name == "node_modules" || name.ends_with(".pyc") {
                continue;
            }
            let is_link = entry.file_type().with_context(at)?.is_symlink();
            let metadata = match fs::metadata(entry.path()) {
                Ok(metadata) => metadata,
                Err(error) => {
                    let dead =
                        |path| SkippedFile { path, why: format!("is a broken link ({error})"), is_unread: false };
                    self.left_out.push(if is_link { dead(path) } else { SkippedFile::unreadable(path, &error) });
                    continue;
                }
            };
            if self.is_ignored(&path, metadata.is_dir()) {
                self.ignored.push(path);
            } else if metadata.is_dir() && is_link {
                self.left_out.push(SkippedFile { path, why: "is a link to a folder".into(), is_unread: false });
            } else if metadata.is_dir() && !entry.path().join("pyvenv.cfg").exists() {
                self.enter(&path)?;
            } else if metadata.is_file() {
                let is_executable = metadata.permissions().mode() & 0o100 != 0;
                self.files.insert(path, FoundFile { bytes: metadata.len(), is_executable });
                ensure!(
                    self.files.len() <= CODE_FILES_MAX,
                    "code: '{}' has more than {CODE_FILES_MAX} files: name a folder that contains only the modules",
                    self.root.display()
                );
            }
        }
        self.rules.pop();
        Ok(())
    }

    /// True if the path is ignored. The innermost folder whose rules match the path decides.
    fn is_ignored(&self, path: &Path, is_folder: bool) -> bool {
        let whole = self.root.join(path);
        let matches = self.rules.iter().rev().map(|rules| rules.matched(&whole, is_folder));
        matches.into_iter().find(|found| !found.is_none()).is_some_and(|found| matches!(found, Match::Ignore(_)))
    }

    fn check(&self) -> Result<()> {
        let bytes: u64 = self.files.values().map(|file| file.bytes).sum();
        ensure!(!self.files.is_empty(), "code: '{}' has no file that could be sent", self.root.display());
        if bytes > CODE_BYTES_MAX {
            let (path, largest) = self.files.iter().max_by_key(|(_, file)| file.bytes).context("no file")?;
            bail!(
                "code: '{}' has {}, and at most {} are sent; the largest file is '{}' with {}: keep data elsewhere, \
                 for example in a folder whose name begins with a dot, or name a folder that contains only the modules",
                self.root.display(),
                size_text(bytes),
                size_text(CODE_BYTES_MAX),
                path.display(),
                size_text(largest.bytes)
            );
        }
        Ok(())
    }
}

/// Reads the ignore rules of a folder.
fn rules_of(folder: &Path) -> Result<Gitignore> {
    let mut rules = GitignoreBuilder::new(folder);
    for file in IGNORE_FILES.map(|name| folder.join(name)).iter().filter(|file| file.is_file()) {
        // Lines that git cannot interpret are skipped, as git does.
        if let Some(error) = rules.add(file).and_then(ignore::Error::into_io_error) {
            return Err(error).with_context(|| format!("code: {}", file.display()));
        }
    }
    rules.build().with_context(|| format!("code: the rules in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a function with a folder that contains these files; the folder is removed afterwards.
    fn with_folder<T>(name: &str, files: &[&str], run: impl FnOnce(&Path) -> T) -> T {
        let folder = std::env::temp_dir().join(format!("gridloom-code-{}-{name}", std::process::id()));
        for file in files {
            let file = folder.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "x = 1\n").unwrap();
        }
        let result = run(&folder);
        fs::remove_dir_all(&folder).unwrap();
        result
    }

    #[test]
    fn modules_are_sent_and_what_tools_leave_is_not() {
        let sent = ["functions.py", "package/__init__.py", "package/data.txt"];
        let left =
            [".git/HEAD", ".env", "__pycache__/functions.cpython-311.pyc", "old.pyc", "env/pyvenv.cfg", "env/a.py"];
        with_folder("kinds", &[&sent[..], &left[..]].concat(), |folder| {
            std::os::unix::fs::symlink("package", folder.join("link")).unwrap();
            std::os::unix::fs::symlink("nowhere", folder.join("broken")).unwrap();
            let code = Code::pack(folder).unwrap();
            let files: Vec<_> = code.files.iter().map(|(path, _)| path.to_str().unwrap()).collect();
            assert_eq!((files, code.bytes()), (sent.to_vec(), 18));
            let mut left: Vec<_> =
                code.skipped.iter().map(|left| (left.path.to_str().unwrap(), &left.why[..])).collect();
            left.sort_unstable();
            let [("broken", broken), ("link", "is a link to a folder")] = left[..] else { panic!("{left:?}") };
            assert!(broken.starts_with("is a broken link (No such file"), "{broken}");
            assert!(!is_whole(folder, &code.hash).unwrap());
            for link in ["link", "broken"] {
                fs::remove_file(folder.join(link)).unwrap();
            }
            assert!(is_whole(folder, &code.hash).unwrap());
            fs::write(folder.join("more.py"), "").unwrap();
            assert!(!is_whole(folder, &code.hash).unwrap());
            fs::write(folder.join(".gitignore"), "more.py").unwrap();
            assert!(Code::pack(folder).unwrap().hash == code.hash && !is_whole(folder, &code.hash).unwrap());
            fs::remove_file(folder.join(".gitignore")).unwrap();
            assert!(!is_whole(&folder.join("more.py"), &code.hash).unwrap());
            assert!(!is_whole(&folder.join("__pycache__"), &code.hash).unwrap());
            // A file that even root cannot read.
            std::os::unix::fs::symlink("/proc/self/mem", folder.join("unread.py")).unwrap();
            assert!(is_whole(folder, &code.hash).is_err());
            fs::remove_file(folder.join("unread.py")).unwrap();
            let sent = SentFiles::default();
            assert!(sent.has(folder, "functions.py").unwrap() && sent.has(folder, "./package/data.txt").unwrap());
            assert!(!sent.has(folder, "--run-code").unwrap() && !sent.has(folder, "../functions.py").unwrap());
            for left in [".env", "env/a.py"] {
                let why = sent.has(folder, left).unwrap_err().to_string();
                assert!(why.contains(left) && why.contains("is not sent"), "{why}");
            }
        });
    }

    #[test]
    fn files_that_git_ignores_are_left_out_and_named() {
        let files =
            ["a.py", "built.so", "kept.so", "data/field.bin", "package/b.py", "package/notes.txt", "package/own/c.log"];
        with_folder("ignored", &files, |folder| {
            fs::write(folder.join(".gitignore"), "*.so\n/data/\n# none\n[\n").unwrap();
            fs::write(folder.join(".gridloomignore"), "!kept.so\n*.log\n").unwrap();
            fs::write(folder.join("package/.gitignore"), "notes.txt\n!c.log\n").unwrap();
            let code = Code::pack(folder).unwrap();
            let files: Vec<_> = code.files.iter().map(|(path, _)| path.to_str().unwrap()).collect();
            assert_eq!(files, ["a.py", "kept.so", "package/b.py", "package/own/c.log"]);
            assert_eq!(code.ignored, ["built.so", "data", "package/notes.txt"].map(Path::new));
            assert_eq!(code.ignored_text(), "built.so, data, package/notes.txt");
            let why = SentFiles::default().has(folder, "built.so").unwrap_err().to_string();
            assert!(why.contains("'!built.so' in .gridloomignore"), "{why}");
        });
    }

    #[test]
    fn what_cannot_be_read_is_left_out_and_named() {
        with_folder("unreadable", &["a.py", "closed.py", "closed/b.py"], |folder| {
            let closed = ["closed", "closed.py"];
            let set = |mode| {
                let mode = fs::Permissions::from_mode(mode);
                closed.iter().for_each(|path| fs::set_permissions(folder.join(path), mode.clone()).unwrap());
            };
            set(0);
            let can_read = fs::read_dir(folder.join("closed")).is_ok();
            let code = Code::pack(folder);
            set(0o700);
            if can_read {
                // Root can read everything.
                return;
            }
            let code = code.unwrap();
            let files: Vec<_> = code.files.iter().map(|(path, _)| path.to_str().unwrap()).collect();
            let left: Vec<_> = code.skipped.iter().map(|left| left.path.to_str().unwrap()).collect();
            assert_eq!((files, left), (vec!["a.py"], closed.to_vec()));
            assert!(code.skipped[0].why.starts_with("cannot be read (Permission denied"));
        });
    }

    #[test]
    fn the_hash_is_of_names_bytes_and_rights_alone() {
        let files = ["a.py", "b/c.py"];
        let one = with_folder("one", &files, |folder| Code::pack(folder).unwrap().hash);
        let hash = with_folder("other", &files, |folder| {
            let same = Code::pack(folder).unwrap().hash;
            assert_eq!(same, one);
            assert!(is_copy(&same) && is_copy(&format!("{same}.2")) && hash_in(&format!("{same}.2")) == same);
            for name in [
                "../../../../../../../../etc/passwd".into(),
                format!("{same}.2/.."),
                format!("{same}.+2"),
                format!("{same}."),
            ] {
                assert!(!is_copy(&name), "{name}");
            }
            let program = folder.join("a.py");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            let executable = Code::pack(folder).unwrap().hash;
            fs::write(&program, "x = 2\n").unwrap();
            [same, executable, Code::pack(folder).unwrap().hash]
        });
        assert!(hash[0] != hash[1] && hash[1] != hash[2], "{hash:?}");
    }

    #[test]
    fn a_folder_that_is_too_large_names_its_largest_file() {
        let why = with_folder("large", &["a.py", "data/field.bin"], |folder| {
            let large = fs::File::options().write(true).open(folder.join("data/field.bin")).unwrap();
            // A sparse file.
            large.set_len(CODE_BYTES_MAX).unwrap();
            Code::pack(folder).err().unwrap().to_string()
        });
        assert!(why.contains("at most 100") && why.contains("'data/field.bin'"), "{why}");
        let why = with_folder("empty", &[".hidden"], |folder| Code::pack(folder).err().unwrap().to_string());
        assert!(why.contains("has no file"), "{why}");
    }
}
