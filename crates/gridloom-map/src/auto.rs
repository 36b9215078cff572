//! `auto`: takes the best plan of a portfolio and improves it by search, as long as the search pays off.
//!
//! ```text
//! members ──plans──▶ evaluated ──best plan──▶ annealed within a budget ──▶ plan
//! ```
//!
//! With contention ([`Problem::has_contention`]), [`super::contention`] evaluates plans: copies share NICs and links, and the
//! plan has the times of that evaluation. The sources of data are searched too. Without contention, plans are evaluated as
//! lines ([`super::pairs`]).
//!
//! **Cost.** Budgets are in steps (a count, not a time: the same input gives the same plan), sized so that mapping takes
//! less than two seconds on one core. They are also limited to a small part of the time predicted for `heft`'s plan. So
//! mapping takes less than 5 % of the group's time, provided that `heft` itself does. The shorter a group is, the fewer
//! members map it. The shortest groups get the plan of `heft`, evaluated once.
//!
//! **Avoiding transfers.** The figures of real groups are estimates. So among the plans that end within `slack` of the earliest
//! end found, the one that moves the fewest bytes is taken: it is as good, and safer ([`fewest_bytes`]). Recorded workflows have exact
//! figures ([`Problem::has_exact_figures`]): for them only the end counts.
//!
//! **Large groups.** Above [`MEMBERS_TASKS_MAX`] tasks ([`JUDGED_TASKS_MAX`] with contention), only `heft` makes an initial
//! plan, since the time of the other members grows with the square of the number of tasks. If plans are not evaluated with
//! contention ([`can_evaluate`]), a group gets the plan of a contention-free mapper, with the times of that mapper.
//!
//! For measurements, run `gridloom map --baseline`.

mod fewest_bytes;

use std::collections::BTreeMap;

use super::bounds;
use super::branch::BranchAndBound;
use super::contention::{Choice, ContentionEvaluator, ListScheduler, Outcome, can_evaluate, in_rings, search};
use super::error::MapError;
use super::heft::Heft;
use super::improve::{improve, line_of};
use super::pairs::{self, Line, PairsEvaluator};
use super::plan::{Assignment, Plan, Transfer};
use super::problem::Problem;
use super::spec::{Parameter, Spec};
use super::{Heuristic, HeuristicEntry};

pub(super) const ENTRY: HeuristicEntry = HeuristicEntry {
    name: "auto",
    about: "the best of several heuristics' plans, evaluated with contention and improved by search",
    source: "Kirkpatrick, Gelatt, Vecchi, Science 220, 1983 (the search)",
    parameters: &[
        Parameter { name: "steps", about: "whole number, the maximum number of search steps", default: "120000000" },
        Parameter { name: "seed", about: "whole number, the seed of the random numbers", default: "0" },
        Parameter {
            name: "slack",
            about: "ends that differ by less than this fraction count as equal, and then fewer bytes moved decide; 0 for exact figures",
            default: "0.05",
        },
        Parameter { name: "contention", about: "yes or no: copies share links and NICs", default: "yes" },
    ],
    make: |values| {
        let (steps, seed) = (values.whole("steps")?, values.whole("seed")?);
        let (slack, contention) = (values.fraction("slack")?, values.yes("contention")?);
        Ok(Box::new(Auto { steps, seed, slack, contention }))
    },
};

#[derive(Clone, Copy, Debug)]
pub struct Auto {
    /// Maximum number of search steps.
    pub steps: u64,
    /// Seed of the random numbers: the same seed gives the same plan.
    pub seed: u64,
    /// Ends that differ by less than this fraction count as equal, unless figures are exact.
    pub slack: f64,
    /// True to model copies that share links and NICs, if the problem has contention.
    pub contention: bool,
}

/// Heuristics that make candidate plans, besides `heft`.
const MEMBERS: &[&str] = &["cpop", "min-min", "max-min", "sufferage", "peft", "greedy"];
/// Heuristics that are also run on a variant of the problem in which all data of the client are everywhere.
const RELAXED_MEMBERS: &[&str] = &["cpop", "min-min", "max-min"];

