//! The contract of a process's world, kept by the real one and by the simulated one alike.
//!
//! **Promises of a world**
//! 1. Letters of one connection and lane arrive whole, once, and in the order in which they were sent. Nothing is promised
//!    between connections.
//! 2. [`Incoming::Closed`] comes after the last letter of that connection, once, and only if this side did not close it.
//! 3. `receive` gives what has arrived, the earliest first, before it looks at the time; with a time limit it gives
//!    `None` at the limit and not before.
//! 4. `send` returns when the letter is on its way; it waits while more than [`SEND_BYTES_MAX`] of that connection are on
//!    their way already. `offer` never waits: it gives the letter back then. What it took goes while the process sends,
//!    receives, sleeps or closes.
//! 5. A letter of `urge` passes every letter of `send` and `offer` that waits at its sender and has not begun.
//! 6. Time never goes back, and stands still in simulation while the process computes, unless it says for how long.
//! 7. Every call may fail with [`ProcessError::Ended`]: the world is going away, and the code must return.
//!
//! [`SEND_BYTES_MAX`]: gridloom_base::limits::SEND_BYTES_MAX

use serde::{Deserialize, Serialize};

use super::{Letter, ProcessError};
use gridloom_base::{Level, Time};

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

    /// Sends if there is room, and does not wait. Without room it gives the letter back, to be offered again later.
    ///
    /// # Errors
    /// As [`ProcessWorld::send`].
    fn offer(&mut self, peer: PeerId, letter: Letter) -> Result<Option<Letter>, ProcessError>;

    /// Sends a short letter ahead of those that wait; returns when it is on its way.
    ///
    /// # Errors
    /// [`ProcessError::Closed`]; [`ProcessError::TooLarge`] beyond [`URGENT_BYTES_MAX`].
    ///
    /// [`URGENT_BYTES_MAX`]: gridloom_base::limits::URGENT_BYTES_MAX
    fn urge(&mut self, peer: PeerId, letter: Letter) -> Result<(), ProcessError>;

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

    /// The next that has come already; does not look for more, where looking costs something.
    ///
    /// # Errors
    /// As [`ProcessWorld::receive`].
    fn arrived(&mut self) -> Result<Option<Incoming>, ProcessError> {
        self.receive(Some(Time(0)))
    }

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
    /// the simulated host needs for it, and no more time for real. As how many floating-point operations it counts in simulation; 0 for
    /// real.
    ///
    /// # Errors
    /// [`ProcessError::Ended`].
    fn computed(&mut self, block: &str, real_ns: u64) -> Result<f64, ProcessError>;

    fn log(&mut self, level: Level, category: &str, text: &str);

    fn is_simulated(&self) -> bool;
}
