//! The thread that sends large data to one peer (see [`super::outgoing`]).
//!
//! It uses the best method that works: shared memory if both nodes run on one host, otherwise a TCP connection that it
//! dials, otherwise one that it asks the peer to dial.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Receiver as Channel;
use std::thread;
use std::time::{Duration, Instant};

use gridloom_base::address::{NodeAddress, SEPARATOR};
use gridloom_base::limits::DIAL_NS_MAX;
use gridloom_base::{DatumId, NodeId};
use gridloom_channel::WireVersion;

use super::bulk::{digest_of_incoming, may_resume_at};
use super::emulated_sites::share_memory;
use super::handshake::{HANDSHAKE_NS_MAX, Handshake, HandshakeError, Hello, Pass, Purpose, Verdict, run_within};
use super::local::{self, GrantHeader, send_grant};
use super::notice::{BulkConnection, Notice};
use super::paced::Pacer;
use super::reach::Unreachable;
use super::relay;
use super::shared::{Closer, LANES, Opened, Route, Shared, prepare_blocking};
use super::sink::{Sink, broken_off};
use super::stripes::{self, Stripe, Stripes};
use super::tls::{PeerName, TlsStream};
use super::{Cargo, CargoHeader, Resume};
use crate::filling::PartialFill;
use crate::identity::Credentials;
use crate::payload::Payload;
use crate::segment::Segment;
use crate::store::Store;

/// Maximum number of attempts to open a stream before a datum is given up, with a pause between them: the peer may not
/// have received the last frame of the control handshake yet.
const OPEN_ATTEMPTS: u32 = 4;
/// Maximum time of all attempts together. Then the failure is reported to those who wait for the datum.
const OPEN_MAX: Duration = Duration::from_secs(15);
const OPEN_PAUSE: Duration = Duration::from_millis(25);
/// Maximum time of a direct dial to a node that has other addresses.
const DIRECT_LIMIT: Duration = Duration::from_secs(1);
/// The same if the address did not answer lately.
const RETRY_LIMIT: Duration = Duration::from_millis(250);
/// Maximum time of the handshake with a node that has other addresses: a program may listen there that is no node. It
/// takes three round trips, so links over satellites need almost 2 s.
const GREET_LIMIT: Duration = Duration::from_secs(2);
/// Maximum time in which a peer that can also be reached through a relay opens a connection that it was asked for.
const ASK_LIMIT: Duration = Duration::from_secs(2);

/// A datum or probe to send.
pub(super) struct Job {
    pub(super) cargo: Cargo,
    pub(super) size_bytes: u64,
    /// Bytes that the peer reports to have already.
    pub(super) had_bytes: u64,
    pub(super) source: Source,
    /// Time at which it was queued on the lane.
    pub(super) given: Instant,
}

/// The source of the bytes.
pub(super) enum Source {
    Whole(Payload),
    /// Still being received.
    Incoming(Arc<PartialFill>),
    /// A probe, whose bytes are zeros.
    Zeros,
}

impl Job {
    /// Reports whether the datum is still being received, so that it can be sent only as fast as it arrives.
    fn is_incoming(&self) -> bool {
        matches!(&self.source, Source::Incoming(coming) if coming.is_in_progress())
    }

    /// Returns where to resume if the peer already has part of the datum. Takes as long as hashing that part.
    fn resume(&self) -> Option<Resume> {
        let from_byte = Some(self.had_bytes).filter(|from_byte| may_resume_at(*from_byte, self.size_bytes))?;
        let digest = match &self.source {
            // Without a digest, the datum is sent from its beginning, and an error is reported then.
            Source::Whole(payload) => payload.digest_of_part(0..from_byte as usize).ok()?,
            Source::Incoming(coming) => digest_of_incoming(coming, from_byte)?,
            Source::Zeros => return None,
        };
        Some(Resume { from_byte, digest })
    }
}

/// An open stream.
pub(super) enum Stream {
    Tcp(Stripes),
    Local(UnixStream),
}

/// The state of the thread.
pub(super) struct Thread {
    pub(super) route: Route,
    pub(super) shared: Arc<Shared>,
    pub(super) store: Arc<Store>,
    pub(super) awaited: Channel<Opened>,
    pub(super) sharing: bool,
    /// Present for a peer in another site.
    pub(super) paced: Option<Pacer>,
    pub(super) stream: Option<(u64, Stream)>,
    /// Last stream number and last datum number. The numbers of each lane leave the same remainder.
    pub(super) streams: u64,
    pub(super) sent: u64,
}

