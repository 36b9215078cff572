//! The server's pace: the time of its last calls, and of those that run, relative to the models' predictions.
//!
//! Models need several calls to learn a change. The pace shows in the next call, or while it runs, that other work has
//! taken half of the processors. The ratio always refers to the current models: once they have learned the change, it
//! is 1 again.
//!
//! The ratio is one of sums over the calls of about the last second of computing, without the call that was delayed
//! most. If processors are assigned in turns (such as a quota's periods of 100 ms), a short call takes either its own
//! time or twenty times as long, and only a sum shows the available part of the processor. With long calls, a single
//! disturbed one has no effect.

use std::collections::{BTreeMap, VecDeque};

use super::function_learner::FunctionLearner;
use super::running::RunningTasks;
use gridloom_base::Time;
use gridloom_base::limits::{PACE_CALL_S_MIN, PACE_MAX, PACE_MIN, PACE_REPORT_FACTOR, TIME_SLICE_NOISE_S};
use gridloom_base::time::ns_to_seconds;
use gridloom_perf::Size;

/// Minimum number of calls that are taken into account, starting with the last one.
const CALLS_MIN: usize = 3;
/// Maximum number of calls that are taken into account.
const CALLS_MAX: usize = 64;
/// Total duration of the calls, in seconds, above which no further calls are taken into account.
const WINDOW_S: f64 = 1.0;
/// A running call is taken into account once it has run for this multiple of its expected time.
const OVERDUE: f64 = 2.0;

#[derive(Debug, Default)]
pub(super) struct Pace {
    samples: VecDeque<PaceSample>,
    reported: Option<f64>,
}

#[derive(Debug)]
struct PaceSample {
    function: String,
    size: Size,
    seconds: f64,
    tasks: f64,
}

impl Pace {
    pub(super) fn forget_reported(&mut self) {
        self.reported = None;
    }

    /// Records a call that has ended. `tasks`: mean number of tasks that ran during it, itself included.
    pub(super) fn measured(&mut self, function: &str, size: Size, seconds: f64, tasks: f64) {
        if self.samples.len() == CALLS_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(PaceSample { function: function.to_string(), size, seconds, tasks });
    }

    /// Returns the pace if it has changed much since the last report, and marks it as reported.
    pub(super) fn take_update(
        &mut self,
        now: Time,
        known: &BTreeMap<String, FunctionLearner>,
        running: &RunningTasks,
    ) -> Option<f64> {
        let pace = self.value(now, known, running);
        let told = self.reported.unwrap_or(1.0);
        let change = pace / told;
        let is_back = told != 1.0 && (1.0 / PACE_REPORT_FACTOR..PACE_REPORT_FACTOR).contains(&pace);
        let is_news = !(1.0 / PACE_REPORT_FACTOR..PACE_REPORT_FACTOR).contains(&change) || (is_back && pace != told);
        let pace = if is_back { 1.0 } else { pace };
        is_news.then(|| *self.reported.insert(pace))
    }

    fn value(&self, now: Time, known: &BTreeMap<String, FunctionLearner>, running: &RunningTasks) -> f64 {
        let expected_s = |function: &str, size, tasks| {
            let expected_s = known.get(function)?.expected_s(size, tasks)?;
            (expected_s >= PACE_CALL_S_MIN).then_some(expected_s)
        };
        let last = self.samples.iter().rev();
        let pace =
            of_calls(last.filter_map(|one| Some((one.seconds, expected_s(&one.function, one.size, one.tasks)?))));
        // Calls without a stated work are distinguished by their bytes, which are not available here. Their ends show the pace.
        let overdue = running.all().filter_map(|one| {
            let (elapsed_s, tasks) = (ns_to_seconds(now.since(one.since)), running.mean_tasks(now, one));
            let expected_s = expected_s(&one.function, Size::Work(one.work_flops?), tasks)?.max(TIME_SLICE_NOISE_S);
            let ratio = elapsed_s / expected_s;
            (ratio > OVERDUE * pace).then_some(ratio)
        });
        overdue.fold(pace, f64::max).clamp(PACE_MIN, PACE_MAX)
    }
}

/// Returns the pace from pairs of actual and expected duration in seconds, the last call first. Returns 1 if there are
/// too few calls.
fn of_calls(calls: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut count, mut took_s, mut expected_s, mut furthest) = (0, 0.0, 0.0, (0.0, 0.0));
    for (took, expected) in calls {
        if count >= CALLS_MIN && took_s >= WINDOW_S {
            break;
        }
        count += 1;
        took_s += took;
        expected_s += expected;
        if count == 1 || took - expected > furthest.0 - furthest.1 {
            furthest = (took, expected);
        }
    }
    if count < CALLS_MIN || (count < CALLS_MAX && took_s < TIME_SLICE_NOISE_S) {
        return 1.0;
    }
    (took_s - furthest.0) / (expected_s - furthest.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sum_of_short_calls_shows_a_quota() {
        // A third of a processor in periods of 100 ms: seven calls of 4 ms, and one that waits for the next period.
        let call = |n: usize| if n % 8 == 7 { (0.072, 0.004) } else { (0.004, 0.004) };
        for end in 64..90 {
            let pace = of_calls((0..end).rev().take(CALLS_MAX).map(call));
            assert!((2.5..3.5).contains(&pace), "{end}: {pace}");
        }
        // Two periods are too few.
        assert_eq!(of_calls((0..16).map(call)), 1.0);
    }

    #[test]
    fn three_long_calls_show_a_change_and_one_does_not() {
        assert_eq!(of_calls([(1.0, 1.0); 2].into_iter()), 1.0);
        assert_eq!(of_calls([(9.0, 1.0), (1.0, 1.0), (1.0, 1.0)].into_iter()), 1.0);
        assert_eq!(of_calls([(4.0, 1.0), (4.0, 1.0), (4.0, 1.0), (1.0, 1.0)].into_iter()), 4.0);
        // Earlier calls are no longer taken into account.
        assert_eq!(of_calls([(1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (4.0, 1.0), (4.0, 1.0)].into_iter()), 1.0);
    }
}
