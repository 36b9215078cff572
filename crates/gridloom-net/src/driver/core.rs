//! The inside of a node: its machine, its connections, its timers and its slots, under one lock. What happens becomes
//! inputs; what the machine wants is performed here.
//!
//! **Invariants:** an input that follows from performing an effect waits in `pending` until the effects before it are
//! performed, so the machine is never entered twice; frames queued in a turn are written at its end (`flush`); nothing
//! here blocks or touches bytes of bulk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::{io, thread};

use gridloom_core::base::limits::EAGER_BYTES_MAX;
use gridloom_core::base::{DatumId, Machine, NodeId, TaskError, Time};
use gridloom_core::graph::Task;
use gridloom_core::node::{Effect, Event, Input, Message};
use gridloom_core::wire::frame::{DataHeader, FrameError, Kind};
use mio::{Interest, Registry, Token};

use super::timers::{Clock, Timers};
use crate::identity::Secret;
use crate::jobs::{JobEvent, Jobs, WorkerToken, measure_speed};
use crate::store::Store;
use crate::transport::connection::Connection;
use crate::transport::handshake::{Handshake, Hello};
use crate::transport::notice::{Inbox, Link, Notice};
use crate::transport::outgoing::{Closer, Outgoing, Route, STACK_BYTES};
use crate::transport::stream::Listener;
use crate::transport::{Aside, Cargo};

pub(crate) const WAKER: Token = Token(0);
pub(crate) const LISTENER: Token = Token(1);
pub(crate) const LOCAL_LISTENER: Token = Token(2);
pub(crate) const CONNECTIONS: usize = 3;
/// Tokens from here on are those of workers.
pub(crate) const WORKERS: usize = 1 << 62;

/// Any machine that speaks the protocol of nodes.
pub type BoxMachine = Box<dyn Machine<Input = Input, Effect = Effect> + Send>;

/// The state of a node.
pub(crate) struct Core {
    pub(super) own: Hello,
    pub(super) secret: Secret,
    pub(super) machine: BoxMachine,
    pub(super) clock: Clock,
    pub(super) timers: Timers,
    pub(super) registry: Registry,
    pub(super) inbox: Arc<Inbox>,
    pub(super) store: Arc<Store>,
    pub(super) datum_bytes_max: u64,
    pub(super) jobs: Option<Jobs>,
    pub(super) listener: Option<Listener>,
    pub(super) local_listener: Option<UnixListener>,
    pub(super) connections: BTreeMap<usize, Contact>,
    pub(super) next_token: usize,
    pub(super) peers: BTreeMap<NodeId, Peer>,
    pub(super) dials: BTreeMap<u64, Dial>,
    pub(super) next_dial: u64,
    /// How many times as long as they need calls take here.
    pub(super) slowdown: f64,
    /// Speed of one slot, if it was told.
    pub(super) speed_flops: Option<f64>,
    /// Handshakes on local sockets, each on a thread.
    pub(super) local_shaking: usize,
    /// Dials that ended in "duplicate" before the other connection stood, by node and address: their deadlines.
    pub(super) shadowed: BTreeMap<(NodeId, String), Time>,
    /// When the world itself has to look again: handshakes and dials that last too long, a listener that was full.
    pub(super) check_at: Time,
    pub(super) accept_again: bool,
    /// Connections with frames to write.
    pub(super) dirty: BTreeSet<usize>,
    /// Connections that have more to read.
    pub(super) unread: BTreeSet<usize>,
    pub(super) pending: VecDeque<Input>,
    pub(super) effects: Vec<Effect>,
    pub(super) events: VecDeque<Event>,
    pub(super) exit: Option<String>,
}

/// A connection and how far it is.
pub(super) struct Contact {
    pub(super) connection: Connection,
    pub(super) stage: ContactStage,
    /// While it is in the handshake and no frame is being handled.
    pub(super) handshake: Option<Box<Handshake>>,
    pub(super) dial: Option<u64>,
    pub(super) deadline: Time,
    /// Whether epoll tells when the socket takes more.
    pub(super) watches_writing: bool,
}

