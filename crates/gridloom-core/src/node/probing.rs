//! Measurement of links: latency with pings, bandwidth with probes that grow for as long as they are quick.
//!
//! ```text
//! prober                          peer
//!   | Ping, thrice ------------------>|
//!   |<-------------------------- Pong |   latency = least round trip / 2
//!   | probe of 64 KiB ===============>|   twice: the first makes the bulk connection
//!   |<------------------ ProbeArrived |   bandwidth = bytes / (elapsed - round trip)
//!   | probe of 512 KiB ==============>|   twice, only if it will take less than 100 ms; then 4 MiB, likewise
//!   |<------------------ ProbeArrived |
//! ```
//! If no other link is measured at the same time and a larger probe would take too long, the link gets a probe of the
//! size that it transfers in 100 ms. (On a slow and long link, the start of a connection takes a third of the time of
//! 64 KiB.) If that probe took less than four round trips, the link gets what it transfers in eight: a connection that
//! starts sends about 14 KB in the first round trip, and at most twice as much in each following one. A long link gets
//! larger probes while their bytes take far less time than half of the round trip, because such probes only give a
//! lower bound of the bandwidth.
//!
//! Probing is kept cheap: a node probes at most 16 peers, one after another, once each when they meet. Real transfers
//! refine the figures later.

use std::collections::BTreeMap;

use gridloom_base::limits::{PROBE_BYTES, PROBE_NS_MAX};
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{NodeId, Time};
use gridloom_perf::LinkEstimate;

/// Number of probes of each size. The best one counts.
const ROUNDS: u32 = 2;
/// A probe whose time is mostly the round trip is followed by one at least this many times as large, if no other link is
/// measured meanwhile.
const HIDDEN_GROWS: u64 = 4;
/// Number of round trips within which a connection may still be in its start phase.
const STARTING_ROUND_TRIPS: u64 = 4;
/// Size of the largest probe of a link that is measured alone: the amount that the link transfers in this many round trips.
const PROBED_ROUND_TRIPS: u64 = 8;

#[derive(Clone, Debug)]
struct Probe {
    rtt_ns: u64,
    sent: Time,
    size_bytes: u64,
    left: u32,
    /// No other link is measured meanwhile.
    is_alone: bool,
    best_bandwidth: f64,
    /// The bytes of the last probe took less than half of the time that is counted for them.
    is_hidden: bool,
    /// The last probe took so few round trips that the connection may still have been in its start phase.
    is_starting: bool,
}

impl Probe {
    /// Returns the size of the next probes, or `None` if this size was the last.
    fn next_size(&self) -> Option<u64> {
        let starting_ns = if self.is_alone && self.is_starting { PROBED_ROUND_TRIPS * self.rtt_ns } else { 0 };
        let in_time = self.best_bandwidth * ns_to_seconds(PROBE_NS_MAX.max(starting_ns));
        let larger = PROBE_BYTES.into_iter().find(|larger| *larger > self.size_bytes)?;
        if (larger as f64) < in_time {
            return Some(larger);
        }
        let fitting = in_time as u64;
        // On a link with a latency of 100 ms, the measured bound allows no larger probe.
        let least = if self.is_hidden && self.is_alone { HIDDEN_GROWS * self.size_bytes } else { 0 };
        let next = fitting.max(least).min(larger);
        ((self.is_alone || self.is_hidden) && next >= 2 * self.size_bytes).then_some(next)
    }
}

/// The next step of a measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// Send a probe of this size, in bytes.
    Send(u64),
    /// The measurement has ended.
    Done(Measurement),
}

/// The result of a measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Measurement {
    Measured(LinkEstimate),
    /// It ended early, and its probes only give a lower bound of the bandwidth, which may be far too low.
    Inconclusive,
}

/// The probes in progress.
#[derive(Clone, Debug, Default)]
pub struct Probing {
    probes: BTreeMap<NodeId, Probe>,
}

impl Probing {
    /// Starts with the smallest probe once the latency is known. `is_alone`: no other link is measured meanwhile.
    pub fn begin(&mut self, now: Time, peer: NodeId, rtt_ns: u64, is_alone: bool) -> Step {
        let size_bytes = PROBE_BYTES[0];
        let (left, best_bandwidth, is_hidden, is_starting) = (ROUNDS, 0.0, false, true);
        let probe = Probe { rtt_ns, sent: now, size_bytes, left, is_alone, best_bandwidth, is_hidden, is_starting };
        self.probes.insert(peer, probe);
        Step::Send(size_bytes)
    }

