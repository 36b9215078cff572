//! Connections as they come and go: dials, handshakes, frames, loss.
//!
//! **Promises** (of the world's contract): `PeerUp` before the first message of a peer, `PeerLost` after the last; a
//! dial ends once; whatever a stranger or a peer sends, the worst is that its own connection is closed.

use std::collections::VecDeque;
use std::net::{SocketAddr, ToSocketAddrs};
use std::{io, thread};

use gridloom_core::base::dial::{NO_ANSWER, NO_NODE, NOBODY_LISTENS, UNRESOLVED};
use gridloom_core::base::limits::{DIAL_NS_MAX, EAGER_BYTES_MAX};
use gridloom_core::base::time::MILLISECOND_NS;
use gridloom_core::base::{NodeId, Time};
use gridloom_core::node::{Input, Role};
use gridloom_core::wire::frame::{self, Kind};
use mio::event::Event as Readiness;
use mio::{Interest, Token};

use super::core::{Contact, ContactStage, Core, Dial, Peer};
use crate::payload::Payload;
use crate::transport::HANDSHAKES_MAX;
use crate::transport::connection::{Connection, Filled};
use crate::transport::handshake::{HANDSHAKE_NS_MAX, Handshake, HandshakeError, Hello, Purpose, Verdict};
use crate::transport::notice::{Link, Notice};
use crate::transport::outgoing::STACK_BYTES;
use crate::transport::stream::Stream;

/// Pause before connections are accepted again, when there was no place or no descriptor left for one.
const ACCEPT_PAUSE_NS: u64 = 20 * MILLISECOND_NS;

impl Core {
    // ---- dialling

    pub(super) fn dial(&mut self, address: String) {
        let number = self.next_dial;
        self.next_dial += 1;
        let began = self.clock.now();
        let deadline = began + DIAL_NS_MAX;
        self.check_at = self.check_at.min(deadline);
        let numeric = address.parse::<SocketAddr>().ok();
        let left = numeric.into_iter().collect();
        self.dials.insert(number, Dial { address: address.clone(), left, began, deadline });
        if numeric.is_some() {
            return self.dial_next(number, String::new());
        }
        let inbox = self.inbox.clone();
        let resolve = move || {
            let addresses = address.to_socket_addrs().map(Iterator::collect);
            inbox.post(Notice::Resolved { dial: number, addresses });
        };
        // The resolver of the C library wants more stack than a thread that only moves bytes.
        let thread = thread::Builder::new().name("resolve".into()).stack_size(STACK_BYTES * 4);
        if let Err(error) = thread.spawn(resolve) {
            self.dial_failed(number, error.to_string());
        }
    }

    pub(super) fn resolved(&mut self, dial: u64, addresses: io::Result<Vec<SocketAddr>>) {
        match (self.dials.get_mut(&dial), addresses) {
            (None, _) => {}
            (Some(_), Err(error)) => self.dial_failed(dial, format!("{UNRESOLVED} ({error})")),
            (Some(state), Ok(addresses)) => {
                state.left = VecDeque::from(addresses);
                self.dial_next(dial, format!("{UNRESOLVED} (it has no address)"));
            }
        }
    }

    /// Tries the dial's next address; `why` is what was wrong with the one before.
    fn dial_next(&mut self, number: u64, mut why: String) {
        loop {
            let Some(dial) = self.dials.get_mut(&number) else { return };
            let deadline = dial.deadline;
            let Some(address) = dial.left.pop_front() else { return self.dial_failed(number, why) };
            match self.connect(address, number, deadline) {
                Ok(()) => return,
                Err(error) => why = cannot_connect(&error),
            }
        }
    }

    fn connect(&mut self, address: SocketAddr, dial: u64, deadline: Time) -> io::Result<()> {
        let stream = Stream::connect(address, !self.own.host.is_empty())?;
        let (handshake, first) = Handshake::dial(self.secret.clone(), self.own.clone())?;
        self.add(stream, ContactStage::Connecting, handshake, Some(dial), deadline)?.queue_handshake(&first);
        Ok(())
    }

    fn dial_failed(&mut self, number: u64, why: String) {
        if let Some(dial) = self.dials.remove(&number) {
            self.pending.push_back(Input::DialFailed { address: dial.address, why, connected: None });
        }
    }

    /// Who answers there is up, and not by this dial.
    fn connected_already(&mut self, address: String, peer: NodeId, name: &str) {
        let why = format!("'{name}' answers there, and is connected already");
        self.pending.push_back(Input::DialFailed { address, why, connected: Some(peer) });
    }

    // ---- accepting

