//! Remote data (`grpc_remote.h`): results that stay where they are made, with handles that calls accept in place of memory.

use std::ffi::{c_char, c_int, c_void};

use super::super::code::{Failed, run};
use super::super::library::library;
use super::super::memory;
use super::super::remotes::CRemote;
use super::shared::{plain_session, put_options, shared_name, wait_limit};

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_new_np(remote: *mut *mut CRemote, name: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::program_memory(remote, "the pointer for the handle")?;
        // SAFETY: a C string, as the header requires.
        let name = if name.is_null() { "" } else { unsafe { memory::text(name, "the name") }? };
        let made = library.remotes.add(name)?;
        // SAFETY: required by the header.
        unsafe { place.write(made) };
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_find_np(remote: *mut *mut CRemote, name: *const c_char) -> c_int {
    run(|| {
        let library = library()?;
        let place = memory::program_memory(remote, "the pointer for the handle")?;
        // SAFETY: a C string, and memory for a handle, as the header requires.
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
        // SAFETY: required by the header.
        remote.put(unsafe { library.copied(data, size_bytes) }?);
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
            return Err(Failed::null("the pointer for the data"));
        }
        // SAFETY: there is memory for this many bytes, as the header requires.
        unsafe { memory::write(data, &bytes) };
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_size_np(remote: *mut CRemote, size_bytes: *mut usize) -> c_int {
    run(|| {
        let remote = library()?.remotes.known(remote)?;
        // SAFETY: memory for the size, as the header requires.
        unsafe { memory::program_memory(size_bytes, "the pointer for the size")?.write(remote.size_bytes() as usize) };
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
pub unsafe extern "C-unwind" fn grpc_remote_share_np(remote: *mut CRemote, name: *const c_char, flags: c_int) -> c_int {
    run(|| {
        let library = plain_session()?;
        let options = put_options(flags, 1)?;
        let value = library.remotes.known(remote)?.handle(&library.grid)?;
        // SAFETY: a C string, as the header requires.
        let name = unsafe { shared_name(name) }?;
        Ok(library.grid.shared().put_handle(name, &value, options)?)
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_remote_find_shared_np(
    remote: *mut CRemote,
    name: *const c_char,
    seconds: f64,
) -> c_int {
    run(|| {
        let library = plain_session()?;
        let remote = library.remotes.known(remote)?;
        // SAFETY: a C string, as the header requires.
        let name = unsafe { shared_name(name) }?;
        remote.set_found(&library.grid.shared().find(name, wait_limit(seconds)?)?);
        Ok(())
    })
}

/// See `grpc_remote.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_remote_free_np(remote: *mut CRemote) -> c_int {
    run(|| library()?.remotes.remove(remote))
}
