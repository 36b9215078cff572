//! The side of a node: connections to and through a relay, on blocking sockets.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use gridloom_base::address::RelayPath;
use gridloom_base::dial::{ConnectionError, ConnectionFault, REVOKED};

use super::protocol::{self, ConnectionToken, Reply, Request};
use crate::identity::Credentials;
use crate::transport::shared::prepare_blocking;
use crate::transport::tls::{TlsStream, refusal_in};

/// Connects to a node through a relay. Whatever is sent and received on the socket is sent to and by the node.
///
/// # Errors
/// If the relay does not answer within the limit, is not a relay of this grid, or the node is not registered there or
/// does not answer.
pub fn connect(path: &RelayPath, credentials: &Credentials, limit: Duration) -> io::Result<TcpStream> {
    let until = Instant::now() + limit;
    let in_words = |error: io::Error| {
        let why: String = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => "it does not answer".into(),
            ErrorKind::UnexpectedEof => "it closed the connection".into(),
            _ => error.to_string(),
        };
        let is_revoked = why.starts_with(REVOKED)
            || refusal_in(&error).is_some_and(|refusal| refusal.fault == ConnectionFault::Revoked);
        let fault = if is_revoked { ConnectionFault::Revoked } else { ConnectionFault::Relay };
        io::Error::new(error.kind(), ConnectionError::new(fault, format!("relay {}: {why}", path.relay)))
    };
    let connected = open(&path.relay, credentials, until).and_then(|mut stream| {
        let request = Request::connect(&path.target);
        let reply: Reply = stream.within(left(until)?, |stream| {
            protocol::write(stream, &request)?;
            protocol::read(stream)
        })?;
        match reply {
            Reply::Connected => stream.into_plain(),
            other => Err(refused(other)),
        }
    });
    connected.map_err(in_words)
}

/// Takes a connection that a node has opened through a relay to this one.
pub(super) fn accept(
    relay: &str,
    credentials: &Credentials,
    token: ConnectionToken,
    limit: Duration,
) -> io::Result<TcpStream> {
    let until = Instant::now() + limit;
    let mut stream = open(relay, credentials, until)?;
    stream.within(left(until)?, |stream| protocol::write(stream, &Request::Accept { token }))?;
    stream.into_plain()
}

/// Opens a connection to a relay, and checks that it is one of this grid.
pub(super) fn open(relay: &str, credentials: &Credentials, until: Instant) -> io::Result<TlsStream<TcpStream>> {
    let mut failed = io::Error::new(ErrorKind::NotFound, "the name has no address");
    let addresses: Vec<SocketAddr> = relay.to_socket_addrs()?.collect();
    for (index, address) in addresses.iter().enumerate() {
        // One that drops packets leaves time for the others.
        let others = addresses.len() - index;
        match open_at(*address, credentials, left(until)? / others as u32) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn open_at(address: SocketAddr, credentials: &Credentials, limit: Duration) -> io::Result<TlsStream<TcpStream>> {
    let until = Instant::now() + limit;
    let socket = TcpStream::connect_timeout(&address, limit)?;
    prepare_blocking(&socket)?;
    let mut stream = TlsStream::dial_with(socket, credentials.tls.relay.clone(), &address.into())?;
    stream.set_blocking();
    stream.within(left(until)?, |stream| stream.complete_handshake())?;
    credentials.relay(stream.peer_certificates()).map_err(io::Error::other)?;
    Ok(stream)
}

/// Returns the error for a reply that is not the expected one.
pub(super) fn refused(reply: Reply) -> io::Error {
    match reply {
        Reply::Refused { why } => {
            let why: String = why.chars().filter(|one| !one.is_control()).collect();
            io::Error::new(ErrorKind::ConnectionRefused, why)
        }
        other => io::Error::new(ErrorKind::InvalidData, format!("it sent an unexpected {other:?}")),
    }
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}
