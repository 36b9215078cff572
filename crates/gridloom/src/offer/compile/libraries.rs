//! Finds libraries given as linker options (`-L/opt/lib -llapack libfoo.so libbar.a`) on this machine.
//!
//! Shared libraries are loaded as they are, whether their development files are installed (`liblapack.so`) or not
//! (`liblapack.so.3`). Archives and object files have to be linked into a library first.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::Error;

/// The libraries found.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    /// Shared libraries, in order.
    pub(crate) shared: Vec<PathBuf>,
    /// All of them, as linker arguments.
    pub(crate) link: Vec<OsString>,
    /// Archives and object files.
    pub(crate) archives: Vec<PathBuf>,
    /// Archives and object files that do not exist.
    pub(crate) missing: Vec<PathBuf>,
}

impl Libraries {
    /// Finds all libraries that the texts name. File names are relative to the folder of the description, `file`.
    ///
    /// # Errors
    /// If a library `-lname` is not found, with the searched places, a word is a makefile variable, or a quotation mark is not
    /// closed.
    pub(crate) fn find(texts: &[String], file: &Path) -> Result<Libraries, Error> {
        let folder = file.parent().unwrap_or(Path::new(""));
        let mut words = Vec::new();
        for text in texts {
            words.extend(words_of(text, file)?);
        }
        let own = words.iter().filter_map(|word| Some(folder.join(word.strip_prefix("-L")?)));
        let own: Vec<PathBuf> = own.map(|folder| std::path::absolute(&folder).unwrap_or(folder)).collect();
        let mut found = Libraries::default();
        for word in &words {
            if word.starts_with("-L") {
                continue;
            }
            if word.starts_with("$(") || word.starts_with("${") {
                let why = format!(
                    "'{word}' is a variable of the makefiles that GridSolve's descriptions were built with: write the \
                     libraries that it stands for, such as \"-llapack -lblas\""
                );
                return Err(wrong(file, &why));
            }
            match word.strip_prefix("-l") {
                Some(name) => found.by_name(name, &own).map_err(|why| wrong(file, &why))?,
                None if word.starts_with('-') => found.link.push(word.into()),
                None => found.by_file(word, folder),
            }
        }
        Ok(found)
    }

    fn by_name(&mut self, name: &str, own: &[PathBuf]) -> Result<(), String> {
        let places: Vec<PathBuf> = own.iter().cloned().chain(library_folders()).collect();
        if let Some(library) = places.iter().find_map(|place| shared_in(place, name)) {
            self.push_shared(library);
            return Ok(());
        }
        let archive = format!("lib{name}.a");
        if let Some(archive) = places.iter().map(|place| place.join(&archive)).find(|path| path.is_file()) {
            self.link.push(archive.clone().into());
            self.archives.push(archive);
            return Ok(());
        }
        let mut told: Vec<String> = Vec::new();
        for place in places.iter().filter(|place| place.is_dir()).map(|place| place.display().to_string()) {
            if !told.contains(&place) {
                told.push(place);
            }
        }
        Err(format!(
            "library '-l{name}' is not found: there is no lib{name}.so, lib{name}.so.N or lib{name}.a in {}; install it, \
             or name its folder, as in \"-L/folder -l{name}\"",
            told.join(", ")
        ))
    }

    fn by_file(&mut self, word: &str, folder: &Path) {
        let beside = folder.join(word);
        let path = std::path::absolute(&beside).unwrap_or(beside);
        let is_archive = word.ends_with(".a") || word.ends_with(".o");
        if path.exists() && !is_archive {
            self.push_shared(path);
        } else if path.exists() {
            self.link.push(path.clone().into());
            self.archives.push(path);
        } else if is_archive {
            self.missing.push(path);
        } else {
            // The system's loader finds it, or reports that it is missing.
            self.shared.push(PathBuf::from(word));
            self.link.push(if word.contains('/') { word.into() } else { format!("-l:{word}").into() });
        }
    }

