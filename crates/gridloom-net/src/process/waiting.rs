//! How a process waits for sockets, and for data that peers on its host write into shared memory.
//!
//! A waiting process first polls the shared memory of its local peers, which needs no system call, and yields its
//! processor in between. If nothing arrives soon, it announces to local peers that it sleeps, and sleeps in `poll`
//! until a socket is ready or a local peer rings.
//!
//! **Guarantee:** a killed peer is noticed, because its socket ends. If all peers are local, or local peers write
//! without a pause, sockets are checked only every 50 µs.

use std::time::{Duration, Instant};

use gridloom_base::Time;
use gridloom_process::{PeerId, ProcessWorld};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::world::NetProcess;

/// Interval between two checks of sockets that only report that a peer has disconnected or connected.
const SOCKET_CHECK_INTERVAL: Duration = Duration::from_micros(50);
/// Poll flags that mean the other side has ended the connection.
const ENDED: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);
/// Number of polls of shared memory before a waiting process yields its processor.
const POLLS_BEFORE_YIELD: u32 = 32;

impl NetProcess {
    /// Like [`NetProcess::poll`], but polls without sleeping at first if the previous wait was short.
    pub(super) fn wait(&mut self, until: Option<Time>) -> bool {
        if self.poll_local() {
            return true;
        }
        let began = Instant::now();
        let has_near = self.peers.local_count() > 0 || self.siblings.has_siblings();
        let may_skip = has_near && self.peers.are_all_local();
        if may_skip && until == Some(Time(0)) && began - self.sockets_checked_at < SOCKET_CHECK_INTERVAL {
            return false;
        }
        let is_due = |world: &NetProcess| until.is_some_and(|until| world.now() >= until);
        let mut is_ready = may_skip && !is_due(self) && self.spin.may_spin(began) && self.spin_local();
        while !is_ready && !is_due(self) && self.spin.yield_and_spin(began) {
            is_ready = if may_skip && self.sockets_checked_at.elapsed() < SOCKET_CHECK_INTERVAL {
                self.spin_local()
            } else {
                self.poll(Some(Time(0)))
            };
        }
        is_ready = is_ready || self.poll(until);
        self.spin.note_waited(began);
        is_ready
    }

    /// Polls local peers for a few microseconds.
    fn spin_local(&mut self) -> bool {
        (0..POLLS_BEFORE_YIELD).any(|_| {
            std::hint::spin_loop();
            self.poll_local()
        })
    }

    /// Waits until data can be read, or written for queued messages, and does so. Returns false at the time limit.
    pub(super) fn poll(&mut self, until: Option<Time>) -> bool {
        if self.poll_local() {
            return true;
        }
        let left = until.map(|until| until.since(self.now()));
        if left == Some(0) || (self.peers.local_count() == 0 && !self.siblings.has_siblings()) {
            return self.poll_sockets(left);
        }
        let ready = !self.announce_sleep() || self.poll_sockets(left);
        self.siblings.clear_sleeping();
        for number in 0..self.peers.local_count() {
            if let Some((_, channel)) = self.peers.local(number) {
                channel.stream().clear_sleeping();
            }
        }
        // A peer that wrote meanwhile has rung; this check avoids another check of the sockets.
        self.poll_local() || ready
    }

    /// Makes local peers ring from now on. Returns false if one has written or made room meanwhile.
    fn announce_sleep(&mut self) -> bool {
        let mut may_sleep = true;
        self.siblings.set_sleeping();
        for number in 0..self.peers.local_count() {
            if let Some((_, channel)) = self.peers.local(number) {
                may_sleep &= channel.stream_mut().sleeps();
            }
        }
        // A peer for which messages are queued was notified when there was no room.
        may_sleep && !self.poll_local()
    }

    /// Like [`NetProcess::poll`], for the sockets only.
    fn poll_sockets(&mut self, left_ns: Option<u64>) -> bool {
        self.sockets_checked_at = Instant::now();
        let (mut peers, mut left_ns) = (Vec::new(), left_ns);
        let mut watched = vec![PollFd::new(&self.wake_pipe, PollFlags::IN)];
        for (peer, channel) in self.peers.channels() {
            let more = match channel.stream().has_rings() {
                // The end of the stream may follow unread wake-up bytes.
                true => PollFlags::RDHUP,
                false if channel.outbound.is_blocked() => PollFlags::OUT,
                false => PollFlags::empty(),
            };
            watched.push(PollFd::new(channel.stream(), PollFlags::IN | more));
            let has_unread = channel.stream().has_unread();
            peers.push((peer, has_unread));
            if has_unread {
                left_ns = Some(0);
            }
        }
        let left = left_ns.map(|ns| {
            let left = Duration::from_nanos(ns);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match rustix::event::poll(&mut watched, left.as_ref()) {
            Ok(0) if peers.iter().all(|(_, has_unread)| !has_unread) => return false,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return true,
            Err(error) => panic!("poll of this process's own descriptors failed: {error}"),
        }
        let readable = PollFlags::IN | ENDED;
        let ready: Vec<PollFlags> = watched.iter().map(PollFd::revents).collect();
        if ready[0].intersects(readable) {
            self.take_accepted();
        }
        for ((peer, has_unread), ready) in peers.into_iter().zip(&ready[1..]) {
            if has_unread || ready.intersects(readable) {
                if let Some(channel) = self.peers.channel(peer) {
                    channel.stream_mut().on_wake_bytes(ready.intersects(ENDED));
                }
                self.read(peer);
            }
            if ready.contains(PollFlags::OUT) {
                // A broken connection is reported when it is read, and at the next message to it.
                let _ = self.flush(peer);
            }
        }
        true
    }

    /// Takes messages from siblings, reads what local peers have written, and writes where they have made room.
    /// Returns true if anything was done. Sockets get their turn even if there is always something.
    fn poll_local(&mut self) -> bool {
        let (mut any, mut number) = (self.take_sibling_messages(), 0);
        while let Some((peer, channel)) = self.peers.local(number) {
            let has_room = channel.outbound.is_blocked() && channel.stream_mut().has_room();
            if channel.stream_mut().has_bytes() {
                any = true;
                self.read(peer);
            }
            if has_room {
                any = true;
                // Same as in `poll_sockets`.
                let _ = self.flush(peer);
            }
            number += 1;
        }
        if any && self.sockets_checked_at.elapsed() >= SOCKET_CHECK_INTERVAL {
            self.poll_sockets(Some(0));
        }
        any
    }

    /// Reports whether the other side has ended the connection, even if some data are still unread.
    pub(super) fn is_hung_up(&mut self, peer: PeerId) -> bool {
        let Some(channel) = self.peers.channel(peer) else { return false };
        if channel.stream().has_rings() {
            if !channel.stream().is_closed_by_peer() && self.sockets_checked_at.elapsed() >= SOCKET_CHECK_INTERVAL {
                self.poll_sockets(Some(0));
            }
            return self.peers.channel(peer).is_some_and(|channel| channel.stream().is_closed_by_peer());
        }
        let mut watched = [PollFd::new(channel.stream(), PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut watched, Some(&at_once)).is_ok() && watched[0].revents().intersects(ENDED)
    }
}
