//! Calibration: selects which sizes of a function to measure next, until its model is as exact as the caller asked.
//!
//! Source: Lastovetsky, Reddy, Higgins, *Building the functional performance model of a processor*, SAC 2006. Their geometrical
//! bisection halves a piece of the curve until the measured middle lies on the piece's line. This file differs in three ways:
//! it halves the worst piece first, it works on a logarithmic axis, and it also compares with the neighbours' lines. The
//! comparison finds jumps in pieces whose middle happens to agree.
//!
//! ```text
//! positions 0 ─── ¼ ─── ½ ─── ¾ ─── 1      climbed from the smallest, so that no call exceeds the time limit;
//!                    ^                     then the piece of the largest error is halved, again and again
//!
//! time │        ⋰ the left neighbour's line      error of a piece: by how much its line and those of its neighbours
//!      │      ⋰ ╱ the piece's                    differ in its middle (the geometric mean of both: a bend at an end that
//!      │    ●                                    was measured is none), halved: for a smooth curve that is twice its own
//! ```
//!
//! A position is a point in the range of the arguments, on a logarithmic axis. The size of a position is the
//! model's size. Pieces are not cut finer than the sizes that the model distinguishes. An error that remains between such
//! neighbours is reported as a jump.

use super::model::{Curve, Point, WAITED, is_same_size, median, typical};
use gridloom_base::limits::{MODEL_POINTS_MAX, PACE_CALL_S_MIN, SHORT_CALL_S, SHORT_CALLS_KEPT};

/// Number of pieces that the range is cut into before the first is evaluated.
const PIECES: f64 = 4.0;
/// Calls at one size: the minimum, for a median, and the maximum, which is the number of long calls that a model remembers.
const CALLS_MIN: usize = 3;
const CALLS_MAX: usize = 9;
/// If one of the short calls of a size waited for its turn, calls are repeated for this long, seconds, to measure how often they
/// wait.
const SHORT_S_MIN: f64 = 4.0 * SHORT_CALL_S;
/// A size is measured well enough if its time is known to this fraction of the goal's error.
const TIME_PART: f64 = 0.5;
/// Lines differ only by what exceeds this many standard errors of the times that they go through.
const UNCERTAINTIES: f64 = 2.0;
/// Fraction of the difference between lines that is the error of a piece.
const ERROR_PART: f64 = 0.5;
/// Standard error of the median of normal values whose median distance from it is 1, times the square root of their number.
const MEDIAN_ERROR: f64 = 1.2533 * 1.4826;

/// The goal of a calibration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CalibrationGoal {
    /// Maximum relative error of a prediction within the range.
    pub error: f64,
    /// Longest call, seconds: the range ends where calls are predicted to take longer.
    pub call_s_max: f64,
}

/// A calibration in progress. It is pure: the caller makes the calls and reports the measurements.
#[derive(Clone, Debug)]
pub struct Calibration {
    goal: CalibrationGoal,
    /// Ascending by position.
    samples: Vec<Sample>,
    /// Position of the last call, if more calls are to follow there.
    current: Option<f64>,
    /// Last position of the range.
    end: f64,
    /// True once the first pass over the range is complete.
    is_first_pass_done: bool,
}

#[derive(Clone, Debug)]
struct Sample {
    at: f64,
    size: f64,
    seconds: Vec<f64>,
    /// Positions of the ends of the piece that it halved; `None` for the ends of the range.
    between: Option<(f64, f64)>,
}

/// A piece of the curve in which predictions were wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MispredictedPiece {
    /// Its ends, as sizes.
    pub from: f64,
    /// See `from`.
    pub to: f64,
    /// Maximum relative error of predictions within it.
    pub error: f64,
}

/// The result of a calibration so far.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CalibrationResult {
    /// Largest error of a piece that could be cut further, of the uncertainty of a time, and of the curve where times fall;
    /// infinite if too little was measured.
    pub error: f64,
    /// Pieces between neighbouring sizes with a larger error than asked for: the time jumps there.
    pub jumps: Vec<MispredictedPiece>,
    /// Largest relative spread of calls of one size.
    pub spread: f64,
    /// Number of measured calls.
    pub calls: usize,
    /// Position up to which calls were measured: below 1 if larger calls would take too long, and 1 if the model treats all larger
    /// calls as one size.
    pub end: f64,
}

impl Calibration {
    /// Starts without measurements.
    pub fn new(goal: CalibrationGoal) -> Calibration {
        Calibration { goal, samples: Vec::new(), current: None, end: 1.0, is_first_pass_done: false }
    }