impl Thread {
    pub(super) fn run(mut self, queue: Channel<Job>) {
        let mut waiting = VecDeque::new();
        while let Some(job) = next_job(&queue, &mut waiting) {
            if self.shared.lock().cancelled {
                return;
            }
            self.sent += LANES;
            let datum = job.cargo.datum();
            if let Err(why) = self.send(job, datum)
                && let Some(datum) = datum
            {
                self.shared.inbox.post(Notice::SendFailed { link: self.shared.link, datum, why });
            }
            self.shared.lock().jobs -= 1;
        }
    }

    /// Returns `Ok` even if the stream broke: the peer then reports it, and the list shows which data were lost.
    fn send(&mut self, job: Job, datum: Option<DatumId>) -> Result<(), String> {
        if let Source::Incoming(coming) = &job.source
            && !coming.is_in_progress()
            && coming.whole().is_none()
        {
            return Err(broken_off().to_string());
        }
        if let Source::Whole(payload) = &job.source {
            payload.check_intact().map_err(|error| self.damaged(&error))?;
        }
        if let Some(paced) = &mut self.paced {
            paced.hold(job.given).map_err(|error| error.to_string())?;
        }
        // Shared memory is always passed as a whole.
        let goes_on = if self.sharing { None } else { job.resume() };
        loop {
            let number = match &self.stream {
                Some((number, _)) => *number,
                None => self.open()?,
            };
            if !self.record(number, datum) {
                self.stream = None;
                continue;
            }
            let mut header =
                CargoHeader { serial: self.sent, cargo: job.cargo, size_bytes: job.size_bytes, resume: None };
            let done = match &mut self.stream.as_mut().expect("opened above").1 {
                Stream::Tcp(stream) => {
                    header.resume = goes_on;
                    let is_near = share_memory(&self.route.own.host, &self.route.peer.host);
                    let uploads = (!is_near).then(|| self.store.uploads());
                    let sink = Sink::new(stream)
                        .within(uploads)
                        .paced_by(self.paced.as_mut())
                        .with_wire_version(self.route.wire_version);
                    let (mut sink, moving) = (sink, self.store.transfers());
                    match &job.source {
                        Source::Whole(payload) => sink.datum(&header, payload, moving),
                        Source::Incoming(coming) => sink.forward(&header, coming, moving),
                        Source::Zeros => sink.probe(&header),
                    }
                }
                Stream::Local(stream) => match granted(&self.store, &header, &job.source, datum) {
                    Ok((segment, offset)) => {
                        grant((stream, self.route.wire_version), &self.shared, header, segment, offset)
                    }
                    Err(error) => {
                        self.shared.lock().in_flight.retain(|(_, serial, _)| *serial != header.serial);
                        return Err(format!("it cannot be passed in shared memory: {error}"));
                    }
                },
            };
            if done.is_err()
                && let Some((number, _)) = self.stream.take()
                && let Some((_, closer)) = self.shared.lock().current.take_if(|(current, _)| *current == number)
            {
                closer.close();
            }
            if done.is_err()
                && let Source::Whole(payload) = &job.source
                && let Err(error) = payload.check_intact()
            {
                let sent = self.sent;
                self.shared.lock().in_flight.retain(|(_, serial, _)| *serial != sent);
                return Err(self.damaged(&error));
            }
            return Ok(());
        }
    }

    /// Describes a datum on disk that cannot be read.
    fn damaged(&self, error: &io::Error) -> String {
        format!("on server '{}', {error}", self.route.own.name)
    }

    /// Adds the datum about to be sent to the list; `false` if the stream has ended meanwhile.
    fn record(&self, stream: u64, datum: Option<DatumId>) -> bool {
        let mut state = self.shared.lock();
        let current = state.current.as_ref().is_some_and(|(current, _)| *current == stream);
        if current {
            state.in_flight.push_back((stream, self.sent, datum));
        }
        current
    }

