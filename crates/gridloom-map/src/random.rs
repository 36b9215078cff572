//! `random`: each task, in call order, on a server drawn uniformly from those that can run it. It is a yardstick: a heuristic
//! that is not better makes no use of the grid.

use super::error::MapError;
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;
use super::spec::Parameter;
use super::{Heuristic, HeuristicEntry};
use gridloom_base::SplitMix64;

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "random",
    about: "each task on a server drawn at random",
    source: "yardstick",
    parameters: &[Parameter { name: "seed", about: "whole number, the seed of the random numbers", default: "0" }],
    make: |values| Ok(Box::new(Random { seed: values.whole("seed")? })),
};

#[derive(Clone, Copy, Debug)]
pub struct Random {
    /// Seed of the random numbers: the same seed gives the same plan.
    pub seed: u64,
}

impl Heuristic for Random {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let mut rng = SplitMix64::new(self.seed);
        let mut schedule = Schedule::new(problem);
        let mut capable = Vec::new();
        for task in 0..problem.task_count() {
            problem.check_stopped()?;
            capable.clear();
            capable.extend((0..problem.servers().len()).filter(|server| problem.seconds(task, *server).is_some()));
            schedule.place(task, capable[rng.below(capable.len() as u64) as usize]);
        }
        Ok(schedule.finish())
    }
}