/// Maximum number of tasks that other heuristics than `heft` map.
pub const MEMBERS_TASKS_MAX: usize = 20_000;
/// The same limit with contention, where evaluating a plan takes a run of the judge.
pub const JUDGED_TASKS_MAX: usize = 3_000;
/// Maximum number of tasks for branch and bound, without contention. Up to this size it finds the best plan.
const BRANCHED_TASKS_MAX: usize = 12;
/// Steps that a node of branch and bound counts for, and the maximum number of nodes.
const NODE_STEPS: u64 = 500;
const BRANCHED_NODES_MAX: u64 = 100_000;

/// Measured duration of a step, seconds: an estimate for budgets, not a promise.
const STEP_S: f64 = 5e-9;
/// Steps that a step of the judge counts for, since it takes that much longer.
const JUDGE_STEP: u64 = 10;
/// Fraction of the budget spent on an initial line without contention.
const PART_OF_PAIRS: f64 = 0.2;
/// Fraction of the budget spent on moving fewer bytes.
const PART_OF_TIDYING: f64 = 0.3;
/// Steps that one step of polishing a plan without contention counts for, and the maximum number of those steps.
const POLISH_STEP: u64 = 6;
const POLISH_STEPS_MAX: u64 = 1_000_000;
/// A plan whose makespan is within this relative distance of the lower bound is optimal.
const AT_BOUND: f64 = 1e-12;
/// Maximum time of the steps, as a fraction of the time of `heft`'s plan.
const PART_MAX: f64 = 0.015;
/// The same with exact figures, where every improvement found is a real one.
const PART_MAX_EXACT: f64 = 0.05;
/// Below this number of judge runs, `heft`'s plan is used, with data that several servers read sent in rings if that helps.
const RUNS_MIN: u64 = 10;
/// Judge runs that the members need in addition to their own steps: each plan is evaluated several times.
const MEMBERS_RUNS: u64 = 60;
/// Measured cost of the members themselves, in steps.
const MEMBERS_STEPS_PER_TASK_AND_SERVER: u64 = 500;
const MEMBERS_STEPS_PER_PAIR: u64 = 10;

impl Heuristic for Auto {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let lead = Heft { slack: self.slack(problem), ..Heft::PUBLISHED }.map(problem)?;
        if self.contention && can_evaluate(problem) {
            self.with_contention(problem, lead)
        } else {
            self.without_contention(problem, lead)
        }
    }

    fn knows_contention(&self) -> bool {
        self.contention
    }
}

impl Auto {
    fn slack(&self, problem: &Problem) -> f64 {
        if problem.has_exact_figures() { 0.0 } else { self.slack }
    }

    /// Step budget of a group whose `heft` plan takes `seconds`.
    fn step_budget(&self, problem: &Problem, seconds: f64) -> u64 {
        let part = if problem.has_exact_figures() { PART_MAX_EXACT } else { PART_MAX };
        self.steps.min((part * seconds / STEP_S) as u64)
    }

    /// Plans of `heft` (with polished order if figures are not exact) and of the portfolio. Empty if mapping is stopped.
    fn members(&self, problem: &Problem, steps: u64) -> Result<Vec<Plan>, MapError> {
        let (slack, polish) = (if problem.has_exact_figures() { 0.05 } else { self.slack }, polish_steps(steps));
        let mended = Heft { slack, polish, ..Heft::PUBLISHED };
        let plans = plans_of(MEMBERS, problem).and_then(|mut plans| {
            plans.push(mended.map(problem)?);
            Ok(plans)
        });
        if plans == Err(MapError::Stopped) { Ok(Vec::new()) } else { plans }
    }

