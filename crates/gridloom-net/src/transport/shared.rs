//! State shared by the control loop and the thread that sends to a peer: how the peer is reached, what is in flight,
//! and the sockets that both may close.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridloom_base::DatumId;
use gridloom_base::limits::FORWARDS_MAX;
use gridloom_channel::WireVersion;

use super::emulated_sites::EmulatedLink;
use super::handshake::{Hello, Pass};
use super::host::HostSockets;
use super::notice::{Inbox, Link};
use super::reach::Unreachable;
use super::tls::TlsStream;
use crate::identity::Credentials;
use crate::segment::Segment;

/// Number of lanes to one peer: see [`super::lanes`].
pub const LANES: u64 = FORWARDS_MAX as u64 + 1;
/// Maximum network silence with bytes in flight, after which a bulk connection counts as broken.
pub const BULK_SILENCE: Duration = Duration::from_secs(20);

/// How the peer can be reached.
#[derive(Clone)]
pub struct Route {
    /// Description of this node.
    pub own: Hello,
    /// Credentials of this node.
    pub credentials: Credentials,
    /// Pass derived from the control connection.
    pub pass: Pass,
    /// Description of the peer.
    pub peer: Hello,
    /// Sockets on which nodes of this host meet.
    pub sockets: Option<HostSockets>,
    pub unreachable: Arc<Unreachable>,
    /// Number of connections of a stream; derived from the round-trip time if `None`.
    pub stripes: Option<u8>,
    /// Emulated link, if the peer is in another site.
    pub(crate) emulated_link: Option<Arc<EmulatedLink>>,
    /// Wire version of headers that the peer reads.
    pub wire_version: WireVersion,
}

/// A stream that the peer was asked to open, or why there is none.
pub(super) type Opened = (u64, io::Result<TlsStream<TcpStream>>);

/// State shared by the loop and the thread.
pub(super) struct Shared {
    pub(super) link: Link,
    pub(super) inbox: Arc<Inbox>,
    /// Maximum number of segments in use by the peer that this node keeps for reuse: each takes a descriptor.
    pub(super) grants_max: usize,
    pub(super) state: Mutex<State>,
    /// Notified when the lane ends.
    pub(super) ended: Condvar,
}

/// Mutable state, protected by the lock.
#[derive(Default)]
pub(super) struct State {
    pub(super) cancelled: bool,
    /// Number of jobs waiting or being sent.
    pub(super) jobs: usize,
    pub(super) current: Option<(u64, Closer)>,
    /// Stream that the peer was asked to open, until it has opened it or failed to.
    pub(super) requested: Option<u64>,
    /// Sent and not acknowledged: stream, number, datum.
    pub(super) in_flight: VecDeque<(u64, u64, Option<DatumId>)>,
    /// Memory that the peer uses, by serial number.
    pub(super) grants: BTreeMap<u64, Arc<Segment>>,
}

impl State {
    /// Gives up the oldest grants beyond `at_most`. Their memory lives as long as the peer uses it, and is not reused.
    pub(super) fn forget_grants(&mut self, at_most: usize) -> Vec<Arc<Segment>> {
        let mut forgotten = Vec::new();
        while self.grants.len() > at_most
            && let Some((_, segment)) = self.grants.pop_first()
        {
            segment.retire();
            forgotten.push(segment);
        }
        forgotten
    }
}

/// Ends another thread's use of a stream.
#[derive(Debug)]
pub enum Closer {
    /// TCP: all connections of the stream.
    Tcp(Vec<TcpStream>),
    /// Unix.
    Unix(UnixStream),
}

impl Closer {
    /// Shuts down the stream.
    pub fn close(&self) {
        // Fails if the other side has closed the stream already; then nothing needs to be done.
        match self {
            Closer::Tcp(streams) => streams.iter().for_each(|stream| _ = stream.shutdown(Shutdown::Both)),
            Closer::Unix(stream) => _ = stream.shutdown(Shutdown::Both),
        }
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `at`.
    ///
    /// # Errors
    /// If the lane ends before.
    pub(super) fn wait_until(&self, at: Instant) -> io::Result<()> {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let waited = self.ended.wait_timeout_while(self.lock(), left, |state| !state.cancelled);
        match waited.unwrap_or_else(PoisonError::into_inner).0.cancelled {
            true => Err(io::ErrorKind::NotConnected.into()),
            false => Ok(()),
        }
    }
}

/// Configures a bulk socket for a blocking thread: no delay, and a dead network is noticed within [`BULK_SILENCE`]. On
/// a bulk connection one end only reads and the other only writes, so neither would notice otherwise.
///
/// # Errors
/// If a system call fails.
pub fn prepare_blocking(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, BULK_SILENCE / 2)?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(2))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    sockopt::set_tcp_user_timeout(stream, BULK_SILENCE.as_millis() as u32)?;
    Ok(())
}
