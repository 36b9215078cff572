//! Bulk data as the event loop sees them: streams that open and end, data that arrived or failed; never the bytes.
//!
//! This module knows neither the state machine nor the control connections. It reports [`StreamUpdate`], which the node's core
//! takes and forwards.
//!
//! **Invariant:** notices of a thread that belongs to an earlier connection to a peer have no effect ([`Link`]).

mod local;
mod peer;

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use gridloom_base::limits::DIAL_NS_MAX;
use gridloom_base::{DatumId, Meta, NodeId};
use gridloom_channel::WireVersion;
use gridloom_core::node::{Input, LogLine, Role};

use peer::{Incoming, Peer, STREAMS_MAX};

use crate::filling::PartialFill;
use crate::identity::Credentials;
use crate::log::warning;
use crate::payload::Payload;
use crate::store::Store;
use crate::threads::STACK_BYTES;
use crate::transport::bulk::Receiver;
use crate::transport::emulated_sites::EmulatedLinks;
use crate::transport::handshake::{HANDSHAKE_NS_MAX, Hello, Pass, Purpose, wire_version};
use crate::transport::host::{HostSockets, SocketFile};
use crate::transport::lanes::Lanes;
use crate::transport::notice::{BulkConnection, CorruptedPart, Inbox, Link, Notice, StreamOutcome};
use crate::transport::outgoing::OutgoingLane;
use crate::transport::reach::Unreachable;
use crate::transport::sender::{Destination, Paths, dial_bulk};
use crate::transport::shared::{Closer, Route, prepare_blocking};
use crate::transport::stripes::Stripes;
use crate::transport::tls::CORRUPTED;
use crate::transport::{ACKNOWLEDGE_EVERY, CORRUPTED_IN_A_ROW_MAX, Cargo, PARTIALLY_HELD_MAX, WorldMessage};

/// Selects a lane and starts it if needed.
type Lane = for<'a> fn(&'a mut Lanes, &dyn Fn(u64) -> io::Result<OutgoingLane>) -> io::Result<&'a OutgoingLane>;

/// Updates from the streams to the core.
#[expect(clippy::large_enum_variant, reason = "most updates are inputs")]
pub(super) enum StreamUpdate {
    /// An input for the state machine.
    Input(Input),
    Log(LogLine),
    /// A message to a peer's world.
    Aside(NodeId, WorldMessage),
    /// A peer broke the protocol: its connection is closed.
    Lose(Link, String),
}

/// The bulk streams of a node, by peer.
pub(super) struct Streams {
    own: Hello,
    credentials: Credentials,
    inbox: Arc<Inbox>,
    store: Arc<Store>,
    datum_bytes_max: u64,
    /// Number of connections per stream that this node opens; derived from the round-trip time if `None`.
    stripes: Option<u8>,
    sites: Arc<EmulatedLinks>,
    unreachable: Arc<Unreachable>,
    /// Sockets on which nodes of this host meet and pass memory to this node.
    sockets: Option<HostSockets>,
    listener: Option<(UnixListener, SocketFile)>,
    /// Number of handshakes in progress on local sockets, each on a thread.
    handshakes: usize,
    peers: BTreeMap<NodeId, Peer>,
    news: VecDeque<StreamUpdate>,
}

impl Streams {
    /// Creates an empty set of streams.
    pub(super) fn new(
        own: Hello,
        credentials: Credentials,
        inbox: Arc<Inbox>,
        store: Arc<Store>,
        (datum_bytes_max, stripes): (u64, Option<u8>),
        (sites, unreachable): (Arc<EmulatedLinks>, Arc<Unreachable>),
    ) -> Streams {
        let (sockets, listener, handshakes, peers, news) = Default::default();
        Streams {
            own,
            credentials,
            inbox,
            store,
            datum_bytes_max,
            stripes,
            sites,
            unreachable,
            sockets,
            listener,
            handshakes,
            peers,
            news,
        }
    }

    /// Accepts memory from nodes of this host on this socket.
    pub(super) fn share(&mut self, sockets: HostSockets, listener: (UnixListener, SocketFile)) {
        (self.sockets, self.listener) = (Some(sockets), Some(listener));
    }

    /// Returns the next update for the core.
    pub(super) fn take_update(&mut self) -> Option<StreamUpdate> {
        self.news.pop_front()
    }

