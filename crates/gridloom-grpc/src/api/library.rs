//! `grpc_initialize` and `grpc_finalize`.

use std::ffi::{c_char, c_int};

use super::super::code::{Failed, run};
use super::super::config::Config;
use super::super::library::{begin_library, end_library, library};
use super::super::{map, memory};

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_initialize(config_file_name: *const c_char) -> c_int {
    run(|| {
        begin_library(|| {
            let named = match config_file_name.is_null() {
                true => None,
                // SAFETY: a C string, as the header requires.
                false => Some(unsafe { memory::text(config_file_name, "the name of the configuration") }?),
            };
            Config::read(named.filter(|name| !name.is_empty()))
        })
    })
}

/// See `grpc.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_finalize() -> c_int {
    run(|| {
        let own = library()?;
        if map::is_open() {
            return Err(Failed::other("grpc_finalize was called inside grpc_map; end the block first"));
        }
        end_library(&own);
        Ok(())
    })
}
