//! The world of a real process: its connections over TCP and shared memory, and the system's clock.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gridloom_base::Time;
use gridloom_base::limits::{DIAL_NS_MAX, LINGER_NS_MAX};
use gridloom_channel::{Buffers, Kind, Outbound, ReadOutcome};
use gridloom_core::node::Role;
use gridloom_process::{
    Incoming, Level, PeerId, ProcessError, ProcessMessage, ProcessSpec, ProcessWorld, parse_message,
};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use super::acceptor::{Acceptor, dial_handshake};
use super::linger::Lingering;
use super::peers::{NewConnection, Peers};
use super::siblings::Siblings;
use super::stream::RingCount;
use super::system::given_listener;
use crate::identity::{Credentials, HostId, Keys};
use crate::spin::SpinPolicy;
use crate::threads::STACK_BYTES;
use crate::transport::handshake::{Hello, Purpose};
use crate::transport::stripes::Stripe;

/// Addresses of hosts by name. If empty, the system resolves names.
pub type Addresses = BTreeMap<String, IpAddr>;

/// The configuration of a process, and the addresses of the others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProcessConfig {
    /// Function, host and arguments of the process.
    pub spec: ProcessSpec,
    /// Addresses of the deployment's hosts.
    #[serde(default)]
    pub addresses: Addresses,
    /// True to use TCP instead of shared memory even with processes of the same host.
    #[serde(default)]
    pub by_tcp: bool,
    /// Port of the listening socket that the process inherited as its standard input.
    #[serde(default)]
    pub listens: Option<u16>,
    /// Further processes of the deployment that run as threads of this one.
    #[serde(default)]
    pub threads: Vec<ProcessSpec>,
}

/// The world of a real process.
pub struct NetProcess {
    config: ProcessConfig,
    own: Hello,
    credentials: Credentials,
    began: Instant,
    epoch_ns: u64,
    listeners: Vec<(u16, Arc<TcpListener>)>,
    pub(super) acceptor: Acceptor,
    accepted: Receiver<NewConnection>,
    /// Readable when a connection was accepted.
    pub(super) wake_pipe: OwnedFd,
    pub(super) peers: Peers,
    lingering: Lingering,
    pub(super) inbox: VecDeque<Incoming>,
    buffers: Buffers,
    pub(super) spin: SpinPolicy,
    /// Time of the last check of the sockets. If all peers are on this host, they need not be checked every time.
    pub(super) sockets_checked_at: Instant,
    pub(super) siblings: Siblings,
}

impl NetProcess {
    /// Creates the world of a process.
    ///
    /// # Errors
    /// If the system refuses descriptors or entropy.
    pub fn new(config: ProcessConfig, keys: Keys) -> io::Result<NetProcess> {
        let name = format!("{}@{}", config.spec.function, config.spec.host);
        let credentials = Credentials::new(keys)?;
        let own = Hello {
            purpose: Purpose::Process,
            node: credentials.id(),
            role: Role::Client,
            name,
            address: String::new(),
            host: if config.by_tcp { String::new() } else { HostId::here().0 },
            stream: 0,
            stripe: Stripe::ONE,
            number: [0; 16],
            nonce: [0; 32],
            pass: None,
            machine: String::new(),
        };
        let (bell, ringer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&ringer, true)?;
        let (send, accepted) = channel();
        let acceptor = Acceptor {
            credentials: credentials.clone(),
            own: own.clone(),
            accepted: send,
            rings: RingCount::default(),
            wake_pipe: Arc::new(ringer),
            is_shut: Arc::default(),
        };
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(NetProcess {
            config,
            own,
            credentials,
            began: Instant::now(),
            epoch_ns: epoch.as_nanos() as u64,
            listeners: Vec::new(),
            acceptor,
            accepted,
            wake_pipe: bell,
            peers: Peers::default(),
            lingering: Lingering::default(),
            inbox: VecDeque::new(),
            buffers: Buffers::default(),
            spin: SpinPolicy::new(),
            sockets_checked_at: Instant::now(),
            siblings: Siblings::default(),
        })
    }

    /// Restricts this thread, and those that it starts from now on, to one processor.
    ///
    /// # Errors
    /// If the system refuses to set the affinity.
    pub fn bind(&mut self, processor: usize) -> io::Result<()> {
        let mut one = CpuSet::new();
        one.set(processor.min(CpuSet::MAX_CPU - 1));
        rustix::thread::sched_setaffinity(None, &one)?;
        self.spin.keep_processor();
        Ok(())
    }

