//! Arrays of strings, of file paths and of open files, as native functions receive them: pointers to their items,
//! which the function may set if they are results. Single open files are handled here, too.
//!
//! The string that a function leaves in an item is either allocated by `malloc`, and freed here, or it is a literal, a
//! library variable or one of the inputs, which are not freed ([`ForeignMemory`]).

use std::ffi::{CStr, CString, OsStr, c_void};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use gridloom_base::{Meta, TaskError, list};
use gridloom_idl::{BaseType, Mode};

use super::values::refused;
use super::{OutView, Room};

/// An array whose items are pointers.
pub(super) struct List {
    base: BaseType,
    /// The pointers, as the function sees and sets them.
    pointers: Vec<*mut c_void>,
    /// Strings and paths that some of the pointers refer to.
    texts: Vec<CString>,
    streams: Vec<Option<Stream>>,
}

/// A file that was opened for a function, which may have closed it.
pub(super) struct Stream {
    file: *mut libc::FILE,
    fd: i32,
    /// Device and inode number, which identify the file behind the descriptor.
    id: (u64, u64),
}

impl List {
    pub(super) fn new(base: BaseType, count: usize) -> List {
        List { base, pointers: Vec::with_capacity(count), texts: Vec::new(), streams: Vec::new() }
    }

    /// Appends an item that the function only reads, or a path.
    pub(super) fn push_text(&mut self, text: Option<&[u8]>) -> Result<(), TaskError> {
        let Some(text) = text else {
            self.pointers.push(std::ptr::null_mut());
            return Ok(());
        };
        let text = CString::new(text).map_err(|_| refused("a string of an array contains a zero byte".to_string()))?;
        self.pointers.push(text.as_ptr().cast_mut().cast());
        self.texts.push(text);
        Ok(())
    }

    /// Appends a string that the function may free or change: it is allocated by `malloc`.
    pub(super) fn push_own(&mut self, text: Option<&[u8]>) {
        self.pointers.push(text.map_or(std::ptr::null_mut(), duplicated));
    }

    pub(super) fn push_stream(&mut self, stream: Option<Stream>) {
        self.pointers.push(stream.as_ref().map_or(std::ptr::null_mut(), |stream| stream.file.cast()));
        self.streams.push(stream);
    }

    /// Returns the pointer to pass; null if there are no items.
    pub(super) fn address(&self) -> *const u8 {
        if self.pointers.is_empty() { std::ptr::null() } else { self.pointers.as_ptr().cast() }
    }

    /// Reads the items that the function left, after the call.
    pub(super) fn read(&self, out: &mut OutView<'_>) -> Result<(), TaskError> {
        let mut items = Vec::with_capacity(self.pointers.len());
        for pointer in &self.pointers {
            items.push(match (pointer.is_null(), self.base) {
                (true, _) => None,
                // SAFETY: an open file, as the function's description states.
                (false, BaseType::Stream) => Some(unsafe { content(pointer.cast()) }.map_err(unreadable)?),
                // SAFETY: a path, likewise.
                (false, BaseType::File) => match std::fs::read(unsafe { path(*pointer) }) {
                    Ok(content) => Some(content),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => return Err(unreadable(error)),
                },
                // SAFETY: a string, likewise.
                (false, _) => Some(unsafe { CStr::from_ptr(pointer.cast()) }.to_bytes().to_vec()),
            });
        }
        let Room::Growing(room) = &mut out.room else { return Ok(()) };
        **room = list::pack(items.iter().map(|item| item.as_deref()));
        out.meta = Meta::List { size_bytes: room.len() as u64 };
        Ok(())
    }

    /// Frees what the function left and nothing else owns.
    pub(super) fn release(&mut self, mode: Mode, ours: &mut ForeignMemory) {
        match self.base {
            BaseType::String if mode != Mode::In => self.pointers.iter().for_each(|pointer| ours.free(*pointer)),
            BaseType::Stream if mode != Mode::In => {
                let known: Vec<*mut c_void> = self.streams.iter().flatten().map(|stream| stream.file.cast()).collect();
                let made = self.pointers.iter().filter(|pointer| !pointer.is_null() && !known.contains(pointer));
                for pointer in made {
                    // SAFETY: an open file that the function created, as its description states.
                    unsafe { libc::fclose(pointer.cast()) };
                }
            }
            _ => {}
        }
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.texts.iter().map(|text| text.as_bytes_with_nul())
    }
}

impl Stream {
    /// Opens the file at `path`, with `mode` mapped to that of `fopen`.
    pub(super) fn open(path: &Path, mode: Mode) -> io::Result<Stream> {
        let mut options = File::options();
        let file = options.read(true).write(mode != Mode::In).create(mode != Mode::In).truncate(false).open(path)?;
        let about = file.metadata()?;
        let how = if mode == Mode::In { c"r" } else { c"r+" };
        // SAFETY: the descriptor is open for this purpose; the file owns it from here on.
        let opened = unsafe { libc::fdopen(file.as_raw_fd(), how.as_ptr()) };
        if opened.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Stream { file: opened, fd: file.into_raw_fd(), id: (about.dev(), about.ino()) })
    }

    pub(super) fn address(&self) -> *const u8 {
        self.file.cast()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the descriptor is only queried, and may be closed or reused by now.
        let about = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(self.fd) });
        let is_open = about.is_ok_and(|about| (about.st_dev, about.st_ino) == self.id);
        if is_open {
            // SAFETY: the file is ours, and the function has not closed it.
            unsafe { libc::fclose(self.file) };
        }
    }
}