    fn push_shared(&mut self, path: PathBuf) {
        self.link.push(path.clone().into());
        if !self.shared.contains(&path) {
            self.shared.push(path);
        }
    }
}

/// Returns the linker's arguments for libraries that a server has loaded, besides those that the description names, and
/// the files of these libraries. Bodies may call their functions; the linker leaves out a library that is not used. A
/// loaded body finds them in the folders where they are now. A name that only the system's loader finds has no file,
/// and is not linked.
pub(super) fn linked_if_used(named: &[PathBuf]) -> (Vec<OsString>, Vec<PathBuf>) {
    let files: Vec<PathBuf> = named.iter().filter_map(|library| file_of(library)).collect();
    if files.is_empty() {
        return (Vec::new(), files);
    }
    let mut arguments: Vec<OsString> = ["-Wl,--push-state", "-Wl,--as-needed"].map(OsString::from).into();
    for path in &files {
        let folder = path.parent().unwrap_or(Path::new("/")).as_os_str().to_owned();
        let option = ["-Xlinker", "-rpath", "-Xlinker"].map(OsString::from);
        arguments.extend([path.into()].into_iter().chain(option).chain([folder]));
    }
    arguments.push("-Wl,--pop-state".into());
    (arguments, files)
}

/// Returns the file of a library: itself, or, for a name without a folder, that in a folder of libraries.
fn file_of(library: &Path) -> Option<PathBuf> {
    if let Some(path) = std::path::absolute(library).ok().filter(|path| path.exists()) {
        return Some(path);
    }
    if library.components().count() != 1 {
        return None;
    }
    library_folders().into_iter().map(|folder| folder.join(library)).find(|path| is_elf(path))
}

/// Splits a text into words. A text is a list of linker options, in which words with blanks are quoted, or the name of an
/// existing file, which may contain blanks. `-L` and `-l` may be separate from their values.
fn words_of(text: &str, file: &Path) -> Result<Vec<String>, Error> {
    if file.parent().unwrap_or(Path::new("")).join(text).is_file() {
        return Ok(vec![text.to_string()]);
    }
    let mut words: Vec<String> = Vec::new();
    for word in split(text, file)? {
        match words.last_mut() {
            Some(last) if last == "-L" || last == "-l" => last.push_str(&word),
            _ => words.push(word),
        }
    }
    Ok(words)
}

/// Splits a text of a description into words, of which those with blanks are quoted.
///
/// # Errors
/// If a quotation mark is not closed.
pub(super) fn split(text: &str, file: &Path) -> Result<Vec<String>, Error> {
    shlex::split(text).ok_or_else(|| wrong(file, &format!("'{text}': a quotation mark is not closed")))
}

/// Returns the library of that name in a folder: `libname.so` if that is a library (not a linker script), else the newest
/// `libname.so.N`.
fn shared_in(folder: &Path, name: &str) -> Option<PathBuf> {
    let plain = folder.join(format!("lib{name}.so"));
    if is_elf(&plain) {
        return Some(plain);
    }
    let prefix = format!("lib{name}.so.");
    let mut found: Vec<(Vec<u64>, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let file = entry.file_name();
        let version = file.to_str().and_then(|file| file.strip_prefix(&prefix));
        let numbers = version.and_then(|version| version.split('.').map(|part| part.parse().ok()).collect());
        found.extend(numbers.map(|numbers| (numbers, entry.path())));
    }
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).find(|path| is_elf(path))
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

/// Folders in which libraries are searched: those in the environment, and those of distributions.
pub(crate) fn library_folders() -> Vec<PathBuf> {
    let said = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let said: Vec<PathBuf> = std::env::split_paths(&said).filter(|place| !place.as_os_str().is_empty()).collect();
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    let folders = ["/usr/local/lib", "/lib", "/usr/lib"];
    let nested = folders.iter().map(|folder| Path::new(folder).join(&multiarch));
    said.into_iter()
        .chain(nested)
        .chain(["/usr/local/lib64", "/lib64", "/usr/lib64"].map(PathBuf::from))
        .chain(folders.map(PathBuf::from))
        .collect()
}

