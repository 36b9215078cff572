//! The inside of a node: its state machine and the sub-machines of its world, under one lock. Events become inputs of
//! the state machine; its effects are passed to the part that performs them.
//!
//! ```text
//!            inputs                 effects
//!  pending ──────────▶ machine ──────────────▶ contacts (control connections)
//!     ▲                                        streams  (bulk)
//!     └──────── updates of each part ◀──────── workers  (slots), timers, mappings
//! ```
//! The parts do not know each other: each reports updates, which this file forwards (`forward_updates`).
//!
//! **Invariants:** an input that results from performing an effect waits in `pending` until the preceding effects are
//! performed, so the state machine is never entered recursively; frames queued in a turn are written at its end
//! (`flush`); nothing here blocks or touches bulk bytes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gridloom_base::dial::ConnectionFault;
use gridloom_base::limits::EAGER_BYTES_MAX;
use gridloom_base::{DatumId, Level, Machine, Meta, NodeId, Program, Time};
use gridloom_channel::frame::{self, DataHeader};
use gridloom_channel::{Kind, ReceiveBuffer};
use gridloom_core::node::message::{AuditEvent, AuditRecord, DataMessage, Message};
use gridloom_core::node::{Category, Effect, Event, Input, LogLine, Role};
use mio::event::Event as Readiness;
use mio::{Events, Token};

use super::contact::Stage;
use super::contacts::{self, Connections, READS_PER_LONG, READS_PER_TURN};
use super::mappings::Mappings;
use super::revocations::RevocationExchange;
use super::streams::{self, Streams};
use super::timers::{Clock, Timers};
use super::workers::Workers;
use crate::durable::Writer;
use crate::log::{warning, world_line_for};
use crate::payload::Payload;
use crate::storage::{Files, Stored};
use crate::store::Store;
use crate::transport::notice::{Inbox, Link, Notice};
use crate::transport::relay::registration::Registrations;
use crate::transport::{REFUSAL_CHARS_MAX, WorldMessage};

pub(crate) const WAKER: Token = Token(0);
pub(crate) const LISTENER: Token = Token(1);
pub(crate) const LOCAL_LISTENER: Token = Token(2);
/// Tokens from this one on belong to workers.
pub(crate) const WORKERS: usize = 1 << 62;

/// Any state machine that implements the node protocol.
pub type BoxMachine = Box<dyn Machine<Input = Input, Effect = Effect> + Send>;

/// The state of a node.
pub(crate) struct Core {
    pub(super) name: String,
    pub(super) machine: BoxMachine,
    pub(super) clock: Clock,
    pub(super) inbox: Arc<Inbox>,
    pub(super) store: Arc<Store>,
    pub(super) contacts: Connections,
    pub(super) streams: Streams,
    pub(super) workers: Workers,
    pub(super) mappings: Mappings,
    pub(super) revocations: RevocationExchange,
    pub(super) durable: Writer,
    /// Files in the storage that servers share.
    pub(super) files: Files,
    /// Registrations with relays.
    pub(super) relays: Registrations,
    pub(super) timers: Timers,
    pub(super) pending: VecDeque<Input>,
    pub(super) effects: Vec<Effect>,
    pub(super) events: VecDeque<Event>,
    pub(super) exit: Option<String>,
}

impl Core {
    // ---- the machine

    /// Passes one input to the state machine and performs all its consequences.
    pub(crate) fn input(&mut self, input: Input) {
        self.pending.push_back(input);
        self.process_pending();
    }