    fn address_of(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, ProcessError> {
        if let Some(address) = self.config.addresses.get(host) {
            return Ok(vec![SocketAddr::new(*address, port)]);
        }
        // Elements that were added after this process started are addressed by IP address.
        if let Ok(address) = host.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        if !self.config.addresses.is_empty() {
            let some: Vec<&str> = self.config.addresses.keys().take(8).map(String::as_str).collect();
            return Err(ProcessError::NoSuchHost { host: host.into(), known: some.join(", ") });
        }
        let cannot = |error: io::Error| ProcessError::CannotConnect { host: host.into(), port, why: error.to_string() };
        (host, port).to_socket_addrs().map(Iterator::collect).map_err(cannot)
    }

    fn join(&mut self, shaken: NewConnection) -> io::Result<PeerId> {
        self.lingering.sweep();
        self.peers.join(shaken)
    }

    /// Closes a connection from this side; data already written still arrive.
    fn close_connection(&mut self, peer: PeerId) {
        self.close_sibling(peer);
        if let Some(stream) = self.peers.remove(peer) {
            self.lingering.add(stream);
        }
    }

    pub(super) fn take_accepted(&mut self) {
        // One read handles all wake-up bytes that arrived together.
        let _ = rustix::io::read(self.wake_pipe.as_fd(), &mut [0; 64]);
        while let Ok(shaken) = self.accepted.try_recv() {
            if let Err(error) = self.join(shaken) {
                self.log(Level::Warning, "gridloom", &format!("a connection cannot be used: {error}"));
            }
        }
    }

    /// Reads what a peer has sent. Returns true if there was anything.
    pub(super) fn read(&mut self, peer: PeerId) -> bool {
        let Some(channel) = self.peers.channel(peer) else { return false };
        let filled = channel.fill(&mut self.buffers);
        let fault = loop {
            let letter = match channel.inbound.next(ProcessMessage::LIMITS, &mut self.buffers) {
                Ok(Some((_, body))) => parse_message(body, &mut self.buffers.pool),
                Ok(None) => break None,
                Err(error) => Err(error.to_string()),
            };
            match letter {
                Ok(letter) => self.inbox.push_back(Incoming::Message { from: peer, letter }),
                Err(why) => break Some(why),
            }
        };
        channel.inbound.release(&mut self.buffers);
        let has_come = matches!(filled, Ok(ReadOutcome::Drained | ReadOutcome::More));
        let end = match filled {
            Ok(ReadOutcome::Closed) => Some(self.has_closed(peer)),
            Ok(ReadOutcome::Nothing | ReadOutcome::Drained | ReadOutcome::More) => fault,
            Err(error) => Some(self.why(peer, &error)),
        };
        if let Some(why) = end {
            self.close_connection(peer);
            self.ended(peer, why);
        }
        has_come
    }

    /// Records that a connection was ended by the other side.
    pub(super) fn ended(&mut self, peer: PeerId, why: String) {
        self.peers.ended(peer, why.clone());
        self.inbox.push_back(Incoming::Closed { peer, why });
    }

    /// Handles a connection that can no longer be written to: reads the data that arrived before.
    fn read_to_end(&mut self, peer: PeerId, why: &str) {
        if let Some(channel) = self.peers.channel(peer) {
            channel.stream_mut().end();
        }
        while self.read(peer) {}
        if self.peers.remove(peer).is_some() {
            self.ended(peer, why.into());
        }
    }

    /// Called before a message is sent: data written to a peer that has disconnected are lost, and the system reports
    /// this only at the next write.
    fn notice_hang_up(&mut self, peer: PeerId) {
        if self.is_hung_up(peer) {
            let gone = self.has_closed(peer);
            self.read_to_end(peer, &gone);
        }
    }

    /// Writes queued data, as much as the system accepts.
    pub(super) fn flush(&mut self, peer: PeerId) -> Result<&Outbound, ProcessError> {
        let Some(channel) = self.peers.channel(peer) else { return Err(self.closed(peer)) };
        if let Err(error) = channel.flush(&mut self.buffers) {
            let why = self.why(peer, &error);
            self.read_to_end(peer, &why);
        }
        if !self.peers.is_up(peer) {
            return Err(self.closed(peer));
        }
        Ok(&self.peers.channel(peer).expect("it is up").outbound)
    }

    /// Waits until the offered data are written, or the peer accepts nothing for too long.
    fn drain(&mut self, peer: PeerId) {
        let (mut least, mut since) = (usize::MAX, Instant::now());
        while let Ok(outbound) = self.flush(peer)
            && outbound.is_blocked()
        {
            let waiting = outbound.waiting_bytes();
            if waiting < least {
                (least, since) = (waiting, Instant::now());
            }
            if since.elapsed() >= Duration::from_nanos(LINGER_NS_MAX) {
                return;
            }
            let until = self.now() + LINGER_NS_MAX;
            self.wait(Some(until));
        }
    }

    fn has_closed(&self, peer: PeerId) -> String {
        format!("{} has closed it", self.describe(peer))
    }

    /// Describes an error of a peer's socket.
    fn why(&self, peer: PeerId, error: &io::Error) -> String {
        match error.kind() {
            // A peer that ends with unread data resets its connections.
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => self.has_closed(peer),
            _ => error.to_string(),
        }
    }

    pub(super) fn closed(&self, peer: PeerId) -> ProcessError {
        ProcessError::Closed { peer: self.describe(peer), why: self.why_closed(peer) }
    }
}

impl ProcessWorld for NetProcess {
    fn spec(&self) -> &ProcessSpec {
        &self.config.spec
    }

