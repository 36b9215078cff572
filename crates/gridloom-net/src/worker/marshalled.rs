//! Arguments that native functions receive in a different form than the value itself: zero-terminated strings, files,
//! arrays of these ([`super::list`]), whole arrays of which a part was sent, and places for pointers to arrays that
//! the function allocates. They are created before the call and read after it.
//!
//! A string that a C function sets is passed as `char **`: the function may free or keep the old string, and the new
//! one is freed here if it was allocated by `malloc`. A FORTRAN subroutine gets a buffer of [`TEXT_BYTES_DEFAULT`]
//! bytes.
//!
//! The files of a call are stored in a folder of its own, which is removed with the call.

use std::ffi::{CStr, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use gridloom_base::{Meta, TaskError, list};
use gridloom_idl::{BaseType, Language, Mode, Param, WholeArray};

use super::convert::Aligned;
use super::list::{ForeignMemory, List, Stream, duplicated};
use super::values::{cannot_run, refused};
use super::{ArgView, OutView, Room};

/// Buffer size for a text result of FORTRAN, and minimum for a text that is updated in place.
const TEXT_BYTES_DEFAULT: usize = 64 << 10;

/// The marshalled arguments of one call.
pub(super) struct MarshalledArgs<'a> {
    language: Language,
    /// Folder in which the call's own folder is created, if it needs one.
    scratch: &'a Path,
    folder: Option<Folder>,
    /// Number of files in the call's folder.
    files: usize,
    all: Vec<Marshalled>,
}

struct Marshalled {
    what: MarshalledValue,
    /// Its index among the results, if it is one.
    out: Option<usize>,
}

enum MarshalledValue {
    /// A string in a buffer of its own; `capacity` excludes the zero byte at its end.
    Text { memory: Aligned, capacity: usize },
    /// Place of a pointer to a string, which the function may replace.
    Pointer(Box<*mut c_void>),
    /// Place of a pointer to an array that the function allocates; the parameter determines its extents after the call.
    Fresh { pointer: Box<Allocated>, param: usize },
    /// A whole array, of which a part was sent.
    Whole { memory: Aligned, whole: WholeArray },
    /// Path of a file.
    File { path: PathBuf, memory: Aligned, length: usize },
    /// An open file.
    Stream(Stream),
    /// An array of strings or of files.
    List { list: List, mode: Mode },
    /// A null pointer for a string or file that is missing or not wanted.
    Nothing,
}

