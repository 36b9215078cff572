//! The model of a link for one ordered pair of places: time as a function of bytes, learned from transfers over it.
//!
//! ```text
//! seconds = start + bytes / bandwidth
//! ```
//! `start` is the larger of two values: the latency, and an estimate from transfers of different sizes, which also covers
//! connections that start slowly. The estimate is the intercept of a line. Its slope is the median of the slopes between any two
//! transfers, so outliers do not tilt it (Theil, *A rank-invariant method of linear and polynomial regression analysis*, 1950;
//! Sen, JASA 63, 1968). Latency and bandwidth are series of measurements; their expected values are forecasts of a [`Series`].
//!
//! **Disturbed transfers** are weaker evidence. If a transfer shared the NIC of its sender or receiver with others, the bandwidth
//! is at least the rate of the transfer and at most the sum of all their rates. So a forecast between these bounds stays, and a
//! forecast outside is moved to the nearer bound.
//!
//! **Slow measurements are delayed.** The learner does not see all traffic over both NICs, and unobserved traffic makes links look
//! slower, never faster. So transfers that were slower than expected are used only after many in a row, and then only the fastest
//! of them; or after a few, if they were so slow that sharing a NIC cannot explain it.

use std::collections::VecDeque;

use super::forecast::{Predictor, Series};
use super::model::Accuracy;
use super::model::median;
use super::{Bottleneck, LinkEstimate, LinkReport};
use gridloom_base::Time;
use gridloom_base::time::ns_to_seconds;

/// Number of transfers that the line is fitted to.
const RECENT: usize = 16;
/// Minimum ratio of the sizes of two transfers that are used for a slope.
const SIZES_APART: f64 = 2.0;
/// Minimum number of such pairs.
const PAIRS_MIN: usize = 6;
/// Maximum fraction of any transfer's time that is attributed to its start.
const START_PART_MAX: f64 = 0.9;
/// Minimum fraction of a transfer's time after its start for it to count as a measurement of bandwidth.
const FLOWING_PART_MIN: f64 = 0.5;
/// A transfer that is slower by at most this factor is as expected.
const NEAR: f64 = 1.25;
/// Slower transfers count after this many in a row,
const UPPER_BOUNDS_MAX: usize = 64;
/// or after this many that were slower by `FALL_FACTOR`.
const FALLS: usize = 3;
const FALL_FACTOR: f64 = 8.0;
/// Maximum size of the buffers between sender and receiver.
const BUFFERED_BYTES_MAX: u64 = 8 << 20;
/// A change by this factor, confirmed by two measurements, is worth mapping again: a smaller one may be contention.
const CHANGE_FACTOR: f64 = 4.0;
/// A measurement that is off by this factor triggers another one.
pub const DOUBT_FACTOR: f64 = 2.0;

/// A learned model of a link.
#[derive(Clone, Debug, Default)]
pub struct LinkModel {
    /// One-way latency, seconds.
    latency: Series,
    /// Bytes per second after the start.
    bandwidth: Series,
    /// Bytes and seconds of the last undisturbed transfers, oldest first.
    recent: VecDeque<(f64, f64)>,
    start_s: f64,
    /// Upper bounds on the bandwidth by the last transfers, all slower than expected.
    upper_bounds: VecDeque<f64>,
    accuracy: Accuracy,
    measured: Time,
    /// The best of the first probes, which may have disturbed one another.
    best_first_probe: Option<LinkEstimate>,
    /// True if a link that shares its path was measured alone, and was no narrower.
    is_confirmed: bool,
}

impl LinkModel {
    /// Adds a first probe, made when two servers met, possibly while other probes were running. The best one counts
    /// until there are measurements made one at a time.
    pub fn add_first_probe(&mut self, now: Time, link: LinkEstimate) {
        if self.bandwidth.count() > 0 {
            return;
        }
        self.measured = now;
        let known = self.best_first_probe.unwrap_or(link);
        self.best_first_probe = Some(LinkEstimate {
            latency_s: known.latency_s.min(link.latency_s),
            bandwidth: known.bandwidth.max(link.bandwidth),
        });
    }

