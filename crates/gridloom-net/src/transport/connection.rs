//! A control connection: a non-blocking socket with the frames that came and the frames that wait to go.
//!
//! **Promises:** frames queued in one turn of the loop leave in one system call if the socket takes them; what comes is
//! held only as far as the frame that is being received, and that is bounded (for strangers by the handshake's limit);
//! frames that wait are bounded by [`CONTROL_BACKLOG_BYTES_MAX`], past which the connection is an error.

use std::io::{self, Read, Write};
use std::time::Duration;

use gridloom_core::wire::frame::{DataHeader, Decoder, Encoder, FrameError, HEADER_BYTES, Kind};
use serde::Serialize;

use super::CONTROL_BACKLOG_BYTES_MAX;
use super::handshake::{self, HANDSHAKE_BYTES_MAX};
use super::stream::Stream;

/// Least free room before a read.
const READ_BYTES_MIN: usize = 64 << 10;
/// Most bytes read from one connection in one turn, so that one flood does not starve the others.
const READ_BYTES_PER_TURN: usize = 4 << 20;
/// A buffer larger than this is given back once it is empty.
const BUFFER_KEEP_BYTES: usize = 1 << 20;

/// What a read left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// The socket is empty: its next event tells of more.
    Drained,
    /// There is more: read again next turn.
    More,
    /// The peer closed.
    Closed,
}

/// The connection.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    encoder: Encoder,
    /// Taken out while frames are handled.
    pub input: Input,
    output: Vec<u8>,
    sent: usize,
}

/// What came and was not handled yet: `buffer[head..tail]`.
#[derive(Debug, Default)]
pub struct Input {
    decoder: Decoder,
    buffer: Vec<u8>,
    head: usize,
    tail: usize,
}

impl Input {
    /// The next whole frame. `stranger` bounds it by the handshake's limit.
    ///
    /// # Errors
    /// The connection must be closed on any.
    pub fn next(&mut self, stranger: bool) -> Result<Option<(Kind, &[u8])>, FrameError> {
        let bytes = &self.buffer[self.head..self.tail];
        if let (true, Some(length)) = (stranger, bytes.first_chunk::<4>()) {
            let length = u32::from_le_bytes(*length) as usize;
            if length > HANDSHAKE_BYTES_MAX {
                return Err(FrameError::TooLong { length, limit: HANDSHAKE_BYTES_MAX });
            }
        }
        Ok(self.decoder.next(bytes)?.map(|(frame, total)| {
            self.head += total;
            (frame.kind, frame.body)
        }))
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Makes room for reading: what is left moves to the front, and the buffer doubles if a long frame fills it.
    fn make_room(&mut self) {
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
            if self.buffer.len() > BUFFER_KEEP_BYTES {
                self.buffer = Vec::new();
            }
        }
        if self.buffer.len() - self.tail >= READ_BYTES_MIN / 2 {
            return;
        }
        self.buffer.copy_within(self.head..self.tail, 0);
        (self.tail, self.head) = (self.tail - self.head, 0);
        if self.buffer.len() - self.tail < READ_BYTES_MIN / 2 {
            self.buffer.resize((self.buffer.len() * 2).max(READ_BYTES_MIN), 0);
        }
    }
}

impl Connection {
    /// Around a socket that is connected or about to be.
    pub fn new(stream: Stream) -> Connection {
        Connection { stream, encoder: Encoder::default(), input: Input::default(), output: Vec::new(), sent: 0 }
    }

    /// Its socket.
    pub fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Gives up the socket, for a connection that turned out to be a bulk one.
    pub fn into_stream(self) -> Stream {
        self.stream
    }

    /// Reads what is there. `closing`: the last event said that the peer closed, so a short read is not the end.
    ///
    /// # Errors
    /// If the connection broke.
    pub fn fill(&mut self, closing: bool) -> io::Result<Filled> {
        let input = &mut self.input;
        let mut total = 0;
        loop {
            input.make_room();
            let room = input.buffer.len() - input.tail;
            match self.stream.read(&mut input.buffer[input.tail..]) {
                Ok(0) => return Ok(Filled::Closed),
                Ok(length) => {
                    input.tail += length;
                    total += length;
                    // A short read has emptied a stream socket (epoll(7)): no second call to learn it.
                    if length < room && !closing {
                        return Ok(Filled::Drained);
                    }
                    if total >= READ_BYTES_PER_TURN {
                        return Ok(Filled::More);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Filled::Drained),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Queues a frame whose body is `value`.
    ///
    /// # Errors
    /// If it is too long.
    pub fn queue<T: Serialize>(&mut self, kind: Kind, value: &T) -> Result<(), FrameError> {
        self.encoder.message(kind, value, &mut self.output)
    }

    /// Queues a small datum.
    ///
    /// # Errors
    /// If it is too long.
    pub fn queue_data(&mut self, header: &DataHeader, payload: &[u8]) -> Result<(), FrameError> {
        self.encoder.data(header, payload, &mut self.output)
    }

    /// Queues a frame of the handshake.
    pub fn queue_handshake(&mut self, body: &[u8]) {
        let bytes = handshake::framed(&mut self.encoder, body);
        self.output.extend_from_slice(&bytes);
    }

    /// Whether frames wait for the socket to take more.
    pub fn is_blocked(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Writes what waits, as far as the socket takes it; the rest goes when it becomes writable.
    ///
    /// # Errors
    /// If the connection broke, or more waits than may.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.check_backlog(),
                Err(error) => return Err(error),
            }
        }
        self.sent = 0;
        self.output.clear();
        if self.output.capacity() > BUFFER_KEEP_BYTES {
            self.output = Vec::new();
        }
        Ok(())
    }

    fn check_backlog(&mut self) -> io::Result<()> {
        let waiting = self.output.len() - self.sent;
        if waiting > CONTROL_BACKLOG_BYTES_MAX {
            let why = format!("{waiting} bytes wait for it to read, {CONTROL_BACKLOG_BYTES_MAX} may");
            return Err(io::Error::other(why));
        }
        // Sent bytes are cut off when they are the larger part, so that each is moved at most once.
        if self.sent > BUFFER_KEEP_BYTES && self.sent > waiting {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }
}

/// Sets a socket for a blocking thread: no delay, and a dead network is noticed within `silence`, as nobody reads on a
/// bulk connection that is being written, nor writes on one that is being read.
///
/// # Errors
/// If the system refuses.
pub fn prepare_blocking(stream: &std::net::TcpStream, silence: Duration) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, silence / 2)?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(2))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    sockopt::set_tcp_user_timeout(stream, silence.as_millis() as u32)?;
    Ok(())
}

const _: () = assert!(HANDSHAKE_BYTES_MAX + HEADER_BYTES < READ_BYTES_MIN / 2);
