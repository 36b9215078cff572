//! Errors in C: a number and a text.

use std::ffi::c_int;

use gridloom_layout::LayoutError;
use gridloom_process::ProcessError;

/// Success.
pub const GRIDLOOM_OK: c_int = 0;
/// Nothing arrived in time.
pub const GRIDLOOM_TIMED_OUT: c_int = -1;
/// The connection is closed.
pub const GRIDLOOM_CLOSED: c_int = -2;
/// The other side failed because of a message from this one.
pub const GRIDLOOM_REMOTE: c_int = -3;
/// Nobody listens at that address.
pub const GRIDLOOM_CANNOT_CONNECT: c_int = -4;
/// The port is in use.
pub const GRIDLOOM_CANNOT_LISTEN: c_int = -5;
pub const GRIDLOOM_NO_SUCH_HOST: c_int = -6;
/// A message exceeds the limit.
pub const GRIDLOOM_TOO_LARGE: c_int = -7;
/// The world ends.
pub const GRIDLOOM_ENDED: c_int = -8;
/// Any other failure.
pub const GRIDLOOM_FAILED: c_int = -9;
/// A message does not match its declaration.
pub const GRIDLOOM_LAYOUT: c_int = -10;
/// A mistake of the program.
pub const GRIDLOOM_USAGE: c_int = -11;

/// An error that is reported to C.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub(crate) code: c_int,
    pub(crate) text: String,
    /// The return value of the other side's callback.
    pub(crate) remote: c_int,
}

impl Failure {
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> Failure {
        Failure { code, text: text.into(), remote: 0 }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure::new(GRIDLOOM_USAGE, text)
    }
}

impl From<ProcessError> for Failure {
    fn from(error: ProcessError) -> Failure {
        let code = match &error {
            ProcessError::TimedOut { .. } => GRIDLOOM_TIMED_OUT,
            ProcessError::Closed { .. } => GRIDLOOM_CLOSED,
            ProcessError::Remote { .. } => GRIDLOOM_REMOTE,
            ProcessError::CannotConnect { .. } => GRIDLOOM_CANNOT_CONNECT,
            ProcessError::CannotListen { .. } => GRIDLOOM_CANNOT_LISTEN,
            ProcessError::NoSuchHost { .. } => GRIDLOOM_NO_SUCH_HOST,
            ProcessError::TooLarge { .. } => GRIDLOOM_TOO_LARGE,
            ProcessError::WrongMessage { .. } => GRIDLOOM_LAYOUT,
            ProcessError::Ended { .. } => GRIDLOOM_ENDED,
            ProcessError::WrongNumber { .. } => GRIDLOOM_USAGE,
            // The enum may grow: a new error is at least a failure with a text.
            _ => GRIDLOOM_FAILED,
        };
        let remote = match &error {
            ProcessError::Remote { why, .. } => read_code(why),
            _ => 0,
        };
        Failure { code, text: error.to_string(), remote }
    }
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Failure {
        Failure::new(GRIDLOOM_LAYOUT, error.to_string())
    }
}

/// Encodes a callback's code and text in the text that is sent; programs in other languages show it unchanged.
pub(crate) fn write_code(code: c_int, text: &str) -> String {
    if text.is_empty() { format!("code {code}") } else { format!("code {code}: {text}") }
}

/// Returns the code in such a text, or 0.
fn read_code(text: &str) -> c_int {
    let Some(rest) = text.strip_prefix("code ") else { return 0 };
    rest.split_once(':').map_or(rest, |(code, _)| code).parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_cross_as_text() {
        for (code, text) in [(42, "singular: row 3"), (-7, ""), (1, "x")] {
            assert_eq!(read_code(&write_code(code, text)), code);
        }
        assert_eq!(read_code("ValueError: no"), 0);
        assert_eq!(read_code("code of conduct"), 0);
    }
}
