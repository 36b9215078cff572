//! A grid node in this process: its state machine, and the world that fulfils the contract of `node::protocol` for it.
//!
//! The module `leader` defines which thread drives the node at any time.
//!
//! **Invariant:** state machine, connections, timers and slots are one state under one lock. The lock is never held
//! across an operation that can block.

mod contact;
mod contacts;
mod core;
mod dials;
mod leader;
mod mappings;
mod refusals;
mod revocations;
mod streams;
mod timers;
mod workers;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gridloom_base::address::{NodeAddress, RelayPath, RelayTarget, SEPARATOR};
use gridloom_base::limits::STORE_BYTES_DEFAULT;
use gridloom_base::{NodeId, Time};
use gridloom_core::node::{Command, Event, Input, Node, Role};
use gridloom_keys::Role as CertifiedRole;
use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Waker};

use self::contacts::Connections;
use self::core::{Core, LISTENER, LOCAL_LISTENER, WAKER, WORKERS};
use self::leader::{Leader, Shared, State};
use self::mappings::Mappings;
use self::revocations::RevocationExchange;
use self::streams::Streams;
use self::timers::{Clock, Timers};
use self::workers::Workers;
use crate::descriptors::raise_descriptor_limit;
use crate::durable::{Durable, Writer};
use crate::identity::{Credentials, HostId, Keys, host_name};
use crate::jobs::JobsConfig;
use crate::log;
use crate::pid::pid;
use crate::segment::{Disk, Pool};
use crate::spilling;
use crate::spin::has_spare_processor;
use crate::storage::{Files, Storage};
use crate::store::Store;
use crate::threads;
use crate::transport::BACKLOG;
use crate::transport::emulated_sites::{EmulatedLinks, Site};
use crate::transport::handshake::{Hello, Purpose};
use crate::transport::host::{HostSockets, SocketFile};
use crate::transport::notice::{Inbox, Notice};
use crate::transport::reach::Unreachable;
use crate::transport::relay::registration::Registrations;
use crate::transport::stream::Listener;
use crate::transport::stripes::Stripe;
use crate::uploads::Uploads;

pub use self::core::BoxMachine;

/// The configuration of a node.
#[derive(Debug)]
pub struct NetConfig {
    /// Address on which the node listens; `None` for a client, which only dials. Port 0 selects a free port.
    pub listen: Option<SocketAddr>,
    /// Address under which others dial the node, if it differs from the listening address.
    pub advertise: Option<String>,
    /// Relays, HOST:PORT, through which nodes that cannot dial this one connect to it.
    pub relays: Vec<String>,
    /// Keys that admit the node to its grid.
    pub keys: Keys,
    /// Passes data to nodes of the same host through shared memory.
    pub shared_memory: bool,
    /// Configuration of the node's slots, if it has any.
    pub jobs: Option<JobsConfig>,
    /// Speed of one slot, floating-point operations per second; measured if `None`.
    pub speed_flops: Option<f64>,
    /// Bytes of memory that the buffer pool keeps for reuse.
    pub pool_keep_bytes: u64,
    /// Largest datum that the node accepts from others.
    pub datum_bytes_max: u64,
    /// Limit on all bulk data sent to other hosts together, in bytes per second.
    pub upload_limit: Option<f64>,
    /// Number of connections over which large data are sent to one peer; derived from the round-trip time if `None`.
    pub stripes: Option<u8>,
    /// Disk that stores data for which memory has no room.
    pub disk: Option<Disk>,
    /// Folder of shared data that outlive the process. The state machine must be given the same list of data.
    pub durable: Option<Durable>,
    /// Storage that this server shares with other servers.
    pub storage: Option<Storage>,
    /// Site of this node, if traffic to other sites passes through filters.
    pub site: Option<Site>,
}

impl NetConfig {
    /// Returns the configuration of a client with these keys.
    pub fn new(keys: Keys) -> NetConfig {
        NetConfig {
            listen: None,
            advertise: None,
            relays: Vec::new(),
            keys,
            shared_memory: true,
            jobs: None,
            speed_flops: None,
            pool_keep_bytes: 1 << 30,
            datum_bytes_max: STORE_BYTES_DEFAULT,
            upload_limit: None,
            stripes: None,
            disk: None,
            durable: None,
            storage: None,
            site: None,
        }
    }
}

/// A node of a grid.
///
/// A node belongs to the process that started it. After a `fork` the child's copy does nothing, because its threads do
/// not exist there and its sockets belong to the parent.
pub struct NetNode {
    pid: u32,
    shared: Arc<Shared>,
    background: Mutex<Option<JoinHandle<()>>>,
}