fn wrong(file: &Path, why: &str) -> Error {
    Error::Input(format!("{}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a folder with files that look like libraries.
    fn folder(name: &str, files: &[&str]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gridloom-libraries-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        files.iter().for_each(|file| fs::write(folder.join(file), b"\x7fELF").unwrap());
        folder
    }

    fn find(texts: &[&str], folder: &Path) -> Result<Libraries, String> {
        let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
        Libraries::find(&texts, &folder.join("x.idl")).map_err(|error| error.to_string())
    }

    #[test]
    fn names_become_files() {
        let files = [
            "libone.so",
            "libone.so.9",
            "libtwo.so.2",
            "libtwo.so.10",
            "libtwo.so.10.1x",
            "libthree.a",
            "my lib.so",
            "f.o",
        ];
        let own = folder("names", &files);
        fs::write(own.join("libtwo.so"), "GROUP ( libtwo.so.2 )").unwrap();
        let found =
            find(&["-L. -lone -l two -pthread", "-lthree f.o gone.o", "my lib.so", "libelse.so.4"], &own).unwrap();
        let at = |name: &str| own.join(name);
        let shared = [at("libone.so"), at("libtwo.so.10"), at("my lib.so"), "libelse.so.4".into()];
        assert_eq!(found.shared, shared);
        assert_eq!(found.archives, [at("libthree.a"), at("f.o")]);
        assert_eq!(found.missing, [at("gone.o")]);
        let link: Vec<OsString> = [
            at("libone.so").into(),
            at("libtwo.so.10").into(),
            "-pthread".into(),
            at("libthree.a").into(),
            at("f.o").into(),
            at("my lib.so").into(),
            "-l:libelse.so.4".into(),
        ]
        .into();
        assert_eq!(found.link, link);
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn named_libraries_are_linked_where_they_are() {
        assert!(linked_if_used(&[]).0.is_empty());
        // Only the system's loader could find it.
        assert!(linked_if_used(&["libno-such-thing.so".into()]).0.is_empty());
        let own = folder("named", &["libfoo.so"]);
        let (found, files) = linked_if_used(&[own.join("libfoo.so"), "libno-such-thing.so.4".into()]);
        assert_eq!(files, [own.join("libfoo.so")]);
        let mut expected: Vec<OsString> = ["-Wl,--push-state", "-Wl,--as-needed"].map(OsString::from).into();
        expected.push(own.join("libfoo.so").into());
        expected.extend(["-Xlinker", "-rpath", "-Xlinker"].map(OsString::from));
        expected.extend([own.clone().into(), "-Wl,--pop-state".into()]);
        assert_eq!(found, expected);
        fs::remove_dir_all(own).unwrap();
    }

    #[test]
    fn a_missing_library_is_reported_with_the_searched_places() {
        let own = folder("nowhere", &[]);
        let error = find(&["-L. -lno-such-thing"], &own).unwrap_err();
        let told = format!("no libno-such-thing.so, libno-such-thing.so.N or libno-such-thing.a in {}", own.display());
        assert!(error.contains(&told) && error.contains("/usr/lib"), "{error}");
        let error = find(&["$(LAPACK_LIBS) -lm"], &own).unwrap_err();
        assert!(error.contains("x.idl: '$(LAPACK_LIBS)' is a variable") && error.contains("-llapack"), "{error}");
        let error = find(&["-L. '-lm"], &own).unwrap_err();
        assert!(error.ends_with("x.idl: '-L. '-lm': a quotation mark is not closed"), "{error}");
        fs::remove_dir_all(own).unwrap();
    }
}