impl Contact {
    /// Watches for room to write only while something waits for it: a peer that reads would wake this node each time.
    fn watch(&mut self, registry: &Registry, token: usize) -> io::Result<()> {
        let blocked = self.connection.is_blocked();
        if blocked == self.watches_writing {
            return Ok(());
        }
        self.watches_writing = blocked;
        let interests = if blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        registry.reregister(self.connection.stream(), Token(token), interests)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ContactStage {
    /// The socket is not connected yet.
    Connecting,
    /// In the handshake.
    Shaking,
    /// A control connection to that peer.
    Up(NodeId),
}

/// A peer whose control connection stands.
pub(super) struct Peer {
    pub(super) token: usize,
    pub(super) since: Time,
    pub(super) link: Link,
    pub(super) hello: Hello,
    pub(super) outgoing: Option<Outgoing>,
    /// Streams on which it sends.
    pub(super) incoming: BTreeMap<u64, Incoming>,
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

/// A dial on its way.
pub(super) struct Dial {
    pub(super) address: String,
    /// Addresses not tried yet.
    pub(super) left: VecDeque<SocketAddr>,
    pub(super) began: Time,
    pub(super) deadline: Time,
}

impl Core {
    /// Hands the machine one input and performs all that follows from it.
    pub(crate) fn input(&mut self, input: Input) {
        self.pending.push_back(input);
        self.settle();
    }

    /// Hands over what is pending.
    pub(super) fn settle(&mut self) {
        while let Some(input) = self.pending.pop_front() {
            if self.exit.is_some() {
                return self.pending.clear();
            }
            let mut effects = std::mem::take(&mut self.effects);
            self.machine.handle(self.clock.now(), input, &mut effects);
            for effect in effects.drain(..) {
                self.perform(effect);
            }
            self.effects = effects;
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Dial { address } => self.dial(address),
            Effect::HangUp { peer } => self.hang_up(peer),
            Effect::Send { to, message } => self.send(to, &message),
            Effect::SendDatum { to, datum } => self.send_datum(to, datum),
            Effect::SendProbe { to, size_bytes } => self.send_probe(to, size_bytes),
            Effect::DropDatum { datum } => drop(self.store.remove(&datum)),
            Effect::StartTask { task } => self.start_task(task),
            Effect::StopTask { task } => {
                if let Some(jobs) = &mut self.jobs {
                    jobs.stop(task);
                }
            }
            Effect::AnswerTask { task, answer } => {
                if let Some(jobs) = &mut self.jobs {
                    jobs.answer(task, answer);
                }
            }
            Effect::EndObject { object } => {
                if let Some(jobs) = &mut self.jobs {
                    jobs.end_object(object);
                }
            }
            Effect::SetTimer { timer, at } => self.timers.set(timer, at),
            Effect::CancelTimer { timer } => self.timers.cancel(timer),
            Effect::MeasureSpeed => self.measure_speed(),
            Effect::Emit(event) => self.events.push_back(event),
            Effect::Exit { why } => self.exit = Some(why),
        }
    }

    /// A line for the log.
    pub(super) fn log(&mut self, line: String) {
        self.events.push_back(Event::Log(line));
    }

    fn send(&mut self, to: NodeId, message: &Message) {
        self.queue(to, |connection| connection.queue(Kind::Message, message));
    }

    /// Says something to the peer's world.
    pub(super) fn aside(&mut self, to: NodeId, aside: &Aside) {
        self.queue(to, |connection| connection.queue(Kind::Hello, aside));
    }

    fn queue(&mut self, to: NodeId, write: impl FnOnce(&mut Connection) -> Result<(), FrameError>) {
        let Some(token) = self.peers.get(&to).map(|peer| peer.token) else { return };
        let contact = self.connections.get_mut(&token).expect("a peer's connection is kept while it is up");
        match write(&mut contact.connection) {
            Ok(()) => {
                self.dirty.insert(token);
            }
            // What was to be said cannot be: the peer would wait for it for ever.
            Err(error) => self.lose(token, &format!("a message to it cannot be sent: {error}")),
        }
    }

    fn send_datum(&mut self, to: NodeId, datum: DatumId) {
        if !self.peers.contains_key(&to) {
            return;
        }
        let Some((meta, payload)) = self.store.get(&datum) else {
            let why = format!("{} no longer has it", self.own.name);
            return self.aside(to, &Aside::Broken { datum, why });
        };
        if payload.size_bytes() <= EAGER_BYTES_MAX {
            let header = DataHeader { datum, meta };
            self.queue(to, |connection| connection.queue_data(&header, payload.bytes()));
        } else if let Err(error) =
            self.outgoing(to).map(|outgoing| outgoing.send(Cargo::Datum { datum, meta }, payload))
        {
            self.aside(to, &Aside::Broken { datum, why: format!("no thread to send it: {error}") });
        }
    }

    fn send_probe(&mut self, to: NodeId, size_bytes: u64) {
        if !self.peers.contains_key(&to) {
            return;
        }
        if size_bytes <= EAGER_BYTES_MAX {
            self.aside(to, &Aside::Probe { bytes: vec![0; size_bytes as usize] });
        } else if let Err(error) = self.outgoing(to).map(|outgoing| outgoing.probe(size_bytes)) {
            self.log(format!("no probe to {to}: {error}"));
        }
    }

    fn outgoing(&mut self, to: NodeId) -> io::Result<&Outgoing> {
        let peer = self.peers.get_mut(&to).expect("the caller has seen that the peer is up");
        if peer.outgoing.is_none() {
            let route = Route { own: self.own.clone(), secret: self.secret.clone(), peer: peer.hello.clone() };
            peer.outgoing = Some(Outgoing::start(route, peer.link, self.inbox.clone(), self.store.clone())?);
        }
        Ok(peer.outgoing.as_ref().expect("made above"))
    }

    fn start_task(&mut self, task: Arc<Task>) {
        match &mut self.jobs {
            Some(jobs) => jobs.start(task, &self.store),
            None => {
                let (server, function) = (self.own.name.clone(), task.function.clone());
                let error = TaskError::CannotRun { server, function, why: "it has no slots".into() };
                self.pending.push_back(Input::TaskEnded { task: task.id, outcome: Err(error), run_ns: 0 });
            }
        }
    }

    /// A worker's descriptor is ready.
    pub(super) fn worker_ready(&mut self, token: usize) {
        if let Some(jobs) = &mut self.jobs {
            jobs.ready(WorkerToken((token - WORKERS) as u64), &self.store);
        }
    }

    /// Writes what the slots have batched, watches what they want watched, and hands over what ended.
    fn turn_jobs(&mut self) {
        let Some(jobs) = &mut self.jobs else { return };
        jobs.flush();
        // Its descriptors are level-triggered, beside mio's own, which are not: mio takes the data of an event of its
        // epoll for a token, whoever registered it.
        if let Err(error) = jobs.register_with(self.registry.as_fd(), |token| WORKERS as u64 + token.0) {
            self.events.push_back(Event::Log(format!("a worker cannot be watched: {error}")));
        }
        self.pending.extend(jobs.take_events().into_iter().map(|event| match event {
            JobEvent::Ended { task, outcome, run_ns } => Input::TaskEnded { task, outcome, run_ns },
            JobEvent::CallsBack(call) => Input::CallsBack(call),
        }));
    }

    fn measure_speed(&mut self) {
        let inbox = self.inbox.clone();
        if let Some(flops) = self.speed_flops {
            inbox.post(Notice::Speed { flops });
            return;
        }
        let slowdown = self.slowdown;
        let measure = move || inbox.post(Notice::Speed { flops: measure_speed() / slowdown });
        let thread = thread::Builder::new().name("speed".into()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(measure) {
            self.log(format!("the speed cannot be measured: {error}"));
        }
    }

    /// Ends a turn: slots, then everything queued is written, and whatever follows from that, until nothing does.
    pub(crate) fn flush(&mut self) {
        loop {
            self.turn_jobs();
            while let Some(token) = self.dirty.pop_first() {
                let Some(contact) = self.connections.get_mut(&token) else { continue };
                if matches!(contact.stage, ContactStage::Connecting) {
                    continue;
                }
                let flushed = contact.connection.flush().and_then(|()| contact.watch(&self.registry, token));
                if let Err(error) = flushed {
                    self.lose(token, &error.to_string());
                }
            }
            if self.pending.is_empty() || self.exit.is_some() {
                return;
            }
            self.settle();
        }
    }

    /// When the loop has to turn even if nothing comes.
    pub(crate) fn wake_at(&self) -> Time {
        match self.unread.is_empty() && self.pending.is_empty() {
            true => self.timers.next().min(self.check_at),
            false => Time::ZERO,
        }
    }

    /// Fires what is due.
    pub(super) fn fire_timers(&mut self) {
        let now = self.clock.now();
        while let Some(timer) = self.timers.pop_due(now) {
            self.input(Input::Timer(timer));
        }
        if now >= self.check_at {
            self.check(now);
        }
    }

    /// Ends everything: what is queued is written as far as the sockets take it.
    pub(crate) fn shut_down(&mut self) {
        self.flush();
        self.peers.clear();
        self.connections.clear();
        self.dials.clear();
        self.listener = None;
        self.local_listener = None;
        if let Some(jobs) = self.jobs.take() {
            jobs.shutdown();
        }
    }
}
