//! Lifecycle of connections: dials, handshakes, frames, loss.
//!
//! **Guarantees** (of the world's contract): `PeerUp` is emitted before the first message of a peer, `PeerLost` after
//! the last; a dial ends exactly once; whatever a peer sends, known or not, at worst its own connection is closed.
//!
//! This module knows neither the state machine nor bulk data. It reports [`ConnectionUpdate`], which the node's core takes and forwards.

mod dialling;
mod handshakes;
mod unread_answers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use gridloom_base::dial::{CLOSED, ConnectionError, ConnectionFault, NO_DESCRIPTORS, NOT_A_NODE, SILENT};
use gridloom_base::time::MILLISECOND_NS;
use gridloom_base::{NodeId, Time};
use gridloom_channel::frame::{Encoder, FrameError};
use gridloom_channel::{Body, Buffers, Channel, FrameLimits, Kind, Outbound, ReadOutcome, ReceiveBuffer, WireVersion};
use gridloom_core::node::{Input, LogLine, Role};
use gridloom_keys::Certificate;
use mio::event::Event as Readiness;
use mio::{Interest, Registry, Token};

use self::unread_answers::Throttled;
use super::contact::{Connection, Stage};
use super::dials::{DialTable, cannot_connect, no_answer};
use super::refusals::Refusals;
use crate::descriptors;
use crate::identity::Credentials;
use crate::log::warning;
use crate::transport::delayed::DelayedStream;
use crate::transport::emulated_sites::EmulatedLinks;
use crate::transport::handshake::{
    HANDSHAKE_BYTES_MAX, HANDSHAKE_LIMITS, HANDSHAKE_NS_MAX, Handshake, HandshakeError, Hello, Pass, Purpose, framed,
    refusal, wire_version,
};
use crate::transport::host::HostSockets;
use crate::transport::notice::{BulkConnection, Inbox, Link};
use crate::transport::reach::Unreachable;
use crate::transport::stream::{Listener, Stream};
use crate::transport::tls::{TlsStream, is_violation, refusal_in};
use crate::transport::{CONTROL_BACKLOG_BYTES_MAX, HANDSHAKES_MAX};

/// First token of connections.
const FIRST_TOKEN: usize = 3;
/// Pause before connections are accepted again after the connection limit or the descriptor limit was reached.
const ACCEPT_PAUSE_NS: u64 = 20 * MILLISECOND_NS;
/// Maximum number of connections accepted in one turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Maximum number of reads of one connection in one turn (4 MiB), so that one flooding peer does not starve the others.
pub(super) const READS_PER_TURN: u32 = 64;
/// Number of reads that one read of a long frame counts for; it takes about a mebibyte.
pub(super) const READS_PER_LONG: u32 = 16;

/// Updates from the connections to the core.
#[expect(clippy::large_enum_variant, reason = "most updates are inputs")]
pub(super) enum ConnectionUpdate {
    /// An input for the state machine.
    Input(Input),
    Log(LogLine),
    /// A connection was refused.
    TurnedAway(LogLine),
    /// A control connection is up, with the negotiated wire version.
    Up(Link, Box<Hello>, Pass, u16),
    /// The control connection is down.
    Down(Link),
    /// A connection that a peer dialled for bulk data.
    Bulk(BulkConnection, Box<Hello>, Purpose),
}

/// The connections of a node.
pub(super) struct Connections {
    own: Hello,
    credentials: Credentials,
    registry: Registry,
    inbox: Arc<Inbox>,
    listener: Option<Listener>,
    /// Sockets on which nodes of this host meet, and the filters between this node and other sites.
    sites: (Option<HostSockets>, Arc<EmulatedLinks>),
    connections: BTreeMap<usize, Connection>,
    next_token: usize,
    buffers: Buffers,
    peers: BTreeMap<NodeId, Peer>,
    dials: DialTable,
    unreachable: Arc<Unreachable>,
    refusals: Refusals,
    /// Time of the last check.
    now: Time,
    /// Time of the next check for handshakes and dials that take too long, and for a listener that was full.
    check_at: Time,
    accept_again: bool,
    /// A reserve descriptor. It is closed to accept, and then refuse, a connection when no other descriptor is left.
    reserve: Option<File>,
    open: Pending,
    news: VecDeque<ConnectionUpdate>,
}