    /// Records that a link which shares its path was measured alone: this link has at least that bandwidth.
    pub(super) fn set_lower_bound(&mut self, bandwidth: f64) {
        if let Some(met) = &mut self.best_first_probe {
            self.is_confirmed = met.bandwidth <= NEAR * bandwidth;
            met.bandwidth = met.bandwidth.max(bandwidth);
        }
    }

    /// Makes the best first probe the first measurement.
    fn begin(&mut self) {
        if let Some(link) = self.best_first_probe.take() {
            self.latency.observe(link.latency_s);
            self.bandwidth.observe(link.bandwidth);
        }
    }

    /// Adds a probe during which data may have moved over `others` links that share a NIC or a path with this one: each
    /// may have used as much bandwidth as the probe.
    pub fn add_concurrent_probe(&mut self, now: Time, link: LinkEstimate, others: usize) {
        let at_most = link.bandwidth * (1 + others) as f64;
        match self.bandwidth.forecast() {
            _ if others == 0 => self.add_probe(now, link),
            None => self.add_first_probe(now, link),
            Some(forecast) if NEAR * at_most < forecast => {
                self.add_probe(now, LinkEstimate { bandwidth: at_most, ..link })
            }
            Some(forecast) if link.bandwidth > forecast => self.add_probe(now, link),
            Some(_) => self.measured = now,
        }
    }

    /// Adds a probe. Slow transfers that it confirms count, too.
    pub fn add_probe(&mut self, now: Time, link: LinkEstimate) {
        // First probes that others disturbed are worthless once there is a better one.
        self.best_first_probe = self.best_first_probe.filter(|met| met.bandwidth > link.bandwidth);
        self.begin();
        self.measured = now;
        self.latency.observe(link.latency_s);
        let is_borne_out = self.bandwidth.forecast().is_some_and(|forecast| NEAR * link.bandwidth < forecast);
        let held = std::mem::take(&mut self.upper_bounds);
        held.into_iter().filter(|_| is_borne_out).for_each(|held| self.bandwidth.observe(held));
        self.bandwidth.observe(link.bandwidth);
    }

    /// Adds a transfer that had the NICs and the link to itself, as far as is known.
    pub fn add_transfer(&mut self, now: Time, size_bytes: u64, seconds: f64) {
        if size_bytes == 0 || !(seconds.is_finite() && seconds > 0.0) {
            return;
        }
        self.begin();
        let bytes = size_bytes as f64;
        if let Some(bandwidth) = self.bandwidth.forecast() {
            self.accuracy.compare(self.start_s + bytes / bandwidth, seconds);
        }
        self.measured = now;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((bytes, seconds));
        self.start_s = start_s(&self.recent);
        // If a transfer consists mostly of its start, the rest is noise.
        if seconds - self.start_s >= FLOWING_PART_MIN * seconds || self.bandwidth.count() == 0 {
            let rate = self.rate(bytes, seconds);
            match self.bandwidth.forecast() {
                Some(forecast) if NEAR * rate < forecast => self.add_upper_bound(rate, forecast),
                Some(forecast) if self.has_probe() && rate > NEAR * forecast => {
                    self.add_lower_bound(size_bytes, rate, forecast)
                }
                Some(_) | None => self.observe(rate),
            }
        }
    }

    /// True if more is known than first probes, which others may have disturbed.
    pub(super) fn is_reliable(&self) -> bool {
        self.bandwidth.count() > 0 || self.is_confirmed
    }

    /// True if it was ever measured from end to end. A transfer is measured by its receiver from first byte to last. If
    /// the receiver starts late, it reads from a buffer faster than from any link.
    fn has_probe(&self) -> bool {
        self.latency.count() > 0
    }

