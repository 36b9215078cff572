//! TLS 1.3 over a socket (RFC 8446), by rustls.
//!
//! One type serves the control loop, whose sockets do not block, and the threads for large data, whose sockets do. It
//! uses rustls without its buffers, so that one system call reads or writes many records of 16 KiB.
//!
//! **Guarantees:** after a short read from a socket that does not block, the socket is empty and no complete record is
//! left here, as the channel requires. Not more than [`WAITING_BYTES_MAX`] encrypted bytes wait for the socket.
//!
//! Both ends show certificates of their grid ([`gridloom_keys`]). After the handshake of TLS, [`super::handshake`] checks
//! the peer's certificate once more, because TLS checks nothing when it resumes a session.
//!
//! **Unix sockets** need no encryption: the kernel reports which user is at the other end. There, TLS ends after the
//! handshake ([`TlsStream::end_encryption`]), which has proved the identity of the peer.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::REFUSAL_CHARS_MAX;
use super::deadline::DeadlineGuard;
use super::refusal::{HANDSHAKE_LIMITS, refusal_of_body};
use gridloom_base::address::{RelayPath, RelayTarget};
use gridloom_base::dial::{ConnectionError, ConnectionFault};
use gridloom_channel::Kind;
use gridloom_channel::frame::Decoder;
use gridloom_keys::refusal_of;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{ClientConfig, ServerConfig};
use thiserror::Error;

use crate::identity::TlsConfigs;

/// Plaintext bytes of a record.
const RECORD_BYTES: usize = 16 << 10;
/// Bytes that a record is longer than its plaintext: header, content type and tag.
const OVERHEAD_BYTES: usize = 5 + 1 + 16;
/// Maximum number of encrypted bytes that wait for a socket.
const WAITING_BYTES_MAX: usize = 16 * (RECORD_BYTES + OVERHEAD_BYTES);
/// Size of the buffer for received bytes on a connection that does not block.
const RECEIVE_BYTES: usize = 64 << 10;
/// The same on a connection for large data.
const BULK_RECEIVE_BYTES: usize = WAITING_BYTES_MAX;
/// Size of that buffer during the handshake. Strangers can have many handshakes in progress, and larger records make room for
/// themselves.
const HANDSHAKE_RECEIVE_BYTES: usize = 4 << 10;
/// Maximum number of system calls of one read from a socket that does not block.
const READS_MAX: u32 = 8;
/// Number of unused buffers that a thread keeps.
const SPARES_MAX: usize = 3;

thread_local! {
    /// Buffers that no connection of this thread uses: idle connections hold none.
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Error of a connection whose bytes were changed on the network.
pub(crate) const CORRUPTED: &str = "the received bytes differ from those that were sent";

/// The reason why the received bytes are not those of a peer.
#[derive(Debug, Error)]
enum TlsError {
    #[error("{CORRUPTED}")]
    Corrupted,
    /// One side refuses the other, most often because of its certificate.
    #[error("{0}")]
    Refused(ConnectionError),
    #[error("no TLS 1.3 of a Gridloom node: {0}")]
    Other(rustls::Error),
}

/// Returns the error of a connection whose bytes are not those of its peer.
fn violation(error: rustls::Error) -> io::Error {
    let error = match error {
        rustls::Error::DecryptError => TlsError::Corrupted,
        error => refusal_of(&error).map_or_else(|| TlsError::Other(error), TlsError::Refused),
    };
    io::Error::new(ErrorKind::InvalidData, error)
}

/// Reports whether an error means that the received bytes differ from the sent ones.
pub(crate) fn is_violation(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<TlsError>)
}

/// Returns the refusal if an error means that one side refuses the other.
pub(crate) fn refusal_in(error: &io::Error) -> Option<&ConnectionError> {
    let inner = error.get_ref()?;
    match inner.downcast_ref::<TlsError>() {
        Some(TlsError::Refused(refusal)) => Some(refusal),
        Some(TlsError::Corrupted | TlsError::Other(_)) => None,
        None => inner.downcast_ref::<ConnectionError>(),
    }
}

/// Name of a peer in the dialler's TLS session cache: connections with equal names resume one another's sessions.
#[derive(Clone, Debug)]
pub struct PeerName(String);

impl From<SocketAddr> for PeerName {
    fn from(address: SocketAddr) -> PeerName {
        let ip = address.ip().to_string().replace(['.', ':'], "-");
        PeerName(format!("a{ip}-{}.gridloom", address.port()))
    }
}

