//! Connections as they come and go: dials, handshakes, frames, loss.
//!
//! **Promises** (of the world's contract): `PeerUp` before the first message of a peer, `PeerLost` after the last; a
//! dial ends once; whatever a peer sends, known or not, the worst is that its own connection is closed.
//!
//! It knows neither the machine nor bulk: what it has to tell is [`News`], which the node's core takes and passes on.

mod dialling;
mod handshakes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use gridloom_base::dial::NO_NODE;
use gridloom_base::time::MILLISECOND_NS;
use gridloom_base::{NodeId, Time};
use gridloom_channel::frame::FrameError;
use gridloom_channel::{Body, Buffers, Channel, Dialect, Filled, Inbound, Key, Keys, Kind, Limits, Outbound};
use gridloom_core::node::{Input, LogLine};
use mio::event::Event as Readiness;
use mio::{Interest, Registry, Token};

use super::contact::{Contact, Stage};
use super::dials::{Dials, cannot_connect, no_answer};
use super::refusals::Refusals;
use crate::identity::Credentials;
use crate::log::warning;
use crate::transport::apart::Apart;
use crate::transport::handshake::{HANDSHAKE_LIMITS, HANDSHAKE_NS_MAX, Handshake, Hello, Pass, Purpose, dialect};
use crate::transport::held::Held;
use crate::transport::host::HostSockets;
use crate::transport::notice::{Inbox, Link};
use crate::transport::stream::{Listener, Stream};
use crate::transport::{CONTROL_BACKLOG_BYTES_MAX, HANDSHAKES_MAX};

/// Pause before connections are accepted again, when there was no place or no descriptor left for one.
const ACCEPT_PAUSE_NS: u64 = 20 * MILLISECOND_NS;
/// Connections that are accepted in one turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Reads of one connection in one turn (4 MiB), so that one flood does not starve the others.
pub(super) const READS_PER_TURN: u32 = 64;
/// As how many of them a read of a long frame counts, which takes about a mebibyte.
pub(super) const READS_PER_LONG: u32 = 16;

/// What the connections have to tell.
pub(super) enum News {
    /// Something for the machine.
    Input(Input),
    Log(LogLine),
    /// A control connection stands, on which that version is spoken.
    Up(Link, Box<Hello>, Pass, u16),
    /// It does no longer.
    Down(Link),
    /// A peer dialled this connection for bulk.
    Bulk((TcpStream, Keys), Box<Hello>, Purpose),
}

/// The connections of a node.
pub(super) struct Contacts {
    own: Hello,
    credentials: Credentials,
    registry: Registry,
    inbox: Arc<Inbox>,
    listener: Option<Listener>,
    /// Where nodes of this host meet, and what stands between this one and other sites.
    around: (Option<HostSockets>, Arc<Apart>),
    connections: BTreeMap<usize, Contact>,
    next_token: usize,
    buffers: Buffers,
    peers: BTreeMap<NodeId, Peer>,
    dials: Dials,
    refusals: Refusals,
    /// When it has to look again: handshakes and dials that last too long, a listener that was full.
    check_at: Time,
    accept_again: bool,
    open: Open,
    news: VecDeque<News>,
}

/// Connections at which something is left to do, by token.
#[derive(Default)]
struct Open {
    /// Of strangers, in the handshake; a smaller token is an older one.
    half_open: BTreeSet<usize>,
    /// With frames to write.
    dirty: BTreeSet<usize>,
    /// With more to read.
    unread: BTreeSet<usize>,
    /// That hold back what is not due.
    holding: BTreeSet<usize>,
    /// When the first of these has something that is due.
    due: Option<Instant>,
}

/// A peer with a control connection that stands.
struct Peer {
    link: Link,
    since: Time,
    address: String,
    pass: Pass,
    /// What is spoken with it.
    version: u16,
}

impl Contacts {
    /// None yet. Tokens of connections begin with `first_token`.
    pub(super) fn new(
        own: Hello,
        credentials: Credentials,
        registry: Registry,
        inbox: Arc<Inbox>,
        listener: Option<Listener>,
        around: (Option<HostSockets>, Arc<Apart>),
        first_token: usize,
    ) -> Contacts {
        Contacts {
            own,
            credentials,
            registry,
            inbox,
            listener,
            around,
            connections: BTreeMap::new(),
            next_token: first_token,
            buffers: Buffers::default(),
            peers: BTreeMap::new(),
            dials: Dials::default(),
            refusals: Refusals::default(),
            check_at: Time::NEVER,
            accept_again: false,
            open: Open::default(),
            news: VecDeque::new(),
        }
    }

