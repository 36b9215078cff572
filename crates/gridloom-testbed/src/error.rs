//! Errors of testbeds, with remedies.

use std::io;

/// The reason why a testbed cannot be built or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The platform cannot be emulated.
    #[error("{0}")]
    Platform(String),
    /// The machine does not permit this user to build it.
    #[error("{0}")]
    Forbidden(String),
    /// A step of building or running it failed.
    #[error("{what}: {error}")]
    System {
        /// The step that failed.
        what: String,
        /// The system's error. It is part of the message and therefore not a `source`, which would print it twice.
        error: io::Error,
    },
    /// An interrupt or a request to end arrived before the testbed was up; contains the signal's number.
    #[error("ended by signal {0} before the testbed was up")]
    Signalled(i32),
    /// The request names something that does not exist.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// Returns a function for `map_err` that adds the step that failed.
    pub fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
        move |error| Error::System { what: what.into(), error: error.into() }
    }
}
