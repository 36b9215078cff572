//! The stream of a connection between two processes: TCP, or, between processes of one host, two rings in shared memory beside it.
//!
//! ```text
//! dialler                                     acceptor
//!   | handshake <==========================>    |   TCP; both send the host they run on
//!   | process, descriptor, number ------------->|   if the host is the same; process 0 means no offer
//!   |                                           |   maps the dialler's memory, which contains the number
//!   |<------------------------------- yes or no |   no: the connection continues over TCP
//!   | rings <==============================>    |   the socket then wakes a sleeping side, and reports a side that is gone
//! ```
//! The acceptor opens the descriptor through `/proc`, which the system permits only for the same user. Frames in rings
//! therefore carry no authentication tags: a process that can write there can write into both processes. The random
//! number distinguishes a process of another container that has the same pid.
//!
//! **Guarantee:** data that a side has written before it ended are read before the end.
//! **Limit:** a process has rings with at most [`RINGS_MAX`] peers. With further peers, or without memory or
//! descriptors, it uses TCP.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gridloom_base::limits::{DIAL_NS_MAX, RINGS_MAX};

use super::ring::{RING_WORDS, Reader, Writer};
use crate::identity::random;
use crate::segment::SharedWords;
use crate::transport::tls::TlsStream;

/// Layout: the dialler's ring, the acceptor's ring, and the number.
const WORDS: usize = 2 * RING_WORDS + 1;
const NUMBER: usize = 2 * RING_WORDS;
const OFFER_BYTES: usize = 16;
/// Offer that no acceptor can open, since no process has pid 0.
const NO_OFFER: [u8; OFFER_BYTES] = [0; OFFER_BYTES];
const YES: u8 = 1;
const NO: u8 = 0;
/// Maximum number of wake-up bytes read at a time.
const WAKE_BYTES_MAX: usize = 4096;

/// Counts the connections of a process that have rings.
#[derive(Clone, Default)]
pub(super) struct RingCount(Arc<AtomicUsize>);

/// One counted connection; dropping it decrements the counter.
struct Counted(RingCount);

impl RingCount {
    /// Counts one more connection. Returns `None` at the limit.
    fn take(&self) -> Option<Counted> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(self.clone());
        (before < RINGS_MAX).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Both rings of a connection.
pub(super) struct Rings {
    writer: Writer,
    reader: Reader,
    _counted: Counted,
}

/// The dialler's memory, until the acceptor has replied.
struct Offer {
    memory: SharedWords,
    /// Kept open because the acceptor opens it by its number.
    _file: OwnedFd,
    bytes: [u8; OFFER_BYTES],
}

impl Offer {
    fn new() -> io::Result<Offer> {
        let ((memory, file), number) = (SharedWords::new(WORDS)?, random::<8>()?);
        memory.words()[NUMBER].store(u64::from_le_bytes(number), Ordering::Relaxed);
        let mut bytes = NO_OFFER;
        bytes[..4].copy_from_slice(&std::process::id().to_le_bytes());
        bytes[4..8].copy_from_slice(&file.as_raw_fd().to_le_bytes());
        bytes[8..].copy_from_slice(&number);
        Ok(Offer { memory, _file: file, bytes })
    }

    /// Maps the offered memory. Returns `None` if there is no offer, or it belongs to another user or container.
    fn open(bytes: [u8; OFFER_BYTES]) -> Option<SharedWords> {
        let (process, rest) = bytes.split_first_chunk::<4>().expect("16 bytes");
        let (descriptor, number) = rest.split_first_chunk::<4>().expect("12 bytes");
        let path = format!("/proc/{}/fd/{}", u32::from_le_bytes(*process), u32::from_le_bytes(*descriptor));
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let memory = SharedWords::open(file.as_fd(), WORDS).ok()?;
        (memory.words()[NUMBER].load(Ordering::Relaxed).to_le_bytes() == *number).then_some(memory)
    }
}

/// One end of a connection, which does not block.
pub(super) struct Stream {
    tcp: TlsStream<TcpStream>,
    rings: Option<Rings>,
    /// True if the socket was read to its end, or is broken.
    is_ended: bool,
}

impl Rings {
    fn new(memory: SharedWords, [own, other]: [usize; 2], counted: Counted) -> Rings {
        let memory = Arc::new(memory);
        Rings { writer: Writer::new(memory.clone(), own), reader: Reader::new(memory, other), _counted: counted }
    }