impl From<&RelayPath> for PeerName {
    fn from(path: &RelayPath) -> PeerName {
        PeerName(match &path.target {
            RelayTarget::Node { node, .. } => format!("{node}.gridloom"),
            // Relays may belong to different grids.
            RelayTarget::Agent => {
                let hash = blake3::hash(path.relay.as_bytes()).to_hex();
                format!("agent-{}.gridloom", &hash[..16])
            }
        })
    }
}

/// A socket, with TLS or without.
pub struct TlsStream<S> {
    stream: S,
    /// Absent on a socket that the system protects: it connects two processes of one user.
    session: Option<Box<Session>>,
}

impl<S> std::fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.session.is_some() { "TlsStream(encrypted)" } else { "TlsStream(plain)" })
    }
}

enum Connection {
    Dialler(UnbufferedClientConnection),
    Acceptor(UnbufferedServerConnection),
    /// TLS has ended. Bytes that were received before are in `plain`.
    Ended,
}

struct Session {
    connection: Connection,
    received: Bytes,
    /// Decrypted bytes that had no room in the caller's memory.
    plain: Bytes,
    waiting: Bytes,
    receive_bytes: usize,
    is_blocking: bool,
    is_ready: bool,
    has_unread: bool,
    has_ended: bool,
    /// A read returns the content of one record, because the bytes after it may not be encrypted.
    ends_encryption: bool,
}

/// Bytes in a buffer that is kept while they are used.
#[derive(Default)]
struct Bytes {
    buffer: Vec<u8>,
    head: usize,
    tail: usize,
}

impl Bytes {
    fn len(&self) -> usize {
        self.tail - self.head
    }

    fn get(&self) -> &[u8] {
        &self.buffer[self.head..self.tail]
    }

    fn take(&mut self, count: usize) {
        self.head += count;
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
        }
    }

    /// Makes room for `count` bytes after the last.
    fn make_room(&mut self, count: usize) {
        if self.buffer.is_empty() {
            self.buffer = SPARES.with_borrow_mut(Vec::pop).unwrap_or_default();
        }
        if self.buffer.len() - self.tail >= count {
            return;
        }
        self.buffer.copy_within(self.head..self.tail, 0);
        (self.tail, self.head) = (self.tail - self.head, 0);
        if self.buffer.len() - self.tail < count {
            self.buffer.resize(self.tail + count, 0);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.buffer[self.tail..][..bytes.len()].copy_from_slice(bytes);
        self.tail += bytes.len();
    }

    /// Gives the buffer back if it holds nothing.
    fn release(&mut self) {
        if self.len() == 0 && !self.buffer.is_empty() {
            let buffer = std::mem::take(&mut self.buffer);
            SPARES.with_borrow_mut(|spares| {
                if spares.len() < SPARES_MAX {
                    spares.push(buffer);
                }
            });
        }
    }
}

/// The caller's memory for decrypted bytes.
struct Target<'a, 'b> {
    slices: &'a mut [IoSliceMut<'b>],
    length: usize,
}

impl Target<'_, '_> {
    fn is_full(&self) -> bool {
        self.slices.iter().all(|slice| slice.is_empty())
    }

    /// Copies as many bytes as there is room for, and returns their number.
    fn put(&mut self, mut bytes: &[u8]) -> usize {
        let before = bytes.len();
        let mut slices = std::mem::take(&mut self.slices);
        while let Some(slice) = slices.first_mut()
            && !bytes.is_empty()
        {
            let length = slice.len().min(bytes.len());
            slice[..length].copy_from_slice(&bytes[..length]);
            bytes = &bytes[length..];
            if length < slice.len() {
                slice.advance(length);
                break;
            }
            slices = &mut std::mem::take(&mut slices)[1..];
        }
        self.slices = slices;
        self.length += before - bytes.len();
        before - bytes.len()
    }
}

/// The next step of a connection.
enum Step {
    Again,
    /// It needs bytes of the peer.
    Blocked,
    /// The handshake has ended, and the received records are read.
    Ready,
    Closed,
}

/// Bytes to encrypt, and how many of them were encrypted.
struct Source<'a, 'b> {
    slices: &'a [IoSlice<'b>],
    skip: usize,
    encrypted: usize,
}

