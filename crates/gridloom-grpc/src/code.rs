//! The codes of `grpc.h` and their names, the conversion of other errors to codes, and each thread's last error.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gridloom::Error;
use gridloom::data::{DataError, InvalidData};
use gridloom_base::{NameError, TaskError};

macro_rules! codes {
    ($($name:ident = $value:literal;)*) => {
        $(#[allow(missing_docs, reason = "the header says what it means")]
        pub const $name: c_int = $value;)*

        /// Every code with its name.
        pub(crate) const CODES: &[(c_int, &CStr)] = &[$(($value, as_c(concat!(stringify!($name), "\0")))),*];
    };
}

codes! {
    GRPC_NO_ERROR = 0;
    GRPC_NOT_INITIALIZED = 1;
    GRPC_ALREADY_INITIALIZED = 2;
    GRPC_CONFIGFILE_NOT_FOUND = 3;
    GRPC_CONFIGFILE_ERROR = 4;
    GRPC_SERVER_NOT_FOUND = 5;
    GRPC_FUNCTION_NOT_FOUND = 6;
    GRPC_INVALID_FUNCTION_HANDLE = 7;
    GRPC_INVALID_SESSION_ID = 8;
    GRPC_RPC_REFUSED = 9;
    GRPC_COMMUNICATION_FAILED = 10;
    GRPC_SESSION_FAILED = 11;
    GRPC_NOT_COMPLETED = 12;
    GRPC_NONE_COMPLETED = 13;
    GRPC_INVALID_OBJECT_HANDLE_NP = 14;
    GRPC_CLASS_NOT_FOUND_NP = 15;
    GRPC_TIMEOUT_NP = 16;
    GRPC_CANCELED_NP = 17;
    GRPC_OTHER_ERROR_CODE = 18;
    GRPC_UNKNOWN_ERROR_CODE = 19;
    GRPC_INVALID_DATA_NP = 20;
    GRPC_MAP_DIFFERS_NP = 21;
    GRPC_NAME_EXISTS_NP = 22;
    GRPC_NAME_NOT_FOUND_NP = 23;
    GRPC_INVALID_NAME_NP = 24;
    GRPC_SIZE_DIFFERS_NP = 25;
    GRPC_NO_ROOM_NP = 26;
    GRPC_LAST_ERROR_CODE = 27;
}

const fn as_c(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a name of one word and a NUL"),
    }
}

/// An error that is reported to C.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    pub(crate) code: c_int,
    /// Empty for a result that is not an error: something has not ended yet.
    pub(crate) text: String,
}

pub type Outcome<T> = Result<T, Failed>;

impl Failed {
    pub fn new(code: c_int, text: impl Into<String>) -> Failed {
        Failed { code, text: text.into() }
    }

    pub fn other(text: impl Into<String>) -> Failed {
        Failed::new(GRPC_OTHER_ERROR_CODE, text)
    }

    /// Returns why a result is not available: it is lost, or the call that should have made it failed.
    pub(crate) fn without_value(error: Error, name: impl std::fmt::Display) -> Failed {
        let code = match &error {
            Error::Task(
                TaskError::DatumLost { .. }
                | TaskError::OutOfMemory { .. }
                | TaskError::ServerLost { .. }
                | TaskError::NotMapped { .. },
            ) => GRPC_INVALID_DATA_NP,
            Error::Task(_) | Error::Discarded { .. } => GRPC_SESSION_FAILED,
            _ => return error.into(),
        };
        Failed::new(code, format!("{name}: {error}"))
    }

    /// Returns the error of a method: an object is lost with its server.
    pub(crate) fn of_method(error: Error) -> Failed {
        match error {
            Error::Task(lost @ TaskError::ServerLost { .. }) => {
                Failed::new(GRPC_INVALID_OBJECT_HANDLE_NP, lost.to_string())
            }
            error => error.into(),
        }
    }

    /// Returns the error for a pointer that must not be null.
    pub fn null(what: &str) -> Failed {
        Failed::other(format!("{what} is NULL; give its address"))
    }
}

impl From<TaskError> for Failed {
    fn from(error: TaskError) -> Failed {
        let code = match &error {
            TaskError::ObjectMissing { .. } => GRPC_INVALID_OBJECT_HANDLE_NP,
            TaskError::Crashed { .. } | TaskError::ServerLost { .. } | TaskError::AgentLost { .. } => {
                GRPC_COMMUNICATION_FAILED
            }
            TaskError::NoSuchFunction { .. } => GRPC_FUNCTION_NOT_FOUND,
            TaskError::CannotRun { .. }
            | TaskError::Refused { .. }
            | TaskError::NotPermitted { .. }
            | TaskError::QuotaExceeded { .. }
            | TaskError::StoreFull { .. }
            | TaskError::StoreFailed { .. }
            | TaskError::Preempted { .. } => GRPC_RPC_REFUSED,
            TaskError::DatumLost { .. } | TaskError::OutOfMemory { .. } => GRPC_INVALID_DATA_NP,
            TaskError::Cancelled => GRPC_CANCELED_NP,
            TaskError::DeadlineExceeded { .. } | TaskError::TransferTimedOut { .. } => GRPC_TIMEOUT_NP,
            // The enum may grow: a new error is at least a failure with a text.
            _ => GRPC_SESSION_FAILED,
        };
        Failed::new(code, error.to_string())
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let code = match error {
            Error::Task(error) => return error.into(),
            Error::Name(error) => return error.into(),
            Error::UnknownFunction { .. } => GRPC_FUNCTION_NOT_FOUND,
            Error::UnknownClass { .. } => GRPC_CLASS_NOT_FOUND_NP,
            Error::TooLarge { .. } => GRPC_RPC_REFUSED,
            Error::Connect(_) => GRPC_COMMUNICATION_FAILED,
            Error::TimedOut { .. } => GRPC_TIMEOUT_NP,
            _ => GRPC_OTHER_ERROR_CODE,
        };
        Failed::new(code, error.to_string())
    }
}