/// Connections that need work, by token.
#[derive(Default)]
struct Pending {
    /// Connections of strangers, in the handshake. A smaller token is an older connection.
    half_open: BTreeSet<usize>,
    /// Connections with frames to write.
    dirty: BTreeSet<usize>,
    /// Connections with more to read.
    unread: BTreeSet<usize>,
    /// Connections whose requests wait, because their peers do not read.
    throttled: Throttled,
    /// Connections that delay frames which are not due.
    delaying: BTreeSet<usize>,
    /// Time at which the first delayed frame of `holding` is due.
    due: Option<Instant>,
}

/// A peer whose control connection is up.
struct Peer {
    link: Link,
    since: Time,
    address: String,
    pass: Pass,
    /// Negotiated wire version.
    version: u16,
    name: String,
    role: Role,
    /// The certificate that the peer has shown. It may have renewed it since.
    certificate: Certificate,
}

impl Connections {
    /// Creates an empty set of connections.
    pub(super) fn new(
        own: Hello,
        credentials: Credentials,
        registry: Registry,
        inbox: Arc<Inbox>,
        listener: Option<Listener>,
        sites: (Option<HostSockets>, Arc<EmulatedLinks>),
        unreachable: Arc<Unreachable>,
    ) -> Connections {
        Connections {
            own,
            credentials,
            registry,
            inbox,
            listener,
            sites,
            connections: BTreeMap::new(),
            next_token: FIRST_TOKEN,
            buffers: Buffers::default(),
            peers: BTreeMap::new(),
            dials: DialTable::default(),
            unreachable,
            refusals: Refusals::default(),
            now: Time::ZERO,
            check_at: Time::NEVER,
            accept_again: false,
            reserve: open_reserve(),
            open: Pending::default(),
            news: VecDeque::new(),
        }
    }

    /// Returns the next update for the core.
    pub(super) fn take_update(&mut self) -> Option<ConnectionUpdate> {
        self.news.pop_front()
    }

    /// Reports whether the control connection to this peer is up.
    pub(super) fn is_up(&self, peer: NodeId) -> bool {
        self.peers.contains_key(&peer)
    }

    /// Returns the wire version in which messages of this peer are encoded.
    pub(super) fn wire_version_of(&self, peer: NodeId) -> WireVersion {
        self.peers.get(&peer).map_or(WireVersion::CURRENT, |peer| wire_version(peer.version))
    }

    /// Returns the time by which this must be called even if nothing arrives.
    pub(super) fn wake_at(&self) -> Time {
        if self.open.unread.is_empty() { self.check_at } else { Time::ZERO }
    }

