//! Converts Rust errors to Python exceptions. `gridloom.errors.of_variant` has the class of each variant.

use gridloom::Error;
use gridloom::process::ProcessError;
use gridloom_base::{NameError, TaskError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::import;

/// Converts errors of the session to Python exceptions.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: Into<Error>> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error.into()))
    }
}

pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let fields = PyDict::new(py);
    let class = match error {
        Error::Argument(_) | Error::TooLarge { .. } => "ArgumentError",
        Error::Task(task) => match task_fields(task, &fields) {
            Ok(class) => class,
            Err(failure) => return failure,
        },
        Error::Connect(_) => "ConnectError",
        Error::UnknownFunction { name, .. } | Error::UnknownClass { name, .. } => match fields.set_item("name", name) {
            Ok(()) => "UnknownFunctionError",
            Err(failure) => return failure,
        },
        Error::Process(error) => match error {
            ProcessError::TimedOut { .. } => "TimedOut",
            ProcessError::Closed { .. } => "ConnectionClosed",
            ProcessError::CannotConnect { .. } | ProcessError::NoSuchHost { .. } => "CannotConnect",
            ProcessError::Remote { .. } => "RemoteFailure",
            ProcessError::Ended { .. } => "ProcessEnded",
            ProcessError::WrongNumber { .. } => "WrongNumber",
            ProcessError::WrongMessage { kind, .. } => match fields.set_item("kind", kind) {
                Ok(()) => "WrongMessage",
                Err(failure) => return failure,
            },
            _ => "ProcessError",
        },
        Error::DiffersFromDeclared(difference) => {
            let set = fields
                .set_item("call", difference.call)
                .and_then(|()| fields.set_item("function", &difference.function))
                .and_then(|()| fields.set_item("described", &difference.described))
                .and_then(|()| fields.set_item("why", &difference.why));
            match set {
                Ok(()) => "DifferenceError",
                Err(failure) => return failure,
            }
        }
        Error::Discarded { function, why } => {
            match fields.set_item("function", function).and_then(|()| fields.set_item("why", why)) {
                Ok(()) => "Discarded",
                Err(failure) => return failure,
            }
        }
        Error::NoMemory { size_bytes, .. } => {
            match fields.set_item("size_bytes", size_bytes).and_then(|()| fields.set_item("place", "in this program")) {
                Ok(()) => "OutOfMemory",
                Err(failure) => return failure,
            }
        }
        Error::TimedOut { limit_seconds } => match fields.set_item("limit_seconds", limit_seconds) {
            Ok(()) => "WaitTimedOut",
            Err(failure) => return failure,
        },
        Error::Name(name) => match name_fields(name, &fields) {
            Ok(class) => class,
            Err(failure) => return failure,
        },
        Error::Chares(_) => "ChareError",
        Error::Usage(_) => "UsageError",
        Error::Input(_) => "InputError",
        Error::Stalled { seconds, .. } => match fields.set_item("seconds", seconds) {
            Ok(()) => "StalledError",
            Err(failure) => return failure,
        },
        _ => "GridloomError",
    };
    raised(py, class, &error.to_string(), &fields)
}

/// Makes an exception of a class of the package.
pub(crate) fn error(py: Python<'_>, class: &str, message: &str) -> PyErr {
    raised(py, class, message, &PyDict::new(py))
}

pub(crate) fn wrong_message(py: Python<'_>, kind: &str, why: &str) -> PyErr {
    exception(py, &ProcessError::WrongMessage { kind: kind.into(), why: why.into() }.into())
}

fn raised(py: Python<'_>, class: &str, message: &str, fields: &Bound<'_, PyDict>) -> PyErr {
    let make = || import(py, "gridloom.errors")?.call_method1("of_variant", (class, message, fields));
    match make() {
        Ok(exception) => PyErr::from_value(exception),
        Err(failure) => failure,
    }
}