impl MarshalledArgs<'_> {
    pub(super) fn new(language: Language, scratch: &Path) -> MarshalledArgs<'_> {
        MarshalledArgs { language, scratch, folder: None, files: 0, all: Vec::new() }
    }

    /// Reports whether a parameter is passed as a marshalled copy.
    pub(super) fn are_for(param: &Param) -> bool {
        !matches!(param.base, BaseType::Number(_)) || param.mode == Mode::VarOut || param.slices.is_some()
    }

    /// Returns what is passed for a constant text.
    pub(super) fn constant(&mut self, text: &str) -> *const u8 {
        let what = MarshalledValue::text(text.as_bytes(), text.len(), self.language);
        self.push(what, None)
    }

    /// Returns what is passed for the parameter at `index`. `whole` describes the whole value of which this is a part,
    /// `old` is its value if it is an input, `out` is its index among the results, and `is_wanted` is true if the
    /// caller takes the result.
    pub(super) fn param(
        &mut self,
        index: usize,
        param: &Param,
        whole: Option<WholeArray>,
        old: Option<&ArgView<'_>>,
        out: Option<usize>,
        is_wanted: bool,
    ) -> Result<*const u8, TaskError> {
        match param.base {
            BaseType::File => return self.file(param, old, out, is_wanted),
            BaseType::Stream => {
                let stream = self.stream(&param.name, content_of(old), param.mode)?;
                return Ok(self.push(stream.map_or(MarshalledValue::Nothing, MarshalledValue::Stream), None));
            }
            _ => {}
        }
        if param.mode == Mode::VarOut {
            let pointer = Box::new(Allocated(std::ptr::null_mut()));
            return Ok(self.push(MarshalledValue::Fresh { pointer, param: index }, out));
        }
        if let Some(whole) = whole {
            let mut memory = zeroed(&param.name, whole.size_bytes)?;
            if let Some(old) = old {
                whole.scatter(old.bytes, memory.bytes_mut());
            }
            return Ok(self.push(MarshalledValue::Whole { memory, whole }, out));
        }
        // An old value of zero bytes, as opposed to an empty text, stands for NULL.
        let text = old.filter(|old| !matches!(old.meta, Meta::Bytes { size_bytes: 0 })).map(|old| old.bytes);
        let old = text.unwrap_or_default();
        let what = match (out, self.language) {
            (Some(_), Language::C) => MarshalledValue::Pointer(Box::new(text.map_or(std::ptr::null_mut(), duplicated))),
            (Some(_), Language::Fortran) => {
                MarshalledValue::text(old, old.len().max(TEXT_BYTES_DEFAULT), self.language)
            }
            (None, Language::C) if text.is_none() => MarshalledValue::Nothing,
            (None, _) => MarshalledValue::text(old, old.len(), self.language),
        };
        Ok(self.push(what, out))
    }

    /// Returns what is passed for an array of strings or files with `count` items.
    pub(super) fn list(
        &mut self,
        param: &Param,
        count: usize,
        old: Option<&ArgView<'_>>,
        out: Option<usize>,
    ) -> Result<*const u8, TaskError> {
        let items = match old {
            Some(old) => list::unpack(old.bytes).filter(|items| items.len() == count),
            None => Some(vec![None; count]),
        };
        let items = items.ok_or_else(|| refused(format!("'{}' is not a list of {count} items", param.name)))?;
        let mut list = List::new(param.base, count);
        for item in items {
            match (param.base, param.mode) {
                (BaseType::Stream, Mode::Out) => list.push_stream(None),
                (BaseType::Stream, mode) => list.push_stream(self.stream(&param.name, item, mode)?),
                (BaseType::File, mode) => {
                    let path = match (item, mode) {
                        (None, Mode::In) => None,
                        (content, _) => Some(self.path(&param.name, content)?),
                    };
                    list.push_text(path.as_ref().map(|path| path.as_os_str().as_bytes()))?;
                }
                (_, Mode::In) => list.push_text(item)?,
                _ => list.push_own(item),
            }
        }
        Ok(self.push(MarshalledValue::List { list, mode: param.mode }, out))
    }

    /// Returns the lengths that FORTRAN receives after its arguments.
    pub(super) fn lengths(&self) -> Vec<usize> {
        let length = |marshalled: &Marshalled| match &marshalled.what {
            MarshalledValue::Text { capacity, .. } => *capacity,
            MarshalledValue::File { length, .. } => *length,
            MarshalledValue::Whole { .. } | MarshalledValue::Nothing => 0,
            MarshalledValue::Pointer(_)
            | MarshalledValue::Fresh { .. }
            | MarshalledValue::Stream(_)
            | MarshalledValue::List { .. } => {
                unreachable!("FORTRAN gets everything in room of its own")
            }
        };
        let strings = self.all.iter().filter(|marshalled| !matches!(marshalled.what, MarshalledValue::Whole { .. }));
        strings.map(length).collect()
    }

    /// Stores the results after the call. `describe` returns the description of a parameter's result, given the other results.
    pub(super) fn finish(
        mut self,
        args: &[ArgView<'_>],
        outs: &mut [OutView<'_>],
        describe: impl Fn(usize, &[OutView<'_>]) -> Result<Meta, TaskError>,
    ) -> Result<(), TaskError> {
        let taken = self.take(outs, describe);
        let mut ours = ForeignMemory::default();
        args.iter().for_each(|arg| ours.add(arg.bytes));
        outs.iter().for_each(|out| ours.add(out.room.bytes()));
        for Marshalled { what, .. } in &self.all {
            match what {
                MarshalledValue::Text { memory, .. }
                | MarshalledValue::Whole { memory, .. }
                | MarshalledValue::File { memory, .. } => ours.add(memory.bytes()),
                MarshalledValue::List { list, .. } => list.texts().for_each(|text| ours.add(text)),
                MarshalledValue::Pointer(_)
                | MarshalledValue::Fresh { .. }
                | MarshalledValue::Stream(_)
                | MarshalledValue::Nothing => {}
            }
        }
        for Marshalled { what, .. } in &mut self.all {
            match what {
                MarshalledValue::Pointer(pointer) => ours.free(**pointer),
                MarshalledValue::List { list, mode } => list.release(*mode, &mut ours),
                _ => {}
            }
        }
        taken
    }

    fn take(
        &mut self,
        outs: &mut [OutView<'_>],
        describe: impl Fn(usize, &[OutView<'_>]) -> Result<Meta, TaskError>,
    ) -> Result<(), TaskError> {
        for Marshalled { what, out } in &mut self.all {
            let Some(at) = *out else { continue };
            if let MarshalledValue::Fresh { pointer, param } = what {
                let meta = describe(*param, outs)?;
                put_array(&mut outs[at], meta, pointer)?;
                continue;
            }
            let out = &mut outs[at];
            match what {
                MarshalledValue::Fresh { .. } => unreachable!("taken above"),
                MarshalledValue::Whole { memory, whole } => {
                    if let Room::Fixed(room) = &mut out.room {
                        whole.gather(memory.bytes(), room);
                    }
                }
                MarshalledValue::Text { memory, capacity } => {
                    put_text(out, Some(left(&memory.bytes()[..*capacity], self.language)))
                }
                MarshalledValue::Pointer(text) => {
                    let is_set = !text.is_null();
                    // SAFETY: the function leaves null or a zero-terminated string there, as its description states.
                    put_text(out, is_set.then(|| unsafe { CStr::from_ptr(text.cast()) }.to_bytes()));
                }
                MarshalledValue::File { path, .. } => put_file(out, path)?,
                MarshalledValue::List { list, .. } => list.read(out)?,
                MarshalledValue::Stream(_) | MarshalledValue::Nothing => {}
            }
        }
        Ok(())
    }

    fn push(&mut self, what: MarshalledValue, out: Option<usize>) -> *const u8 {
        self.all.push(Marshalled { what, out });
        match &mut self.all.last_mut().expect("it was pushed just now").what {
            MarshalledValue::Text { memory, .. } => memory.bytes_mut().as_ptr(),
            MarshalledValue::Pointer(pointer) => std::ptr::from_mut(&mut **pointer).cast(),
            MarshalledValue::Fresh { pointer, .. } => std::ptr::from_mut(&mut pointer.0).cast(),
            MarshalledValue::Whole { memory, .. } | MarshalledValue::File { memory, .. } => memory.bytes_mut().as_ptr(),
            MarshalledValue::Stream(stream) => stream.address(),
            MarshalledValue::List { list, .. } => list.address(),
            MarshalledValue::Nothing => std::ptr::null(),
        }
    }

    /// Creates the file of a parameter, with content if it is an input that exists.
    fn file(
        &mut self,
        param: &Param,
        old: Option<&ArgView<'_>>,
        out: Option<usize>,
        is_wanted: bool,
    ) -> Result<*const u8, TaskError> {
        let content = content_of(old);
        if content.is_none() && !(out.is_some() && is_wanted) {
            return Ok(self.push(MarshalledValue::Nothing, out));
        }
        let path = self.path(&param.name, content)?;
        let bytes = path.as_os_str().as_bytes();
        let length = bytes.len();
        let mut memory = Aligned::zeroed(length + 1);
        memory.bytes_mut()[..length].copy_from_slice(bytes);
        Ok(self.push(MarshalledValue::File { path, memory, length }, out))
    }

    fn stream(&mut self, name: &str, content: Option<&[u8]>, mode: Mode) -> Result<Option<Stream>, TaskError> {
        let Some(content) = content else { return Ok(None) };
        let path = self.path(name, Some(content))?;
        Stream::open(&path, mode).map(Some).map_err(|error| unwritable(name, &path, &error))
    }

    /// Returns a new path in the call's own folder, and creates the file if `content` is given.
    fn path(&mut self, name: &str, content: Option<&[u8]>) -> Result<PathBuf, TaskError> {
        if self.folder.is_none() {
            self.folder = Some(Folder::new(self.scratch).map_err(|error| unwritable(name, self.scratch, &error))?);
        }
        let folder = self.folder.as_ref().expect("it was made just now");
        let path = folder.0.join(format!("{}-{name}", self.files));
        self.files += 1;
        if let Some(content) = content {
            std::fs::write(&path, content).map_err(|error| unwritable(name, &path, &error))?;
        }
        Ok(path)
    }
}

/// Returns the content of a file, if it exists.
fn content_of<'a>(old: Option<&ArgView<'a>>) -> Option<&'a [u8]> {
    old.filter(|old| matches!(old.meta, Meta::Bytes { .. })).map(|old| old.bytes)
}

fn unwritable(name: &str, path: &Path, error: &io::Error) -> TaskError {
    cannot_run(format!(
        "the file of argument '{name}' cannot be created: {}: {error}; free disk space there, or set TMPDIR to \
         another folder for the server",
        path.display()
    ))
}

impl MarshalledValue {
    /// Creates a buffer of `capacity` bytes that contains a string, terminated by a zero byte, or padded with blanks in FORTRAN.
    fn text(old: &[u8], capacity: usize, language: Language) -> MarshalledValue {
        let mut memory = Aligned::zeroed(capacity + 1);
        memory.bytes_mut()[..old.len()].copy_from_slice(old);
        if language == Language::Fortran {
            memory.bytes_mut()[old.len()..capacity].fill(b' ');
        }
        MarshalledValue::Text { memory, capacity }
    }
}

/// Returns the string that a function left in its buffer: up to the zero byte, or in FORTRAN without trailing blanks.
fn left(bytes: &[u8], language: Language) -> &[u8] {
    match language {
        Language::C => &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())],
        Language::Fortran => &bytes[..bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1)],
    }
}

/// Stores a string result: as text if it is valid, and as no bytes for NULL.
fn put_text(out: &mut OutView<'_>, text: Option<&[u8]>) {
    if let Room::Growing(room) = &mut out.room {
        let bytes = text.unwrap_or_default();
        room.clear();
        room.extend_from_slice(bytes);
        let size_bytes = bytes.len() as u64;
        out.meta = match std::str::from_utf8(bytes) {
            Ok(_) if text.is_some() => Meta::Text { size_bytes },
            _ => Meta::Bytes { size_bytes },
        };
    }
}

/// Stores a file result, or an empty text if the function created no file.
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
            let why = format!("it created a file that cannot be read: {}: {error}", path.display());
            Err(TaskError::WrongResult { function: String::new(), server: String::new(), why })
        }
    }
}

