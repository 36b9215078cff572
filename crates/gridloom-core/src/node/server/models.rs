//! Times of the functions that run here: learned from calls, reported to the agent when they have changed.

use super::*;

/// Of a function whose calls are short, one in so many is learned from, once there were a few: the rest would take time from
/// the calls.
const SHORT_CALLS_SKIPPED: u64 = 16;
const SHORT_CALLS_LEARNED: u64 = 64;
/// A time that has changed by more than this part, and by more than its spread, is news.
const NEWS_PART: f64 = 0.05;

/// What is known of one function.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    learner: Learner,
    /// Calls that are still cold: the first on each slot.
    cold_left: u32,
    calls: u64,
    /// What the agent was told, and when.
    reported: Option<(FunctionModel, Time)>,
    changed: bool,
}

impl Known {
    /// Goes on from a model that was kept.
    pub(super) fn resume(model: &FunctionModel, slots: u32) -> Known {
        Known { learner: Learner::resume(model), cold_left: slots, changed: true, ..Known::default() }
    }

    /// Calls that were seen.
    #[cfg(test)]
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Mean seconds of a call; `None` before the first.
    pub(super) fn mean_s(&self) -> Option<f64> {
        self.learner.mean_s()
    }

    /// Seconds that are expected of a call while so many tasks run, itself included; `None` before a warm one of its function.
    pub(super) fn expected_s(&self, size: Size, tasks: f64) -> Option<f64> {
        Some(self.learner.predict(size)?.seconds * self.learner.perturbation().factor(tasks))
    }

    fn is_news(&self, now: Time, model: &FunctionModel) -> bool {
        let Some((told, since)) = &self.reported else { return true };
        now.since(*since) >= MODEL_REPORT_NS
            || differs(&told.by_work, &model.by_work)
            || differs(&told.by_bytes, &model.by_bytes)
            || is_perturbed_otherwise(&told.perturbation, &model.perturbation)
    }
}

fn differs(told: &Curve, now: &Curve) -> bool {
    let is_moved = |(a, b): (&Point, &Point)| {
        let change_s = (a.seconds - b.seconds).abs();
        a.size != b.size || (a.calls == 0) != (b.calls == 0) || change_s > (NEWS_PART * a.seconds).max(a.spread_s)
    };
    told.points.len() != now.points.len() || told.points.iter().zip(&now.points).any(is_moved)
}

fn is_perturbed_otherwise(told: &Perturbation, now: &Perturbation) -> bool {
    let is_moved = |(a, b): (&Beside, &Beside)| a.tasks != b.tasks || (a.factor / b.factor - 1.0).abs() > NEWS_PART;
    told.points.len() != now.points.len() || told.points.iter().zip(&now.points).any(is_moved)
}

impl Server {
    /// A call has ended, beside which that many tasks ran, itself included; one that was made to be measured is never passed
    /// over.
    pub(super) fn learn(
        &mut self,
        now: Time,
        task: &Task,
        run_ns: u64,
        tasks: f64,
        is_measured: bool,
        out: &mut Vec<Effect>,
    ) {
        let known = match self.known.get_mut(&task.function) {
            Some(known) => known,
            None => {
                let cold = Known { cold_left: self.config.slots, ..Known::default() };
                self.known.entry(task.function.clone()).or_insert(cold)
            }
        };
        known.calls += 1;
        let is_short = known.mean_s().is_some_and(|mean_s| mean_s < ns_to_seconds(SHORT_CALL_NS_MAX));
        if !is_measured && is_short && known.calls > SHORT_CALLS_LEARNED && known.calls % SHORT_CALLS_SKIPPED != 0 {
            return;
        }
        let is_cold = known.cold_left > 0;
        known.cold_left = known.cold_left.saturating_sub(1);
        let (size, seconds) =
            (Size::of_task(task, |datum| self.replicas.size_bytes(datum)), ns_to_seconds(run_ns.max(1)));
        // Of very short calls several are with a worker at a time, in its queue.
        let tasks = if seconds < PACE_CALL_S_MIN { 1.0 } else { tasks.min(f64::from(self.config.slots)) };
        known.learner.learn(size, seconds, tasks, is_cold);
        known.changed = true;
        if !is_cold && seconds >= PACE_CALL_S_MIN {
            self.pace.measured(&task.function, size, seconds, tasks);
            self.report_pace(now, out);
        }
        if is_cold {
            // Who waits for the first figures has them at once.
            self.report_models(now, out);
        } else if !self.models_timer {
            self.models_timer = true;
            out.push(Effect::SetTimer { timer: MODELS, at: now + RATE_REPORT_NS });
        }
    }

    pub(super) fn report_models(&mut self, now: Time, out: &mut Vec<Effect>) {
        let mut news = Vec::new();
        for (function, known) in self.known.iter_mut().filter(|(_, known)| known.changed) {
            known.changed = false;
            let model = known.learner.model();
            if known.is_news(now, &model) {
                known.reported = Some((model.clone(), now));
                news.push((function.clone(), model));
            }
        }
        for (function, model) in news {
            self.tell(Message::Model { function: function.clone(), model: model.clone() }, out);
            out.push(Effect::Emit(Event::Learned { function, model }));
        }
    }

    /// An agent that may know nothing yet is told everything.
    pub(super) fn report_all_models(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.known.values_mut().for_each(|known| {
            known.reported = None;
            known.changed = true;
        });
        self.report_models(now, out);
    }
}
