//! Transport of bytes between nodes: control connections, bulk connections and shared memory.
//!
//! ```text
//!            node A                                               node B
//!   loop ── Channel ════ frames: messages, small data ══════════ Channel ── loop     (TCP; on one host a unix socket)
//!   sender thread ────── TCP, header + bytes as stored ──────── receiver thread      (large data, per ordered pair; several
//!                                                                                     connections over long distances: `stripes`)
//!   sender thread ────── unix socket, header + memory's fd ──── receiver thread      (same, on one host)
//! ```
//! Control and bulk share neither a connection nor a thread, so bulk data never block control messages. All kinds
//! begin with the same [`handshake`]. TCP connections arrive at the node's single listening address; control
//! connections between nodes of one user on one host also use a unix socket ([`stream`]). Each node has another unix
//! socket for shared memory ([`local`]). Both sockets are in a folder of the user ([`host`]). A node that cannot
//! connect there uses TCP. To emulate distant sites, filters delay the traffic between two sites on both kinds of
//! connections ([`emulated_sites`]). TCP connections to nodes that nobody can dial pass through a [`relay`].
//!
//! **Bulk transfers end with a report.** Each ordered pair of nodes numbers what it sends. The receiver acknowledges
//! on the control connection from time to time, and reports when a bulk connection ends; the sender then names the
//! data that it had sent there and that were not received ([`WorldMessage::Broken`]). A datum whose transfer breaks off is
//! therefore always reported, by one side, exactly once.

pub mod bulk;
mod credentials;
pub(crate) mod deadline;
pub(crate) mod delayed;
pub mod emulated_sites;
pub mod handshake;
pub mod host;
pub mod lanes;
pub mod local;
pub mod notice;
pub mod outgoing;
mod paced;
pub mod reach;
mod refusal;
pub mod relay;
pub mod sender;
pub mod shared;
pub mod sink;
pub mod stream;
pub mod stripes;
pub mod tls;

use gridloom_base::dial::ConnectionFault;
use gridloom_base::{DatumId, Meta};
use serde::{Deserialize, Serialize};

/// Messages between the worlds of two nodes on the control connection, in addition to those of their state machines.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum WorldMessage {
    /// "I cannot reach you: open a bulk connection to me, on which I will send."
    OpenBulk { stream: u64 },
    /// "I have this many bytes of the datum that I am about to request: send the rest."
    PartiallyHeld { datum: DatumId, bytes: u64 },
    /// "I have received everything that you sent on this stream up to this number."
    Acknowledged { stream: u64, serial: u64 },
    /// "This stream ended; I have received what you sent on it up to this number, and nothing after it."
    StreamEnded {
        stream: u64,
        /// Last received number, or 0.
        serial: u64,
    },
    /// "This datum, which you are waiting for, will not arrive."
    Broken { datum: DatumId, why: String },
    /// "Your shared memory with these numbers is no longer used here."
    Released {
        /// True if other nodes to which it was forwarded may still read it: its owner must not write to it any more.
        retired: bool,
        serials: Vec<u64>,
    },
    /// "This datum, which you are waiting for, is in our shared storage; its bytes have this BLAKE3 digest."
    Stored { datum: DatumId, meta: Meta, digest: [u8; 32] },
    /// A probe small enough to be sent like small data.
    Probe { bytes: Vec<u8> },
    /// "I cannot decode what you sent, or must not accept it, and close this connection."
    Refused {
        /// [`ConnectionFault::Revoked`] if that is the reason.
        fault: ConnectionFault,
        why: String,
    },
    /// "I know the signed revocations with this digest; send me yours if they have another." Between the agent and others.
    RevocationsKnown { digest: [u8; 32] },
    /// Revocations that the authority has signed, as JSON lines.
    Revocations { lines: String },
}

/// The content sent on a bulk connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Cargo {
    Datum {
        datum: DatumId,
        meta: Meta,
    },
    /// Bytes that are measured and discarded.
    Probe,
}

impl Cargo {
    pub(crate) fn datum(&self) -> Option<DatumId> {
        match self {
            Cargo::Datum { datum, .. } => Some(*datum),
            Cargo::Probe => None,
        }
    }
}

/// Precedes the bytes of a datum on a bulk connection; preceded by its own length in 4 bytes (little endian).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CargoHeader {
    /// Number of what the pair sent, counted from 1.
    pub serial: u64,
    pub cargo: Cargo,
    pub size_bytes: u64,
    /// Present if only the rest of the datum is sent.
    pub resume: Option<Resume>,
}

impl CargoHeader {
    /// Returns the number of bytes that the receiver already has.
    pub fn resume_from_byte(&self) -> u64 {
        self.resume.as_ref().map_or(0, |goes_on| goes_on.from_byte)
    }
}

/// Resumes a datum after the bytes that the receiver already has.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Resume {
    /// Offset of the first byte sent; a multiple of the part size.
    pub from_byte: u64,
    /// BLAKE3 digest of the preceding bytes: a datum that was computed again may differ.
    pub digest: [u8; 32],
}

/// Maximum length of a [`CargoHeader`] (or of a grant's header): a shape of 64 extents fits six times.
pub const CARGO_HEADER_BYTES_MAX: usize = 4096;
/// Maximum number of data for which a peer may report that it has some bytes before they are sent. Further data are
/// sent completely.
pub const PARTIALLY_HELD_MAX: usize = 64;
/// Number of data after which the receiver acknowledges, so that the sender's list of data in flight stays short.
pub const ACKNOWLEDGE_EVERY: u64 = 32;
/// Number of consecutive streams of one peer that may end with corrupted bytes, with no datum received intact in
/// between. Then the peer counts as lost: the path from it corrupts everything, or it is malicious.
pub const CORRUPTED_IN_A_ROW_MAX: u32 = 8;
/// Maximum number of bytes that may wait for one peer to read its control connection; beyond it the peer counts as lost.
pub const CONTROL_BACKLOG_BYTES_MAX: usize = 256 << 20;
/// Maximum length in characters of the reason with which a peer closes a connection; longer reasons are truncated.
/// Decoding errors have fewer than a hundred.
pub const REFUSAL_CHARS_MAX: usize = 512;
/// Maximum number of connections of strangers in the handshake at a time. A further one replaces the oldest: a node
/// that knows the secret needs only milliseconds. When a grid starts, hundreds of servers dial its agent at once.
pub const HANDSHAKES_MAX: usize = 1024;
/// Maximum number of connections on the local socket in the handshake at a time, each with a thread. Further ones are
/// closed, and their diallers send over TCP. A host has about as many nodes as processors.
pub const LOCAL_HANDSHAKES_MAX: usize = 128;
/// Maximum number of connections in the system's backlog (which has a limit of its own, `net.core.somaxconn`).
pub const BACKLOG: i32 = 4096;
