//! A blocking socket with an absolute deadline. A socket's own timeout limits a single call, so a peer that sends a
//! byte from time to time would never exceed it.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_timeout};

/// A socket with a deadline. Dropping this restores the socket's previous timeouts.
pub(crate) struct DeadlineGuard<'a, S: AsFd> {
    stream: &'a mut S,
    deadline: Instant,
    before: [(Timeout, Option<Duration>); 2],
}

impl<'a, S: AsFd> DeadlineGuard<'a, S> {
    /// Sets the deadline to `limit` from now.
    pub(super) fn new(stream: &'a mut S, limit: Duration) -> io::Result<DeadlineGuard<'a, S>> {
        let before = [
            (Timeout::Recv, socket_timeout(&*stream, Timeout::Recv)?),
            (Timeout::Send, socket_timeout(&*stream, Timeout::Send)?),
        ];
        Ok(DeadlineGuard { stream, deadline: Instant::now() + limit, before })
    }

    /// Makes the next call end at the deadline.
    fn arm(&self, direction: Timeout) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        // A timeout that rounds to 0 would mean no timeout.
        Ok(set_socket_timeout(&*self.stream, direction, Some(left.max(Duration::from_millis(1))))?)
    }
}

impl<S: AsFd> Drop for DeadlineGuard<'_, S> {
    fn drop(&mut self) {
        for (direction, timeout) in self.before {
            // Fails only if the descriptor is no longer a socket.
            let _ = set_socket_timeout(&*self.stream, direction, timeout);
        }
    }
}

impl<S: AsFd + Read> Read for DeadlineGuard<'_, S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.arm(Timeout::Recv)?;
        self.stream.read(into).map_err(timed_out)
    }
}

impl<S: AsFd + Write> Write for DeadlineGuard<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.arm(Timeout::Send)?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_drip_does_not_outlast_the_deadline() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        here.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // A byte is available for every read, so no single read ever waits.
        let drip = std::thread::spawn(move || while there.write_all(&[0]).is_ok() {});
        let mut until = DeadlineGuard::new(&mut here, Duration::from_millis(20)).unwrap();
        let error = loop {
            if let Err(error) = until.read_exact(&mut [0]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(until);
        assert_eq!(here.read_timeout().unwrap(), Some(Duration::from_secs(60)));
        assert_eq!(here.write_timeout().unwrap(), None);
        drop(here);
        drip.join().unwrap();
    }
}
