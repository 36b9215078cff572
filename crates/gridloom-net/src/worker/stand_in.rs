//! What a native function gets where that is not the value itself: strings that end in a zero byte, and files. Made
//! before the call, read after it.
//!
//! A string that a function of C sets goes by `char **`: what is there is the function's to free or to keep, and what it
//! leaves there came from `malloc` and is freed here. A subroutine of FORTRAN has room for [`TEXT_BYTES_DEFAULT`] bytes.
//!
//! A file of a call lies in a folder of the call's own, which goes with it.

use std::ffi::{CStr, c_char, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use gridloom_core::base::{Meta, TaskError};
use gridloom_core::idl::{BaseType, Language, Param};

use super::convert::Aligned;
use super::values::cannot_run;
use super::{ArgView, OutView, Room};

/// Room for a text result of FORTRAN, and at least for one that is updated in place.
const TEXT_BYTES_DEFAULT: usize = 64 << 10;

/// The stand-ins of one call.
pub(super) struct StandIns<'a> {
    language: Language,
    /// Where the call's folder is made, if it needs one.
    scratch: &'a Path,
    folder: Option<Folder>,
    all: Vec<StandIn>,
}

struct StandIn {
    what: What,
    /// Its place among the results, if it is one.
    out: Option<usize>,
}

enum What {
    /// A string in room of its own; `capacity` without the zero byte at its end.
    Text { memory: Aligned, capacity: usize },
    /// Where a pointer to a string is put, and taken from.
    Pointer(Box<AllocatedText>),
    /// A file's path, which is none if the file is not there and is not wanted.
    File { path: PathBuf, memory: Aligned, length: usize },
}

impl StandIns<'_> {
    pub(super) fn new(language: Language, scratch: &Path) -> StandIns<'_> {
        StandIns { language, scratch, folder: None, all: Vec::new() }
    }

    /// Whether a parameter of that type goes by a stand-in.
    pub(super) fn are_for(base: BaseType) -> bool {
        matches!(base, BaseType::Text | BaseType::String | BaseType::File)
    }

    /// What is passed for a constant text.
    pub(super) fn constant(&mut self, text: &str) -> *const u8 {
        let what = What::text(text.as_bytes(), text.len(), self.language);
        self.push(what, None)
    }

    /// What is passed for a parameter; `old` is its value if it is an input, `out` its place among the results.
    pub(super) fn param(
        &mut self,
        param: &Param,
        old: Option<&ArgView<'_>>,
        out: Option<usize>,
    ) -> Result<*const u8, TaskError> {
        if param.base == BaseType::File {
            return self.file(param, old, out);
        }
        let old = old.map_or(&[][..], |old| old.bytes);
        let what = match (out, self.language) {
            (Some(_), Language::C) => What::Pointer(Box::new(AllocatedText::new(old, param.is_input()))),
            (Some(_), Language::Fortran) => What::text(old, old.len().max(TEXT_BYTES_DEFAULT), self.language),
            (None, _) => What::text(old, old.len(), self.language),
        };
        Ok(self.push(what, out))
    }

    /// The lengths that FORTRAN gets behind its arguments.
    pub(super) fn lengths(&self) -> Vec<usize> {
        let length = |stand_in: &StandIn| match &stand_in.what {
            What::Text { capacity, .. } => *capacity,
            What::File { length, .. } => *length,
            What::Pointer(_) => unreachable!("FORTRAN gets its strings in room of their own"),
        };
        self.all.iter().map(length).collect()
    }

    /// Takes the results over, after the call.
    pub(super) fn finish(mut self, outs: &mut [OutView<'_>]) -> Result<(), TaskError> {
        for StandIn { what, out } in &mut self.all {
            let Some(out) = out.map(|at| &mut outs[at]) else { continue };
            match what {
                What::Text { memory, capacity } => put_text(out, left(&memory.bytes()[..*capacity], self.language)),
                What::Pointer(text) => text.read(|bytes| put_text(out, bytes)),
                What::File { path, .. } => put_file(out, path)?,
            }
        }
        Ok(())
    }

    fn push(&mut self, what: What, out: Option<usize>) -> *const u8 {
        self.all.push(StandIn { what, out });
        match &mut self.all.last_mut().expect("it was pushed just now").what {
            What::Text { memory, .. } => memory.bytes_mut().as_ptr(),
            What::Pointer(text) => std::ptr::from_mut(&mut text.0).cast(),
            What::File { path, .. } if path.as_os_str().is_empty() => std::ptr::null(),
            What::File { memory, .. } => memory.bytes_mut().as_ptr(),
        }
    }

    /// The file of a parameter, made if it is an input that is there.
    fn file(&mut self, param: &Param, old: Option<&ArgView<'_>>, out: Option<usize>) -> Result<*const u8, TaskError> {
        let content = old.filter(|old| matches!(old.meta, Meta::Bytes { .. }));
        if content.is_none() && out.is_none() {
            let none = What::File { path: PathBuf::new(), memory: Aligned::zeroed(1), length: 0 };
            return Ok(self.push(none, None));
        }
        let unwritable = |path: &Path, error: io::Error| {
            cannot_run(format!(
                "the file of argument '{}' cannot be made: {}: {error}; make room there, or give the server another \
                 folder by TMPDIR",
                param.name,
                path.display()
            ))
        };
        if self.folder.is_none() {
            self.folder = Some(Folder::new(self.scratch).map_err(|error| unwritable(self.scratch, error))?);
        }
        let folder = self.folder.as_ref().expect("it was made just now");
        let path = folder.0.join(format!("{}-{}", self.all.len(), param.name));
        if let Some(content) = content {
            std::fs::write(&path, content.bytes).map_err(|error| unwritable(&path, error))?;
        }
        let bytes = path.as_os_str().as_bytes();
        let length = bytes.len();
        let mut memory = Aligned::zeroed(length + 1);
        memory.bytes_mut()[..length].copy_from_slice(bytes);
        Ok(self.push(What::File { path, memory, length }, out))
    }
}

