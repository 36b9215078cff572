//! Functions of the C library that pass the program's memory to the system: `write`, `read`, and their relatives.
//!
//! A system call that gets closed memory does not raise a fault; it fails with `EFAULT`. So the library defines these
//! functions itself, in front of those of the C library: each first touches the closed pages, which raises the fault
//! that opens them, and then calls the next definition. If no page is closed, this costs one read of a number.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::faults::{has_closed, touch};

/// Returns the definition of a function that follows this library's own.
fn next(known: &AtomicUsize, name: &std::ffi::CStr) -> usize {
    match known.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: a C string; the C library has all of these functions.
            let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.addr();
            known.store(found, Ordering::Relaxed);
            found
        }
        found => found,
    }
}

/// Opens the closed pages of memory that is passed to the system.
fn open(memory: *const c_void, bytes: usize) {
    if has_closed() {
        touch(memory.addr(), bytes);
    }
}

/// # Safety
/// An array of that many elements.
unsafe fn open_all(list: *const libc::iovec, count: c_int) {
    if !has_closed() {
        return;
    }
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: promised by the caller.
        let part = unsafe { *list.add(index) };
        touch(part.iov_base.addr(), part.iov_len);
    }
}

macro_rules! before {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $open:expr;)*) => {$(
        #[doc = concat!("See `", stringify!($name), "` of the C library.")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let name = const {
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name of one word and a NUL"),
                }
            };
            let next = next(&NEXT, name);
            // SAFETY: the C library's function, which has this type; the caller keeps what it requires.
            unsafe {
                $open;
                let next: unsafe extern "C" fn($($type),*) -> $result = std::mem::transmute(next);
                next($($argument),*)
            }
        }
    )*};
}

before! {
    write(file: c_int, memory: *const c_void, bytes: usize) -> isize, open(memory, bytes);
    pwrite(file: c_int, memory: *const c_void, bytes: usize, at: libc::off_t) -> isize, open(memory, bytes);
    pwrite64(file: c_int, memory: *const c_void, bytes: usize, at: i64) -> isize, open(memory, bytes);
    writev(file: c_int, list: *const libc::iovec, count: c_int) -> isize, open_all(list, count);
    send(file: c_int, memory: *const c_void, bytes: usize, flags: c_int) -> isize, open(memory, bytes);
    fwrite(memory: *const c_void, size: usize, count: usize, file: *mut libc::FILE) -> usize,
        open(memory, size.saturating_mul(count));
    read(file: c_int, memory: *mut c_void, bytes: usize) -> isize, open(memory, bytes);
    pread(file: c_int, memory: *mut c_void, bytes: usize, at: libc::off_t) -> isize, open(memory, bytes);
    pread64(file: c_int, memory: *mut c_void, bytes: usize, at: i64) -> isize, open(memory, bytes);
    readv(file: c_int, list: *const libc::iovec, count: c_int) -> isize, open_all(list, count);
    recv(file: c_int, memory: *mut c_void, bytes: usize, flags: c_int) -> isize, open(memory, bytes);
    fread(memory: *mut c_void, size: usize, count: usize, file: *mut libc::FILE) -> usize,
        open(memory, size.saturating_mul(count));
}