impl Source<'_, '_> {
    /// Returns the first bytes that are in one piece.
    fn first(&mut self) -> &[u8] {
        while let Some(slice) = self.slices.first()
            && slice.len() == self.skip
        {
            self.slices = &self.slices[1..];
            self.skip = 0;
        }
        self.slices.first().map_or(&[], |slice| &slice[self.skip..])
    }

    fn advance(&mut self, count: usize) {
        self.skip += count;
        self.encrypted += count;
    }
}

impl Session {
    fn new(connection: Connection) -> Box<Session> {
        Box::new(Session {
            connection,
            received: Bytes::default(),
            plain: Bytes::default(),
            waiting: Bytes::default(),
            receive_bytes: RECEIVE_BYTES,
            is_blocking: false,
            is_ready: false,
            has_unread: false,
            has_ended: false,
            ends_encryption: false,
        })
    }

    /// Processes the next record, or encrypts if there is none.
    fn step(&mut self, target: &mut Target<'_, '_>, source: &mut Source<'_, '_>) -> io::Result<Step> {
        let mut records = &mut self.received.buffer[self.received.head..self.received.tail];
        if self.ends_encryption && self.is_ready && target.slices.is_empty() {
            // The peer may have ended TLS already: only a read looks at these bytes.
            records = &mut [];
        }
        let rest = (&mut self.plain, &mut self.waiting);
        let (discard, step) = match &mut self.connection {
            Connection::Dialler(connection) => advance(connection.process_tls_records(records), target, source, rest),
            Connection::Acceptor(connection) => advance(connection.process_tls_records(records), target, source, rest),
            Connection::Ended => (0, Ok(Step::Ready)),
        };
        self.received.take(discard);
        step
    }

