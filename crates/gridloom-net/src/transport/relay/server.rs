//! The relay: one loop for registered nodes and forwarded connections, and a thread for each connection in the handshake.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gridloom_base::NodeId;
use gridloom_base::address::RelayTarget;
use gridloom_keys::{Certificate, Role};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use rustls::ServerConfig;

use super::forwarding::{Forwarded, Pipes, Progress};
use super::members::{Member, Members};
use super::protocol::{self, ConnectionToken, Reply, Request, VERSION};
use super::{CONNECTIONS_MAX, CONNECTIONS_OF_ONE_MAX, HANDSHAKES_MAX, PENDING_AT_ONE_MAX, SET_UP_TIME};
use crate::descriptors::raise_descriptor_limit;
use crate::identity::{Credentials, Keys, id_of, random};
use crate::threads::{self, STACK_BYTES};
use crate::transport::BACKLOG;
use crate::transport::shared::prepare_blocking;
use crate::transport::tls::TlsStream;

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST: usize = 2;
/// Interval of the checks for members that are gone and connections that are late.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of connections that are accepted in one turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Pause after the system had no descriptor for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A connection after its handshake.
enum Arrival {
    Member(Box<Member>),
    Dialler(Dialler),
    Acceptor { socket: TcpStream, token: ConnectionToken, certificate: Box<Certificate> },
}

/// The number of a handshake that has ended, and its outcome.
type Handshaken = (u64, io::Result<Arrival>);

/// A node that waits to be connected to another.
struct Dialler {
    stream: TlsStream<TcpStream>,
    target: RelayTarget,
    certificate: Box<Certificate>,
}

/// A connection that the other node has not taken yet.
struct Pending {
    dialler: Dialler,
    /// Token of the node that is asked to take it.
    member: usize,
    deadline: Instant,
}

/// A forwarded connection and the certificates of both nodes.
struct Connection {
    forwarded: Forwarded,
    certificates: [Box<Certificate>; 2],
}

/// Current load of a relay, and its total traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayStatus {
    /// Number of registered nodes.
    pub nodes: usize,
    /// Number of connections that are being forwarded.
    pub connections: usize,
    /// Number of bytes that were forwarded since the start, in both directions.
    pub forwarded_bytes: u64,
}

/// Ends a relay from another thread, and shows what it does.
#[derive(Clone)]
pub struct RelayHandle {
    waker: Arc<Waker>,
    has_ended: Arc<AtomicBool>,
    status: Arc<Mutex<RelayStatus>>,
}

impl RelayHandle {
    pub fn stop(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // Fails only if the relay has ended.
        let _ = self.waker.wake();
    }