/// Memory that is not the function's own from `malloc`, although the pointers that it leaves may refer to it:
/// arguments, literals and variables of libraries, this thread's stack.
#[derive(Default)]
pub(super) struct ForeignMemory {
    ranges: Vec<(usize, usize)>,
    freed: Vec<usize>,
}

impl ForeignMemory {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.ranges.push((bytes.as_ptr().addr(), bytes.len()));
    }

    /// Frees a string that a function left, if it was allocated by `malloc`.
    pub(super) fn free(&mut self, pointer: *mut c_void) {
        let address = pointer.addr();
        let is_argument = self.ranges.iter().any(|(begin, length)| (*begin..begin + length.max(&1)).contains(&address));
        let is_begin = !pointer.is_null() && address.is_multiple_of(std::mem::align_of::<libc::max_align_t>());
        if is_argument || !is_begin || self.freed.contains(&address) || is_of_library(pointer) || is_of_stack(address) {
            return;
        }
        self.freed.push(address);
        // SAFETY: all other kinds are excluded, so it was allocated by `malloc`, as the function's description states.
        unsafe { libc::free(pointer) };
    }
}

fn is_of_library(pointer: *const c_void) -> bool {
    // SAFETY: the structure has only numbers and pointers, all of which may be zero.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only looked up.
    unsafe { libc::dladdr(pointer, &mut found) != 0 }
}

fn is_of_stack(address: usize) -> bool {
    let here = 0u8;
    // SAFETY: the attributes are written before they are read, and belong to this thread.
    unsafe {
        let mut about: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut about) != 0 {
            return std::ptr::from_ref(&here).addr().abs_diff(address) < STACK_BYTES;
        }
        let (mut begin, mut size) = (std::ptr::null_mut(), 0);
        libc::pthread_attr_getstack(&about, &mut begin, &mut size);
        libc::pthread_attr_destroy(&mut about);
        (begin.addr()..begin.addr() + size).contains(&address)
    }
}

/// Assumed stack size where the system does not report it: that of a main thread.
const STACK_BYTES: usize = 8 << 20;

/// Returns a zero-terminated copy allocated by `malloc`; null if there is no memory.
pub(super) fn duplicated(text: &[u8]) -> *mut c_void {
    // SAFETY: `malloc` returns memory for the string and its terminator, or null.
    unsafe {
        let memory: *mut u8 = libc::malloc(text.len() + 1).cast();
        if !memory.is_null() {
            std::ptr::copy_nonoverlapping(text.as_ptr(), memory, text.len());
            memory.add(text.len()).write(0);
        }
        memory.cast()
    }
}

/// # Safety
/// `pointer` must be a zero-terminated string.
unsafe fn path<'a>(pointer: *const c_void) -> &'a Path {
    // SAFETY: promised by the caller.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(pointer.cast()) }.to_bytes()))
}

/// Returns the whole content of an open file, from its beginning.
///
/// # Safety
/// `file` must be open.
unsafe fn content(file: *mut libc::FILE) -> io::Result<Vec<u8>> {
    // SAFETY: promised by the caller. Flushing puts what the function has written into the file.
    let fd = unsafe {
        libc::fflush(file);
        BorrowedFd::borrow_raw(libc::fileno(file))
    };
    let mut copy = File::from(fd.try_clone_to_owned()?);
    copy.seek(SeekFrom::Start(0))?;
    let mut content = Vec::new();
    copy.read_to_end(&mut content)?;
    Ok(content)
}

fn unreadable(error: io::Error) -> TaskError {
    let why = format!("it set a file that cannot be read: {error}");
    TaskError::WrongResult { function: String::new(), server: String::new(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_of_malloc_is_freed() {
        let mut ours = ForeignMemory::default();
        let (argument, on_the_stack) = (duplicated(b"argument"), [0u8; 64]);
        // SAFETY: the allocation has exactly this length.
        ours.add(unsafe { std::slice::from_raw_parts(argument.cast(), 9) });
        ours.free(argument);
        ours.free(c"a literal of this program".as_ptr().cast_mut().cast());
        ours.free(on_the_stack.as_ptr().cast_mut().cast());
        ours.free(std::ptr::null_mut());
        assert!(ours.freed.is_empty());
        let made = duplicated(b"made");
        ours.free(made);
        ours.free(made);
        assert_eq!(ours.freed, [made.addr()]);
        // SAFETY: nothing else refers to it.
        unsafe { libc::free(argument) };
    }

    #[test]
    fn a_stream_that_the_function_closed_is_not_closed_again() {
        let place = std::env::temp_dir().join(format!("gridloom-stream-{}", std::process::id()));
        std::fs::write(&place, b"text").unwrap();
        let (closed, open) = (Stream::open(&place, Mode::In).unwrap(), Stream::open(&place, Mode::In).unwrap());
        // SAFETY: it is open.
        unsafe { libc::fclose(closed.file) };
        // SAFETY: likewise.
        assert_eq!(unsafe { content(open.file) }.unwrap(), b"text");
        drop((closed, open));
        std::fs::remove_file(&place).unwrap();
    }
}
