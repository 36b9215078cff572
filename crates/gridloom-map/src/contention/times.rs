//! Times of tasks on given servers in a given order. The sources of copies are chosen here; the judge runs the result.

use super::{Choice, ContentionEvaluator, ListScheduler, Outcome};
use crate::problem::Problem;
use gridloom_base::limits::CONTENTION_ENTRIES_MAX;

/// Evaluates plans for one problem; buffers are reused from run to run.
#[derive(Debug)]
pub struct PlanTimes<'p> {
    lister: ListScheduler<'p>,
    judge: ContentionEvaluator<'p>,
}

impl<'p> PlanTimes<'p> {
    /// Returns `None` if plans of that problem are not evaluated with contention: copies do not share links, or there are too many
    /// data for the judge's tables.
    pub fn new(problem: &'p Problem) -> Option<PlanTimes<'p>> {
        can_evaluate(problem)
            .then(|| PlanTimes { lister: ListScheduler::new(problem), judge: ContentionEvaluator::new(problem) })
    }

    /// Runs the tasks in that order on those servers. The order must have each task after those it depends on, and the servers
    /// must be able to run their tasks.
    ///
    /// # Panics
    /// If the order or the servers break these conditions.
    pub fn run(&mut self, order: &[u32], servers: &[u32]) -> (Choice, &Outcome) {
        let choice = self.lister.complete(order, servers);
        let outcome = self.judge.run(&choice, f64::INFINITY).expect("the order runs").expect("there is no limit");
        (choice, outcome)
    }
}

/// True if plans of a problem are evaluated with contention.
pub fn can_evaluate(problem: &Problem) -> bool {
    let entries = problem.data().len().saturating_mul(problem.client() + 1);
    problem.has_contention() && entries <= CONTENTION_ENTRIES_MAX
}
