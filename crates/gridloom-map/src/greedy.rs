//! `greedy`: the largest ready task is placed first, on the server where it ends earliest, given where its inputs will be by
//! then. Tasks that become ready wait until all that were ready before are placed. Results stay where they are made and are
//! sent directly between servers that can talk.
//!
//! This is `greedy_map` of SmartGridSolve. The *size* of a task is its mean run time over the servers that can run it; tasks of
//! equal size are placed in call order. Mapped one by one in call order, a small task would take the fast server from a larger one
//! (section 2.1 of the source). It does not look ahead: a long chain of small tasks is started last (`heft` repairs that).

use super::error::MapError;
use super::mean::MeanSeconds;
use super::order::{Followers, ReadyTracker};
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "greedy",
    about: "ready tasks, the largest first, each where it ends earliest; data move directly between servers",
    source: "Brady et al., SmartGridRPC, CCPE 2010",
    parameters: &[],
    make: |_| Ok(Box::new(Greedy)),
};

/// Ends that differ by less than this fraction of a task's duration are equal except for rounding; then fewer bytes decide.
const EQUAL: f64 = 1e-12;

#[derive(Clone, Copy, Debug)]
pub struct Greedy;

impl Heuristic for Greedy {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let seconds = MeanSeconds::new(problem);
        let sizes: Vec<f64> = (0..problem.task_count()).map(|task| seconds.of(task)).collect();
        let followers = Followers::new(problem);
        let mut waiting = ReadyTracker::new(problem, &followers);
        let mut schedule = Schedule::new(problem);
        let mut ready = waiting.ready();
        while !ready.is_empty() {
            ready.sort_by(|a, b| sizes[*b as usize].total_cmp(&sizes[*a as usize]).then(a.cmp(b)));
            for task in std::mem::take(&mut ready) {
                problem.check_stopped()?;
                let server = schedule.best(task as usize, EQUAL);
                schedule.place(task as usize, server);
                waiting.done(task as usize, |next| ready.push(next));
            }
        }
        Ok(schedule.finish())
    }
}