    fn now(&self) -> Time {
        Time(self.epoch_ns + self.began.elapsed().as_nanos() as u64)
    }

    fn listen(&mut self, port: u16) -> Result<u16, ProcessError> {
        let host = &self.config.spec.host;
        let own = self.config.addresses.get(host).copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let cannot = |error: io::Error| ProcessError::CannotListen { host: host.clone(), port, why: error.to_string() };
        let listener = match self.config.listens.take_if(|listens| *listens == port) {
            Some(_) => given_listener(),
            None => TcpListener::bind((own, port)),
        };
        let listener = Arc::new(listener.map_err(cannot)?);
        let port = listener.local_addr().map_err(cannot)?.port();
        let (acceptor, own) = (self.acceptor.clone(), listener.clone());
        let thread = thread::Builder::new().name("acceptor".into()).stack_size(STACK_BYTES);
        thread.spawn(move || acceptor.run(&own)).map_err(cannot)?;
        self.listeners.push((port, listener));
        self.siblings.listens(port);
        Ok(port)
    }

    fn connect(&mut self, host: &str, port: u16) -> Result<PeerId, ProcessError> {
        if let Some(peer) = self.connect_sibling(host, port) {
            return Ok(peer);
        }
        let mut why = "the name has no address".to_string();
        for address in self.address_of(host, port)? {
            let shaken = TcpStream::connect_timeout(&address, Duration::from_nanos(DIAL_NS_MAX))
                .and_then(|stream| dial_handshake(stream, address, &self.credentials, &self.own, &self.acceptor.rings));
            match shaken {
                Ok(mut shaken) => {
                    shaken.name = format!("{}:{port}", shaken.name);
                    match self.join(shaken) {
                        Ok(peer) => return Ok(peer),
                        Err(error) => why = error.to_string(),
                    }
                }
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    why = "connection refused: nobody listens".into();
                }
                Err(error) => why = error.to_string(),
            }
        }
        Err(ProcessError::CannotConnect { host: host.into(), port, why })
    }

