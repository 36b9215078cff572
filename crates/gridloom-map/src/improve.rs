//! Shared by the improvers. They convert the plan that they start from to a line (servers and order of tasks), evaluate
//! lines, and convert the final line to a plan.
//!
//! Lines are evaluated by [`super::pairs::PairsEvaluator`] if it can represent the problem, else by building a new [`Schedule`], which
//! takes some ten times as long. Both ignore contention.

use super::pairs::{Evaluate, Line, PairsEvaluator};
use super::plan::Plan;
use super::problem::Problem;
use super::schedule::Schedule;

/// Maximum number of entries in a pass's table of seconds by task and server: 128 MiB.
const PASS_ENTRIES_MAX: usize = 1 << 24;

/// Improves a plan: `search` is given the plan's line and returns a better one, or the same. The result is never worse.
pub(super) fn improve<'p>(
    problem: &'p Problem,
    start: Plan,
    search: impl FnOnce(&mut Trial<'p>, Line) -> Line,
) -> Plan {
    let entries = problem.task_count().saturating_mul(problem.client());
    let pass = if entries <= PASS_ENTRIES_MAX { PairsEvaluator::new(problem) } else { None };
    let line = line_of(problem, &start);
    let better = match pass {
        Some(pass) => search(&mut Trial::Pass(Box::new(pass)), line.clone()),
        None => search(&mut Trial::Schedule(Scheduled::new(problem)), line.clone()),
    };
    // The initial plan may have an order of placing that no line has; and gaps that the line leaves may be filled.
    let plans = [false, true].map(|insertion| plan_of(problem, &better, insertion));
    let all = std::iter::once(start).chain(plans);
    all.min_by(|a, b| a.makespan_s.total_cmp(&b.makespan_s)).expect("there is the start")
}

/// Returns the servers of a plan, and its tasks in order of start.
pub(super) fn line_of(problem: &Problem, plan: &Plan) -> Line {
    let server = |node| problem.place(node).expect("a plan's servers are the problem's") as u32;
    Line { servers: plan.tasks.iter().map(|task| server(task.server)).collect(), order: plan.order() }
}

/// Builds the plan of a line. With `insertion`, a task may use a gap that its server has at that point.
pub fn plan_of(problem: &Problem, line: &Line, insertion: bool) -> Plan {
    let mut schedule = Schedule::new(problem).with_insertion(insertion);
    line.order.iter().for_each(|task| schedule.place(*task as usize, line.servers[*task as usize] as usize));
    schedule.finish()
}

/// An evaluator of lines for any problem.
pub(super) enum Trial<'p> {
    /// Evaluator for problems that a pass can represent.
    Pass(Box<PairsEvaluator>),
    /// Evaluator for all other problems.
    Schedule(Scheduled<'p>),
}

impl Evaluate for Trial<'_> {
    fn makespan(&mut self, line: &Line, limit_s: f64) -> f64 {
        match self {
            Trial::Pass(pass) => pass.makespan(line, limit_s),
            Trial::Schedule(scheduled) => scheduled.makespan(line, limit_s),
        }
    }

    fn steps(&self) -> u64 {
        match self {
            Trial::Pass(pass) => pass.steps(),
            Trial::Schedule(scheduled) => scheduled.steps,
        }
    }
}

/// Evaluates lines by placing all tasks.
pub(super) struct Scheduled<'p> {
    problem: &'p Problem,
    /// Steps counted before any task is placed.
    empty: u64,
    steps: u64,
}

impl<'p> Scheduled<'p> {
    fn new(problem: &'p Problem) -> Scheduled<'p> {
        let empty = (problem.task_count() + problem.data().len() + problem.client()) as u64;
        Scheduled { problem, empty, steps: 0 }
    }

    fn makespan(&mut self, line: &Line, limit_s: f64) -> f64 {
        let problem = self.problem;
        self.steps += self.empty;
        let mut schedule = Schedule::new(problem).with_insertion(false);
        for task in &line.order {
            let task = *task as usize;
            self.steps += (1 + problem.inputs(task).len() + problem.outputs(task).len()) as u64;
            schedule.place(task, line.servers[task] as usize);
            if schedule.placed(task).is_some_and(|placed| placed.end_s > limit_s) {
                return f64::INFINITY;
            }
        }
        let (end_s, _) = schedule.outcome();
        if end_s > limit_s { f64::INFINITY } else { end_s }
    }
}
