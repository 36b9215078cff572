//! The configurations of TLS for a member of a grid.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridloom_base::address::NodeAddress;
use gridloom_keys::{Certificate, Memberships, Role};
use rustls::{ClientConfig, ClientConnection, ServerConfig};

/// Protocol inside of TLS between nodes (RFC 7301).
const PROTOCOL: &[u8] = b"gridloom/1";
/// Protocol between a node and a relay.
const RELAY_PROTOCOL: &[u8] = b"gridloom-relay/1";

/// The configurations of both ends.
#[derive(Clone, Debug)]
pub struct TlsConfigs {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    /// Configuration for connections to relays.
    pub(crate) relay: Arc<ClientConfig>,
}

impl TlsConfigs {
    /// Returns the configurations of a member. Without a membership, every handshake fails.
    pub(crate) fn new(memberships: &Memberships) -> TlsConfigs {
        // The role that a peer has claimed is checked by the handshake inside.
        let mut server = memberships.server_config(&[PROTOCOL], &Role::NODES);
        server.send_tls13_tickets = 1;
        TlsConfigs {
            client: Arc::new(memberships.client_config(&[PROTOCOL], &Role::NODES)),
            server: Arc::new(server),
            relay: Arc::new(memberships.client_config(&[RELAY_PROTOCOL], &[Role::Relay])),
        }
    }

    /// Returns the configuration of a relay. It issues no tickets: TLS ends before a client would read them.
    pub(crate) fn of_relay(memberships: &Memberships) -> ServerConfig {
        let mut server = memberships.server_config(&[RELAY_PROTOCOL], &Role::NODES);
        server.send_tls13_tickets = 0;
        server
    }
}

/// Returns the grid of the node at an address, if it answers in time and belongs to one of the grids.
pub(super) fn grid_of(address: &str, memberships: &Memberships, until: Instant) -> Option<String> {
    let config = Arc::new(memberships.client_config(&[PROTOCOL, RELAY_PROTOCOL], &Role::ALL));
    let address: NodeAddress = address.parse().ok()?;
    let relays = address.relayed.iter().map(|path| &path.relay);
    let places = address.direct.iter().chain(relays).filter_map(|place| place.to_socket_addrs().ok());
    places.flatten().find_map(|address| {
        let mut stream = Limited { stream: TcpStream::connect_timeout(&address, left(until).ok()?).ok()?, until };
        let name = "which-grid.gridloom".try_into().expect("it is a name of the DNS");
        let mut connection = ClientConnection::new(config.clone(), name).ok()?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).ok()?;
        }
        let certificate = Certificate::read(connection.peer_certificates()?.first()?).ok()?;
        Some(certificate.identity.grid().to_string())
    })
}

/// A connection whose reads and writes end at a time limit, even if the peer sends single bytes without end.
struct Limited {
    stream: TcpStream,
    until: Instant,
}

impl Read for Limited {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.until)?))?;
        self.stream.read(bytes)
    }
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.until)?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Returns the time until the limit.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
