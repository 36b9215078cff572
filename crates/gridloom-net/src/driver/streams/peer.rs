//! A peer's bulk state: the streams that it may open, and the handshake with a peer on this host.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use gridloom_base::DatumId;
use gridloom_channel::WireVersion;

use crate::transport::handshake::{HANDSHAKE_NS_MAX, Hello, Pass};
use crate::transport::lanes::Lanes;
use crate::transport::local;
use crate::transport::notice::{Inbox, Link, LocalAdmission, Notice, StreamOutcome};
use crate::transport::shared::{Closer, LANES};
use crate::transport::stripes::{Gathering, Stripe, Stripes};
use crate::transport::tls::TlsStream;

/// Maximum number of open streams from one peer: one per lane, plus ended streams whose end this node has not noticed yet.
pub(super) const STREAMS_MAX: usize = 2 * LANES as usize;

/// A peer whose control connection is up.
pub(super) struct Peer {
    pub(super) link: Link,
    pub(super) hello: Hello,
    pub(super) pass: Pass,
    /// Wire version of bulk headers in both directions.
    pub(super) wire_version: WireVersion,
    pub(super) outgoing: Lanes,
    /// Streams on which the peer sends.
    pub(super) incoming: BTreeMap<u64, Incoming>,
    /// Streams that still lack some of their connections.
    pub(super) gathering: BTreeMap<u64, Gathering>,
    /// Number of streams in a row that ended with corrupted bytes, since data last arrived intact.
    pub(super) changed_in_a_row: u32,
    /// Bytes that the peer already has of data that it is about to request.
    pub(super) bytes_held: BTreeMap<DatumId, u64>,
}

/// A stream on which a peer sends. Dropping it shuts it down and ends its thread.
pub(super) struct Incoming {
    /// `None` while the stream is being opened.
    pub(super) closer: Option<Closer>,
    /// Last acknowledged serial number.
    pub(super) acknowledged: u64,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(closer) = &self.closer {
            closer.close();
        }
    }
}

impl Peer {
    /// Reports whether the peer may open this stream.
    pub(super) fn may_open(&self, stream: u64) -> bool {
        self.incoming.len() < STREAMS_MAX && !self.incoming.contains_key(&stream)
    }

    /// Reports whether the peer may open this connection of a stream.
    pub(super) fn may_open_stripe(&self, stream: u64, stripe: Stripe) -> bool {
        let is_missing = |gathering: &Gathering| gathering.is_missing(stripe);
        stripe.check().is_ok() && self.gathering.get(&stream).map_or_else(|| self.may_open(stream), is_missing)
    }

    /// Adds a connection of a stream. Returns all its connections once the last one is added. Connections of an
    /// earlier stream of the same lane no longer arrive.
    pub(super) fn add_stripe(&mut self, stream: u64, stripe: Stripe, socket: TlsStream<TcpStream>) -> Option<Stripes> {
        if !self.incoming.contains_key(&stream) {
            let given_up = |other: u64| other != stream && other % LANES == stream % LANES;
            for other in self.gathering.keys().copied().filter(|other| given_up(*other)).collect::<Vec<_>>() {
                self.gathering.remove(&other);
                self.incoming.remove(&other);
            }
            self.incoming.insert(stream, Incoming { closer: None, acknowledged: 0 });
            self.gathering.insert(stream, Gathering::of(stripe));
        }
        let all = self.gathering.get_mut(&stream)?.add(stripe, socket)?;
        self.gathering.remove(&stream);
        Some(all)
    }

    /// Reports whether this node asked the peer to open this stream, to receive data on it.
    pub(super) fn was_requested(&self, stream: u64) -> bool {
        self.outgoing.of(stream).is_some_and(|outgoing| outgoing.is_requested(stream))
    }
}

/// Runs the acceptor's side of a local handshake, on a thread of its own. The event loop knows which nodes are peers.
pub(super) fn accept_local_handshake(stream: &mut UnixStream, inbox: &Inbox) -> io::Result<(LocalAdmission, u64)> {
    let patience = Duration::from_nanos(HANDSHAKE_NS_MAX);
    let closer = stream.try_clone()?;
    let mut admitted = None;
    let done = local::answer(stream, |hello| {
        let (reply, answer) = mpsc::channel();
        inbox.post(Notice::LocalPeer { hello, stream: closer, reply });
        admitted = answer.recv_timeout(patience).ok().flatten().map(|admission| (admission, hello.stream));
        admitted.map(|(admission, _)| admission.proof)
    });
    if let (Err(_), Some((LocalAdmission { link, .. }, stream))) = (&done, admitted) {
        inbox.post(Notice::StreamEnded { link, stream, serial: 0, end: StreamOutcome::Ended });
    }
    done?;
    admitted.ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
}
