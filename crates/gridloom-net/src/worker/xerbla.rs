//! The error handlers of BLAS and LAPACK. With any library, an invalid argument of a routine fails the call with an error
//! that names the routine. Without the handlers, reference BLAS ends the worker, and OpenBLAS returns without a result.

use std::ffi::c_char;
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, Once, PoisonError};

use libloading::os::unix as os;

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xerbla.so"));
/// The first invalid parameter of the current call.
static INVALID: Mutex<Option<String>> = Mutex::new(None);

type Handler = extern "C" fn(*const c_char, usize, i32);

/// Loads the handlers. This must be called before any BLAS is loaded. If it fails, the handlers of the library are used.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(why) = load() {
            gridloom_base::stderr_line!("gridloom: the error handlers of BLAS cannot be loaded: {why}");
        }
    });
}

fn load() -> io::Result<()> {
    let mut file = File::from(rustix::fs::memfd_create("xerbla", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(LIBRARY)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: the library has no initialisers.
    let library = unsafe { os::Library::open(Some(path), os::RTLD_NOW | os::RTLD_GLOBAL) };
    let library = ManuallyDrop::new(library.map_err(io::Error::other)?);
    // SAFETY: the variable has this type, and no BLAS is loaded yet.
    unsafe { library.get::<*mut Handler>(b"gridloom_invalid_parameter\0").map_err(io::Error::other)?.write(note) };
    Ok(())
}

/// Returns the error of the current call, and clears it for the next call.
pub(super) fn take() -> Option<String> {
    INVALID.lock().unwrap_or_else(PoisonError::into_inner).take()
}

extern "C" fn note(routine: *const c_char, length: usize, number: i32) {
    // SAFETY: BLAS passes its routine's name with its length.
    let name = unsafe { std::slice::from_raw_parts(routine.cast::<u8>(), length) };
    let name = String::from_utf8_lossy(name);
    let name = name.trim_matches(|letter: char| letter == '\0' || letter.is_whitespace());
    let why = format!(
        "{name} of BLAS or LAPACK got an invalid value for parameter number {number}; check the sizes, letters and leading \
         dimensions that the function passes to it"
    );
    INVALID.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
}
