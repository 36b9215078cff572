//! The forwarder: one thread that emulates the whole network.
//!
//! It reads every packet that a host sends, passes it through the model, and delivers it to its destination when it is
//! due. A packet's time starts when the kernel receives it, not when this thread reads it, so a late wake-up has no
//! effect if the packet's path takes longer than the delay. In the last moment before a packet is due, the thread
//! spins.
//!
//! **Limits:** packets that this thread cannot forward in time are late or lost, and counted: a run with
//! [`Traffic::is_late`] measures this machine more than the platform.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::kernel::sys::PacketRing;
use crate::model::Ns;
use crate::model::network::{Delivery, Network};
use crate::packet;

/// The thread spins for waits shorter than this, because sleeping is not precise enough.
const SPIN_NS: Ns = 40_000.0;
/// Maximum number of packets read from one host before other hosts and the clock are checked again.
const BATCH: usize = 32;
/// A packet delivered this much after its due time counts as late.
pub const LATE_NS: Ns = 1e6;
/// Fraction of late or lost packets above which a run was limited by the machine.
pub const LATE_PART_MAX: f64 = 0.01;
/// Minimum number of late or lost packets: a smaller number does not show that the machine was the limit.
const LATE_MIN: u64 = 20;
/// Maximum number of buffers kept for reuse.
const BUFFERS_KEPT: usize = 4096;

/// A packet with its offload header.
pub type Buffer = Vec<u8>;

/// Traffic counters of the forwarder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Delivered packets (a train of a flow counts once).
    pub delivered: u64,
    /// Packets that arrived faster than they were read, or for which a host had no room.
    pub lost: u64,
    /// Packets delivered more than a millisecond late.
    pub late: u64,
    /// Maximum lateness, in microseconds.
    pub late_us_max: f64,
    /// Mean lateness, in microseconds.
    pub late_us_mean: f64,
    /// Processor time of the forwarder, in seconds.
    pub processor_s: f64,
    /// Time since the testbed started, in seconds.
    pub elapsed_s: f64,
}

impl Traffic {
    /// Reports whether the machine, not the platform, was the limit.
    pub fn is_late(&self) -> bool {
        let bad = self.late + self.lost;
        bad > LATE_MIN && bad as f64 > LATE_PART_MAX * self.delivered as f64
    }
}

/// The network and its counters, shared with the threads that control and report while the forwarder runs.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<State>>);

/// The state behind [`Shared`].
pub struct State {
    /// Links, routes, packets in flight.
    pub network: Network<Buffer>,
    /// Counters of the traffic so far.
    pub traffic: Traffic,
    began: Instant,
}

impl State {
    /// Returns the current counters. The forwarder does not read the clock while nothing is sent.
    pub fn traffic_now(&self) -> Traffic {
        Traffic { elapsed_s: self.began.elapsed().as_secs_f64(), ..self.traffic }
    }
}

impl Shared {
    /// Wraps an idle network.
    pub fn new(network: Network<Buffer>) -> Shared {
        Shared(Arc::new(Mutex::new(State { network, traffic: Traffic::default(), began: Instant::now() })))
    }

    /// Locks the state; the forwarder waits meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic while held")
    }
}

/// Reads, forwards and delivers packets until the process ends. `rings` and `addresses` are indexed by host.
///
/// # Errors
/// If the system can no longer wait for packets.
pub fn run(shared: &Shared, mut rings: Vec<PacketRing>, addresses: &[Ipv4Addr]) -> io::Result<()> {
    // The kernel may otherwise wake a thread 50 microseconds late to save power.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let clock = Clock::start();
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut lateness_sum = 0.0;
    let mut reported_at = 0.0;
    loop {
        let mut state = shared.lock();
        let State { network, traffic, .. } = &mut *state;
        let offset = clock.offset();
        let mut is_behind = false;
        for (host, ring) in rings.iter_mut().enumerate() {
            let mut count = 0;
            while count < BATCH {
                let received = ring.receive(|slot| {
                    let at = (slot.realtime_ns - offset) as Ns;
                    let parsed = packet::parse(slot.bytes).filter(|_| !slot.is_cut)?;
                    let dst = addresses.iter().position(|address| *address == parsed.destination)?;
                    let mut buffer = buffers.pop().unwrap_or_default();
                    buffer.clear();
                    buffer.extend_from_slice(slot.bytes);
                    Some((at, dst, parsed.train, buffer))
                });
                let Some(packet) = received else { break };
                // Broadcasts and similar packets have no receiver here.
                if let Some((at, dst, train, buffer)) = packet {
                    network.offer(at, host, dst, train, buffer);
                }
                count += 1;
            }
            is_behind |= count == BATCH;
        }
        let now = clock.now();
        network.advance(now, |Delivery { host, cargo: mut buffer, at: due, is_marked }| {
            if is_marked {
                packet::mark(&mut buffer);
            }
            let late = now - due;
            traffic.delivered += 1;
            lateness_sum += late;
            traffic.late_us_max = traffic.late_us_max.max(late / 1e3);
            traffic.late += u64::from(late > LATE_NS);
            if rings[host].send(&buffer).is_err() {
                traffic.lost += 1;
            }
            if buffers.len() < BUFFERS_KEPT {
                buffers.push(buffer);
            }
        });
        let now = clock.now();
        let due = network.next_due();
        if now - reported_at > 1e8 || due.is_none() {
            reported_at = now;
            traffic.lost += rings.iter().map(PacketRing::lost).sum::<u64>();
            traffic.late_us_mean = lateness_sum / traffic.delivered.max(1) as f64 / 1e3;
            let used = clock_gettime(ClockId::ThreadCPUTime);
            traffic.processor_s = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        }
        drop(state);
        let wait = due.map(|due| due - now);
        if is_behind || wait.is_some_and(|wait| wait < SPIN_NS) {
            std::hint::spin_loop();
            continue;
        }
        let timeout = wait.map(|wait| {
            let ns = (wait - SPIN_NS / 2.0) as i64;
            Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 }
        });
        let mut fds: Vec<PollFd<'_>> = rings.iter().map(|ring| PollFd::new(ring, PollFlags::IN)).collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A clock of nanoseconds since the start, which also converts the kernel's time stamps (times of day) to that scale.
struct Clock {
    start_ns: i128,
}

impl Clock {
    fn start() -> Clock {
        Clock { start_ns: nanoseconds(ClockId::Monotonic) }
    }

    fn now(&self) -> Ns {
        (nanoseconds(ClockId::Monotonic) - self.start_ns) as Ns
    }

    /// Returns the offset to subtract from a time of day. Computed again each time, because that clock may be set.
    fn offset(&self) -> i128 {
        nanoseconds(ClockId::Realtime) - nanoseconds(ClockId::Monotonic) + self.start_ns
    }
}

fn nanoseconds(clock: ClockId) -> i128 {
    let time = clock_gettime(clock);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}
