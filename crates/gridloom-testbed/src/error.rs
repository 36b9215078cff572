//! What can go wrong, with what to do about it.

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
        /// What was being done.
        what: String,
        /// What the system said. It is in the message, and so no source, which would be told twice.
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
    /// For `map_err`: what was being done when the system said no.
    pub fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
        move |error| Error::System { what: what.into(), error: error.into() }
    }
}