impl NetNode {
    /// Starts a node. `make` receives the node's identifier and the address at which it can be dialled (empty if it cannot).
    ///
    /// # Errors
    /// If the node cannot listen on the configured address, or is not allowed to.
    pub fn start(make: impl FnOnce(NodeId, &str) -> Node, config: NetConfig) -> io::Result<Arc<NetNode>> {
        NetNode::start_with(config, |id, address| {
            let node = make(id, address);
            (node.role(), node.name().to_string(), Box::new(node) as BoxMachine)
        })
    }

    /// Starts a node around any state machine; `make` also returns the machine's role and name.
    ///
    /// # Errors
    /// As [`NetNode::start`].
    pub fn start_with(
        config: NetConfig,
        make: impl FnOnce(NodeId, &str) -> (Role, String, BoxMachine),
    ) -> io::Result<Arc<NetNode>> {
        let credentials = Credentials::new(config.keys.clone())?;
        let id = credentials.id();
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let inbox = Arc::new(Inbox::new(Waker::new(&registry, WAKER)?));
        let to_inbox = Arc::downgrade(&inbox);
        let notify = move || {
            to_inbox.upgrade().into_iter().for_each(|inbox| inbox.post(Notice::RevocationsChanged));
        };
        let revocations = |role| RevocationExchange::new(role, credentials.clone(), Arc::new(notify));
        let (listener, direct) = listen(&config)?;
        raise_descriptor_limit();
        let mut listener = listener.map(Listener::new);
        let near = if config.shared_memory { LocalSockets::open(id, listener.as_mut()) } else { Ok(None) };
        let (near, refused) = near.map_or_else(|error| (None, Some(error)), |near| (near, None));
        let machine_name = config.site.as_ref().map_or_else(host_name, |site| site.name().to_string());
        let host = if near.is_some() { HostId::here().0 } else { String::new() };
        let host = config.site.as_ref().map_or(host.clone(), |site| site.on(&host));
        let apart = Arc::new(EmulatedLinks::new(config.site));
        if let Some(listener) = &mut listener {
            registry.register(listener, LISTENER, Interest::READABLE)?;
        }
        if let Some(near) = &near {
            registry.register(&mut SourceFd(&near.listener.0.as_raw_fd()), LOCAL_LISTENER, Interest::READABLE)?;
        }
        let is_agent = config.keys.identity().is_some_and(|identity| identity.role() == CertifiedRole::Agent);
        let address = with_relays(&direct, &config.relays, relay_target(id, is_agent, &machine_name))?;
        let (role, name, machine) = make(id, &address);
        let store = Store::new(Pool::with_disk(config.pool_keep_bytes, config.disk));
        let store = Arc::new(store.with_uploads(Uploads::new(config.upload_limit)));
        spilling::start(&store, &inbox)?;
        let durable = config.durable.map(|mut durable| {
            for (named, payload) in durable.take_found() {
                store.put(named.datum, named.meta, payload);
            }
            Writer::start(durable, &inbox)
        });
        let files = config.storage.map(|storage| Files::start(storage, id, &inbox, &store));
        let own = Hello {
            purpose: Purpose::Control,
            node: id,
            role,
            name,
            address: address.clone(),
            host,
            stream: 0,
            stripe: Stripe::ONE,
            number: [0; 16],
            nonce: [0; 32],
            pass: None,
            machine: machine_name,
        };
        let sockets = near.as_ref().map(|near| near.sockets.clone());
        let jobs_registry = registry.try_clone()?;
        let unreachable = Arc::new(Unreachable::default());
        let mut core = Core {
            name: own.name.clone(),
            machine,
            clock: Clock::new(),
            inbox: inbox.clone(),
            store: store.clone(),
            streams: Streams::new(
                own.clone(),
                credentials.clone(),
                inbox.clone(),
                store.clone(),
                (config.datum_bytes_max, config.stripes),
                (apart.clone(), unreachable.clone()),
            ),
            workers: Workers::new(own.name.clone(), config.jobs, config.speed_flops, jobs_registry, WORKERS),
            mappings: Mappings::new(inbox.clone()),
            revocations: revocations(own.role),
            durable: durable.transpose()?.unwrap_or_default(),
            files: files.transpose()?.unwrap_or_default(),
            relays: Registrations::start(&config.relays, &credentials, is_agent, &inbox)?,
            contacts: Connections::new(
                own,
                credentials,
                registry,
                inbox.clone(),
                listener,
                (sockets, apart),
                unreachable,
            ),
            timers: Timers::default(),
            pending: VecDeque::new(),
            effects: Vec::new(),
            events: VecDeque::new(),
            exit: None,
        };
        if let Some(near) = near {
            core.streams.share(near.sockets, near.listener);
        }
        if let Some(error) = refused {
            core.log(log::warning("nodes of this host are reached only over TCP").why(error));
        }
        core.input(Input::Start);
        core.flush();
        let state = State {
            core,
            leader: Leader::None,
            followers: 0,
            led: 0,
            polls: 0,
            background_asleep: false,
            polling_until: None,
            closed: false,
            spin_until: Instant::now(),
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
            may_spin: has_spare_processor(),
        });
        let background = match role {
            Role::Client => {
                let shared = shared.clone();
                let thread = thread::Builder::new().name("gridloom".into());
                Some(threads::spawn(thread, move || shared.run_background())?)
            }
            // The main thread of an agent or server leads all the time.
            Role::Agent | Role::Server => None,
        };
        Ok(Arc::new(NetNode { pid: pid(), shared, background: Mutex::new(background) }))
    }

    /// Returns the node's identifier.
    pub fn id(&self) -> NodeId {
        self.shared.id
    }

    /// Returns the address at which the node can be dialled, or an empty string if it cannot.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Returns the node's data store.
    pub fn store(&self) -> &Arc<Store> {
        &self.shared.store
    }

    /// Returns the current time of this world.
    pub fn now(&self) -> Time {
        self.shared.lock().core.clock.now()
    }

    /// Passes a command to the state machine. On return, the resulting messages are written as far as the sockets accept them.
    pub fn command(&self, command: Command) {
        self.commands([command]);
    }

    /// Passes several commands to the state machine; the resulting messages are written together.
    pub fn commands(&self, commands: impl IntoIterator<Item = Command>) {
        if self.is_forked() {
            return;
        }
        let mut state = self.shared.lock();
        if state.closed {
            return;
        }
        for command in commands {
            state.core.input(Input::Command(command));
        }
        self.shared.flush_and_wake(&mut state);
        state.spin_until = Instant::now() + leader::SPIN;
        // The leader is waiting for a later time than the one that is now earliest, or for the event that has just arrived.
        let news = state.leader == Leader::Waiter && !state.core.events.is_empty();
        if state.polling_until.is_some_and(|until| state.core.wake_at() < until || news || state.closed) {
            self.shared.inbox.wake();
        }
    }

    /// Waits until `take` finds the events it wants. `take` is called with the event queue whenever new events arrive,
    /// and removes what it takes. Returns `None` at the deadline, or when the node has ended.
    ///
    /// `take` must look at the whole queue, not only at its first event: it is called again only when new events
    /// arrive. Events stay in the queue until they are taken, so a program must also take the events that it ignores.
    ///
    /// `take` runs under the node's lock: it must be short and must not call the node.
    pub fn wait<R>(
        &self,
        deadline: Option<Instant>,
        mut take: impl FnMut(&mut VecDeque<Event>) -> Option<R>,
    ) -> Option<R> {
        if self.is_forked() {
            return None;
        }
        let shared = &*self.shared;
        let mut state = shared.lock();
        let until = deadline.map_or(Time::NEVER, |deadline| state.core.clock.at(deadline));
        let mut leading = false;
        let mut looked = false;
        let taken = loop {
            if let Some(taken) = take(&mut state.core.events) {
                break Some(taken);
            }
            if state.closed {
                break None;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                if looked {
                    break None;
                }
                looked = true;
                state = shared.poll_once(state);
                continue;
            }
            looked = true;
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

    /// Wakes all waiting threads so that they check the event queue again, although no event has arrived.
    pub fn wake_waiters(&self) {
        if self.is_forked() {
            return;
        }
        let state = self.shared.lock();
        self.shared.changed.notify_all();
        if state.polling_until.is_some() {
            self.shared.inbox.wake();
        }
    }

    /// Drives the node on this thread until the node ends, and returns the reason. Call it on the thread that started
    /// the node, and keep that thread alive: the system kills worker processes when the thread that started them ends.
    pub fn run(&self) -> String {
        self.run_with(|_| {})
    }

    /// Like [`NetNode::run`], and passes each event to `on_event`. Log lines go to the program's log first.
    pub fn run_with(&self, mut on_event: impl FnMut(Event)) -> String {
        let name = self.shared.lock().core.name.clone();
        let some = |events: &mut VecDeque<Event>| (!events.is_empty()).then(|| std::mem::take(events));
        while let Some(events) = self.wait(None, some) {
            for event in events {
                if let Event::Log(line) = &event {
                    log::emit(&name, line);
                }
                on_event(event);
            }
        }
        self.shared.lock().core.exit.clone().expect("waiting without deadline ends only with the node")
    }

    /// Ends the node: connections close, slots end, waiting threads return.
    pub fn stop(&self) {
        if self.is_forked() {
            return;
        }
        let mut state = self.shared.lock();
        state.core.exit.get_or_insert_with(|| "stopped".into());
        self.shared.flush_and_wake(&mut state);
        drop(state);
        self.shared.inbox.wake();
    }

    /// Reports whether the node has ended; it produces no more events then.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }

    /// Reports whether this is a forked copy in another process.
    pub fn is_forked(&self) -> bool {
        pid() != self.pid
    }
}

impl Drop for NetNode {
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        self.stop();
        let background = self.background.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // The panic was already reported on its own thread, and nobody is left to handle it here.
        if let Some(thread) = background.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
        self.shared.inbox.threads.join(THREADS_LIMIT);
    }
}

