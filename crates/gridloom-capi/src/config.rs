//! Configuration: a file, the environment, and the command line; `gridloom::process` reads them for all languages.

use std::ffi::{OsString, c_char, c_int};

use gridloom::process::{read_settings, setting};
use gridloom_base::EscapedBytes;

use crate::code::Failure;
use crate::connections::required_string;
use crate::current::{to_c, with};

/// Reads the command line, and the file that it or the environment names.
pub(crate) fn read(arguments: &[OsString]) -> Result<(), String> {
    match read_settings(arguments).map_err(|error| error.to_string())?.first() {
        None => Ok(()),
        Some(other) => Err(format!(
            "'{}' is not an option of this program; options are --set NAME=VALUE, --config FILE and --log \
             LEVELS; set arguments of processes in the deployment",
            EscapedBytes::of(&other)
        )),
    }
}

/// True if each simulated process has its own copy of the program's variables.
pub(crate) fn own_globals() -> Result<bool, String> {
    match setting("gridloom.globals").as_deref() {
        None | Some("own") => Ok(true),
        Some("shared") => Ok(false),
        Some(other) => Err(format!("gridloom.globals is '{other}'; it may be 'own' or 'shared'")),
    }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_config(name: *const c_char, otherwise: *const c_char) -> *const c_char {
    let found = with(|_, context| {
        // SAFETY: a C string, as the header requires.
        let name = unsafe { required_string(name, "the value's name") }?;
        let Some(value) = setting(&name) else { return Ok(otherwise) };
        let mut texts = context.texts.borrow_mut();
        Ok(texts.entry(name).or_insert_with(|| to_c(&value)).as_ptr())
    });
    found.unwrap_or(otherwise)
}

/// Writes a value to `place`, if the value exists. Returns what the functions of the header return.
unsafe fn number<T: std::str::FromStr>(name: *const c_char, place: *mut T, what: &str) -> c_int {
    let found = with(|_, _| {
        // SAFETY: a C string, as the header requires.
        let name = unsafe { required_string(name, "the value's name") }?;
        let Some(text) = setting(&name) else { return Ok(0) };
        let wrong = |_| Failure::usage(format!("the configuration's '{name}' is '{text}'; it must be {what}"));
        let number = text.trim().parse().map_err(wrong)?;
        // SAFETY: memory for a number, as the header requires.
        unsafe { *place = number };
        Ok(1)
    });
    found.unwrap_or_else(|code| code)
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_config_integer(name: *const c_char, place: *mut i64) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { number(name, place, "an integer") }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_config_number(name: *const c_char, place: *mut f64) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { number(name, place, "a number") }
}
