//! Learning: models of the run times of the server's functions, learned from their calls, and the server's recent pace.
//!
//! Updates for the agent are returned; the server sends them.

mod function_learner;
mod pace;
mod running;

use std::collections::BTreeMap;

use super::ServerConfig;
use crate::graph::Task;
use function_learner::FunctionLearner;
use gridloom_base::limits::PACE_CALL_S_MIN;
use gridloom_base::time::ns_to_seconds;
use gridloom_base::{TaskId, Time};
use gridloom_perf::{FunctionModel, Perturbation, Size};
use pace::Pace;
use running::RunningTasks;

#[derive(Debug)]
pub(super) struct Learning {
    slots: u32,
    /// Slowdown of tasks side by side before it is measured, by the number of cores.
    expected: Perturbation,
    known: BTreeMap<String, FunctionLearner>,
    timer_is_set: bool,
    pace: Pace,
    running: RunningTasks,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum LearningUpdate {
    /// A function's model has changed.
    Model(String, FunctionModel),
    /// Factor by which recent calls took longer than the models predict.
    Pace(f64),
    /// Models have changed, and are reported when the timer fires.
    SetTimer,
}

/// A call that ended with a result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) function: &'a str,
    pub(super) size: Size,
    pub(super) run_ns: u64,
    /// Mean number of tasks that ran during the call, itself included.
    pub(super) tasks: f64,
    /// It was a calibration call.
    pub(super) is_measured: bool,
    /// It ran a function that the program sent with the call, whose time is no measure of the server's speed.
    pub(super) runs_any: bool,
}

impl Learning {
    /// Resumes from the configured models of those functions that the server offers. If it has more slots than cores, the other
    /// functions start with a slowdown to expect.
    pub(super) fn new(config: &ServerConfig) -> Learning {
        let expected = Perturbation::of_cores(config.cores, config.slots);
        let of = |name: &str| match config.models.get(name).filter(|model| model.is_sane()) {
            Some(model) => Some(FunctionLearner::resume(model, config.slots)),
            None => expected.is_significant().then(|| FunctionLearner::cold(config.slots, &expected)),
        };
        let known = config.functions.iter().filter_map(|function| Some((function.name.clone(), of(&function.name)?)));
        Learning {
            slots: config.slots,
            known: known.collect(),
            expected,
            timer_is_set: false,
            pace: Pace::default(),
            running: RunningTasks::default(),
        }
    }

    /// True if calls of a function are short, as far as is known.
    pub(super) fn is_short(&self, function: &str) -> bool {
        self.known.get(function).is_some_and(FunctionLearner::is_short)
    }

    /// Records the start of a task. `computing`: number of tasks that compute from now on.
    pub(super) fn started(&mut self, now: Time, task: &Task, computing: u32) {
        self.running.started(now, task, computing);
    }

    /// Sets the number of tasks that compute from now on.
    pub(super) fn set_computing(&mut self, now: Time, computing: u32) {
        self.running.set_computing(now, computing);
    }

    /// Records the end of a task. Returns the mean number of tasks that ran during it, itself included.
    pub(super) fn ended(&mut self, now: Time, task: TaskId, computing: u32) -> f64 {
        self.running.ended(now, task, computing)
    }

    pub(super) fn elapsed_ns(&self, now: Time, task: TaskId) -> u64 {
        self.running.elapsed_ns(now, task)
    }

    pub(super) fn learn(&mut self, now: Time, call: Call<'_>) -> Vec<LearningUpdate> {
        let known = match self.known.get_mut(call.function) {
            Some(known) => known,
            None => {
                self.known.entry(call.function.to_string()).or_insert(FunctionLearner::cold(self.slots, &self.expected))
            }
        };
        let Some(is_cold) = known.count(call.is_measured) else { return Vec::new() };
        let seconds = ns_to_seconds(call.run_ns.max(1));
        // Several very short calls are queued in a worker at a time, so their number does not show how many run.
        let tasks = if seconds < PACE_CALL_S_MIN { 1.0 } else { call.tasks.min(f64::from(self.slots)) };
        known.learn(call.size, seconds, tasks, is_cold);
        let mut news = Vec::new();
        if !is_cold && !call.runs_any && seconds >= PACE_CALL_S_MIN {
            self.pace.measured(call.function, call.size, seconds, tasks);
            news.extend(self.take_pace(now));
        }
        if is_cold {
            // The first figures are reported at once, because a client may wait for them.
            news.extend(self.take_models(now));
        } else if !self.timer_is_set {
            self.timer_is_set = true;
            news.push(LearningUpdate::SetTimer);
        }
        news
    }

