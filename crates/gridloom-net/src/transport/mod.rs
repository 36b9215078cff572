//! How bytes get from node to node: control connections, bulk connections and shared memory.
//!
//! ```text
//!            node A                                               node B
//!   loop ── Channel ════ frames: messages, small data ══════════ Channel ── loop     (TCP; on one host a unix socket)
//!   sender thread ─────── TCP, header + bytes as they lie ──── receiver thread       (large data, per ordered pair; several connections
//!                                                                                     over a long way: see `stripes`)
//!   sender thread ─────── unix socket, header + memory's fd ── receiver thread       (same, on one host)
//! ```
//! Control and bulk do not share a connection nor a thread, so bulk never stands in front of control. All kinds begin
//! with the same [`handshake`]; the TCP kinds come in at the node's one listening address, the control connections of
//! one user on one host also at a unix socket ([`stream`]). Shared memory has a unix socket of each node ([`local`]). Both lie in
//! a folder of the user ([`host`]). A node that cannot connect there uses TCP. Between two sites, as if these were far apart, filters hold back
//! what is sent on both ([`apart`]).
//!
//! **Bulk ends in a report.** Each ordered pair numbers what it sends. The receiver acknowledges on the control
//! connection now and then, and says so when a bulk connection ends; the sender then names what it had sent there and
//! was not received ([`Aside::Broken`]). So a datum that breaks off on its way is always reported, by one side, once.

pub mod apart;
pub mod bulk;
mod credentials;
mod deadline;
pub mod handshake;
pub(crate) mod held;
pub mod host;
pub mod lanes;
pub mod local;
pub mod notice;
pub mod outgoing;
mod paced;
pub mod sender;
pub mod shared;
pub mod sink;
pub mod stream;
pub mod stripes;

use gridloom_base::{DatumId, Meta};
use serde::{Deserialize, Serialize};

/// What the worlds of two nodes say to each other on the control connection, beside what their machines say.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Aside {
    /// "I cannot reach you: open a bulk connection to me, on which I shall send."
    OpenBulk { stream: u64 },
    /// "I have so many bytes of that datum, which I am about to ask you for: send what is behind them."
    Has { datum: DatumId, bytes: u64 },
    /// "I have all that you sent on that stream up to this number."
    Taken { stream: u64, serial: u64 },
    /// "That stream ended; I have what you sent on it up to this number, and nothing after it."
    StreamEnded {
        stream: u64,
        /// The last number, or 0.
        serial: u64,
    },
    /// "This datum, which you wait for, will not arrive."
    Broken { datum: DatumId, why: String },
    /// "Your shared memory that came under these numbers is no longer used here."
    Released {
        /// Whether other nodes, to which it was passed on, may look at it still: its owner must not write to it any more.
        retired: bool,
        serials: Vec<u64>,
    },
    /// "That datum, which you wait for, is in the storage that we share; its bytes have that digest (BLAKE3)."
    Stored { datum: DatumId, meta: Meta, digest: [u8; 32] },
    /// A probe small enough to go the way of small data.
    Probe { bytes: Vec<u8> },
    /// "I cannot read what you sent, or may not take it, and close this connection." Since version 47.
    Refused { why: String },
}

/// What is sent on a bulk connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Cargo {
    Datum {
        datum: DatumId,
        meta: Meta,
    },
    /// Bytes that are measured and thrown away.
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

/// Before the bytes of a datum on a bulk connection, after its own length in 4 bytes (little endian).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CargoHeader {
    /// Counts what the pair sent, from 1.
    pub serial: u64,
    pub cargo: Cargo,
    pub size_bytes: u64,
    /// The rest alone comes.
    pub goes_on: Option<GoesOn>,
}

impl CargoHeader {
    /// Bytes that the receiver is to have.
    pub fn had_bytes(&self) -> u64 {
        self.goes_on.as_ref().map_or(0, |goes_on| goes_on.from_byte)
    }
}

/// What is sent of a datum goes on behind what the receiver has of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GoesOn {
    /// A multiple of the size of parts.
    pub from_byte: u64,
    /// Of the bytes before it, BLAKE3: a datum that was made again may be another.
    pub digest: [u8; 32],
}

/// Longest [`CargoHeader`] (or header of a grant): a shape of 64 extents fits six times.
pub const CARGO_HEADER_BYTES_MAX: usize = 4096;
/// Data of which a peer may say that it has some bytes, before they are sent to it. Of further ones all bytes are sent.
pub const HAS_MAX: usize = 64;
/// After so many data the receiver acknowledges, so that the sender's list of what is under way stays short.
pub const TAKEN_EVERY: u64 = 32;
/// Streams of one peer that may end one after the other with changed bytes, nothing whole between them; then the peer counts as lost:
/// its way here changes all that is sent, or it means ill.
pub const CHANGED_IN_A_ROW_MAX: u32 = 8;
/// Bytes that may wait for one peer to read its control connection; past it the peer counts as lost.
pub const CONTROL_BACKLOG_BYTES_MAX: usize = 256 << 20;
/// Characters of the reason with which a peer closes a connection; more are cut off. Errors of reading have less than a hundred.
pub const REFUSAL_CHARS_MAX: usize = 512;
/// Connections of strangers that may be in the handshake at a time. A further one takes the place of the oldest: a node that knows the
/// secret needs milliseconds. When a grid starts, hundreds of servers dial its agent at once.
pub const HANDSHAKES_MAX: usize = 1024;
/// Connections on the local socket that may be in the handshake at a time, each with a thread; further ones are closed, and
/// their diallers send over TCP. A host has about as many nodes as processors.
pub const LOCAL_HANDSHAKES_MAX: usize = 128;
/// Connections that may wait in the system's queue (which has a bound of its own, `net.core.somaxconn`).
pub const BACKLOG: i32 = 4096;
