//! `branch-and-bound`: finds the best plan by trying all plans that could be better than the best known. It is for small
//! groups, and it is the oracle of the other heuristics' tests. When its budget is used up it returns the best plan found so
//! far, whereas `exhaustive` fails.
//!
//! If plans do not depend on the order of placing, [`super::exact`] searches. Nine tasks on three servers take it a few
//! milliseconds. Otherwise this file tries all sequences of [`Schedule::place`], so no heuristic that makes such a sequence is
//! better. Two prunings keep the optimum:
//! - A partial schedule is discarded if its critical path is no shorter than the best plan known.
//! - Two neighbouring placements are independent if they have different servers and no datum in common. Of these, only the
//!   order with the lower task first is tried.
//!
//! Groups of more than [`DESCEND_TASKS_MAX`] tasks are not searched this way. They get the best plan that annealing finds.
//!
//! Source: Land and Doig, *Econometrica* 28(3), 1960 (branch and bound).

use super::bounds;
use super::error::MapError;
use super::exact::Exact;
use super::greedy::Greedy;
use super::heft::Heft;
use super::improve::{improve, plan_of};
use super::lookahead::Lookahead;
use super::pairs::anneal;
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;
use super::spec::Parameter;
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "branch-and-bound",
    about: "the best plan for about ten tasks; for more, the best that the search finds within its budget",
    source: "Land and Doig, Econometrica 28(3), 1960",
    parameters: &[NODES],
    make: |values| Ok(Box::new(BranchAndBound { nodes: values.whole("nodes")?, must_finish: false })),
};

/// Table entry of the variant that fails when its budget is used up.
pub(super) const EXHAUSTIVE: HeuristicEntry = HeuristicEntry {
    name: "exhaustive",
    about: "the best plan, by trying all plans; for about ten tasks",
    make: |values| Ok(Box::new(BranchAndBound { nodes: values.whole("nodes")?, must_finish: true })),
    ..ENTRY
};

const NODES: Parameter = Parameter {
    name: "nodes",
    about: "whole number, the maximum number of partial schedules for groups of up to 16 tasks; fewer for larger groups",
    default: "300000",
};

/// Maximum number of annealing steps before the search, which are also limited to the search's node budget. The better the
/// known plan is, the fewer nodes are left to try.
const START_STEPS_MAX: u64 = 100_000;

/// Number of tasks visited in the time that the budget assumes for one node.
const TASKS_OF_A_NODE: usize = 16;
/// Maximum number of tasks for trying all sequences. With more, no budget would reach the end of one branch of thousands.
const DESCEND_TASKS_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
pub struct BranchAndBound {
    /// Maximum number of partial schedules to visit.
    pub nodes: u64,
    /// True if running out of budget is an error.
    pub must_finish: bool,
}

impl Heuristic for BranchAndBound {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        // Visiting a partial schedule of a large group takes longer.
        let tasks = problem.task_count();
        let nodes = self.nodes / (1 + tasks / TASKS_OF_A_NODE) as u64;
        let bound_s = bounds::lower_bound(problem);
        let mut search = Search { problem, left: nodes, best: None, bound_s };
        for known in [Box::new(Heft::PUBLISHED) as Box<dyn Heuristic>, Box::new(Lookahead), Box::new(Greedy)] {
            search.offer(known.map(problem)?);
        }
        let steps = nodes.min(START_STEPS_MAX);
        let best = search.best.as_ref().expect("the known heuristics have made plans");
        if best.makespan_s > bound_s {
            search.offer(improve(problem, best.clone(), |trial, line| anneal(problem, trial, &[line], steps, 0).0));
        }
        let has_finished = match Exact::new(problem, nodes, bound_s) {
            Some(mut exact) => {
                let has_finished = exact.search(search.best_s());
                if let Some(line) = exact.into_best() {
                    search.offer(plan_of(problem, &line, false));
                }
                has_finished
            }
            None if tasks <= DESCEND_TASKS_MAX => search.descend(&Schedule::new(problem), None, 0).is_some(),
            None => false,
        };
        if self.must_finish && !has_finished {
            problem.check_stopped()?;
            let (tasks, servers) = (problem.task_count(), problem.servers().len());
            return Err(MapError::TooManyNodes { tasks, servers, budget: self.nodes });
        }
        Ok(search.best.expect("the known heuristics have made plans"))
    }
}

/// Searches all sequences of [`Schedule::place`], except those that cannot be better.
#[derive(Debug)]
pub struct Search<'p> {
    pub problem: &'p Problem,
    pub left: u64,
    pub best: Option<Plan>,
    pub bound_s: f64,
}

impl<'p> Search<'p> {
    pub fn best_s(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, |plan| plan.makespan_s)
    }

    pub fn offer(&mut self, plan: Plan) {
        if plan.makespan_s < self.best_s() {
            self.best = Some(plan);
        }
    }

    /// Tries all continuations of a partial schedule; `None` if the budget is used up.
    pub fn descend(&mut self, schedule: &Schedule<'p>, last: Option<(usize, usize)>, placed: usize) -> Option<()> {
        let problem = self.problem;
        if placed == problem.task_count() {
            self.offer(schedule.clone().finish());
            return Some(());
        }
        let mut next = schedule.clone();
        for task in (0..problem.task_count()).filter(|task| is_ready(problem, schedule, *task)) {
            for server in (0..problem.servers().len()).filter(|server| problem.seconds(task, *server).is_some()) {
                // Nothing is better than the bound: the remaining plans can only tie.
                if self.best_s() <= self.bound_s {
                    return Some(());
                }
                if last.is_some_and(|last| can_come_before(problem, (task, server), last)) {
                    continue;
                }
                self.left = self.left.checked_sub(1).filter(|_| !problem.is_stopped())?;
                next.copy_from(schedule);
                next.place(task, server);
                let ended = |task| next.placed(task).map(|placed| placed.end_s);
                if bounds::critical_path(problem, ended) < self.best_s() {
                    self.descend(&next, Some((task, server)), placed + 1)?;
                }
            }
        }
        Some(())
    }
}

fn is_ready(problem: &Problem, schedule: &Schedule, task: usize) -> bool {
    let made = |input: &u32| {
        problem.data()[*input as usize].producer.is_none_or(|producer| schedule.placed(producer as usize).is_some())
    };
    schedule.placed(task).is_none() && problem.inputs(task).iter().all(made)
}

/// True if the placement could have been made before the last one, and that order is tried elsewhere.
fn can_come_before(problem: &Problem, (task, server): (usize, usize), (last, last_server): (usize, usize)) -> bool {
    let touched = |datum: &u32| problem.inputs(last).contains(datum) || problem.outputs(last).contains(datum);
    task < last && server != last_server && !problem.inputs(task).iter().any(touched)
}
