//! Several TCP connections used as one stream: consecutive parts are sent on consecutive connections. Over a
//! long-distance path, one connection has at most its window in flight, and halves it when a packet is lost. Several
//! connections have several times as much in flight.
//!
//! Both ends process parts in the same order, so parts arrive in the order in which they were sent.
//!
//! Source: GridFTP's parallel streams (W. Allcock et al., SC 2005).

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tls::TlsStream;

/// Maximum number of connections of one stream.
pub const STRIPES_MAX: u8 = 16;
/// Default number of connections of a stream over a long-distance path.
const STRIPES_LONG_DISTANCE: u8 = 4;
/// Minimum round-trip time of a long-distance path. By default Linux allows a connection 4 MiB of buffer, of which
/// about half is in flight: 0.7 Gb/s at this round-trip time.
const LONG_ROUND_TRIP_MIN: Duration = Duration::from_millis(25);

/// The position of a connection within its stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stripe {
    pub number: u8,
    pub of: u8,
}

impl Stripe {
    /// The only connection of a stream.
    pub const ONE: Stripe = Stripe { number: 0, of: 1 };

    /// # Errors
    /// If the position is invalid.
    pub fn check(self) -> Result<(), String> {
        match self.number < self.of && self.of <= STRIPES_MAX {
            true => Ok(()),
            false => Err(format!(
                "connection {} of {} of a stream is invalid: at most {STRIPES_MAX} are allowed",
                self.number, self.of
            )),
        }
    }
}

/// Returns the number of connections of a stream to a peer: the wanted number, or one derived from the round-trip time.
pub fn count(wanted: Option<u8>, first: &TcpStream) -> u8 {
    let is_far = || round_trip(first).is_ok_and(|round_trip| round_trip >= LONG_ROUND_TRIP_MIN);
    wanted.unwrap_or_else(|| if is_far() { STRIPES_LONG_DISTANCE } else { 1 }).clamp(1, STRIPES_MAX)
}

/// Returns the round-trip time measured by the system, which does not include waiting for this process.
fn round_trip(stream: &TcpStream) -> io::Result<Duration> {
    // SAFETY: the structure consists of integers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let (option, at) = (libc::TCP_INFO, (&raw mut info).cast());
    // SAFETY: the socket is open, and the system writes no more than `length` bytes to `info`.
    let done = unsafe { libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, option, at, &raw mut length) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::from_micros(info.tcpi_rtt.into()))
}

/// The connections of one stream.
#[derive(Debug)]
pub struct Stripes {
    sockets: Vec<TlsStream<TcpStream>>,
    at: usize,
}

impl Stripes {
    /// # Panics
    /// If `sockets` is empty.
    pub fn new(sockets: Vec<TlsStream<TcpStream>>) -> Stripes {
        assert!(!sockets.is_empty(), "a stream has a connection");
        Stripes { sockets, at: 0 }
    }

    /// Returns handles of all connections.
    ///
    /// # Errors
    /// If the system has no descriptor available.
    pub fn handles(&self) -> io::Result<Vec<TcpStream>> {
        self.sockets.iter().map(|socket| socket.get().try_clone()).collect()
    }
}

impl From<TlsStream<TcpStream>> for Stripes {
    fn from(socket: TlsStream<TcpStream>) -> Stripes {
        Stripes::new(vec![socket])
    }
}

/// A stream that is informed of the boundaries of parts.
pub trait PartBoundary {
    /// Begins the next part.
    fn next_part(&mut self);
}

impl PartBoundary for Stripes {
    fn next_part(&mut self) {
        self.at = (self.at + 1) % self.sockets.len();
    }
}

/// A single connection carries its parts one after another.
impl<S> PartBoundary for TlsStream<S> {
    fn next_part(&mut self) {}
}

impl PartBoundary for Vec<u8> {
    fn next_part(&mut self) {}
}

impl Read for Stripes {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.sockets[self.at].read(bytes)
    }
}

impl Write for Stripes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sockets[self.at].write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.sockets[self.at].write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sockets.iter_mut().try_for_each(Write::flush)
    }
}

/// Collects the connections of a stream that a peer opens, until all are present.
#[derive(Debug)]
pub struct Gathering(Vec<Option<TlsStream<TcpStream>>>);

impl Gathering {
    pub fn of(stripe: Stripe) -> Gathering {
        Gathering((0..stripe.of).map(|_| None).collect())
    }

    /// Reports whether this connection is missing.
    pub fn is_missing(&self, stripe: Stripe) -> bool {
        self.0.len() == usize::from(stripe.of) && self.0[usize::from(stripe.number)].is_none()
    }

    /// Adds a missing connection; any other is closed. Returns all connections once the last is added.
    pub fn add(&mut self, stripe: Stripe, socket: TlsStream<TcpStream>) -> Option<Stripes> {
        // The connection may have been admitted before the first one was added, and state a different number of
        // connections.
        if !self.is_missing(stripe) {
            return None;
        }
        self.0[usize::from(stripe.number)] = Some(socket);
        if self.0.iter().any(Option::is_none) {
            return None;
        }
        Some(Stripes::new(std::mem::take(&mut self.0).into_iter().flatten().collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn pair() -> (TlsStream<TcpStream>, TlsStream<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (TlsStream::plain(dialled), TlsStream::plain(listener.accept().unwrap().0))
    }

    #[test]
    fn parts_arrive_in_order_over_several_connections() {
        let (sending, receiving): (Vec<_>, Vec<_>) = (0..3).map(|_| pair()).unzip();
        assert_eq!([None, Some(3), Some(0)].map(|wanted| count(wanted, sending[0].get())), [1, 3, 1]);
        let (mut sender, mut receiver) = (Stripes::new(sending), Stripes::new(receiving));
        let part = |number: u8| vec![number; 300_000 + usize::from(number)];
        let writer = thread::spawn(move || {
            for number in 0..20 {
                sender.write_all(&part(number)).unwrap();
                sender.next_part();
            }
        });
        for number in 0..20 {
            let mut read = vec![0; part(number).len()];
            receiver.read_exact(&mut read).unwrap();
            receiver.next_part();
            assert_eq!(read, part(number));
        }
        writer.join().unwrap();
    }

    #[test]
    fn a_stream_is_there_with_its_last_connection() {
        let stripe = |number| Stripe { number, of: 2 };
        let mut gathering = Gathering::of(stripe(1));
        assert!(gathering.is_missing(stripe(1)) && !gathering.is_missing(Stripe { number: 0, of: 3 }));
        assert!(gathering.add(stripe(1), pair().0).is_none());
        assert!(!gathering.is_missing(stripe(1)) && gathering.is_missing(stripe(0)));
        for wrong in [stripe(1), Stripe { number: 3, of: 4 }] {
            assert!(gathering.add(wrong, pair().0).is_none());
        }
        let stripes = gathering.add(stripe(0), pair().0).unwrap();
        assert!(stripes.sockets.len() == 2);
        assert!(stripe(2).check().is_err() && Stripe { number: 0, of: STRIPES_MAX + 1 }.check().is_err());
        assert!(Stripe::ONE.check().is_ok());
    }
}