    /// Records a transfer that was faster than an end-to-end probe: at most a buffer's worth of it was read from a buffer.
    fn add_lower_bound(&mut self, size_bytes: u64, rate: f64, forecast: f64) {
        let at_least = rate * size_bytes.saturating_sub(BUFFERED_BYTES_MAX) as f64 / size_bytes as f64;
        if at_least > forecast {
            self.observe(at_least);
        } else {
            self.upper_bounds.clear();
        }
    }

    /// True if only first probes are known, which others may have disturbed.
    pub fn has_only_first_probes(&self) -> bool {
        self.best_first_probe.is_some()
    }

    fn observe(&mut self, bandwidth: f64) {
        self.upper_bounds.clear();
        self.bandwidth.observe(bandwidth);
    }

    /// Records an upper bound on the bandwidth from a transfer that was slower than expected.
    fn add_upper_bound(&mut self, at_most: f64, forecast: f64) {
        self.upper_bounds.push_back(at_most);
        let is_fall = |held: &&f64| FALL_FACTOR * **held < forecast;
        if self.upper_bounds.len() >= FALLS && self.upper_bounds.iter().rev().take(FALLS).all(|held| is_fall(&held)) {
            let falls = self.upper_bounds.split_off(self.upper_bounds.len() - FALLS);
            falls.into_iter().for_each(|fall| self.bandwidth.observe(fall));
            self.upper_bounds.clear();
        } else if self.upper_bounds.len() == UPPER_BOUNDS_MAX {
            self.bandwidth.observe(self.upper_bounds.iter().copied().fold(0.0, f64::max));
            self.upper_bounds.pop_front();
        }
    }

    /// Adds a transfer during which others moved `others_bytes` over the same NIC.
    pub fn add_disturbed_transfer(&mut self, now: Time, size_bytes: u64, seconds: f64, others_bytes: f64) {
        if size_bytes == 0 || !(seconds.is_finite() && seconds > 0.0) {
            return;
        }
        self.begin();
        let bytes = size_bytes as f64;
        let at_least = self.rate(bytes, seconds);
        let at_most = at_least * (1.0 + others_bytes / bytes);
        match self.bandwidth.forecast() {
            Some(forecast) if forecast < at_least && !self.has_probe() => self.observe(at_least),
            Some(forecast) if forecast < at_least => self.add_lower_bound(size_bytes, at_least, forecast),
            Some(forecast) if forecast > at_most => self.add_upper_bound(at_most, forecast),
            Some(_) => self.upper_bounds.clear(),
            // It may be faster; later measurements will show.
            None => self.bandwidth.observe(at_least),
        }
        self.measured = now;
    }

    /// Expected latency and bandwidth; `None` if nothing was measured.
    pub fn estimate(&self) -> Option<LinkEstimate> {
        if self.best_first_probe.is_some() {
            return self.best_first_probe;
        }
        let bandwidth = self.bandwidth.forecast()?;
        let latency_s = self.latency.forecast().unwrap_or(0.0).max(self.start_s);
        Some(LinkEstimate { latency_s, bandwidth })
    }

    /// True if the last measurement is far from the forecast, so that another is needed.
    pub fn is_doubtful(&self) -> bool {
        let last = self.upper_bounds.back().copied().or_else(|| self.bandwidth.last(1).next());
        let forecast = self.bandwidth.forecast();
        forecast.zip(last).is_some_and(|(forecast, last)| is_far(last / forecast))
    }

    /// True if the forecast is well below the usual bandwidth.
    pub fn has_fallen(&self) -> bool {
        let (forecast, usual) = (self.bandwidth.forecast(), self.bandwidth.median());
        forecast.zip(usual).is_some_and(|(forecast, usual)| usual > DOUBT_FACTOR * forecast)
    }

    /// Returns the factor by which its bandwidth has changed from `bandwidth`; `None` unless the factor is large and
    /// confirmed by the last two measurements.
    pub fn change_from(&self, bandwidth: f64) -> Option<f64> {
        let change = self.bandwidth.forecast()? / bandwidth;
        let agrees = |value: f64| is_change(value / bandwidth) && (value > bandwidth) == (change > 1.0);
        let is_so = is_change(change) && self.bandwidth.count() > 1 && self.bandwidth.last(2).all(agrees);
        is_so.then_some(change)
    }