    fn send(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<(), ProcessError> {
        if self.peers.sibling(peer).is_some() {
            letter.check()?;
            return self.send_to_sibling_blocking(peer, letter);
        }
        let size_bytes = letter.payload.len() as u64;
        let mut frame = Some(letter.into_frame()?);
        self.notice_hang_up(peer);
        while frame.is_some() || self.flush(peer)?.is_blocked() {
            let Some(channel) = self.peers.channel(peer) else { return Err(self.closed(peer)) };
            frame = frame.and_then(|frame| channel.outbound.offer(frame).err());
            // Two processes that send to each other must both read while they wait.
            if self.flush(peer)?.is_blocked() {
                self.wait(None);
            }
        }
        self.spin.note_sent(size_bytes);
        Ok(())
    }

    fn offer(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<Option<ProcessMessage>, ProcessError> {
        letter.check()?;
        if self.peers.sibling(peer).is_some() {
            return if self.is_full_sibling(peer) {
                Ok(Some(letter))
            } else {
                self.send_to_sibling(peer, letter).map(|()| None)
            };
        }
        self.notice_hang_up(peer);
        if self.flush(peer)?.is_full() {
            return Ok(Some(letter));
        }
        let (size_bytes, frame) = (letter.payload.len() as u64, letter.into_frame()?);
        let Some(channel) = self.peers.channel(peer) else { return Err(self.closed(peer)) };
        channel.outbound.offer(frame).expect("there was room");
        self.flush(peer)?;
        self.spin.note_sent(size_bytes);
        Ok(None)
    }

    fn send_urgent(&mut self, peer: PeerId, letter: ProcessMessage) -> Result<(), ProcessError> {
        let size_bytes = letter.payload.len() as u64;
        if self.peers.sibling(peer).is_some() {
            letter.check_urgent()?;
            return self.send_to_sibling(peer, letter);
        }
        let body = letter.into_urgent_body()?;
        self.notice_hang_up(peer);
        let Some(channel) = self.peers.channel(peer) else { return Err(self.closed(peer)) };
        channel.outbound.frame(Kind::ProcessMessage, &body).expect("an urgent letter is far below the limit of frames");
        while self.flush(peer)?.has_urgent() {
            self.wait(None);
        }
        self.spin.note_sent(size_bytes);
        Ok(())
    }

    fn take_buffer(&mut self) -> Vec<u8> {
        self.buffers.pool.take_last()
    }

    fn return_buffer(&mut self, payload: Vec<u8>) {
        self.buffers.pool.put(payload);
    }

    fn receive(&mut self, until: Option<Time>) -> Result<Option<Incoming>, ProcessError> {
        loop {
            if let Some(incoming) = self.inbox.pop_front() {
                return Ok(Some(incoming));
            }
            if !self.wait(until) {
                return Ok(None);
            }
        }
    }

    fn try_receive(&mut self) -> Result<Option<Incoming>, ProcessError> {
        Ok(self.inbox.pop_front())
    }

    fn close(&mut self, peer: PeerId) {
        self.drain(peer);
        self.close_connection(peer);
    }

    fn is_closed(&self, peer: PeerId) -> bool {
        !self.peers.is_up(peer) && !self.inbox.iter().any(|incoming| incoming.peer() == peer)
    }

    fn why_closed(&self, peer: PeerId) -> String {
        self.peers.why_closed(peer)
    }

    fn describe(&self, peer: PeerId) -> String {
        self.peers.describe(peer)
    }

    fn sleep_until(&mut self, at: Time) -> Result<(), ProcessError> {
        while self.now() < at && self.peers.channels().any(|(_, channel)| channel.outbound.is_blocked()) {
            self.poll(Some(at));
        }
        thread::sleep(Duration::from_nanos(at.since(self.now())));
        Ok(())
    }

    fn account_flops(&mut self, _: f64) -> Result<(), ProcessError> {
        Ok(())
    }

    fn account_computed(&mut self, _: &str, _: u64) -> Result<f64, ProcessError> {
        Ok(0.0)
    }

    fn log(&mut self, level: Level, category: &str, text: &str) {
        let (ns, spec) = (self.now().0, &self.config.spec);
        let seconds = ns as f64 / 1e9;
        gridloom_base::stderr_line!("{seconds:.6} {level} [{category}] {}@{}: {text}", spec.function, spec.host);
    }

    fn is_simulated(&self) -> bool {
        false
    }
}

impl Drop for NetProcess {
    fn drop(&mut self) {
        self.acceptor.is_shut.store(true, Ordering::Release);
        self.siblings.shut();
        for (_, listener) in &self.listeners {
            // Ends the wait of the acceptor's thread.
            let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
        }
        let mut peers: Vec<PeerId> = self.peers.channels().map(|(peer, _)| peer).collect();
        peers.extend(self.peers.siblings());
        for peer in peers {
            self.drain(peer);
            self.close_connection(peer);
        }
        self.lingering.wait(0);
    }
}

impl std::fmt::Debug for NetProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetProcess").field("spec", &self.config.spec).finish_non_exhaustive()
    }
}
