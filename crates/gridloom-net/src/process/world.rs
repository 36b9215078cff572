//! The real world as one process sees it.
//!
//! **Leaving.** A socket that is closed while something unread has come for it resets its connection, and what it had sent
//! but the other side has not taken is lost. So a connection that is closed here is shut for writing, and its socket kept
//! until the other side's system has taken everything; a process that ends waits for that, [`LINGER_NS_MAX`] at most.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gridloom_core::base::Time;
use gridloom_core::base::limits::{DIAL_NS_MAX, FORMER_PEERS_MAX, KIND_BYTES_MAX, LETTER_BYTES_MAX, LINGER_NS_MAX};
use gridloom_core::node::Role;
use gridloom_core::process::{Incoming, Letter, Level, PeerId, ProcessError, ProcessSpec, ProcessWorld, Spares};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};

use super::frame::{self, Decoder};
use super::listener::{Door, Guest, greet};
use crate::awake::Patience;
use crate::identity::{Secret, random_node_id};
use crate::transport::handshake::{Hello, Purpose};
use crate::transport::outgoing::STACK_BYTES;

/// Bytes read from a connection to find where letters begin and end; the rest of a long one is read to where it stays.
const READ_BYTES: usize = 64 << 10;
/// Most sockets that are kept for what was sent before their connections were closed.
const LEAVING_MAX: usize = 256;
/// Between two looks at what the other side has taken.
const LINGER_STEP: Duration = Duration::from_millis(1);

/// Where hosts are. Empty: names are resolved as the system does.
pub type Addresses = BTreeMap<String, IpAddr>;

/// Who a process is, and what it needs to know of the others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProcessConfig {
    /// Who it is.
    pub spec: ProcessSpec,
    /// Where the deployment's hosts are.
    #[serde(default)]
    pub addresses: Addresses,
}

/// The world of a real process.
pub struct NetProcess {
    config: ProcessConfig,
    own: Hello,
    secret: Secret,
    began: Instant,
    epoch_ns: u64,
    listeners: Vec<(u16, Arc<TcpListener>)>,
    door: Door,
    guests: Receiver<Guest>,
    bell: OwnedFd,
    connections: BTreeMap<PeerId, Connection>,
    /// Who they are; also some whose connections have ended.
    names: BTreeMap<PeerId, String>,
    /// Those, in the order of their ends.
    former: VecDeque<PeerId>,
    /// Why those that were not closed here have ended.
    ends: BTreeMap<PeerId, String>,
    next_peer: u64,
    /// Connections that were closed here, until all that was sent has been taken.
    leaving: VecDeque<TcpStream>,
    inbox: VecDeque<Incoming>,
    buffer: Vec<u8>,
    spares: Spares<u8>,
    patience: Patience,
}

struct Connection {
    stream: TcpStream,
    decoder: Decoder,
}

/// From now on this operating-system process ends with the thread that started it.
///
/// # Errors
/// If the system refuses.
pub fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?)
}

impl NetProcess {
    /// A process.
    ///
    /// # Errors
    /// If the system refuses descriptors or entropy.
    pub fn new(config: ProcessConfig, secret: Secret) -> io::Result<NetProcess> {
        let name = format!("{}@{}", config.spec.function, config.spec.host);
        let own = Hello {
            purpose: Purpose::Process,
            node: random_node_id()?,
            role: Role::Client,
            name,
            address: String::new(),
            host: String::new(),
            stream: 0,
            nonce: [0; 32],
            certificates: None,
        };
        let (bell, ringer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&ringer, true)?;
        let (send, guests) = channel();
        let door = Door {
            secret: secret.clone(),
            own: own.clone(),
            guests: send,
            bell: Arc::new(ringer),
            is_shut: Arc::default(),
        };
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(NetProcess {
            config,
            own,
            secret,
            began: Instant::now(),
            epoch_ns: epoch.as_nanos() as u64,
            listeners: Vec::new(),
            door,
            guests,
            bell,
            connections: BTreeMap::new(),
            names: BTreeMap::new(),
            former: VecDeque::new(),
            ends: BTreeMap::new(),
            next_peer: 0,
            leaving: VecDeque::new(),
            inbox: VecDeque::new(),
            buffer: vec![0; READ_BYTES],
            spares: Spares::default(),
            patience: Patience::new(),
        })
    }