    /// Processes records until the target is full, and encrypts the source, as far as this needs no more bytes of the peer.
    fn process(&mut self, target: &mut Target<'_, '_>, source: &mut Source<'_, '_>) -> io::Result<()> {
        let put = target.put(self.plain.get());
        self.plain.take(put);
        // A full target ends reading, but not the search for a place to encrypt.
        while !self.has_ended && (!source.first().is_empty() || !target.is_full() || !self.is_ready) {
            if self.ends_encryption && target.length > 0 {
                return Ok(());
            }
            match self.step(target, source) {
                Ok(Step::Again) => {}
                Ok(Step::Blocked) => return Ok(()),
                Ok(Step::Ready) => {
                    self.is_ready = true;
                    return Ok(());
                }
                Ok(Step::Closed) => self.has_ended = true,
                Err(error) => {
                    if let Some(refusal) = self.plain_refusal() {
                        return Err(refusal);
                    }
                    // The peer gets the reason.
                    while let Ok(Step::Again) = self.step(target, source) {}
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Returns the error if the received bytes are the refusal of a node that has no descriptor left for a handshake. It is
    /// not authenticated, so only this fault is recognised.
    fn plain_refusal(&self) -> Option<io::Error> {
        let frame = Decoder::default().next(self.received.get(), HANDSHAKE_LIMITS).ok().flatten();
        let (frame, _) = frame.filter(|(frame, _)| frame.kind == Kind::Hello && !self.is_ready)?;
        let mut refusal = refusal_of_body(frame.body).filter(|one| one.fault == ConnectionFault::NoDescriptors)?;
        refusal.why = refusal.why.chars().take(REFUSAL_CHARS_MAX).collect();
        Some(io::Error::new(ErrorKind::InvalidData, TlsError::Refused(refusal)))
    }

    /// Writes the encrypted bytes, as many as the stream accepts.
    fn write_waiting(&mut self, stream: &mut impl Write) -> io::Result<()> {
        while self.waiting.len() > 0 {
            match stream.write(self.waiting.get()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => self.waiting.take(length),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.waiting.release();
        Ok(())
    }

    /// Reads once. Returns whether the stream may have more.
    fn receive(&mut self, stream: &mut impl Read) -> io::Result<bool> {
        let receive_bytes = if self.is_ready { self.receive_bytes } else { HANDSHAKE_RECEIVE_BYTES };
        self.received.make_room(receive_bytes / 2);
        if self.received.buffer.len() < receive_bytes {
            self.received.buffer.resize(receive_bytes, 0);
        }
        loop {
            let room = &mut self.received.buffer[self.received.tail..];
            let room_bytes = room.len();
            match stream.read(room) {
                Ok(0) => {
                    self.has_ended = true;
                    return Ok(false);
                }
                Ok(length) => {
                    self.received.tail += length;
                    return Ok(length == room_bytes);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn read(&mut self, stream: &mut (impl Read + Write), slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut target = Target { slices, length: 0 };
        let mut nothing = Source { slices: &[], skip: 0, encrypted: 0 };
        if target.is_full() {
            return Ok(0);
        }
        if matches!(self.connection, Connection::Ended) {
            return self.read_plain(stream, target);
        }
        let (mut blocked, mut reads, mut is_interrupted) = (None, 0, false);
        loop {
            let processed = self.process(&mut target, &mut nothing);
            // The next write reports what is wrong with this direction.
            let _ = self.write_waiting(stream);
            processed?;
            let is_done =
                self.has_ended || blocked.is_some() || (self.is_blocking || self.ends_encryption) && target.length > 0;
            if target.is_full() || is_done {
                break;
            }
            // A peer may send records without content for ever.
            if !self.is_blocking && reads == READS_MAX {
                is_interrupted = true;
                break;
            }
            reads += 1;
            match self.receive(stream) {
                Ok(true) => {}
                // The next read would block, so the received bytes are processed first.
                Ok(false) if !self.is_blocking => blocked = Some(ErrorKind::WouldBlock.into()),
                Ok(false) => {}
                // After an error, the bytes before it are delivered first.
                Err(error) => blocked = Some(error),
            }
        }
        let may_have_unread = target.is_full() || self.ends_encryption;
        self.has_unread = is_interrupted || may_have_unread && (self.plain.len() > 0 || self.received.len() > 0);
        self.received.release();
        self.plain.release();
        match blocked {
            Some(error) if target.length == 0 && !self.has_ended => Err(error),
            None if is_interrupted && target.length == 0 => Err(ErrorKind::WouldBlock.into()),
            _ => Ok(target.length),
        }
    }

    /// Reads bytes that were never encrypted, first those that were received together with the last record.
    fn read_plain(&mut self, stream: &mut impl Read, mut target: Target<'_, '_>) -> io::Result<usize> {
        let put = target.put(self.plain.get());
        self.plain.take(put);
        self.has_unread = self.plain.len() > 0;
        self.plain.release();
        if target.is_full() || self.is_blocking && target.length > 0 {
            return Ok(target.length);
        }
        match stream.read_vectored(target.slices) {
            Ok(length) => Ok(target.length + length),
            // The next read reports it again.
            Err(_) if target.length > 0 => Ok(target.length),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, stream: &mut (impl Read + Write), slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if matches!(self.connection, Connection::Ended) {
            return stream.write_vectored(slices);
        }
        if self.waiting.len() > 0 {
            self.write_waiting(stream)?;
        }
        let mut source = Source { slices, skip: 0, encrypted: 0 };
        if source.first().is_empty() {
            return Ok(0);
        }
        loop {
            let mut nowhere = Target { slices: &mut [], length: 0 };
            let processed = self.process(&mut nowhere, &mut source);
            match self.write_waiting(stream) {
                Err(error) if processed.is_ok() && error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => processed?,
            }
            if source.encrypted > 0 {
                return Ok(source.encrypted);
            }
            if self.has_ended {
                return Err(ErrorKind::BrokenPipe.into());
            }
            if !self.is_blocking {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.receive(stream)?;
        }
    }
}

/// Takes one step of a connection. Returns how many received bytes are no longer needed.
fn advance<D>(
    status: UnbufferedStatus<'_, '_, D>,
    target: &mut Target<'_, '_>,
    source: &mut Source<'_, '_>,
    (plain, waiting): (&mut Bytes, &mut Bytes),
) -> (usize, io::Result<Step>) {
    let UnbufferedStatus { discard, state } = status;
    let mut more = 0;
    let step = match state {
        Err(error) => Err(violation(error)),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(Step::Again),
                Some(Err(error)) => break Err(violation(error)),
                Some(Ok(record)) => {
                    more += record.discard;
                    let put = target.put(record.payload);
                    plain.put(&record.payload[put..]);
                }
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => encode(waiting, |room| match data.encode(room) {
            Ok(length) => Ok(length),
            Err(EncodeError::InsufficientSize(size)) => Err(Some(size.required_size)),
            Err(EncodeError::AlreadyEncoded) => Err(None),
        })
        .map(|()| Step::Again),
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Step::Again)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Blocked),
        Ok(ConnectionState::WriteTraffic(traffic)) => encrypt(traffic, source, waiting).map(|()| Step::Ready),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Step::Closed),
        // Early data are not accepted.
        Ok(_) => Err(violation(rustls::Error::General("early data".into()))),
    };
    (discard + more, step)
}

/// Appends bytes; `write` returns the number of bytes that it needs if there is not enough room.
fn encode(waiting: &mut Bytes, mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>) -> io::Result<()> {
    loop {
        waiting.make_room(1);
        match write(&mut waiting.buffer[waiting.tail..]) {
            Ok(length) => {
                waiting.tail += length;
                return Ok(());
            }
            Err(Some(needed)) => waiting.make_room(needed),
            Err(None) => return Err(violation(rustls::Error::EncryptError)),
        }
    }
}

/// Encrypts as much of the source as may wait.
fn encrypt<D>(mut traffic: WriteTraffic<'_, D>, source: &mut Source<'_, '_>, waiting: &mut Bytes) -> io::Result<()> {
    let mut gathered = Vec::new();
    loop {
        let room = WAITING_BYTES_MAX.saturating_sub(waiting.len()) / (RECORD_BYTES + OVERHEAD_BYTES) * RECORD_BYTES;
        let first_bytes = source.first().len();
        if first_bytes == 0 || room == 0 {
            return Ok(());
        }
        let (plain, length): (&[u8], usize) = if first_bytes >= RECORD_BYTES || source.slices.len() == 1 {
            let length = first_bytes.min(room);
            let whole = if length > RECORD_BYTES { length / RECORD_BYTES * RECORD_BYTES } else { length };
            (&source.slices[0][source.skip..][..whole], whole)
        } else {
            // Short pieces share a record.
            gathered.clear();
            let mut rest = Source { slices: source.slices, skip: source.skip, encrypted: 0 };
            while gathered.len() < RECORD_BYTES && !rest.first().is_empty() {
                let piece = rest.first();
                let count = piece.len().min(RECORD_BYTES - gathered.len());
                gathered.extend_from_slice(&piece[..count]);
                rest.advance(count);
            }
            (&gathered, gathered.len())
        };
        waiting.make_room(plain.len() + plain.len().div_ceil(RECORD_BYTES) * OVERHEAD_BYTES);
        encode(waiting, |room| match traffic.encrypt(plain, room) {
            Ok(length) => Ok(length),
            Err(EncryptError::InsufficientSize(size)) => Err(Some(size.required_size)),
            Err(EncryptError::EncryptExhausted) => Err(None),
        })?;
        let mut left = length;
        while left > 0 {
            let count = source.first().len().min(left);
            source.advance(count);
            left -= count;
        }
    }
}

impl<S> TlsStream<S> {
    /// Returns a stream without TLS, for a socket between processes of one user on one host.
    pub fn plain(stream: S) -> TlsStream<S> {
        TlsStream { stream, session: None }
    }

    /// Returns the dialler's end of a connection to a node.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn dial(stream: S, configs: &TlsConfigs, peer: &PeerName) -> io::Result<TlsStream<S>> {
        TlsStream::dial_with(stream, configs.client.clone(), peer)
    }

    pub(crate) fn dial_with(stream: S, config: Arc<ClientConfig>, peer: &PeerName) -> io::Result<TlsStream<S>> {
        let name = ServerName::try_from(peer.0.clone()).map_err(io::Error::other)?;
        let connection = UnbufferedClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(TlsStream { stream, session: Some(Session::new(Connection::Dialler(connection))) })
    }

    /// Returns the acceptor's end.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn accept(stream: S, configs: &TlsConfigs) -> io::Result<TlsStream<S>> {
        TlsStream::accept_with(stream, configs.server.clone())
    }

    pub(crate) fn accept_with(stream: S, config: Arc<ServerConfig>) -> io::Result<TlsStream<S>> {
        let connection = UnbufferedServerConnection::new(config).map_err(io::Error::other)?;
        Ok(TlsStream { stream, session: Some(Session::new(Connection::Acceptor(connection))) })
    }

    /// Declares that TLS ends after the handshake inside: see [`TlsStream::end_encryption`].
    pub fn encrypts_only_handshake(mut self) -> TlsStream<S> {
        if let Some(session) = &mut self.session {
            session.ends_encryption = true;
        }
        self
    }

    /// Ends TLS on a stream that encrypts only the handshake; does nothing on others. Both ends call it after the same
    /// frame, the last of the handshake inside.
    ///
    /// # Errors
    /// If bytes of the handshake still wait for the socket.
    pub fn end_encryption(&mut self) -> io::Result<()> {
        let Some(session) = self.session.as_mut().filter(|session| session.ends_encryption) else { return Ok(()) };
        if session.waiting.len() > 0 {
            return Err(io::Error::other("the socket does not accept the end of the handshake"));
        }
        let received = std::mem::take(&mut session.received);
        session.plain.put(received.get());
        session.connection = Connection::Ended;
        session.ends_encryption = false;
        session.has_unread = session.plain.len() > 0;
        Ok(())
    }

    pub fn get(&self) -> &S {
        &self.stream
    }

    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Drops the session and returns the socket.
    pub fn into_inner(self) -> S {
        self.stream
    }

    /// Ends TLS and returns the socket, on which bytes follow that are not part of this session.
    ///
    /// # Errors
    /// If bytes of the session still wait for the socket, or bytes after its last message were read.
    pub fn into_plain(self) -> io::Result<S> {
        match &self.session {
            Some(session) if session.waiting.len() + session.plain.len() + session.received.len() > 0 => {
                Err(io::Error::new(ErrorKind::InvalidData, "the peer has sent more than was expected"))
            }
            _ => Ok(self.stream),
        }
    }

    /// Replaces the socket by another form of it.
    pub fn map<T>(self, form: impl FnOnce(S) -> T) -> TlsStream<T> {
        TlsStream { stream: form(self.stream), session: self.session }
    }

    /// Declares that the socket blocks.
    pub fn set_blocking(&mut self) {
        if let Some(session) = &mut self.session {
            session.is_blocking = true;
            session.receive_bytes = BULK_RECEIVE_BYTES;
        }
    }

    /// Declares that the socket does not block.
    pub fn set_nonblocking(&mut self) {
        if let Some(session) = &mut self.session {
            session.is_blocking = false;
        }
    }

    /// Reports whether the last read left bytes here, so that the system does not report the socket as readable for them.
    pub fn has_unread(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_unread)
    }

    /// Returns the peer's certificates once the handshake of TLS has ended.
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        match &self.session.as_ref()?.connection {
            Connection::Dialler(connection) => connection.peer_certificates(),
            Connection::Acceptor(connection) => connection.peer_certificates(),
            Connection::Ended => None,
        }
    }
}

impl<S: Read + Write + AsFd> TlsStream<S> {
    /// Runs an exchange on a blocking socket, with a time limit for all of it.
    ///
    /// # Errors
    /// If the exchange fails, or takes longer.
    pub(crate) fn within<T>(
        &mut self,
        limit: Duration,
        exchange: impl FnOnce(&mut TlsStream<DeadlineGuard<'_, S>>) -> io::Result<T>,
    ) -> io::Result<T> {
        let stream = DeadlineGuard::new(&mut self.stream, limit)?;
        let mut guarded = TlsStream { stream, session: self.session.take() };
        let done = exchange(&mut guarded);
        let session = guarded.session.take();
        drop(guarded);
        self.session = session;
        done
    }
}

impl<S: Read + Write> TlsStream<S> {
    /// Runs the handshake on a blocking socket.
    ///
    /// # Errors
    /// If the stream breaks, or the peer does not speak TLS.
    pub fn complete_handshake(&mut self) -> io::Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        while !session.is_ready {
            let mut nowhere = Target { slices: &mut [], length: 0 };
            let mut nothing = Source { slices: &[], skip: 0, encrypted: 0 };
            let processed = session.process(&mut nowhere, &mut nothing);
            let written = session.write_waiting(&mut self.stream);
            processed.and(written)?;
            if session.has_ended {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if !session.is_ready {
                session.receive(&mut self.stream)?;
            }
        }
        Ok(())
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.stream.read(into),
            Some(session) => session.read(&mut self.stream, &mut [IoSliceMut::new(into)]),
        }
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &mut self.session {
            None => self.stream.read_vectored(into),
            Some(session) => session.read(&mut self.stream, into),
        }
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.session {
            None => self.stream.write(bytes),
            Some(session) => session.write(&mut self.stream, &[IoSlice::new(bytes)]),
        }
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.session {
            None => self.stream.write_vectored(bytes),
            Some(session) => session.write(&mut self.stream, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.session {
            None => self.stream.flush(),
            Some(session) if matches!(session.connection, Connection::Ended) => self.stream.flush(),
            Some(session) => session.write_waiting(&mut self.stream),
        }
    }
}

impl<S: AsFd> AsFd for TlsStream<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
