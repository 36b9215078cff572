//! Callbacks of messages and timers.

use std::ffi::{c_char, c_int, c_void};

use gridloom::process::{ProcessError, TimerNumber};

use crate::code::{GRIDLOOM_ENDED, write_code};
use crate::connections::{limit, required_string};
use crate::current::{self, code_of, with};
use crate::message::{CMessage, OwnedMessage};

/// `gridloom_callback`.
pub type Callback = unsafe extern "C-unwind" fn(*mut CMessage, *mut c_void) -> c_int;
/// `gridloom_timer_callback`.
pub type TimerCallback = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;

/// The pointer that the program gets back with a callback.
#[derive(Clone, Copy)]
struct UserContext(*mut c_void);

// SAFETY: it is only passed back to the program and never dereferenced, on the one thread that runs C code.
unsafe impl Send for UserContext {}

impl UserContext {
    fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_on(kind: *const c_char, callback: Callback, context: *mut c_void) -> c_int {
    let given_back = UserContext(context);
    code_of(|process, _| {
        // SAFETY: a C string, as the header requires.
        let kind = unsafe { required_string(kind, "the message type") }?;
        process.on_bytes(&kind, move |process, from, letter| {
            let context = current::context().map_err(|failure| ProcessError::Failed(failure.text))?;
            let owned = OwnedMessage::new(process, context, from, letter)
                .map_err(|failure| ProcessError::Failed(failure.text))?;
            let message = owned.into_raw();
            // SAFETY: a callback of the program, with a message that exists until it returns.
            let code = context.run(process, || unsafe { callback(message, given_back.pointer()) });
            // SAFETY: it was made above, and a callback does not free it, as the header requires; it may declare that
            // it will free it later.
            let owned = unsafe { OwnedMessage::from_raw(message) };
            if owned.is_kept {
                let _is_the_programs = owned.into_raw();
            }
            outcome(code, &context.failure.take())
        });
        Ok(())
    })
}

/// Converts the return value of a callback.
fn outcome(code: c_int, text: &str) -> Result<(), ProcessError> {
    match code {
        0 => Ok(()),
        GRIDLOOM_ENDED => Err(ProcessError::Ended { why: "the process was asked to end".into() }),
        code => Err(ProcessError::Failed(write_code(code, text))),
    }
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_handle(seconds: f64) -> c_int {
    with(|process, _| Ok(c_int::from(process.handle(limit(seconds)?)?))).unwrap_or_else(|code| code)
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_handle_for(seconds: f64) -> c_int {
    code_of(|process, _| Ok(process.handle_for(limit(seconds)?.unwrap_or(f64::INFINITY))?))
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_set_timer(
    seconds: f64,
    repeat: c_int,
    callback: TimerCallback,
    context: *mut c_void,
) -> i64 {
    let given_back = UserContext(context);
    let set = with(|process, _| {
        let seconds = limit(seconds)?.unwrap_or_default();
        let timer = process.set_timer(seconds, repeat != 0, move |process| {
            let context = current::context().map_err(|failure| ProcessError::Failed(failure.text))?;
            // SAFETY: a callback of the program.
            let code = context.run(process, || unsafe { callback(given_back.pointer()) });
            outcome(code, &context.failure.take())
        })?;
        Ok(timer.0 as i64)
    });
    set.unwrap_or_else(i64::from)
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn gridloom_cancel_timer(timer: i64) -> c_int {
    // An invalid number is that of a timer that was not set.
    with(|process, _| Ok(c_int::from(process.cancel_timer(TimerNumber(timer as u64))))).unwrap_or_else(|code| code)
}

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_fail_text(code: c_int, text: *const c_char) -> c_int {
    if let Ok(context) = current::context() {
        // SAFETY: a C string, as the header requires.
        *context.failure.borrow_mut() = unsafe { crate::declare::text(text) }.unwrap_or_default();
    }
    code
}
