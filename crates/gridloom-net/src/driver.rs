//! A node of a grid in this process: a machine, and the world that keeps `node::protocol`'s contract for it.
//!
//! **Who drives.** One thread at a time is the *leader*: it waits in epoll, without the lock, and then handles what
//! came, with it. A server's or agent's main thread leads from [`NetNode::run`]. On a client the thread that waits for
//! an event leads, so a call takes no change of thread. While no thread waits, a thread in the background leads; it
//! steps aside when a waiter comes, and takes over again only when for [`TAKE_OVER`] nobody waited, so that a program
//! that calls in a loop does not pay for it.
//!
//! ```text
//!  command ─▶ machine ─▶ effects: written ─▶ (returns)
//!  wait ─▶ leader? ── yes: epoll ─▶ inputs ─▶ machine ─▶ effects, events ─▶ is it what I wait for? ─▶ (returns)
//!              └── no: sleeps until the leader has events or leaves
//! ```
//! **Invariant:** machine, connections, timers and slots are one state under one lock; it is not held across anything
//! that can block.

mod contacts;
mod core;
mod speed;
mod streams;
mod timers;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gridloom_core::base::limits::STORE_BYTES_DEFAULT;
use gridloom_core::base::{NodeId, Time};
use gridloom_core::node::{Command, Event, Input, Node, Role};
use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Waker};

use self::core::{CONNECTIONS, Core, LISTENER, LOCAL_LISTENER, WAKER, WORKERS};
use self::timers::{Clock, Timers};
use crate::identity::{HostId, Secret, random_node_id};
use crate::jobs::{Jobs, JobsConfig};
use crate::segment::Pool;
use crate::store::Store;
use crate::transport::handshake::{Hello, Purpose};
use crate::transport::local;
use crate::transport::notice::Inbox;

pub use self::core::BoxMachine;

/// The background leads again when nobody has waited for so long.
const TAKE_OVER: Duration = Duration::from_millis(2);
/// After so many looks at which a waiter led, the background stops looking and asks to be told.
const LOOKS_MAX: u32 = 50;

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Where it listens; `None` for a client, which only dials. Port 0 takes a free one.
    pub listen: Option<SocketAddr>,
    /// Where others shall dial it, if not at the address where it listens.
    pub advertise: Option<String>,
    /// Admits to the grid.
    pub secret: Secret,
    /// Listen where other hosts can reach it, though nothing is encrypted.
    pub allow_remote: bool,
    /// Pass memory to nodes of the same host.
    pub shared_memory: bool,
    /// Its slots, if it has any.
    pub jobs: Option<JobsConfig>,
    /// Memory that is kept warm for reuse.
    pub pool_keep_bytes: u64,
    /// Largest datum that it takes from others.
    pub datum_bytes_max: u64,
}

impl Default for NetConfig {
    /// A client without secret.
    fn default() -> NetConfig {
        NetConfig {
            listen: None,
            advertise: None,
            secret: Secret::none(),
            allow_remote: false,
            shared_memory: true,
            jobs: None,
            pool_keep_bytes: 1 << 30,
            datum_bytes_max: STORE_BYTES_DEFAULT,
        }
    }
}

/// A node of a grid.
pub struct NetNode {
    shared: Arc<Shared>,
    background: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    id: NodeId,
    address: String,
    store: Arc<Store>,
    inbox: Arc<Inbox>,
    state: Mutex<State>,
    /// Waiters that do not lead.
    changed: Condvar,
    /// The thread in the background.
    idle: Condvar,
    /// Used by the leader alone.
    poll: Mutex<(Poll, Events)>,
}

struct State {
    core: Core,
    leader: Leader,
    /// Waiters that sleep.
    followers: usize,
    /// Counts the times a waiter led, so that the background sees whether one did lately.
    led: u64,
    background_asleep: bool,
    /// When the leader that is in epoll turns at the latest; `None` if nobody is.
    polling_until: Option<Time>,
    closed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leader {
    None,
    Waiter,
    Background,
}

impl NetNode {
    /// Starts a node: `make` gets its identifier and the address where it can be dialled (empty if it cannot).
    ///
    /// # Errors
    /// If it cannot listen, or may not where it was told to.
    pub fn start(make: impl FnOnce(NodeId, &str) -> Node, config: NetConfig) -> io::Result<Arc<NetNode>> {
        NetNode::start_with(config, |id, address| {
            let node = make(id, address);
            (node.role(), node.name().to_string(), Box::new(node) as BoxMachine)
        })
    }

