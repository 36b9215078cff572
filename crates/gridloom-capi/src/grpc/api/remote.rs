//! Remote data (`grpc_remote.h`): results that stay where they are made, under handles that calls take in place of memory.

use std::ffi::{c_char, c_int, c_void};

use gridloom_net::payload::Payload;

use super::super::code::{Failed, Outcome, run};
use super::super::library::{Library, library};
use super::super::memory;
use super::super::remotes::CRemote;

/// A copy of memory of the program, where servers of this host can map it if it is large.
///
/// # Safety
/// As of [`memory::copied`].
pub(super) unsafe fn copied(library: &Library, data: *const c_void, size_bytes: usize) -> Outcome<Payload> {
    let mut segment = library.grid.allocate(size_bytes as u64)?;
    // SAFETY: promised by the caller.
    unsafe { memory::copy_to(data, segment.bytes_mut()) }.ok_or_else(|| Failed::null("the data"))?;
    Ok(Payload::segment(segment.freeze()))
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_new_np(remote: *mut *mut CRemote, name: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::place(remote, "the place for the handle")?;
        // SAFETY: a text, as the header asks.
        let name = if name.is_null() { "" } else { unsafe { memory::text(name, "the name") }? };
        let made = library.remotes.add(name)?;
        // SAFETY: as the header asks.
        unsafe { place.write(made) };
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_find_np(remote: *mut *mut CRemote, name: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::place(remote, "the place for the handle")?;
        // SAFETY: a text, and a place, as the header asks.
        unsafe { place.write(library.remotes.named(memory::text(name, "the name")?)?) };
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_put_np(
    remote: *mut CRemote,
    data: *const c_void,
    size_bytes: usize,
) -> c_int {
    run(|| {
        let library = library()?;
        let remote = library.remotes.known(remote)?;
        // SAFETY: as the header asks.
        remote.put(unsafe { copied(&library, data, size_bytes) }?);
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_get_np(
    remote: *mut CRemote,
    data: *mut c_void,
    size_bytes: usize,
) -> c_int {
    run(|| {
        let remote = library()?.remotes.known(remote)?;
        let Some(bytes) = remote.bytes()? else { return Ok(()) };
        if bytes.len() > size_bytes {
            let text = format!("{remote} has {} bytes, and there is room for {size_bytes}", bytes.len());
            return Err(Failed::other(text));
        }
        if data.is_null() && !bytes.is_empty() {
            return Err(Failed::null("the place for the data"));
        }
        // SAFETY: there is room for so many, as the header asks.
        unsafe { memory::write(data, &bytes) };
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_size_np(remote: *mut CRemote, size_bytes: *mut usize) -> c_int {
    run(|| {
        let remote = library()?.remotes.known(remote)?;
        // SAFETY: a place, as the header asks.
        unsafe { memory::place(size_bytes, "the place for the size")?.write(remote.size_bytes() as usize) };
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_remote_wait_np(remote: *mut CRemote) -> c_int {
    run(|| Ok(library()?.remotes.known(remote)?.wait()?))
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_remote_free_np(remote: *mut CRemote) -> c_int {
    run(|| library()?.remotes.remove(remote))
}
