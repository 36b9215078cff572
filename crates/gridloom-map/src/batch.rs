//! The common part of min-min, max-min and sufferage. Among the ready tasks, the most urgent is placed next, on the
//! server where it would end first. The three differ in their measure of urgency.
//!
//! By levels, tasks that become ready wait until all tasks that were ready before are placed. A task runs after those already
//! placed on its server; gaps are not filled.
//!
//! A task placed on one server delays others only there. So the best server of a task is searched again in two
//! cases only: the task's best server was used and is now no better than the second best, or an input of the task has a new
//! copy. So n tasks that are ready at a time take n² short steps, not n² searches over all servers, let alone n³.

use super::error::MapError;
use super::order::{Followers, Readers, ReadyTracker};
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::{Offer, Schedule, TwoBest};
use super::spec::Parameter;

/// The `levels` parameter of all three heuristics, with its default.
pub(super) const fn levels(default: &'static str) -> Parameter {
    let about = "yes or no: tasks that become ready wait until all that were ready before are placed";
    Parameter { name: "levels", about, default }
}

/// The rule that selects the next task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Tasks with higher urgency are placed first. Among equals, the task that became ready first is placed first.
    pub(super) urgency: fn(&TwoBest) -> f64,
    /// True if the urgency depends on the second best server.
    pub(super) looks_at_second: bool,
    /// True if tasks are placed level by level.
    pub(super) levels: bool,
}

/// A ready task with the server on which it would end first.
struct EarliestFinish {
    task: u32,
    /// Number of tasks that became ready before it.
    position: u32,
    /// The offer of each server, so that searching the best server again does not evaluate inputs and links.
    offers: Vec<Offer>,
    best: TwoBest,
}

pub(super) fn map(problem: &Problem, rule: Rule) -> Result<Plan, MapError> {
    let followers = Followers::new(problem);
    let readers = Readers::new(problem);
    let mut waiting = ReadyTracker::new(problem, &followers);
    let mut schedule = Schedule::new(problem).with_insertion(false);
    let mut candidates: Vec<EarliestFinish> = Vec::new();
    let mut ready = waiting.ready();
    let mut positions = 0..u32::MAX;
    let mut has_fresh_copy = vec![false; problem.task_count()];
    loop {
        problem.check_stopped()?;
        if !rule.levels || candidates.is_empty() {
            let candidate = |(task, position)| {
                let offers = schedule.offers(task as usize);
                let best = schedule.best_offer(&offers);
                EarliestFinish { task, position, offers, best }
            };
            candidates.extend(ready.drain(..).zip(&mut positions).map(candidate));
        }
        let Some(at) = most_urgent(&candidates, rule.urgency) else { break };
        let EarliestFinish { task, best, .. } = candidates.swap_remove(at);
        let server = best.server;
        for datum in problem.inputs(task as usize) {
            if problem.data()[*datum as usize].readers > 1 && !schedule.is_at(*datum, server) {
                readers.of(*datum).iter().for_each(|reader| has_fresh_copy[*reader as usize] = true);
            }
        }
        schedule.place(task as usize, server);
        waiting.done(task as usize, |next| ready.push(next));
        for EarliestFinish { task, offers, best, .. } in &mut candidates {
            let is_stale = std::mem::take(&mut has_fresh_copy[*task as usize]);
            if !is_stale && best.server != server {
                continue;
            }
            if is_stale {
                *offers = schedule.offers(*task as usize);
            }
            best.score_s = schedule.score_of_offer(best.server, &offers[best.server]);
            if is_stale || rule.looks_at_second || best.score_s >= best.second_s {
                *best = schedule.best_offer(offers);
            }
        }
    }
    Ok(schedule.finish())
}

fn most_urgent(candidates: &[EarliestFinish], urgency: fn(&TwoBest) -> f64) -> Option<usize> {
    let mut candidates = candidates.iter().enumerate();
    let (mut at, first) = candidates.next()?;
    let (mut most, mut position) = (urgency(&first.best), first.position);
    for (other, candidate) in candidates {
        let urgency = urgency(&candidate.best);
        if urgency > most || (urgency == most && candidate.position < position) {
            (at, most, position) = (other, urgency, candidate.position);
        }
    }
    Some(at)
}
