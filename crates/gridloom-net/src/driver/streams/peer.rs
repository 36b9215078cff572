//! A peer as bulk sees it: the streams that it may open, and the handshake of one on this host.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use gridloom_base::DatumId;
use gridloom_channel::{Dialect, Keys};

use crate::identity::Credentials;
use crate::transport::handshake::{HANDSHAKE_NS_MAX, Handshake, Hello, Pass, Verdict, run_blocking};
use crate::transport::lanes::Lanes;
use crate::transport::notice::{Inbox, Link, Notice, StreamEnd};
use crate::transport::shared::{Closer, LANES};
use crate::transport::stripes::{Gathering, Stripe, Stripes};

/// Streams that one peer may have open towards this node: one a lane, and ended ones until this node notices their ends.
pub(super) const STREAMS_MAX: usize = 2 * LANES as usize;

/// A peer with a control connection that stands.
pub(super) struct Peer {
    pub(super) link: Link,
    pub(super) hello: Hello,
    pub(super) pass: Pass,
    /// How the headers of bulk are written, both ways.
    pub(super) dialect: Dialect,
    pub(super) outgoing: Lanes,
    /// Streams on which it sends.
    pub(super) incoming: BTreeMap<u64, Incoming>,
    /// Streams of which not all connections are there.
    pub(super) gathering: BTreeMap<u64, Gathering>,
    /// So many of these ended with changed bytes since something came whole.
    pub(super) changed_in_a_row: u32,
    /// Bytes of data that it is about to ask for, and that it has.
    pub(super) has: BTreeMap<DatumId, u64>,
}

/// A stream on which a peer sends; dropped, it is shut, and its thread ends.
pub(super) struct Incoming {
    /// `None` while it is being opened.
    pub(super) closer: Option<Closer>,
    /// The last number that was acknowledged.
    pub(super) told: u64,
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(closer) = &self.closer {
            closer.close();
        }
    }
}

impl Peer {
    /// Whether the peer may open that stream.
    pub(super) fn may_open(&self, stream: u64) -> bool {
        self.incoming.len() < STREAMS_MAX && !self.incoming.contains_key(&stream)
    }

    /// Whether the peer may open that connection of a stream.
    pub(super) fn may_open_one(&self, stream: u64, stripe: Stripe) -> bool {
        let is_missing = |gathering: &Gathering| gathering.lacks(stripe);
        stripe.check().is_ok() && self.gathering.get(&stream).map_or_else(|| self.may_open(stream), is_missing)
    }

    /// Takes in a connection of a stream. Gives all of them with the last. Of an earlier stream of that lane no more come.
    pub(super) fn take_in(
        &mut self,
        stream: u64,
        stripe: Stripe,
        socket: (TcpStream, Keys),
    ) -> Option<(Stripes, Keys)> {
        if !self.incoming.contains_key(&stream) {
            let given_up = |other: u64| other != stream && other % LANES == stream % LANES;
            for other in self.gathering.keys().copied().filter(|other| given_up(*other)).collect::<Vec<_>>() {
                self.gathering.remove(&other);
                self.incoming.remove(&other);
            }
            self.incoming.insert(stream, Incoming { closer: None, told: 0 });
            self.gathering.insert(stream, Gathering::of(stripe));
        }
        let all = self.gathering.get_mut(&stream)?.take_in(stripe, socket)?;
        self.gathering.remove(&stream);
        Some(all)
    }

    /// Whether this node asked the peer to open that stream, to receive on it.
    pub(super) fn was_asked_for(&self, stream: u64) -> bool {
        self.outgoing.of(stream).is_some_and(|outgoing| outgoing.is_asked(stream))
    }
}

/// The acceptor's side of a local handshake, on a thread of its own. The loop knows which nodes are peers.
pub(super) fn shake_local(
    stream: &mut UnixStream,
    inbox: Arc<Inbox>,
    credentials: Credentials,
    own: Hello,
) -> io::Result<(Link, Dialect, u64)> {
    let patience = Duration::from_nanos(HANDSHAKE_NS_MAX);
    let closer = stream.try_clone()?;
    let admitted = std::cell::Cell::new(None);
    let decide = |hello: &Hello| {
        let (reply, answer) = mpsc::channel();
        let stream = closer.try_clone().map_err(|error| error.to_string())?;
        inbox.post(Notice::LocalPeer { hello: Box::new(hello.clone()), stream, reply });
        let answer = answer.recv_timeout(patience).ok().flatten();
        admitted.set(answer.map(|(link, dialect)| (link, dialect, hello.stream)));
        admitted.get().map(|_| Verdict::Welcome).ok_or_else(|| "a local connection of no peer".into())
    };
    let shaken = run_blocking(stream, Handshake::accept(credentials, own)?, None, decide);
    if let (Err(_), Some((link, _, stream))) = (&shaken, admitted.get()) {
        inbox.post(Notice::StreamEnded { link, stream, serial: 0, end: StreamEnd::Ended });
    }
    shaken?;
    admitted.get().ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
}
