//! `max-min`: the ready task with the latest earliest end is placed where it has that end; then the next, given that. Long tasks
//! are placed first, short ones fill the rest.
//!
//! Source: Ibarra, Kim, *Heuristic algorithms for scheduling independent tasks on nonidentical processors*, JACM 24(2),
//! 1977; for graphs, level by level: Blythe et al., *Task scheduling strategies for workflow-based applications in grids*,
//! CCGrid 2005.

use super::batch::{Rule, levels, map};
use super::error::MapError;
use super::plan::Plan;
use super::problem::Problem;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "max-min",
    about: "the ready task with the latest earliest end first",
    source: "Ibarra, Kim, JACM 24(2), 1977",
    parameters: &[levels("yes")],
    make: |values| Ok(Box::new(MaxMin { levels: values.yes("levels")? })),
};

#[derive(Clone, Copy, Debug)]
pub struct MaxMin {
    /// True if tasks that become ready wait until all that were ready before are placed.
    pub levels: bool,
}

impl Heuristic for MaxMin {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let rule = Rule { urgency: |best| best.score_s, looks_at_second: false, levels: self.levels };
        map(problem, rule)
    }
}