    /// Registers a peer whose control connection is up.
    pub(super) fn peer_up(&mut self, link: Link, hello: Hello, pass: Pass, version: u16) {
        self.peers.insert(
            link.peer,
            Peer {
                link,
                hello,
                pass,
                wire_version: wire_version(version),
                outgoing: Lanes::default(),
                incoming: BTreeMap::new(),
                gathering: BTreeMap::new(),
                changed_in_a_row: 0,
                bytes_held: BTreeMap::new(),
            },
        );
    }

    /// Removes a peer whose control connection is down; its bulk streams end with it.
    pub(super) fn peer_down(&mut self, link: Link) {
        if self.is_up(link) {
            self.peers.remove(&link.peer);
        }
    }

    /// Asserts the invariants that hold between two calls; `is_up` reports whether a control connection is up.
    pub(super) fn check_invariants(&self, is_up: impl Fn(NodeId) -> bool) {
        assert!(self.peers.keys().all(|peer| is_up(*peer)), "bulk of a peer that is not up");
        assert!(self.peers.values().all(|peer| peer.incoming.len() <= STREAMS_MAX));
    }

    /// Returns the size of the largest accepted datum.
    pub(super) fn datum_bytes_max(&self) -> u64 {
        self.datum_bytes_max
    }

    /// Returns the peers whose control connections are up, with their roles.
    pub(super) fn roles(&self) -> Vec<(NodeId, Role)> {
        self.peers.values().map(|peer| (peer.link.peer, peer.hello.role)).collect()
    }

    /// Returns the current link to a peer.
    pub(super) fn link_to(&self, peer: NodeId) -> Option<Link> {
        self.peers.get(&peer).map(|peer| peer.link)
    }

    /// Ends all streams.
    pub(super) fn shut_down(&mut self) {
        self.peers.clear();
        self.listener = None;
    }

    /// Checks whether a dialled bulk connection is expected.
    pub(super) fn admits(&self, hello: &Hello) -> Result<(), String> {
        let peer = self.peers.get(&hello.node);
        let is_due = peer.is_some_and(|peer| match hello.purpose {
            Purpose::BulkReceive => peer.was_requested(hello.stream),
            _ => peer.may_open_stripe(hello.stream, hello.stripe),
        });
        match (peer, hello.purpose) {
            _ if is_due => Ok(()),
            (Some(_), Purpose::BulkReceive) => Err(format!("bulk connection {} that was not requested", hello.stream)),
            _ => Err("a bulk connection without a control connection".into()),
        }
    }

    // ---- sending

    /// Sends a large datum.
    pub(super) fn send(&mut self, to: NodeId, datum: DatumId, meta: Meta, payload: Payload) {
        let had_bytes = self.take_bytes_held(to, datum);
        self.send_by(to, datum, Lanes::whole, |outgoing| {
            outgoing.send(Cargo::Datum { datum, meta }, payload, had_bytes)
        });
    }

    /// Forwards a large datum while it is still being received.
    pub(super) fn forward(&mut self, to: NodeId, datum: DatumId, meta: Meta, coming: Arc<PartialFill>) {
        let had_bytes = self.take_bytes_held(to, datum);
        self.send_by(to, datum, Lanes::passing_on, |outgoing| {
            outgoing.forward(Cargo::Datum { datum, meta }, coming, had_bytes)
        });
    }

    /// Takes the number of bytes of a datum that the peer reported to have already, since it last received the datum.
    fn take_bytes_held(&mut self, peer: NodeId, datum: DatumId) -> u64 {
        self.peers.get_mut(&peer).and_then(|peer| peer.bytes_held.remove(&datum)).unwrap_or(0)
    }

    fn send_by(&mut self, to: NodeId, datum: DatumId, lane: Lane, send: impl FnOnce(&OutgoingLane)) {
        match self.outgoing(to, lane) {
            None => {}
            Some(Ok(outgoing)) => send(outgoing),
            Some(Err(error)) => {
                let why = format!("cannot start a thread to send it: {error}");
                self.aside(to, WorldMessage::Broken { datum, why });
            }
        }
    }

    /// Sends a large probe.
    pub(super) fn probe(&mut self, to: NodeId, size_bytes: u64) {
        match self.outgoing(to, Lanes::whole) {
            None => {}
            Some(Ok(outgoing)) => outgoing.probe(size_bytes),
            Some(Err(error)) => self.log(warning("no probe").peer(to).why(error)),
        }
    }