    /// Passes all pending inputs to the state machine.
    fn process_pending(&mut self) {
        self.forward_updates();
        while let Some(input) = self.pending.pop_front() {
            if self.exit.is_some() {
                return self.pending.clear();
            }
            if let Some(line) = world_line_for(&input) {
                self.log(line);
            }
            let mut effects = std::mem::take(&mut self.effects);
            self.machine.handle(self.clock.now(), input, &mut effects);
            for effect in effects.drain(..) {
                self.perform(effect);
                self.forward_updates();
            }
            self.effects = effects;
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Dial { address } => self.contacts.dial(address, self.clock.now()),
            Effect::Disconnect { peer } => self.contacts.disconnect(peer),
            Effect::Send { to, message: Message::Data(message @ DataMessage::Fetch { datum, .. }) } => {
                if let Some(bytes) = self.store.partials().bytes_of(datum) {
                    self.send_to_world(to, &WorldMessage::PartiallyHeld { datum, bytes });
                }
                self.contacts.queue(to, |out| out.message(Kind::Message, &Message::Data(message)));
            }
            Effect::Send { to, message } => self.contacts.queue(to, |out| out.message(Kind::Message, &message)),
            Effect::SendDatum { to, datum } => self.send_datum(to, datum),
            Effect::SendByStorage { to, datum } => self.store_datum(to, datum),
            Effect::SendProbe { to, size_bytes } if size_bytes <= EAGER_BYTES_MAX => {
                self.send_to_world(to, &WorldMessage::Probe { bytes: vec![0; size_bytes as usize] });
            }
            Effect::SendProbe { to, size_bytes } => self.streams.probe(to, size_bytes),
            Effect::DropDatum { datum } => {
                self.store.remove(&datum);
                self.store.partials().forget(datum);
                if datum.slice().is_some() {
                    self.store.forget_slice(datum);
                }
                self.durable.remove(datum);
                self.files.remove(datum);
            }
            Effect::MakeDurable { named } => {
                let datum = named.datum;
                let begun = self.store.get(&datum).is_some_and(|(_, payload)| self.durable.write(*named, payload));
                if !begun {
                    let outcome = Err("this server has no folder for durable data".into());
                    self.pending.push_back(Input::MadeDurable { datum, outcome });
                }
            }
            Effect::UpdateDurable { named } => self.durable.update(*named),
            Effect::MakeTransient { datum } => self.durable.remove(datum),
            Effect::SyncDurable { number } => {
                if !self.durable.sync(number) {
                    self.pending.push_back(Input::DurableSynced { number });
                }
            }
            Effect::LimitDisk { limits } => self.store.limit_disk(&limits),
            Effect::AliasDatum { datum, named } => {
                if let Some((meta, payload)) = self.store.get(&datum) {
                    self.store.put(named, meta, payload);
                }
            }
            Effect::MakePart { datum, from_byte, part, meta } => {
                if let Some((_, whole)) = self.store.get(&datum)
                    && let Some(payload) = whole.part(from_byte, meta.size_bytes())
                {
                    self.store.put(part, meta, payload);
                }
            }
            Effect::JoinSlices { datum, meta } => self.store.join(datum, meta),
            Effect::StartTask { task } => self.pending.extend(self.workers.start(task, &self.store)),
            Effect::StopTask { task } => self.workers.stop(task),
            Effect::WithdrawTask { task } => self.workers.withdraw(task),
            Effect::AnswerTask { task, answer } => self.workers.answer(task, answer),
            Effect::EndObject { object } => self.workers.end_object(object),
            Effect::SetTimer { timer, at } => self.timers.set(timer, at),
            Effect::CancelTimer { timer } => self.timers.cancel(timer),
            Effect::Map { number, job } => {
                let begun = self.mappings.begin(number, job);
                self.pending.extend(begun.err().map(|error| Input::Mapped { number, outcome: Err(error) }));
            }
            Effect::StopMapping { number } => self.mappings.stop(number),
            Effect::MeasureSpeed => {
                if let Err(error) = self.workers.measure_speed(self.inbox.clone()) {
                    let line = LogLine::new(Level::Warning, Category::Worker, "the speed cannot be measured");
                    self.log(line.why(error));
                }
            }
            Effect::Emit(event) => self.events.push_back(event),
            Effect::Exit { why } => self.exit = Some(why),
        }
    }

