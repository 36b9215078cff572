//! A control connection to another site: written data wait until they are due, and are sent at the rate of the link
//! ([`super::emulated_sites`]).
//!
//! **Invariant:** at most as many bytes wait as the link allows. Then the connection accepts nothing more, like a
//! socket whose peer does not read.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::time::Instant;

use mio::event::Source;
use mio::{Interest, Registry, Token};

use super::emulated_sites::{Delays, PIECE_BYTES};

/// A stream that may delay written data.
pub(crate) struct DelayedStream<S> {
    stream: S,
    queue: Option<Box<DelayQueue>>,
}

/// Waiting data, in order.
struct DelayQueue {
    delays: Delays,
    pieces: VecDeque<Piece>,
    waiting_bytes: usize,
    /// Time at which the last scheduled piece has left; the next piece cannot leave earlier.
    left: Instant,
    /// True if the stream accepted no more when something was due.
    is_blocked: bool,
}

struct Piece {
    bytes: Vec<u8>,
    written: usize,
    /// Time of its next write.
    at: Instant,
    /// True if the piece was already scheduled at the link's rate.
    is_scheduled: bool,
}

impl<S> DelayedStream<S> {
    /// Creates a stream that delays nothing yet.
    pub(crate) fn new(stream: S) -> DelayedStream<S> {
        DelayedStream { stream, queue: None }
    }

    /// Delays everything written from now on.
    pub(crate) fn delay(&mut self, delays: Delays) {
        let (pieces, left) = (VecDeque::new(), Instant::now());
        self.queue = Some(Box::new(DelayQueue { delays, pieces, waiting_bytes: 0, left, is_blocked: false }));
    }

    /// Reports whether data are waiting.
    pub(crate) fn has_delayed(&self) -> bool {
        self.queue.as_ref().is_some_and(|line| !line.pieces.is_empty())
    }

    /// Reports whether something is due that the stream does not accept yet.
    pub(crate) fn is_blocked(&self) -> bool {
        self.queue.as_ref().is_some_and(|line| line.is_blocked)
    }