    fn open(&mut self) -> Result<u64, String> {
        let mut why = String::new();
        let until = Instant::now() + OPEN_MAX;
        for attempt in 0..OPEN_ATTEMPTS {
            if attempt > 0 {
                thread::sleep(OPEN_PAUSE * attempt);
            }
            if Instant::now() >= until {
                why += &format!(" ({attempt} attempts took {} s)", OPEN_MAX.as_secs());
                break;
            }
            self.streams += LANES;
            // If several connections cannot be opened, a single one may succeed.
            let stripes = if attempt == 0 { self.route.stripes } else { Some(1) };
            let stream = match self.open_once((self.streams, stripes), attempt + 1 == OPEN_ATTEMPTS, until) {
                Ok(stream) => stream,
                Err(error) => {
                    why = error.to_string();
                    continue;
                }
            };
            let closer = match &stream {
                Stream::Tcp(stripes) => stripes.handles().map(Closer::Tcp),
                Stream::Local(stream) => stream.try_clone().map(Closer::Unix),
            };
            let closer = closer.map_err(|error| error.to_string())?;
            let mut state = self.shared.lock();
            if state.cancelled {
                return Err("the peer has disconnected".into());
            }
            state.current = Some((self.streams, closer));
            self.stream = Some((self.streams, stream));
            return Ok(self.streams);
        }
        Err(format!(
            "cannot open a bulk connection to {} at '{}': {why}",
            self.route.peer.name, self.route.peer.address
        ))
    }

    fn open_once(&mut self, (number, stripes): (u64, Option<u8>), last: bool, until: Instant) -> io::Result<Stream> {
        if self.sharing {
            match self.open_local(number) {
                Ok(stream) => return Ok(Stream::Local(stream)),
                // The peer may not know this node yet.
                Err(error) if !last && is_refusal(&error) => return Err(error),
                // The socket does not exist, or belongs to another user.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied
                    ) =>
                {
                    self.sharing = false;
                }
                // The peer has no capacity, or does not reply. TCP works wherever control connections do; the next
                // stream tries again.
                Err(_) => {}
            }
        }
        self.open_tcp((number, stripes), until)
    }

    /// Opens a stream over TCP: directly, whichever side can dial the other, and otherwise through a relay.
    fn open_tcp(&self, (number, stripes): (u64, Option<u8>), until: Instant) -> io::Result<Stream> {
        let parsed = |address: &str| address.parse::<NodeAddress>().unwrap_or_default();
        let (own, peer) = (parsed(&self.route.own.address), parsed(&self.route.peer.address));
        let mut failed = io::Error::other("neither side can dial the other");
        if !peer.direct.is_empty() {
            match self.dial(number, stripes, Paths::Direct, until) {
                Ok(stripes) => return Ok(Stream::Tcp(stripes)),
                Err(error) => failed = error,
            }
        }
        // The peer is asked first if it may be able to dial this node directly, or if it has no relay.
        let asks_first = !own.direct.is_empty() || peer.relayed.is_empty();
        if asks_first && !self.route.own.address.is_empty() {
            let until = if peer.relayed.is_empty() { until } else { until.min(Instant::now() + ASK_LIMIT) };
            match self.request_stream(number, until) {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
        if !peer.relayed.is_empty() {
            match self.dial(number, stripes, Paths::Relayed, until) {
                Ok(stripes) => return Ok(Stream::Tcp(stripes)),
                Err(error) => failed = error,
            }
        }
        // The relay of the peer may be down, but not that of this node.
        if !asks_first && !self.route.own.address.is_empty() {
            return self.request_stream(number, until);
        }
        Err(failed)
    }

    /// Dials the connections of a stream.
    fn dial(&self, number: u64, stripes: Option<u8>, paths: Paths, until: Instant) -> io::Result<Stripes> {
        let Route { peer, credentials, pass, own, unreachable, .. } = &self.route;
        // The peer is asked to dial, or a relay is used.
        let has_alternative = paths == Paths::Direct && (!own.address.is_empty() || peer.address.contains(SEPARATOR));
        let to = Destination { peer: peer.node, address: &peer.address, paths, has_alternative };
        let credentials = (credentials, &**unreachable);
        let mut own = own.clone();
        (own.purpose, own.stream) = (Purpose::BulkSend, number);
        let (first, of) =
            dial_bulk(to, credentials, pass, own.clone(), until, |socket| stripes::count(stripes, socket))?;
        // A dial takes three round trips, so all are made at the same time.
        let further = thread::scope(|scope| {
            let dial = |number| {
                let own = Hello { stripe: Stripe { number, of }, ..own.clone() };
                scope.spawn(move || dial_bulk(to, credentials, pass, own, until, |_| of))
            };
            let dialling: Vec<_> = (1..of).map(dial).collect();
            dialling.into_iter().map(|one| one.join().expect("it does not panic")).collect::<Vec<_>>()
        });
        let further = further.into_iter().map(|one| Ok(one?.0.socket));
        let sockets =
            [Ok(first.socket)].into_iter().chain(further).collect::<io::Result<Vec<TlsStream<TcpStream>>>>()?;
        Ok(Stripes::new(sockets))
    }

    /// Asks the peer to open this stream, and waits for it.
    fn request_stream(&self, number: u64, until: Instant) -> io::Result<Stream> {
        self.shared.lock().requested = Some(number);
        self.shared.inbox.post(Notice::RequestStream { link: self.shared.link, stream: number });
        let limit = Duration::from_nanos(DIAL_NS_MAX + HANDSHAKE_NS_MAX);
        let limit = limit.min(until.saturating_duration_since(Instant::now()));
        let answer = self.awaited.recv_timeout(limit).ok().or_else(|| {
            // From here on no reply is accepted. One that arrived just before is taken, so that it does not remain for
            // the next request.
            self.shared.lock().requested = None;
            self.awaited.try_recv().ok()
        });
        match answer {
            Some((_, socket)) => socket.map(|socket| Stream::Tcp(socket.into())),
            None => Err(io::Error::new(ErrorKind::TimedOut, "the peer did not open a connection")),
        }
    }

    fn open_local(&self, number: u64) -> io::Result<UnixStream> {
        let sockets = self.route.sockets.as_ref().ok_or(ErrorKind::NotFound)?;
        let mut stream = sockets.connect_node(self.route.peer.node)?;
        local::dial(&mut stream, self.route.own.node, self.route.peer.node, &self.route.pass, number)?;
        Ok(stream)
    }
}

/// Reports whether the peer replied with a refusal.
fn is_refusal(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<HandshakeError>());
    matches!(inner, Some(HandshakeError::Refused(_)))
}

