//! Errors of processes.

use thiserror::Error;

use gridloom_base::size::size_text;

/// Why a call of a process failed.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    #[error("no host '{host}' is known; known are {known}")]
    NoSuchHost {
        host: String,
        /// Some of the known hosts.
        known: String,
    },
    #[error("cannot connect to {host}:{port}: {why}")]
    CannotConnect { host: String, port: u16, why: String },
    #[error("cannot listen on port {port} of host '{host}': {why}")]
    CannotListen {
        /// The process's own host.
        host: String,
        port: u16,
        why: String,
    },
    #[error("the connection to {peer} is closed: {why}")]
    Closed {
        /// The other side as text.
        peer: String,
        why: String,
    },
    /// The message exceeds the size limit.
    #[error(
        "message '{kind}': {}; at most {} in one message: send it in parts, or use a grid's data",
        size_text(*.size_bytes), size_text(*.limit)
    )]
    TooLarge { kind: String, size_bytes: u64, limit: u64 },
    /// The message did not arrive in time.
    #[error("no {awaited} arrived within {seconds} s{}{unread}", if .unread.is_empty() { "" } else { "; unread: " })]
    TimedOut {
        /// The awaited message as text.
        awaited: String,
        /// The time limit.
        seconds: f64,
        /// Messages that arrived and that the process has not taken, as text.
        unread: String,
    },
    /// The other side's callback failed for a message from this process.
    #[error("{peer} failed: {why}")]
    Remote {
        /// The other side as text.
        peer: String,
        /// Its error as text.
        why: String,
    },
    /// A typed message whose values do not match its type, or received bytes that are not such a message.
    #[error("{why}")]
    WrongMessage {
        /// Name of the message's type.
        kind: String,
        /// The error: the type, the field, the actual value and the expected one.
        why: String,
    },
    /// A number out of range: a time that is not finite, a negative amount of work.
    #[error("{what}: {} {unit}; give {remedy}", number(*.value))]
    WrongNumber {
        /// The call and its argument.
        what: String,
        value: f64,
        unit: String,
        /// A valid value.
        remedy: String,
    },
    /// An error of the process's own code.
    #[error("{0}")]
    Failed(String),
    /// The world is shutting down.
    #[error("{why}")]
    Ended { why: String },
}

/// Formats a number with few digits, however large it is.
fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1e15 || size > 0.0 && size < 1e-6 { format!("{value:e}") } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_short_and_have_units() {
        let large = |size_bytes| ProcessError::TooLarge { kind: "A".into(), size_bytes, limit: 1 << 30 }.to_string();
        let remedy = "; at most 1 GiB in one message: send it in parts, or use a grid's data";
        assert_eq!(large(128 << 30), format!("message 'A': 128 GiB{remedy}"));
        assert_eq!(large((1 << 30) + 1), format!("message 'A': 1.00 GiB (1073741825 bytes){remedy}"));
        let wrong = |value| {
            let (what, unit, remedy) = ("sleep".into(), "seconds".into(), "a time that ends".into());
            ProcessError::WrongNumber { what, value, unit, remedy }.to_string()
        };
        assert_eq!(wrong(1e300), "sleep: 1e300 seconds; give a time that ends");
        assert_eq!(wrong(-1.5), "sleep: -1.5 seconds; give a time that ends");
        let timed_out = |unread: &str| {
            ProcessError::TimedOut { awaited: "message 'A'".into(), seconds: 20.0, unread: unread.into() }.to_string()
        };
        assert_eq!(timed_out(""), "no message 'A' arrived within 20 s");
        assert_eq!(timed_out("1 'B' of c@d"), "no message 'A' arrived within 20 s; unread: 1 'B' of c@d");
    }
}