/// Time to wait for the node's threads to end. A thread that takes longer is blocked on the network and is left behind.
const THREADS_LIMIT: Duration = Duration::from_secs(2);

/// Sockets on which nodes of this host meet and pass memory to this node.
struct LocalSockets {
    sockets: HostSockets,
    listener: (UnixListener, SocketFile),
}

impl LocalSockets {
    /// Opens the host's sockets. Returns `None` where the system does not identify the host.
    fn open(id: NodeId, listener: Option<&mut Listener>) -> io::Result<Option<LocalSockets>> {
        if HostId::here().0.is_empty() {
            return Ok(None);
        }
        let sockets = HostSockets::open()?;
        listener.map_or(Ok(()), |listener| listener.listen_near(&sockets))?;
        let listener = sockets.listen_node(id)?;
        Ok(Some(LocalSockets { sockets, listener }))
    }
}

fn listen(config: &NetConfig) -> io::Result<(Option<TcpListener>, String)> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let Some(address) = config.listen else { return Ok((None, config.advertise.clone().unwrap_or_default())) };
    if let Some(why) = config.keys.why_missing() {
        return refuse(format!("a node cannot listen without keys: {why}"));
    }
    let has_address = config.advertise.is_some() || !config.relays.is_empty();
    if address.ip().is_unspecified() && !has_address {
        return refuse(format!(
            "listening on {address}: pass the address at which others can dial this node with --advertise"
        ));
    }
    let listener = TcpListener::bind(address).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => "another process listens there already; end it, or choose another port with \
            --listen HOST:PORT (port 0 selects a free one)"
                .into(),
            _ => error.to_string(),
        };
        io::Error::new(error.kind(), format!("cannot listen on {address}: {why}"))
    })?;
    // mio's default backlog is too short for an agent, which its whole grid dials at once. The second `listen` call
    // only enlarges the backlog.
    rustix::net::listen(&listener, BACKLOG)?;
    let bound = listener.local_addr()?;
    let advertised = match &config.advertise {
        Some(advertised) => advertised.clone(),
        None if bound.ip().is_unspecified() => String::new(),
        None => bound.to_string(),
    };
    let with_port = |place: &str| match place.strip_suffix(":0") {
        Some(host) => format!("{host}:{}", bound.port()),
        None => place.to_string(),
    };
    let advertised: Vec<String> = advertised.split(SEPARATOR).map(with_port).collect();
    Ok((Some(listener), advertised.join(&SEPARATOR.to_string())))
}

/// Adds the paths through relays to the direct address of a node.
fn with_relays(direct: &str, relays: &[String], target: RelayTarget) -> io::Result<String> {
    let paths = relays.iter().map(|relay| RelayPath { relay: relay.clone(), target: target.clone() }.to_string());
    let all: Vec<String> = (!direct.is_empty()).then(|| direct.to_string()).into_iter().chain(paths).collect();
    let address = all.join(&SEPARATOR.to_string());
    if !address.is_empty() {
        let checked = address.parse::<NodeAddress>();
        checked.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    }
    Ok(address)
}

/// Returns the target of paths to this node.
fn relay_target(node: NodeId, is_agent: bool, machine: &str) -> RelayTarget {
    match is_agent {
        true => RelayTarget::Agent,
        false => RelayTarget::Node { node, host: machine_tag(machine) },
    }
}

/// Returns a name of this machine that no other machine has, and that an address can contain.
fn machine_tag(machine: &str) -> String {
    let name = machine.chars().filter(|one| one.is_ascii_alphanumeric() || "-_.".contains(*one)).take(64);
    let hash = blake3::hash(HostId::here().0.as_bytes()).to_hex();
    format!("{}-{}", name.collect::<String>(), &hash[..8])
}
