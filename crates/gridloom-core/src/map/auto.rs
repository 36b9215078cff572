//! `auto`: the best plan of a portfolio, made better by search, as long as that pays.
//!
//! ```text
//! members ──plans──▶ judged ──the best──▶ annealed within a budget ──▶ plan
//! ```
//!
//! With contention ([`Problem::has_contention`]) plans are judged by [`super::contention`], where copies share cards and links,
//! and the plan has the times that came of it; sources of data are searched too. Without, by lines ([`super::pairs`]).
//!
//! **What it may cost.** Budgets are in steps (a count, not a time: same input, same plan), sized so that mapping takes less
//! than two seconds on one core. The search gets no more than what takes 5 % of the time that the best member is
//! predicted to take: short groups are mapped by the members alone, of which there are fewer the shorter the group is.
//!
//! **Large groups.** Above [`MEMBERS_TASKS_MAX`] tasks, [`JUDGED_TASKS_MAX`] with contention, only `heft` makes a plan to start
//! from, since others take time that grows with the square of the tasks. Above [`JUDGE_ENTRIES_MAX`] data × places plans are not judged with contention: such a group has the plan of a
//! contention-free mapper, and its times.
//!
//! Measured: see `gridloom map --baseline`.

use std::collections::BTreeMap;

use super::bounds;
use super::contention::{Choice, Judge, Lister, Outcome, search};
use super::error::MapError;
use super::improve::{improve, line_of};
use super::pairs::{self, Line, Pass};
use super::plan::{Assignment, Plan, Transfer};
use super::problem::Problem;
use super::spec::{Parameter, Spec};
use super::{Entry, Heuristic};

/// Its line in the table.
pub(super) const ENTRY: Entry = Entry {
    name: "auto",
    about: "the best of several heuristics' plans, judged with contention and made better by search",
    source: "Kirkpatrick, Gelatt, Vecchi, Science 220, 1983 (the search)",
    parameters: &[
        Parameter {
            name: "steps",
            about: "whole number of steps to spend on the search at most",
            default: "120000000",
        },
        Parameter { name: "seed", about: "whole number that starts the drawing", default: "0" },
        Parameter { name: "contention", about: "yes or no: copies share links and cards", default: "yes" },
    ],
    make: |values| {
        let (steps, seed) = (values.whole("steps")?, values.whole("seed")?);
        Ok(Box::new(Auto { steps, seed, contention: values.yes("contention")? }))
    },
};

/// The heuristic.
#[derive(Clone, Copy, Debug)]
pub struct Auto {
    /// Steps to spend on the search at most.
    pub steps: u64,
    /// Starts the drawing: same seed, same plan.
    pub seed: u64,
    /// Whether copies share links and cards, if the problem says so too.
    pub contention: bool,
}

/// Whose plans are tried, the one that is always tried first.
const MEMBERS: &[&str] =
    &["heft", "cpop", "min-min", "max-min", "sufferage", "peft", "greedy", "heft[slack=0.05,polish=1000000]"];

/// Tasks above which only `heft` maps.
pub const MEMBERS_TASKS_MAX: usize = 20_000;
/// The same where plans are judged, each of which takes a run of the judge.
pub const JUDGED_TASKS_MAX: usize = 3_000;
/// Tasks up to which branches are searched too, without contention: there it finds the best.
const BRANCHED_TASKS_MAX: usize = 12;
/// Steps that a node of that search counts for, and how many nodes it may look at.
const NODE_STEPS: u64 = 500;
const BRANCHED_NODES_MAX: u64 = 100_000;
/// Data × places above which plans are not judged with contention: tables of 128 MiB.
pub const JUDGE_ENTRIES_MAX: usize = 1 << 24;

/// What a step takes, seconds, as measured: to reckon with, not a promise.
const STEP_S: f64 = 5e-9;
/// Steps that one of the judge counts for, which takes so much longer.
const JUDGE_STEP: u64 = 10;
/// Part of the budget that goes into a line without contention, to start from.
const PART_OF_PAIRS: f64 = 0.2;
/// Part of the plan's own time that may be spent on the search.
const PART_MAX: f64 = 0.05;
/// Predicted seconds of a group by task below which one member has to do.
const MEMBERS_S_PER_TASK: f64 = 2e-3;

impl Heuristic for Auto {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let entries = problem.data().len().saturating_mul(problem.client() + 1);
        let judged = self.contention && problem.has_contention() && entries <= JUDGE_ENTRIES_MAX;
        if judged {
            return Ok(self.with_contention(problem, &members(problem, JUDGED_TASKS_MAX)?));
        }
        Ok(self.without_contention(problem, members(problem, MEMBERS_TASKS_MAX)?))
    }

    fn knows_contention(&self) -> bool {
        self.contention
    }
}

