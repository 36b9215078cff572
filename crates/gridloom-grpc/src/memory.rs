//! Reads and writes the program's memory where arguments are.
//!
//! **Safety of all functions here:** a pointer points to as many bytes as the function's signature requires, like the
//! arguments of `printf`. No thread writes there while it is read, and no other thread uses it while it is written.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use super::code::{Failed, Outcome};

/// Copies `size_bytes` bytes of an input; returns `None` if it is NULL.
///
/// # Safety
/// See the module.
pub(crate) unsafe fn copied(pointer: *const c_void, size_bytes: u64) -> Option<Arc<[u8]>> {
    let size = size_of_input(pointer, size_bytes)?;
    let mut copy = Arc::<[u8]>::new_uninit_slice(size);
    let place = Arc::get_mut(&mut copy).expect("nobody else has it yet").as_mut_ptr();
    // SAFETY: promised by the caller; the copy has as many bytes, all of which are written.
    unsafe {
        std::ptr::copy_nonoverlapping(pointer.cast(), place.cast::<u8>(), size);
        Some(copy.assume_init())
    }
}

/// Copies an input into `room`, filling it; returns `None` if it is NULL.
///
/// # Safety
/// See the module.
pub(crate) unsafe fn copy_to(pointer: *const c_void, room: &mut [u8]) -> Option<()> {
    let size = size_of_input(pointer, room.len() as u64)?;
    // SAFETY: promised by the caller; the room is memory of the library.
    unsafe { std::ptr::copy_nonoverlapping(pointer.cast(), room.as_mut_ptr(), size) };
    Some(())
}

/// Returns how many bytes are read; NULL is allowed for an input of 0 bytes.
fn size_of_input(pointer: *const c_void, size_bytes: u64) -> Option<usize> {
    let size = usize::try_from(size_bytes).ok().filter(|size| isize::try_from(*size).is_ok())?;
    (size == 0 || !pointer.is_null()).then_some(size)
}

/// True if memory contains these bytes.
///
/// # Safety
/// See the module.
pub(crate) unsafe fn holds(pointer: *const c_void, bytes: &[u8]) -> bool {
    // SAFETY: promised by the caller.
    bytes.is_empty() || !pointer.is_null() && unsafe { libc::memcmp(pointer, bytes.as_ptr().cast(), bytes.len()) == 0 }
}

/// Copies memory that the program passed for a result.
///
/// # Safety
/// See the module.
pub(crate) unsafe fn bytes_at(start: usize, bytes: usize) -> Vec<u8> {
    let mut copy = vec![0; bytes];
    let from = std::ptr::with_exposed_provenance::<u8>(start);
    // SAFETY: promised by the caller; the copy has as many bytes.
    unsafe { std::ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), bytes) };
    copy
}

/// Writes a result.
///
/// # Safety
/// See the module.
pub(crate) unsafe fn write(pointer: *mut c_void, bytes: &[u8]) {
    // SAFETY: promised by the caller; the bytes are in memory of the library.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.cast(), bytes.len()) };
}

/// Writes a text, or as much of it as there is room for, like `snprintf`. Returns the length of the whole text.
///
/// # Safety
/// Null, or memory for `size` characters.
pub(crate) unsafe fn write_text(text: &str, room: *mut c_char, size: usize) -> c_int {
    if size > 0 && !room.is_null() {
        let length = text.len().min(size - 1);
        // SAFETY: promised by the caller.
        unsafe {
            write(room.cast(), &text.as_bytes()[..length]);
            *room.add(length) = 0;
        }
    }
    c_int::try_from(text.len()).unwrap_or(c_int::MAX)
}