    pub(crate) fn get(&self) -> &S {
        &self.stream
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: Write> DelayedStream<S> {
    /// Writes what is due at `now`. Returns the time of the next call; `None` if nothing waits, or the stream accepts no more.
    ///
    /// # Errors
    /// If the stream broke.
    pub(crate) fn write_due(&mut self, now: Instant) -> io::Result<Option<Instant>> {
        let Some(line) = &mut self.queue else { return Ok(None) };
        line.is_blocked = false;
        while let Some(piece) = line.pieces.front_mut() {
            if piece.at <= now && !piece.is_scheduled {
                piece.is_scheduled = true;
                piece.at = line.delays.link().departure(piece.at.max(line.left), now, piece.bytes.len());
                line.left = piece.at;
            }
            if piece.at > now {
                return Ok(Some(piece.at));
            }
            match piece.write(&mut self.stream) {
                Ok(length) => line.waiting_bytes -= length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    line.is_blocked = true;
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
            if piece.written == piece.bytes.len() {
                line.pieces.pop_front();
            }
        }
        Ok(None)
    }

    /// Writes all waiting data, as far as the stream accepts them: the node sends nothing more.
    pub(crate) fn write_all_now(&mut self) {
        let pieces = self.queue.take().map(|line| line.pieces).unwrap_or_default();
        for mut piece in pieces {
            while piece.written < piece.bytes.len() {
                // At the latest, the peer sees the connection close.
                if piece.write(&mut self.stream).is_err() {
                    return;
                }
            }
        }
    }
}

impl Piece {
    fn write(&mut self, stream: &mut impl Write) -> io::Result<usize> {
        match stream.write(&self.bytes[self.written..]) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(length) => {
                self.written += length;
                Ok(length)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }
}

impl DelayQueue {
    fn take(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let room = self.delays.link().room_bytes() - self.waiting_bytes;
        let mut bytes = Vec::new();
        for piece in pieces {
            bytes.extend_from_slice(&piece[..piece.len().min(room - bytes.len())]);
        }
        if bytes.is_empty() && pieces.iter().any(|piece| !piece.is_empty()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let length = bytes.len();
        if length > 0 {
            self.waiting_bytes += length;
            let at = self.delays.due(Instant::now());
            // Data are split so that at a low rate the peer receives something from this node while much is in flight.
            let pieces = bytes.chunks(PIECE_BYTES).map(<[u8]>::to_vec);
            self.pieces.extend(pieces.map(|bytes| Piece { bytes, written: 0, at, is_scheduled: false }));
        }
        Ok(length)
    }
}

impl<S: Read> Read for DelayedStream<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }

    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.stream.read_vectored(into)
    }
}

impl<S: Write> Write for DelayedStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.queue {
            None => self.stream.write(bytes),
            Some(line) => line.take(&[IoSlice::new(bytes)]),
        }
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.queue {
            None => self.stream.write_vectored(bytes),
            Some(line) => line.take(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: Source> Source for DelayedStream<S> {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.stream.register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.stream.reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.stream.deregister(registry)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::emulated_sites::{EmulatedLinks, Site};
    use super::*;

    /// A stream that accepts `room` bytes, and then nothing.
    struct Narrow {
        room: usize,
        bytes: Vec<u8>,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let length = bytes.len().min(self.room);
            if length == 0 {
                return Err(ErrorKind::WouldBlock.into());
            }
            self.room -= length;
            self.bytes.extend_from_slice(&bytes[..length]);
            Ok(length)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn held(filters: &[&str]) -> DelayedStream<Narrow> {
        let filters = filters.iter().map(|text| text.parse().unwrap()).collect();
        let apart = EmulatedLinks::new(Some(Site::new("1", filters).unwrap()));
        let mut held = DelayedStream::new(Narrow { room: usize::MAX, bytes: Vec::new() });
        held.delay(apart.link_to("").unwrap().delays(0));
        held
    }

    #[test]
    fn bytes_wait_until_they_are_due_and_come_whole_and_in_order() {
        let mut held = held(&["rate=1MB/s", "delay=50ms"]);
        held.stream.room = 1500;
        let begun = Instant::now();
        held.write_all(&[1; 1000]).unwrap();
        assert_eq!(held.write_vectored(&[IoSlice::new(&[2; 999]), IoSlice::new(&[3])]).unwrap(), 1000);
        let due = held.write_due(Instant::now()).unwrap().unwrap();
        assert!(due >= begun + Duration::from_millis(50) && held.stream.bytes.is_empty());
        let later = Instant::now() + Duration::from_millis(50);
        let left = held.write_due(later).unwrap().unwrap();
        assert!(left > later, "the rate gives it a millisecond");
        let second = held.write_due(left).unwrap().unwrap();
        assert_eq!(held.stream.bytes, [1; 1000]);
        assert_eq!((held.write_due(second).unwrap(), held.has_delayed()), (None, true), "the stream takes no more");
        assert!(held.is_blocked());
        held.stream.room = usize::MAX;
        assert_eq!((held.write_due(second).unwrap(), held.has_delayed()), (None, false));
        assert!(!held.is_blocked());
        assert_eq!(held.stream.bytes, [&[1; 1000][..], &[2; 999], &[3]].concat());
    }

    #[test]
    fn of_a_large_write_each_piece_leaves_when_it_has_had_its_own_time() {
        let mut held = held(&["rate=100kB/s"]);
        let piece = Duration::from_secs_f64(PIECE_BYTES as f64 / 100e3);
        held.write_all(&[7; 3 * PIECE_BYTES + 1]).unwrap();
        let first = held.write_due(Instant::now()).unwrap().unwrap();
        assert!(first <= Instant::now() + piece + Duration::from_millis(1), "the time of one piece, not of all");
        assert!(held.stream.bytes.is_empty());
        let second = held.write_due(first).unwrap().unwrap();
        assert_eq!((held.stream.bytes.len(), (second - first).as_millis()), (PIECE_BYTES, piece.as_millis()));
        let third = held.write_due(second + Duration::from_millis(4)).unwrap().unwrap();
        assert_eq!(held.stream.bytes.len(), 2 * PIECE_BYTES);
        assert_eq!((third - second).as_millis(), piece.as_millis(), "woken late, it catches up");
        let last = held.write_due(third).unwrap().unwrap();
        assert_eq!((held.write_due(last).unwrap(), held.has_delayed()), (None, false));
        assert_eq!(held.stream.bytes, [7; 3 * PIECE_BYTES + 1]);
    }

    #[test]
    fn no_more_waits_than_there_is_room_for_and_the_last_words_go_at_once() {
        let mut held = held(&["rate=1MB/s", "delay=1s"]);
        let room = held.queue.as_ref().unwrap().delays.link().room_bytes();
        assert_eq!(held.write(&vec![7; room + 5]).unwrap(), room);
        assert_eq!(held.write(&[7]).unwrap_err().kind(), ErrorKind::WouldBlock);
        held.write_all_now();
        assert_eq!(held.stream.bytes.len(), room);
    }
}