    /// Forwards the updates of all parts.
    fn forward_updates(&mut self) {
        loop {
            if let Some(news) = self.contacts.take_update() {
                match news {
                    contacts::ConnectionUpdate::Input(input) => {
                        if let Input::PeerUp { role: Role::Client, origin, .. } = &input {
                            self.workers.client_up(origin);
                        }
                        self.pending.push_back(input);
                    }
                    contacts::ConnectionUpdate::Log(line) => self.log(line),
                    contacts::ConnectionUpdate::TurnedAway(line) => self.turned_away(line),
                    contacts::ConnectionUpdate::Up(link, hello, pass, version) => {
                        let is_with = self.revocations.is_with(hello.role);
                        self.streams.peer_up(link, *hello, pass, version);
                        if is_with {
                            let greeting = self.revocations.greeting(link.peer);
                            self.send_to_world(link.peer, &greeting);
                        }
                    }
                    contacts::ConnectionUpdate::Down(link) => {
                        self.revocations.forget(link.peer);
                        self.streams.peer_down(link);
                    }
                    contacts::ConnectionUpdate::Bulk(bulk, hello, purpose) => {
                        self.streams.take_bulk(bulk, *hello, purpose)
                    }
                }
            } else if let Some(news) = self.streams.take_update() {
                match news {
                    streams::StreamUpdate::Input(input) => self.pending.push_back(input),
                    streams::StreamUpdate::Log(line) => self.log(line),
                    streams::StreamUpdate::Aside(to, aside) => self.send_to_world(to, &aside),
                    streams::StreamUpdate::Lose(link, why) => self.contacts.lose_link(link, &why),
                }
            } else {
                return;
            }
        }
    }

    /// Logs and records that a connection was refused. The number of these lines is limited.
    fn turned_away(&mut self, line: LogLine) {
        // Usually the peer has just disconnected.
        if line.level == Level::Debug {
            return self.log(line);
        }
        let (user, host) = Default::default();
        let by = Program { client: NodeId::CATALOG, user, host, name: line.peer.clone().unwrap_or_default() };
        let record = AuditRecord::new(AuditEvent::Connect, by, "").refused(line.why.clone().unwrap_or_default());
        let address = line.address.clone().unwrap_or_default();
        self.events.push_back(Event::Audit(Box::new(AuditRecord { address, ..record })));
        self.log(line);
    }

    pub(crate) fn log(&mut self, line: LogLine) {
        self.events.push_back(Event::Log(line));
    }

    /// Sends a message to the peer's world.
    fn send_to_world(&mut self, to: NodeId, aside: &WorldMessage) {
        self.contacts.queue(to, |out| out.message(Kind::Hello, aside));
    }

    /// Closes the connections to revoked peers, and passes on the new revocations.
    fn on_revocations_changed(&mut self) {
        self.contacts.close_revoked();
        let new = self.revocations.take_new();
        for (peer, role) in self.streams.roles() {
            if self.revocations.is_with(role) {
                new.iter().for_each(|message| self.send_to_world(peer, message));
            }
        }
    }

    /// Stores a large datum in the shared storage for a peer. Small data are sent directly, and data for the same host
    /// are passed in memory.
    fn store_datum(&mut self, to: NodeId, datum: DatumId) {
        let found = self
            .store
            .get(&datum)
            .filter(|(_, payload)| payload.size_bytes() > EAGER_BYTES_MAX && payload.check_intact().is_ok());
        let link = self.streams.link_to(to).filter(|_| !self.streams.shares_memory_with(to));
        let is_begun = found.zip(link).is_some_and(|((_, payload), link)| self.files.write(link, datum, payload));
        if !is_begun {
            self.send_datum(to, datum);
        }
    }

