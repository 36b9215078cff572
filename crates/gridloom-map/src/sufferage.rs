//! `sufferage`: the ready task that would suffer most if another took its best server is placed first. That is the task with the
//! largest difference between its second best and its best end. Then the next is selected, given that.
//!
//! Source: Maheswaran et al., *Dynamic mapping of a class of independent tasks onto heterogeneous computing systems*, JPDC
//! 59(2), 1999. There tasks arrive in batches; here, unless `levels=yes`, a task joins as soon as it is ready.

use super::batch::{Rule, levels, map};
use super::error::MapError;
use super::plan::Plan;
use super::problem::Problem;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "sufferage",
    about: "the ready task that loses most if it misses its best server first",
    source: "Maheswaran et al., JPDC 59(2), 1999",
    parameters: &[levels("no")],
    make: |values| Ok(Box::new(Sufferage { levels: values.yes("levels")? })),
};

#[derive(Clone, Copy, Debug)]
pub struct Sufferage {
    /// True if tasks that become ready wait until all that were ready before are placed.
    pub levels: bool,
}

impl Heuristic for Sufferage {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let rule = Rule { urgency: |best| best.second_s - best.score_s, looks_at_second: true, levels: self.levels };
        map(problem, rule)
    }
}