/// Returns the name of the Python exception class, and sets its attributes in `fields`.
fn task_fields(error: &TaskError, fields: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    let set = |name: &str, value: &str| fields.set_item(name, value);
    Ok(match error {
        // The process of an object died, perhaps between two calls.
        TaskError::Crashed { function, server, how } | TaskError::ObjectMissing { function, server, why: how } => {
            set("function", function)?;
            set("server", server)?;
            set("how", how)?;
            "Crashed"
        }
        TaskError::Raised { function, server, kind, message, traceback, cause: _ } => {
            set("function", function)?;
            set("server", server)?;
            set("kind", kind)?;
            set("message", message)?;
            set("traceback", traceback.trim_start_matches('\n'))?;
            "RemoteError"
        }
        TaskError::WrongResult { function, server, why } => {
            set("function", function)?;
            set("server", server)?;
            set("why", why)?;
            "WrongResult"
        }
        TaskError::NoSuchFunction { function, .. } => {
            set("name", function)?;
            "UnknownFunctionError"
        }
        TaskError::CannotRun { function, server, why } => {
            set("function", function)?;
            set("server", server)?;
            set("why", why)?;
            "CannotRun"
        }
        TaskError::StoreFull { function, server, needed, held, limit, .. } => {
            set("function", function)?;
            set("server", server)?;
            fields.set_item("needed_bytes", needed)?;
            fields.set_item("held_bytes", held)?;
            fields.set_item("limit_bytes", limit)?;
            "StoreFull"
        }
        TaskError::StoreFailed { server, why } => {
            set("server", server)?;
            set("why", why)?;
            "TaskError"
        }
        TaskError::MemoryExceeded { function, server, used_bytes, limit_bytes } => {
            set("function", function)?;
            set("server", server)?;
            fields.set_item("needed_bytes", used_bytes)?;
            fields.set_item("limit_bytes", limit_bytes)?;
            "MemoryExceeded"
        }
        TaskError::ProcessesExceeded { function, server, count, limit } => {
            set("function", function)?;
            set("server", server)?;
            fields.set_item("used", count)?;
            fields.set_item("limit", limit)?;
            "ProcessesExceeded"
        }
        TaskError::TimeExceeded { function, server, limit_seconds } => {
            set("function", function)?;
            set("server", server)?;
            fields.set_item("limit", limit_seconds)?;
            "TimeExceeded"
        }
        TaskError::Preempted { function, server } => {
            set("function", function)?;
            set("server", server)?;
            "TaskError"
        }
        TaskError::Cancelled => "Cancelled",
        TaskError::DeadlineExceeded { limit_seconds } | TaskError::TransferTimedOut { limit_seconds, .. } => {
            fields.set_item("limit_seconds", limit_seconds)?;
            "DeadlineExceeded"
        }
        TaskError::ServerLost { function, server, why, .. } => {
            set("function", function)?;
            set("server", server)?;
            set("why", why)?;
            "ServerLost"
        }
        TaskError::DatumLost { why, .. } => {
            set("why", why)?;
            "DatumLost"
        }
        TaskError::OutOfMemory { place, why, .. } => {
            set("place", place)?;
            set("why", why)?;
            "OutOfMemory"
        }
        TaskError::DependencyFailed { why, .. } => {
            set("why", why)?;
            "DependencyFailed"
        }
        TaskError::NotMapped { why } => {
            set("why", why)?;
            "NotMapped"
        }
        TaskError::AgentLost { address, why, .. } => {
            set("address", address)?;
            set("why", why)?;
            "AgentLost"
        }
        TaskError::Refused { function, server, why } => {
            set("function", function)?;
            set("server", server)?;
            set("why", why)?;
            "Refused"
        }
        TaskError::NotPermitted { function, server, why } => {
            set("function", function)?;
            set("server", server)?;
            set("why", why)?;
            "NotPermitted"
        }
        TaskError::QuotaExceeded { function, server, why, .. } => {
            set("function", function)?;
            set("server", server)?;
            set("why", why)?;
            "QuotaExceeded"
        }
        _ => "TaskError",
    })
}

/// Like [`task_fields`], but for errors about shared data.
fn name_fields(error: &NameError, fields: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    Ok(match error {
        NameError::Exists { name } | NameError::BeingPut { name } | NameError::ContentDiffers { name } => {
            fields.set_item("name", name)?;
            "NameExists"
        }
        NameError::Unknown { name, near } => {
            fields.set_item("name", name)?;
            fields.set_item("near", near)?;
            "UnknownName"
        }
        NameError::Lost { name, .. } => {
            fields.set_item("name", name)?;
            "SharedDataLost"
        }
        NameError::NoRoom { name, size_bytes, .. } => {
            fields.set_item("name", name)?;
            fields.set_item("size_bytes", size_bytes)?;
            "NoRoomToShare"
        }
        NameError::NotOwner { name, owner, .. } | NameError::NotShared { name, owner, .. } => {
            fields.set_item("name", name)?;
            fields.set_item("owner", owner)?;
            "NotPermitted"
        }
        NameError::InvalidName { .. } | NameError::InvalidReader { .. } | NameError::TooManyReaders { .. } => {
            "ArgumentError"
        }
        NameError::QuotaExceeded { name, server, why } => {
            fields.set_item("name", name)?;
            fields.set_item("server", server)?;
            fields.set_item("why", why)?;
            "QuotaExceeded"
        }
        NameError::NoAgent { .. } | NameError::AgentDisconnects { .. } => "ConnectError",
        _ => "SharedDataError",
    })
}