    /// Returns the position of the next call, from 0 to 1; `None` if the goal is reached, or cannot be. `size_of`
    /// returns the size of the call at a position.
    pub fn next(&mut self, size_of: &dyn Fn(f64) -> f64) -> Option<f64> {
        if self.current.is_none() {
            self.current = self.next_of_first_pass(size_of).or_else(|| self.bisect(size_of));
        }
        self.current
    }

    /// Records the size and duration of the call at the requested position.
    ///
    /// # Panics
    /// If no call was requested.
    pub fn record_call(&mut self, size: f64, seconds: f64) {
        let at = self.current.expect("a call that was asked for");
        let index = self.samples.partition_point(|sample| sample.at < at);
        if self.samples.get(index).is_none_or(|sample| sample.at != at) {
            let between = (self.is_first_pass_done && index > 0 && index < self.samples.len())
                .then(|| (self.samples[index - 1].at, self.samples[index].at));
            self.samples.insert(index, Sample { at, size, seconds: Vec::new(), between });
        }
        let sample = &mut self.samples[index];
        sample.seconds.push(seconds);
        if sample.is_enough(self.goal) {
            self.current = None;
        }
    }

    /// Records that the call at the requested position is too large: for the server's store, or for the time that is left. The
    /// range ends before it.
    pub fn too_large(&mut self) {
        if let (Some(at), Some(last)) = (self.current.take(), self.samples.last()) {
            // The first pass continues from the last size that was not too large.
            self.end = if at > last.at { 0.5 * (last.at + at) } else { last.at };
        }
    }

    /// Measurements by position.
    pub fn points(&self) -> impl Iterator<Item = (f64, Point)> {
        self.samples.iter().map(|sample| (sample.at, sample.point()))
    }

    /// Measured time as a function of size.
    pub fn curve(&self) -> Curve {
        Curve::new(self.samples.iter().map(Sample::point).collect())
    }

    /// Returns the result so far.
    pub fn result(&self, size_of: &dyn Fn(f64) -> f64) -> CalibrationResult {
        let mut reached = CalibrationResult {
            error: if self.samples.is_empty() { f64::INFINITY } else { 0.0 },
            calls: self.samples.iter().map(|sample| sample.seconds.len()).sum(),
            end: self
                .samples
                .last()
                .map_or(0.0, |last| if is_same_size(size_of(1.0), last.size) { 1.0 } else { last.at }),
            ..CalibrationResult::default()
        };
        let curve = self.curve();
        for sample in &self.samples {
            let point = sample.point();
            reached.spread = reached.spread.max(point.spread_s / point.seconds);
            // The uncertainty of a time, and the change that monotonicity makes to it, are errors as well. For calls so
            // short that their times do not matter both are noise.
            if point.seconds < PACE_CALL_S_MIN {
                continue;
            }
            let fitted_s = curve.predict(point.size, f64::INFINITY).map_or(point.seconds, |found| found.seconds);
            let misfit = (fitted_s - point.seconds).abs() / point.seconds;
            reached.error = reached.error.max(sample.uncertainty()).max(misfit);
        }
        for (pair, piece) in self.pieces() {
            if middle(pair, size_of).is_some() {
                reached.error = reached.error.max(piece.error);
            } else if piece.error > self.goal.error {
                reached.jumps.push(piece);
            }
        }
        reached
    }

    /// Returns the next position of the first pass.
    fn next_of_first_pass(&mut self, size_of: &dyn Fn(f64) -> f64) -> Option<f64> {
        let Some(last) = self.samples.last() else { return Some(0.0) };
        let is_new = |at: f64| at > last.at && !is_same_size(size_of(at), last.size);
        let quarter = ((last.at * PIECES).floor() + 1.0) / PIECES;
        let at = quarter.min(self.end);
        // A range of integers may have no new size before its end.
        let at = if is_new(at) { at } else { self.end };
        if self.is_first_pass_done || !is_new(at) {
            self.end_first_pass();
            return None;
        }
        if self.beyond(size_of(at)) <= self.goal.call_s_max {
            return Some(at);
        }
        // The largest position that is predicted to stay within the time limit.
        let (mut low, mut high) = (last.at, at);
        for _ in 0..40 {
            let middle = 0.5 * (low + high);
            if self.beyond(size_of(middle)) <= self.goal.call_s_max { low = middle } else { high = middle }
        }
        if is_new(low) {
            return Some(low);
        }
        self.end_first_pass();
        None
    }

