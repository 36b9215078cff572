//! The log: categories and levels.

use std::ffi::{c_char, c_int};

use gridloom::process::{Level, log_accepts};

use crate::current::with;
use crate::declare::text;

fn level_of(level: c_int) -> Level {
    match level {
        ..=0 => Level::Debug,
        1 => Level::Info,
        2 => Level::Warning,
        _ => Level::Error,
    }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_log_wants(level: c_int, category: *const c_char) -> c_int {
    // SAFETY: a C string, as the header requires.
    let category = unsafe { text(category) }.unwrap_or_default();
    c_int::from(log_accepts(level_of(level), &category))
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_log_text(level: c_int, category: *const c_char, line: *const c_char) {
    // SAFETY: C strings, as the header requires.
    let (category, line) = unsafe { (text(category).unwrap_or_default(), text(line).unwrap_or_default()) };
    // Outside of a process there is no process to name.
    let _ = with(|process, _| {
        process.log(level_of(level), &category, &line);
        Ok(())
    });
}
