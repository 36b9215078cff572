//! Keeps connections that were closed here until the other side's system has received all sent data.
//!
//! If a socket is closed while it has unread data, its connection is reset, and sent data that the other side has not
//! received are lost. A connection is therefore shut down for writing only, and its socket is kept for a while.
//!
//! **Limit:** [`LEAVING_MAX`] sockets; a peer that receives nothing is given up after [`LINGER_NS_MAX`].

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use gridloom_base::limits::LINGER_NS_MAX;

/// Maximum number of sockets kept.
const LEAVING_MAX: usize = 256;
/// Interval between two checks of what the other side has received.
const LINGER_STEP: Duration = Duration::from_millis(1);

/// Sockets that are shut down for writing.
#[derive(Default)]
pub(super) struct Lingering {
    streams: VecDeque<TcpStream>,
}

impl Lingering {
    /// Shuts down a socket for writing and keeps it, so that sent data still arrive.
    pub(super) fn add(&mut self, stream: TcpStream) {
        // This fails only if the connection is broken, and then nothing can arrive.
        if stream.shutdown(Shutdown::Write).is_ok() {
            self.streams.push_back(stream);
        }
        self.sweep();
        if self.streams.len() > LEAVING_MAX {
            self.wait(LEAVING_MAX);
        }
    }

    /// Closes the sockets whose data were all received.
    pub(super) fn sweep(&mut self) {
        self.streams.retain(|stream| unsent_bytes(stream) > 0);
    }

    /// Waits until at most `most` sockets have unsent data, or the other sides receive nothing for too long.
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

/// Returns the number of bytes, including the end of the stream, that the other side's system has not received.
/// Returns 0 if the connection is broken.
fn unsent_bytes(stream: &TcpStream) -> u64 {
    let (fd, mut bytes, mut state): (_, libc::c_int, u8) = (stream.as_raw_fd(), 0, 0);
    let mut length: libc::socklen_t = 1;
    // SAFETY: the option begins with the state, one byte, and only this byte is requested; the descriptor is open as
    // long as the stream.
    let told =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut state).cast(), &raw mut length) };
    if told != 0 || !UNSENT_STATES.contains(&state) {
        return 0;
    }
    // SAFETY: the request writes one int, and the descriptor is open as above.
    let told = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    if told == 0 { u64::try_from(bytes).unwrap_or_default() } else { 0 }
}

/// TCP states in which the end of the stream may not have arrived yet: established, close-wait, fin-wait-1, last-ack,
/// closing. A connection that was reset is in none of them, even if it had unsent data.
const UNSENT_STATES: [u8; 5] = [1, 8, 4, 9, 11];
