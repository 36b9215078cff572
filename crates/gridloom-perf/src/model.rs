//! Functional performance models: the time of a function on a server as a function of problem size.
//!
//! Source: Lastovetsky, Reddy, *Data partitioning with a functional performance model of heterogeneous processors*, IJHPCA
//! 21(1), 2007. Speed depends on the problem's size, through caches, memory and start-up. The model is therefore piecewise
//! linear between measured sizes.
//!
//! ```text
//! time │              ╱ beyond: along the line from about half the last size (guessed)
//!      │        ●────●
//!      │   ●───╱              between: linear
//!      │  ╱                   below: along the line to twice the first size, not below 0 (guessed)
//!      └──────────────── size
//! ```
//!
//! **Invariants** of a [`Curve`] that [`Curve::is_sane`] accepts: sizes are at least 1 and strictly ascending. Seconds never
//! decrease. All values are finite. So the predicted time never decreases with the size.

use serde::{Deserialize, Serialize};

use super::perturbation::Perturbation;
use gridloom_base::limits::{MODEL_POINTS_MAX, PACE_CALL_S_MIN, SHORT_CALL_S, SPEED_FLOPS_DEFAULT, WORK_FLOPS_DEFAULT};

/// Seconds per byte if no work is stated: about the speed of memory.
const BYTE_S: f64 = 1e-9;
/// Relative difference up to which sizes are one point; a sample's time is scaled to the point's size.
pub(super) const SAME_SIZE: f64 = 0.1;
/// Maximum seconds that a point may state, and that is predicted.
const SECONDS_MAX: f64 = 1e18;
/// Calls larger by more than `FAR` times are far beyond the measured sizes. A single size, or calls that take less than
/// `RATE_S_MIN` seconds, do not show how time grows so far: they may consist of the fixed cost of a call only.
const FAR: f64 = 10.0;
const RATE_S_MIN: f64 = 1e-3;
/// Maximum size that a point may state, and that is used.
const SIZE_MAX: f64 = 1e30;

/// The problem size of a call.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Size {
    /// Its work, floating-point operations, by the function's complexity expression.
    Work(f64),
    /// The bytes of its arrays, read and made, if its function states no complexity.
    Bytes(u64),
}

impl Size {
    /// The size of a call with that work, if stated, and those bytes. A value that is no amount of work (negative, or not finite)
    /// counts as not stated: any caller may send it.
    pub fn new(work_flops: Option<f64>, bytes: u64) -> Size {
        work_flops.filter(|work| is_work(*work)).map_or(Size::Bytes(bytes), Size::Work)
    }
}

/// True if the value is an amount of work, floating-point operations.
pub fn is_work(flops: f64) -> bool {
    flops.is_finite() && flops >= 0.0
}

/// Measurements at one size.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Point {
    /// The size: floating-point operations or bytes.
    pub size: f64,
    /// Time of a call alone on its server, seconds: the median of the last calls, or the mean for short ones.
    pub seconds: f64,
    /// Spread of the last calls, seconds: median of the distances from `seconds`.
    pub spread_s: f64,
    /// Number of calls on which it is based; 0 if there were only cold ones (the first on their slots), which are
    /// better than nothing.
    pub calls: u64,
}

/// Time as a function of size.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Curve {
    /// Ascending by size.
    pub points: Vec<Point>,
}

/// A predicted time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    pub seconds: f64,
    /// Spread of the calls on which it is based, seconds.
    pub spread_s: f64,
    /// True if no call of about that size, nor both larger and smaller ones, were measured.
    pub is_extrapolated: bool,
}

impl Curve {
    /// Builds a curve through these points, which are sorted and made monotone.
    pub fn new(mut points: Vec<Point>) -> Curve {
        points.sort_by(|a, b| a.size.total_cmp(&b.size));
        make_monotone(&mut points);
        Curve { points }
    }

    /// True if times can be computed from it: a peer or a file may contain any values.
    pub fn is_sane(&self) -> bool {
        let is_time = |seconds: f64| (0.0..=SECONDS_MAX).contains(&seconds);
        self.points.len() <= MODEL_POINTS_MAX
            && self
                .points
                .iter()
                .all(|p| (1.0..=SIZE_MAX).contains(&p.size) && is_time(p.seconds) && is_time(p.spread_s))
            && self.points.windows(2).all(|pair| pair[0].size < pair[1].size && pair[0].seconds <= pair[1].seconds)
    }