    /// Returns the time at which the first delayed frame to another site is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open.due
    }

    /// Asserts the invariants that hold between two calls.
    pub(super) fn check_invariants(&self) {
        for (peer, Peer { link, .. }) in &self.peers {
            let contact = self.connections.get(&token_of(*link));
            assert!(contact.is_some_and(|contact| contact.stage == Stage::Up(*peer)), "{peer} has no connection");
        }
        assert!(self.open.half_open.iter().all(|token| self.stage(*token) == Some(Stage::Handshaking)));
        let open = self.open.dirty.iter().chain(&self.open.unread).chain(&self.open.delaying);
        assert!(open.into_iter().all(|token| self.connections.contains_key(token)));
    }

    /// Closes all connections.
    pub(super) fn shut_down(&mut self) {
        self.connections.values_mut().for_each(|contact| contact.channel.stream_mut().get_mut().write_all_now());
        (self.peers, self.connections, self.open) = Default::default();
        self.dials = DialTable::default();
        self.listener = None;
    }

    fn log(&mut self, line: LogLine) {
        self.news.push_back(ConnectionUpdate::Log(line));
    }

    /// Reports that a connection was refused.
    fn turned_away(&mut self, line: LogLine) {
        self.news.push_back(ConnectionUpdate::TurnedAway(line));
    }

    // ---- accepting

    pub(super) fn accept(&mut self, now: Time) {
        self.accept_again = false;
        // Between two turns, new peers can send their hello: a flood cannot evict peers that had no chance to send it.
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = &self.listener else { return };
            let done = match listener.accept() {
                Ok(None) => return,
                Ok(Some(stream)) => self.begin_accepted(stream, None, now),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                // Closing the oldest stranger frees a descriptor for the new connection.
                let is_full = descriptors::have_run_out(&error);
                if !(is_full
                    && (self.close_stranger_for_descriptor(now) || self.refuse_without_descriptors(&error, now)))
                {
                    self.log(warning("a connection could not be accepted").why(error));
                }
                return self.accept_later(now + ACCEPT_PAUSE_NS);
            }
            if self.open.half_open.len() > HANDSHAKES_MAX {
                self.close_oldest_stranger(now);
            }
        }
        self.accept_later(now);
    }

    /// Takes a connection that another node has opened through this relay.
    pub(super) fn accept_relayed(&mut self, stream: TcpStream, relay: String, now: Time) {
        let begun = Stream::from_std(stream).and_then(|stream| self.begin_accepted(stream, Some(relay), now));
        if let Err(error) = begun {
            self.log(warning("a connection through a relay could not be accepted").why(error));
        } else if self.open.half_open.len() > HANDSHAKES_MAX {
            self.close_oldest_stranger(now);
        }
    }

    /// Begins the handshake on a connection that another node has opened.
    fn begin_accepted(&mut self, stream: Stream, relay: Option<String>, now: Time) -> io::Result<()> {
        let handshake = Handshake::accept(self.credentials.clone(), self.own.clone())?;
        let is_near = matches!(stream, Stream::Unix(_));
        let stream = TlsStream::accept(DelayedStream::new(stream), &self.credentials.tls)?;
        let stream = if is_near { stream.encrypts_only_handshake() } else { stream };
        let (token, deadline) = (self.next_token, now + HANDSHAKE_NS_MAX);
        self.add(stream, Stage::Handshaking, handshake, None, deadline)?.relay = relay;
        self.open.half_open.insert(token);
        Ok(())
    }

    fn accept_later(&mut self, at: Time) {
        self.accept_again = true;
        self.check_at = self.check_at.min(at);
    }

    /// Closes the oldest handshake of a stranger. Returns false if there was none.
    fn close_oldest_stranger(&mut self, now: Time) -> bool {
        let Some(oldest) = self.open.half_open.pop_first() else { return false };
        self.forget(oldest);
        if let Some(more) = self.refusals.admit(now) {
            let why = format!(
                "{HANDSHAKES_MAX} handshakes were in progress, the maximum, and the oldest was closed for a new \
                 one{more}"
            );
            self.turned_away(warning("a connection was turned away").why(why));
        }
        true
    }

    /// Closes the oldest handshake of a stranger for lack of descriptors, and sends the reason. Returns false if there is no
    /// such handshake.
    fn close_stranger_for_descriptor(&mut self, now: Time) -> bool {
        let Some(oldest) = self.open.half_open.pop_first() else { return false };
        let why = format!("{NO_DESCRIPTORS}: {}", descriptors::remedy());
        if let Some(contact) = self.connections.get_mut(&oldest) {
            // The handshake of TLS has not ended, so the dialler reads this without.
            let refusal = refusal(ConnectionFault::NoDescriptors, &why);
            let _ = contact.channel.stream_mut().get_mut().write_all(&framed(&mut Encoder::default(), &refusal));
        }
        self.forget(oldest);
        if let Some(more) = self.refusals.admit(now) {
            self.turned_away(warning("a connection was turned away").why(format!("{why}{more}")));
        }
        true
    }

    /// Accepts the next connection with the reserve descriptor if no other is left, and sends the peer the reason of the
    /// refusal; otherwise, the peer would wait in the backlog for an answer. Returns false if this was not possible.
    fn refuse_without_descriptors(&mut self, error: &io::Error, now: Time) -> bool {
        if !descriptors::have_run_out(error) || self.reserve.take().is_none() {
            return false;
        }
        let accepted = self.listener.as_ref().map(Listener::accept);
        if let Some(Ok(Some(mut stream))) = accepted {
            // The dialler's hello is read first: closing a socket with unread bytes would reset the connection.
            let _ = stream.read(&mut [0; HANDSHAKE_BYTES_MAX]);
            let why = format!("{NO_DESCRIPTORS}: {}", descriptors::remedy());
            // If the refusal does not fit into an empty socket buffer, the peer sees the connection close.
            let refusal = refusal(ConnectionFault::NoDescriptors, &why);
            let _ = stream.write_all(&framed(&mut Encoder::default(), &refusal));
        }
        self.reserve = open_reserve();
        if let Some(more) = self.refusals.admit(now) {
            let why = format!("{}{more}", descriptors::describe(error));
            self.turned_away(warning("a connection was turned away").why(why));
        }
        true
    }

    fn add(
        &mut self,
        mut stream: TlsStream<DelayedStream<Stream>>,
        stage: Stage,
        handshake: Handshake,
        dial: Option<u64>,
        deadline: Time,
    ) -> io::Result<&mut Connection> {
        let token = self.next_token;
        self.registry.register(stream.get_mut(), Token(token), Interest::READABLE | Interest::WRITABLE)?;
        self.next_token += 1;
        self.check_at = self.check_at.min(deadline);
        let channel = Channel::new(stream, CONTROL_BACKLOG_BYTES_MAX);
        let handshake = Some(Box::new(handshake));
        let (dialled, relay) = (None, None);
        let contact = Connection {
            channel,
            stage,
            handshake,
            dial,
            dialled,
            relay,
            deadline,
            broken: None,
            watches_writing: true,
        };
        Ok(self.connections.entry(token).or_insert(contact))
    }

    // ---- reading

    /// Handles a ready socket. Returns true if the connection must be read.
    pub(super) fn on_ready(&mut self, event: &Readiness) -> bool {
        let token = event.token().0;
        let Some(contact) = self.connections.get_mut(&token) else { return false };
        if contact.stage == Stage::Connecting {
            match contact.channel.stream().get().get().is_connected() {
                Err(error) => {
                    self.not_connected(token, cannot_connect(&error));
                    return false;
                }
                Ok(false) => return false,
                Ok(true) => contact.stage = Stage::Handshaking,
            }
        }
        if event.is_writable() {
            self.open.dirty.insert(token);
        }
        event.is_readable() || event.is_read_closed() || event.is_error()
    }

    /// Reads once and hands out the received bytes; the caller returns them with [`Connections::put_back`].
    pub(super) fn read(&mut self, token: usize) -> Option<(io::Result<ReadOutcome>, ReceiveBuffer)> {
        let channel = &mut self.connections.get_mut(&token)?.channel;
        Some((channel.fill(&mut self.buffers), std::mem::take(&mut channel.inbound)))
    }

    /// Returns the stage of a connection, if it exists.
    pub(super) fn stage(&self, token: usize) -> Option<Stage> {
        self.connections.get(&token).map(|contact| contact.stage)
    }

    /// Returns the next frame of the received bytes.
    pub(super) fn next<'a>(
        &mut self,
        inbound: &'a mut ReceiveBuffer,
        stage: Stage,
    ) -> Result<Option<(Kind, Body<'a>)>, FrameError> {
        let limits = if matches!(stage, Stage::Up(_)) { FrameLimits::CONTROL } else { HANDSHAKE_LIMITS };
        inbound.next(limits, &mut self.buffers)
    }

    /// Takes back the buffer once all complete frames in it are handled. Returns true if the caller should read again.
    /// `closing` means that the last event reported the peer's close, so a short read is not the end.
    pub(super) fn put_back(
        &mut self,
        token: usize,
        mut inbound: ReceiveBuffer,
        filled: io::Result<ReadOutcome>,
        closing: bool,
        now: Time,
    ) -> bool {
        inbound.release(&mut self.buffers);
        let Some(contact) = self.connections.get_mut(&token) else { return false };
        contact.channel.inbound = inbound;
        // The bytes received may have ended the handshake of TLS, which queued frames wait for.
        if contact.channel.outbound.is_blocked() {
            self.open.dirty.insert(token);
        }
        match filled {
            Ok(ReadOutcome::More) => return true,
            Ok(ReadOutcome::Drained) => return closing || contact.channel.stream().has_unread(),
            // One read takes a limited number of records, so the socket may have more.
            Ok(ReadOutcome::Nothing) if contact.channel.stream().has_unread() => return true,
            Ok(ReadOutcome::Nothing) => {
                if let Some(why) = contact.broken.take() {
                    self.lose(token, &why);
                }
            }
            Ok(ReadOutcome::Closed) => self.lose(token, "the connection was closed"),
            Err(error) => match refusal_in(&error) {
                Some(refusal) if !matches!(contact.stage, Stage::Up(_)) => {
                    let missing = self.credentials.why_missing();
                    let missing = missing.map(|why| ConnectionError::new(ConnectionFault::NoCertificate, why));
                    let refusal = missing.unwrap_or_else(|| refusal.clone());
                    self.refused(token, None, &HandshakeError::Certificate(refusal), now);
                }
                _ if is_violation(&error) => self.lose_as(token, ConnectionFault::NotANode, &error.to_string()),
                _ => self.lose(token, &error.to_string()),
            },
        }
        false
    }

    /// Schedules another read of the connection for the next turn.
    pub(super) fn read_later(&mut self, token: usize) {
        self.open.unread.insert(token);
    }

    /// Takes the connections that must be read although nothing new has arrived.
    pub(super) fn take_unread(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.open.unread)
    }

    // ---- writing

    /// Queues a frame for a peer. Does nothing if the peer is not up.
    pub(super) fn queue(&mut self, to: NodeId, write: impl FnOnce(&mut Outbound) -> Result<(), FrameError>) {
        let Some(token) = self.peers.get(&to).map(|peer| token_of(peer.link)) else { return };
        let contact = self.connections.get_mut(&token).expect("a peer's connection is kept while it is up");
        match write(&mut contact.channel.outbound) {
            Ok(()) => {
                self.open.dirty.insert(token);
            }
            // The peer would otherwise wait for this message forever.
            Err(error) => self.lose(token, &format!("a message to it could not be sent: {error}")),
        }
    }

    /// Writes all queued frames, as far as the sockets accept them.
    pub(super) fn flush(&mut self) {
        while let Some(token) = self.open.dirty.pop_first() {
            let Some(contact) = self.connections.get_mut(&token) else { continue };
            if contact.stage == Stage::Connecting {
                continue;
            }
            let flushed = contact.channel.flush(&mut self.buffers).and_then(|()| contact.watch(&self.registry, token));
            if contact.channel.stream().get().has_delayed() {
                self.open.delaying.insert(token);
            }
            match flushed {
                Err(error) => self.not_writable(token, &error),
                Ok(()) => self.resume_if_read(token),
            }
        }
        if self.open.delaying.is_empty() {
            // No connection is delaying frames any more.
            self.open.due = None;
        } else {
            self.write_due();
        }
    }

    /// Writes the due part of what connections to other sites delay.
    fn write_due(&mut self) {
        let now = Instant::now();
        self.open.due = None;
        for token in std::mem::take(&mut self.open.delaying) {
            let contact = self.connections.get_mut(&token).expect("one that is forgotten holds nothing");
            let due = contact.write_due(now, &mut self.buffers);
            match due.and_then(|due| contact.watch(&self.registry, token).map(|()| due)) {
                Ok(due) => {
                    if contact.channel.stream().get().has_delayed() {
                        self.open.delaying.insert(token);
                    }
                    self.open.due = self.open.due.into_iter().chain(due).min();
                }
                Err(error) => self.not_writable(token, &error),
            }
        }
    }

    /// Handles the failure of a write. If the peer has closed the connection, it may have sent why: that is read first,
    /// and the connection is lost after it.
    fn not_writable(&mut self, token: usize, error: &io::Error) {
        match self.connections.get_mut(&token) {
            Some(contact) if is_closed(error) => {
                contact.broken = Some(error.to_string());
                self.read_later(token);
            }
            _ => self.lose(token, &error.to_string()),
        }
    }

    // ---- loss

    pub(super) fn disconnect(&mut self, peer: NodeId) {
        if let Some(token) = self.peers.get(&peer).map(|peer| token_of(peer.link)) {
            let contact = self.connections.get_mut(&token).expect("a peer's connection is kept while it is up");
            contact.flush_all(&mut self.buffers);
            self.forget(token);
        }
    }

    /// Closes a connection because of what the peer has sent. The peer receives the reason, so that the operations
    /// waiting for it there can report it.
    pub(super) fn refuse(&mut self, token: usize, fault: ConnectionFault, why: &str) {
        // A peer with the previous wire version does not know this message.
        let is_told =
            matches!(self.stage(token), Some(Stage::Up(peer)) if self.wire_version_of(peer) == WireVersion::CURRENT);
        if let Some(contact) = self.connections.get_mut(&token).filter(|_| is_told) {
            contact.refuse(fault, why, &mut self.buffers);
        }
        self.lose_as(token, fault, why);
    }

    /// Closes the connections to peers whose certificates have been revoked. Their bulk connections end with them.
    pub(super) fn close_revoked(&mut self) {
        if let Err(why) = self.credentials.check_own_revoked() {
            self.log(warning("the other nodes no longer accept this node").why(why));
        }
        let revoked = self.peers.values().filter_map(|peer| {
            let why = self.credentials.check_revoked(&peer.certificate).err()?;
            Some((token_of(peer.link), peer.name.clone(), why))
        });
        for (token, name, ConnectionError { fault, why }) in revoked.collect::<Vec<_>>() {
            self.turned_away(warning("a connection was closed").peer(name).why(&why));
            self.refuse(token, fault, &why);
        }
    }

    /// Closes this connection to a peer, if it is still up, and notifies the state machine.
    pub(super) fn lose_link(&mut self, link: Link, why: &str) {
        if self.peers.get(&link.peer).is_some_and(|peer| peer.link == link) {
            self.lose(token_of(link), why);
        }
    }

    /// Closes a failed connection and notifies the state machine.
    pub(super) fn lose(&mut self, token: usize, why: &str) {
        self.lose_as(token, ConnectionFault::Closed, why);
    }

    /// The same. `fault` is that of a dial whose handshake has not ended, or [`ConnectionFault::Revoked`].
    pub(super) fn lose_as(&mut self, token: usize, fault: ConnectionFault, why: &str) {
        let Some(contact) = self.forget(token) else { return };
        match (contact.stage, contact.dial) {
            (Stage::Up(peer), _) => {
                let is_revoked = fault == ConnectionFault::Revoked;
                let fault = if is_revoked { fault } else { ConnectionFault::Disconnected };
                self.news.push_back(ConnectionUpdate::Input(Input::PeerLost { peer, fault, why: why.into() }))
            }
            (Stage::Connecting | Stage::Handshaking, Some(dial)) => {
                let kind = if fault == ConnectionFault::NotANode { NOT_A_NODE } else { CLOSED };
                self.attempt_failed(dial, ConnectionError::new(fault, format!("{kind} ({why})")));
            }
            (Stage::Connecting | Stage::Handshaking, None) => {}
        }
    }

    /// Ends an attempt whose socket could not be connected.
    fn not_connected(&mut self, token: usize, error: ConnectionError) {
        let Some(contact) = self.forget(token) else { return };
        if let Some(dial) = contact.dial {
            contact.dialled.into_iter().for_each(|address| self.unreachable.add(address));
            self.attempt_failed(dial, error);
        }
    }

    /// Closes a connection whose peer did not complete the handshake in time.
    fn lose_silent(&mut self, token: usize) {
        let Some(contact) = self.forget(token) else { return };
        if let Some(dial) = contact.dial {
            let seconds = HANDSHAKE_NS_MAX as f64 / 1e9;
            let why = format!("{SILENT} within {seconds} s");
            self.attempt_failed(dial, ConnectionError::new(ConnectionFault::Silent, why));
        }
    }

    /// Removes a connection and closes it.
    fn forget(&mut self, token: usize) -> Option<Connection> {
        let mut contact = self.connections.remove(&token)?;
        self.open.dirty.remove(&token);
        self.open.unread.remove(&token);
        self.open.delaying.remove(&token);
        self.open.throttled.forget(token);
        self.open.half_open.remove(&token);
        // If deregistering fails, closing the socket deregisters it.
        let _ = self.registry.deregister(contact.channel.stream_mut().get_mut());
        if let Stage::Up(peer) = contact.stage
            && let Some(peer) = self.peers.get(&peer).filter(|peer| token_of(peer.link) == token)
        {
            let link = peer.link;
            self.peers.remove(&link.peer);
            self.news.push_back(ConnectionUpdate::Down(link));
        }
        Some(contact)
    }

    /// Hands over a connection that turned out to be for bulk data.
    pub(super) fn hand_over(&mut self, token: usize, hello: Hello, purpose: Purpose) {
        let Some(contact) = self.forget(token) else { return };
        let (mut tcp, relay) = (None, contact.relay);
        let stream = contact.channel.into_stream().map(|stream| match stream.into_inner() {
            Stream::Tcp(stream) => tcp = Some(stream.into()),
            Stream::Unix(_) => {}
        });
        match tcp {
            Some(tcp) => {
                let bulk = BulkConnection { socket: stream.map(|()| tcp), relay };
                self.news.push_back(ConnectionUpdate::Bulk(bulk, Box::new(hello), purpose))
            }
            None => {
                self.log(
                    warning("a peer on this host opened a bulk connection instead of sharing memory").peer(hello.name),
                );
            }
        }
    }

    /// Once the check is due, closes connections and dials past their deadlines, and accepts again after a failure.
    pub(super) fn check(&mut self, now: Time) {
        self.now = now;
        if now < self.check_at {
            return;
        }
        self.check_at = Time::NEVER;
        if self.reserve.is_none() {
            // Another thread took the descriptor when the last refused connection was closed.
            self.reserve = open_reserve();
        }
        if self.accept_again {
            self.accept(now);
        }
        let late: Vec<(usize, Stage)> =
            self.connections.iter().filter(|(_, c)| c.is_late(now)).map(|(token, c)| (*token, c.stage)).collect();
        for (token, stage) in late {
            match stage {
                Stage::Connecting => self.not_connected(token, no_answer()),
                Stage::Handshaking | Stage::Up(_) => self.lose_silent(token),
            }
        }
        self.check_throttled(now);
        self.try_due(now);
        for number in self.dials.late(now) {
            if let Some(dial) = self.dials.get_mut(number) {
                dial.add_reason(no_answer());
                let error = dial.why_failed();
                self.dial_failed(number, error);
            }
        }
        for address in self.dials.take_late_shadowed(now) {
            let why = "the other connection between the two nodes was lost".into();
            let fault = ConnectionFault::Disconnected;
            self.news.push_back(ConnectionUpdate::Input(Input::DialFailed { address, fault, why, connected: None }));
        }
        let contacts = self.connections.values().filter(|c| !matches!(c.stage, Stage::Up(_))).map(|c| c.deadline);
        self.check_at = contacts.chain(self.dials.deadlines()).fold(self.check_at, Time::min);
    }
}

fn open_reserve() -> Option<File> {
    // Without the reserve, a peer that is refused for lack of descriptors receives no reason.
    File::open("/dev/null").ok()
}

/// Reports whether the peer has closed the connection, as far as a write can find.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Returns the token of a link's connection, which is the link's generation.
fn token_of(link: Link) -> usize {
    link.generation as usize
}

#[cfg(test)]
mod tests;
