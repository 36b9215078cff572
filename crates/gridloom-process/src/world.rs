//! The contract of a process's world, kept by the real one and by the simulated one alike.
//!
//! **Promises of a world**
//! 1. Letters of one connection arrive whole, once, and in the order in which they were sent; nothing is promised between
//!    connections.
//! 2. [`Incoming::Closed`] comes after the last letter of that connection, once, and only if this side did not close it.
//! 3. `receive` gives what has arrived, the earliest first, before it looks at the time; with a time limit it gives
//!    `None` at the limit and not before.
//! 4. `send` returns when the letter is on its way; it waits while more than [`SEND_BYTES_MAX`] of that connection are on
//!    their way already.
//! 5. Time never goes back, and stands still in simulation while the process computes, unless it says for how long.
//! 6. Every call may fail with [`ProcessError::Ended`]: the world is going away, and the code must return.
//!
//! [`SEND_BYTES_MAX`]: gridloom_base::limits::SEND_BYTES_MAX

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Letter;
use gridloom_base::Time;
use gridloom_base::size::size_text;

/// A connection of a process, in its own numbering.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PeerId(pub u64);

/// What comes to a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Incoming {
    Letter {
        /// The sender; new if a connection was accepted.
        from: PeerId,
        letter: Letter,
    },
    /// The other side has closed the connection, or is gone.
    Closed { peer: PeerId, why: String },
}

impl Incoming {
    /// By which connection it comes.
    pub fn peer(&self) -> PeerId {
        match self {
            Incoming::Letter { from, .. } => *from,
            Incoming::Closed { peer, .. } => *peer,
        }
    }
}

/// A process's function, host and arguments.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// Name of the function that it runs.
    pub function: String,
    pub host: String,
    pub arguments: Vec<String>,
}

/// How much a line of the log matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Level {
    /// For debugging.
    Debug,
    /// For following a run.
    Info,
    /// Something is odd.
    Warning,
    /// Something is wrong.
    Error,
}

/// What can go wrong.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum ProcessError {
    #[error("no host '{host}' is known; known are {known}")]
    NoSuchHost {
        host: String,
        /// Some of those that there are.
        known: String,
    },
    /// A connection could not be made.
    #[error("cannot connect to {host}:{port}: {why}")]
    CannotConnect { host: String, port: u16, why: String },
    /// A port cannot be listened on.
    #[error("cannot listen on port {port} of host '{host}': {why}")]
    CannotListen {
        /// Own host.
        host: String,
        port: u16,
        why: String,
    },
    /// The connection is closed.
    #[error("the connection to {peer} is closed: {why}")]
    Closed {
        /// The other side, in words.
        peer: String,
        why: String,
    },
    /// The letter exceeds the limit.
    #[error(
        "message '{kind}': {}; at most {} in one message: send it in parts, or use a grid's data",
        size_text(*.size_bytes), size_text(*.limit)
    )]
    TooLarge { kind: String, size_bytes: u64, limit: u64 },
    /// Nothing came in time.
    #[error("no {awaited} came within {seconds} s{}{unread}", if .unread.is_empty() { "" } else { "; unread: " })]
    TimedOut {
        /// What was waited for, in words.
        awaited: String,
        /// The time limit.
        seconds: f64,
        /// Letters that came and that the process has not taken, in words.
        unread: String,
    },
    /// A callback of the other side failed for a message of this one.
    #[error("{peer} failed: {why}")]
    Remote {
        /// The other side, in words.
        peer: String,
        /// Its error, in words.
        why: String,
    },
    /// A typed message cannot be sent, since its values do not fit its type, or what came is no such message.
    #[error("{why}")]
    WrongMessage {
        /// Name of the message's type.
        kind: String,
        /// What is wrong: the type, the field, what it is and what was expected.
        why: String,
    },
    /// A number that cannot be meant: a time that is none, a negative amount of work.
    #[error("{what}: {} {unit}; give {remedy}", number(*.value))]
    WrongNumber {
        /// Of what call.
        what: String,
        value: f64,
        unit: String,
        /// What it should be.
        remedy: String,
    },
    /// What a process's own code says.
    #[error("{0}")]
    Failed(String),
    /// The world is going away.
    #[error("{why}")]
    Ended { why: String },
}

/// A number in few digits, however large it is.
fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1e15 || size > 0.0 && size < 1e-6 { format!("{value:e}") } else { value.to_string() }
}

/// The world, as one process sees it.
pub trait ProcessWorld: Send {
    fn spec(&self) -> &ProcessSpec;

    /// The time: since 1970 for real, since the beginning in simulation.
    fn now(&self) -> Time;

    /// Listens on a port of the own host; 0 lets the world choose. The port.
    ///
    /// # Errors
    /// [`ProcessError::CannotListen`].
    fn listen(&mut self, port: u16) -> Result<u16, ProcessError>;

    /// Connects to the process that listens there; `host` is a name of the deployment. Refused at once if no process listens.
    ///
    /// # Errors
    /// [`ProcessError::NoSuchHost`], [`ProcessError::CannotConnect`].
    fn connect(&mut self, host: &str, port: u16) -> Result<PeerId, ProcessError>;

    /// # Errors
    /// [`ProcessError::Closed`], [`ProcessError::TooLarge`].
    fn send(&mut self, peer: PeerId, letter: Letter) -> Result<(), ProcessError>;

    /// An empty buffer in which a letter may be made: with room already, if the world keeps those that are done with.
    fn spare(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes the payload of a letter that is done with.
    fn keep(&mut self, payload: Vec<u8>) {
        drop(payload);
    }

    /// The next that comes; `None` at `until`.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    fn receive(&mut self, until: Option<Time>) -> Result<Option<Incoming>, ProcessError>;

    /// The type and the sender of the letters that the process waits for, until it says otherwise: explains why it waits.
    /// `None` stands for any that it handles.
    fn expect(&mut self, kind: Option<&str>, from: Option<PeerId>) {
        let _ = (kind, from);
    }

    /// Closes a connection; what was sent still arrives.
    fn close(&mut self, peer: PeerId);

    /// Whether nothing comes from it any more: the connection was closed by either side, and `receive` has given
    /// everything that came.
    fn is_closed(&self, peer: PeerId) -> bool;

    /// Why a connection is closed, in words.
    fn why_closed(&self, peer: PeerId) -> String {
        format!("it was closed here, or by {}", self.describe(peer))
    }

    /// The other side's host, and its port or 0, in words.
    fn describe(&self, peer: PeerId) -> String;

    /// Waits. What comes meanwhile waits too.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    fn sleep_until(&mut self, at: Time) -> Result<(), ProcessError>;

    /// The process computes for so many floating-point operations: takes time in simulation, and none for real.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    fn compute(&mut self, flops: f64) -> Result<(), ProcessError>;

    /// The process computed for so long on the real machine, in the block of that name: takes as long in simulation as
    /// the simulated host needs for it, and no more time for real.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    fn computed(&mut self, block: &str, real_ns: u64) -> Result<(), ProcessError>;

    fn log(&mut self, level: Level, category: &str, text: &str);

    fn is_simulated(&self) -> bool;
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        })
    }
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
        assert_eq!(timed_out(""), "no message 'A' came within 20 s");
        assert_eq!(timed_out("1 'B' of c@d"), "no message 'A' came within 20 s; unread: 1 'B' of c@d");
    }
}
