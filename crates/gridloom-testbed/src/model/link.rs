//! One link: a sender with a fixed rate, followed by a delay. Waiting trains are in a separate queue ([`super::fair`]).
//!
//! ```text
//!            ┌─ flow: ··· ··· ··· ─┐
//!  train ──▶ ├─ flow: ···         ─┤ in turn ──▶ bandwidth ──▶ latency ± jitter ──▶ next link
//!            └─ flow: ··· ···     ─┘
//! ```
//!
//! The unit that crosses a link is a *train*: one packet, or several equal packets of one flow that the kernel passes
//! on as one (segmentation offload). A train is not held until its last packet arrives: its head continues to the next
//! link when the first packet has passed, its tail when the last has, so that a train takes the time that its packets
//! would.
//!
//! If more than [`LinkShape::mark_bytes`] of a flow wait, the flow is notified: its trains are marked (explicit
//! congestion notification, RFC 3168). Beyond [`LinkShape::queue_bytes`], which a flow that reacts to the marks never
//! reaches, its trains are dropped. Links are therefore shared as by Linux's default queues (one per flow, marks
//! before losses), and as in the simulator: equal shares, and no flow delayed by hundreds of milliseconds because its
//! first packets were dropped.
//!
//! **Invariants:** a shared link never serves more than its bandwidth; packets of a flow leave in the order in which
//! they arrived (also with jitter); a link without a queue limit on the path drops nothing.
//!
//! It does not model loss other than by a full queue or a cut, nor frames below IP: bytes are those of IP packets.

use std::collections::BTreeMap;

use gridloom_platform::Sharing;

use super::Ns;
use super::random::Random;

/// The properties of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkShape {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Delay after the queue.
    pub latency_ns: Ns,
    /// Maximum variation of the delay in either direction, uniformly distributed.
    pub jitter_ns: Ns,
    /// Maximum waiting bytes of a flow.
    pub queue_bytes: f64,
    /// Waiting bytes of a flow beyond which it is notified to slow down.
    pub mark_bytes: f64,
    /// How flows use the bandwidth: they share it, or each has all of it.
    pub sharing: Sharing,
}

/// The unit of transmission: IP packets of one flow, back to back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Train {
    /// Total bytes.
    pub bytes: f64,
    /// Bytes of the largest packet; equal to `bytes` if it is the only one.
    pub packet_bytes: f64,
    /// Id of its flow: any number that differs between flows.
    pub flow: u64,
    /// True if a link has notified the flow to slow down.
    pub is_marked: bool,
}

/// The times at which a train's first and last packet reach a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainTimes {
    /// Time at which the first packet is complete.
    pub head: Ns,
    /// Time at which the last packet is complete.
    pub tail: Ns,
}

/// Traffic counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counters {
    /// Bytes carried.
    pub bytes: f64,
    /// Trains that were marked because too many bytes of their flow waited.
    pub marked: u64,
    /// Trains dropped because the queue was full.
    pub dropped_full: u64,
    /// Trains dropped because the link was cut.
    pub dropped_cut: u64,
}

/// A link, without its queue.
#[derive(Clone, Debug)]
pub struct Link {
    shape: LinkShape,
    is_up: bool,
    /// Time at which everything accepted has been sent, by flow on a fatpipe, otherwise for flow 0.
    free_at: BTreeMap<u64, Ns>,
    last_out: Ns,
    random: Random,
    counters: Counters,
}

impl Link {
    /// Creates an idle link.
    pub fn new(shape: LinkShape, seed: u64) -> Link {
        let random = Random::new(seed);
        Link { shape, is_up: true, free_at: BTreeMap::new(), last_out: 0.0, random, counters: Counters::default() }
    }

    /// Returns its properties.
    pub fn shape(&self) -> &LinkShape {
        &self.shape
    }

    /// Returns its counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Reports whether it carries traffic.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Cuts or restores it. Traffic that was already sent still arrives.
    pub fn set_up(&mut self, is_up: bool) {
        self.is_up = is_up;
    }

    /// Changes the bandwidth and the queue limits. Trains being sent keep their times; at a bandwidth of 0 everything is dropped.
    pub fn set_bandwidth(&mut self, bandwidth: f64, mark_bytes: f64, queue_bytes: f64) {
        (self.shape.bandwidth, self.shape.mark_bytes, self.shape.queue_bytes) = (bandwidth, mark_bytes, queue_bytes);
    }