    /// Runs the dialler's side, after the handshake. Returns `None` if there is no memory for the rings, or the
    /// acceptor does not map it.
    ///
    /// # Errors
    /// If the acceptor does not reply.
    pub(super) fn dial(stream: &mut TlsStream<TcpStream>, count: &RingCount) -> io::Result<Option<Rings>> {
        // The acceptor waits for an offer even if memory or descriptors are exhausted.
        let made = count.take().and_then(|counted| Some((counted, Offer::new().ok()?)));
        let offer = made.as_ref().map_or(NO_OFFER, |(_, offer)| offer.bytes);
        let answer = within(stream, |stream| {
            stream.write_all(&offer)?;
            let mut answer = [0];
            stream.read_exact(&mut answer)?;
            Ok(answer)
        })?;
        let agreed = made.filter(|_| answer == [YES]);
        Ok(agreed.map(|(counted, offer)| Rings::new(offer.memory, [0, RING_WORDS], counted)))
    }

    /// Runs the acceptor's side.
    ///
    /// # Errors
    /// If the dialler does not send its offer.
    pub(super) fn accept(stream: &mut TlsStream<TcpStream>, count: &RingCount) -> io::Result<Option<Rings>> {
        within(stream, |stream| {
            let mut offer = NO_OFFER;
            stream.read_exact(&mut offer)?;
            let opened = count.take().and_then(|counted| Some((counted, Offer::open(offer)?)));
            stream.write_all(&[if opened.is_some() { YES } else { NO }])?;
            Ok(opened.map(|(counted, memory)| Rings::new(memory, [RING_WORDS, 0], counted)))
        })
    }
}

/// Runs an exchange on the blocking socket, with a time limit.
fn within<T>(
    stream: &mut TlsStream<TcpStream>,
    exchange: impl FnOnce(&mut TlsStream<TcpStream>) -> io::Result<T>,
) -> io::Result<T> {
    stream.get().set_read_timeout(Some(Duration::from_nanos(DIAL_NS_MAX)))?;
    let done = exchange(stream);
    stream.get().set_read_timeout(None)?;
    done
}

impl Stream {
    pub(super) fn new(tcp: TlsStream<TcpStream>, rings: Option<Rings>) -> Stream {
        // Wake-up bytes tell nothing, so they are not encrypted.
        let tcp = if rings.is_some() { TlsStream::plain(tcp.into_inner()) } else { tcp };
        Stream { tcp, rings, is_ended: false }
    }

    pub(super) fn has_rings(&self) -> bool {
        self.rings.is_some()
    }

    /// Reports whether the last read left bytes of the socket here.
    pub(super) fn has_unread(&self) -> bool {
        self.tcp.has_unread()
    }

    /// Returns the socket; the other side can still read everything that was written.
    pub(super) fn into_socket(self) -> TcpStream {
        if let Some(rings) = &self.rings {
            rings.writer.close();
        }
        self.tcp.into_inner()
    }

    /// Reports whether the ring has data to read.
    pub(super) fn has_bytes(&mut self) -> bool {
        self.rings.as_mut().is_some_and(|rings| rings.reader.has_bytes())
    }

    /// Reports whether the ring has room for data.
    pub(super) fn has_room(&mut self) -> bool {
        self.rings.as_mut().is_some_and(|rings| rings.writer.has_room())
    }

