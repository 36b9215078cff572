//! Receives signals that end this process, and others, by waiting for a socket.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Catches SIGINT and SIGTERM, which then no longer end this process.
#[derive(Debug)]
pub struct Signals {
    caught: Arc<AtomicUsize>,
    wake_socket: UnixStream,
}

impl Signals {
    /// Starts catching signals. `others` are signals that wake a wait but do not stay pending.
    ///
    /// # Errors
    /// If the system does not permit it.
    pub fn new(others: &[i32]) -> io::Result<Signals> {
        let caught = Arc::new(AtomicUsize::new(0));
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_usize(signal, caught.clone(), signal as usize)?;
        }
        for signal in [SIGINT, SIGTERM].iter().chain(others) {
            signal_hook::low_level::pipe::register(*signal, ringer.try_clone()?)?;
        }
        Ok(Signals { caught, wake_socket: bell })
    }

    /// Takes the number of the last signal; 0 if there was none.
    pub fn caught(&self) -> usize {
        self.caught.swap(0, Ordering::SeqCst)
    }

    /// Waits for a signal, or until `until`.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn wait(&self, until: Option<Instant>) -> io::Result<()> {
        self.poll(&mut [PollFd::new(&self.wake_socket, PollFlags::IN)], until)
    }

    /// Waits for a signal, for `other` to become readable, or until `until`. Returns whether `other` is readable.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn wait_for(&self, other: impl AsFd, until: Option<Instant>) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.wake_socket, PollFlags::IN), PollFd::new(&other, PollFlags::IN)];
        self.poll(&mut fds, until)?;
        Ok(!fds[1].revents().is_empty())
    }

    fn poll(&self, fds: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<()> {
        let left = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match poll(fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Several wake-up bytes are handled as one.
        while matches!((&self.wake_socket).read(&mut [0; 64]), Ok(1..)) {}
        Ok(())
    }
}