    /// Changes the latency.
    pub fn set_latency(&mut self, latency_ns: Ns) {
        self.shape.latency_ns = latency_ns;
    }

    /// Returns the time at which it can send a train of this flow.
    pub fn free_at(&self, flow: u64) -> Ns {
        self.free_at.get(&self.lane(flow)).copied().unwrap_or(0.0)
    }

    /// Reports whether a train may wait, while `waiting_bytes` of its flow wait already.
    pub fn admits(&mut self, train: &Train, waiting_bytes: f64) -> bool {
        if !self.is_up || self.shape.bandwidth <= 0.0 {
            self.counters.dropped_cut += 1;
        } else if waiting_bytes > 0.0 && waiting_bytes + train.bytes > self.shape.queue_bytes {
            self.counters.dropped_full += 1;
        } else {
            return true;
        }
        false
    }

    /// Sends a train, behind which `waiting_bytes` of its flow wait, as soon as the train has arrived and the link is
    /// free. Returns the times at the other end. Must be called in the order in which trains are sent.
    pub fn send(&mut self, train: &mut Train, arrives: TrainTimes, waiting_bytes: f64) -> TrainTimes {
        if waiting_bytes > self.shape.mark_bytes {
            train.is_marked = true;
            self.counters.marked += 1;
        }
        let ns_per_byte = 1e9 / self.shape.bandwidth;
        self.forget_idle_flows(arrives.head);
        let lane = self.lane(train.flow);
        let free_at = self.free_at.entry(lane).or_insert(0.0);
        let start = free_at.max(arrives.head);
        *free_at = start + train.bytes * ns_per_byte;
        self.counters.bytes += train.bytes;
        let packet_ns = train.packet_bytes * ns_per_byte;
        let tail = free_at.max(arrives.tail + packet_ns);
        let delay = self.delay();
        // Jitter delays packets but does not reorder them.
        let head = (start + packet_ns + delay).max(self.last_out);
        let tail = (tail + delay).max(head);
        if self.shape.jitter_ns > 0.0 {
            self.last_out = tail;
        }
        TrainTimes { head, tail }
    }

    /// Returns the key of the flows that share bandwidth with this one.
    fn lane(&self, flow: u64) -> u64 {
        match self.shape.sharing {
            Sharing::Shared => 0,
            Sharing::Fatpipe => flow,
        }
    }

    fn delay(&mut self) -> Ns {
        let LinkShape { latency_ns, jitter_ns, .. } = self.shape;
        if jitter_ns == 0.0 { latency_ns } else { (latency_ns + jitter_ns * self.random.symmetric()).max(0.0) }
    }

    /// Removes flows that have nothing in flight, so that finished flows use no memory.
    fn forget_idle_flows(&mut self, now: Ns) {
        if self.free_at.len() > FLOWS_KEPT {
            self.free_at.retain(|_, free_at| *free_at > now);
        }
    }
}

