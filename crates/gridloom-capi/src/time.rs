//! Time, computation, measured blocks, and the process's name and host.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use gridloom::process::Measure;

use crate::connections::{limit, required_string};
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
    /// Mode: 0 always, 1 once, 2 skipped.
    pub how: c_int,
    /// Nonzero if the block has to be run.
    pub runs: c_int,
    /// Start time, for the end of the measurement.
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
        // A failure is reported by the next call, because the block has no result.
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
    // SAFETY: a measurement that has begun, as the header requires.
    let CMeasure { name, how, began_ns, .. } = unsafe { *measure };
    // SAFETY: as above.
    unsafe { (*measure).runs = 0 };
    let how = match how {
        ONCE => Measure::Once,
        ALWAYS => Measure::Always,
        // It ran in the real world, where no time is charged.
        _ => Measure::Always,
    };
    // The same steps as in `gridloom_measure_begin`.
    let _ = with(|process, _| {
        // SAFETY: a C string, as the header requires.
        let name = unsafe { required_string(name, "the block's name") }?;
        Ok(process.end_block(&name, how, Duration::from_nanos(began_ns))?)
    });
}
