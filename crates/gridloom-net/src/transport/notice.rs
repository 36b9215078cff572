//! Notices from a node's threads to its event loop: a list under a lock, and a wake-up when the list was empty.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

use gridloom_base::address::RelayPath;
use gridloom_base::{DatumId, Meta, NodeId};
use gridloom_channel::WireVersion;
use gridloom_map::{MapError, Plan};
use mio::Waker;

use super::Cargo;
use super::handshake::LocalHello;
use super::tls::{TlsStream, is_violation};
use crate::payload::Payload;
use crate::threads::Threads;

/// Identifies one control connection to a peer: a notice that belongs to an earlier connection is outdated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Link {
    pub peer: NodeId,
    /// Counter of this node's control connections.
    pub generation: u64,
}

/// How a receiving stream ended.
#[derive(Debug)]
pub enum StreamOutcome {
    /// The peer or the network ended it.
    Ended,
    /// The received bytes are not those that were sent; with the affected part of the datum, if known.
    Corrupted(Option<CorruptedPart>),
    /// The peer broke the protocol.
    Fault(String),
}

/// A part of a datum that was corrupted in transit.
#[derive(Clone, Copy, Debug)]
pub struct CorruptedPart {
    /// Serial number of the datum.
    pub serial: u64,
    pub datum: DatumId,
    /// Offset at which the part begins.
    pub from_byte: u64,
}

impl From<io::Error> for StreamOutcome {
    fn from(error: io::Error) -> StreamOutcome {
        match error.kind() {
            io::ErrorKind::InvalidData if is_violation(&error) => StreamOutcome::Corrupted(None),
            io::ErrorKind::InvalidData => StreamOutcome::Fault(error.to_string()),
            _ => StreamOutcome::Ended,
        }
    }
}

/// Admits a node of this host that passes shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalAdmission {
    pub link: Link,
    /// Wire version of the headers.
    pub wire_version: WireVersion,
    /// Proof for the node that this is its peer.
    pub proof: [u8; 32],
}

/// A connection for bulk data.
#[derive(Debug)]
pub struct BulkConnection {
    pub socket: TlsStream<TcpStream>,
    /// The relay through which it leads.
    pub relay: Option<String>,
}

/// A notice from a thread to the event loop.
#[derive(Debug)]
pub enum Notice {
    /// The addresses of a resolved name.
    Resolved { dial: u64, addresses: io::Result<Vec<SocketAddr>> },
    /// A connection through a relay, or why there is none.
    Relayed { dial: u64, path: RelayPath, outcome: io::Result<TcpStream> },
    /// Another node has opened a connection to this one through that relay.
    RelayedPeer { stream: TcpStream, relay: String },
    /// This node is registered with a relay, or why it is not.
    Registration { relay: String, outcome: Result<(), String> },
    /// A node of this host wants to pass shared memory.
    LocalPeer {
        /// The first message of the node.
        hello: LocalHello,
        /// Handle for shutting down the stream when the peer is lost.
        stream: UnixStream,
        /// Receives the reply; `None` turns the node away.
        reply: Sender<Option<LocalAdmission>>,
    },
    /// A handshake on a local socket ended, whether it succeeded or failed.
    LocalHandshakeEnded,
    /// This node opened the bulk connection that the peer had asked for.
    Opened { link: Link, stream: u64, bulk: BulkConnection },
    /// The first part of a datum was received; it can be forwarded while the rest arrives.
    Started { link: Link, datum: DatumId },
    /// A datum or probe was received completely.
    Arrived {
        link: Link,
        stream: u64,
        /// Its serial number.
        serial: u64,
        cargo: Cargo,
        payload: Payload,
        /// Nanoseconds from its first byte to its last.
        took_ns: u64,
    },
    /// A datum that cannot be stored was received and discarded.
    Discarded {
        link: Link,
        stream: u64,
        /// Its serial number.
        serial: u64,
        cargo: Cargo,
        /// True if there was no memory; false if the receiver lacks the bytes that it continues.
        no_memory: bool,
        why: String,
    },
    /// A receiving stream ended, or could not be opened.
    StreamEnded {
        link: Link,
        stream: u64,
        /// Serial number of the last datum received, whether intact or corrupted; 0 if none.
        serial: u64,
        end: StreamOutcome,
    },
    /// A datum cannot be sent.
    SendFailed { link: Link, datum: DatumId, why: String },
    /// The peer cannot be reached with a bulk connection and must be asked to open one.
    RequestStream { link: Link, stream: u64 },
    /// Shared memory of a peer is no longer used here.
    Released {
        link: Link,
        /// Serial number under which the memory was received.
        serial: u64,
        /// True if it was forwarded to a node that was lost since and may still read it.
        retired: bool,
    },
    /// A shared datum was made durable, or why it was not.
    MadeDurable { datum: DatumId, outcome: Result<(), String> },
    /// All removals that were queued before this number are on the disk.
    DurableSynced { number: u64 },
    /// Bytes of the store that are on disk, by the client to whom the data belong.
    OnDisk { clients: Vec<(NodeId, u64)> },
    /// A datum was stored in the shared storage for a peer, with its digest; or why it was not.
    Stored { link: Link, datum: DatumId, outcome: Result<[u8; 32], String> },
    /// A datum that a peer wrote to the shared storage was read; or why not, and whether memory was lacking.
    Loaded { link: Link, datum: DatumId, meta: Meta, outcome: Result<Payload, (bool, String)> },
    /// The revocations of the grid have changed.
    RevocationsChanged,
    /// A task graph was mapped.
    Mapped { number: u64, outcome: Result<Plan, MapError> },
    /// The measured speed of a slot.
    Speed {
        /// Floating-point operations per second.
        flops: f64,
    },
}

/// The queue of notices from threads to the event loop.
#[derive(Debug)]
pub struct Inbox {
    notices: Mutex<Vec<Notice>>,
    waker: Waker,
    /// The threads that post notices.
    pub threads: Threads,
}

impl Inbox {
    /// Creates an inbox that wakes its loop through `waker`.
    pub fn new(waker: Waker) -> Inbox {
        Inbox { notices: Mutex::default(), waker, threads: Threads::default() }
    }

    /// Posts a notice.
    pub fn post(&self, notice: Notice) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        notices.push(notice);
        let first = notices.len() == 1;
        drop(notices);
        if first {
            self.wake();
        }
    }

    /// Wakes the loop.
    pub fn wake(&self) {
        self.waker.wake().expect("an eventfd of this process takes a wake-up");
    }

    /// Takes all notices posted so far.
    pub fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