    /// Time of the last measurement.
    pub fn measured(&self) -> Time {
        self.measured
    }

    /// The predictor of its bandwidth in use.
    pub fn predictor(&self) -> Predictor {
        self.bandwidth.predictor()
    }

    /// Returns a report for people; `None` if nothing was measured.
    pub fn report(
        &self,
        now: Time,
        (from, to): (String, String),
        shared: Vec<Bottleneck<String>>,
    ) -> Option<LinkReport> {
        Some(LinkReport {
            from,
            to,
            link: self.estimate()?,
            predictor: self.predictor().to_string(),
            forecast_error: self.bandwidth.error(),
            measurements: self.bandwidth.count() + u64::from(self.best_first_probe.is_some()),
            age_s: ns_to_seconds(now.since(self.measured)),
            accuracy: self.accuracy,
            shared,
            relay: None,
        })
    }

    /// Bytes per second after the start of a transfer that took `seconds`.
    pub(super) fn rate(&self, bytes: f64, seconds: f64) -> f64 {
        bytes / (seconds - self.start_s).max(seconds * (1.0 - START_PART_MAX))
    }
}

/// True if the ratio is a change large enough that plans rest on wrong figures.
fn is_change(ratio: f64) -> bool {
    !(1.0 / CHANGE_FACTOR..=CHANGE_FACTOR).contains(&ratio)
}

/// True if the ratio is a large deviation.
fn is_far(ratio: f64) -> bool {
    !(1.0 / DOUBT_FACTOR..=DOUBT_FACTOR).contains(&ratio)
}