    /// Reports whether the other side has closed its ring.
    pub(super) fn is_closed_by_peer(&self) -> bool {
        self.is_ended || self.rings.as_ref().is_some_and(|rings| rings.reader.is_closed())
    }

    /// Announces that this side sleeps. Returns true if it may: nothing has arrived meanwhile.
    pub(super) fn sleeps(&mut self) -> bool {
        let Some(rings) = &mut self.rings else { return true };
        rings.reader.sleeps();
        !rings.reader.has_bytes()
    }

    /// Announces that this side no longer sleeps.
    pub(super) fn clear_sleeping(&self) {
        if let Some(rings) = &self.rings {
            rings.reader.clear_sleeping();
        }
    }

    /// Stops reading after the data that have already arrived.
    pub(super) fn end(&mut self) {
        if let Some(rings) = &mut self.rings {
            rings.reader.stop_after_current();
        }
    }

    /// Handles a readable socket, whose end may follow the available data. With rings, the socket carries only wake-up
    /// bytes. It is read once, since `poll` reports again if there are more.
    pub(super) fn on_wake_bytes(&mut self, has_end: bool) {
        self.is_ended |= has_end && self.rings.is_some();
        if self.rings.is_none() || self.is_ended {
            return;
        }
        match self.tcp.get_mut().read(&mut [0; WAKE_BYTES_MAX]) {
            Ok(0) => self.is_ended = true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            // A peer that ends with unread wake-up bytes resets its connection.
            Err(_) => self.is_ended = true,
        }
    }
}

/// Wakes the other side. A socket that accepts no more bytes already contains wake-up bytes, and a broken socket is
/// reported when it is read.
fn wake_peer(mut tcp: &TcpStream) {
    let _ = tcp.write(&[0]);
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(rings) = &mut self.rings else { return self.tcp.read(into) };
        let (length, wakes) = rings.reader.read(into)?;
        if wakes {
            wake_peer(self.tcp.get());
        }
        match length {
            0 if self.is_ended && !rings.reader.has_bytes() => Ok(0),
            0 => Err(ErrorKind::WouldBlock.into()),
            length => Ok(length),
        }
    }

    fn read_vectored(&mut self, into: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        if self.rings.is_none() {
            return self.tcp.read_vectored(into);
        }
        let mut length = 0;
        for part in into.iter_mut().filter(|part| !part.is_empty()) {
            match self.read(part) {
                Ok(read) if read == part.len() => length += read,
                Ok(read) => return Ok(length + read),
                Err(error) if length == 0 || error.kind() != ErrorKind::WouldBlock => return Err(error),
                Err(_) => break,
            }
        }
        Ok(length)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(rings) = &mut self.rings else { return self.tcp.write_vectored(parts) };
        let (length, wakes) = rings.writer.write(parts)?;
        if wakes {
            wake_peer(self.tcp.get());
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Returns whether the dialler and the acceptor have rings, while the counters are held.
    fn shake(dialler: &RingCount, acceptor: &RingCount) -> [bool; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut dialled = TlsStream::plain(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let mut accepted = TlsStream::plain(listener.accept().unwrap().0);
        thread::scope(|scope| {
            let other = scope.spawn(|| Rings::accept(&mut accepted, acceptor).unwrap());
            let own = Rings::dial(&mut dialled, dialler).unwrap();
            [own.is_some(), other.join().unwrap().is_some()]
        })
    }

    #[test]
    fn a_peer_at_its_limit_falls_back_to_tcp() {
        let (full, free) = (RingCount::default(), RingCount::default());
        let mut taken: Vec<Counted> = (0..RINGS_MAX).map(|_| full.take().unwrap()).collect();
        assert_eq!(shake(&full, &free), [false; 2]);
        assert_eq!(shake(&free, &full), [false; 2]);
        taken.pop();
        assert_eq!(shake(&full, &free), [true; 2]);
        assert_eq!(shake(&free, &full), [true; 2]);
    }
}
