//! Copies bytes between two sockets in the kernel: from a socket into a pipe and from there into the other socket, by
//! splice(2). A direction holds a pipe only while the receiving socket does not accept what was read.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};

use mio::net::TcpStream;
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

/// Maximum number of bytes that a direction reads before it writes: the default size of a pipe.
const PIPE_BYTES: usize = 64 << 10;
/// Maximum number of rounds of a direction before others get their turn.
const ROUNDS_MAX: u32 = 16;
/// Maximum number of empty pipes that are kept.
const SPARE_PIPES_MAX: usize = 16;

struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// Pipes that no direction uses.
#[derive(Default)]
pub(super) struct Pipes(Vec<Pipe>);

impl Pipes {
    fn take(&mut self) -> io::Result<Pipe> {
        if let Some(pipe) = self.0.pop() {
            return Ok(pipe);
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Pipe { read, write })
    }

    fn put(&mut self, pipe: Pipe) {
        if self.0.len() < SPARE_PIPES_MAX {
            self.0.push(pipe);
        }
    }
}

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    pipe: Option<Pipe>,
    in_pipe: usize,
    /// The sender has ended.
    has_ended: bool,
    /// The end was passed on.
    is_done: bool,
}

/// The two sockets of a connection between nodes.
pub(super) struct Forwarded {
    pub(super) sockets: [TcpStream; 2],
    directions: [Direction; 2],
    /// Bytes that were forwarded, in both directions.
    pub(super) bytes: u64,
}

/// Remaining work after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// The sockets report when they are ready.
    Waits,
    /// There is more to forward now.
    HasMore,
    /// Both sides have ended.
    Ended,
}

impl Forwarded {
    pub(super) fn new(sockets: [TcpStream; 2]) -> Forwarded {
        Forwarded { sockets, directions: Default::default(), bytes: 0 }
    }

    /// Forwards the available bytes in both directions, as far as the sockets accept them.
    ///
    /// # Errors
    /// If one of the connections fails: both must be closed.
    pub(super) fn forward(&mut self, pipes: &mut Pipes) -> io::Result<Progress> {
        let mut has_more = false;
        for (from, direction) in self.directions.iter_mut().enumerate() {
            let (source, sink) = (&self.sockets[from], &self.sockets[1 - from]);
            has_more |= direction.forward(source, sink, pipes, &mut self.bytes)?;
        }
        Ok(match has_more {
            true => Progress::HasMore,
            false if self.directions.iter().all(|direction| direction.is_done) => Progress::Ended,
            false => Progress::Waits,
        })
    }
}

impl Direction {
    /// Returns true if the direction has used up its turn.
    fn forward(
        &mut self,
        source: &TcpStream,
        sink: &TcpStream,
        pipes: &mut Pipes,
        bytes: &mut u64,
    ) -> io::Result<bool> {
        for _ in 0..ROUNDS_MAX {
            if self.is_done {
                return Ok(false);
            }
            let pipe = match self.pipe.take() {
                Some(pipe) => pipe,
                None => pipes.take()?,
            };
            let moved = self.round(source, sink, &pipe, bytes);
            match self.in_pipe {
                0 if moved.is_ok() => pipes.put(pipe),
                _ => self.pipe = Some(pipe),
            }
            if !moved? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads and writes once. Returns whether anything has moved.
    fn round(&mut self, source: &TcpStream, sink: &TcpStream, pipe: &Pipe, bytes: &mut u64) -> io::Result<bool> {
        let mut has_moved = false;
        if self.in_pipe == 0 && !self.has_ended {
            match moved(source, &pipe.write, PIPE_BYTES)? {
                Some(0) => self.has_ended = true,
                Some(count) => {
                    self.in_pipe = count;
                    has_moved = true;
                }
                None => {}
            }
        }
        if self.in_pipe > 0
            && let Some(count) = moved(&pipe.read, sink, self.in_pipe)?
        {
            self.in_pipe -= count;
            *bytes += count as u64;
            has_moved = true;
        }
        if self.has_ended && self.in_pipe == 0 {
            self.is_done = true;
            // Fails if the receiver has closed its socket already.
            let _ = sink.shutdown(Shutdown::Write);
        }
        Ok(has_moved)
    }
}

/// Moves bytes; `None` if that would block.
fn moved(from: &impl AsFd, to: &impl AsFd, bytes: usize) -> io::Result<Option<usize>> {
    loop {
        match splice(from, None, to, None, bytes, SpliceFlags::MOVE | SpliceFlags::NONBLOCK) {
            Ok(count) => return Ok(Some(count)),
            Err(error) => match io::Error::from(error) {
                error if error.kind() == ErrorKind::Interrupted => {}
                error if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                error => return Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net;

    use super::*;

    fn pair() -> (net::TcpStream, TcpStream) {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let outer = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (inner, _) = listener.accept().unwrap();
        inner.set_nonblocking(true).unwrap();
        (outer, TcpStream::from_std(inner))
    }

    #[test]
    fn bytes_pass_both_ways_and_the_end_of_one_side_is_passed_on() {
        let ((mut a, inner_a), (mut b, inner_b)) = (pair(), pair());
        let (mut forwarded, mut pipes) = (Forwarded::new([inner_a, inner_b]), Pipes::default());
        a.write_all(b"to b").unwrap();
        b.write_all(b"to a").unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        let mut read = [0; 4];
        while forwarded.bytes < 8 {
            forwarded.forward(&mut pipes).unwrap();
        }
        b.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"to b");
        while !forwarded.directions[0].is_done {
            forwarded.forward(&mut pipes).unwrap();
        }
        assert_eq!(b.read(&mut read).unwrap(), 0, "the end of a");
        a.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"to a");
        drop(b);
        while forwarded.forward(&mut pipes).unwrap() != Progress::Ended {}
        assert_eq!(forwarded.bytes, 8);
        assert!(
            forwarded.directions.iter().all(|direction| direction.pipe.is_none()),
            "a direction that ends keeps a pipe"
        );
    }

    #[test]
    fn a_receiver_that_does_not_read_holds_up_its_sender() {
        let ((mut a, inner_a), (mut b, inner_b)) = (pair(), pair());
        a.set_nonblocking(true).unwrap();
        let (mut forwarded, mut pipes) = (Forwarded::new([inner_a, inner_b]), Pipes::default());
        let (block, mut written) = (vec![7; 1 << 20], 0);
        // Ends when the buffers of the system are full.
        loop {
            let accepted = a.write(&block).unwrap_or(0);
            written += accepted;
            if forwarded.forward(&mut pipes).unwrap() == Progress::Waits && accepted == 0 {
                break;
            }
        }
        assert!((forwarded.bytes as usize) < written, "the rest waits");
        drop(a);
        let reader = std::thread::spawn(move || b.read_to_end(&mut Vec::new()).unwrap());
        while forwarded.forward(&mut pipes).is_ok_and(|_| !forwarded.directions[0].is_done) {}
        drop(forwarded);
        assert_eq!(reader.join().unwrap(), written);
    }
}