    fn without_contention(&self, problem: &Problem, lead: Plan) -> Result<Plan, MapError> {
        let steps = self.step_budget(problem, lead.makespan_s);
        let mut plans = vec![lead];
        if problem.task_count() <= MEMBERS_TASKS_MAX && steps >= members_steps(problem) {
            plans.extend(self.members(problem, steps)?);
        }
        let earliest = |plans: &[Plan]| {
            plans.iter().min_by(|a, b| a.makespan_s.total_cmp(&b.makespan_s)).expect("heft has a plan").clone()
        };
        let mut best = earliest(&plans);
        if best.makespan_s > bounds::lower_bound(problem) * (1.0 + AT_BOUND) && steps >= search_min(problem) {
            if problem.task_count() <= BRANCHED_TASKS_MAX {
                let nodes = (steps / NODE_STEPS).min(BRANCHED_NODES_MAX);
                let branched = BranchAndBound { nodes, must_finish: false }.map(problem);
                best = earliest(&std::iter::once(best).chain(branched.ok()).collect::<Vec<_>>());
            }
            best = improve(problem, best, |trial, line| pairs::anneal(problem, trial, &[line], steps, self.seed).0);
        }
        Ok(fewest_bytes::of_plans(problem, best, plans, self.slack(problem)))
    }

    fn with_contention(&self, problem: &Problem, lead: Plan) -> Result<Plan, MapError> {
        let mut judge = ContentionEvaluator::new(problem);
        let choice = choice_of(problem, &lead);
        let outcome = evaluated(&mut judge, &choice);
        let (steps, run) = (self.step_budget(problem, outcome.makespan_s), judge.steps() * JUDGE_STEP);
        if steps < run.saturating_mul(RUNS_MIN) {
            let ringed = in_rings(problem, &choice).filter(|_| steps >= run);
            let better = ringed.and_then(|ringed| {
                let outcome = judge.run(&ringed, outcome.makespan_s).ok()??.clone();
                Some(plan_of(problem, &ringed, &outcome))
            });
            return Ok(better.unwrap_or_else(|| plan_of(problem, &choice, &outcome)));
        }
        let has_members = problem.task_count() <= JUDGED_TASKS_MAX
            && steps >= members_steps(problem).saturating_add(run.saturating_mul(MEMBERS_RUNS));
        let mut plans = vec![lead];
        if has_members {
            plans.extend(self.members(problem, steps)?);
        }
        let choice = self.searched(problem, &plans, steps);
        let outcome = evaluated(&mut judge, &choice);
        Ok(plan_of(problem, &choice, &outcome))
    }

    /// Returns the best choice that `steps` steps of search find from those plans.
    fn searched(&self, problem: &Problem, plans: &[Plan], steps: u64) -> Choice {
        let mut lines: Vec<Line> = plans.iter().map(|plan| line_of(problem, plan)).collect();
        let mut starts: Vec<Choice> = plans.iter().map(|plan| choice_of(problem, plan)).collect();
        for blind in relaxed_lines(problem, if plans.len() > 1 { RELAXED_MEMBERS } else { &[] }) {
            let Line { servers, order } = blind.clone();
            starts.push(Choice { servers, order, sources: BTreeMap::new() });
            lines.push(blind);
        }
        if steps >= search_min(problem) {
            lines.extend(in_pairs(problem, &lines, (steps as f64 * PART_OF_PAIRS) as u64, self.seed));
        }
        let mut lister = ListScheduler::new(problem);
        starts.extend(lines.iter().map(|line| lister.complete(&line.order, &line.servers)));
        let (best, _) = search(problem, &starts, steps / JUDGE_STEP, self.seed);
        match self.slack(problem) {
            0.0 => best,
            slack => {
                let budget = (steps as f64 * PART_OF_TIDYING) as u64 / JUDGE_STEP;
                fewest_bytes::of_choices(problem, best, &starts, slack, budget)
            }
        }
    }
}

fn evaluated(judge: &mut ContentionEvaluator<'_>, choice: &Choice) -> Outcome {
    judge.run(choice, f64::INFINITY).expect("a plan's order runs").expect("there is no limit").clone()
}

fn plans_of(specs: &[&str], problem: &Problem) -> Result<Vec<Plan>, MapError> {
    specs.iter().map(|spec| Spec::parse(spec)?.heuristic()?.map(problem)).collect()
}

/// Lines of `heft` and of `others` on the problem in which all data of the client are everywhere.
fn relaxed_lines(problem: &Problem, others: &[&str]) -> Vec<Line> {
    let blind = problem.in_pairs(false);
    let heft = Heft::PUBLISHED.map(&blind).ok();
    let others = plans_of(others, &blind).unwrap_or_default();
    heft.iter().chain(&others).map(|plan| line_of(&blind, plan)).collect()
}