    /// Predicted seconds of a call larger than all before: by the power law of the last two sizes, but at least proportional.
    fn beyond(&self, size: f64) -> f64 {
        let points: Vec<Point> = self.samples.iter().rev().take(2).map(Sample::point).collect();
        let last = points[0];
        let power = points.get(1).map_or(1.0, |p| (last.seconds / p.seconds).ln() / (last.size / p.size).ln());
        last.seconds * (size / last.size).powf(if power.is_finite() { power.max(1.0) } else { 1.0 })
    }

    /// Ends the first pass: each position between the ends is now the middle of a piece.
    fn end_first_pass(&mut self) {
        fn halve(samples: &mut [Sample]) {
            if samples.len() > 2 {
                let middle = samples.len() / 2;
                samples[middle].between = Some((samples[0].at, samples[samples.len() - 1].at));
                halve(&mut samples[..=middle]);
                halve(&mut samples[middle..]);
            }
        }
        if !std::mem::replace(&mut self.is_first_pass_done, true) {
            halve(&mut self.samples);
        }
    }

    fn bisect(&self, size_of: &dyn Fn(f64) -> f64) -> Option<f64> {
        if self.samples.len() >= MODEL_POINTS_MAX {
            return None;
        }
        let off = self.pieces().filter(|(_, piece)| piece.error > self.goal.error);
        let found = off.filter_map(|(pair, piece)| Some((middle(pair, size_of)?, piece.error)));
        // The first of equals.
        found.reduce(|best, other| if other.1 > best.1 { other } else { best }).map(|(at, _)| at)
    }

    /// Pairs of neighbours, and the piece between them.
    fn pieces(&self) -> impl Iterator<Item = (&[Sample], MispredictedPiece)> {
        self.samples.windows(2).enumerate().map(|(at, pair)| {
            let [a, b] = pair else { unreachable!("windows of two") };
            let (from, to) = (a.size, b.size);
            let (own, middle) = (Line(a, b), (from * to).sqrt());
            let left = at.checked_sub(1).map(|before| own.differs(&Line(&self.samples[before], a), middle));
            let right = self.samples.get(at + 2).map(|after| own.differs(&Line(b, after), middle));
            let width = |sample: &Sample| sample.between.map_or(f64::INFINITY, |(from, to)| to - from);
            // At an end of the range, the error found when the piece was cut replaces that of the missing neighbour.
            let missed = self.deviation(if width(a) < width(b) { a } else { b });
            // If the curve only bends at a measured end, one of the two is 0.
            let difference = match (left.or(missed), right.or(missed)) {
                (Some(one), Some(other)) => (one * other).sqrt(),
                _ => f64::INFINITY,
            };
            (pair, MispredictedPiece { from, to, error: ERROR_PART * difference })
        })
    }

    /// Distance of the sample from the line between the ends of the piece that it halved.
    fn deviation(&self, sample: &Sample) -> Option<f64> {
        let (from, to) = sample.between?;
        let end = |at: f64| self.samples.iter().find(|other| other.at == at).expect("a piece has ends");
        Some(Line(sample, sample).differs(&Line(end(from), end(to)), sample.size))
    }
}

/// The line through two samples; horizontal if they are the same sample.
struct Line<'a>(&'a Sample, &'a Sample);

impl Line<'_> {
    /// Seconds at that size, and their standard error.
    fn at(&self, size: f64) -> (f64, f64) {
        let (a, b) = (self.0.point(), self.1.point());
        let part = if a.size == b.size { 0.0 } else { (size - a.size) / (b.size - a.size) };
        let of_a = (1.0 - part) * self.0.uncertainty() * a.seconds;
        let of_b = part * self.1.uncertainty() * b.seconds;
        (a.seconds + part * (b.seconds - a.seconds), of_a.hypot(of_b))
    }

    /// Relative difference of the other line from this one at that size, beyond the uncertainty.
    fn differs(&self, other: &Line, size: f64) -> f64 {
        let ((seconds, error_s), (other_s, other_error_s)) = (self.at(size), other.at(size));
        let uncertain_s = UNCERTAINTIES * error_s.hypot(other_error_s);
        ((seconds - other_s).abs() - uncertain_s).max(0.0) / seconds
    }
}

impl Sample {
    fn point(&self) -> Point {
        let seconds = typical(self.seconds.clone());
        let spread_s = median(self.seconds.iter().map(|one| (one - seconds).abs()).collect());
        Point { size: self.size, seconds, spread_s, calls: self.seconds.len() as u64 }
    }

    /// Relative standard error of its time.
    fn uncertainty(&self) -> f64 {
        let point = self.point();
        MEDIAN_ERROR * point.spread_s / point.seconds / (point.calls as f64).sqrt()
    }

