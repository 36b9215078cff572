//! What the threads of a node tell its loop: a list under a lock, and a wake-up when it was empty.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

use gridloom_base::{DatumId, Meta, NodeId};
use gridloom_channel::tags::Changed;
use gridloom_channel::{Dialect, Keys};
use gridloom_map::{MapError, Plan};
use mio::Waker;

use super::Cargo;
use super::handshake::Hello;
use crate::payload::Payload;
use crate::threads::Threads;

/// One control connection to a peer: what a thread tells of an earlier one is out of date.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Link {
    pub peer: NodeId,
    /// Counts this node's control connections.
    pub generation: u64,
}

/// How a stream on which a node receives ended.
#[derive(Debug)]
pub enum StreamEnd {
    /// The peer or the network ended it.
    Ended,
    /// What came is not what was sent; in which part of a datum, if it is known.
    Changed(Option<ChangedPart>),
    /// The peer broke the protocol.
    Fault(String),
}

/// A part of a datum that is not what was sent.
#[derive(Clone, Copy, Debug)]
pub struct ChangedPart {
    /// The datum's number.
    pub serial: u64,
    pub datum: DatumId,
    /// Where the part begins.
    pub from_byte: u64,
}

impl From<io::Error> for StreamEnd {
    fn from(error: io::Error) -> StreamEnd {
        match error.kind() {
            io::ErrorKind::InvalidData if Changed::is(&error) => StreamEnd::Changed(None),
            io::ErrorKind::InvalidData => StreamEnd::Fault(error.to_string()),
            _ => StreamEnd::Ended,
        }
    }
}

/// What a thread tells the loop.
#[derive(Debug)]
pub enum Notice {
    /// The addresses behind a name.
    Resolved { dial: u64, addresses: io::Result<Vec<SocketAddr>> },
    /// A node of this host wants to pass shared memory; answered with its link, and how it writes headers, if it is a peer.
    LocalPeer {
        /// The node, proven.
        hello: Box<Hello>,
        /// To shut the stream when the peer is lost.
        stream: UnixStream,
        /// Where the answer goes.
        reply: Sender<Option<(Link, Dialect)>>,
    },
    /// A handshake on a local socket ended, either way: its place is free.
    LocalShaken,
    /// This node opened the bulk connection that the peer had asked for.
    Opened { link: Link, stream: u64, socket: (TcpStream, Keys) },
    /// The first part of a datum came that can be passed on while it comes.
    Begun { link: Link, datum: DatumId },
    /// Something whole came.
    Arrived {
        link: Link,
        stream: u64,
        /// Its number.
        serial: u64,
        cargo: Cargo,
        payload: Payload,
        /// Nanoseconds from its first byte to its last.
        took_ns: u64,
    },
    /// Something came that could not be taken in; it was read and thrown away.
    NotTaken {
        link: Link,
        stream: u64,
        /// Its number.
        serial: u64,
        cargo: Cargo,
        /// Else the receiver does not have what it goes on behind.
        no_memory: bool,
        why: String,
    },
    /// A stream on which this node received ended, or could not be opened.
    StreamEnded {
        link: Link,
        stream: u64,
        /// The last number that came, whole or changed, or 0.
        serial: u64,
        end: StreamEnd,
    },
    /// A datum cannot be sent.
    SendFailed { link: Link, datum: DatumId, why: String },
    /// The peer cannot be reached with a bulk connection: ask it to open one.
    AskToOpen { link: Link, stream: u64 },
    /// Shared memory of a peer is no longer used here.
    Released {
        link: Link,
        /// Under which number it came.
        serial: u64,
        /// It was passed on to a node that was lost since, and may look at it still.
        retired: bool,
    },
    /// A shared datum will outlive the process, or why it will not.
    MadeDurable { datum: DatumId, outcome: Result<(), String> },
    /// A datum is in the storage for a peer, with this digest, or why it is not.
    Stored { link: Link, datum: DatumId, outcome: Result<[u8; 32], String> },
    /// What a peer has written to the storage was read; or why not, and whether there is no memory.
    Loaded { link: Link, datum: DatumId, meta: Meta, outcome: Result<Payload, (bool, String)> },
    /// A group was mapped.
    Mapped { number: u64, outcome: Result<Plan, MapError> },
    /// The speed of a slot.
    Speed {
        /// Floating-point operations per second.
        flops: f64,
    },
}

/// Where threads leave what they have to tell.
#[derive(Debug)]
pub struct Inbox {
    notices: Mutex<Vec<Notice>>,
    waker: Waker,
    /// The threads that leave notices.
    pub threads: Threads,
}

impl Inbox {
    /// An inbox that wakes its loop by `waker`.
    pub fn new(waker: Waker) -> Inbox {
        Inbox { notices: Mutex::default(), waker, threads: Threads::default() }
    }

    /// Leaves a notice.
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

    /// Takes everything left so far.
    pub fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
