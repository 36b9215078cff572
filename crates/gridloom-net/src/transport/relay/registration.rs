//! Registrations of a node at relays: each has a thread that keeps it alive and takes the connections of other nodes.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gridloom_keys::Revocations;

use super::dial::{accept, open, refused};
use super::protocol::{self, ConnectionToken, Reply, Request, VERSION};
use super::{PING_INTERVAL, REVOCATIONS_AT_ONCE, SET_UP_TIME, SILENCE_MAX};
use crate::identity::Credentials;
use crate::threads::STACK_BYTES;
use crate::transport::notice::{Inbox, Notice};
use crate::transport::tls::TlsStream;

/// Pauses between attempts to register, the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(8));
/// Maximum number of connections that a node takes from one relay at a time.
const ACCEPTS_MAX: usize = 256;

/// The registrations of a node. They end when this is dropped.
#[derive(Default)]
pub(crate) struct Registrations(Vec<Arc<Shared>>);

struct Shared {
    relay: String,
    credentials: Credentials,
    is_agent: bool,
    inbox: Arc<Inbox>,
    /// Number of connections that are being taken.
    accepting: AtomicUsize,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    has_ended: bool,
    socket: Option<TcpStream>,
}

impl Registrations {
    /// Registers a node at these relays, HOST:PORT.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start(
        relays: &[String],
        credentials: &Credentials,
        is_agent: bool,
        inbox: &Arc<Inbox>,
    ) -> io::Result<Registrations> {
        let mut all = Registrations::default();
        let distinct: BTreeSet<&String> = relays.iter().collect();
        for relay in distinct {
            let shared = Arc::new(Shared {
                relay: relay.clone(),
                credentials: credentials.clone(),
                is_agent,
                inbox: inbox.clone(),
                accepting: AtomicUsize::new(0),
                state: Mutex::default(),
                ended: Condvar::new(),
            });
            all.0.push(shared.clone());
            let thread = thread::Builder::new().name("relay".into()).stack_size(STACK_BYTES * 4);
            inbox.threads.spawn(thread, move || shared.run())?;
        }
        Ok(all)
    }
}

impl Drop for Registrations {
    fn drop(&mut self) {
        for shared in &self.0 {
            let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.has_ended = true;
            // Fails if the relay has closed the connection already.
            state.socket.take().into_iter().for_each(|socket| _ = socket.shutdown(Shutdown::Both));
            shared.ended.notify_all();
        }
    }
}

impl Shared {
    fn run(self: Arc<Shared>) {
        let (mut pause, mut reported) = (PAUSE.0, None);
        loop {
            let registered = self.register();
            let (is_registered, since) = (registered.is_ok(), Instant::now());
            let why = match registered.and_then(|stream| self.keep(stream)) {
                Ok(()) => return,
                Err(error) if is_registered => format!("the registration was lost: {}", in_words(&error)),
                Err(error) => in_words(&error),
            };
            if self.has_ended() {
                return;
            }
            if is_registered || reported.as_ref() != Some(&why) {
                self.inbox.post(Notice::Registration { relay: self.relay.clone(), outcome: Err(why.clone()) });
            }
            // A registration that ends at once will end again, for example if another process replaces it.
            let has_lasted = is_registered && since.elapsed() >= SILENCE_MAX;
            pause = if has_lasted { PAUSE.0 } else { (pause * 2).min(PAUSE.1) };
            reported = Some(why);
            if !self.pause(pause) {
                return;
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).has_ended
    }

    /// Waits; returns false if the node has ended.
    fn pause(&self, time: Duration) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(state, time, |state| !state.has_ended);
        !waited.unwrap_or_else(PoisonError::into_inner).0.has_ended
    }

    fn register(&self) -> io::Result<TlsStream<TcpStream>> {
        let until = Instant::now() + SET_UP_TIME;
        let mut stream = open(&self.relay, &self.credentials, until)?;
        let (number, is_agent) = (self.credentials.nonce, self.is_agent);
        let reply: Reply = stream.within(SET_UP_TIME, |stream| {
            protocol::write(stream, &Request::Register { version: VERSION, number, is_agent })?;
            protocol::read(stream)
        })?;
        match reply {
            Reply::Registered => Ok(stream),
            other => Err(refused(other)),
        }
    }

    /// Keeps a registration until it ends. Returns `Ok` if the node has ended.
    fn keep(self: &Arc<Shared>, mut stream: TlsStream<TcpStream>) -> io::Result<()> {
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.has_ended {
                return Ok(());
            }
            state.socket = Some(stream.get().try_clone()?);
        }
        self.inbox.post(Notice::Registration { relay: self.relay.clone(), outcome: Ok(()) });
        stream.get().set_read_timeout(Some(PING_INTERVAL))?;
        stream.get().set_write_timeout(Some(PING_INTERVAL))?;
        let (mut received, mut chunk, mut last_sign) = (Vec::new(), [0; 4096], Instant::now());
        let (mut last_ping, mut sent) = (None::<Instant>, Revocations::default());
        loop {
            // Also while the relay sends requests, because only what this node sends renews its registration.
            if last_ping.is_none_or(|at| at.elapsed() >= PING_INTERVAL) {
                last_ping = Some(Instant::now());
                self.send_revocations(&mut stream, &mut sent)?;
                protocol::write(&mut stream, &Request::Ping)?;
            }
            match io::Read::read(&mut stream, &mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    last_sign = Instant::now();
                    received.extend_from_slice(&chunk[..length]);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if last_sign.elapsed() > SILENCE_MAX {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            while let Some(reply) = protocol::take::<Reply>(&mut received)? {
                match reply {
                    Reply::Incoming { token } => self.take_connection(token),
                    // The relay has handled those before the ping.
                    Reply::Pong if self.send_revocations(&mut stream, &mut sent)? => {
                        protocol::write(&mut stream, &Request::Ping)?;
                    }
                    Reply::Pong => {}
                    other => return Err(refused(other)),
                }
            }
            if self.has_ended() {
                return Ok(());
            }
        }
    }

    /// Sends some of the revocations that the relay may not know. Returns false if there are none.
    fn send_revocations(&self, stream: &mut TlsStream<TcpStream>, sent: &mut Revocations) -> io::Result<bool> {
        let new = self.credentials.signed_revocations().without(sent);
        for one in new.iter().take(REVOCATIONS_AT_ONCE) {
            let mut line = Revocations::default();
            line.add(one.clone());
            protocol::write(stream, &Request::Revoked { line: line.to_text().trim_end().into() })?;
            sent.add(one.clone());
        }
        Ok(!new.is_empty())
    }

    /// Accepts a connection from another node on a new thread. If that fails, the relay refuses the other node after
    /// [`SET_UP_TIME`].
    fn take_connection(self: &Arc<Shared>, token: ConnectionToken) {
        if self.accepting.fetch_add(1, Ordering::Relaxed) >= ACCEPTS_MAX {
            self.accepting.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let shared = self.clone();
        let take = move || {
            let accepted = accept(&shared.relay, &shared.credentials, token, SET_UP_TIME);
            shared.accepting.fetch_sub(1, Ordering::Relaxed);
            if let Ok(stream) = accepted {
                shared.inbox.post(Notice::RelayedPeer { stream, relay: shared.relay.clone() });
            }
        };
        let thread = thread::Builder::new().name("relayed".into()).stack_size(STACK_BYTES * 4);
        if self.inbox.threads.spawn(thread, take).is_err() {
            self.accepting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "it does not answer".into(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => "it closed the connection".into(),
        _ => error.to_string(),
    }
}
