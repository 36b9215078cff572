//! How fast this server is of late: the time of its last calls, and of those that run, against what the models say.
//!
//! Models learn a change after some calls; that other work has taken half of the processors shows in the next call, or while
//! it runs. The ratio is always to the models as they are: when they have learned the change, it is 1 again.

use std::collections::VecDeque;

use super::*;
use crate::base::limits::{PACE_CALL_S_MIN, PACE_MAX, PACE_MIN, PACE_NEWS_FACTOR};

/// Calls that count: the median of three is not moved by one.
const CALLS: usize = 3;
/// A call that runs for so many times its time counts although it has not ended.
const OVERDUE: f64 = 2.0;

/// What is remembered for it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: VecDeque<(String, Size, f64)>,
    running: BTreeMap<TaskId, Running>,
    told: Option<f64>,
}

#[derive(Debug)]
struct Running {
    since: Time,
    function: String,
    work_flops: Option<f64>,
}

impl Pace {
    pub(super) fn started(&mut self, now: Time, task: &Task) {
        let running = Running { since: now, function: task.function.clone(), work_flops: task.work_flops };
        self.running.insert(task.id, running);
    }

    pub(super) fn ended(&mut self, task: TaskId) {
        self.running.remove(&task);
    }

    pub(super) fn elapsed_ns(&self, now: Time, task: TaskId) -> u64 {
        self.running.get(&task).map_or(0, |running| now.since(running.since))
    }

    pub(super) fn forget_told(&mut self) {
        self.told = None;
    }

    pub(super) fn measured(&mut self, function: &str, size: Size, seconds: f64) {
        if self.last.len() == CALLS {
            self.last.pop_front();
        }
        self.last.push_back((function.to_string(), size, seconds));
    }

    fn value(&self, now: Time, known: &BTreeMap<String, Known>) -> f64 {
        let expected_s = |function: &str, size| {
            let prediction = known.get(function)?.predict(size)?;
            (prediction.seconds >= PACE_CALL_S_MIN).then_some(prediction.seconds)
        };
        let ended = self.last.iter().filter_map(|(function, size, s)| Some(s / expected_s(function, *size)?));
        let mut ratios: Vec<f64> = ended.collect();
        ratios.sort_by(f64::total_cmp);
        let pace = if ratios.len() < CALLS { 1.0 } else { ratios[CALLS / 2] };
        // Calls without a stated work are told apart by bytes, which are not at hand here; their ends say it.
        let overdue = self.running.values().filter_map(|running| {
            let ratio = ns_to_seconds(now.since(running.since))
                / expected_s(&running.function, Size::Work(running.work_flops?))?;
            (ratio > OVERDUE * pace).then_some(ratio)
        });
        overdue.fold(pace, f64::max).clamp(PACE_MIN, PACE_MAX)
    }
}

impl Server {
    /// Tells the agent, if it has changed much.
    pub(super) fn report_pace(&mut self, now: Time, out: &mut Vec<Effect>) {
        let pace = self.pace.value(now, &self.known);
        let told = self.pace.told.unwrap_or(1.0);
        let change = pace / told;
        let is_back = told != 1.0 && (1.0 / PACE_NEWS_FACTOR..PACE_NEWS_FACTOR).contains(&pace);
        if !(1.0 / PACE_NEWS_FACTOR..PACE_NEWS_FACTOR).contains(&change) || (is_back && pace != told) {
            let pace = if is_back { 1.0 } else { pace };
            self.pace.told = Some(pace);
            self.tell(Message::Pace { pace }, out);
        }
    }
}