/// Returns the time left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    let left = left.min(Duration::from_nanos(HANDSHAKE_NS_MAX));
    if left.is_zero() { Err(io::Error::new(ErrorKind::TimedOut, "the time limit was exceeded")) } else { Ok(left) }
}

/// The paths on which a bulk connection may be dialled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paths {
    Direct,
    Relayed,
    /// Directly, and through a relay if that fails.
    All,
}

/// The peer of a bulk connection.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    pub peer: NodeId,
    pub address: &'a str,
    pub paths: Paths,
    /// Another path will be tried if no address answers soon.
    pub has_alternative: bool,
}

/// Dials a bulk connection, for either direction of the data, until the deadline. `of` returns the number of
/// connections of the stream. Each of them starts with a different address of those that the peer's name resolves to.
///
/// # Errors
/// If the peer does not reply, or refuses.
pub fn dial_bulk(
    to: Destination<'_>,
    (credentials, unreachable): (&Credentials, &Unreachable),
    pass: &Pass,
    mut own: Hello,
    until: Instant,
    of: impl Fn(&TcpStream) -> u8,
) -> io::Result<(BulkConnection, u8)> {
    own.pass = Some(pass.of(own.node, own.purpose, own.stream));
    let NodeAddress { direct, relayed } = to.address.parse().map_err(io::Error::other)?;
    let mut failed = io::Error::new(ErrorKind::NotFound, "the name has no address");
    let greet = |socket: TcpStream, name: &PeerName, limit: Duration| {
        let mut own = own.clone();
        prepare_blocking(&socket)?;
        own.stripe.of = of(&socket);
        let of = own.stripe.of;
        let (handshake, first) = Handshake::dial(credentials.clone(), own)?;
        let mut stream = TlsStream::dial(socket, &credentials.tls, name)?;
        stream.set_blocking();
        let (hello, _, _) =
            run_within(left(until)?.min(limit), &mut stream, handshake, Some(first), |_| Ok(Verdict::Welcome))?;
        match hello.node == to.peer {
            true => Ok((stream, of)),
            false => Err(io::Error::other(format!("'{}' answers there, but it is a different node", hello.name))),
        }
    };
    if to.paths != Paths::Relayed {
        let (mut addresses, mut unresolved) = (Vec::<SocketAddr>::new(), None);
        for name in &direct {
            match name.to_socket_addrs() {
                Ok(found) => addresses.extend(found),
                Err(error) => unresolved = Some(error),
            }
        }
        if let Some(error) = unresolved.filter(|_| addresses.is_empty()) {
            failed = error;
        }
        let first = usize::from(own.stripe.number) % addresses.len().max(1);
        addresses.rotate_left(first);
        let has_others = to.has_alternative || !relayed.is_empty() || addresses.len() > 1;
        // Those that did not answer lately are tried last, and for a shorter time.
        addresses.sort_by_key(|address| unreachable.has(address));
        for address in addresses {
            let (limit, greet_limit) = match unreachable.has(&address) {
                true => (RETRY_LIMIT, GREET_LIMIT / 4),
                false if has_others => (DIRECT_LIMIT, GREET_LIMIT),
                false => (Duration::from_nanos(DIAL_NS_MAX), Duration::MAX),
            };
            let dialled = TcpStream::connect_timeout(&address, limit.min(left(until)?));
            if dialled.is_err() {
                unreachable.add(address);
            }
            if dialled.is_ok() {
                unreachable.remove(&address);
            }
            match dialled.and_then(|socket| greet(socket, &address.into(), greet_limit)) {
                Ok((socket, of)) => return Ok((BulkConnection { socket, relay: None }, of)),
                Err(error) => {
                    // Another node or program has the address in the network of this node.
                    if has_others {
                        unreachable.add(address);
                    }
                    failed = error;
                }
            }
        }
    }
    if to.paths != Paths::Direct {
        for path in &relayed {
            match relay::dial::connect(path, credentials, left(until)?)
                .and_then(|socket| greet(socket, &path.into(), Duration::MAX))
            {
                Ok((socket, of)) => return Ok((BulkConnection { socket, relay: Some(path.relay.clone()) }, of)),
                Err(error) => failed = error,
            }
        }
    }
    Err(failed)
}