    fn outgoing(&mut self, to: NodeId, lane: Lane) -> Option<io::Result<&OutgoingLane>> {
        let peer = self.peers.get_mut(&to)?;
        let (own, credentials, apart, unreachable) = (&self.own, &self.credentials, &self.sites, &self.unreachable);
        let (inbox, store, sockets, stripes) = (&self.inbox, &self.store, &self.sockets, self.stripes);
        let start = |lane| {
            let route = Route {
                own: own.clone(),
                credentials: credentials.clone(),
                pass: peer.pass.clone(),
                peer: peer.hello.clone(),
                sockets: sockets.clone(),
                unreachable: unreachable.clone(),
                stripes,
                emulated_link: apart.link_to(&peer.hello.host),
                wire_version: peer.wire_version,
            };
            OutgoingLane::start(lane, route, peer.link, inbox.clone(), store.clone())
        };
        Some(lane(&mut peer.outgoing, &start))
    }

    // ---- updates from threads and from peers' worlds

    /// Reports data that peers passed and that are no longer used here.
    pub(super) fn released(&mut self, link: Link, retired: bool, serials: Vec<u64>) {
        self.aside_on(link, WorldMessage::Released { retired, serials });
    }

    pub(super) fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::LocalPeer { hello, stream, reply } => {
                // If the thread no longer waits, it has given up its stream.
                let _ = reply.send(self.admit_local(hello, stream));
            }
            Notice::LocalHandshakeEnded => self.handshakes -= 1,
            Notice::Opened { link, stream, bulk: BulkConnection { socket, relay } } => {
                self.input(Input::DataPath { from: link.peer, relay });
                self.receive_tcp(link, stream, socket.into());
            }
            Notice::Started { link, datum } => {
                // A datum that the peer must not send ends its connection once it has arrived.
                if self.is_up(link) && self.check_sender(link.peer, datum).is_ok() {
                    self.input(Input::DatumBegun { from: link.peer, datum });
                }
            }
            Notice::Arrived { link, stream, serial, cargo, payload, took_ns } => {
                self.arrived(link, cargo, payload, took_ns);
                self.taken(link, stream, serial);
            }
            Notice::Discarded { link, stream, serial, cargo, no_memory, why } => {
                if let (true, Cargo::Datum { datum, .. }) = (self.is_up(link), cargo) {
                    self.input(Input::DatumBroken { from: link.peer, datum, no_memory, why });
                }
                self.taken(link, stream, serial);
            }
            Notice::StreamEnded { link, stream, serial, end } => self.stream_ended(link, stream, serial, end),
            Notice::SendFailed { link, datum, why } => self.aside_on(link, WorldMessage::Broken { datum, why }),
            Notice::RequestStream { link, stream } => self.aside_on(link, WorldMessage::OpenBulk { stream }),
            Notice::Released { .. }
            | Notice::OnDisk { .. }
            | Notice::Resolved { .. }
            | Notice::Relayed { .. }
            | Notice::RelayedPeer { .. }
            | Notice::Registration { .. }
            | Notice::Speed { .. }
            | Notice::Mapped { .. }
            | Notice::RevocationsChanged
            | Notice::MadeDurable { .. }
            | Notice::DurableSynced { .. }
            | Notice::Stored { .. }
            | Notice::Loaded { .. } => {
                unreachable!("the node's core takes these itself")
            }
        }
    }

    /// Handles a message of a peer's world.
    pub(super) fn on_world_message(&mut self, from: NodeId, aside: WorldMessage) -> Result<(), String> {
        let Some(peer) = self.peers.get_mut(&from) else { return Ok(()) };
        match aside {
            WorldMessage::OpenBulk { stream } if !peer.may_open(stream) => {
                return Err(format!("it requested bulk stream {stream}, but at most {STREAMS_MAX} may be open"));
            }
            WorldMessage::OpenBulk { stream } => {
                peer.incoming.insert(stream, Incoming { closer: None, acknowledged: 0 });
                let (link, address, pass) = (peer.link, peer.hello.address.clone(), peer.pass.clone());
                self.open_bulk(link, address, pass, stream);
            }
            WorldMessage::PartiallyHeld { datum, bytes } => {
                if peer.bytes_held.len() < PARTIALLY_HELD_MAX || peer.bytes_held.contains_key(&datum) {
                    peer.bytes_held.insert(datum, bytes);
                }
            }
            WorldMessage::Acknowledged { stream, serial } => {
                if let Some(outgoing) = peer.outgoing.of(stream) {
                    outgoing.acknowledged(stream, serial);
                }
            }
            WorldMessage::StreamEnded { stream, serial } => {
                let lost =
                    peer.outgoing.of(stream).map_or(Vec::new(), |outgoing| outgoing.stream_ended(stream, serial));
                for datum in lost {
                    self.aside(from, WorldMessage::Broken { datum, why: "the bulk connection broke".into() });
                }
            }
            WorldMessage::Released { retired, serials } => {
                peer.outgoing.all().for_each(|outgoing| outgoing.released(&serials, retired));
            }
            WorldMessage::Broken { datum, why } => {
                self.input(Input::DatumBroken { from, datum, no_memory: false, why })
            }
            WorldMessage::Stored { .. }
            | WorldMessage::Refused { .. }
            | WorldMessage::RevocationsKnown { .. }
            | WorldMessage::Revocations { .. } => unreachable!("the node's core takes it itself"),
            WorldMessage::Probe { bytes } => self.input(Input::ProbeArrived { from, size_bytes: bytes.len() as u64 }),
        }
        Ok(())
    }

    /// Takes over a bulk connection that a peer has dialled.
    pub(super) fn take_bulk(&mut self, bulk: BulkConnection, hello: Hello, purpose: Purpose) {
        let BulkConnection { mut socket, relay } = bulk;
        let Some(peer) = self.peers.get_mut(&hello.node) else { return };
        if let Err(error) = prepare_blocking(socket.get()) {
            let link = peer.link;
            self.log(warning("a bulk connection cannot be used").peer(&hello.name).why(error));
            return self.stream_ended(link, hello.stream, 0, StreamOutcome::Ended);
        }
        socket.set_blocking();
        if purpose == Purpose::BulkReceive {
            if let Some(outgoing) = peer.outgoing.of(hello.stream) {
                outgoing.opened(hello.stream, socket);
            }
            return;
        }
        let link = peer.link;
        if let Some(stripes) = peer.add_stripe(hello.stream, hello.stripe, socket) {
            self.input(Input::DataPath { from: link.peer, relay });
            self.receive_tcp(link, hello.stream, stripes);
        }
    }

    /// Dials a bulk connection that the peer asked for.
    fn open_bulk(&mut self, link: Link, address: String, pass: Pass, stream: u64) {
        let (inbox, credentials, mut own) = (self.inbox.clone(), self.credentials.clone(), self.own.clone());
        let unreachable = self.unreachable.clone();
        (own.purpose, own.stream) = (Purpose::BulkReceive, stream);
        let open = move || {
            let until = Instant::now() + Duration::from_nanos(DIAL_NS_MAX + HANDSHAKE_NS_MAX);
            let to = Destination { peer: link.peer, address: &address, paths: Paths::All, has_alternative: false };
            inbox.post(match dial_bulk(to, (&credentials, &unreachable), &pass, own, until, |_| 1) {
                Ok((bulk, _)) => Notice::Opened { link, stream, bulk },
                Err(_) => Notice::StreamEnded { link, stream, serial: 0, end: StreamOutcome::Ended },
            });
        };
        let thread = thread::Builder::new().name("open bulk".into()).stack_size(STACK_BYTES * 4);
        if let Err(error) = self.inbox.threads.spawn(thread, open) {
            self.log(warning("cannot start a thread to open a bulk connection").why(error));
            self.stream_ended(link, stream, 0, StreamOutcome::Ended);
        }
    }

    /// Starts receiving on a stream that is in the peer's list.
    fn receive_tcp(&mut self, link: Link, stream: u64, stripes: Stripes) {
        if !self.is_up(link) {
            return;
        }
        let receiver = self.receiver(link, stream);
        let started = stripes.handles().and_then(|closer| {
            let thread = thread::Builder::new().name(format!("from {}", link.peer)).stack_size(STACK_BYTES);
            self.inbox.threads.spawn(thread, move || receiver.run_tcp(stripes)).map(|()| closer)
        });
        match (started, self.peers.get_mut(&link.peer).and_then(|peer| peer.incoming.get_mut(&stream))) {
            (Ok(closer), Some(incoming)) => incoming.closer = Some(Closer::Tcp(closer)),
            (Ok(closer), None) => Closer::Tcp(closer).close(),
            (Err(error), _) => {
                self.log(warning("cannot start a thread to receive from a peer").peer(link.peer).why(error));
                self.stream_ended(link, stream, 0, StreamOutcome::Ended);
            }
        }
    }

    fn receiver(&self, link: Link, stream: u64) -> Receiver {
        let (inbox, store) = (self.inbox.clone(), self.store.clone());
        let peer = self.peers.get(&link.peer);
        let passes_on_from = peer.map(|peer| peer.hello.role).filter(|_| self.own.role == Role::Server);
        let wire_version = peer.map_or(WireVersion::CURRENT, |peer| peer.wire_version);
        Receiver {
            link,
            stream,
            inbox,
            store,
            datum_bytes_max: self.datum_bytes_max,
            forwards_from: passes_on_from,
            wire_version,
        }
    }

    /// Checks whether a peer may send this datum.
    ///
    /// # Errors
    /// The reason why not; the caller then closes the peer's connection.
    pub(super) fn check_sender(&self, peer: NodeId, datum: DatumId) -> Result<(), String> {
        match self.peers.get(&peer).is_none_or(|known| known.hello.role.may_send(peer, datum)) {
            true => Ok(()),
            false => Err(format!("it sent {datum}, which is another client's")),
        }
    }

    // ---- updates from streams

    fn arrived(&mut self, link: Link, cargo: Cargo, payload: Payload, took_ns: u64) {
        cargo.datum().iter().for_each(|datum| self.store.end_incoming(datum, |coming| coming.is_of(&payload)));
        if !self.is_up(link) {
            return;
        }
        match cargo {
            Cargo::Datum { datum, meta } => {
                if let Err(why) = self.check_sender(link.peer, datum) {
                    return self.news.push_back(StreamUpdate::Lose(link, why));
                }
                self.store.put(datum, meta.clone(), payload);
                self.input(Input::DatumArrived { from: link.peer, datum, meta, duration_ns: took_ns });
            }
            Cargo::Probe => self.input(Input::ProbeArrived { from: link.peer, size_bytes: payload.size_bytes() }),
        }
    }

    fn taken(&mut self, link: Link, stream: u64, serial: u64) {
        if !self.is_up(link) {
            return;
        }
        let peer = self.peers.get_mut(&link.peer);
        let incoming = peer.and_then(|peer| {
            peer.changed_in_a_row = 0;
            peer.incoming.get_mut(&stream)
        });
        if let Some(incoming) = incoming.filter(|incoming| serial - incoming.acknowledged >= ACKNOWLEDGE_EVERY) {
            incoming.acknowledged = serial;
            self.aside(link.peer, WorldMessage::Acknowledged { stream, serial });
        }
    }

    fn stream_ended(&mut self, link: Link, stream: u64, serial: u64, end: StreamOutcome) {
        if !self.is_up(link) {
            return;
        }
        self.peers.get_mut(&link.peer).expect("it is up").incoming.remove(&stream);
        match end {
            StreamOutcome::Fault(fault) => return self.news.push_back(StreamUpdate::Lose(link, fault)),
            StreamOutcome::Corrupted(part) => self.on_corrupted(link, part),
            StreamOutcome::Ended => {}
        }
        self.aside(link.peer, WorldMessage::StreamEnded { stream, serial });
    }

    /// Handles received bytes that differ from what the peer sent: its stream ends here.
    fn on_corrupted(&mut self, link: Link, part: Option<CorruptedPart>) {
        let peer = self.peers.get_mut(&link.peer).expect("its stream has ended");
        peer.changed_in_a_row += 1;
        let (name, times) = (peer.hello.name.clone(), peer.changed_in_a_row);
        let Some(CorruptedPart { datum, from_byte, .. }) = part else {
            return self.on_corrupted_again(link, times, warning(CORRUPTED).peer(name));
        };
        let why =
            format!("{datum} was corrupted in transit: its bytes from {from_byte} on are not those that '{name}' sent");
        let from = link.peer;
        self.input(Input::DatumBroken { from, datum, no_memory: false, why: why.clone() });
        self.on_corrupted_again(link, times, warning(CORRUPTED).peer(name).why(why));
    }

    fn on_corrupted_again(&mut self, link: Link, times: u32, line: LogLine) {
        self.log(line);
        if times >= CORRUPTED_IN_A_ROW_MAX {
            self.news.push_back(StreamUpdate::Lose(link, format!("{CORRUPTED} ({times} times in a row)")));
        }
    }

    /// Reports whether exactly this connection to the peer is still up.
    pub(super) fn is_up(&self, link: Link) -> bool {
        self.peers.get(&link.peer).is_some_and(|peer| peer.link == link)
    }

    fn aside_on(&mut self, link: Link, aside: WorldMessage) {
        if self.is_up(link) {
            self.aside(link.peer, aside);
        }
    }

    fn aside(&mut self, to: NodeId, aside: WorldMessage) {
        self.news.push_back(StreamUpdate::Aside(to, aside));
    }

    fn input(&mut self, input: Input) {
        self.news.push_back(StreamUpdate::Input(input));
    }

    fn log(&mut self, line: LogLine) {
        self.news.push_back(StreamUpdate::Log(line));
    }
}
