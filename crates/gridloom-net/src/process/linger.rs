//! Connections that were closed here, until the other side's system has taken all that was sent.
//!
//! A socket that is closed while something unread has come for it resets its connection, and what it had sent but the
//! other side has not taken is lost. So a connection is shut for writing only, and its socket kept for a while.
//!
//! **Limit:** [`LEAVING_MAX`] sockets; a peer that takes nothing is given up after [`LINGER_NS_MAX`].

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use gridloom_base::limits::LINGER_NS_MAX;

/// Most sockets that are kept.
const LEAVING_MAX: usize = 256;
/// Between two looks at what the other side has taken.
const LINGER_STEP: Duration = Duration::from_millis(1);

/// Sockets that are shut for writing.
#[derive(Default)]
pub(super) struct Lingering {
    streams: VecDeque<TcpStream>,
}

impl Lingering {
    /// Shuts a socket for writing and keeps it; what was sent still arrives.
    pub(super) fn add(&mut self, stream: TcpStream) {
        // It fails if the connection is broken, and then nothing can arrive.
        if stream.shutdown(Shutdown::Write).is_ok() {
            self.streams.push_back(stream);
        }
        self.sweep();
        if self.streams.len() > LEAVING_MAX {
            self.wait(LEAVING_MAX);
        }
    }

    /// Closes the sockets from which all was taken.
    pub(super) fn sweep(&mut self) {
        self.streams.retain(|stream| unsent_bytes(stream) > 0);
    }

    /// Waits until no more than so many sockets have something to send, or the others take nothing for too long.
    pub(super) fn wait(&mut self, most: usize) {
        let unsent = |all: &VecDeque<TcpStream>| all.iter().map(unsent_bytes).sum::<u64>();
        let (mut last, mut since) = (unsent(&self.streams), Instant::now());
        loop {
            self.sweep();
            if self.streams.len() <= most {
                return;
            }
            if since.elapsed() >= Duration::from_nanos(LINGER_NS_MAX) {
                let excess = self.streams.len() - most;
                return drop(self.streams.drain(..excess));
            }
            thread::sleep(LINGER_STEP);
            let now = unsent(&self.streams);
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
    }
}

/// What was sent, its end included, and not taken by the other side's system; nothing if the connection is broken.
fn unsent_bytes(stream: &TcpStream) -> u64 {
    let (fd, mut bytes, mut state): (_, libc::c_int, u8) = (stream.as_raw_fd(), 0, 0);
    let mut length: libc::socklen_t = 1;
    // SAFETY: the option begins with the state, one byte, of which no more is asked for; the descriptor is open as long as
    // the stream.
    let told =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut state).cast(), &raw mut length) };
    if told != 0 || !UNSENT_STATES.contains(&state) {
        return 0;
    }
    // SAFETY: the request writes one int, and the descriptor is open as above.
    let told = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    if told == 0 { u64::try_from(bytes).unwrap_or_default() } else { 0 }
}

/// States of a TCP connection in which its end may still be on its way: established, close-wait, fin-wait-1, last-ack,
/// closing. One that was reset is in none of them, whatever it had to send.
const UNSENT_STATES: [u8; 5] = [1, 8, 4, 9, 11];