    /// Handles the timer. Returns the models to report.
    pub(super) fn timer_fired(&mut self, now: Time) -> Vec<LearningUpdate> {
        self.timer_is_set = false;
        self.take_models(now)
    }

    /// Returns all models, for an agent or a client that may know none yet.
    pub(super) fn take_all_models(&mut self, now: Time) -> Vec<LearningUpdate> {
        self.known.values_mut().for_each(FunctionLearner::forget_reported);
        self.take_models(now)
    }

    fn take_models(&mut self, now: Time) -> Vec<LearningUpdate> {
        let news = self.known.iter_mut().map(|(function, known)| (function, known.take_update(now)));
        news.filter_map(|(function, model)| Some(LearningUpdate::Model(function.clone(), model?))).collect()
    }

    /// Returns the pace if it has changed much.
    pub(super) fn take_pace(&mut self, now: Time) -> Option<LearningUpdate> {
        self.pace.take_update(now, &self.known, &self.running).map(LearningUpdate::Pace)
    }

    /// Forgets that the pace was reported, so that it is reported again.
    pub(super) fn forget_reported_pace(&mut self) {
        self.pace.forget_reported();
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.running.check()
    }

    #[cfg(test)]
    pub(super) fn calls(&self, function: &str) -> u64 {
        self.known.get(function).map_or(0, FunctionLearner::calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::server::tests::offering_nothing;

    fn call(run_ns: u64, runs_any: bool) -> Call<'static> {
        Call { function: "m/f", size: Size::Work(1e9), run_ns, tasks: 1.0, is_measured: false, runs_any }
    }

    #[test]
    fn functions_sent_by_programs_do_not_change_the_pace() {
        for runs_any in [false, true] {
            let mut learning = Learning::new(&offering_nothing());
            let news: Vec<LearningUpdate> = [1_000_000_000_u64, 1_000_000_000]
                .into_iter()
                .chain([20_000_000_000; 4])
                .flat_map(|run_ns| learning.learn(Time(1), call(run_ns, runs_any)))
                .collect();
            assert_eq!(news.iter().any(|one| matches!(one, LearningUpdate::Pace(_))), !runs_any, "{news:?}");
        }
    }

    #[test]
    fn a_cold_call_is_reported_at_once_and_a_warm_one_by_the_timer() {
        let mut learning = Learning::new(&offering_nothing());
        let call = call(1_000_000_000, false);
        let is_model =
            |news: &[LearningUpdate]| matches!(news, [LearningUpdate::Model(function, _)] if function == "m/f");
        assert!(is_model(&learning.learn(Time(1), call)), "the first call on each slot is cold");
        assert_eq!(learning.learn(Time(2), call), [LearningUpdate::SetTimer]);
        assert_eq!(learning.learn(Time(3), call), []);
        assert!(is_model(&learning.timer_fired(Time(4))));
        assert_eq!(learning.timer_fired(Time(5)), [], "nothing has changed");
        assert_eq!((learning.calls("m/f"), learning.take_all_models(Time(6)).len()), (3, 1));
    }

    #[test]
    fn a_task_that_waits_for_its_program_slows_no_other_down() {
        let mut learning = Learning::new(&offering_nothing());
        let task = |serial| Task {
            id: TaskId { client: gridloom_base::NodeId(7), serial },
            kind: crate::graph::TaskKind::call("m/f", 0),
            args: Vec::new(),
            outputs: Vec::new(),
            work_flops: None,
            options: Default::default(),
        };
        learning.started(Time(0), &task(1), 1);
        learning.started(Time(0), &task(2), 2);
        // The other task waits for its program during half of the time.
        learning.set_computing(Time(1_000_000_000), 1);
        assert_eq!(learning.ended(Time(2_000_000_000), task(1).id, 0), 1.5);
        learning.check().unwrap();
    }
}