    /// Handles the outcome of storing a datum for a peer: announces the file, or sends the datum over the network.
    fn stored(&mut self, link: Link, datum: DatumId, outcome: Result<[u8; 32], String>) {
        if !self.streams.is_up(link) {
            return;
        }
        match (outcome, self.store.get(&datum)) {
            (Ok(digest), Some((meta, _))) => {
                self.send_to_world(link.peer, &WorldMessage::Stored { datum, meta, digest })
            }
            (Ok(_), None) => self.send_datum(link.peer, datum),
            (Err(why), _) => {
                self.log(
                    warning("a datum cannot be written to the shared storage; it is sent over the network").why(why),
                );
                self.send_datum(link.peer, datum);
            }
        }
    }

    /// Reads a datum that a peer has written to the shared storage.
    fn load(&mut self, from: NodeId, datum: DatumId, meta: Meta, digest: [u8; 32]) -> Result<(), String> {
        self.streams.check_sender(from, datum)?;
        let Some(link) = self.streams.link_to(from) else { return Ok(()) };
        let is_too_large = meta.checked_size_bytes().is_none_or(|bytes| bytes > self.streams.datum_bytes_max());
        if is_too_large || !self.files.read(Stored { link, datum, meta, digest }) {
            let why = "its storage is missing, the datum is too large for it, or too many reads are queued".into();
            self.pending.push_back(Input::DatumBroken { from, datum, no_memory: false, why });
        }
        Ok(())
    }

    fn send_datum(&mut self, to: NodeId, datum: DatumId) {
        if !self.contacts.is_up(to) {
            return;
        }
        match self.store.to_send(&datum) {
            None => match self.store.incoming(&datum) {
                Some((meta, coming)) => self.streams.forward(to, datum, meta, coming),
                None => {
                    let why = format!("{} no longer has it", self.name);
                    self.send_to_world(to, &WorldMessage::Broken { datum, why });
                }
            },
            Some((meta, payload)) if payload.size_bytes() <= EAGER_BYTES_MAX => match payload.read() {
                Ok(bytes) => {
                    let header = DataHeader { datum, meta };
                    self.contacts.queue(to, |out| out.data(&header, &bytes));
                }
                Err(error) => {
                    let why = format!("on server '{}', {error}", self.name);
                    self.send_to_world(to, &WorldMessage::Broken { datum, why });
                }
            },
            Some((meta, payload)) => self.streams.send(to, datum, meta, payload),
        }
    }

    // ---- events

