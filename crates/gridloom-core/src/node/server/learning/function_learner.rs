//! The model of one function's run time: learned from its calls, and reported to the agent when it has changed.

use gridloom_base::Time;
use gridloom_base::limits::{MODEL_REPORT_NS, SHORT_CALL_NS_MAX};
use gridloom_base::time::ns_to_seconds;
use gridloom_perf::{ConcurrencyPoint, Curve, FunctionModel, Learner, Perturbation, Point, Size};

/// A function with short calls is learned from its first [`SHORT_CALLS_LEARNED`] calls, and then from one call in
/// [`SHORT_CALLS_SKIPPED`]. Learning from all of them would take time from the calls.
const SHORT_CALLS_SKIPPED: u64 = 16;
const SHORT_CALLS_LEARNED: u64 = 64;
/// Relative change of a time above which it is reported, if the change also exceeds the time's spread.
const REPORTED_CHANGE_MIN: f64 = 0.05;

/// The model of one function.
#[derive(Clone, Debug, Default)]
pub(super) struct FunctionLearner {
    learner: Learner,
    /// Number of calls that are still cold: the first one on each slot.
    cold_left: u32,
    calls: u64,
    /// The last model reported to the agent, and the time of the report.
    reported: Option<(FunctionModel, Time)>,
    changed: bool,
}

impl FunctionLearner {
    /// Returns the model of a function that has not been called yet, with a perturbation to expect.
    pub(super) fn cold(slots: u32, expected: &Perturbation) -> FunctionLearner {
        let model = FunctionModel { perturbation: expected.clone(), ..FunctionModel::default() };
        FunctionLearner { changed: expected.is_significant(), ..FunctionLearner::resume(&model, slots) }
    }

    /// Resumes from a stored model.
    pub(super) fn resume(model: &FunctionModel, slots: u32) -> FunctionLearner {
        FunctionLearner {
            learner: Learner::resume(model),
            cold_left: slots,
            changed: true,
            ..FunctionLearner::default()
        }
    }

    #[cfg(test)]
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Returns the expected duration of a call in seconds while `tasks` tasks run, itself included; `None` before the
    /// first warm call of the function.
    pub(super) fn expected_s(&self, size: Size, tasks: f64) -> Option<f64> {
        Some(self.learner.predict(size)?.seconds * self.learner.perturbation().factor(tasks))
    }

    /// True if calls are short, as far as is known.
    pub(super) fn is_short(&self) -> bool {
        self.learner.mean_s().is_some_and(|mean_s| mean_s < ns_to_seconds(SHORT_CALL_NS_MAX))
    }

    /// Counts a call that has ended. Returns whether it was cold, or `None` if it is skipped, as most calls of a short
    /// function are. A calibration call is never skipped.
    pub(super) fn count(&mut self, is_measured: bool) -> Option<bool> {
        self.calls += 1;
        let is_due = self.calls <= SHORT_CALLS_LEARNED || self.calls.is_multiple_of(SHORT_CALLS_SKIPPED);
        if !is_measured && self.is_short() && !is_due {
            return None;
        }
        let is_cold = self.cold_left > 0;
        self.cold_left = self.cold_left.saturating_sub(1);
        Some(is_cold)
    }

    pub(super) fn learn(&mut self, size: Size, seconds: f64, tasks: f64, is_cold: bool) {
        self.learner.learn(size, seconds, tasks, is_cold);
        self.changed = true;
    }

    /// Returns the model if it has changed enough to be reported, and marks it as reported.
    pub(super) fn take_update(&mut self, now: Time) -> Option<FunctionModel> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let model = self.learner.model();
        if !self.must_report(now, &model) {
            return None;
        }
        self.reported = Some((model.clone(), now));
        Some(model)
    }

    /// Forgets the last report, because an agent that may know nothing yet needs the model.
    pub(super) fn forget_reported(&mut self) {
        self.reported = None;
        self.changed = true;
    }

    fn must_report(&self, now: Time, model: &FunctionModel) -> bool {
        let Some((told, since)) = &self.reported else { return true };
        now.since(*since) >= MODEL_REPORT_NS
            || differs(&told.by_work, &model.by_work)
            || differs(&told.by_bytes, &model.by_bytes)
            || perturbation_differs(&told.perturbation, &model.perturbation)
    }
}

fn differs(told: &Curve, now: &Curve) -> bool {
    let is_moved = |(a, b): (&Point, &Point)| {
        let change_s = (a.seconds - b.seconds).abs();
        a.size != b.size
            || (a.calls == 0) != (b.calls == 0)
            || change_s > (REPORTED_CHANGE_MIN * a.seconds).max(a.spread_s)
    };
    told.points.len() != now.points.len() || told.points.iter().zip(&now.points).any(is_moved)
}

fn perturbation_differs(told: &Perturbation, now: &Perturbation) -> bool {
    let is_moved = |(a, b): (&ConcurrencyPoint, &ConcurrencyPoint)| {
        a.tasks != b.tasks || (a.factor / b.factor - 1.0).abs() > REPORTED_CHANGE_MIN
    };
    told.points.len() != now.points.len() || told.points.iter().zip(&now.points).any(is_moved)
}
