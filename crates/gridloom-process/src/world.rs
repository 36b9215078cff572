//! The contract of a process's world, which the real and the simulated world both fulfil.
//!
//! **Promises of a world**
//! 1. Messages of one connection and lane arrive complete, once, and in the order in which they were sent. Nothing is
//!    promised about the order between connections.
//! 2. [`Incoming::Closed`] is received after the last message of that connection, once, and only if this side did not
//!    close it.
//! 3. `receive` returns messages that have arrived, the earliest first, before it checks the time. With a time limit
//!    it returns `None` at the limit and not before.
//! 4. `send` returns when the message has been queued for the connection; it waits while more than [`SEND_QUEUE_BYTES_MAX`]
//!    of that connection are in flight. `offer` never waits: it returns the message instead. A message that it took is
//!    sent while the process sends, receives, sleeps or closes.
//! 5. A message of `urge` overtakes every message of `send` and `offer` that is queued at its sender and has not begun.
//! 6. Time never goes backwards. In simulation it does not pass while the process computes, unless the process states
//!    a duration.
//! 7. Every call may fail with [`ProcessError::Ended`]: the world is shutting down, and the code must return.
//!
//! [`SEND_QUEUE_BYTES_MAX`]: gridloom_base::limits::SEND_QUEUE_BYTES_MAX

use serde::{Deserialize, Serialize};

use super::{ProcessError, ProcessMessage};
use gridloom_base::{Level, Time};

/// A connection of a process. The numbers are local to the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PeerId(pub u64);

/// An event that a process receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Incoming {
    Message {
        /// The sender. The identifier is new if a connection was accepted.
        from: PeerId,
        letter: ProcessMessage,
    },
    /// The other side closed the connection or is gone.
    Closed { peer: PeerId, why: String },
}

impl Incoming {
    /// Returns the connection it was received on.
    pub fn peer(&self) -> PeerId {
        match self {
            Incoming::Message { from, .. } => *from,
            Incoming::Closed { peer, .. } => *peer,
        }
    }
}

/// A process's function, host and arguments.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// Name of the function that the process runs.
    pub function: String,
    pub host: String,
    pub arguments: Vec<String>,
}

/// The world as one process sees it.
pub trait ProcessWorld: Send {
    fn spec(&self) -> &ProcessSpec;

    /// Returns the time: since 1970 in the real world, since the start in simulation.
    fn now(&self) -> Time;

    /// Listens on a port of its own host and returns the port. 0 lets the world choose one.
    ///
    /// # Errors
    /// [`ProcessError::CannotListen`].
    fn listen(&mut self, port: u16) -> Result<u16, ProcessError>;

    /// Connects to the process that listens on that port. `host` is a name in the deployment. Fails at once if no
    /// process listens.
    ///
    /// # Errors
    /// [`ProcessError::NoSuchHost`], [`ProcessError::CannotConnect`].
    fn connect(&mut self, host: &str, port: u16) -> Result<PeerId, ProcessError>;

    /// # Errors
    /// [`ProcessError::Closed`], [`ProcessError::TooLarge`].
    fn send(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<(), ProcessError>;

    /// Sends without waiting. Returns the message if there is no room, to be offered again later.
    ///
    /// # Errors
    /// See [`ProcessWorld::send`].
    fn offer(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<Option<ProcessMessage>, ProcessError>;

    /// Sends a short message ahead of queued ones. Returns when it has been queued for the connection.
    ///
    /// # Errors
    /// [`ProcessError::Closed`]; [`ProcessError::TooLarge`] beyond [`URGENT_BYTES_MAX`].
    ///
    /// [`URGENT_BYTES_MAX`]: gridloom_base::limits::URGENT_BYTES_MAX
    fn send_urgent(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<(), ProcessError>;

    /// Returns an empty buffer to build a message in. It has capacity already if the world keeps a buffer pool.
    fn take_buffer(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns the payload of a message that is no longer needed to the buffer pool.
    fn return_buffer(&mut self, payload: Vec<u8>) {
        drop(payload);
    }

    /// Returns the next event, or `None` at `until`.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    fn receive(&mut self, until: Option<Time>) -> Result<Option<Incoming>, ProcessError>;

    /// Returns the next event that has already arrived. Does not poll for more where polling is expensive.
    ///
    /// # Errors
    /// See [`ProcessWorld::receive`].
    fn try_receive(&mut self) -> Result<Option<Incoming>, ProcessError> {
        self.receive(Some(Time(0)))
    }

    /// Sets the type and sender of the messages that the process waits for, to explain why it waits. `None` means any
    /// type or sender that it handles.
    fn set_expected(&mut self, kind: Option<&str>, from: Option<PeerId>) {
        let _ = (kind, from);
    }

    /// Closes a connection. Messages sent before still arrive.
    fn close(&mut self, peer: PeerId);

    /// True if nothing more will be received from this connection: either side closed it, and `receive` has returned
    /// everything that arrived.
    fn is_closed(&self, peer: PeerId) -> bool;

    /// Returns why a connection is closed, as text.
    fn why_closed(&self, peer: PeerId) -> String {
        format!("it was closed here, or by {}", self.describe(peer))
    }

    /// Returns the other side's host and its port (or 0) as text.
    fn describe(&self, peer: PeerId) -> String;

    /// Sleeps. Events that arrive meanwhile are queued.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    fn sleep_until(&mut self, at: Time) -> Result<(), ProcessError>;

    /// Accounts for `flops` floating-point operations: takes time in simulation and none in the real world.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    fn account_flops(&mut self, flops: f64) -> Result<(), ProcessError>;

    /// Accounts for `real_ns` of computation on the real machine in the block of that name. In simulation it takes the
    /// time that the simulated host needs for it; in the real world it takes no further time. Returns the
    /// floating-point operations it counts as in simulation; 0 in the real world.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    fn account_computed(&mut self, block: &str, real_ns: u64) -> Result<f64, ProcessError>;

    fn log(&mut self, level: Level, category: &str, text: &str);

    fn is_simulated(&self) -> bool;
}