    /// Predicts the time of a call of that size; `None` if nothing was measured. `usual_s` is the usual time per unit of size,
    /// seconds. It extrapolates far beyond the measured sizes if the measurements show only the fixed cost of a call.
    pub fn predict(&self, size: f64, usual_s: f64) -> Option<Prediction> {
        let size = countable(size);
        let (first, last) = (self.points.first()?, self.points.last()?);
        if size < first.size {
            let other = self.points.iter().find(|point| point.size >= 2.0 * first.size);
            let rate = first.seconds / first.size;
            // No steeper than proportional, so that no time is negative.
            let slope = other.map_or(rate, |other| slope(first, other).min(rate));
            let seconds = first.seconds - slope * (first.size - size);
            let is_extrapolated = size < first.size * (1.0 - SAME_SIZE);
            return Some(Prediction { seconds: seconds.max(0.0), spread_s: first.spread_s, is_extrapolated });
        }
        if size >= last.size {
            let other = self.points.iter().rev().find(|point| point.size <= 0.5 * last.size);
            let slope = other.map_or(last.seconds / last.size, |other| slope(other, last));
            let tells_rate = other.is_some() && last.seconds >= RATE_S_MIN;
            let far = if tells_rate { 0.0 } else { (size - FAR * last.size).max(0.0) };
            let near = size - last.size - far;
            let seconds = (last.seconds + slope * near + slope.min(usual_s) * far).min(SECONDS_MAX);
            let is_extrapolated = size > last.size * (1.0 + SAME_SIZE);
            return Some(Prediction { seconds, spread_s: last.spread_s, is_extrapolated });
        }
        let above = self.points.partition_point(|point| point.size <= size);
        let (a, b) = (&self.points[above - 1], &self.points[above]);
        let part = (size - a.size) / (b.size - a.size);
        Some(Prediction {
            seconds: a.seconds + part * (b.seconds - a.seconds),
            spread_s: a.spread_s.max(b.spread_s),
            is_extrapolated: false,
        })
    }

    /// Adds the points of another curve that are far larger; they count as guessed.
    fn extend(&mut self, guessed: &Curve) {
        let Some(last) = self.points.last().copied() else { return };
        let larger = guessed.points.iter().filter(|point| point.size > FAR * last.size);
        let at_least = larger.map(|point| Point { seconds: point.seconds.max(last.seconds), calls: 0, ..*point });
        self.points.extend(at_least.take(MODEL_POINTS_MAX.saturating_sub(self.points.len())));
    }

    /// Number of calls on which it is based.
    pub fn calls(&self) -> u64 {
        self.points.iter().map(|point| point.calls).fold(0, u64::saturating_add)
    }
}

fn slope(a: &Point, b: &Point) -> f64 {
    (b.seconds - a.seconds) / (b.size - a.size)
}

/// Replaces decreasing points by their weighted mean, as few as possible (pool adjacent violators; Ayer et al., *Annals of
/// Mathematical Statistics* 26, 1955).
fn make_monotone(points: &mut [Point]) {
    let mut pools: Vec<(f64, f64, usize)> = Vec::with_capacity(points.len());
    for point in points.iter() {
        let weight = point.calls.clamp(1, 100) as f64;
        let mut pool = (point.seconds, weight, 1);
        while let Some(before) = pools.last().filter(|before| before.0 > pool.0) {
            let weight = before.1 + pool.1;
            pool = ((before.0 * before.1 + pool.0 * pool.1) / weight, weight, before.2 + pool.2);
            pools.pop();
        }
        pools.push(pool);
    }
    let mut rest = points.iter_mut();
    for (seconds, _, count) in pools {
        rest.by_ref().take(count).for_each(|point| point.seconds = seconds);
    }
}

/// Accuracy of predictions compared with measurements.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Accuracy {
    /// Number of predictions compared.
    pub count: u64,
    /// Number of outliers among them: calls that differed from the prediction by more than five spreads, and by more than a third.
    pub outliers: u64,
    /// Mean logarithm of measured / predicted; old values are forgotten exponentially.
    pub bias: f64,
    /// Mean absolute logarithm of measured / predicted.
    pub error: f64,
}

/// Maximum logarithm of a ratio of two times.
const LOGARITHM_MAX: f64 = 1000.0;
/// Weight of the newest comparison, once there are many.
const ACCURACY_WEIGHT_MIN: f64 = 0.05;

