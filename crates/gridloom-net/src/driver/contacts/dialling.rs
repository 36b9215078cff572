//! Dials: names are resolved on threads, and the candidate paths are tried until one of them reaches the node.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;
use std::{io, thread};

use gridloom_base::address::{NodeAddress, RelayPath};
use gridloom_base::dial::{ConnectionError, ConnectionFault, UNRESOLVED};
use gridloom_base::limits::DIAL_NS_MAX;
use gridloom_base::time::MILLISECOND_NS;
use gridloom_base::{NodeId, Time};
use gridloom_core::node::Input;

use super::{ConnectionUpdate, Connections};
use crate::driver::contact::Stage;
use crate::driver::dials::{Candidate, Dial, cannot_connect};
use crate::log::warning;
use crate::threads::STACK_BYTES;
use crate::transport::delayed::DelayedStream;
use crate::transport::handshake::{HANDSHAKE_NS_MAX, Handshake};
use crate::transport::notice::Notice;
use crate::transport::relay;
use crate::transport::stream::Stream;
use crate::transport::tls::{TlsStream, refusal_in};

/// Time for which a candidate is tried alone.
const HEAD_START_NS: u64 = 300 * MILLISECOND_NS;

impl Connections {
    pub(in crate::driver) fn dial(&mut self, address: String, now: Time) {
        self.now = now;
        let deadline = now + DIAL_NS_MAX;
        self.check_at = self.check_at.min(deadline);
        let (parsed, error) = match address.parse::<NodeAddress>() {
            Ok(parsed) => (parsed, None),
            Err(error) => (NodeAddress::default(), Some(unresolved(error))),
        };
        let node = parsed.node();
        let NodeAddress { direct, relayed } = parsed;
        let numeric: Option<Vec<SocketAddr>> = direct.iter().map(|place| place.parse().ok()).collect();
        let number = self.dials.begin(Dial {
            address,
            node,
            left: relayed.into_iter().map(Candidate::Relayed).collect(),
            // The name resolution.
            attempts: 1,
            next_at: now + HEAD_START_NS,
            reasons: Vec::new(),
            began: now,
            deadline,
        });
        if let Some(error) = error {
            return self.attempt_failed(number, error);
        }
        if let Some(addresses) = numeric {
            return self.resolved(number, Ok(addresses), now);
        }
        self.check_at = self.check_at.min(now + HEAD_START_NS);
        let inbox = self.inbox.clone();
        let resolve = move || inbox.post(Notice::Resolved { dial: number, addresses: resolve(&direct) });
        // The C library's resolver needs more stack than a thread that only moves bytes.
        let thread = thread::Builder::new().name("resolve".into()).stack_size(STACK_BYTES * 4);
        if let Err(error) = self.inbox.threads.spawn(thread, resolve) {
            self.attempt_failed(number, ConnectionError::new(ConnectionFault::Other, error.to_string()));
        }
    }

    /// Handles the direct addresses of a dial. Addresses that did not answer lately are tried last.
    pub(in crate::driver) fn resolved(&mut self, number: u64, addresses: io::Result<Vec<SocketAddr>>, now: Time) {
        self.now = now;
        let Some(dial) = self.dials.get_mut(number) else { return };
        let addresses = match addresses {
            Err(error) => return self.attempt_failed(number, unresolved(error)),
            Ok(addresses) if addresses.is_empty() && dial.left.is_empty() => {
                return self.attempt_failed(number, unresolved("it has no address"));
            }
            Ok(addresses) => addresses,
        };
        dial.attempts -= 1;
        let has_relays = !dial.left.is_empty();
        let (last, first): (Vec<_>, Vec<_>) =
            addresses.into_iter().partition(|address| has_relays && self.unreachable.has(address));
        first.into_iter().rev().for_each(|address| dial.left.push_front(Candidate::Direct(address)));
        dial.left.extend(last.into_iter().map(Candidate::Direct));
        self.try_next(number);
    }

    /// Handles the outcome of a connection through a relay.
    pub(in crate::driver) fn relayed(
        &mut self,
        number: u64,
        path: &RelayPath,
        outcome: io::Result<TcpStream>,
        now: Time,
    ) {
        self.now = now;
        let connected = outcome.and_then(|stream| {
            // Another candidate may have led to the node meanwhile.
            if self.dials.get_mut(number).is_none() {
                return Ok(());
            }
            let (handshake, first) = Handshake::dial(self.credentials.clone(), self.own.clone())?;
            let stream = DelayedStream::new(Stream::from_std(stream)?);
            let stream = TlsStream::dial(stream, &self.credentials.tls, &path.into())?;
            let (token, deadline) = (self.next_token, now + HANDSHAKE_NS_MAX);
            self.add(stream, Stage::Handshaking, handshake, Some(number), deadline)?.queue_handshake_frame(&first);
            self.open.dirty.insert(token);
            if let Some(dial) = self.dials.get_mut(number) {
                // The relay may have taken most of the time.
                dial.deadline = dial.deadline.max(deadline);
            }
            Ok(())
        });
        if let Err(error) = connected {
            let fault = refusal_in(&error).map_or(ConnectionFault::Other, |refusal| refusal.fault);
            self.attempt_failed(number, ConnectionError::new(fault, error.to_string()));
        }
    }

    /// Tries the next candidate of each dial whose head start has expired.
    pub(super) fn try_due(&mut self, now: Time) {
        for number in self.dials.due(now) {
            self.try_next(number);
        }
    }