/// Returns the best line without contention that is found within the budget.
fn in_pairs(problem: &Problem, lines: &[Line], steps: u64, seed: u64) -> Option<Line> {
    let problem = problem.in_pairs(true);
    let mut pass = PairsEvaluator::new(&problem)?;
    Some(pairs::anneal(&problem, &mut pass, lines, steps, seed).0)
}

/// Estimated steps for making the members' plans.
fn members_steps(problem: &Problem) -> u64 {
    let (tasks, servers) = (problem.task_count() as u64, problem.client() as u64);
    tasks.saturating_mul(MEMBERS_STEPS_PER_TASK_AND_SERVER * servers + MEMBERS_STEPS_PER_PAIR * tasks)
}

/// Polishing steps that cost a fraction of `steps` steps.
fn polish_steps(steps: u64) -> u64 {
    ((steps as f64 * PART_OF_TIDYING) as u64 / POLISH_STEP).min(POLISH_STEPS_MAX)
}

/// Minimum number of steps for a useful search: one change of each task.
fn search_min(problem: &Problem) -> u64 {
    let tasks = problem.task_count() as u64;
    tasks.saturating_mul(tasks)
}

/// Returns a plan with the times of the evaluation with contention, if plans of the problem are evaluated in that way and its
/// heuristic ignores contention. Servers, order and sources stay the same.
pub(super) fn timed(problem: &Problem, plan: Plan) -> Plan {
    let spec = Spec::parse(&plan.heuristic).expect("a heuristic's plan names its spec");
    if !can_evaluate(problem) || spec.heuristic().is_ok_and(|heuristic| heuristic.knows_contention()) {
        return plan;
    }
    let (choice, mut judge) = (choice_of(problem, &plan), ContentionEvaluator::new(problem));
    let outcome = match spec.entry().name == "mct" {
        true => judge.run_plain(&choice).expect("a plan's order runs").expect("there is no limit").clone(),
        false => evaluated(&mut judge, &choice),
    };
    Plan { heuristic: plan.heuristic, guesses: plan.guesses, ..plan_of(problem, &choice, &outcome) }
}

/// Converts a plan to the choice that it makes.
fn choice_of(problem: &Problem, plan: &Plan) -> Choice {
    let Line { servers, order } = line_of(problem, plan);
    Choice { servers, order, sources: sources(problem, plan) }
}

/// Sources that a plan copies data from.
fn sources(problem: &Problem, plan: &Plan) -> BTreeMap<(u32, u32), u32> {
    let place = |node| problem.place(node).expect("a plan names places of its problem") as u32;
    let sources = plan.transfers.iter().map(|moved| ((moved.datum, place(moved.to)), place(moved.from)));
    // Recorded plans do not name the sender of data that go to the client.
    let is_said = |to: u32| !problem.has_exact_figures() || to as usize != problem.client();
    sources.filter(|((_, to), _)| is_said(*to)).collect()
}

/// Builds the plan from a choice and its outcome.
pub(super) fn plan_of(problem: &Problem, choice: &Choice, outcome: &Outcome) -> Plan {
    let task = |(number, server): (usize, &u32)| Assignment {
        server: problem.node(*server as usize),
        start_s: outcome.start_s[number],
        end_s: outcome.end_s[number],
    };
    let mut transfers: Vec<Transfer> = outcome
        .copies
        .iter()
        .map(|copy| Transfer {
            datum: copy.datum,
            from: problem.node(copy.from as usize),
            to: problem.node(copy.to as usize),
            size_bytes: problem.data()[copy.datum as usize].size_bytes,
            start_s: copy.start_s,
            end_s: copy.end_s,
            method: problem.data()[copy.datum as usize].method,
        })
        .collect();
    // The sort is stable: hops of a chain that take no time stay in order.
    transfers.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.end_s.total_cmp(&b.end_s)));
    Plan {
        heuristic: String::new(),
        tasks: choice.servers.iter().enumerate().map(task).collect(),
        transfers,
        makespan_s: outcome.makespan_s,
        lower_bound_s: bounds::lower_bound(problem),
        guesses: Vec::new(),
    }
}
