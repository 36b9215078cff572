//! Time, computation, measured blocks, and the process's name and host.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use gridloom::process::Measure;

use crate::connections::{given, limit};
use crate::current::{self, code_of, with};

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_now() -> f64 {
    with(|process, _| Ok(process.now())).unwrap_or_default()
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_is_simulated() -> c_int {
    with(|process, _| Ok(c_int::from(process.is_simulated()))).unwrap_or_default()
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_function() -> *const c_char {
    current::context().map_or(c"".as_ptr(), |context| context.function.as_ptr())
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_host() -> *const c_char {
    current::context().map_or(c"".as_ptr(), |context| context.host.as_ptr())
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_sleep(seconds: f64) -> c_int {
    code_of(|process, _| Ok(process.sleep(limit(seconds)?.unwrap_or_default())?))
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_compute(flops: f64) -> c_int {
    code_of(|process, _| Ok(process.compute(limit(flops)?.unwrap_or_default())?))
}

/// `gridloom_measure`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CMeasure {
    /// The block's name.
    pub name: *const c_char,
    /// How: 0 always, 1 once, 2 skipped.
    pub how: c_int,
    /// Whether the block is to be run.
    pub runs: c_int,
    /// What its end wants to know of its begin.
    pub began_ns: u64,
}

const ALWAYS: c_int = 0;
const ONCE: c_int = 1;
const SKIP: c_int = 2;

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_measure_begin(name: *const c_char, how: c_int, flops: f64) -> CMeasure {
    let mut runs = 1;
    if how == SKIP {
        // A failure is told by the next call, as the block has no result.
        let _ = with(|process, _| {
            if process.is_simulated() {
                runs = 0;
                process.compute(limit(flops)?.unwrap_or_default())?;
            }
            Ok(())
        });
    }
    let began = if runs == 0 { Ok(Duration::ZERO) } else { with(|process, _| Ok(process.begin_block())) };
    CMeasure { name, how, runs, began_ns: began.unwrap_or_default().as_nanos() as u64 }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_measure_end(measure: *mut CMeasure) {
    // SAFETY: a measure that has begun, as the header asks.
    let CMeasure { name, how, began_ns, .. } = unsafe { *measure };
    // SAFETY: as above.
    unsafe { (*measure).runs = 0 };
    let how = match how {
        ONCE => Measure::Once,
        ALWAYS => Measure::Always,
        // It was run for real, where nothing is charged.
        _ => Measure::Always,
    };
    // As in `gridloom_measure_begin`.
    let _ = with(|process, _| {
        // SAFETY: a text, as the header asks.
        let name = unsafe { given(name, "the block's name") }?;
        Ok(process.end_block(&name, how, Duration::from_nanos(began_ns))?)
    });
}
