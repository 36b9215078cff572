//! `exhaustive`: the best schedule there is, by trying every order of placing and every server, with branch and bound.
//! For tiny graphs, and as the oracle that the other heuristics are tested against.
//!
//! The best over all sequences of [`Schedule::place`], and so never worse than a heuristic that makes one. Two prunings,
//! neither of which loses the optimum: a partial schedule is given up when its critical path is no shorter than the best
//! plan known; and of two neighbouring placements that do not touch (other server, no datum in common) only the order
//! with the lower task first is tried.
//!
//! Source: Land and Doig, *Econometrica* 28(3), 1960 (branch and bound).

use super::bounds;
use super::error::MapError;
use super::greedy::Greedy;
use super::heft::Heft;
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;
use super::spec::Parameter;
use super::{Entry, Heuristic};

/// Its line in the table.
pub(super) const ENTRY: Entry = Entry {
    name: "exhaustive",
    about: "the best plan, by trying all; for about ten tasks",
    source: "Land and Doig, Econometrica 28(3), 1960",
    parameters: &[Parameter {
        name: "nodes",
        about: "whole number of partial schedules to look at before giving up",
        default: "1000000",
    }],
    make: |values| Ok(Box::new(Exhaustive { nodes: values.whole("nodes")? })),
};

/// The heuristic.
#[derive(Clone, Copy, Debug)]
pub struct Exhaustive {
    /// Partial schedules to look at before giving up.
    pub nodes: u64,
}

impl Heuristic for Exhaustive {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let heft = Heft { insertion: true, slack: 0.0, polish: 100_000 };
        let known: [&dyn Heuristic; 3] = [&heft, &Heft { insertion: false, ..heft }, &Greedy];
        let mut search = Search { problem, left: self.nodes, best: None, bound_s: bounds::lower_bound(problem) };
        for heuristic in known {
            search.offer(heuristic.map(problem)?);
        }
        if search.descend(&Schedule::new(problem), None, 0).is_none() {
            let (tasks, servers) = (problem.task_count(), problem.servers().len());
            return Err(MapError::TooManyNodes { tasks, servers, budget: self.nodes });
        }
        Ok(search.best.expect("the known heuristics have made plans"))
    }
}

struct Search<'p> {
    problem: &'p Problem,
    left: u64,
    best: Option<Plan>,
    bound_s: f64,
}

impl Search<'_> {
    fn best_s(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, |plan| plan.makespan_s)
    }

    fn offer(&mut self, plan: Plan) {
        if plan.makespan_s < self.best_s() {
            self.best = Some(plan);
        }
    }

    /// Tries all that follows a partial schedule; `None` if the budget is used up.
    fn descend(&mut self, schedule: &Schedule, last: Option<(usize, usize)>, placed: usize) -> Option<()> {
        let problem = self.problem;
        if placed == problem.task_count() {
            self.offer(schedule.clone().finish());
            return Some(());
        }
        for task in (0..problem.task_count()).filter(|task| is_ready(problem, schedule, *task)) {
            for server in (0..problem.servers().len()).filter(|server| problem.seconds(task, *server).is_some()) {
                // Nothing is better than the bound: all that is left can only tie.
                if self.best_s() <= self.bound_s {
                    return Some(());
                }
                if last.is_some_and(|last| can_come_before(problem, (task, server), last)) {
                    continue;
                }
                self.left = self.left.checked_sub(1)?;
                let mut next = schedule.clone();
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

/// Whether the placement could as well have been made before the last one, and that order is tried elsewhere.
fn can_come_before(problem: &Problem, (task, server): (usize, usize), (last, last_server): (usize, usize)) -> bool {
    let touched = |datum: &u32| problem.inputs(last).contains(datum) || problem.outputs(last).contains(datum);
    task < last && server != last_server && !problem.inputs(task).iter().any(touched)
}
