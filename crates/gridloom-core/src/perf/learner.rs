//! Models built from calls as they happen.
//!
//! At each size the last calls are kept: their median is the point's time, so that single outliers count for nothing and what
//! has changed is learned after half as many calls; older ones are forgotten. Calls that are far from the median are
//! counted apart.

use std::collections::VecDeque;

use super::model::{
    Accuracy, Curve, FunctionModel, Point, Prediction, Size, countable, is_same_size, least_missed, median, scaled,
};
use crate::base::limits::MODEL_POINTS_MAX;

/// Calls of about one size that are kept.
const WINDOW: usize = 9;
/// Calls further from the median than so many spreads, and than a third of it, are outliers.
const OUTLIER_SPREADS: f64 = 5.0;
const OUTLIER_PART: f64 = 1.0 / 3.0;
/// Weight of the newest call in the mean, once there are many.
const MEAN_WEIGHT_MIN: f64 = 0.1;

/// What a server learns about one of its functions.
#[derive(Clone, Debug, Default)]
pub struct Learner {
    by_work: Windows,
    by_bytes: Windows,
    accuracy: Accuracy,
    mean_s: Option<f64>,
    calls: u64,
}

#[derive(Clone, Debug, Default)]
struct Windows(Vec<Window>);

#[derive(Clone, Debug)]
struct Window {
    size: f64,
    /// Oldest first, scaled to the size.
    seconds: VecDeque<f64>,
    /// Warm calls so far.
    calls: u64,
}

impl Learner {
    /// Goes on from a model that was kept.
    pub fn resume(model: &FunctionModel) -> Learner {
        let windows = |curve: &Curve| {
            let window = |point: &Point| Window {
                size: point.size,
                seconds: VecDeque::from([point.seconds]),
                // One call of this run weighs as much as all of the one before: machines change.
                calls: point.calls.min(1),
            };
            Windows(curve.points.iter().map(window).collect())
        };
        Learner {
            by_work: windows(&model.by_work),
            by_bytes: windows(&model.by_bytes),
            accuracy: model.accuracy,
            ..Learner::default()
        }
    }

    /// Takes in a call. Cold ones (the first on their slots: libraries are loaded, memory is touched for the first time)
    /// count until there are others.
    pub fn learn(&mut self, size: Size, seconds: f64, is_cold: bool) {
        if !(seconds.is_finite() && seconds > 0.0) {
            return;
        }
        let (windows, size) = match size {
            Size::Work(work) => (&mut self.by_work, work),
            Size::Bytes(bytes) => (&mut self.by_bytes, bytes as f64),
        };
        if !(size.is_finite() && size >= 0.0) {
            return;
        }
        let size = countable(size);
        if !is_cold {
            if let Some(prediction) = windows.curve().predict(size) {
                self.accuracy.compare(prediction.seconds, seconds);
                let limit_s = (OUTLIER_SPREADS * prediction.spread_s).max(OUTLIER_PART * prediction.seconds);
                self.accuracy.outliers += u64::from((seconds - prediction.seconds).abs() > limit_s);
            }
            self.calls += 1;
            let weight = (1.0 / self.calls as f64).max(MEAN_WEIGHT_MIN);
            self.mean_s = Some(self.mean_s.map_or(seconds, |mean_s| mean_s + weight * (seconds - mean_s)));
        }
        windows.learn(size, seconds, is_cold);
    }

    /// What is expected of a call of that size; `None` before there was one, cold ones aside.
    pub fn predict(&self, size: Size) -> Option<Prediction> {
        let (windows, size) = match size {
            Size::Work(work) => (&self.by_work, work),
            Size::Bytes(bytes) => (&self.by_bytes, bytes as f64),
        };
        let is_warm = windows.0.iter().any(|window| window.calls > 0);
        if is_warm { windows.curve().predict(size) } else { None }
    }

    /// Mean seconds of a warm call, whatever its size; `None` before the first.
    pub fn mean_s(&self) -> Option<f64> {
        self.mean_s
    }

    /// The model as it is now.
    pub fn model(&self) -> FunctionModel {
        FunctionModel { by_work: self.by_work.curve(), by_bytes: self.by_bytes.curve(), accuracy: self.accuracy }
    }
}

impl Windows {
    fn learn(&mut self, size: f64, seconds: f64, is_cold: bool) {
        let is_warm = self.0.iter().any(|window| window.calls > 0);
        let nearest = self.0.iter_mut().filter(|window| is_same_size(window.size, size));
        let nearest = nearest.min_by(|a, b| (a.size - size).abs().total_cmp(&(b.size - size).abs()));
        match nearest {
            Some(window) if is_cold => {
                if window.calls == 0 {
                    window.add(scaled(seconds, size, window.size));
                }
            }
            Some(window) => {
                if window.calls == 0 {
                    window.seconds.clear();
                }
                window.calls += 1;
                window.add(scaled(seconds, size, window.size));
            }
            // What is known of other sizes is better than a cold call.
            None if is_cold && is_warm => {}
            None => {
                let window = Window { size, seconds: VecDeque::from([seconds]), calls: u64::from(!is_cold) };
                let at = self.0.partition_point(|other| other.size < size);
                self.0.insert(at, window);
                if !is_cold {
                    self.0.retain(|window| window.calls > 0);
                }
                if self.0.len() > MODEL_POINTS_MAX {
                    let points: Vec<Point> = self.0.iter().map(Window::point).collect();
                    self.0.remove(least_missed(&points));
                }
            }
        }
    }

    fn curve(&self) -> Curve {
        Curve::new(self.0.iter().map(Window::point).collect())
    }
}

impl Window {
    fn add(&mut self, seconds: f64) {
        if self.seconds.len() == WINDOW {
            self.seconds.pop_front();
        }
        self.seconds.push_back(seconds);
    }

    fn point(&self) -> Point {
        let seconds = median(self.seconds.iter().copied().collect());
        let spread_s = median(self.seconds.iter().map(|one| (one - seconds).abs()).collect());
        Point { size: self.size, seconds, spread_s, calls: self.calls }
    }
}
