//! The stream of a connection between two processes: TCP, or between processes of one host two rings in shared memory beside it.
//!
//! ```text
//! dialler                                     acceptor
//!   | handshake <==========================>    |   TCP; both say which host they run on
//!   | process, descriptor, number ------------->|   if it is the same host
//!   |                                           |   maps the dialler's memory, which holds the number
//!   |<------------------------------- yes or no |   no: the connection goes on by TCP
//!   | rings <==============================>    |   the socket then wakes a side that sleeps, and says that a side is gone
//! ```
//! The descriptor is opened by way of `/proc`, as the system allows the same user alone. So frames in rings carry no tags: what can
//! write there can write into both processes. The random number tells a process of another container with the same number apart.
//!
//! **Promise:** what a side has written before it went is read before its end.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gridloom_base::limits::DIAL_NS_MAX;

use super::ring::{RING_WORDS, Reader, Writer};
use crate::identity::random;
use crate::segment::SharedWords;

/// The dialler's ring, the acceptor's, and the number.
const WORDS: usize = 2 * RING_WORDS + 1;
const NUMBER: usize = 2 * RING_WORDS;
const YES: u8 = 1;

/// Both rings of a connection.
pub(super) struct Rings {
    writer: Writer,
    reader: Reader,
}

/// One end of a connection, which does not block.
pub(super) struct Stream {
    tcp: TcpStream,
    rings: Option<Rings>,
    /// The socket was read to its end, or is broken.
    is_ended: bool,
}

impl Rings {
    fn new(memory: SharedWords, [own, other]: [usize; 2]) -> Rings {
        let memory = Arc::new(memory);
        Rings { writer: Writer::new(memory.clone(), own), reader: Reader::new(memory, other) }
    }

    /// The dialler's side, after the handshake. `None` if the acceptor cannot map the memory.
    ///
    /// # Errors
    /// If the system has no memory or descriptors, or the acceptor says nothing.
    pub(super) fn dial(stream: &TcpStream) -> io::Result<Option<Rings>> {
        let (memory, number) = (SharedWords::new(WORDS)?, random::<8>()?);
        memory.words()[NUMBER].store(u64::from_le_bytes(number), Ordering::Relaxed);
        let (process, descriptor) = (std::process::id(), memory.fd().as_raw_fd());
        let offer = [&process.to_le_bytes()[..], &descriptor.to_le_bytes(), &number].concat();
        let answer = within(stream, |mut stream| {
            stream.write_all(&offer)?;
            let mut answer = [0];
            stream.read_exact(&mut answer)?;
            Ok(answer)
        })?;
        Ok((answer == [YES]).then(|| Rings::new(memory, [0, RING_WORDS])))
    }

    /// The acceptor's side.
    ///
    /// # Errors
    /// If the dialler says nothing.
    pub(super) fn accept(stream: &TcpStream) -> io::Result<Option<Rings>> {
        within(stream, |mut stream| {
            let mut offer = [0; 16];
            stream.read_exact(&mut offer)?;
            let (process, rest) = offer.split_first_chunk::<4>().expect("16 bytes");
            let (descriptor, number) = rest.split_first_chunk::<4>().expect("12 bytes");
            let path = format!("/proc/{}/fd/{}", u32::from_le_bytes(*process), u32::from_le_bytes(*descriptor));
            // Another user's process, or one of another container.
            let file = OpenOptions::new().read(true).write(true).open(path);
            let memory = file.and_then(|file| SharedWords::open(file.into(), WORDS)).ok();
            let memory =
                memory.filter(|memory| memory.words()[NUMBER].load(Ordering::Relaxed).to_le_bytes() == *number);
            stream.write_all(&[if memory.is_some() { YES } else { 0 }])?;
            Ok(memory.map(|memory| Rings::new(memory, [RING_WORDS, 0])))
        })
    }
}

/// Does that on the socket, which blocks, with a time limit.
fn within<T>(stream: &TcpStream, exchange: impl FnOnce(&TcpStream) -> io::Result<T>) -> io::Result<T> {
    stream.set_read_timeout(Some(Duration::from_nanos(DIAL_NS_MAX)))?;
    let done = exchange(stream);
    stream.set_read_timeout(None)?;
    done
}

impl Stream {
    pub(super) fn new(tcp: TcpStream, rings: Option<Rings>) -> Stream {
        Stream { tcp, rings, is_ended: false }
    }

    pub(super) fn has_rings(&self) -> bool {
        self.rings.is_some()
    }

    /// Gives up the socket; the other side reads what was written to its end.
    pub(super) fn into_socket(self) -> TcpStream {
        if let Some(rings) = &self.rings {
            rings.writer.close();
        }
        self.tcp
    }

    /// Whether a ring has something to read.
    pub(super) fn has_bytes(&mut self) -> bool {
        self.rings.as_mut().is_some_and(|rings| rings.reader.has_bytes())
    }

    /// Whether a ring takes something.
    pub(super) fn has_room(&mut self) -> bool {
        self.rings.as_mut().is_some_and(|rings| rings.writer.has_room())
    }

    /// Whether the other side has closed its ring.
    pub(super) fn is_closed_there(&self) -> bool {
        self.is_ended || self.rings.as_ref().is_some_and(|rings| rings.reader.is_closed())
    }

    /// This side sleeps from now on. Whether it may: nothing has come meanwhile.
    pub(super) fn sleeps(&mut self) -> bool {
        let Some(rings) = &mut self.rings else { return true };
        rings.reader.sleeps();
        !rings.reader.has_bytes()
    }

    /// This side does not sleep any more.
    pub(super) fn is_awake(&self) {
        if let Some(rings) = &self.rings {
            rings.reader.is_awake();
        }
    }

    /// The socket can be read: where there are rings, it has rung, or has ended.
    pub(super) fn rung(&mut self) {
        let mut bells = [0; 64];
        while self.rings.is_some() && !self.is_ended {
            match self.tcp.read(&mut bells) {
                Ok(0) => self.is_ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // One that ends with bells unread resets its connection.
                Err(_) => self.is_ended = true,
            }
        }
    }
}

/// A socket that takes no more has bells in it, and one that is broken says so where it is read.
fn ring(mut tcp: &TcpStream) {
    let _ = tcp.write(&[0]);
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(rings) = &mut self.rings else { return self.tcp.read(into) };
        let (length, wakes) = rings.reader.read(into)?;
        if wakes {
            ring(&self.tcp);
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
            ring(&self.tcp);
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}