/// Estimates the seconds of a transfer of no bytes from (bytes, seconds) pairs; 0 if the sizes are too similar.
fn start_s(transfers: &VecDeque<(f64, f64)>) -> f64 {
    let pairs = transfers.iter().enumerate().flat_map(|(at, a)| transfers.iter().skip(at + 1).map(move |b| (a, b)));
    let slopes: Vec<f64> = pairs
        .filter(|(a, b)| a.0.max(b.0) >= SIZES_APART * a.0.min(b.0))
        .map(|(a, b)| (b.1 - a.1) / (b.0 - a.0))
        .collect();
    if slopes.len() < PAIRS_MIN {
        return 0.0;
    }
    let slope = median(slopes).max(0.0);
    let start_s = median(transfers.iter().map(|(bytes, seconds)| seconds - slope * bytes).collect());
    let shortest_s = transfers.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
    start_s.clamp(0.0, START_PART_MAX * shortest_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::SplitMix64;

    const MIB: u64 = 1 << 20;

    fn probed(bandwidth: f64) -> LinkModel {
        let mut link = LinkModel::default();
        link.add_probe(Time(0), LinkEstimate { latency_s: 1e-3, bandwidth });
        link
    }

    fn bandwidth(link: &LinkModel) -> f64 {
        link.estimate().unwrap().bandwidth
    }

    #[test]
    fn transfers_of_differing_sizes_separate_latency_from_bandwidth() {
        let mut rng = SplitMix64::new(9);
        let mut link = LinkModel::default();
        for n in 0..60 {
            let bytes = MIB * (1 + rng.below(16));
            // Half a second to begin, 10 MB/s, within 5 %; one in ten is disturbed by unseen traffic.
            let seconds = (0.5 + bytes as f64 / 1e7) * (0.95 + 0.1 * rng.unit());
            link.add_transfer(Time(n), bytes, if n % 10 == 3 { 3.0 * seconds } else { seconds });
        }
        let found = link.estimate().unwrap();
        for bytes in [4 * MIB, 16 * MIB, 64 * MIB] {
            let truth = 0.5 + bytes as f64 / 1e7;
            assert!((found.seconds(bytes) / truth - 1.0).abs() < 0.15, "{bytes}: {found:?}, truth {truth} s");
        }
    }

    #[test]
    fn equal_sizes_are_put_down_to_bandwidth_and_the_probe_to_latency() {
        let mut link = probed(1e8);
        (0..10).for_each(|n| link.add_transfer(Time(n), 10_000_000, 0.1));
        assert_eq!(link.estimate(), Some(LinkEstimate { latency_s: 1e-3, bandwidth: 1e8 }));
        let report = link.report(Time(1_000_000_009), ("a".into(), "b".into()), Vec::new()).unwrap();
        assert_eq!((report.measurements, report.age_s, report.accuracy.count), (11, 1.0, 10));
        assert!(report.accuracy.error < 1e-12);
    }

    #[test]
    fn a_disturbed_transfer_bounds_the_bandwidth() {
        let mut link = probed(1e8);
        // A quarter of the NIC, with three others using the rest: as expected.
        link.add_disturbed_transfer(Time(1), MIB, MIB as f64 / 2.5e7, 3.0 * MIB as f64);
        assert_eq!((bandwidth(&link), link.is_doubtful()), (1e8, false));
        // All of them together used a tenth.
        (0..2).for_each(|n| link.add_disturbed_transfer(Time(2 + n), MIB, MIB as f64 / 2.5e6, 3.0 * MIB as f64));
        assert_eq!((bandwidth(&link), link.is_doubtful()), (1e8, true));
        link.add_disturbed_transfer(Time(4), MIB, MIB as f64 / 2.5e6, 3.0 * MIB as f64);
        assert!((bandwidth(&link) / 1e7 - 1.0).abs() < 1e-9, "{link:?}");
        // A transfer that seems faster was read from a buffer; a probe will show.
        (0..2).for_each(|n| link.add_disturbed_transfer(Time(5 + n), MIB, MIB as f64 / 5e7, MIB as f64));
        assert!((bandwidth(&link) / 1e7 - 1.0).abs() < 1e-9, "{link:?}");
    }

    #[test]
    fn what_others_make_slow_unseen_is_no_fall() {
        let mut link = probed(1e8);
        for n in 0..100 {
            // Alone as far as is known, but mostly with half or a third of a NIC, and sometimes really alone.
            link.add_transfer(Time(n), 10_000_000, [0.2, 0.3, 0.2, 0.1, 0.3, 0.3][n as usize % 6]);
            assert!((bandwidth(&link) / 1e8 - 1.0).abs() < 1e-9 && link.change_from(1e8).is_none(), "{link:?}");
        }
        // If all are slow, the link is as fast as the fastest of them.
        (0..80).for_each(|n| link.add_transfer(Time(100 + n), 10_000_000, [0.2, 0.3][n as usize % 2]));
        assert!((bandwidth(&link) / 5e7 - 1.0).abs() < 1e-9, "{link:?}");
    }

    #[test]
    fn a_fall_is_doubted_twice_and_then_believed_until_it_is_usual() {
        let mut link = probed(1e8);
        (0..9).for_each(|n| link.add_transfer(Time(n), 10_000_000, 0.1));
        (0..2).for_each(|n| link.add_transfer(Time(10 + n), 10_000_000, 1.0));
        assert!(link.is_doubtful() && link.change_from(1e8).is_none());
        link.add_transfer(Time(12), 10_000_000, 1.0);
        assert!(!link.is_doubtful() && link.has_fallen());
        assert!((link.change_from(1e8).unwrap() / 0.1 - 1.0).abs() < 1e-9);
        assert_eq!(link.change_from(1e7), None);
        (0..12).for_each(|n| link.add_transfer(Time(13 + n), 10_000_000, 1.0));
        assert!(!link.has_fallen());
    }

    #[test]
    fn nonsense_is_no_measurement() {
        let mut link = LinkModel::default();
        for seconds in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
            link.add_transfer(Time(1), MIB, seconds);
            link.add_disturbed_transfer(Time(1), MIB, seconds, 1.0);
        }
        link.add_transfer(Time(1), 0, 1.0);
        assert_eq!(link.estimate(), None);
    }
}