    fn address_of(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, ProcessError> {
        if let Some(address) = self.config.addresses.get(host) {
            return Ok(vec![SocketAddr::new(*address, port)]);
        }
        if !self.config.addresses.is_empty() {
            let some: Vec<&str> = self.config.addresses.keys().take(8).map(String::as_str).collect();
            return Err(ProcessError::NoSuchHost { host: host.into(), known: some.join(", ") });
        }
        let cannot = |error: io::Error| ProcessError::CannotConnect { host: host.into(), port, why: error.to_string() };
        (host, port).to_socket_addrs().map(Iterator::collect).map_err(cannot)
    }

    fn join(&mut self, stream: TcpStream, name: String) -> io::Result<PeerId> {
        stream.set_nonblocking(true)?;
        let peer = PeerId(self.next_peer);
        self.next_peer += 1;
        self.names.insert(peer, name);
        self.sweep();
        self.connections.insert(peer, Connection { stream, decoder: Decoder::default() });
        Ok(peer)
    }

    /// The connection is no more: its socket, and the name is remembered for a while.
    fn part(&mut self, peer: PeerId) -> Option<TcpStream> {
        let stream = self.connections.remove(&peer)?.stream;
        self.former.push_back(peer);
        if self.former.len() > FORMER_PEERS_MAX
            && let Some(oldest) = self.former.pop_front()
        {
            self.names.remove(&oldest);
            self.ends.remove(&oldest);
        }
        Some(stream)
    }

    /// Ends a connection from here; what was sent still arrives.
    fn leave(&mut self, peer: PeerId) {
        let Some(stream) = self.part(peer) else { return };
        // It fails if the connection is broken, and then nothing can arrive.
        if stream.shutdown(Shutdown::Write).is_ok() {
            self.leaving.push_back(stream);
        }
        self.sweep();
        if self.leaving.len() > LEAVING_MAX {
            self.linger(LEAVING_MAX);
        }
    }

    /// Lets go of the sockets from which all was taken.
    fn sweep(&mut self) {
        self.leaving.retain(|stream| unsent_bytes(stream) > 0);
    }

    /// Waits until no more than so many sockets have something to send, or the others take nothing for too long.
    fn linger(&mut self, most: usize) {
        let unsent = |all: &VecDeque<TcpStream>| all.iter().map(unsent_bytes).sum::<u64>();
        let (mut last, mut since) = (unsent(&self.leaving), Instant::now());
        loop {
            self.sweep();
            if self.leaving.len() <= most {
                return;
            }
            if since.elapsed() >= Duration::from_nanos(LINGER_NS_MAX) {
                let excess = self.leaving.len() - most;
                return drop(self.leaving.drain(..excess));
            }
            thread::sleep(LINGER_STEP);
            let now = unsent(&self.leaving);
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
    }

    /// Waits until something can be read, or written to `writing`; false at the time limit.
    fn poll(&mut self, writing: Option<PeerId>, until: Option<Time>) -> bool {
        let peers: Vec<PeerId> = self.connections.keys().copied().collect();
        let mut watched = vec![PollFd::new(&self.bell, PollFlags::IN)];
        for (peer, connection) in &self.connections {
            let flags = if writing == Some(*peer) { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            watched.push(PollFd::new(&connection.stream, flags));
        }
        let left = until.map(|until| {
            let left = Duration::from_nanos(until.since(self.now()));
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match rustix::event::poll(&mut watched, left.as_ref()) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return true,
            Err(error) => panic!("poll of this process's own descriptors failed: {error}"),
        }
        let readable = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let ready: Vec<bool> = watched.iter().map(|fd| fd.revents().intersects(readable)).collect();
        if ready[0] {
            self.let_guests_in();
        }
        for (peer, _) in peers.into_iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            self.read(peer);
        }
        true
    }

    /// As [`NetProcess::poll`], awake at first if what it waited for last came soon.
    fn wait(&mut self, writing: Option<PeerId>, until: Option<Time>) -> bool {
        let began = Instant::now();
        let mut is_ready = false;
        while !is_ready && until.is_none_or(|until| self.now() < until) && self.patience.stays_awake(began) {
            is_ready = self.poll(writing, Some(self.now()));
        }
        is_ready = is_ready || self.poll(writing, until);
        self.patience.waited(began);
        is_ready
    }

    fn let_guests_in(&mut self) {
        // Rings that came together are heard together.
        let _ = rustix::io::read(self.bell.as_fd(), &mut self.buffer[..64]);
        while let Ok(Guest { stream, name }) = self.guests.try_recv() {
            if let Err(error) = self.join(stream, name) {
                self.log(Level::Warning, "gridloom", &format!("a connection cannot be used: {error}"));
            }
        }
    }

    /// Takes in what has come from there; whether anything had.
    fn read(&mut self, peer: PeerId) -> bool {
        let Some(connection) = self.connections.get_mut(&peer) else { return false };
        let mut letters = Vec::new();
        let Connection { stream, decoder } = connection;
        let own = decoder.room();
        let is_own = own.is_some();
        let read = stream.read(own.unwrap_or(&mut self.buffer));
        let has_come = matches!(read, Ok(1..));
        let end = match read {
            Ok(0) => Some(self.has_closed(peer)),
            Ok(length) if is_own => {
                decoder.has_read(length, &mut letters);
                None
            }
            Ok(length) => decoder.take(&self.buffer[..length], &mut letters, &mut self.spares).err(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(error) => Some(self.why(peer, &error)),
        };
        self.inbox.extend(letters.into_iter().map(|letter| Incoming::Letter { from: peer, letter }));
        if let Some(why) = end {
            self.leave(peer);
            self.ended(peer, why);
        }
        has_come
    }

    /// The connection has ended, and not from here.
    fn ended(&mut self, peer: PeerId, why: String) {
        self.ends.insert(peer, why.clone());
        self.inbox.push_back(Incoming::Closed { peer, why });
    }

    /// Whether the other side has ended the connection, whatever of it is still unread.
    fn is_hung_up(&self, peer: PeerId) -> bool {
        let Some(connection) = self.connections.get(&peer) else { return false };
        let mut watched = [PollFd::new(&connection.stream, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        rustix::event::poll(&mut watched, Some(&at_once)).is_ok() && watched[0].revents().intersects(ended)
    }

    /// Nothing can be written any more: takes in what came before.
    fn read_to_end(&mut self, peer: PeerId, why: &str) {
        while self.read(peer) {}
        if self.part(peer).is_some() {
            self.ended(peer, why.into());
        }
    }

    fn has_closed(&self, peer: PeerId) -> String {
        format!("{} has closed it", self.describe(peer))
    }

    /// What an error of its socket means.
    fn why(&self, peer: PeerId, error: &io::Error) -> String {
        match error.kind() {
            // Who ends with something unread resets its connections.
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => self.has_closed(peer),
            _ => error.to_string(),
        }
    }

    fn closed(&self, peer: PeerId) -> ProcessError {
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
        let listener = Arc::new(TcpListener::bind((own, port)).map_err(cannot)?);
        let port = listener.local_addr().map_err(cannot)?.port();
        let (door, attended) = (self.door.clone(), listener.clone());
        let thread = thread::Builder::new().name("door".into()).stack_size(STACK_BYTES);
        thread.spawn(move || door.attend(&attended)).map_err(cannot)?;
        self.listeners.push((port, listener));
        Ok(port)
    }

    fn connect(&mut self, host: &str, port: u16) -> Result<PeerId, ProcessError> {
        let mut why = "the name has no address".to_string();
        for address in self.address_of(host, port)? {
            let shaken = TcpStream::connect_timeout(&address, Duration::from_nanos(DIAL_NS_MAX))
                .and_then(|stream| greet(&stream, &self.secret, &self.own).map(|name| (stream, name)));
            match shaken {
                Ok((stream, name)) => {
                    let name = format!("{name}:{port}");
                    let cannot = |error: io::Error| error.to_string();
                    match self.join(stream, name).map_err(cannot) {
                        Ok(peer) => return Ok(peer),
                        Err(error) => why = error,
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

    fn send(&mut self, peer: PeerId, letter: Letter) -> Result<(), ProcessError> {
        let (kind, size_bytes) = (letter.kind.to_string(), letter.payload.len() as u64);
        if size_bytes > LETTER_BYTES_MAX || kind.len() > KIND_BYTES_MAX {
            return Err(ProcessError::TooLarge { kind, size_bytes, limit: LETTER_BYTES_MAX });
        }
        // What is written to who has gone vanishes; the system says so with the next write only.
        if self.is_hung_up(peer) {
            let gone = self.has_closed(peer);
            self.read_to_end(peer, &gone);
        }
        let head = frame::head(&letter);
        let mut sent = 0;
        let total = head.len() + letter.payload.len();
        while sent < total {
            let Some(connection) = self.connections.get_mut(&peer) else {
                return Err(self.closed(peer));
            };
            let written = match sent < head.len() {
                true => connection.stream.write_vectored(&[IoSlice::new(&head[sent..]), IoSlice::new(&letter.payload)]),
                false => connection.stream.write(&letter.payload[sent - head.len()..]),
            };
            match written {
                Ok(length) => sent += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Two that send to each other must both read meanwhile.
                Err(error) if error.kind() == ErrorKind::WouldBlock => drop(self.wait(Some(peer), None)),
                Err(error) => {
                    let why = self.why(peer, &error);
                    self.read_to_end(peer, &why);
                    return Err(self.closed(peer));
                }
            }
        }
        self.patience.sent(size_bytes);
        self.spares.put(letter.payload);
        Ok(())
    }

    fn spare(&mut self) -> Vec<u8> {
        self.spares.take_last()
    }

    fn keep(&mut self, payload: Vec<u8>) {
        self.spares.put(payload);
    }

    fn receive(&mut self, until: Option<Time>) -> Result<Option<Incoming>, ProcessError> {
        loop {
            if let Some(incoming) = self.inbox.pop_front() {
                return Ok(Some(incoming));
            }
            if !self.wait(None, until) {
                return Ok(None);
            }
        }
    }

    fn close(&mut self, peer: PeerId) {
        self.leave(peer);
    }

    fn is_closed(&self, peer: PeerId) -> bool {
        !self.connections.contains_key(&peer) && !self.inbox.iter().any(|incoming| incoming.peer() == peer)
    }

    fn why_closed(&self, peer: PeerId) -> String {
        self.ends.get(&peer).cloned().unwrap_or_else(|| "it was closed here".into())
    }

    fn describe(&self, peer: PeerId) -> String {
        self.names.get(&peer).cloned().unwrap_or_else(|| "nobody".into())
    }

    fn sleep_until(&mut self, at: Time) -> Result<(), ProcessError> {
        thread::sleep(Duration::from_nanos(at.since(self.now())));
        Ok(())
    }

    fn compute(&mut self, _: f64) -> Result<(), ProcessError> {
        Ok(())
    }

    fn computed(&mut self, _: &str, _: u64) -> Result<(), ProcessError> {
        Ok(())
    }

    fn log(&mut self, level: Level, category: &str, text: &str) {
        let (ns, spec) = (self.now().0, &self.config.spec);
        let seconds = ns as f64 / 1e9;
        gridloom_core::say!("{seconds:.6} {level} [{category}] {}@{}: {text}", spec.function, spec.host);
    }

    fn is_simulated(&self) -> bool {
        false
    }
}

impl Drop for NetProcess {
    fn drop(&mut self) {
        self.door.is_shut.store(true, Ordering::Release);
        for (_, listener) in &self.listeners {
            // Ends the wait of the thread at the door.
            let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
        }
        let peers: Vec<PeerId> = self.connections.keys().copied().collect();
        for peer in peers {
            self.leave(peer);
        }
        self.linger(0);
    }
}

/// What was sent, its end included, and not taken by the other side's system; nothing if the connection is broken.
fn unsent_bytes(stream: &TcpStream) -> u64 {
    let (fd, mut bytes, mut state): (_, libc::c_int, u8) = (stream.as_raw_fd(), 0, 0);
    let mut length: libc::socklen_t = 1;
    // SAFETY: the option begins with the state, one byte, of which no more is asked for; the descriptor is open as long as
    // the stream.
    let told =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut state).cast(), &raw mut length) };
    if told != 0 || !UNSENT_STATES.contains(&state) {
        return 0;
    }
    // SAFETY: the request writes one int, and the descriptor is open as above.
    let told = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    if told == 0 { u64::try_from(bytes).unwrap_or_default() } else { 0 }
}

/// States of a TCP connection in which its end may still be on its way: established, close-wait, fin-wait-1, last-ack,
/// closing. One that was reset is in none of them, whatever it had to send.
const UNSENT_STATES: [u8; 5] = [1, 8, 4, 9, 11];

impl std::fmt::Debug for NetProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetProcess").field("spec", &self.config.spec).finish_non_exhaustive()
    }
}