    /// Ends an attempt that has failed, and tries the next candidate.
    pub(super) fn attempt_failed(&mut self, number: u64, error: ConnectionError) {
        let Some(dial) = self.dials.get_mut(number) else { return };
        dial.attempt_failed(error);
        self.try_next(number);
    }

    /// Tries the next candidate, if there is one.
    fn try_next(&mut self, number: u64) {
        let next_at = self.now + HEAD_START_NS;
        while let Some(dial) = self.dials.get_mut(number) {
            if dial.has_failed() {
                let error = dial.why_failed();
                return self.dial_failed(number, error);
            }
            let deadline = dial.deadline;
            let Some(candidate) = dial.take_next(next_at) else { return };
            let begun = match candidate {
                Candidate::Direct(address) => self.connect(address, number, deadline),
                Candidate::Relayed(path) => self.connect_through_relay(path, number, deadline),
            };
            self.check_at = self.check_at.min(next_at);
            match begun {
                Ok(()) => return,
                Err(error) => {
                    if let Some(dial) = self.dials.get_mut(number) {
                        dial.attempt_failed(cannot_connect(&error));
                    }
                }
            }
        }
    }

    fn connect_through_relay(&self, path: RelayPath, number: u64, deadline: Time) -> io::Result<()> {
        let (inbox, credentials) = (self.inbox.clone(), self.credentials.clone());
        let limit = Duration::from_nanos(deadline.since(self.now).max(MILLISECOND_NS));
        let connect = move || {
            let outcome = relay::dial::connect(&path, &credentials, limit);
            inbox.post(Notice::Relayed { dial: number, path, outcome });
        };
        let thread = thread::Builder::new().name("to relay".into()).stack_size(STACK_BYTES * 4);
        self.inbox.threads.spawn(thread, connect)
    }

    fn connect(&mut self, address: SocketAddr, dial: u64, deadline: Time) -> io::Result<()> {
        let near = self.sites.0.as_ref().filter(|_| address.ip().is_loopback());
        let near = near.map(|near| Stream::connect_near(address, near));
        let stream = match near {
            Some(Ok(stream)) => stream,
            Some(Err(error)) => {
                // Whatever is wrong with this socket, TCP may work.
                if error.kind() == io::ErrorKind::PermissionDenied {
                    let line = warning("the unix socket of a node on this host cannot be used; dialling it over TCP");
                    self.log(line.address(address).why(error));
                }
                Stream::connect(address)?
            }
            None => Stream::connect(address)?,
        };
        let (handshake, first) = Handshake::dial(self.credentials.clone(), self.own.clone())?;
        let is_near = matches!(stream, Stream::Unix(_));
        let stream = TlsStream::dial(DelayedStream::new(stream), &self.credentials.tls, &address.into())?;
        let stream = if is_near { stream.encrypts_only_handshake() } else { stream };
        let contact = self.add(stream, Stage::Connecting, handshake, Some(dial), deadline)?;
        contact.dialled = Some(address);
        contact.queue_handshake_frame(&first);
        Ok(())
    }

    pub(super) fn dial_failed(&mut self, number: u64, ConnectionError { fault, why }: ConnectionError) {
        if let Some(Dial { address, .. }) = self.dials.end(number) {
            self.end_attempts(number, None);
            self.news.push_back(ConnectionUpdate::Input(Input::DialFailed { address, fault, why, connected: None }));
        }
    }

    /// Returns the attempts of a dial.
    pub(super) fn attempts_of(&self, number: u64) -> Vec<usize> {
        let is_attempt =
            |contact: &super::Connection| contact.dial == Some(number) && !matches!(contact.stage, Stage::Up(_));
        self.connections.iter().filter(|(_, contact)| is_attempt(contact)).map(|(token, _)| *token).collect()
    }

    /// Closes the attempts of a dial that has ended, except the one that has led to its node. `is_relayed` says whether that
    /// one uses a relay.
    pub(super) fn end_attempts(&mut self, number: u64, kept: Option<(usize, bool)>) {
        for other in self.attempts_of(number) {
            if kept.is_some_and(|(token, _)| token == other) {
                continue;
            }
            let Some(contact) = self.forget(other) else { continue };
            if let (Stage::Connecting, Some((_, true)), Some(address)) = (contact.stage, kept, contact.dialled) {
                // The relay was faster, so later dials try this address last.
                self.unreachable.add(address);
            }
        }
    }

    /// Ends a dial whose node is already connected through another connection.
    pub(super) fn connected_already(&mut self, address: String, peer: NodeId, name: &str) {
        let why = format!("'{name}' answers there, and is connected already");
        let (fault, connected) = (ConnectionFault::ConnectedAlready, Some(peer));
        self.news.push_back(ConnectionUpdate::Input(Input::DialFailed { address, fault, why, connected }));
    }
}

fn unresolved(why: impl std::fmt::Display) -> ConnectionError {
    ConnectionError::new(ConnectionFault::Unresolved, format!("{UNRESOLVED} ({why})"))
}

/// Returns the addresses of some names, HOST:PORT.
fn resolve(names: &[String]) -> io::Result<Vec<SocketAddr>> {
    let (mut addresses, mut failed) = (Vec::new(), None);
    for name in names {
        match name.to_socket_addrs() {
            Ok(found) => addresses.extend(found),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) if addresses.is_empty() => Err(error),
        _ => Ok(addresses),
    }
}
