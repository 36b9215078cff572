//! The configurations of TLS for a member of a grid.

use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridloom_base::limits::DIAL_NS_MAX;
use gridloom_keys::{Certificate, Memberships, Role};
use rustls::{ClientConfig, ClientConnection, ServerConfig};

/// Protocol inside of TLS (RFC 7301).
const PROTOCOL: &[u8] = b"gridloom/1";

/// The configurations of both ends.
#[derive(Clone, Debug)]
pub struct TlsConfigs {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

impl TlsConfigs {
    /// Returns the configurations of a member. Without a membership, every handshake fails.
    pub(crate) fn new(memberships: &Memberships) -> TlsConfigs {
        // The role that a peer has claimed is checked by the handshake inside.
        let mut server = memberships.server_config(&[PROTOCOL], &Role::ALL);
        server.send_tls13_tickets = 1;
        TlsConfigs { client: Arc::new(memberships.client_config(&[PROTOCOL], &Role::ALL)), server: Arc::new(server) }
    }
}

/// Returns the grid of the node at an address, if it answers and belongs to one of the grids.
pub(super) fn grid_of(address: &str, memberships: &Memberships) -> Option<String> {
    let config = TlsConfigs::new(memberships).client;
    let until = Instant::now() + Duration::from_nanos(DIAL_NS_MAX);
    let left = || until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    address.to_socket_addrs().ok()?.find_map(|address| {
        let mut stream = TcpStream::connect_timeout(&address, left()).ok()?;
        stream.set_read_timeout(Some(left())).ok()?;
        let name = "which-grid.gridloom".try_into().expect("it is a name of the DNS");
        let mut connection = ClientConnection::new(config.clone(), name).ok()?;
        while connection.is_handshaking() && Instant::now() < until {
            connection.complete_io(&mut stream).ok()?;
        }
        let certificate = Certificate::read(connection.peer_certificates()?.first()?).ok()?;
        Some(certificate.identity.grid().to_string())
    })
}
