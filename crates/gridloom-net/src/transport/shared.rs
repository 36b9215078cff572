//! What the control loop and the thread that sends to a peer share: how the peer is reached, what is under way, and the
//! sockets that both may close.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridloom_base::DatumId;
use gridloom_base::limits::PASSED_ON_MAX;
use gridloom_channel::{Dialect, Keys};

use super::apart::Way;
use super::handshake::{Hello, Pass};
use super::host::HostSockets;
use super::notice::{Inbox, Link};
use crate::identity::Credentials;
use crate::segment::Segment;

/// Lanes to one peer: see [`super::lanes`].
pub const LANES: u64 = PASSED_ON_MAX as u64 + 1;
/// A bulk connection is broken when its network is silent for so long with bytes under way.
pub const BULK_SILENCE: Duration = Duration::from_secs(20);

/// How the peer can be reached.
#[derive(Clone)]
pub struct Route {
    /// What this node says of itself.
    pub own: Hello,
    /// What it proves itself with.
    pub credentials: Credentials,
    /// What both know from their control connection.
    pub pass: Pass,
    /// What the peer said of itself.
    pub peer: Hello,
    /// Where nodes of this host meet.
    pub sockets: Option<HostSockets>,
    /// Connections of a stream; by the round trip, if `None`.
    pub stripes: Option<u8>,
    /// What stands between, if the peer is in another site.
    pub(crate) way: Option<Arc<Way>>,
    /// How the peer reads headers.
    pub dialect: Dialect,
}

/// A stream that the peer was asked to open, or why there is none.
pub(super) type Opened = (u64, io::Result<(TcpStream, Keys)>);

/// What the loop and the thread share.
pub(super) struct Shared {
    pub(super) link: Link,
    pub(super) inbox: Arc<Inbox>,
    /// Of how much memory that the peer uses this node keeps hold, to use it again: each takes a descriptor.
    pub(super) grants_max: usize,
    pub(super) state: Mutex<State>,
    /// Told when the lane ends.
    pub(super) ended: Condvar,
}

/// What changes, under the lock.
#[derive(Default)]
pub(super) struct State {
    pub(super) cancelled: bool,
    /// What is to be sent, or is being sent.
    pub(super) jobs: usize,
    pub(super) current: Option<(u64, Closer)>,
    /// The stream that the peer was asked to open, until it has or cannot.
    pub(super) asked: Option<u64>,
    /// Sent and not acknowledged: stream, number, datum.
    pub(super) under_way: VecDeque<(u64, u64, Option<DatumId>)>,
    /// Memory that the peer uses, by number.
    pub(super) grants: BTreeMap<u64, Arc<Segment>>,
}

impl State {
    /// What the peer has used longest is left to it, beyond so many: it lives as long as the peer uses it, and is not used again.
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

/// Ends the use of a stream by another thread.
#[derive(Debug)]
pub enum Closer {
    /// TCP: all connections of the stream.
    Tcp(Vec<TcpStream>),
    /// Unix.
    Unix(UnixStream),
}

impl Closer {
    /// Shuts the stream.
    pub fn close(&self) {
        // A stream that the other side has closed already cannot be shut, nor need it.
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

    /// Waits until that time.
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

/// Sets a bulk socket for a blocking thread: no delay, and a dead network is noticed within [`BULK_SILENCE`]. On a bulk
/// connection one end only reads and the other only writes, so neither would notice otherwise.
///
/// # Errors
/// If the system refuses.
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
