//! Accepts connections on a process's listening ports and admits them by the handshake.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use gridloom_base::dial::{ConnectionError, ConnectionFault};

use super::peers::NewConnection;
use super::stream::{RingCount, Rings};
use crate::descriptors::{TooFewDescriptors, ensure_descriptors};
use crate::identity::Credentials;
use crate::threads::STACK_BYTES;
use crate::transport::handshake::{Handshake, Hello, Purpose, Verdict, run_blocking};
use crate::transport::tls::TlsStream;

/// State of a listener's thread.
#[derive(Clone)]
pub(super) struct Acceptor {
    pub(super) credentials: Credentials,
    pub(super) own: Hello,
    pub(super) accepted: Sender<NewConnection>,
    /// Counter of the process's rings, shared with connections that it dials.
    pub(super) rings: RingCount,
    /// Writing a byte to it wakes the process.
    pub(super) wake_pipe: Arc<OwnedFd>,
    /// True once the process no longer accepts connections.
    pub(super) is_shut: Arc<AtomicBool>,
}

/// Maximum number of handshakes in progress. Beyond it the oldest is closed: a member of the grid needs only milliseconds.
const PENDING_MAX: usize = 64;
/// Pause after a failed accept, for example when descriptors are exhausted.
const PAUSE: Duration = Duration::from_millis(20);

/// Sockets with handshakes in progress, oldest first.
type PendingHandshakes = Mutex<BTreeMap<u64, TcpStream>>;

impl Acceptor {
    /// Accepts until the listener is shut down. Each handshake runs on its own thread, so that a silent peer delays no other.
    pub(super) fn run(self, listener: &TcpListener) {
        let pending = Arc::new(PendingHandshakes::default());
        for number in 0.. {
            match listener.accept() {
                Ok((stream, _)) => self.start_handshake(number, stream, &pending),
                Err(_) if self.is_shut.load(Ordering::Acquire) => return,
                // The dialler has disconnected, or descriptors are exhausted temporarily.
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }

    /// Runs a handshake. A connection that fails it is closed, without other effects.
    fn start_handshake(&self, number: u64, stream: TcpStream, pending: &Arc<PendingHandshakes>) {
        let Ok(known) = stream.try_clone() else { return };
        let mut under_way = lock(pending);
        if under_way.len() >= PENDING_MAX
            && let Some((_, oldest)) = under_way.pop_first()
        {
            // Fails if the dialler has disconnected, which is the goal.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        under_way.insert(number, known);
        drop(under_way);
        let (acceptor, all) = (self.clone(), pending.clone());
        let run = move || {
            let shaken = acceptor.run_handshake(stream);
            lock(&all).remove(&number);
            shaken.into_iter().for_each(|shaken| acceptor.admit(shaken));
        };
        if thread::Builder::new().name("handshake".into()).stack_size(STACK_BYTES).spawn(run).is_err() {
            lock(pending).remove(&number);
        }
    }

    fn admit(&self, accepted: NewConnection) {
        if self.accepted.send(accepted).is_ok() {
            // If the pipe is full, the process wakes anyway.
            let _ = rustix::io::write(&*self.wake_pipe, &[1]);
        }
    }

    fn run_handshake(&self, stream: TcpStream) -> io::Result<NewConnection> {
        stream.set_nodelay(true)?;
        let handshake = Handshake::accept(self.credentials.clone(), self.own.clone())?;
        let mut stream = TlsStream::accept(stream, &self.credentials.tls)?;
        stream.set_blocking();
        let (hello, _, _) = run_blocking(&mut stream, handshake, None, |hello| match hello.purpose {
            Purpose::Process => Ok(Verdict::Welcome),
            _ => {
                let why = "this is a process of a deployment, not a grid node";
                Err(ConnectionError::new(ConnectionFault::Refused, why))
            }
        })?;
        let rings = if is_here(&hello, &self.own) { Rings::accept(&mut stream, &self.rings)? } else { None };
        Ok(NewConnection { stream, name: hello.name, rings })
    }
}

/// Runs the dialler's side of the handshake.
pub(super) fn dial_handshake(
    stream: TcpStream,
    address: SocketAddr,
    credentials: &Credentials,
    own: &Hello,
    count: &RingCount,
) -> io::Result<NewConnection> {
    stream.set_nodelay(true)?;
    let (handshake, first) = Handshake::dial(credentials.clone(), own.clone())?;
    let mut stream = TlsStream::dial(stream, &credentials.tls, &address.into())?;
    stream.set_blocking();
    let (hello, _, _) = run_blocking(&mut stream, handshake, Some(first), |_| Ok(Verdict::Welcome))?;
    let rings = if is_here(&hello, own) { Rings::dial(&mut stream, count)? } else { None };
    Ok(NewConnection { stream, name: hello.name, rings })
}

/// Reports whether both processes share memory.
fn is_here(hello: &Hello, own: &Hello) -> bool {
    !own.host.is_empty() && hello.host == own.host
}

/// Ensures that this process can open this many connections through this many listeners, in addition to its open
/// descriptors. If the limit is too low, raises it to its maximum.
///
/// # Errors
/// If the maximum is too low, too.
pub fn room_for(connections: usize, listeners: usize) -> io::Result<()> {
    // A connection takes two descriptors until it is admitted.
    let pending = connections.min(listeners * PENDING_MAX);
    ensure_descriptors(listeners + connections + pending).map_err(|TooFewDescriptors { needed, limit }| {
        let why = format!(
            "{connections} connections need {needed} descriptors including those already open, but the limit of this \
             process is {limit}: raise the limit (ulimit -Hn)"
        );
        io::Error::new(io::ErrorKind::QuotaExceeded, why)
    })
}

fn lock(pending: &PendingHandshakes) -> MutexGuard<'_, BTreeMap<u64, TcpStream>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::{descriptor_limit, raise_descriptor_limit};

    #[test]
    fn more_connections_than_descriptors_are_refused_with_both_numbers() {
        room_for(10, 1).unwrap();
        raise_descriptor_limit();
        let limit = descriptor_limit();
        let told = room_for(usize::try_from(limit).unwrap(), 1).unwrap_err().to_string();
        assert!(told.starts_with(&format!("{limit} connections need ")), "{told}");
        assert!(told.ends_with(&format!("is {limit}: raise the limit (ulimit -Hn)")), "{told}");
    }
}
