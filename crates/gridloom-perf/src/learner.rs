//! Models learned from calls as they complete.
//!
//! For each size and number of concurrent tasks, the learner keeps the last calls and forgets older ones. Their typical time
//! is the point's time ([`typical`]). So a single outlier does not count, and the model follows a change after half as many
//! calls. Calls far from the typical time are counted separately.
//!
//! A point's time is that of a call alone. If all calls of a size ran beside others, the learner divides their time by the
//! perturbation observed at other sizes. Without such a perturbation it uses their time as it is, which is right only while the
//! server stays as busy.

use std::cell::OnceCell;
use std::collections::VecDeque;

use super::model::{
    Accuracy, Curve, FunctionModel, Point, Prediction, Size, countable, is_same_size, least_missed, median, scaled,
    typical,
};
use super::perturbation::{ConcurrencyPoint, Perturbation, load_of};
use gridloom_base::limits::{LOADS_MAX, MODEL_POINTS_MAX, SHORT_CALL_S, SHORT_CALLS_KEPT};

/// Number of long calls of about one size that are kept.
const WINDOW: usize = 9;
/// Calls further from the median than this many spreads, and than a third of it, are outliers.
const OUTLIER_SPREADS: f64 = 5.0;
const OUTLIER_PART: f64 = 1.0 / 3.0;
/// Weight of the newest call in the mean, once there are many.
const MEAN_WEIGHT_MIN: f64 = 0.1;
/// Minimum number of calls alone, and of calls concurrent with others, for comparing them.
const COMPARED_MIN: usize = 3;

/// A server's model of one of its functions, as it is learned.
#[derive(Clone, Debug, Default)]
pub struct Learner {
    by_work: Windows,
    by_bytes: Windows,
    /// Perturbation learned in the previous run: for loads that this run has not observed.
    previous: Perturbation,
    accuracy: Accuracy,
    mean_s: Option<f64>,
    calls: u64,
    /// Curves derived from the rest, cached until the next call.
    curves: OnceCell<Curves>,
}

#[derive(Clone, Debug)]
struct Curves {
    by_work: Curve,
    by_bytes: Curve,
    perturbation: Perturbation,
}

#[derive(Clone, Debug, Default)]
struct Windows(Vec<Window>);

/// Calls of about one size.
#[derive(Clone, Debug)]
struct Window {
    size: f64,
    /// Number of warm calls so far.
    calls: u64,
    /// Ascending by tasks.
    loads: Vec<Load>,
}

/// The calls of a window that ran with the same number of concurrent tasks.
#[derive(Clone, Debug)]
struct Load {
    tasks: u32,
    /// Oldest first, scaled to the size.
    seconds: VecDeque<f64>,
    /// Typical time, and the median of the distances from it.
    typical_s: f64,
    spread_s: f64,
}

impl Learner {
    /// Resumes from a stored model.
    pub fn resume(model: &FunctionModel) -> Learner {
        let windows = |curve: &Curve| {
            // One call of this run weighs as much as all calls of the previous run: machines change.
            let window = |point: &Point| {
                let mut alone = Load::new(1);
                alone.add(point.seconds);
                Window { size: point.size, calls: point.calls.min(1), loads: vec![alone] }
            };
            Windows(curve.points.iter().map(window).collect())
        };
        Learner {
            by_work: windows(&model.by_work),
            by_bytes: windows(&model.by_bytes),
            previous: model.perturbation.clone(),
            accuracy: model.accuracy,
            ..Learner::default()
        }
    }