    /// Handles the events of epoll.
    pub(super) fn on_ready(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                WAKER => self.on_notices(),
                LISTENER => self.contacts.accept(self.clock.now()),
                LOCAL_LISTENER => self.streams.accept_local(),
                token if token.0 >= WORKERS => self.workers.on_ready(token.0, &self.store),
                _ => self.connection_ready(event),
            }
            self.process_pending();
        }
        for token in self.contacts.take_unread() {
            self.read(token, true);
            self.process_pending();
        }
        self.fire_timers();
        if cfg!(debug_assertions) {
            self.contacts.check_invariants();
            self.streams.check_invariants(|peer| self.contacts.is_up(peer));
        }
    }

    /// Handles the notices that threads have posted since the last turn.
    fn on_notices(&mut self) {
        let mut released: BTreeMap<(Link, bool), Vec<u64>> = BTreeMap::new();
        for notice in self.inbox.clone().take() {
            match notice {
                Notice::Released { link, serial, retired } => {
                    released.entry((link, retired)).or_default().push(serial);
                }
                Notice::Resolved { dial, addresses } => self.contacts.resolved(dial, addresses, self.clock.now()),
                Notice::Relayed { dial, path, outcome } => {
                    self.contacts.relayed(dial, &path, outcome, self.clock.now());
                }
                Notice::RelayedPeer { stream, relay } => {
                    self.contacts.accept_relayed(stream, relay, self.clock.now());
                }
                Notice::Registration { relay, outcome } => self.on_registration(relay, outcome),
                Notice::Mapped { number, outcome } => {
                    self.mappings.ended(number);
                    self.pending.push_back(Input::Mapped { number, outcome });
                }
                Notice::MadeDurable { datum, outcome } => {
                    self.pending.push_back(Input::MadeDurable { datum, outcome });
                }
                Notice::DurableSynced { number } => self.pending.push_back(Input::DurableSynced { number }),
                Notice::OnDisk { clients } => self.pending.push_back(Input::OnDisk { clients }),
                Notice::Stored { link, datum, outcome } => self.stored(link, datum, outcome),
                Notice::Loaded { link, datum, meta, outcome } if self.streams.is_up(link) => {
                    let from = link.peer;
                    self.pending.push_back(match outcome {
                        Ok(payload) => {
                            self.store.put(datum, meta.clone(), payload);
                            // The transfer time of a storage file does not measure the link between the two nodes.
                            Input::DatumArrived { from, datum, meta, duration_ns: 0 }
                        }
                        Err((no_memory, why)) => Input::DatumBroken { from, datum, no_memory, why },
                    });
                }
                Notice::Loaded { .. } => {}
                Notice::RevocationsChanged => self.on_revocations_changed(),
                Notice::Speed { flops } => self.pending.push_back(Input::SpeedMeasured { flops }),
                notice => self.streams.on_notice(notice),
            }
            self.process_pending();
        }
        for ((link, retired), serials) in released {
            self.streams.released(link, retired, serials);
        }
    }

    /// Logs that this node can be reached through a relay, or no longer.
    fn on_registration(&mut self, relay: String, outcome: Result<(), String>) {
        self.log(match outcome {
            Ok(()) => {
                LogLine::new(Level::Info, Category::Net, "registered with the relay, through which others connect")
                    .address(relay)
            }
            Err(why) => warning("not registered with the relay; trying again").address(relay).why(why),
        });
    }

    fn connection_ready(&mut self, event: &Readiness) {
        if self.contacts.on_ready(event) {
            self.read(event.token().0, event.is_read_closed() || event.is_error());
        }
    }

    /// Reads a connection and handles the received frames.
    fn read(&mut self, token: usize, closing: bool) {
        if self.contacts.is_throttled(token) {
            let Some(mut inbound) = self.contacts.take_unhandled(token) else { return };
            let must_wait = self.handle_frames(token, &mut inbound);
            self.contacts.return_unhandled(token, inbound);
            if must_wait {
                return;
            }
        }
        let mut reads = 0;
        while reads < READS_PER_TURN {
            let Some((filled, mut inbound)) = self.contacts.read(token) else { return };
            reads += if inbound.is_long() { READS_PER_LONG } else { 1 };
            let must_wait = self.handle_frames(token, &mut inbound);
            let has_more = self.contacts.put_back(token, inbound, filled, closing, self.clock.now());
            if self.exit.is_some() || !has_more || must_wait {
                return;
            }
        }
        self.contacts.read_later(token);
    }

    /// Handles the completely received frames. Either side may end the connection meanwhile. Returns true if frames
    /// must wait, because the peer does not read.
    fn handle_frames(&mut self, token: usize, inbound: &mut ReceiveBuffer) -> bool {
        while let Some(stage) = self.contacts.stage(token) {
            if self.contacts.must_wait(token, self.clock.now()) {
                return true;
            }
            let bulk = match self.contacts.next(inbound, stage) {
                Ok(None) => return false,
                Ok(Some((kind, body))) => match stage {
                    Stage::Up(peer) => self.on_frame(token, peer, kind, body.bytes()).map(|()| None),
                    Stage::Connecting | Stage::Handshaking => {
                        let (contacts, streams, now) = (&mut self.contacts, &self.streams, self.clock.now());
                        contacts.on_handshake(token, kind, body.bytes(), now, |hello| streams.admits(hello))
                    }
                },
                Err(error) => Err(error.to_string()),
            };
            match bulk {
                Ok(None) => {}
                Ok(Some(_)) if !inbound.is_empty() => {
                    self.contacts.lose(token, "bulk data before the end of the handshake");
                }
                Ok(Some((hello, purpose))) => self.contacts.hand_over(token, hello, purpose),
                Err(why) => self.contacts.refuse(token, ConnectionFault::NotANode, &why),
            }
            self.process_pending();
            if self.exit.is_some() {
                return false;
            }
        }
        false
    }

    fn on_frame(&mut self, token: usize, from: NodeId, kind: Kind, body: &[u8]) -> Result<(), String> {
        let wire_version = self.contacts.wire_version_of(from);
        match kind {
            Kind::Message => {
                let message = frame::parse(body, wire_version).map_err(|error| error.to_string())?;
                self.pending.push_back(Input::Received { from, message });
            }
            Kind::Data => {
                let (header, payload) = frame::parse_data(body, wire_version).map_err(|error| error.to_string())?;
                if payload.len() as u64 > EAGER_BYTES_MAX {
                    return Err(format!("{} bytes of data on the control connection", payload.len()));
                }
                self.streams.check_sender(from, header.datum)?;
                self.store.put(header.datum, header.meta.clone(), Payload::copied(payload));
                let DataHeader { datum, meta } = header;
                self.pending.push_back(Input::DatumArrived { from, datum, meta, duration_ns: 0 });
            }
            Kind::Hello => match frame::parse(body, wire_version).map_err(|error| error.to_string())? {
                WorldMessage::Stored { datum, meta, digest } => self.load(from, datum, meta, digest)?,
                WorldMessage::Refused { fault, why } => {
                    let why: String = why.chars().take(REFUSAL_CHARS_MAX).collect();
                    match fault {
                        ConnectionFault::Revoked => self.contacts.lose_as(token, fault, &why),
                        _ => self.contacts.lose(token, &format!("the peer rejected a message of this node: {why}")),
                    }
                }
                WorldMessage::RevocationsKnown { digest } => {
                    let own = self.revocations.answer(from, digest)?;
                    own.iter().for_each(|message| self.send_to_world(from, message));
                }
                WorldMessage::Revocations { lines } => self.revocations.add(&lines)?,
                aside => self.streams.on_world_message(from, aside)?,
            },
            Kind::ProcessMessage => unreachable!("a control connection admits no messages of processes"),
        }
        Ok(())
    }

    // ---- turns

    /// Ends a turn: runs the slots, writes everything queued, and repeats until nothing more results from it.
    pub(crate) fn flush(&mut self) {
        loop {
            if let Err(error) = self.workers.turn(&mut self.pending) {
                self.log(LogLine::new(Level::Error, Category::Worker, "a worker cannot be watched").why(error));
            }
            self.contacts.flush();
            self.forward_updates();
            if self.pending.is_empty() || self.exit.is_some() {
                return;
            }
            self.process_pending();
        }
    }

    /// Returns the time by which the loop must turn even if nothing arrives.
    pub(crate) fn wake_at(&self) -> Time {
        let due = || {
            let due = self.contacts.due().into_iter().chain(self.workers.wake_at()).min();
            due.map_or(Time::NEVER, |due| self.clock.at(due))
        };
        if self.pending.is_empty() { self.timers.next().min(self.contacts.wake_at()).min(due()) } else { Time::ZERO }
    }

    /// Fires the timers that are due.
    fn fire_timers(&mut self) {
        let now = self.clock.now();
        while let Some(timer) = self.timers.pop_due(now) {
            self.input(Input::Timer(timer));
        }
        self.contacts.check(now);
        self.store.partials().forget_old();
        self.process_pending();
    }

    /// Ends everything. Queued frames are written as far as the sockets accept them.
    pub(crate) fn shut_down(&mut self) {
        self.flush();
        self.streams.shut_down();
        self.contacts.shut_down();
        self.workers.shut_down();
        self.mappings.shut_down();
        self.files.shut_down();
        self.relays = Registrations::default();
    }
}