impl From<NameError> for Failed {
    fn from(error: NameError) -> Failed {
        let code = match &error {
            NameError::Exists { .. } | NameError::BeingPut { .. } | NameError::ContentDiffers { .. } => {
                GRPC_NAME_EXISTS_NP
            }
            NameError::Unknown { .. } => GRPC_NAME_NOT_FOUND_NP,
            NameError::InvalidName { .. } => GRPC_INVALID_NAME_NP,
            NameError::NoRoom { .. } | NameError::TooMany { .. } => GRPC_NO_ROOM_NP,
            NameError::Lost { .. } => GRPC_INVALID_DATA_NP,
            NameError::NotOwner { .. } | NameError::NotShared { .. } | NameError::QuotaExceeded { .. } => {
                GRPC_RPC_REFUSED
            }
            NameError::NoAgent { .. } | NameError::AgentDisconnects { .. } | NameError::NotStored { .. } => {
                GRPC_COMMUNICATION_FAILED
            }
            // The enum may grow.
            _ => GRPC_OTHER_ERROR_CODE,
        };
        Failed::new(code, error.to_string())
    }
}

impl From<DataError> for Failed {
    fn from(error: DataError) -> Failed {
        let code = match error {
            DataError::NoValue { datum, error } => return Failed::without_value(error, datum),
            DataError::Session(error) => return error.into(),
            DataError::Invalid(_) => GRPC_INVALID_DATA_NP,
            DataError::UnknownServer(_) => GRPC_SERVER_NOT_FOUND,
            _ => GRPC_OTHER_ERROR_CODE,
        };
        Failed::new(code, error.to_string())
    }
}

impl From<InvalidData> for Failed {
    fn from(InvalidData(why): InvalidData) -> Failed {
        Failed::new(GRPC_INVALID_DATA_NP, why)
    }
}

thread_local! {
    static LAST: RefCell<(c_int, CString)> = RefCell::default();
}

/// Runs the body of a function of the header. Returns its code, and records its error as the thread's last one. No
/// panic leaves it: a panic would be a bug of Gridloom, which was reported where it occurred.
pub fn run(call: impl FnOnce() -> Outcome<()>) -> c_int {
    match caught(call) {
        Ok(()) => GRPC_NO_ERROR,
        Err(failed) => {
            record_error(&failed);
            failed.code
        }
    }
}

/// Like [`run`], for a function that returns something other than a code.
pub fn run_for<R>(call: impl FnOnce() -> Outcome<R>, otherwise: R) -> R {
    match caught(call) {
        Ok(value) => value,
        Err(failed) => {
            record_error(&failed);
            otherwise
        }
    }
}

thread_local! {
    /// How many calls of the library this thread is in.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// Runs a part of the library. Meanwhile [`is_inside`] is true for this thread.
pub(crate) fn inside<R>(run: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            INSIDE.set(INSIDE.get() - 1);
        }
    }
    INSIDE.set(INSIDE.get() + 1);
    let _leave = Leave;
    run()
}

/// True if this thread runs code of the library, which may start processes.
pub(crate) fn is_inside() -> bool {
    INSIDE.get() > 0
}

fn caught<R>(call: impl FnOnce() -> Outcome<R>) -> Outcome<R> {
    inside(|| catch_unwind(AssertUnwindSafe(call))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().copied().map(str::to_string);
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Failed::other(format!("an error of the library itself: {said}")))
    })
}

/// Records an error as this thread's last one.
pub(crate) fn record_error(failed: &Failed) {
    if !failed.text.is_empty() {
        // A thread that is ending, or a program in its exit handlers, no longer has one.
        let _ = LAST.try_with(|last| *last.borrow_mut() = (failed.code, to_c(&failed.text)));
    }
}

/// Returns code and text of this thread's last error; the text is valid until the next error.
pub fn last_error() -> (c_int, *const c_char) {
    let kept = LAST.try_with(|last| {
        let (code, text) = &*last.borrow();
        (*code, text.as_ptr())
    });
    kept.unwrap_or((GRPC_NO_ERROR, c"".as_ptr()))
}

pub fn name_of(code: c_int) -> &'static CStr {
    let found = CODES.iter().find(|(known, _)| *known == code);
    found.map_or(c"GRPC_UNKNOWN_ERROR_CODE", |(_, name)| name)
}

/// Returns a text as a C string, cut at the first NUL.
pub fn to_c(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).expect("it was cut before its first NUL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_codes() {
        assert_eq!(name_of(GRPC_TIMEOUT_NP), c"GRPC_TIMEOUT_NP");
        assert_eq!(name_of(-1), c"GRPC_UNKNOWN_ERROR_CODE");
        assert_eq!(CODES.len() as c_int, GRPC_LAST_ERROR_CODE + 1);
    }

    #[test]
    fn a_panic_is_a_code_and_a_text() {
        assert_eq!(run(|| panic!("impossible")), GRPC_OTHER_ERROR_CODE);
        // SAFETY: a C string of this thread.
        let text = unsafe { CStr::from_ptr(last_error().1) }.to_str().unwrap();
        assert_eq!(text, "an error of the library itself: impossible");
        assert_eq!(run(|| Err(Failed::new(GRPC_NOT_COMPLETED, ""))), GRPC_NOT_COMPLETED);
        assert_eq!(last_error().0, GRPC_OTHER_ERROR_CODE);
    }
}