    /// True if these are short calls, some of which may wait for their turn.
    fn may_take_turns(&self) -> bool {
        (PACE_CALL_S_MIN..SHORT_CALL_S).contains(&median(self.seconds.clone()))
    }

    /// True if some of them waited.
    fn takes_turns(&self) -> bool {
        let middle = median(self.seconds.clone());
        self.may_take_turns() && self.seconds.iter().any(|one| *one > WAITED * middle && *one > 0.1 * SHORT_CALL_S)
    }

    /// Long calls are repeated until their total time reaches that of the longest, at least once.
    fn is_enough(&self, goal: CalibrationGoal) -> bool {
        let (count, sum_s) = (self.seconds.len(), self.seconds.iter().sum::<f64>());
        if count >= CALLS_MIN && self.takes_turns() && sum_s < SHORT_S_MIN {
            return count >= SHORT_CALLS_KEPT || sum_s >= goal.call_s_max;
        }
        let least = if count >= CALLS_MIN && self.may_take_turns() { CALLS_MAX } else { CALLS_MIN };
        let is_exact = count >= least && self.uncertainty() <= TIME_PART * goal.error;
        is_exact || count >= CALLS_MAX || sum_s >= goal.call_s_max
    }
}

/// The middle between neighbours, if a model distinguishes its size from theirs.
fn middle(pair: &[Sample], size_of: &dyn Fn(f64) -> f64) -> Option<f64> {
    let at = 0.5 * (pair[0].at + pair[1].at);
    let size = size_of(at);
    (!is_same_size(size, pair[0].size) && !is_same_size(size, pair[1].size)).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::SplitMix64;

    const GOAL: CalibrationGoal = CalibrationGoal { error: 0.05, call_s_max: 1e6 };

    /// Calibrates a function over sizes from 10³ to 10⁹.
    fn calibrated(goal: CalibrationGoal, mut seconds: impl FnMut(f64) -> f64) -> (Calibration, CalibrationResult) {
        let mut calibration = Calibration::new(goal);
        while let Some(at) = calibration.next(&size_of) {
            calibration.record_call(size_of(at), seconds(size_of(at)));
        }
        let reached = calibration.result(&size_of);
        (calibration, reached)
    }

    fn size_of(at: f64) -> f64 {
        1e3 * 1e6f64.powf(at)
    }

    /// Largest error of the curve at a thousand sizes, except at the jumps.
    fn worst(curve: &Curve, seconds: impl Fn(f64) -> f64, away_from: &[f64]) -> f64 {
        let sizes = (0..=1000).map(|step| size_of(f64::from(step) / 1000.0));
        let sizes = sizes.filter(|size| away_from.iter().all(|jump| !(0.75..1.33).contains(&(size / jump))));
        let error = |size: f64| (curve.predict(size, f64::INFINITY).unwrap().seconds / seconds(size) - 1.0).abs();
        sizes.map(error).fold(0.0, f64::max)
    }

    #[test]
    fn a_line_takes_five_sizes() {
        let (calibration, reached) = calibrated(GOAL, |size| 0.2 + 1e-7 * size);
        assert_eq!((calibration.curve().points.len(), reached.calls), (5, 15));
        assert!(reached.error < 1e-9 && reached.jumps.is_empty() && reached.end == 1.0, "{reached:?}");
    }

    #[test]
    fn a_constant_and_a_single_size_are_soon_known() {
        let (calibration, reached) = calibrated(GOAL, |_| 2.0);
        assert_eq!((calibration.curve().points.len(), reached.error), (5, 0.0));
        let mut calibration = Calibration::new(GOAL);
        while calibration.next(&|_| 7.0).is_some() {
            calibration.record_call(7.0, 2.0);
        }
        assert_eq!((calibration.curve().points.len(), calibration.result(&|_| 7.0).calls), (1, 3));
    }

    #[test]
    fn bends_are_found_and_the_error_holds_between_the_points() {
        // Overhead, a fast cache, a slow memory, paging.
        let bends = |size: f64| 1e-4 + 1e-9 * size + 3e-9 * (size - 1e5).max(0.0) + 6e-9 * (size - 3e8).max(0.0);
        let (calibration, reached) = calibrated(GOAL, bends);
        assert!(reached.error <= GOAL.error && reached.jumps.is_empty(), "{reached:?}");
        let (points, worst) = (calibration.curve().points.len(), worst(&calibration.curve(), bends, &[]));
        // The reached error is an estimate: a bend within a piece may be worse.
        assert!(worst <= 2.5 * GOAL.error && points <= 16, "{worst} off with {points} points");
        // A smaller goal takes more points and is reached, too.
        let goal = CalibrationGoal { error: 0.02, ..GOAL };
        let (finer, reached) = calibrated(goal, bends);
        assert!(finer.curve().points.len() > points && reached.error <= goal.error, "{reached:?}");
    }

    #[test]
    fn a_jump_is_closed_in_on_and_named() {
        let jump = |size: f64| 1e-9 * size * if size < 2.2e6 { 1.0 } else { 2.5 };
        let (calibration, reached) = calibrated(GOAL, jump);
        let [piece] = reached.jumps[..] else { panic!("{reached:?}") };
        assert!(piece.from < 2.2e6 && piece.to > 2.2e6 && piece.to / piece.from < 1.25, "{piece:?}");
        assert!(reached.error <= GOAL.error, "{reached:?}");
        let worst = worst(&calibration.curve(), jump, &[2.2e6]);
        assert!(worst <= 2.0 * GOAL.error, "{worst} off");
    }

    #[test]
    fn noise_is_repeated_away_and_not_chased() {
        let mut random = SplitMix64::new(1);
        let line = |size: f64| 0.2 + 1e-7 * size;
        // Up to a tenth more, and one in ten takes three times as long.
        let noisy = |size: f64| {
            let disturbed = if random.below(10) == 0 { 3.0 } else { 1.0 };
            line(size) * disturbed * (1.0 + 0.1 * random.unit())
        };
        let (calibration, reached) = calibrated(GOAL, noisy);
        let points = calibration.curve().points.len();
        let worst = worst(&calibration.curve(), |size| 1.05 * line(size), &[]);
        assert!(worst <= 0.1 && points <= 9, "{worst} off, {points} points");
        assert!(reached.spread > 0.005 && reached.calls > 3 * points, "{reached:?}");
    }

    #[test]
    fn short_calls_are_made_until_turns_show() {
        // A third of a processor in periods of 0.1 s, used up by the process that runs first.
        let (mut now, mut left) = (0.0f64, 0.033);
        let turns = |size: f64| {
            let start = now;
            let mut needed = 0.004 * (size / 1e3).powf(0.2);
            while needed > left {
                needed -= left;
                (now, left) = ((now / 0.1 + 1e-9).floor() * 0.1 + 0.1, 0.033);
            }
            (now, left) = (now + needed, left - needed);
            now - start
        };
        let (calibration, reached) = calibrated(GOAL, turns);
        for point in &calibration.curve().points {
            let share = point.seconds / (0.004 * (point.size / 1e3).powf(0.2));
            assert!((2.3..3.9).contains(&share), "{share} at {} {reached:?}", point.size);
        }
    }

    #[test]
    fn times_that_fall_are_no_success() {
        let falling = |size: f64| if (1e5..1e7).contains(&size) { 9.7 } else { 0.2 + 1e-9 * size };
        let (_, reached) = calibrated(GOAL, falling);
        assert!(reached.error > 0.2, "{reached:?}");
    }

    #[test]
    fn no_call_takes_much_longer_than_may_be() {
        // Steeper than proportional to its stated size.
        let steep = |size: f64| 1e-8 * size.powf(1.5);
        let mut longest = 0.0f64;
        let goal = CalibrationGoal { call_s_max: 10.0, ..GOAL };
        let (_, reached) = calibrated(goal, |size| {
            longest = longest.max(steep(size));
            steep(size)
        });
        assert!(longest <= 1.5 * goal.call_s_max && longest > 0.5 * goal.call_s_max, "{longest} s");
        assert!(reached.end < 1.0 && reached.error <= goal.error, "{reached:?}");
    }

    #[test]
    fn what_a_server_cannot_hold_ends_the_range() {
        let mut calibration = Calibration::new(GOAL);
        while let Some(at) = calibration.next(&size_of) {
            match size_of(at) {
                size if size > 4e7 => calibration.too_large(),
                size => calibration.record_call(size, 1e-9 * size),
            }
        }
        let last = calibration.curve().points.last().unwrap().size;
        assert!((2e7..=4e7).contains(&last), "{last}");
        assert!(calibration.result(&size_of).error <= GOAL.error);
    }

    #[test]
    fn integers_are_not_cut_into_what_they_have_not() {
        // n from 1 to 3, work n².
        let size_of = |at: f64| 3f64.powf(at).round().powi(2);
        let mut calibration = Calibration::new(GOAL);
        while let Some(at) = calibration.next(&size_of) {
            calibration.record_call(size_of(at), size_of(at).sqrt());
        }
        let sizes: Vec<f64> = calibration.curve().points.iter().map(|point| point.size).collect();
        assert_eq!(sizes, [1.0, 4.0, 9.0]);
    }
}