    /// Learns from a call, during which `tasks` tasks ran here on average, itself included. Cold calls (the first on their
    /// slots: libraries are loaded, memory is touched for the first time) count until there are others.
    pub fn learn(&mut self, size: Size, seconds: f64, tasks: f64, is_cold: bool) {
        if !(seconds.is_finite() && seconds > 0.0) {
            return;
        }
        let expected = if is_cold { None } else { self.predict(size) };
        let perturbation = self.perturbation().clone();
        let (windows, size) = match size {
            Size::Work(work) => (&mut self.by_work, work),
            Size::Bytes(bytes) => (&mut self.by_bytes, bytes as f64),
        };
        if !(size.is_finite() && size >= 0.0) {
            return;
        }
        let size = countable(size);
        if !is_cold {
            if let Some(alone) = expected {
                let factor = perturbation.factor(tasks);
                let (expected_s, spread_s) = (alone.seconds * factor, alone.spread_s * factor);
                self.accuracy.compare(expected_s, seconds);
                let limit_s = (OUTLIER_SPREADS * spread_s).max(OUTLIER_PART * expected_s);
                self.accuracy.outliers += u64::from((seconds - expected_s).abs() > limit_s);
            }
            self.calls += 1;
            let weight = (1.0 / self.calls as f64).max(MEAN_WEIGHT_MIN);
            self.mean_s = Some(self.mean_s.map_or(seconds, |mean_s| mean_s + weight * (seconds - mean_s)));
        }
        windows.learn(size, seconds, tasks, is_cold, &perturbation);
        self.curves.take();
    }

    /// Predicts a call of that size alone; `None` if there were only cold calls or none.
    pub fn predict(&self, size: Size) -> Option<Prediction> {
        let curves = self.curves();
        let (windows, curve, size) = match size {
            Size::Work(work) => (&self.by_work, &curves.by_work, work),
            Size::Bytes(bytes) => (&self.by_bytes, &curves.by_bytes, bytes as f64),
        };
        let is_warm = windows.0.iter().any(|window| window.calls > 0);
        if is_warm { curve.predict(size, f64::INFINITY) } else { None }
    }

    /// Mean seconds of a warm call, whatever its size; `None` before the first.
    pub fn mean_s(&self) -> Option<f64> {
        self.mean_s
    }

    /// Slowdown of calls that run concurrently with others.
    pub fn perturbation(&self) -> &Perturbation {
        &self.curves().perturbation
    }

    fn curves(&self) -> &Curves {
        self.curves.get_or_init(|| {
            let perturbation = self.compare_loads();
            Curves {
                by_work: self.by_work.curve(&perturbation),
                by_bytes: self.by_bytes.curve(&perturbation),
                perturbation,
            }
        })
    }

    fn compare_loads(&self) -> Perturbation {
        let windows = || self.by_work.0.iter().chain(&self.by_bytes.0);
        let mut loads: Vec<u32> = windows().flat_map(|window| window.loads.iter().map(|load| load.tasks)).collect();
        loads.sort_unstable();
        loads.dedup();
        // Ascending: each load is compared with known loads of fewer tasks.
        let mut known: Vec<ConcurrencyPoint> = Vec::new();
        for tasks in loads.into_iter().filter(|tasks| *tasks > 1).take(LOADS_MAX) {
            let (mut weights, mut sum) = (0.0, 0.0);
            for window in windows() {
                let Some((ratio, calls)) = window.compared(tasks, &known) else { continue };
                weights += calls as f64;
                sum += calls as f64 * ratio.ln();
            }
            if weights > 0.0 {
                known.push(ConcurrencyPoint { tasks, factor: (sum / weights).exp(), calls: weights as u64 });
            }
        }
        let is_new = |kept: &&ConcurrencyPoint| known.iter().all(|one| one.tasks != kept.tasks);
        let kept: Vec<ConcurrencyPoint> = self.previous.points.iter().filter(is_new).copied().collect();
        known.extend(kept.into_iter().take(LOADS_MAX.saturating_sub(known.len())));
        Perturbation::new(known)
    }

    /// Returns the model as it is now.
    pub fn model(&self) -> FunctionModel {
        let Curves { by_work, by_bytes, perturbation } = self.curves().clone();
        FunctionModel { by_work, by_bytes, perturbation, accuracy: self.accuracy }
    }
}