impl Auto {
    fn without_contention(&self, problem: &Problem, plans: Vec<Plan>) -> Plan {
        let earliest = |plans: Vec<Plan>| {
            plans.into_iter().min_by(|a, b| a.makespan_s.total_cmp(&b.makespan_s)).expect("heft has a plan")
        };
        let mut best = earliest(plans);
        let steps = self.steps.min(worth(best.makespan_s));
        if steps < search_min(problem) {
            return best;
        }
        if problem.task_count() <= BRANCHED_TASKS_MAX {
            let nodes = (steps / NODE_STEPS).min(BRANCHED_NODES_MAX);
            let spec = format!("branch-and-bound[nodes={nodes}]");
            let branched = Spec::parse(&spec).and_then(|spec| spec.heuristic()?.map(problem));
            best = earliest(std::iter::once(best).chain(branched.ok()).collect());
        }
        improve(problem, best, |trial, line| pairs::anneal(problem, trial, &[line], steps, self.seed).0)
    }

    fn with_contention(&self, problem: &Problem, plans: &[Plan]) -> Plan {
        let steps = self.steps.min(worth(plans[0].makespan_s));
        let mut lister = Lister::new(problem);
        let mut lines: Vec<Line> = plans.iter().map(|plan| line_of(problem, plan)).collect();
        let mut starts: Vec<Choice> = Vec::new();
        for (plan, Line { servers, order }) in plans.iter().zip(lines.clone()) {
            starts.push(Choice { servers, order, sources: sources(problem, plan) });
        }
        if let Some(blind) = blind(problem) {
            starts.push(Choice {
                servers: blind.servers.clone(),
                order: blind.order.clone(),
                sources: BTreeMap::new(),
            });
            lines.push(blind);
        }
        if steps >= search_min(problem) {
            lines.extend(in_pairs(problem, &lines, (steps as f64 * PART_OF_PAIRS) as u64, self.seed));
        }
        starts.extend(lines.iter().map(|line| lister.complete(&line.order, &line.servers)));
        let (choice, _) = search(problem, &starts, steps / JUDGE_STEP, self.seed);
        let mut judge = Judge::new(problem);
        let outcome = judge.run(&choice, f64::INFINITY).expect("it ran before").expect("there is no limit");
        plan_of(problem, &choice, outcome)
    }
}

/// The line of `heft` where all that the client holds is everywhere.
fn blind(problem: &Problem) -> Option<Line> {
    let blind = problem.in_pairs(false);
    let plan = Spec::parse(MEMBERS[0]).ok()?.heuristic().ok()?.map(&blind).ok()?;
    Some(line_of(&blind, &plan))
}

/// The best line without contention that a budget finds.
fn in_pairs(problem: &Problem, lines: &[Line], steps: u64, seed: u64) -> Option<Line> {
    let problem = problem.in_pairs(true);
    let mut pass = Pass::new(&problem)?;
    Some(pairs::anneal(&problem, &mut pass, lines, steps, seed).0)
}

/// Steps that take a part of that time that is small enough.
fn worth(seconds: f64) -> u64 {
    (PART_MAX * seconds / STEP_S) as u64
}

/// Steps below which a search finds nothing: one change of each task.
fn search_min(problem: &Problem) -> u64 {
    let tasks = problem.task_count() as u64;
    tasks.saturating_mul(tasks)
}

/// Plans of the portfolio, that of `heft` first, alone for more tasks than those.
fn members(problem: &Problem, tasks_max: usize) -> Result<Vec<Plan>, MapError> {
    let map = |spec: &str| Spec::parse(spec)?.heuristic()?.map(problem);
    let mut plans = vec![map(MEMBERS[0])?];
    let tasks = problem.task_count();
    if tasks <= tasks_max && plans[0].makespan_s >= MEMBERS_S_PER_TASK * tasks as f64 {
        for spec in &MEMBERS[1..] {
            plans.push(map(spec)?);
        }
    }
    Ok(plans)
}

/// Where a plan has data copied from.
fn sources(problem: &Problem, plan: &Plan) -> BTreeMap<(u32, u32), u32> {
    let place = |node| problem.place(node).expect("a plan names places of its problem") as u32;
    plan.transfers.iter().map(|moved| ((moved.datum, place(moved.to)), place(moved.from))).collect()
}

/// The plan that a choice came to.
fn plan_of(problem: &Problem, choice: &Choice, outcome: &Outcome) -> Plan {
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
        })
        .collect();
    // Stable: the legs of a chain that take no time stay in order.
    transfers.sort_by(|a, b| a.start_s.total_cmp(&b.start_s).then(a.end_s.total_cmp(&b.end_s)));
    Plan {
        heuristic: String::new(),
        tasks: choice.servers.iter().enumerate().map(task).collect(),
        transfers,
        makespan_s: outcome.makespan_s,
        lower_bound_s: bounds::lower_bound(problem),
    }
}
