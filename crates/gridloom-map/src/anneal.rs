//! `anneal`: simulated annealing over the servers and the order of tasks, starting from the plan of another heuristic. A worse
//! plan is sometimes accepted, with decreasing probability, so that the search leaves local minima that trap [`super::local`].
//!
//! The budget is in steps, not seconds (a step visits one task or one of its arguments): the same problem gives the same plan.
//!
//! Source: Kirkpatrick, Gelatt, Vecchi, *Optimization by simulated annealing*, Science 220, 1983.

use super::error::MapError;
use super::improve::improve;
use super::pairs;
use super::plan::Plan;
use super::problem::Problem;
use super::spec::Parameter;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "anneal",
    about: "improves another heuristic's plan by simulated annealing",
    source: "Kirkpatrick, Gelatt, Vecchi, Science 220, 1983",
    parameters: &[
        Parameter { name: "from", about: "the heuristic whose plan it starts from", default: "heft" },
        Parameter { name: "steps", about: "whole number, the step budget", default: "1000000" },
        Parameter { name: "seed", about: "whole number, the seed of the random numbers", default: "0" },
    ],
    make: |values| {
        let (from, steps, seed) = (values.heuristic("from")?, values.whole("steps")?, values.whole("seed")?);
        Ok(Box::new(Anneal { from, steps, seed }))
    },
};

pub struct Anneal {
    /// The heuristic that makes the initial plan.
    pub from: Box<dyn Heuristic>,
    /// Step budget.
    pub steps: u64,
    /// Seed of the random numbers: the same seed gives the same plan.
    pub seed: u64,
}

impl Heuristic for Anneal {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let start = self.from.map(problem)?;
        Ok(improve(problem, start, |trial, line| pairs::anneal(problem, trial, &[line], self.steps, self.seed).0))
    }
}
