//! `anneal`: simulated annealing over servers and order of tasks, from the plan of another heuristic. A worse plan is taken
//! now and then, ever more seldom, so that the search leaves local minima that [`super::local`] is stuck in.
//!
//! The budget is in steps, not seconds (a step is a task or an argument of it looked at): same problem, same plan.
//!
//! Source: Kirkpatrick, Gelatt, Vecchi, *Optimization by simulated annealing*, Science 220, 1983.

use super::error::MapError;
use super::improve::improve;
use super::pairs;
use super::plan::Plan;
use super::problem::Problem;
use super::spec::Parameter;
use super::{Entry, Heuristic};

pub(super) const ENTRY: Entry = Entry {
    name: "anneal",
    about: "a better plan than another heuristic's, by chance and patience",
    source: "Kirkpatrick, Gelatt, Vecchi, Science 220, 1983",
    parameters: &[
        Parameter { name: "from", about: "the heuristic whose plan it starts from", default: "heft" },
        Parameter { name: "steps", about: "whole number of steps to spend", default: "1000000" },
        Parameter { name: "seed", about: "whole number that starts the drawing", default: "0" },
    ],
    make: |values| {
        let (from, steps, seed) = (values.heuristic("from")?, values.whole("steps")?, values.whole("seed")?);
        Ok(Box::new(Anneal { from, steps, seed }))
    },
};

pub struct Anneal {
    /// Makes the plan to start from.
    pub from: Box<dyn Heuristic>,
    /// Steps to spend.
    pub steps: u64,
    /// Starts the drawing: same seed, same plan.
    pub seed: u64,
}

impl Heuristic for Anneal {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let start = self.from.map(problem)?;
        Ok(improve(problem, start, |trial, line| pairs::anneal(problem, trial, &[line], self.steps, self.seed).0))
    }
}