/// Returns the next job. Complete data are sent before data that are still being received, which take as long as they arrive.
fn next_job(queue: &Channel<Job>, waiting: &mut VecDeque<Job>) -> Option<Job> {
    if waiting.is_empty() {
        waiting.push_back(queue.recv().ok()?);
    }
    waiting.extend(queue.try_iter());
    let first = waiting.iter().position(|job| !job.is_incoming()).unwrap_or(0);
    waiting.remove(first)
}

/// Returns the memory to hand over: the memory where the datum is or will be stored, otherwise a copy.
fn granted(
    store: &Store,
    header: &CargoHeader,
    source: &Source,
    datum: Option<DatumId>,
) -> io::Result<(Arc<Segment>, u64)> {
    let came = match source {
        Source::Whole(Payload::Segment { segment, offset, .. }) if !segment.is_on_disk() => {
            return Ok((segment.clone(), *offset));
        }
        Source::Incoming(coming) => {
            let whole = coming.whole().ok_or_else(broken_off)?;
            match &whole {
                Payload::Segment { segment, offset, .. } if !segment.is_on_disk() => {
                    return Ok((segment.clone(), *offset));
                }
                _ => Some(whole),
            }
        }
        Source::Whole(_) | Source::Zeros => None,
    };
    if let Some(datum) = datum
        && let Some((_, segment, offset, size_bytes)) = store.segment_of(&datum)?
        && size_bytes == header.size_bytes
        && !segment.is_on_disk()
    {
        return Ok((segment, offset));
    }
    // A probe, a datum on disk, or one that was dropped after it was queued.
    let mut memory = store.pool().allocate(header.size_bytes)?;
    match (source, &came) {
        (Source::Whole(payload), _) | (_, Some(payload)) => payload.copy_to(memory.bytes_mut())?,
        (Source::Incoming(_) | Source::Zeros, None) => memory.bytes_mut().fill(0),
    }
    Ok((memory.freeze(), 0))
}

fn grant(
    (stream, wire_version): (&mut UnixStream, WireVersion),
    shared: &Shared,
    cargo: CargoHeader,
    segment: Arc<Segment>,
    offset: u64,
) -> io::Result<()> {
    let serial = cargo.serial;
    let header = GrantHeader { cargo, segment: segment.id(), segment_bytes: segment.len(), offset };
    let mut state = shared.lock();
    if state.cancelled {
        return Err(ErrorKind::NotConnected.into());
    }
    state.grants.insert(serial, segment.clone());
    let forgotten = state.forget_grants(shared.grants_max);
    drop(state);
    drop(forgotten);
    send_grant(stream, &header, wire_version, segment.fd()).inspect_err(|_| {
        // The grant may have been sent before the stream broke, so the memory is retired instead of reused.
        segment.retire();
        shared.lock().grants.remove(&serial);
    })
}