/// Stores an array that the function allocated.
fn put_array(out: &mut OutView<'_>, meta: Meta, made: &Allocated) -> Result<(), TaskError> {
    let Room::Growing(room) = &mut out.room else { return Ok(()) };
    let (size, left) = (meta.size_bytes() as usize, made.size_bytes());
    if size > left {
        let why = format!(
            "{meta} has {size} bytes, but the function set memory of {left} bytes; it must set the pointer to memory \
             of malloc"
        );
        return Err(TaskError::WrongResult { function: String::new(), server: String::new(), why });
    }
    room.clear();
    if size > 0 {
        // SAFETY: memory of `malloc`, as the function's description states, of at least this size.
        room.extend_from_slice(unsafe { std::slice::from_raw_parts(made.0.cast(), size) });
    }
    out.meta = meta;
    Ok(())
}

/// Allocates memory for a whole array.
fn zeroed(name: &str, size_bytes: u64) -> Result<Aligned, TaskError> {
    let size = usize::try_from(size_bytes).ok().filter(|size| *size < isize::MAX as usize / 2);
    let size = size.ok_or_else(|| {
        refused(format!("'{name}' has {size_bytes} bytes in total, more than this machine can address"))
    })?;
    Ok(Aligned::zeroed(size))
}

/// Memory of `malloc` that the function allocated for an array, or null.
struct Allocated(*mut c_void);