    /// Handles the arrival of a probe at the peer. Returns the next step, or `None` if this probe was not expected. If the node
    /// `has_data` to send and the link is measured alone, this probe is the last one, because another would delay the data.
    pub fn probe_arrived(&mut self, now: Time, peer: NodeId, size_bytes: u64, has_data: bool) -> Option<Step> {
        let probe = self.probes.get_mut(&peer)?;
        if probe.size_bytes != size_bytes {
            return None;
        }
        // At least half of the elapsed time is attributed to the bytes themselves, so that a round trip that happened
        // to be quicker than the ping's gives a finite bandwidth.
        let elapsed_ns = now.since(probe.sent).max(1);
        let (seen_ns, least_ns) = (elapsed_ns.saturating_sub(probe.rtt_ns), elapsed_ns / 2);
        probe.is_hidden = 2 * seen_ns < least_ns;
        probe.is_starting = seen_ns < STARTING_ROUND_TRIPS * probe.rtt_ns;
        let moving_ns = seen_ns.max(least_ns).max(1);
        let bandwidth = size_bytes as f64 / ns_to_seconds(moving_ns);
        probe.best_bandwidth = probe.best_bandwidth.max(bandwidth);
        let is_last = has_data && probe.is_alone;
        probe.left = if is_last { 0 } else { probe.left - 1 };
        if let Some(larger) = probe.next_size().filter(|_| probe.left == 0 && !is_last) {
            probe.size_bytes = larger;
            probe.left = ROUNDS;
            probe.best_bandwidth = 0.0;
        }
        if probe.left > 0 {
            probe.sent = now;
            return Some(Step::Send(probe.size_bytes));
        }
        let probe = self.probes.remove(&peer).expect("found above");
        if is_last && (probe.is_hidden || probe.is_starting) {
            return Some(Step::Done(Measurement::Inconclusive));
        }
        let (latency_s, bandwidth) = (ns_to_seconds(probe.rtt_ns) / 2.0, probe.best_bandwidth);
        Some(Step::Done(Measurement::Measured(LinkEstimate { latency_s, bandwidth })))
    }

    /// Returns an estimate of a link that is being probed. If no probe has arrived, the bandwidth is at most the bytes
    /// sent divided by the time since.
    pub fn estimate(&self, now: Time, peer: NodeId) -> Option<LinkEstimate> {
        let probe = self.probes.get(&peer)?;
        let elapsed_s = ns_to_seconds(now.since(probe.sent).max(1));
        let bound = probe.size_bytes as f64 / elapsed_s;
        let bandwidth = if probe.best_bandwidth > 0.0 { probe.best_bandwidth } else { bound };
        Some(LinkEstimate { latency_s: ns_to_seconds(probe.rtt_ns) / 2.0, bandwidth })
    }

    pub fn is_probing(&self, peer: NodeId) -> bool {
        self.probes.contains_key(&peer)
    }

