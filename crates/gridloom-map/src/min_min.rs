//! `min-min`: the ready task that can end earliest is placed where it does; then the next, given that. Short tasks are placed
//! first and fill all servers evenly; a long task placed last ends well after the others.
//!
//! Source: Ibarra, Kim, *Heuristic algorithms for scheduling independent tasks on nonidentical processors*, JACM 24(2),
//! 1977; for graphs, level by level, as in workflow managers: Blythe et al., *Task scheduling strategies for
//! workflow-based applications in grids*, CCGrid 2005.

use super::batch::{Rule, levels, map};
use super::error::MapError;
use super::plan::Plan;
use super::problem::Problem;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "min-min",
    about: "the ready task with the earliest end first",
    source: "Ibarra, Kim, JACM 24(2), 1977",
    parameters: &[levels("yes")],
    make: |values| Ok(Box::new(MinMin { levels: values.yes("levels")? })),
};

#[derive(Clone, Copy, Debug)]
pub struct MinMin {
    /// True if tasks that become ready wait until all that were ready before are placed.
    pub levels: bool,
}

impl Heuristic for MinMin {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let rule = Rule { urgency: |best| -best.score_s, looks_at_second: false, levels: self.levels };
        map(problem, rule)
    }
}