impl Accuracy {
    /// Adds one comparison; ignores it unless both times are above 0.
    pub fn compare(&mut self, predicted_s: f64, measured_s: f64) {
        let ratio = (measured_s / predicted_s).ln();
        if !ratio.is_finite() {
            return;
        }
        self.count = self.count.saturating_add(1);
        let weight = (1.0 / self.count as f64).max(ACCURACY_WEIGHT_MIN);
        self.bias += weight * (ratio - self.bias);
        self.error += weight * (ratio.abs() - self.error);
    }

    fn is_sane(&self) -> bool {
        self.bias.abs() <= LOGARITHM_MAX && (0.0..=LOGARITHM_MAX).contains(&self.error)
    }
}

/// The performance model of one function on a server.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FunctionModel {
    /// Seconds against work, for calls that state it.
    pub by_work: Curve,
    /// Seconds against the bytes of all arrays, for calls that state no work.
    pub by_bytes: Curve,
    /// Slowdown of calls that run concurrently with others on the server.
    #[serde(default)]
    pub perturbation: Perturbation,
    /// Accuracy of its predictions.
    pub accuracy: Accuracy,
}

impl FunctionModel {
    /// True if times can be computed from it.
    pub fn is_sane(&self) -> bool {
        self.by_work.is_sane() && self.by_bytes.is_sane() && self.perturbation.is_sane() && self.accuracy.is_sane()
    }

    pub fn is_empty(&self) -> bool {
        self.by_work.points.is_empty() && self.by_bytes.points.is_empty()
    }

    /// Number of calls on which it is based.
    pub fn calls(&self) -> u64 {
        self.by_work.calls().saturating_add(self.by_bytes.calls())
    }

    /// Predicts a call of that size alone on a server of that speed; `None` if no call was measured.
    pub fn predict(&self, size: Size, speed_flops: Option<f64>) -> Option<Prediction> {
        match size {
            Size::Work(work) => self.by_work.predict(work, 1.0 / speed_flops.unwrap_or(SPEED_FLOPS_DEFAULT)),
            Size::Bytes(bytes) => self.by_bytes.predict(bytes as f64, BYTE_S),
        }
    }

    /// Seconds of a call of that size alone on a server of that speed: measured, or a first guess from the speed.
    pub fn seconds(&self, size: Size, speed_flops: Option<f64>) -> f64 {
        let measured = self.predict(size, speed_flops);
        measured.map_or_else(|| first_guess_s(size, speed_flops), |prediction| prediction.seconds)
    }

    /// Returns the same model with each point counting as one call: machines change from run to run.
    pub fn as_one_call(mut self) -> FunctionModel {
        let points = self.by_work.points.iter_mut().chain(&mut self.by_bytes.points);
        points.for_each(|point| point.calls = point.calls.min(1));
        self.perturbation.points.iter_mut().for_each(|point| point.calls = point.calls.min(1));
        self.accuracy.count = self.accuracy.count.min(1);
        self
    }

    /// Adds guessed points beyond the measured sizes.
    pub fn extended(mut self, guessed: &FunctionModel) -> FunctionModel {
        self.by_work.extend(&guessed.by_work);
        self.by_bytes.extend(&guessed.by_bytes);
        self
    }

    /// Merges several models, each with a factor for its times. Among points of about the same size, those with warm calls count,
    /// weighted by their number.
    pub fn merge<'a>(models: impl Iterator<Item = (&'a FunctionModel, f64)> + Clone) -> FunctionModel {
        let of = |curve: fn(&FunctionModel) -> &Curve| {
            let points = models.clone().flat_map(|(model, factor)| {
                curve(model).points.iter().map(move |point| Point {
                    seconds: point.seconds * factor,
                    spread_s: point.spread_s * factor,
                    ..*point
                })
            });
            merge_points(points.collect())
        };
        let (by_work, by_bytes) = (of(|model| &model.by_work), of(|model| &model.by_bytes));
        let total = models.clone().map(|(model, _)| model.accuracy.count).fold(0, u64::saturating_add);
        let weights: f64 = models.clone().map(|(model, _)| model.accuracy.count as f64).sum();
        let mean = |of: fn(&Accuracy) -> f64| {
            let sum = models.clone().map(|(model, _)| of(&model.accuracy) * model.accuracy.count as f64).sum::<f64>();
            if weights > 0.0 { (sum / weights).clamp(-LOGARITHM_MAX, LOGARITHM_MAX) } else { 0.0 }
        };
        let outliers = models.clone().map(|(model, _)| model.accuracy.outliers).fold(0, u64::saturating_add);
        let accuracy = Accuracy { count: total, outliers, bias: mean(|one| one.bias), error: mean(|one| one.error) };
        let perturbation = Perturbation::merge(models.map(|(model, _)| &model.perturbation));
        FunctionModel { by_work, by_bytes, perturbation, accuracy }
    }
}

