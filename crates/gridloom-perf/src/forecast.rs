//! Forecasts of a measured series, in the manner of the Network Weather Service.
//!
//! Source: R. Wolski, *Dynamically forecasting network performance using the Network Weather Service*, Cluster Computing
//! 1(1), 119–132, 1998; R. Wolski, N. T. Spring, J. Hayes, *The Network Weather Service: a distributed resource performance
//! forecasting service for metacomputing*, Future Generation Computer Systems 15(5–6), 757–768, 1999: simple predictors run
//! side by side on each series, and the one with the best forecasts so far answers.
//!
//! Departures: an error is a ratio (half the bandwidth and double the bandwidth are equally wrong), and old errors are
//! forgotten exponentially, so that another predictor takes over when the behaviour of the series has changed.
//!
//! **Promise:** among predictors that were equally right, medians are preferred: a single outlier in a steady series changes no
//! forecast, and a change is accepted at its second measurement.

use std::collections::VecDeque;
use std::fmt;

use super::model::median;

/// A method of forecasting from past measurements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Predictor {
    /// The median of this many last measurements.
    Median(usize),
    /// The mean of this many last measurements.
    SlidingMean(usize),
    /// The mean of all.
    Mean,
    /// Exponential smoothing: each measurement moves the forecast by this fraction of its distance.
    Smoothed(f64),
    /// The last one.
    Last,
}

/// Predictors that run side by side; among equals the first is used.
pub const PREDICTORS: [Predictor; 11] = [
    Predictor::Median(5),
    Predictor::Median(15),
    Predictor::Median(31),
    Predictor::SlidingMean(5),
    Predictor::SlidingMean(15),
    Predictor::Mean,
    Predictor::Smoothed(0.05),
    Predictor::Smoothed(0.2),
    Predictor::Smoothed(0.5),
    Predictor::Smoothed(0.8),
    Predictor::Last,
];

/// Number of measurements kept: the widest window.
const WINDOW: usize = 31;
/// Weight of the newest error, once there are many.
const ERROR_WEIGHT_MIN: f64 = 0.1;
/// Maximum error of a single measurement, so that one absurd figure does not decide for long.
const ERROR_MAX: f64 = 10.0;
/// A later predictor must be better than an earlier one by this fraction to be used, so that rounding makes no difference.
const BETTER_PART: f64 = 1e-9;

impl fmt::Display for Predictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Predictor::Median(count) => write!(f, "median of {count}"),
            Predictor::SlidingMean(count) => write!(f, "mean of {count}"),
            Predictor::Mean => write!(f, "mean"),
            Predictor::Smoothed(gain) => write!(f, "smoothed by {gain}"),
            Predictor::Last => write!(f, "last"),
        }
    }
}

/// A series of positive measurements, and the forecast of the next one.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Oldest first.
    window: VecDeque<f64>,
    count: u64,
    mean: f64,
    /// Forecast of each predictor, and its mean error so far.
    forecasts: [f64; PREDICTORS.len()],
    errors: [f64; PREDICTORS.len()],
}

impl Series {
    /// Adds a measurement. Ignores values that are not finite or not above 0.
    pub fn observe(&mut self, value: f64) {
        if !(value.is_finite() && value > 0.0) {
            return;
        }
        if self.count > 0 {
            let weight = (1.0 / self.count as f64).max(ERROR_WEIGHT_MIN);
            for (error, forecast) in self.errors.iter_mut().zip(self.forecasts) {
                let wrong = ((value / forecast).max(forecast / value) - 1.0).min(ERROR_MAX);
                *error += weight * (wrong - *error);
            }
        }
        self.count += 1;
        self.mean += (value - self.mean) / self.count as f64;
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(value);
        for (at, predictor) in PREDICTORS.into_iter().enumerate() {
            self.forecasts[at] = match predictor {
                Predictor::Median(count) => median(self.last(count).collect()),
                Predictor::SlidingMean(count) => self.last(count).sum::<f64>() / self.last(count).count() as f64,
                Predictor::Mean => self.mean,
                Predictor::Smoothed(_) if self.count == 1 => value,
                Predictor::Smoothed(gain) => self.forecasts[at] + gain * (value - self.forecasts[at]),
                Predictor::Last => value,
            };
        }
    }