    /// Removes the probe of a lost peer. Returns true if there was one.
    pub fn lost(&mut self, peer: NodeId) -> bool {
        self.probes.remove(&peer).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures a simulated link on which a flow takes `start_ns` to begin. Returns the estimate and the number of bytes sent.
    fn measured(latency_ns: u64, bytes_per_ns: f64, start_ns: u64, is_alone: bool) -> (LinkEstimate, u64) {
        let mut probing = Probing::default();
        let (mut now, mut sent) = (Time(1000), 0);
        let mut step = probing.begin(now, NodeId(1), 2 * latency_ns, is_alone);
        loop {
            match step {
                Step::Send(bytes) => {
                    sent += bytes;
                    now = now + 2 * latency_ns + start_ns + (bytes as f64 / bytes_per_ns) as u64;
                    step = probing.probe_arrived(now, NodeId(1), bytes, false).unwrap();
                }
                Step::Done(Measurement::Measured(link)) => return (link, sent),
                Step::Done(Measurement::Inconclusive) => panic!("it did not end early"),
            }
        }
    }

    fn measure(latency_ns: u64, bytes_per_ns: f64) -> (LinkEstimate, u64) {
        measured(latency_ns, bytes_per_ns, 0, false)
    }

    #[test]
    fn a_slow_link_is_measured_better_alone() {
        // 50 Mb/s.
        let measured = |is_alone| measured(5_000_000, 0.00625, 5_000_000, is_alone);
        let ((beside, sent), (alone, sent_alone)) = (measured(false), measured(true));
        assert!(beside.bandwidth < 0.7 * 6.25e6 && sent == 2 * PROBE_BYTES[0], "{beside:?}");
        assert!(alone.bandwidth > 0.9 * 6.25e6 && sent_alone < sent + 4 * 625_000, "{alone:?}, {sent_alone} bytes");
    }

    #[test]
    fn a_long_link_whose_connections_start_is_measured_with_larger_probes() {
        let measured = |is_alone| measured(41_000_000, 0.0015625, 123_000_000, is_alone).0.bandwidth / 1.5625e6;
        assert!(measured(false) < 0.3 && measured(true) > 0.7, "{} and {}", measured(false), measured(true));
    }

    #[test]
    fn a_measurement_that_ends_early_reports_no_bandwidth_that_the_round_trip_hides() {
        let after_one_probe = |rtt_ns: u64, bytes_per_ns: f64| {
            let mut probing = Probing::default();
            probing.begin(Time(1000), NodeId(1), rtt_ns, true);
            let arrived = Time(1000 + rtt_ns + (PROBE_BYTES[0] as f64 / bytes_per_ns) as u64);
            probing.probe_arrived(arrived, NodeId(1), PROBE_BYTES[0], true)
        };
        assert_eq!(after_one_probe(100_000_000, 0.125), Some(Step::Done(Measurement::Inconclusive)));
        let slow = after_one_probe(1_000_000, 0.00125);
        let Some(Step::Done(Measurement::Measured(link))) = slow else { panic!("{slow:?}") };
        assert!((link.bandwidth / 1.25e6 - 1.0).abs() < 0.01, "{link:?}");
    }

    #[test]
    fn a_fast_link_is_measured_with_large_probes() {
        let (link, sent) = measure(50_000, 1.0);
        assert!((link.bandwidth / 1e9 - 1.0).abs() < 0.01 && (link.latency_s - 50e-6).abs() < 1e-9);
        assert_eq!(sent, 2 * PROBE_BYTES.iter().sum::<u64>());
    }

    #[test]
    fn a_probe_in_progress_limits_the_bandwidth() {
        let mut probing = Probing::default();
        probing.begin(Time(0), NodeId(1), 2_000_000, false);
        let link = probing.estimate(Time(2_000_000_000), NodeId(1)).unwrap();
        assert_eq!((link.latency_s, link.bandwidth), (1e-3, PROBE_BYTES[0] as f64 / 2.0));
        assert!(probing.estimate(Time(1), NodeId(2)).is_none());
    }

    #[test]
    fn a_long_link_is_measured_with_probes_that_its_round_trip_does_not_hide() {
        for (latency_ns, bytes_per_ns) in [(16_000_000, 0.05), (100_000_000, 0.0125), (5_000_000, 0.1)] {
            let (link, sent) = measured(latency_ns, bytes_per_ns, 0, true);
            assert!((link.bandwidth / (bytes_per_ns * 1e9) - 1.0).abs() < 0.1, "{link:?}");
            assert!(sent < 16 << 20, "{sent}");
        }
        let (beside, _) = measure(16_000_000, 0.05);
        assert!((beside.bandwidth / 5e7 - 1.0).abs() < 0.01, "{beside:?}");
        // The bandwidth is so high that the round trip hides even 4 MiB.
        let (link, _) = measure(16_000_000, 1.0);
        assert!(link.bandwidth > 2e8, "{link:?}");
    }

    #[test]
    fn a_slow_link_gets_only_small_probes() {
        let (link, sent) = measure(20_000_000, 0.001);
        assert!((link.bandwidth / 1e6 - 1.0).abs() < 0.01);
        assert_eq!(sent, 2 * PROBE_BYTES[0]);
    }
}