impl Windows {
    fn learn(&mut self, size: f64, seconds: f64, tasks: f64, is_cold: bool, perturbation: &Perturbation) {
        let is_warm = self.0.iter().any(|window| window.calls > 0);
        let nearest = self.0.iter_mut().filter(|window| is_same_size(window.size, size));
        let nearest = nearest.min_by(|a, b| (a.size - size).abs().total_cmp(&(b.size - size).abs()));
        match nearest {
            Some(window) if is_cold => {
                if window.calls == 0 {
                    window.add(scaled(seconds, size, window.size), tasks, perturbation);
                }
            }
            Some(window) => {
                if window.calls == 0 {
                    window.loads.clear();
                }
                window.calls += 1;
                window.add(scaled(seconds, size, window.size), tasks, perturbation);
            }
            // The measurements of other sizes are better than a cold call.
            None if is_cold && is_warm => {}
            None => {
                let mut window = Window { size, calls: u64::from(!is_cold), loads: Vec::new() };
                window.add(seconds, tasks, perturbation);
                let at = self.0.partition_point(|other| other.size < size);
                self.0.insert(at, window);
                if !is_cold {
                    self.0.retain(|window| window.calls > 0);
                }
                if self.0.len() > MODEL_POINTS_MAX {
                    let points: Vec<Point> = self.0.iter().map(|window| window.point(perturbation)).collect();
                    self.0.remove(least_missed(&points));
                }
            }
        }
    }

    fn curve(&self, perturbation: &Perturbation) -> Curve {
        Curve::new(self.0.iter().map(|window| window.point(perturbation)).collect())
    }
}

impl Window {
    /// Between two distinguished numbers of tasks, the call counts for the nearest, scaled by the ratio of their factors. As these
    /// become known, so does the right scaling.
    fn add(&mut self, seconds: f64, tasks: f64, perturbation: &Perturbation) {
        let near = load_of(tasks);
        let seconds = seconds * perturbation.factor(f64::from(near)) / perturbation.factor(tasks);
        let at = self.loads.partition_point(|load| load.tasks < near);
        if self.loads.get(at).is_none_or(|load| load.tasks != near) {
            if self.loads.len() == LOADS_MAX {
                return;
            }
            self.loads.insert(at, Load::new(near));
        }
        self.loads[at].add(seconds);
    }

    /// Its time with that many tasks over its time alone, and the number of calls on which the ratio is based.
    fn compared(&self, tasks: u32, known: &[ConcurrencyPoint]) -> Option<(f64, usize)> {
        let enough = |load: &&Load| load.seconds.len() >= COMPARED_MIN;
        let full = self.loads.iter().filter(enough).find(|load| load.tasks == tasks)?;
        let of_others = self.loads.iter().filter(enough).filter(|load| load.tasks < tasks).find_map(|load| {
            let factor = match load.tasks {
                1 => 1.0,
                tasks => known.iter().find(|one| one.tasks == tasks)?.factor,
            };
            Some((load, factor))
        });
        let (base, factor) = of_others?;
        Some((full.typical_s / base.typical_s * factor, full.seconds.len().min(base.seconds.len())))
    }

    fn point(&self, perturbation: &Perturbation) -> Point {
        let is_enough = |load: &&Load| load.seconds.len() >= COMPARED_MIN;
        let most = || self.loads.iter().rev().max_by_key(|load| load.seconds.len());
        let base = self.loads.iter().find(is_enough).or_else(most).expect("a window has calls");
        let factor = perturbation.factor(f64::from(base.tasks));
        Point { size: self.size, seconds: base.typical_s / factor, spread_s: base.spread_s / factor, calls: self.calls }
    }
}

impl Load {
    fn new(tasks: u32) -> Load {
        Load { tasks, seconds: VecDeque::new(), typical_s: 0.0, spread_s: 0.0 }
    }

    /// Keeps enough short calls to measure the share of a processor that is assigned in turns.
    fn add(&mut self, seconds: f64) {
        self.seconds.push_back(seconds);
        let is_short = || median(self.seconds.iter().copied().collect()) < SHORT_CALL_S;
        let kept = if self.seconds.len() > WINDOW && is_short() { SHORT_CALLS_KEPT } else { WINDOW };
        while self.seconds.len() > kept {
            self.seconds.pop_front();
        }
        self.typical_s = typical(self.seconds.iter().copied().collect());
        self.spread_s = median(self.seconds.iter().map(|one| (one - self.typical_s).abs()).collect());
    }
}
