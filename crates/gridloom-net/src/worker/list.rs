//! Arrays of strings, of paths of files and of open files, as native functions get them: pointers to their items, which the
//! function may set where they are results. Also a single open file.
//!
//! What a function leaves in a string's place is a string of `malloc`, which is freed here, a literal, a variable of a
//! library, or one of its inputs, which are not ([`Ours`]).

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

/// An array of which each item is a pointer.
pub(super) struct List {
    base: BaseType,
    /// As the function sees and sets them.
    pointers: Vec<*mut c_void>,
    /// Strings and paths that some of them lead to.
    texts: Vec<CString>,
    streams: Vec<Option<Stream>>,
}

/// A file that was opened for a function, which may have closed it.
pub(super) struct Stream {
    file: *mut libc::FILE,
    fd: i32,
    /// Device and number, by which the descriptor is known again.
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
        let text = CString::new(text).map_err(|_| refused("a string of an array has a zero byte in it".to_string()))?;
        self.pointers.push(text.as_ptr().cast_mut().cast());
        self.texts.push(text);
        Ok(())
    }

    /// Appends a string that the function may free or change: it is of `malloc`.
    pub(super) fn push_own(&mut self, text: Option<&[u8]>) {
        self.pointers.push(text.map_or(std::ptr::null_mut(), duplicated));
    }

    pub(super) fn push_stream(&mut self, stream: Option<Stream>) {
        self.pointers.push(stream.as_ref().map_or(std::ptr::null_mut(), |stream| stream.file.cast()));
        self.streams.push(stream);
    }

    /// What is passed; null if it has no items.
    pub(super) fn address(&self) -> *const u8 {
        if self.pointers.is_empty() { std::ptr::null() } else { self.pointers.as_ptr().cast() }
    }

    /// What the function left, after the call.
    pub(super) fn read(&self, out: &mut OutView<'_>) -> Result<(), TaskError> {
        let mut items = Vec::with_capacity(self.pointers.len());
        for pointer in &self.pointers {
            items.push(match (pointer.is_null(), self.base) {
                (true, _) => None,
                // SAFETY: an open file, as the function's description says.
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

    /// Frees what the function left and nobody else has.
    pub(super) fn release(&mut self, mode: Mode, ours: &mut Ours) {
        match self.base {
            BaseType::String if mode != Mode::In => self.pointers.iter().for_each(|pointer| ours.free(*pointer)),
            BaseType::Stream if mode != Mode::In => {
                let known: Vec<*mut c_void> = self.streams.iter().flatten().map(|stream| stream.file.cast()).collect();
                let made = self.pointers.iter().filter(|pointer| !pointer.is_null() && !known.contains(pointer));
                for pointer in made {
                    // SAFETY: an open file that the function made, as its description says.
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
    /// The file at that path; with `mode` as `fopen` has it.
    pub(super) fn open(path: &Path, mode: Mode) -> io::Result<Stream> {
        let mut options = File::options();
        let file = options.read(true).write(mode != Mode::In).create(mode != Mode::In).truncate(false).open(path)?;
        let about = file.metadata()?;
        let how = if mode == Mode::In { c"r" } else { c"r+" };
        // SAFETY: a descriptor that is open for this; the file owns it from here on.
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
        // SAFETY: the descriptor is only asked about, and may be closed or another by now.
        let about = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(self.fd) });
        let is_open = about.is_ok_and(|about| (about.st_dev, about.st_ino) == self.id);
        if is_open {
            // SAFETY: ours, and the function has not closed it.
            unsafe { libc::fclose(self.file) };
        }
    }
}

/// What the pointers that a function leaves may lead to and what is not its memory of `malloc`: arguments, literals and
/// variables of libraries, this thread's stack.
#[derive(Default)]
pub(super) struct Ours {
    ranges: Vec<(usize, usize)>,
    freed: Vec<usize>,
}

impl Ours {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.ranges.push((bytes.as_ptr().addr(), bytes.len()));
    }

    /// Frees a string that a function left, if it is of `malloc`.
    pub(super) fn free(&mut self, pointer: *mut c_void) {
        let address = pointer.addr();
        let is_argument = self.ranges.iter().any(|(begin, length)| (*begin..begin + length.max(&1)).contains(&address));
        let is_begin = !pointer.is_null() && address.is_multiple_of(std::mem::align_of::<libc::max_align_t>());
        if is_argument || !is_begin || self.freed.contains(&address) || is_of_library(pointer) || is_of_stack(address) {
            return;
        }
        self.freed.push(address);
        // SAFETY: what is none of the others comes from `malloc`, as the function's description says.
        unsafe { libc::free(pointer) };
    }
}

fn is_of_library(pointer: *const c_void) -> bool {
    // SAFETY: numbers and pointers, all of which may be zero.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only looked up.
    unsafe { libc::dladdr(pointer, &mut found) != 0 }
}

fn is_of_stack(address: usize) -> bool {
    let here = 0u8;
    // SAFETY: the attributes are written before they are read, and are those of this thread.
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

/// As a main thread has it, where the system does not say.
const STACK_BYTES: usize = 8 << 20;

/// A copy of `malloc`, ended by a zero byte; null if there is no memory.
pub(super) fn duplicated(text: &[u8]) -> *mut c_void {
    // SAFETY: `malloc` gives room for the string and its end, or null.
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
/// A string that ends in a zero byte.
unsafe fn path<'a>(pointer: *const c_void) -> &'a Path {
    // SAFETY: promised by the caller.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(pointer.cast()) }.to_bytes()))
}

/// All that an open file has, from its beginning.
///
/// # Safety
/// It is open.
unsafe fn content(file: *mut libc::FILE) -> io::Result<Vec<u8>> {
    // SAFETY: promised by the caller. What the function has written is in the file then.
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
    let why = format!("a file that cannot be read: {error}");
    TaskError::WrongResult { function: String::new(), server: String::new(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_of_malloc_is_freed() {
        let mut ours = Ours::default();
        let (argument, on_the_stack) = (duplicated(b"argument"), [0u8; 64]);
        // SAFETY: as long as it was made.
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
        // SAFETY: nobody else has it.
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