    pub(super) fn accept(&mut self) {
        self.accept_again = false;
        loop {
            let Some(listener) = &self.listener else { return };
            if self.connections.len() - self.peers.len() >= HANDSHAKES_MAX {
                return self.accept_later();
            }
            let done = match listener.accept() {
                Ok(None) => return,
                Ok(Some(stream)) => Handshake::accept(self.secret.clone(), self.own.clone()).and_then(|handshake| {
                    let deadline = self.clock.now() + HANDSHAKE_NS_MAX;
                    self.add(stream, ContactStage::Shaking, handshake, None, deadline).map(|_| ())
                }),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                self.log(format!("a connection could not be accepted: {error}"));
                return self.accept_later();
            }
        }
    }

    fn accept_later(&mut self) {
        self.accept_again = true;
        self.check_at = self.check_at.min(self.clock.now() + ACCEPT_PAUSE_NS);
    }

    fn add(
        &mut self,
        mut stream: Stream,
        stage: ContactStage,
        handshake: Handshake,
        dial: Option<u64>,
        deadline: Time,
    ) -> io::Result<&mut Connection> {
        let token = self.next_token;
        self.registry.register(&mut stream, Token(token), Interest::READABLE | Interest::WRITABLE)?;
        self.next_token += 1;
        self.check_at = self.check_at.min(deadline);
        let connection = Connection::new(stream);
        let handshake = Some(Box::new(handshake));
        let contact = Contact { connection, stage, handshake, dial, deadline, watches_writing: true };
        Ok(&mut self.connections.entry(token).or_insert(contact).connection)
    }

    // ---- reading

    pub(super) fn connection_ready(&mut self, event: &Readiness) {
        let token = event.token().0;
        let Some(contact) = self.connections.get_mut(&token) else { return };
        if contact.stage == ContactStage::Connecting {
            match contact.connection.stream().is_connected() {
                Err(error) => return self.lose(token, &cannot_connect(&error)),
                Ok(false) => return,
                Ok(true) => contact.stage = ContactStage::Shaking,
            }
        }
        if event.is_writable() {
            self.dirty.insert(token);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.read(token, event.is_read_closed() || event.is_error());
        }
    }