/// Number of flows of a fatpipe beyond which idle ones are removed.
const FLOWS_KEPT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn link(bandwidth: f64, latency_ns: Ns) -> Link {
        let sharing = Sharing::Shared;
        Link::new(LinkShape { bandwidth, latency_ns, jitter_ns: 0.0, queue_bytes: 3000.0, mark_bytes: 1e6, sharing }, 1)
    }

    fn packet(bytes: f64, flow: u64) -> Train {
        Train { bytes, packet_bytes: bytes, flow, is_marked: false }
    }

    fn train() -> Train {
        Train { packet_bytes: 1000.0, ..packet(10_000.0, 1) }
    }

    fn at(time: Ns) -> TrainTimes {
        TrainTimes { head: time, tail: time }
    }

    fn send(link: &mut Link, mut train: Train, arrives: TrainTimes) -> TrainTimes {
        link.send(&mut train, arrives, 0.0)
    }

    #[test]
    fn a_packet_takes_its_bytes_over_the_bandwidth_and_the_latency() {
        assert_eq!(send(&mut link(1e6, 5e6), packet(1500.0, 1), at(0.0)), at(1.5e6 + 5e6));
    }

    #[test]
    fn flows_share_a_shared_link_and_not_a_fatpipe() {
        let mut shared = link(1e6, 0.0);
        let mut pipe = Link::new(LinkShape { sharing: Sharing::Fatpipe, ..shared.shape().clone() }, 1);
        for (flow, expected) in [(1, 1e6), (2, 2e6), (3, 3e6)] {
            assert_eq!(send(&mut shared, packet(1000.0, flow), at(0.0)), at(expected));
            assert_eq!(send(&mut pipe, packet(1000.0, flow), at(0.0)), at(1e6));
        }
        assert_eq!(send(&mut pipe, packet(1000.0, 2), at(0.0)), at(2e6));
        assert_eq!((pipe.free_at(2), pipe.free_at(3), shared.free_at(9)), (2e6, 1e6, 3e6));
    }

    #[test]
    fn an_hour_of_packets_takes_an_hour() {
        let mut link = link(1.25e9, 0.0);
        let mut last = at(0.0);
        for _ in 0..3_000_000 {
            last = send(&mut link, packet(1500.0, 1), at(0.0));
        }
        assert!((last.tail - 3_000_000.0 * 1200.0).abs() < 1e-3, "{}", last.tail);
    }

    #[test]
    fn what_does_not_fit_in_the_queue_is_dropped() {
        let mut link = link(1e6, 0.0);
        assert!(link.admits(&packet(9000.0, 1), 0.0), "an empty queue takes any train");
        assert!(link.admits(&packet(1000.0, 1), 2000.0));
        assert!(!link.admits(&packet(1000.0, 1), 2001.0));
        assert_eq!(link.counters().dropped_full, 1);
    }

    #[test]
    fn a_train_takes_the_time_of_its_packets() {
        let (mut one, mut two) = (link(1e6, 0.0), link(1e6, 0.0));
        let mut trains = at(0.0);
        for _ in 0..3 {
            trains = send(&mut link(1e6, 7.0), train(), trains);
        }
        // Packets sent one by one over the first two links.
        let mut last = at(0.0);
        for _ in 0..10 {
            let between = send(&mut one, packet(1000.0, 1), at(0.0));
            last = send(&mut two, packet(1000.0, 1), between);
        }
        assert_eq!(last.tail, 11e6);
        assert_eq!(trains, TrainTimes { head: 3e6 + 21.0, tail: 12e6 + 21.0 });
    }

    #[test]
    fn a_slow_link_before_a_fast_one_decides() {
        let slow = send(&mut link(1e6, 0.0), train(), at(0.0));
        let both = send(&mut link(10e6, 0.0), train(), slow);
        assert_eq!(both, TrainTimes { head: 1e6 + 1e5, tail: 10e6 + 1e5 });
    }

    #[test]
    fn a_cut_link_carries_nothing_until_restored() {
        let mut link = link(1e6, 0.0);
        link.set_up(false);
        assert!(!link.admits(&packet(1.0, 1), 0.0));
        link.set_up(true);
        assert!(link.admits(&packet(1.0, 1), 0.0));
        send(&mut link, packet(1.0, 1), at(1.0));
        assert_eq!(link.counters(), Counters { bytes: 1.0, marked: 0, dropped_full: 0, dropped_cut: 1 });
    }

    #[test]
    fn jitter_stays_in_its_bounds_and_keeps_the_order() {
        let shape = LinkShape { jitter_ns: 1e6, ..link(1e9, 5e6).shape().clone() };
        let mut link = Link::new(shape, 7);
        let (mut sent, mut last, mut low, mut high) = (0.0, 0.0, Ns::MAX, Ns::MIN);
        for index in 0..10_000 {
            // Every other packet follows so closely that it could overtake the previous one.
            sent += if index % 2 == 0 { 1e7 } else { 1e5 };
            let out = send(&mut link, packet(1.0, 1), at(sent)).tail;
            assert!(out >= last);
            last = out;
            if index % 2 == 0 {
                let delay = out - sent - 1.0;
                (low, high) = (low.min(delay), high.max(delay));
            }
        }
        assert!((4e6..4.1e6).contains(&low) && (5.9e6..6e6).contains(&high), "{low} {high}");
    }
}