/// Returns a string in memory, which must not be NULL.
///
/// # Safety
/// See the module.
pub(crate) unsafe fn string<'a>(pointer: *const c_char, what: &str) -> Outcome<&'a [u8]> {
    if pointer.is_null() {
        return Err(Failed::null(what));
    }
    // SAFETY: a string that ends in a NUL, promised by the caller.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Copies bytes to memory of `malloc`, which the program frees; a zero byte follows them.
pub(crate) fn allocated(bytes: &[u8], what: &str) -> Outcome<Allocated> {
    // SAFETY: `malloc` returns memory for all bytes, or null.
    unsafe {
        let memory: *mut u8 = libc::malloc(bytes.len() + 1).cast();
        if memory.is_null() {
            return Err(Failed::other(format!("no memory for {} bytes of {what}", bytes.len())));
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
        memory.add(bytes.len()).write(0);
        Ok(Allocated(memory.cast()))
    }
}

/// Memory of `malloc`, until the program gets it.
pub(crate) struct Allocated(*mut c_void);

impl Allocated {
    /// Writes its address to the program's memory.
    ///
    /// # Safety
    /// See the module: memory for a pointer.
    pub(crate) unsafe fn store(self, place: *mut *mut c_void) {
        // SAFETY: promised by the caller.
        unsafe { place.write_unaligned(self.0) };
        std::mem::forget(self);
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: it comes from `malloc`, and nobody else has it.
        unsafe { libc::free(self.0) };
    }
}

/// Returns a text, which must not be NULL.
///
/// # Safety
/// See the module.
pub unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Outcome<&'a str> {
    // SAFETY: promised by the caller.
    let bytes = unsafe { string(pointer, what) }?;
    std::str::from_utf8(bytes)
        .map_err(|_| Failed::other(format!("{what} is not UTF-8: '{}'", String::from_utf8_lossy(bytes))))
}

/// Returns a string of an array or of an argument, which may be NULL.
///
/// # Safety
/// See the module.
pub unsafe fn string_or_null<'a>(pointer: *const c_void) -> Option<&'a [u8]> {
    // SAFETY: a string that ends in a NUL, promised by the caller.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer.cast()) }.to_bytes())
}

/// Reads the rest of an open file of the program.
///
/// # Safety
/// It is open, and no other thread uses it meanwhile.
pub(crate) unsafe fn stream_content(file: *mut c_void) -> std::io::Result<Vec<u8>> {
    let file: *mut libc::FILE = file.cast();
    let mut content = Vec::new();
    let mut piece = vec![0u8; 1 << 16];
    loop {
        // SAFETY: promised by the caller; the piece has as many bytes.
        let count = unsafe { libc::fread(piece.as_mut_ptr().cast(), 1, piece.len(), file) };
        content.extend_from_slice(&piece[..count]);
        // SAFETY: promised by the caller.
        match count {
            0 if unsafe { libc::ferror(file) } != 0 => return Err(std::io::Error::last_os_error()),
            0 => return Ok(content),
            _ => {}
        }
    }
}

/// Writes a file's content to an open file of the program, and rewinds it; if there is none, to a new temporary file.
///
/// # Safety
/// NULL or open, and no other thread uses it meanwhile.
pub(crate) unsafe fn stream_of(file: *mut c_void, content: &[u8]) -> std::io::Result<*mut c_void> {
    let mut file: *mut libc::FILE = file.cast();
    // SAFETY: promised by the caller; the content has as many bytes.
    unsafe {
        if file.is_null() {
            file = libc::tmpfile();
        }
        let is_written = !file.is_null()
            && libc::fwrite(content.as_ptr().cast(), 1, content.len(), file) == content.len()
            && libc::fflush(file) == 0;
        if !is_written {
            return Err(std::io::Error::last_os_error());
        }
        libc::rewind(file);
    }
    Ok(file.cast())
}

/// Returns a name, which must not be NULL. A name that is not UTF-8 cannot exist, and fails with that code.
///
/// # Safety
/// See the module.
pub(crate) unsafe fn name<'a>(pointer: *const c_char, what: &str, code: std::ffi::c_int) -> Outcome<&'a str> {
    // SAFETY: promised by the caller.
    let bytes = unsafe { string(pointer, what) }?;
    std::str::from_utf8(bytes).map_err(|_| {
        let name = String::from_utf8_lossy(bytes);
        Failed::new(code, format!("{what} is not UTF-8: '{name}'; names are UTF-8"))
    })
}

/// Memory of the program for a value of a function of the header.
///
/// Several threads may use the same memory, such as a handle: it is read and written by its address, and no reference
/// to it is made.
#[derive(Clone, Copy)]
pub struct ProgramMemory<T>(NonNull<T>);

impl<T> ProgramMemory<T> {
    /// Returns its address, which is not null.
    pub fn pointer(self) -> *mut T {
        self.0.as_ptr()
    }

    /// # Safety
    /// There is memory for a value, which nobody else uses meanwhile. Its previous content is not read.
    pub unsafe fn write_new(self, value: T) {
        // SAFETY: promised by the caller.
        unsafe { self.0.as_ptr().write(value) };
    }
}

impl<T: Copy> ProgramMemory<T> {
    /// # Safety
    /// It contains a value, and nobody writes there meanwhile.
    pub unsafe fn read(self) -> T {
        // SAFETY: promised by the caller.
        unsafe { self.0.as_ptr().read() }
    }

    /// # Safety
    /// There is memory for a value, which nobody else uses meanwhile.
    pub unsafe fn write(self, value: T) {
        // SAFETY: promised by the caller.
        unsafe { self.0.as_ptr().write(value) };
    }
}

/// Returns memory of the program, which must not be null.
pub fn program_memory<T>(pointer: *mut T, what: &str) -> Outcome<ProgramMemory<T>> {
    NonNull::new(pointer).map(ProgramMemory).ok_or_else(|| Failed::null(what))
}

/// Copies an array of ids or handles, which must not be null if it has elements.
///
/// # Safety
/// Null, or this number of elements that nobody changes meanwhile.
pub unsafe fn array<T: Copy>(pointer: *const T, length: usize, what: &str) -> Outcome<Vec<T>> {
    match (length, pointer.is_null()) {
        (0, _) => Ok(Vec::new()),
        (_, true) => Err(Failed::null(what)),
        // SAFETY: promised by the caller.
        _ => Ok((0..length).map(|at| unsafe { pointer.add(at).read() }).collect()),
    }
}