    pub fn status(&self) -> RelayStatus {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A relay. See the [module](super).
pub struct Relay {
    poll: Poll,
    listener: TcpListener,
    address: SocketAddr,
    credentials: Credentials,
    tls: Arc<ServerConfig>,
    members: Members,
    pending: BTreeMap<ConnectionToken, Pending>,
    /// Connections by the token of the first socket; the second socket has the next token.
    connections: BTreeMap<usize, Connection>,
    pipes: Pipes,
    /// Connections with more to forward.
    busy: BTreeSet<usize>,
    /// Connections in the handshake. A smaller number is an older connection.
    handshaking: BTreeMap<u64, TcpStream>,
    handshakes: u64,
    next_token: usize,
    accept_again: Option<Instant>,
    arrivals: (Sender<Handshaken>, Receiver<Handshaken>),
    handle: RelayHandle,
    /// Bytes of connections that have ended.
    bytes_before: u64,
}

impl Relay {
    /// Listens on an address. The keys must be those of a relay.
    ///
    /// # Errors
    /// If there are no such keys, or the address cannot be used.
    pub fn bind(listen: SocketAddr, keys: Keys) -> io::Result<Relay> {
        match keys.identity() {
            Some(identity) if identity.role() == Role::Relay => {}
            Some(identity) => {
                let why = format!("the certificate of the {identity} does not allow it to be a relay");
                return Err(io::Error::new(ErrorKind::PermissionDenied, why));
            }
            None => {
                let why = format!("a relay needs keys: {}", keys.why_missing().unwrap_or_default());
                return Err(io::Error::new(ErrorKind::NotFound, why));
            }
        }
        raise_descriptor_limit();
        let mut listener = TcpListener::bind(listen).map_err(|error| {
            let remedy = match error.kind() {
                ErrorKind::PermissionDenied if listen.port() < 1024 => {
                    "; ports below 1024 need root or the capability CAP_NET_BIND_SERVICE: choose another with --listen"
                }
                ErrorKind::AddrInUse => "; another program listens there: choose another port with --listen",
                _ => "",
            };
            io::Error::new(error.kind(), format!("cannot listen on {listen}: {error}{remedy}"))
        })?;
        rustix::net::listen(&listener, BACKLOG)?;
        let (poll, address) = (Poll::new()?, listener.local_addr()?);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let credentials = Credentials::new(keys)?;
        let tls = credentials.relay_config();
        let handle = RelayHandle { waker, has_ended: Arc::default(), status: Arc::default() };
        Ok(Relay {
            poll,
            listener,
            address,
            credentials,
            tls,
            members: Members::default(),
            pending: BTreeMap::new(),
            connections: BTreeMap::new(),
            pipes: Pipes::default(),
            busy: BTreeSet::new(),
            handshaking: BTreeMap::new(),
            handshakes: 0,
            next_token: FIRST,
            accept_again: None,
            arrivals: channel(),
            handle,
            bytes_before: 0,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn handle(&self) -> RelayHandle {
        self.handle.clone()
    }

    /// Serves nodes until the relay is stopped.
    ///
    /// # Errors
    /// If the system does not report events.
    pub fn run(mut self) -> io::Result<()> {
        ignore_sigpipe();
        let mut events = Events::with_capacity(256);
        let mut check_at = Instant::now() + CHECK_INTERVAL;
        while !self.handle.has_ended.load(Ordering::Relaxed) {
            let now = Instant::now();
            let until = self.accept_again.map_or(check_at, |at| at.min(check_at));
            let limit = if self.busy.is_empty() { until.saturating_duration_since(now) } else { Duration::ZERO };
            match self.poll.poll(&mut events, Some(limit)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let now = Instant::now();
            for token in std::mem::take(&mut self.busy) {
                self.forward(token);
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(now),
                    WAKER => self.take_arrivals(now),
                    Token(token) => self.on_ready(token, now),
                }
            }
            if self.accept_again.is_some_and(|at| at <= now) {
                self.accept(now);
            }
            if now >= check_at {
                check_at = now + CHECK_INTERVAL;
                self.check(now);
            }
        }
        self.publish_status();
        self.handshaking.values().for_each(|socket| _ = socket.shutdown(Shutdown::Both));
        Ok(())
    }

    // ---- handshakes

    fn accept(&mut self, now: Instant) {
        self.accept_again = None;
        // Between two turns, the threads of replaced connections end.
        for _ in 0..ACCEPTS_PER_TURN {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => TcpStream::from(socket),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::warn!(target: "gridloom.relay", "a connection could not be accepted: {error}");
                    self.accept_again = Some(now + ACCEPT_PAUSE);
                    return;
                }
            };
            if self.handshaking.len() >= HANDSHAKES_MAX {
                // Some have ended already.
                self.take_arrivals(now);
            }
            if self.handshaking.len() >= HANDSHAKES_MAX
                && let Some((_, oldest)) = self.handshaking.pop_first()
            {
                // Its thread reports the failure.
                let _ = oldest.shutdown(Shutdown::Both);
            }
            if let Err(error) = self.begin_handshake(socket) {
                tracing::warn!(target: "gridloom.relay", "a connection could not be accepted: {error}");
            }
        }
        self.accept_again = Some(now);
    }

    fn begin_handshake(&mut self, socket: TcpStream) -> io::Result<()> {
        prepare_blocking(&socket)?;
        self.handshakes += 1;
        let (number, closer) = (self.handshakes, socket.try_clone()?);
        let (credentials, tls) = (self.credentials.clone(), self.tls.clone());
        let (sender, waker) = (self.arrivals.0.clone(), self.handle.waker.clone());
        let thread = thread::Builder::new().name("handshake".into()).stack_size(STACK_BYTES * 4);
        threads::spawn(thread, move || {
            let arrival = greet(socket, &credentials, tls);
            // The relay may have ended.
            let _ = sender.send((number, arrival));
            let _ = waker.wake();
        })?;
        self.handshaking.insert(number, closer);
        Ok(())
    }

    fn take_arrivals(&mut self, now: Instant) {
        while let Ok((number, arrival)) = self.arrivals.1.try_recv() {
            self.handshaking.remove(&number);
            match arrival {
                Ok(Arrival::Member(member)) => self.register(*member),
                Ok(Arrival::Dialler(dialler)) => self.request(dialler, now),
                Ok(Arrival::Acceptor { socket, token, certificate }) => self.connect(socket, token, certificate),
                Err(error) => tracing::debug!(target: "gridloom.relay", "a connection was turned away: {error}"),
            }
        }
    }

    // ---- members

    fn register(&mut self, mut member: Member) {
        if self.members.is_full() {
            let _ = member.send(&Reply::refused("the relay has reached its limit of registered nodes"));
            return;
        }
        let token = self.next_token;
        self.next_token += 2;
        let interests = Interest::READABLE | Interest::WRITABLE;
        let added = self.poll.registry().register(member.socket_mut(), Token(token), interests);
        if added.is_err() || member.send(&Reply::Registered).is_err() {
            return;
        }
        tracing::info!(target: "gridloom.relay", node = %member.node, "registered: {}", member.certificate.identity);
        if let Some(mut before) = self.members.add(token, member) {
            let _ = self.poll.registry().deregister(before.socket_mut());
        }
        self.ready_member(token, Instant::now());
    }

    fn ready_member(&mut self, token: usize, now: Instant) {
        let Some(member) = self.members.get_mut(token) else { return };
        let handled = member.on_ready(now).map_err(|error| error.to_string());
        let new = member.take_revocations();
        let added = if new.is_empty() { Ok(()) } else { self.credentials.add_signed_revocations(&new) };
        if let Err(why) = handled.and(added) {
            self.lose_member(token, &why);
        }
    }

    fn lose_member(&mut self, token: usize, why: &str) {
        if let Some(mut member) = self.members.remove(token) {
            tracing::info!(target: "gridloom.relay", node = %member.node, "a registration has ended: {why}");
            // Closing the socket deregisters it in any case.
            let _ = self.poll.registry().deregister(member.socket_mut());
        }
    }

    // ---- connections

    /// Asks the target of a dialler to take the connection.
    fn request(&mut self, mut dialler: Dialler, now: Instant) {
        let identity = &dialler.certificate.identity;
        let forwarded = self.connections.values().map(|connection| &connection.certificates[0]);
        let all = self.pending.values().map(|pending| &pending.dialler.certificate).chain(forwarded);
        let of_dialler = all.filter(|certificate| certificate.identity == *identity).count();
        let target = self.members.find(&dialler.target);
        let at_target = self.pending.values().filter(|pending| Some(pending.member) == target).count();
        let refusal = match target {
            _ if self.connections.len() + self.pending.len() >= CONNECTIONS_MAX => {
                "the relay has reached its limit of connections"
            }
            _ if of_dialler >= CONNECTIONS_OF_ONE_MAX => {
                "the relay has reached its limit of connections of one user or node"
            }
            Some(_) if at_target >= PENDING_AT_ONE_MAX => "the node has too many connections to take at a time",
            None => "the node is not registered with the relay",
            Some(token) => match (random::<16>(), self.members.get_mut(token)) {
                (Ok(number), Some(member)) => match member.send(&Reply::Incoming { token: number }) {
                    Ok(()) => {
                        let pending = Pending { dialler, member: token, deadline: now + SET_UP_TIME };
                        self.pending.insert(number, pending);
                        return;
                    }
                    Err(error) => {
                        self.lose_member(token, &error.to_string());
                        "the node has just lost its registration with the relay"
                    }
                },
                _ => "the relay has no random bytes",
            },
        };
        dialler.refuse(refusal);
    }

    /// Connects the two ends of a connection.
    fn connect(&mut self, acceptor: TcpStream, token: ConnectionToken, certificate: Box<Certificate>) {
        let Some(mut pending) = self.pending.remove(&token) else { return };
        let is_target = self
            .members
            .get_mut(pending.member)
            .is_some_and(|member| member.certificate.identity == certificate.identity);
        if !is_target {
            return pending.dialler.refuse("the node does not answer");
        }
        let dialler = pending.dialler;
        let Dialler { mut stream, certificate: of_dialler, .. } = dialler;
        let connected = protocol::write(&mut stream, &Reply::Connected).and_then(|()| {
            let sockets = [stream.into_plain()?, acceptor];
            for socket in &sockets {
                socket.set_nonblocking(true)?;
            }
            let mut sockets = sockets.map(mio::net::TcpStream::from_std);
            let token = self.next_token;
            self.next_token += 2;
            for (index, socket) in sockets.iter_mut().enumerate() {
                let interests = Interest::READABLE | Interest::WRITABLE;
                self.poll.registry().register(socket, Token(token + index), interests)?;
            }
            let certificates = [of_dialler, certificate];
            tracing::debug!(
                target: "gridloom.relay",
                "forwarding a connection of the {} to the {}", certificates[0].identity, certificates[1].identity
            );
            self.connections.insert(token, Connection { forwarded: Forwarded::new(sockets), certificates });
            self.busy.insert(token);
            Ok(())
        });
        if let Err(error) = connected {
            tracing::debug!(target: "gridloom.relay", "two nodes could not be connected: {error}");
        }
    }

    fn on_ready(&mut self, token: usize, now: Instant) {
        match self.members.get_mut(token) {
            Some(_) => self.ready_member(token, now),
            // The second socket of a connection has an odd token, because all begin with an even one.
            None => self.forward(token & !1),
        }
    }

    fn forward(&mut self, token: usize) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        match connection.forwarded.forward(&mut self.pipes) {
            Ok(Progress::Waits) => {}
            Ok(Progress::HasMore) => {
                self.busy.insert(token);
            }
            Ok(Progress::Ended) | Err(_) => self.close(token),
        }
    }

    fn close(&mut self, token: usize) {
        if let Some(mut connection) = self.connections.remove(&token) {
            self.bytes_before += connection.forwarded.bytes;
            for socket in &mut connection.forwarded.sockets {
                let _ = self.poll.registry().deregister(socket);
            }
        }
    }

    // ---- checks

    fn check(&mut self, now: Instant) {
        let credentials = &self.credentials;
        let gone = self.members.gone(|member| match member.is_silent(now) {
            true => Err("it is silent".into()),
            false => credentials.check_revoked(&member.certificate).map_err(|error| error.why),
        });
        let is_revoked = |connection: &Connection| {
            connection.certificates.iter().any(|certificate| credentials.check_revoked(certificate).is_err())
        };
        let revoked: Vec<usize> =
            self.connections.iter().filter(|(_, one)| is_revoked(one)).map(|(token, _)| *token).collect();
        for (token, why) in gone {
            if let Some(member) = self.members.get_mut(token) {
                // It is lost in any case.
                let _ = member.send(&Reply::refused(&why));
            }
            self.lose_member(token, &why);
        }
        revoked.into_iter().for_each(|token| self.close(token));
        self.publish_status();
        let late: Vec<ConnectionToken> =
            self.pending.iter().filter(|(_, one)| one.deadline <= now).map(|(token, _)| *token).collect();
        for token in late {
            if let Some(mut pending) = self.pending.remove(&token) {
                pending.dialler.refuse("the node does not answer");
            }
        }
    }

    fn publish_status(&self) {
        let forwarded: u64 = self.connections.values().map(|connection| connection.forwarded.bytes).sum();
        let status = RelayStatus {
            nodes: self.members.len(),
            connections: self.connections.len(),
            forwarded_bytes: self.bytes_before + forwarded,
        };
        *self.handle.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }
}

impl Dialler {
    fn refuse(&mut self, why: &str) {
        // The socket has room for these few bytes, unless the dialler has closed it.
        let _ = protocol::write(&mut self.stream, &Reply::refused(why));
    }
}

/// Runs the handshake of a new connection: authenticates the peer and reads its request.
fn greet(socket: TcpStream, credentials: &Credentials, tls: Arc<ServerConfig>) -> io::Result<Arrival> {
    let mut stream = TlsStream::accept_with(socket, tls)?;
    stream.set_blocking();
    let (certificate, request) = stream.within(SET_UP_TIME, |stream| {
        stream.complete_handshake()?;
        let verified = credentials.peer(stream.peer_certificates());
        // The request is read in any case: closing a socket with unread bytes may destroy the reason on its way.
        let request = protocol::read::<Request>(stream)?;
        match verified {
            Ok(certificate) => Ok((Box::new(certificate), request)),
            Err(error) => {
                let written = protocol::write(stream, &Reply::refused(&error.why));
                written.and(Err(io::Error::other(error)))
            }
        }
    })?;
    let arrival = admit(&certificate, &request);
    match (arrival, request) {
        (Ok(Admitted::Member(node, is_agent)), _) => {
            stream.get().set_nonblocking(true)?;
            stream.set_nonblocking();
            let stream = stream.map(mio::net::TcpStream::from_std);
            Ok(Arrival::Member(Box::new(Member::new(stream, (node, is_agent), *certificate, Instant::now()))))
        }
        (Ok(Admitted::Dialler(target)), _) => Ok(Arrival::Dialler(Dialler { stream, target, certificate })),
        (Ok(Admitted::Acceptor(token)), _) => {
            Ok(Arrival::Acceptor { socket: stream.into_plain()?, token, certificate })
        }
        (Err(why), _) => {
            let written = stream.within(SET_UP_TIME, |stream| protocol::write(stream, &Reply::refused(&why)));
            written.and(Err(io::Error::other(format!("{}: {why}", certificate.identity))))
        }
    }
}

/// Purpose of a connection.
enum Admitted {
    Member(NodeId, bool),
    Dialler(RelayTarget),
    Acceptor(ConnectionToken),
}

/// Checks a request of the holder of a certificate.
fn admit(certificate: &Certificate, request: &Request) -> Result<Admitted, String> {
    let check_version = |version: &u16| match *version == VERSION {
        true => Ok(()),
        false => Err(format!("the relay supports version {VERSION} of its protocol, the node {version}")),
    };
    let identity = &certificate.identity;
    match request {
        Request::Register { version, number, is_agent } => {
            check_version(version)?;
            let is_allowed = match identity.role() {
                Role::Agent => true,
                Role::Server => !is_agent,
                Role::Client | Role::Functions | Role::Administrator | Role::Relay => false,
            };
            match is_allowed {
                true => Ok(Admitted::Member(id_of(Some(identity), number), *is_agent)),
                false => Err(format!("the certificate of the {identity} does not allow it to register here")),
            }
        }
        Request::Connect { version, target } => {
            check_version(version)?;
            target.parse().map(Admitted::Dialler).map_err(|error| format!("{error}"))
        }
        Request::Accept { token } => Ok(Admitted::Acceptor(*token)),
        Request::Ping => Err("only a registered node may send a ping".into()),
        Request::Revoked { .. } => Err("only a registered node may send revocations".into()),
    }
}

/// Lets writes to closed sockets fail instead of ending the program.
fn ignore_sigpipe() {
    // SAFETY: sets the disposition of a signal to one without a handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
