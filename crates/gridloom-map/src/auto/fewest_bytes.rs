//! Chooses the plan that moves the fewest bytes among those that end at about the same time.
//!
//! Figures are estimates: a plan that is predicted to end 2 % earlier may well end later, and a byte that is not moved cannot
//! be late. So among the plans that end within a tolerance of the earliest known end, the one that moves the fewest bytes is
//! taken. It must use at least as many servers, since leaving a server idle always saves bytes. Then it is polished like
//! `heft`'s plan ([`crate::polish`]), but evaluated with contention.

use std::collections::BTreeMap;

use crate::contention::{Choice, ContentionEvaluator, ListScheduler, Outcome};
use crate::plan::Plan;
use crate::polish::{Polisher, Trial, used};
use crate::problem::Problem;

/// Returns the plan that moves the fewest bytes among `best`, which ends earliest, and the others.
pub(super) fn of_plans(problem: &Problem, best: Plan, others: Vec<Plan>, slack: f64) -> Plan {
    let limit_s = best.makespan_s * (1.0 + slack);
    let weigh = |plan: &Plan| {
        let bytes = plan.transfers.iter().map(|moved| moved.size_bytes).fold(0, u64::saturating_add);
        let servers: Vec<usize> = plan.tasks.iter().filter_map(|task| problem.place(task.server)).collect();
        (bytes, used(problem, servers.into_iter()))
    };
    let (best_bytes, best_used) = weigh(&best);
    let is_as_good = |plan: &Plan| {
        let (bytes, used) = weigh(plan);
        slack > 0.0 && plan.makespan_s <= limit_s && bytes < best_bytes && used >= best_used
    };
    let by_bytes = |a: &Plan, b: &Plan| weigh(a).0.cmp(&weigh(b).0).then(a.makespan_s.total_cmp(&b.makespan_s));
    others.into_iter().filter(is_as_good).min_by(by_bytes).unwrap_or(best)
}

/// Returns the choice that moves the fewest bytes among `best`, which ends earliest, the others, and their polished variants,
/// within a budget of judge steps.
pub(super) fn of_choices(problem: &Problem, best: Choice, others: &[Choice], slack: f64, budget: u64) -> Choice {
    let mut judged = Judged {
        problem,
        judge: ContentionEvaluator::new(problem),
        lister: ListScheduler::new(problem),
        order: Vec::new(),
    };
    let Some((earliest_s, mut bytes)) = judged.evaluate(&best, f64::INFINITY) else { return best };
    let one = judged.judge.steps();
    let (mut end_s, mut choice) = (earliest_s, best);
    let best_used = used_by(problem, &choice);
    for other in others {
        if judged.judge.steps() + one > budget {
            return choice;
        }
        let Some((other_s, other_bytes)) = judged.evaluate(other, earliest_s * (1.0 + slack)) else { continue };
        let is_better = other_bytes < bytes || (other_bytes == bytes && other_s < end_s);
        if is_better && used_by(problem, other) >= best_used {
            (choice, end_s, bytes) = (other.clone(), other_s, other_bytes);
        }
    }
    judged.lister.set_sent_once(&sent_once(problem, &choice));
    judged.order.clone_from(&choice.order);
    let order: Vec<usize> = choice.order.iter().map(|task| *task as usize).collect();
    let servers: Vec<usize> = choice.servers.iter().map(|server| *server as usize).collect();
    let left = budget.saturating_sub(judged.judge.steps());
    // Finding sources with the list scheduler costs as much again.
    let mut mending = Polisher::new(problem, &order, &servers, judged, (2 * one, left), slack);
    // With newly chosen sources it may be another plan.
    if mending.begin().is_none() {
        return choice;
    }
    mending.polish(earliest_s);
    let limit_s = earliest_s * (1.0 + slack);
    let servers: Vec<u32> = mending.servers.iter().map(|server| *server as u32).collect();
    let judged = &mut mending.trial;
    let mended = judged.lister.complete(&choice.order, &servers);
    match judged.evaluate(&mended, limit_s) {
        Some((mended_s, mended_bytes)) if (mended_bytes, mended_s) < (bytes, end_s) || mended_s < earliest_s => mended,
        Some(_) | None => choice,
    }
}

/// Evaluates choices whose sources a list scheduler finds.
struct Judged<'p> {
    problem: &'p Problem,
    judge: ContentionEvaluator<'p>,
    lister: ListScheduler<'p>,
    order: Vec<u32>,
}

impl Judged<'_> {
    /// Returns the makespan and the bytes moved; `None` if it ends after the limit.
    fn evaluate(&mut self, choice: &Choice, limit_s: f64) -> Option<(f64, u64)> {
        let outcome = self.judge.run(choice, limit_s).ok()??;
        Some((outcome.makespan_s, moved_bytes(self.problem, outcome)))
    }
}

impl Trial for Judged<'_> {
    fn run(&mut self, servers: &[usize], limit_s: f64) -> Option<(f64, u64)> {
        let servers: Vec<u32> = servers.iter().map(|server| *server as u32).collect();
        let choice = self.lister.complete(&self.order, &servers);
        self.evaluate(&choice, limit_s)
    }
}

fn moved_bytes(problem: &Problem, outcome: &Outcome) -> u64 {
    let sizes = outcome.copies.iter().map(|copy| problem.data()[copy.datum as usize].size_bytes);
    sizes.fold(0, u64::saturating_add)
}

fn used_by(problem: &Problem, choice: &Choice) -> usize {
    used(problem, choice.servers.iter().map(|server| *server as usize))
}

/// For each datum, whether the choice has the client send it to only one of several destinations.
fn sent_once(problem: &Problem, choice: &Choice) -> Vec<bool> {
    let client = problem.client() as u32;
    let mut sent: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for ((datum, _), from) in &choice.sources {
        let (by_client, in_all) = sent.entry(*datum).or_default();
        (*by_client, *in_all) = (*by_client + u32::from(*from == client), *in_all + 1);
    }
    let is_sent_once = |datum: u32| sent.get(&datum).is_some_and(|(by_client, in_all)| *by_client == 1 && *in_all > 1);
    (0..problem.data().len() as u32).map(is_sent_once).collect()
}
