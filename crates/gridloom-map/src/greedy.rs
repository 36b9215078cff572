//! `greedy`: the group's tasks in order of call, each on the server where it ends earliest, given where its inputs will be
//! by then. Results stay where they are made and move straight between servers that can talk.
//!
//! What SmartGridSolve's first mapper does once it knows the whole group's data flow. It does not look ahead: a long
//! chain called last is started last (`heft` repairs that).

use super::error::MapError;
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;
use super::{Entry, Heuristic};

pub(super) const ENTRY: Entry = Entry {
    name: "greedy",
    about: "each task, in order of call, where it ends earliest; data move straight between servers",
    source: "Brady et al., SmartGridRPC, CCPE 2010",
    parameters: &[],
    make: |_| Ok(Box::new(Greedy)),
};

/// Ends that differ by less than this part of a task's duration are equal but for rounding; fewer bytes decide then.
const EQUAL: f64 = 1e-12;

#[derive(Clone, Copy, Debug)]
pub struct Greedy;

impl Heuristic for Greedy {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let mut schedule = Schedule::new(problem);
        for task in 0..problem.task_count() {
            let server = schedule.best(task, EQUAL);
            schedule.place(task, server);
        }
        Ok(schedule.finish())
    }
}