/// Estimates the time of a call before any was measured.
pub fn first_guess_s(size: Size, speed_flops: Option<f64>) -> f64 {
    let work = match size {
        Size::Work(work) => work,
        Size::Bytes(_) => WORK_FLOPS_DEFAULT,
    };
    (work / speed_flops.unwrap_or(SPEED_FLOPS_DEFAULT)).min(SECONDS_MAX)
}

fn merge_points(mut points: Vec<Point>) -> Curve {
    points.sort_by(|a, b| a.size.total_cmp(&b.size));
    let mut merged: Vec<Point> = Vec::new();
    for point in points {
        let Some(last) = merged.last_mut().filter(|last| is_same_size(last.size, point.size)) else {
            merged.push(point);
            continue;
        };
        let scaled_s = scaled(point.seconds, point.size, last.size);
        if last.calls == 0 && point.calls > 0 {
            *last = Point { size: last.size, seconds: scaled_s, ..point };
        } else if last.calls == 0 || point.calls > 0 {
            let part = point.calls.max(1) as f64 / (last.calls.max(1) as f64 + point.calls.max(1) as f64);
            last.seconds += part * (scaled_s - last.seconds);
            last.spread_s = last.spread_s.max(point.spread_s);
            last.calls = last.calls.saturating_add(point.calls);
        }
    }
    while merged.len() > MODEL_POINTS_MAX {
        merged.remove(least_missed(&merged));
    }
    Curve::new(merged)
}

pub(super) fn is_same_size(a: f64, b: f64) -> bool {
    (a - b).abs() <= SAME_SIZE * a.max(b)
}

/// Scales seconds at one size to another of about the same size.
pub(super) fn scaled(seconds: f64, size: f64, to: f64) -> f64 {
    seconds * (to / size)
}

/// Limits a size to the range that curves accept; sizes of almost nothing become the minimum.
pub(super) fn countable(size: f64) -> f64 {
    size.clamp(1.0, SIZE_MAX)
}

/// A short call has waited for its turn if it took this many times the median.
pub(super) const WAITED: f64 = 3.0;
/// Minimum number of kept calls that must have waited to count.
const WAITED_MIN: usize = 3;

/// Typical time of calls of one size and load: the median. For short calls (below 0.1 s, but long enough that disturbances are
/// not noise) it is the mean if that is longer. Processors may be assigned in turns (a quota's periods). Then a short call takes
/// its own time or waits one turn more, and only the sum of several calls shows the available share. A call that waited much
/// longer than a turn was delayed by something else, and one or two that waited among many are ignored.
///
/// # Panics
/// If there are no values.
pub(super) fn typical(values: Vec<f64>) -> f64 {
    let middle = median(values.clone());
    if !(PACE_CALL_S_MIN..SHORT_CALL_S).contains(&middle) || values.len() < 3 {
        return middle;
    }
    let is_near = |value: &&f64| **value <= WAITED * middle;
    let near = values.iter().filter(is_near).count();
    let mean = if values.len() - near < WAITED_MIN {
        values.iter().filter(is_near).sum::<f64>() / near as f64
    } else {
        let waits = values.iter().map(|value| value.min(middle + SHORT_CALL_S));
        waits.sum::<f64>() / values.len() as f64
    };
    mean.max(middle)
}

/// The middle value, or the mean of the two middle ones.
///
/// # Panics
/// If there are no values.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { 0.5 * (values[middle - 1] + values[middle]) }
}

/// Returns the index of the inner point that the line through its neighbours predicts best.
///
/// # Panics
/// If there are fewer than three points.
pub(super) fn least_missed(points: &[Point]) -> usize {
    let miss = |at: usize| {
        let (a, b, c) = (&points[at - 1], &points[at], &points[at + 1]);
        let line_s = a.seconds + (b.size - a.size) * slope(a, c);
        (line_s - b.seconds).abs() / b.seconds.max(f64::MIN_POSITIVE)
    };
    let inner = (1..points.len() - 1).map(|at| (at, miss(at)));
    inner.min_by(|a, b| a.1.total_cmp(&b.1)).expect("three points have one between").0
}