    /// Starts a node around any machine; `make` gives its role and name too.
    ///
    /// # Errors
    /// As [`NetNode::start`].
    pub fn start_with(
        config: NetConfig,
        make: impl FnOnce(NodeId, &str) -> (Role, String, BoxMachine),
    ) -> io::Result<Arc<NetNode>> {
        let id = random_node_id()?;
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let inbox = Arc::new(Inbox::new(Waker::new(&registry, WAKER)?));
        let (mut listener, address) = listen(&config)?;
        if let Some(listener) = &mut listener {
            registry.register(listener, LISTENER, Interest::READABLE)?;
        }
        let host = if config.shared_memory { HostId::here().0 } else { String::new() };
        let local_listener = if host.is_empty() { None } else { Some(local::listen(id)?) };
        if let Some(listener) = &local_listener {
            registry.register(&mut SourceFd(&listener.as_raw_fd()), LOCAL_LISTENER, Interest::READABLE)?;
        }
        let (role, name, machine) = make(id, &address);
        let store = Arc::new(Store::new(Pool::new(config.pool_keep_bytes)));
        let own = Hello {
            purpose: Purpose::Control,
            node: id,
            role,
            name,
            address: address.clone(),
            host,
            stream: 0,
            nonce: [0; 32],
            certificates: None,
        };
        let mut core = Core {
            own,
            secret: config.secret,
            machine,
            clock: Clock::new(),
            timers: Timers::default(),
            registry,
            inbox: inbox.clone(),
            store: store.clone(),
            datum_bytes_max: config.datum_bytes_max,
            jobs: config.jobs.map(Jobs::new),
            listener,
            local_listener,
            connections: Default::default(),
            next_token: CONNECTIONS,
            peers: Default::default(),
            dials: Default::default(),
            next_dial: 0,
            local_shaking: 0,
            shadowed: Default::default(),
            check_at: Time::NEVER,
            accept_again: false,
            dirty: Default::default(),
            unread: Default::default(),
            pending: VecDeque::new(),
            effects: Vec::new(),
            events: VecDeque::new(),
            exit: None,
        };
        if let Some(jobs) = &mut core.jobs {
            jobs.prestart();
        }
        core.input(Input::Start);
        core.flush();
        let state = State {
            core,
            leader: Leader::None,
            followers: 0,
            led: 0,
            background_asleep: false,
            polling_until: None,
            closed: false,
        };
        let shared = Arc::new(Shared {
            id,
            address,
            store,
            inbox,
            state: Mutex::new(state),
            changed: Condvar::new(),
            idle: Condvar::new(),
            poll: Mutex::new((poll, Events::with_capacity(256))),
        });
        let background = match role {
            Role::Client => {
                let shared = shared.clone();
                Some(thread::Builder::new().name("gridloom".into()).spawn(move || shared.run_background())?)
            }
            // Their main thread leads all the time.
            Role::Agent | Role::Server => None,
        };
        Ok(Arc::new(NetNode { shared, background: Mutex::new(background) }))
    }

    /// Its identifier.
    pub fn id(&self) -> NodeId {
        self.shared.id
    }

    /// Where it can be dialled, empty if it cannot.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Its data.
    pub fn store(&self) -> &Arc<Store> {
        &self.shared.store
    }

    /// The world's time.
    pub fn now(&self) -> Time {
        self.shared.lock().core.clock.now()
    }

    /// Gives the machine a command. What it sends has been written, as far as the sockets take it, on return.
    pub fn command(&self, command: Command) {
        self.commands([command]);
    }

    /// Gives the machine commands; what they send is written together.
    pub fn commands(&self, commands: impl IntoIterator<Item = Command>) {
        let mut state = self.shared.lock();
        if state.closed {
            return;
        }
        for command in commands {
            state.core.input(Input::Command(command));
        }
        self.shared.finish(&mut state);
        // The leader waits for a later time than the earliest one now, or for the event that has just come.
        let news = state.leader == Leader::Waiter && !state.core.events.is_empty();
        if state.polling_until.is_some_and(|until| state.core.wake_at() < until || news || state.closed) {
            self.shared.inbox.wake();
        }
    }

    /// Waits until `take` finds what it looks for in the queue of events, which it is shown whenever there are new
    /// ones; it removes what it takes. `None` at the deadline, or when the node has ended.
    ///
    /// `take` runs under the node's lock: it must be short and must not call the node.
    pub fn wait<R>(
        &self,
        deadline: Option<Instant>,
        mut take: impl FnMut(&mut VecDeque<Event>) -> Option<R>,
    ) -> Option<R> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        let until = deadline.map_or(Time::NEVER, |deadline| state.core.clock.at(deadline));
        let mut leading = false;
        let taken = loop {
            if let Some(taken) = take(&mut state.core.events) {
                break Some(taken);
            }
            if state.closed || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break None;
            }
            if !leading && state.leader == Leader::None {
                state.leader = Leader::Waiter;
                leading = true;
            }
            state = match leading {
                true => shared.turn(state, until),
                false => shared.follow(state, deadline),
            };
        };
        if leading {
            shared.stop_leading(&mut state);
            state.led += 1;
        }
        taken
    }

    /// Drives the node on this thread until it ends; gives the reason. Lines for the log go to standard error.
    pub fn run(&self) -> String {
        self.run_with(|event| {
            if let Event::Log(line) = event {
                eprintln!("{line}");
            }
        })
    }

    /// Drives the node on this thread until it ends, and hands over its events; gives the reason.
    pub fn run_with(&self, mut on_event: impl FnMut(Event)) -> String {
        let some = |events: &mut VecDeque<Event>| (!events.is_empty()).then(|| std::mem::take(events));
        while let Some(events) = self.wait(None, some) {
            events.into_iter().for_each(&mut on_event);
        }
        self.shared.lock().core.exit.clone().expect("waiting without deadline ends only with the node")
    }

    /// Ends the node: connections close, slots end, waiters return.
    pub fn stop(&self) {
        let mut state = self.shared.lock();
        state.core.exit.get_or_insert_with(|| "stopped".into());
        self.shared.finish(&mut state);
        drop(state);
        self.shared.inbox.wake();
    }
}

