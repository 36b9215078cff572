//! Times of tasks on given servers in a given order. The sources of copies are chosen here; the judge runs the whole.

use super::{Choice, Judge, Lister, Outcome};
use crate::problem::Problem;
use gridloom_base::limits::JUDGE_ENTRIES_MAX;

/// For one problem; buffers are kept from run to run.
#[derive(Debug)]
pub struct PlanTimes<'p> {
    lister: Lister<'p>,
    judge: Judge<'p>,
}

impl<'p> PlanTimes<'p> {
    /// `None` if plans of that problem are not judged with contention: copies do not share links, or there are too many data for
    /// the judge's tables.
    pub fn new(problem: &'p Problem) -> Option<PlanTimes<'p>> {
        can_judge(problem).then(|| PlanTimes { lister: Lister::new(problem), judge: Judge::new(problem) })
    }

    /// What the tasks come to in that order, which has each after those it depends on, on those servers, which can run them.
    ///
    /// # Panics
    /// If order or servers are others.
    pub fn run(&mut self, order: &[u32], servers: &[u32]) -> (Choice, &Outcome) {
        let choice = self.lister.complete(order, servers);
        let outcome = self.judge.run(&choice, f64::INFINITY).expect("the order runs").expect("there is no limit");
        (choice, outcome)
    }
}

/// Whether plans of a problem are judged with contention.
pub fn can_judge(problem: &Problem) -> bool {
    let entries = problem.data().len().saturating_mul(problem.client() + 1);
    problem.has_contention() && entries <= JUDGE_ENTRIES_MAX
}
