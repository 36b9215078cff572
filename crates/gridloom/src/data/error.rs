//! Errors of data that a program manages.

use gridloom_core::data::InvalidData;

use crate::Error;

/// An error of a datum, or of a place of data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The datum does not allow the operation, or a place does not have it; with the reason.
    #[error("{0}")]
    Invalid(String),
    /// No server has that name.
    #[error("{0}")]
    UnknownServer(String),
    /// A datum has no value, since its call failed, or the value is lost.
    #[error("{datum}: {error}")]
    NoValue {
        /// The datum, or the place that was read.
        datum: String,
        error: Error,
    },
    /// The client's own files or memory do not accept a value; with the reason.
    #[error("{0}")]
    Unwritable(String),
    /// An argument, or the session, does not allow it.
    #[error(transparent)]
    Session(#[from] Error),
}

impl DataError {
    pub(super) fn no_value(error: Error, datum: impl std::fmt::Display) -> DataError {
        DataError::NoValue { datum: datum.to_string(), error }
    }
}

impl From<InvalidData> for DataError {
    fn from(InvalidData(why): InvalidData) -> DataError {
        DataError::Invalid(why)
    }
}