impl What {
    /// Room of `capacity` bytes that holds a string: ended by a zero byte, in FORTRAN filled with blanks.
    fn text(old: &[u8], capacity: usize, language: Language) -> What {
        let mut memory = Aligned::zeroed(capacity + 1);
        memory.bytes_mut()[..old.len()].copy_from_slice(old);
        if language == Language::Fortran {
            memory.bytes_mut()[old.len()..capacity].fill(b' ');
        }
        What::Text { memory, capacity }
    }
}

/// What a function left in a string's room: up to the zero byte, in FORTRAN without the blanks that fill the room.
fn left(bytes: &[u8], language: Language) -> &[u8] {
    match language {
        Language::C => &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())],
        Language::Fortran => &bytes[..bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1)],
    }
}

/// A result that is a string: text if it can be.
fn put_text(out: &mut OutView<'_>, bytes: &[u8]) {
    if let Room::Growing(room) = &mut out.room {
        room.clear();
        room.extend_from_slice(bytes);
        let size_bytes = bytes.len() as u64;
        out.meta = match std::str::from_utf8(bytes) {
            Ok(_) => Meta::Text { size_bytes },
            Err(_) => Meta::Bytes { size_bytes },
        };
    }
}

/// A result that is a file, or an empty text if the function made none.
fn put_file(out: &mut OutView<'_>, path: &Path) -> Result<(), TaskError> {
    let Room::Growing(room) = &mut out.room else { return Ok(()) };
    room.clear();
    match std::fs::read(path) {
        Ok(bytes) => {
            out.meta = Meta::Bytes { size_bytes: bytes.len() as u64 };
            **room = bytes;
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            out.meta = Meta::Text { size_bytes: 0 };
            Ok(())
        }
        Err(error) => {
            let why = format!("a file that cannot be read: {}: {error}", path.display());
            Err(TaskError::WrongResult { function: String::new(), server: String::new(), why })
        }
    }
}

/// A string of the function's or of `malloc`, or null.
struct AllocatedText(*mut c_char);

impl AllocatedText {
    fn new(old: &[u8], is_given: bool) -> AllocatedText {
        if !is_given {
            return AllocatedText(std::ptr::null_mut());
        }
        // SAFETY: `malloc` gives room for the string and its end, or null, which is left as no string.
        unsafe {
            let memory: *mut c_char = libc::malloc(old.len() + 1).cast();
            if !memory.is_null() {
                std::ptr::copy_nonoverlapping(old.as_ptr(), memory.cast(), old.len());
                memory.add(old.len()).write(0);
            }
            AllocatedText(memory)
        }
    }

    fn read(&self, take: impl FnOnce(&[u8])) {
        if self.0.is_null() {
            return take(&[]);
        }
        // SAFETY: what the function leaves there is null or a string that ends in a zero byte, as its description says.
        take(unsafe { CStr::from_ptr(self.0) }.to_bytes());
    }
}

impl Drop for AllocatedText {
    fn drop(&mut self) {
        // SAFETY: null, ours, or the function's from `malloc`, as its description says; nobody else has it now.
        unsafe { libc::free(self.0.cast::<c_void>()) };
    }
}

/// A folder that is removed with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn new(path: &Path) -> io::Result<Folder> {
        std::fs::DirBuilder::new().mode(0o700).create(path)?;
        Ok(Folder(path.to_path_buf()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is removed by the server when the worker ends.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_ends_where_its_language_says() {
        assert_eq!(left(b"one\0two", Language::C), b"one");
        assert_eq!(left(b"one", Language::C), b"one");
        assert_eq!(left(b"one two  ", Language::Fortran), b"one two");
        assert_eq!(left(b"   ", Language::Fortran), b"");
    }

    #[test]
    fn a_file_that_cannot_be_made_is_told_by_its_path() {
        let missing = Path::new("/nowhere/at/all");
        let mut stand_ins = StandIns::new(Language::C, missing);
        let param = Param::scalar("text", gridloom_core::idl::Mode::In, BaseType::File);
        let old = ArgView { meta: Meta::Bytes { size_bytes: 1 }, bytes: b"x", mapping: None };
        let error = stand_ins.param(&param, Some(&old), None).unwrap_err().to_string();
        assert!(error.contains("'text'") && error.contains("/nowhere/at/all") && error.contains("TMPDIR"), "{error}");
    }
}