impl Drop for NetNode {
    fn drop(&mut self) {
        self.stop();
        let background = self.background.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Its panic was reported on its own thread; there is nobody left to tell.
        if let Some(thread) = background.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One turn of the leader: waits without the lock, then handles what came.
    fn turn<'a>(&'a self, mut state: MutexGuard<'a, State>, until: Time) -> MutexGuard<'a, State> {
        let until = until.min(state.core.wake_at());
        let timeout = match until {
            Time::NEVER => None,
            until => Some(Duration::from_nanos(until.since(state.core.clock.now()))),
        };
        state.polling_until = Some(until);
        drop(state);
        let mut poll = self.poll.lock().unwrap_or_else(PoisonError::into_inner);
        let (poll, events) = &mut *poll;
        match poll.poll(events, timeout) {
            Ok(()) => {}
            // A signal: whoever waits may want to look at it, and nothing is lost by turning.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => panic!("epoll of this process's own descriptors failed: {error}"),
        }
        let mut state = self.lock();
        state.polling_until = None;
        if !state.closed {
            state.core.on_ready(events);
            self.finish(&mut state);
        }
        state
    }

    /// Ends whatever changed the state: writes, and tells who sleeps.
    fn finish(&self, state: &mut State) {
        if state.closed {
            return;
        }
        state.core.flush();
        if state.core.exit.is_some() {
            state.core.shut_down();
            state.closed = true;
            self.changed.notify_all();
            self.idle.notify_all();
        } else if state.followers > 0 && !state.core.events.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Sleeps until something changed that concerns waiters.
    fn follow<'a>(&'a self, mut state: MutexGuard<'a, State>, deadline: Option<Instant>) -> MutexGuard<'a, State> {
        state.followers += 1;
        if state.leader == Leader::Background && state.polling_until.is_some() {
            self.inbox.wake();
        }
        let mut state = match deadline {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(deadline) => {
                let patience = deadline.saturating_duration_since(Instant::now());
                self.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.followers -= 1;
        state
    }

    fn stop_leading(&self, state: &mut State) {
        state.leader = Leader::None;
        if state.followers > 0 {
            self.changed.notify_all();
        }
        if state.background_asleep {
            state.background_asleep = false;
            self.idle.notify_all();
        }
    }

    fn run_background(&self) {
        let mut state = self.lock();
        let mut led = state.led;
        let mut looks = 0;
        while !state.closed {
            if state.leader == Leader::None && state.followers == 0 && state.led == led {
                state.leader = Leader::Background;
                while !state.closed && state.followers == 0 {
                    state = self.turn(state, Time::NEVER);
                }
                self.stop_leading(&mut state);
            }
            looks = if state.led == led { looks + 1 } else { 0 };
            led = state.led;
            if looks > LOOKS_MAX && state.leader == Leader::Waiter {
                looks = 0;
                state.background_asleep = true;
                while state.background_asleep && !state.closed {
                    state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            } else if !state.closed {
                state = self.idle.wait_timeout(state, TAKE_OVER).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }
}

impl Core {
    /// Handles what epoll said.
    fn on_ready(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                WAKER => self.on_notices(),
                LISTENER => self.accept(),
                LOCAL_LISTENER => self.accept_local(),
                token if token.0 >= WORKERS => self.worker_ready(token.0),
                _ => self.connection_ready(event),
            }
            self.settle();
        }
        for token in std::mem::take(&mut self.unread) {
            self.read(token, true);
            self.settle();
        }
        self.fire_timers();
    }
}

fn listen(config: &NetConfig) -> io::Result<(Option<TcpListener>, String)> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let Some(address) = config.listen else { return Ok((None, config.advertise.clone().unwrap_or_default())) };
    if !address.ip().is_loopback() && !config.allow_remote {
        return refuse(format!(
            "listening on {address} lets other hosts reach this node, and nothing is encrypted yet; pass \
             --i-know-this-network-is-trusted if only trusted hosts can, or listen on 127.0.0.1"
        ));
    }
    if address.ip().is_unspecified() && config.advertise.is_none() {
        return refuse(format!(
            "listening on {address}: say with --advertise at which address others can dial this node"
        ));
    }
    let listener = TcpListener::bind(address)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
    let bound = listener.local_addr()?;
    let mut advertised = config.advertise.clone().unwrap_or_else(|| bound.to_string());
    if let Some(host) = advertised.strip_suffix(":0") {
        advertised = format!("{host}:{}", bound.port());
    }
    Ok((Some(listener), advertised))
}
