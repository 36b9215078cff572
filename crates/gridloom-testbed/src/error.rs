//! Errors of testbeds, with remedies.

use std::io;

/// Why a testbed cannot be built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The platform cannot be emulated.
    #[error("{0}")]
    Platform(String),
    /// The machine does not let this user build it.
    #[error("{0}")]
    Forbidden(String),
    /// A step of building or running it failed.
    #[error("{what}: {error}")]
    System {
        /// The step that failed.
        what: String,
        /// The system's error. The message has it, so it is no source: it would be printed twice.
        error: io::Error,
    },
    /// An interrupt, or a request to end, came before the testbed was up; the signal's number.
    #[error("ended by signal {0} before the testbed was up")]
    Signalled(i32),
    /// Asked for something that is not there.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// For `map_err`: names the step that failed.
    pub fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
        move |error| Error::System { what: what.into(), error: error.into() }
    }
}