impl Allocated {
    /// Returns the usable size, which is at least the requested one.
    fn size_bytes(&self) -> usize {
        // SAFETY: null, or memory of `malloc`, as the function's description states.
        unsafe { libc::malloc_usable_size(self.0) }
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: null, or allocated by the function with `malloc`, as its description states; nothing else refers to it now.
        unsafe { libc::free(self.0) };
    }
}

/// A folder that is removed together with its content.
struct Folder(PathBuf);

impl Folder {
    fn new(path: &Path) -> io::Result<Folder> {
        std::fs::DirBuilder::new().mode(0o700).create(path)?;
        Ok(Folder(path.to_path_buf()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If this fails, the server removes the rest when the worker ends.
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
    fn a_file_that_cannot_be_made_is_reported_by_its_path() {
        let missing = Path::new("/nowhere/at/all");
        let mut marshalled = MarshalledArgs::new(Language::C, missing);
        let param = Param::scalar("text", gridloom_idl::Mode::In, BaseType::File);
        let old = ArgView { meta: Meta::Bytes { size_bytes: 1 }, bytes: b"x", mapping: None, datum: None };
        let error = marshalled.param(0, &param, None, Some(&old), None, true).unwrap_err().to_string();
        assert!(error.contains("'text'") && error.contains("/nowhere/at/all") && error.contains("TMPDIR"), "{error}");
    }
}