    /// The next thing that it has to tell.
    pub(super) fn take_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Whether a control connection to that peer stands.
    pub(super) fn is_up(&self, peer: NodeId) -> bool {
        self.peers.contains_key(&peer)
    }

    /// How messages of that peer are written.
    pub(super) fn dialect(&self, peer: NodeId) -> Dialect {
        self.peers.get(&peer).map_or(Dialect::OWN, |peer| dialect(peer.version))
    }

    /// When it has to be called though nothing comes.
    pub(super) fn wake_at(&self) -> Time {
        if self.open.unread.is_empty() { self.check_at } else { Time::ZERO }
    }

    /// When something is due that a connection to another site has held back.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open.due
    }

    /// What must hold between two calls.
    pub(super) fn check_invariants(&self) {
        for (peer, Peer { link, .. }) in &self.peers {
            let contact = self.connections.get(&token_of(*link));
            assert!(contact.is_some_and(|contact| contact.stage == Stage::Up(*peer)), "{peer} has no connection");
        }
        assert!(self.open.half_open.iter().all(|token| self.stage(*token) == Some(Stage::Shaking)));
        let open = self.open.dirty.iter().chain(&self.open.unread).chain(&self.open.holding);
        assert!(open.into_iter().all(|token| self.connections.contains_key(token)));
    }

    /// Ends everything.
    pub(super) fn shut_down(&mut self) {
        self.connections.values_mut().for_each(|contact| contact.channel.stream_mut().let_all_go());
        (self.peers, self.connections, self.open) = Default::default();
        self.dials = Dials::default();
        self.listener = None;
    }

    fn log(&mut self, line: LogLine) {
        self.news.push_back(News::Log(line));
    }

    // ---- accepting

    pub(super) fn accept(&mut self, now: Time) {
        self.accept_again = false;
        // Between two turns, those that have come say who they are: no flood puts out what it has not let speak.
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = &self.listener else { return };
            let done = match listener.accept() {
                Ok(None) => return,
                Ok(Some(stream)) => {
                    Handshake::accept(self.credentials.clone(), self.own.clone()).and_then(|handshake| {
                        let (token, deadline) = (self.next_token, now + HANDSHAKE_NS_MAX);
                        self.add(stream, Stage::Shaking, handshake, None, deadline)?;
                        self.open.half_open.insert(token);
                        Ok(())
                    })
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                // Descriptors are short, mostly. A stranger's serves a newcomer better.
                if !self.put_out_oldest(now) {
                    self.log(warning("a connection could not be accepted").why(error));
                }
                return self.accept_later(now + ACCEPT_PAUSE_NS);
            }
            if self.open.half_open.len() > HANDSHAKES_MAX {
                self.put_out_oldest(now);
            }
        }
        self.accept_later(now);
    }

    fn accept_later(&mut self, at: Time) {
        self.accept_again = true;
        self.check_at = self.check_at.min(at);
    }

    /// Closes the oldest connection of a stranger that is in the handshake; whether there was one.
    fn put_out_oldest(&mut self, now: Time) -> bool {
        let Some(oldest) = self.open.half_open.pop_first() else { return false };
        self.forget(oldest);
        if let Some(more) = self.refusals.admit(now) {
            let why = format!(
                "the oldest of {HANDSHAKES_MAX} that have not said who they are makes room for a newcomer{more}"
            );
            self.log(warning("a connection was turned away").why(why));
        }
        true
    }

    fn add(
        &mut self,
        mut stream: Stream,
        stage: Stage,
        handshake: Handshake,
        dial: Option<u64>,
        deadline: Time,
    ) -> io::Result<&mut Contact> {
        let token = self.next_token;
        self.registry.register(&mut stream, Token(token), Interest::READABLE | Interest::WRITABLE)?;
        self.next_token += 1;
        self.check_at = self.check_at.min(deadline);
        let channel = Channel::new(Held::new(stream), CONTROL_BACKLOG_BYTES_MAX);
        let handshake = Some(Box::new(handshake));
        let (receives_with, watches_writing) = (None, true);
        let contact = Contact { channel, stage, handshake, receives_with, dial, deadline, watches_writing };
        Ok(self.connections.entry(token).or_insert(contact))
    }

    // ---- reading

    /// A connection's socket is ready. Whether it is to be read.
    pub(super) fn on_ready(&mut self, event: &Readiness) -> bool {
        let token = event.token().0;
        let Some(contact) = self.connections.get_mut(&token) else { return false };
        if contact.stage == Stage::Connecting {
            match contact.channel.stream().get().is_connected() {
                Err(error) => {
                    self.lose(token, &cannot_connect(&error));
                    return false;
                }
                Ok(false) => return false,
                Ok(true) => contact.stage = Stage::Shaking,
            }
        }
        if event.is_writable() {
            self.open.dirty.insert(token);
        }
        event.is_readable() || event.is_read_closed() || event.is_error()
    }

    /// Reads once, and hands out what has come; it is put back with [`Contacts::put_back`].
    pub(super) fn read(&mut self, token: usize) -> Option<(io::Result<Filled>, Inbound)> {
        let channel = &mut self.connections.get_mut(&token)?.channel;
        Some((channel.fill(&mut self.buffers), std::mem::take(&mut channel.inbound)))
    }

    /// How far a connection is, if it is there.
    pub(super) fn stage(&self, token: usize) -> Option<Stage> {
        self.connections.get(&token).map(|contact| contact.stage)
    }

    /// The next frame of what has come.
    pub(super) fn next<'a>(
        &mut self,
        inbound: &'a mut Inbound,
        stage: Stage,
    ) -> Result<Option<(Kind, Body<'a>)>, FrameError> {
        let limits = if matches!(stage, Stage::Up(_)) { Limits::CONTROL } else { HANDSHAKE_LIMITS };
        inbound.next(limits, &mut self.buffers)
    }

    /// The key with which the peer tags its frames from the next one on, if the handshake has just ended.
    pub(super) fn take_key(&mut self, token: usize) -> Option<Key> {
        self.connections.get_mut(&token)?.receives_with.take()
    }

    /// All whole frames of what has come were handled. Whether to read on. `closing`: the last event said that the peer
    /// closed, so a short read is not the end.
    pub(super) fn put_back(
        &mut self,
        token: usize,
        mut inbound: Inbound,
        filled: io::Result<Filled>,
        closing: bool,
    ) -> bool {
        inbound.release(&mut self.buffers);
        let Some(contact) = self.connections.get_mut(&token) else { return false };
        contact.channel.inbound = inbound;
        match filled {
            Ok(Filled::More) => return true,
            Ok(Filled::Drained) => return closing,
            Ok(Filled::Nothing) => {}
            Ok(Filled::Closed) => self.lose(token, "the connection was closed"),
            Err(error) => self.lose(token, &error.to_string()),
        }
        false
    }

    /// The connection has more to read, in the next turn.
    pub(super) fn read_later(&mut self, token: usize) {
        self.open.unread.insert(token);
    }

    /// Connections that are to be read though nothing new has come.
    pub(super) fn take_unread(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.open.unread)
    }

    // ---- writing

    /// Queues a frame for a peer; no effect if it is not up.
    pub(super) fn queue(&mut self, to: NodeId, write: impl FnOnce(&mut Outbound) -> Result<(), FrameError>) {
        let Some(token) = self.peers.get(&to).map(|peer| token_of(peer.link)) else { return };
        let contact = self.connections.get_mut(&token).expect("a peer's connection is kept while it is up");
        match write(&mut contact.channel.outbound) {
            Ok(()) => {
                self.open.dirty.insert(token);
            }
            // The peer would wait for this message for ever.
            Err(error) => self.lose(token, &format!("a message to it cannot be sent: {error}")),
        }
    }

    /// Writes everything queued, as far as the sockets take it.
    pub(super) fn flush(&mut self) {
        while let Some(token) = self.open.dirty.pop_first() {
            let Some(contact) = self.connections.get_mut(&token) else { continue };
            if contact.stage == Stage::Connecting {
                continue;
            }
            let flushed = contact.channel.flush(&mut self.buffers).and_then(|()| contact.watch(&self.registry, token));
            if contact.channel.stream().is_holding() {
                self.open.holding.insert(token);
            }
            if let Err(error) = flushed {
                self.lose(token, &error.to_string());
            }
        }
        if self.open.holding.is_empty() {
            // What was due went with its connection.
            self.open.due = None;
        } else {
            self.let_go();
        }
    }

    /// Writes what is due of that which connections to other sites have held back.
    fn let_go(&mut self) {
        let now = Instant::now();
        self.open.due = None;
        for token in std::mem::take(&mut self.open.holding) {
            let contact = self.connections.get_mut(&token).expect("one that is forgotten holds nothing");
            let due = contact.let_go(now, &mut self.buffers);
            match due.and_then(|due| contact.watch(&self.registry, token).map(|()| due)) {
                Ok(due) => {
                    if contact.channel.stream().is_holding() {
                        self.open.holding.insert(token);
                    }
                    self.open.due = self.open.due.into_iter().chain(due).min();
                }
                Err(error) => self.lose(token, &error.to_string()),
            }
        }
    }

    // ---- loss

    pub(super) fn hang_up(&mut self, peer: NodeId) {
        if let Some(token) = self.peers.get(&peer).map(|peer| token_of(peer.link)) {
            let contact = self.connections.get_mut(&token).expect("a peer's connection is kept while it is up");
            contact.say_all(&mut self.buffers);
            self.forget(token);
        }
    }

    /// Closes a connection for what the peer has sent. The peer hears why: what waits for an answer there can say so.
    pub(super) fn refuse(&mut self, token: usize, why: &str) {
        // One of the last version does not know the word.
        let is_told = matches!(self.stage(token), Some(Stage::Up(peer)) if self.dialect(peer) == Dialect::OWN);
        if let Some(contact) = self.connections.get_mut(&token).filter(|_| is_told) {
            contact.refuse(why, &mut self.buffers);
        }
        self.lose(token, why);
    }

    /// Closes that connection to a peer, if it still stands, and says so to the machine.
    pub(super) fn lose_link(&mut self, link: Link, why: &str) {
        if self.peers.get(&link.peer).is_some_and(|peer| peer.link == link) {
            self.lose(token_of(link), why);
        }
    }

    /// Closes a connection that is no longer good, and says so to the machine.
    pub(super) fn lose(&mut self, token: usize, why: &str) {
        let Some(contact) = self.forget(token) else { return };
        match (contact.stage, contact.dial) {
            (Stage::Up(peer), _) => self.news.push_back(News::Input(Input::PeerLost { peer, why: why.into() })),
            (Stage::Connecting, Some(dial)) => self.dial_next(dial, why.into()),
            (Stage::Shaking, Some(dial)) => self.dial_next(dial, format!("{NO_NODE} ({why})")),
            (Stage::Connecting | Stage::Shaking, None) => {}
        }
    }

    /// Closes a connection.
    fn forget(&mut self, token: usize) -> Option<Contact> {
        let mut contact = self.connections.remove(&token)?;
        self.open.dirty.remove(&token);
        self.open.unread.remove(&token);
        self.open.holding.remove(&token);
        self.open.half_open.remove(&token);
        // A socket that cannot be deregistered is deregistered by being closed.
        let _ = self.registry.deregister(contact.channel.stream_mut());
        if let Stage::Up(peer) = contact.stage
            && let Some(peer) = self.peers.get(&peer).filter(|peer| token_of(peer.link) == token)
        {
            let link = peer.link;
            self.peers.remove(&link.peer);
            self.news.push_back(News::Down(link));
        }
        Some(contact)
    }

    /// A connection turned out to be one for bulk.
    pub(super) fn hand_over(&mut self, token: usize, hello: Hello, purpose: Purpose, keys: Keys) {
        match self.forget(token).map(|contact| contact.channel.into_stream().into_inner()) {
            Some(Stream::Tcp(stream)) => {
                self.news.push_back(News::Bulk((stream.into(), keys), Box::new(hello), purpose))
            }
            Some(Stream::Unix(_)) => {
                self.log(warning("a peer wants to send by copies what can be shared").peer(hello.name));
            }
            None => {}
        }
    }

    /// Ends what takes too long, and tries again what could not be done, if it is time.
    pub(super) fn check(&mut self, now: Time) {
        if now < self.check_at {
            return;
        }
        self.check_at = Time::NEVER;
        if self.accept_again {
            self.accept(now);
        }
        let late: Vec<(usize, Stage)> =
            self.connections.iter().filter(|(_, c)| c.is_late(now)).map(|(token, c)| (*token, c.stage)).collect();
        for (token, stage) in late {
            match stage {
                Stage::Connecting => self.lose(token, &no_answer()),
                Stage::Shaking | Stage::Up(_) => self.lose(token, "it says nothing"),
            }
        }
        for number in self.dials.late(now) {
            self.dial_failed(number, no_answer());
        }
        for address in self.dials.take_late_shadowed(now) {
            let why = "the other connection between the two did not last".into();
            self.news.push_back(News::Input(Input::DialFailed { address, why, connected: None }));
        }
        let contacts = self.connections.values().filter(|c| !matches!(c.stage, Stage::Up(_))).map(|c| c.deadline);
        self.check_at = contacts.chain(self.dials.deadlines()).fold(self.check_at, Time::min);
    }
}

/// A link is numbered by the token of its connection.
fn token_of(link: Link) -> usize {
    link.generation as usize
}

#[cfg(test)]
mod tests;
