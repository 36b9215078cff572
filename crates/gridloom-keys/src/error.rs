//! Errors of keys and certificates.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use gridloom_base::EscapedBytes;
use thiserror::Error;

use crate::invalid::Invalid;
use crate::pem::PemError;
use crate::refusal::Refusal;

/// What prevents keys from being made, read, approved or used. The text has the value, the limit and the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeysError {
    /// A value that the caller gave.
    #[error("{0}")]
    Invalid(String),
    /// A file or folder that cannot be read or written, or whose content is wrong.
    #[error("{}{}: {why}", EscapedBytes::of(path), line.map(|line| format!(":{line}")).unwrap_or_default())]
    File { path: PathBuf, line: Option<usize>, why: String },
    /// Keys that do not exist yet.
    #[error("{0}")]
    Missing(String),
    /// Keys that exist already.
    #[error("{0}")]
    Exists(String),
    /// A certificate that is not valid.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The cryptographic library failed.
    #[error("the cryptographic library failed: {0}")]
    Library(String),
}

impl KeysError {
    pub(crate) fn invalid(why: impl Display) -> KeysError {
        KeysError::Invalid(why.to_string())
    }

    pub(crate) fn library(why: impl Display) -> KeysError {
        KeysError::Library(why.to_string())
    }

    /// Names the file of an error of the system.
    pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> KeysError {
        move |error| KeysError::file(path, error)
    }

    pub(crate) fn file(path: &Path, why: impl Display) -> KeysError {
        KeysError::File { path: path.into(), line: None, why: why.to_string() }
    }

    pub(crate) fn line(path: &Path, line: usize, why: impl Display) -> KeysError {
        KeysError::File { path: path.into(), line: Some(line), why: why.to_string() }
    }
}

impl From<Invalid> for KeysError {
    fn from(Invalid(why): Invalid) -> KeysError {
        KeysError::Invalid(why)
    }
}

impl From<PemError> for KeysError {
    fn from(error: PemError) -> KeysError {
        let line = error.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        KeysError::Invalid(format!("{line}{}", error.why))
    }
}

impl From<getrandom::Error> for KeysError {
    fn from(error: getrandom::Error) -> KeysError {
        KeysError::library(error)
    }
}