    /// Reads and handles what is there.
    pub(super) fn read(&mut self, token: usize, closing: bool) {
        let Some(contact) = self.connections.get_mut(&token) else { return };
        let filled = contact.connection.fill(closing);
        let mut input = std::mem::take(&mut contact.connection.input);
        // Handling a frame may end the connection, from either side.
        while let Some(contact) = self.connections.get(&token) {
            let stage = contact.stage;
            let (kind, body) = match input.next(!matches!(stage, ContactStage::Up(_))) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => return self.lose(token, &error.to_string()),
            };
            let done = match stage {
                ContactStage::Up(peer) => self.on_frame(peer, kind, body).map(|()| None),
                ContactStage::Connecting | ContactStage::Shaking => self.on_handshake(token, kind, body),
            };
            match done {
                Ok(None) => {}
                Ok(Some(_)) if !input.is_empty() => return self.lose(token, "bulk before the end of the handshake"),
                Ok(Some((hello, purpose))) => return self.hand_over(token, hello, purpose),
                Err(why) => return self.lose(token, &why),
            }
            if self.exit.is_some() {
                return;
            }
        }
        let Some(contact) = self.connections.get_mut(&token) else { return };
        contact.connection.input = input;
        match filled {
            Ok(Filled::Drained) => {}
            Ok(Filled::More) => drop(self.unread.insert(token)),
            Ok(Filled::Closed) => self.lose(token, "the connection was closed"),
            Err(error) => self.lose(token, &error.to_string()),
        }
    }

    fn on_frame(&mut self, from: NodeId, kind: Kind, body: &[u8]) -> Result<(), String> {
        match kind {
            Kind::Message => {
                let message = frame::parse(body).map_err(|error| error.to_string())?;
                self.input(Input::Received { from, message });
            }
            Kind::Data => {
                let (header, payload) = frame::parse_data(body).map_err(|error| error.to_string())?;
                if payload.len() as u64 > EAGER_BYTES_MAX {
                    return Err(format!("{} bytes of data on the control connection", payload.len()));
                }
                self.store.put(header.datum, header.meta.clone(), Payload::copied(payload));
                self.input(Input::DatumArrived { from, datum: header.datum, meta: header.meta, took_ns: 0 });
            }
            Kind::Hello => {
                let aside = frame::parse(body).map_err(|error| error.to_string())?;
                self.on_aside(from, aside)?;
            }
        }
        Ok(())
    }

    // ---- handshake

    /// `Some` if the connection turned out to be one for bulk.
    fn on_handshake(&mut self, token: usize, kind: Kind, body: &[u8]) -> Result<Option<(Hello, Purpose)>, String> {
        if kind != Kind::Hello {
            return Err("it did not begin with a handshake".into());
        }
        let contact = self.connections.get_mut(&token).expect("the caller has just seen it");
        let mut handshake = contact.handshake.take().expect("it is in the handshake");
        let mut out = Vec::new();
        let done = handshake.on_frame(body, &mut out, |peer| self.decide(peer));
        let contact = self.connections.get_mut(&token).expect("deciding closes no connection");
        out.iter().for_each(|body| contact.connection.queue_handshake(body));
        self.dirty.insert(token);
        match done {
            Ok(None) => contact.handshake = Some(handshake),
            Ok(Some((hello, verdict))) if handshake.purpose() == Purpose::Control => {
                self.established(token, hello, verdict);
            }
            Ok(Some((hello, _))) => {
                // The verdict goes before the socket changes hands.
                contact.connection.flush().map_err(|error| error.to_string())?;
                return Ok(Some((hello, handshake.purpose())));
            }
            Err(error) => {
                // The refusal goes before the connection is closed; if it cannot, the peer sees it closed.
                let _ = contact.connection.flush();
                self.refused(token, handshake.peer().map(|peer| peer.role), &error);
            }
        }
        Ok(None)
    }

    fn decide(&self, hello: &Hello) -> Result<Verdict, String> {
        let peer = self.peers.get(&hello.node);
        match hello.purpose {
            Purpose::Control if peer.is_some() => Ok(Verdict::Duplicate),
            Purpose::Control => Ok(Verdict::Welcome),
            Purpose::BulkSend if peer.is_some_and(|peer| peer.may_open(hello.stream)) => Ok(Verdict::Welcome),
            Purpose::BulkReceive if peer.is_some_and(|peer| peer.was_asked_for(hello.stream)) => Ok(Verdict::Welcome),
            Purpose::BulkReceive if peer.is_some() => {
                Err(format!("bulk connection {} that was not asked for", hello.stream))
            }
            Purpose::BulkSend | Purpose::BulkReceive => Err("a bulk connection of no peer".into()),
            Purpose::Local => Err("shared memory is not passed over TCP".into()),
            Purpose::Process => Err("this is a node of a grid, and no process that talks by messages".into()),
        }
    }

    fn refused(&mut self, token: usize, role: Option<Role>, error: &HandshakeError) {
        let Some(contact) = self.forget(token) else { return };
        let Some(number) = contact.dial else {
            return self.log(format!("a connection was turned away: {error}"));
        };
        let who = match role {
            Some(Role::Agent) => "agent",
            Some(Role::Server) => "server",
            Some(Role::Client) => "client",
            None => "node",
        };
        let why = match error {
            HandshakeError::Malformed(what) => format!("{NO_NODE} ({what})"),
            HandshakeError::Refused(_) | HandshakeError::Unacceptable(_) => format!("the {who} there {error}"),
        };
        self.dial_failed(number, why);
    }

    fn established(&mut self, token: usize, mut hello: Hello, verdict: Verdict) {
        let contact = self.connections.get_mut(&token).expect("its handshake has just ended");
        let dialled = contact.dial.and_then(|number| self.dials.remove(&number));
        if verdict == Verdict::Duplicate {
            // The decider's last word; it may be this node's own.
            let _ = contact.connection.flush();
            self.forget(token);
            let Some(Dial { address, began, deadline, .. }) = dialled else { return };
            match self.peers.get(&hello.node) {
                // Who came up meanwhile by that address has ended the dial by that.
                Some(peer) if peer.since >= began && peer.hello.address == address => {}
                Some(_) => self.connected_already(address, hello.node, &hello.name),
                None => {
                    self.check_at = self.check_at.min(deadline);
                    self.shadowed.insert((hello.node, address), deadline);
                }
            }
            return;
        }
        contact.stage = ContactStage::Up(hello.node);
        if let Some(old) = self.peers.get(&hello.node).map(|peer| peer.token) {
            self.lose(old, "it connected anew");
        }
        if let Some(dial) = dialled {
            hello.address = dial.address;
        }
        let (peer, link) = (hello.node, Link { peer: hello.node, generation: token as u64 });
        let (role, name, address) = (hello.role, hello.name.clone(), hello.address.clone());
        let since = self.clock.now();
        self.peers.insert(peer, Peer { token, since, link, hello, outgoing: None, incoming: Default::default() });
        let is_shadowed = |(node, _): &&(NodeId, String)| *node == peer;
        let shadowed: Vec<(NodeId, String)> = self.shadowed.keys().filter(is_shadowed).cloned().collect();
        self.pending.push_back(Input::PeerUp { peer, role, name: name.clone(), address: address.clone() });
        for dial in shadowed {
            self.shadowed.remove(&dial);
            if dial.1 != address {
                self.connected_already(dial.1, peer, &name);
            }
        }
        self.settle();
    }

    // ---- loss

    pub(super) fn hang_up(&mut self, peer: NodeId) {
        if let Some(token) = self.peers.get(&peer).map(|peer| peer.token) {
            // What was said before goes out if the socket takes it; the connection ends either way.
            let contact = self.connections.get_mut(&token).expect("a peer's connection is kept while it is up");
            let _ = contact.connection.flush();
            self.forget(token);
        }
    }

    /// Closes a connection that is no longer good, and says so to the machine.
    pub(super) fn lose(&mut self, token: usize, why: &str) {
        let Some(contact) = self.forget(token) else { return };
        match (contact.stage, contact.dial) {
            (ContactStage::Up(peer), _) => self.pending.push_back(Input::PeerLost { peer, why: why.into() }),
            (ContactStage::Connecting, Some(dial)) => self.dial_next(dial, why.into()),
            (ContactStage::Shaking, Some(dial)) => self.dial_next(dial, format!("{NO_NODE} ({why})")),
            (ContactStage::Connecting | ContactStage::Shaking, None) => {}
        }
    }

    /// Closes a connection; its peer's bulk ends with it.
    fn forget(&mut self, token: usize) -> Option<Contact> {
        let mut contact = self.connections.remove(&token)?;
        self.dirty.remove(&token);
        self.unread.remove(&token);
        // A socket that cannot be deregistered is deregistered by being closed.
        let _ = self.registry.deregister(contact.connection.stream());
        if let ContactStage::Up(peer) = contact.stage
            && self.peers.get(&peer).is_some_and(|peer| peer.token == token)
        {
            self.peers.remove(&peer);
        }
        Some(contact)
    }

    /// The connection of a stranger becomes a bulk connection.
    fn hand_over(&mut self, token: usize, hello: Hello, purpose: Purpose) {
        match self.forget(token).map(|contact| contact.connection.into_stream()) {
            Some(Stream::Tcp(stream)) => self.take_bulk(stream.into(), hello, purpose),
            Some(Stream::Unix(_)) => self.log(format!("{} wants to send by copies what can be shared", hello.name)),
            None => {}
        }
    }

    /// Ends what takes too long, and tries again what could not be done.
    pub(super) fn check(&mut self, now: Time) {
        self.check_at = Time::NEVER;
        if self.accept_again {
            self.accept();
        }
        let late: Vec<usize> =
            self.connections.iter().filter(|(_, c)| c.is_late(now)).map(|(token, _)| *token).collect();
        for token in late {
            match self.connections.get(&token).map(|contact| contact.stage) {
                Some(ContactStage::Connecting) => self.lose(token, &no_answer()),
                _ => self.lose(token, "it says nothing"),
            }
        }
        let late: Vec<u64> = self.dials.iter().filter(|(_, dial)| dial.deadline <= now).map(|(n, _)| *n).collect();
        for number in late {
            self.dial_failed(number, no_answer());
        }
        let late: Vec<(NodeId, String)> =
            self.shadowed.iter().filter(|(_, at)| **at <= now).map(|(dial, _)| dial.clone()).collect();
        for dial in late {
            self.shadowed.remove(&dial);
            let why = "the other connection between the two did not last".into();
            self.pending.push_back(Input::DialFailed { address: dial.1, why, connected: None });
        }
        let contacts =
            self.connections.values().filter(|c| !matches!(c.stage, ContactStage::Up(_))).map(|c| c.deadline);
        let rest = self.dials.values().map(|dial| dial.deadline).chain(self.shadowed.values().copied());
        self.check_at = contacts.chain(rest).fold(self.check_at, Time::min);
        self.settle();
    }
}

/// Why a connection did not come about.
fn cannot_connect(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("{NOBODY_LISTENS} (connection refused)"),
        io::ErrorKind::TimedOut => no_answer(),
        _ => format!("{NO_ANSWER} ({error})"),
    }
}

fn no_answer() -> String {
    let seconds = DIAL_NS_MAX as f64 / 1e9;
    format!("{NO_ANSWER} within {seconds} s: the host is down, or something on the way drops what is sent there")
}

impl Contact {
    fn is_late(&self, now: Time) -> bool {
        !matches!(self.stage, ContactStage::Up(_)) && self.deadline <= now
    }
}