    /// Forecast of the next measurement; `None` if nothing was measured.
    pub fn forecast(&self) -> Option<f64> {
        (self.count > 0).then(|| self.forecasts[self.best()])
    }

    /// The predictor in use.
    pub fn predictor(&self) -> Predictor {
        PREDICTORS[self.best()]
    }

    /// Mean relative error of the forecasts so far of the predictor in use: 0.1 if they were off by a tenth.
    pub fn error(&self) -> f64 {
        self.errors[self.best()]
    }

    /// Number of measurements so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The last `count` measurements, newest first.
    pub fn last(&self, count: usize) -> impl Iterator<Item = f64> + '_ {
        self.window.iter().rev().take(count).copied()
    }

    /// The median of all remembered measurements; `None` if nothing was measured.
    pub fn median(&self) -> Option<f64> {
        (self.count > 0).then(|| median(self.window.iter().copied().collect()))
    }

    fn best(&self) -> usize {
        let mut best = 0;
        for (at, error) in self.errors.iter().enumerate() {
            if *error < self.errors[best] * (1.0 - BETTER_PART) {
                best = at;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::SplitMix64;

    fn series(values: impl IntoIterator<Item = f64>) -> Series {
        let mut series = Series::default();
        values.into_iter().for_each(|value| series.observe(value));
        series
    }

    #[test]
    fn one_outlier_in_a_steady_series_changes_nothing_and_a_change_is_believed_at_its_second() {
        let mut series = series([100.0; 20]);
        series.observe(10.0);
        assert_eq!(series.forecast(), Some(100.0));
        series.observe(10.0);
        assert_eq!((series.forecast(), series.predictor()), (Some(10.0), Predictor::Last));
        let back = self::series([100.0; 20].into_iter().chain([10.0]).chain([100.0; 3]));
        assert_eq!(back.forecast(), Some(100.0));
    }

    #[test]
    fn noise_around_a_value_is_averaged_and_a_trend_is_followed() {
        let mut rng = SplitMix64::new(3);
        let noise = series((0..300).map(|_| 50.0 + 100.0 * rng.unit()));
        let forecast = noise.forecast().unwrap();
        assert!((85.0..115.0).contains(&forecast), "{forecast} by {}", noise.predictor());
        assert!(!matches!(noise.predictor(), Predictor::Last | Predictor::Smoothed(0.8)), "{}", noise.predictor());
        let trend = series((1..100).map(f64::from));
        assert_eq!(trend.predictor(), Predictor::Last);
    }

    #[test]
    fn the_best_by_past_error_answers() {
        // One in four is an outlier: medians are right, means and the last value are not.
        let spiked = series((0..200).map(|n| if n % 4 == 0 { 50.0 } else { 100.0 }));
        assert!(matches!(spiked.predictor(), Predictor::Median(_)), "{}", spiked.predictor());
        assert_eq!(spiked.forecast(), Some(100.0));
        // Its error is that of the outliers alone: a quarter of 1, up to exponential forgetting.
        assert!((spiked.error() - 0.25).abs() < 0.05, "{}", spiked.error());
    }

    #[test]
    fn every_predictor_forecasts_a_constant_and_nonsense_is_no_measurement() {
        let constant = series([f64::NAN, -1.0, 0.0, 7.0, f64::INFINITY, 7.0, 7.0]);
        assert_eq!(constant.count(), 3);
        assert!(constant.forecasts.iter().all(|forecast| (forecast - 7.0).abs() < 1e-12));
        assert_eq!(Series::default().forecast(), None);
    }
}
