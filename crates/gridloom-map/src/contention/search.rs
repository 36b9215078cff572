//! Finds the best choice within a budget: many list schedules, then changes of the best one, each evaluated by a run.
//!
//! 1. List schedules ([`ListScheduler`]): tasks by upward rank, with and without communication, on the first 1, 2, 3 … servers in
//!    order of speed, of the bandwidth of the client's link, and of the time that the server would need for the whole group;
//!    and the choices handed in.
//! 2. The best of them with data that have several readers sent in rings ([`in_rings`]). The final best choice is tried with
//!    rings too.
//! 3. For a few tasks, all assignments of servers.
//! 4. Changes of the best choice: one task, all tasks of a server, or the tasks that read one datum move to another server; a
//!    task moves earlier or later; the client sends a datum to only one place, which forwards it, or to all. Sources are then
//!    chosen again. A worse choice is kept with a probability that falls as the budget is used (simulated annealing;
//!    Kirkpatrick, Gelatt, Vecchi, *Science* 220, 1983).
//!
//! The budget is in steps, not seconds: the same problem gives the same choice.

use super::list::ListScheduler;
use super::rings::in_rings;
use super::{Choice, ContentionEvaluator};
use crate::bounds::lower_bound;
use crate::heft::upward_ranks;
use crate::problem::Problem;
use gridloom_base::SplitMix64;

/// Fraction of the budget that the list schedules may use.
const PART_OF_LISTS: f64 = 0.4;
/// Temperatures at the start and at the end of annealing, as fractions of the makespan.
const HOT: f64 = 0.02;
const COLD: f64 = 0.0002;
/// One change in this number toggles whether the client sends a datum once.
const SENT_ONCE_ONE_IN: u64 = 16;
/// Maximum number of assignments of servers that are all tried: five tasks on four servers.
const ASSIGNMENTS_MAX: u64 = 1024;
/// Random changes for each assignment of servers: more find nothing.
const DRAWS_PER_ASSIGNMENT: u64 = 8;
/// A makespan above the bound by no more than this fraction is optimal: sums are rounded.
const PART_OVER_BOUND: f64 = 1e-9;

/// Finds a choice, starting from those of `start`.
///
/// # Panics
/// If a choice of `start` names a server that cannot run its task.
pub fn search(problem: &Problem, start: &[Choice], budget: u64, seed: u64) -> (Choice, f64) {
    let mut search = Search {
        problem,
        judge: ContentionEvaluator::new(problem),
        lister: ListScheduler::new(problem),
        budget,
        random: SplitMix64::new(seed),
        draws: 0,
        shared: shared(problem),
        once: vec![false; problem.data().len()],
        best: None,
        bound_s: lower_bound(problem) * (1.0 + PART_OVER_BOUND),
    };
    for choice in start {
        search.offer(choice);
    }
    search.lists();
    search.rings();
    search.all_of_a_tiny_group();
    search.anneal();
    search.rings();
    search.best.expect("a list schedule on all servers was evaluated")
}

struct Search<'p> {
    problem: &'p Problem,
    judge: ContentionEvaluator<'p>,
    lister: ListScheduler<'p>,
    budget: u64,
    random: SplitMix64,
    /// Changes drawn. Limits the search where few changes are possible and other counts stay at zero.
    draws: u64,
    /// Data of the client that several tasks read.
    shared: Vec<u32>,
    /// Whether the client sends a datum to only one place, for each datum: in the best choice, and in the last one.
    once: Vec<bool>,
    best: Option<(Choice, f64)>,
    /// A choice that ends by then cannot be improved.
    bound_s: f64,
}

impl Search<'_> {
    fn steps(&self) -> u64 {
        self.judge.steps() + self.lister.steps() + self.draws
    }

    fn is_spent(&self, budget: u64) -> bool {
        self.steps() > budget || self.problem.is_stopped()
    }

    /// Returns the makespan of a choice, infinite if it is above the limit or never ends.
    fn makespan(&mut self, choice: &Choice, limit_s: f64) -> f64 {
        match self.judge.run(choice, limit_s) {
            Ok(Some(outcome)) => outcome.makespan_s,
            Ok(None) | Err(_) => f64::INFINITY,
        }
    }

    fn offer(&mut self, choice: &Choice) -> f64 {
        let best_s = self.best.as_ref().map_or(f64::INFINITY, |(_, best_s)| *best_s);
        let makespan_s = self.makespan(choice, best_s);
        if makespan_s < best_s {
            self.best = Some((choice.clone(), makespan_s));
        }
        makespan_s
    }

    fn is_best_possible(&self) -> bool {
        self.best.as_ref().is_some_and(|(_, best_s)| *best_s <= self.bound_s)
    }

    fn lists(&mut self) {
        let problem = self.problem;
        let limit = (self.budget as f64 * PART_OF_LISTS) as u64;
        let servers = problem.client();
        let orders = [by_rank(problem, &upward_ranks(problem)), by_rank(problem, &ranks_of_work(problem))];
        let total_s: Vec<f64> = (0..servers).map(|server| whole_group_s(problem, server)).collect();
        let mut keys: [Vec<usize>; 3] = std::array::from_fn(|_| (0..servers).collect());
        let work_s: Vec<f64> = (0..servers).map(|server| work_s(problem, server)).collect();
        keys[0].sort_by(|a, b| total_s[*a].total_cmp(&total_s[*b]));
        keys[1].sort_by(|a, b| work_s[*a].total_cmp(&work_s[*b]));
        let width = |server: usize| problem.links_from(problem.client())[server].bandwidth;
        keys[2].sort_by(|a, b| width(*b).total_cmp(&width(*a)));
        // All servers first, then the sizes in between, from coarse to fine.
        let mut sizes = vec![servers];
        let mut step = servers;
        while step > 1 {
            step = step.div_ceil(2);
            sizes.extend((1..servers).filter(|size| size % step == 0));
            if step == 1 {
                break;
            }
        }
        sizes.dedup();
        let mut seen = std::collections::BTreeSet::new();
        for size in sizes {
            for (key, order) in keys.iter().flat_map(|key| orders.iter().map(move |order| (key, order))) {
                let mut set: Vec<usize> = key[..size].to_vec();
                set.sort_unstable();
                if !seen.insert((set.clone(), std::ptr::from_ref(order) as usize)) || !covers(problem, &set) {
                    continue;
                }
                if self.is_best_possible() || (self.best.is_some() && self.is_spent(limit)) {
                    return;
                }
                let mut is_in = vec![false; servers];
                set.iter().for_each(|server| is_in[*server] = true);
                let ways: &[bool] = if self.shared.is_empty() { &[false] } else { &[false, true] };
                for is_once in ways.iter().copied() {
                    let mut once = vec![false; problem.data().len()];
                    self.shared.iter().for_each(|datum| once[*datum as usize] = is_once);
                    self.lister.set_sent_once(&once);
                    let choice = self.lister.choose(order, |_, server| is_in[server as usize]);
                    let before_s = self.best.as_ref().map_or(f64::INFINITY, |(_, best_s)| *best_s);
                    if self.offer(&choice) < before_s {
                        self.once = once;
                    }
                }
            }
        }
    }

    /// Tries the best choice with data sent in rings.
    fn rings(&mut self) {
        let best = self.best.as_ref().map(|(best, _)| best);
        if let Some(ringed) = best.and_then(|best| in_rings(self.problem, best)) {
            self.offer(&ringed);
        }
    }

    /// Tries every assignment of servers for a tiny group, since changes of one task at a time may not lead from a good choice
    /// to the best. Tries the order of the best choice and that of the calls, each with data sent once as in the best choice and
    /// without.
    fn all_of_a_tiny_group(&mut self) {
        let Some((best, _)) = &self.best else { return };
        let (best, servers) = (best.order.clone(), self.problem.client() as u64);
        let assignments = servers.saturating_pow(best.len().min(64) as u32);
        if assignments > ASSIGNMENTS_MAX {
            return;
        }
        let called: Vec<u32> = (0..best.len() as u32).collect();
        let once = [self.once.clone(), vec![false; self.once.len()]];
        for (order, once) in [&best, &called].into_iter().flat_map(|order| once.iter().map(move |once| (order, once))) {
            self.lister.set_sent_once(once);
            for code in 0..assignments {
                if self.is_spent(self.budget) || self.is_best_possible() {
                    return;
                }
                let server = |task: usize| (code / servers.pow(task as u32) % servers) as u32;
                let chosen: Vec<u32> = (0..best.len()).map(server).collect();
                let is_able = |task: usize| self.problem.seconds(task, chosen[task] as usize).is_some();
                if (0..best.len()).all(is_able) {
                    let choice = self.lister.complete(order, &chosen);
                    self.offer(&choice);
                }
            }
        }
    }

    fn anneal(&mut self) {
        let Some((mut current, mut current_s)) = self.best.clone() else { return };
        let (from, servers) = (self.steps(), self.problem.client() as u32);
        if servers < 2 || current.order.is_empty() {
            return;
        }
        // A tiny group has few choices, and all are soon drawn.
        let assignments = u64::from(servers).saturating_pow(current.order.len().min(64) as u32);
        let draws_max = self.draws.saturating_add(assignments.saturating_mul(DRAWS_PER_ASSIGNMENT));
        while self.steps() < self.budget
            && !self.problem.is_stopped()
            && self.draws < draws_max
            && !self.is_best_possible()
        {
            let done = (self.steps() - from) as f64 / (self.budget - from) as f64;
            let temperature = HOT * (COLD / HOT).powf(done) * current_s;
            self.draws += 1;
            let mut changed = current.clone();
            let flipped = (!self.shared.is_empty() && self.random.below(SENT_ONCE_ONE_IN) == 0)
                .then(|| self.shared[self.random.below(self.shared.len() as u64) as usize] as usize);
            if flipped.is_none() && !self.change(&mut changed) {
                continue;
            }
            if let Some(datum) = flipped {
                self.once[datum] = !self.once[datum];
            }
            self.lister.set_sent_once(&self.once);
            let changed = self.lister.complete(&changed.order, &changed.servers);
            let limit_s = current_s - temperature * self.random.unit().max(1e-300).ln();
            let changed_s = self.makespan(&changed, limit_s);
            if changed_s <= limit_s {
                if self.best.as_ref().is_some_and(|(_, best_s)| changed_s < *best_s) {
                    self.best = Some((changed.clone(), changed_s));
                }
                (current, current_s) = (changed, changed_s);
            } else if let Some(datum) = flipped {
                self.once[datum] = !self.once[datum];
            }
        }
    }

    /// Makes a random change; returns whether it changed anything.
    fn change(&mut self, choice: &mut Choice) -> bool {
        let problem = self.problem;
        let (tasks, servers) = (choice.order.len() as u64, problem.client() as u64);
        let task = self.random.below(tasks) as u32;
        let to = self.random.below(servers) as u32;
        let from = choice.servers[task as usize];
        let mut moved: Vec<u32> = Vec::new();
        match self.random.below(10) {
            0..4 => moved.push(task),
            4 => moved.extend((0..tasks as u32).filter(|other| choice.servers[*other as usize] == from)),
            5 | 6 => {
                let inputs = problem.inputs(task as usize);
                if inputs.is_empty() {
                    return false;
                }
                let datum = inputs[self.random.below(inputs.len() as u64) as usize];
                let reads = |other: &u32| problem.inputs(*other as usize).contains(&datum);
                let is_here = |other: &u32| choice.servers[*other as usize] == from;
                moved.extend((0..tasks as u32).filter(|other| is_here(other) && reads(other)));
            }
            7 => {
                let other = self.random.below(tasks) as u32;
                let theirs = choice.servers[other as usize];
                let is_able = |task: u32, server: u32| problem.seconds(task as usize, server as usize).is_some();
                if theirs == from || !is_able(task, theirs) || !is_able(other, from) {
                    return false;
                }
                choice.servers.swap(task as usize, other as usize);
                return true;
            }
            _ => return self.shift(&mut choice.order, task),
        }
        moved.retain(|task| problem.seconds(*task as usize, to as usize).is_some());
        moved.iter().for_each(|task| choice.servers[*task as usize] = to);
        from != to && !moved.is_empty()
    }

    /// Moves a task in the order, within the limits of its predecessors and successors.
    fn shift(&mut self, order: &mut [u32], task: u32) -> bool {
        let problem = self.problem;
        let at = order.iter().position(|other| *other == task).expect("all tasks are in order");
        let makes = |maker: u32, reader: u32| {
            let reads = |datum: &u32| problem.data()[*datum as usize].producer == Some(maker);
            problem.inputs(reader as usize).iter().any(reads)
        };
        let first = order[..at].iter().rposition(|other| makes(*other, task)).map_or(0, |before| before + 1);
        let last =
            order[at + 1..].iter().position(|other| makes(task, *other)).map_or(order.len() - 1, |next| at + next);
        if first == last {
            return false;
        }
        let to = first + self.random.below((last - first + 1) as u64) as usize;
        if to < at {
            order[to..=at].rotate_right(1);
        } else {
            order[at..=to].rotate_left(1);
        }
        to != at
    }
}

/// Returns the data of the client that several tasks read. The client may send each to one of their servers only.
fn shared(problem: &Problem) -> Vec<u32> {
    let client = problem.client() as u32;
    let is_shared = |datum: &u32| {
        let readers = problem.data()[*datum as usize].readers;
        readers > 1 && problem.holders(*datum as usize) == [client]
    };
    (0..problem.data().len() as u32).filter(is_shared).collect()
}

/// True if each task can run on one of those servers.
fn covers(problem: &Problem, servers: &[usize]) -> bool {
    let runs = |task: usize| servers.iter().any(|server| problem.seconds(task, *server).is_some());
    (0..problem.task_count()).all(runs)
}

fn by_rank(problem: &Problem, rank: &[f64]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..problem.task_count() as u32).collect();
    order.sort_by(|a, b| rank[*b as usize].total_cmp(&rank[*a as usize]).then(a.cmp(b)));
    order
}

/// Upward ranks without communication.
fn ranks_of_work(problem: &Problem) -> Vec<f64> {
    let mut seconds = vec![0.0; problem.client()];
    let mut after_s = vec![0.0f64; problem.data().len()];
    let mut rank = vec![0.0; problem.task_count()];
    for task in (0..problem.task_count()).rev() {
        problem.seconds_by_server(task, &mut seconds);
        let fastest = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let after = problem.outputs(task).iter().map(|datum| after_s[*datum as usize]).fold(0.0, f64::max);
        rank[task] = fastest + after;
        for datum in problem.inputs(task) {
            after_s[*datum as usize] = after_s[*datum as usize].max(rank[task]);
        }
    }
    rank
}

fn work_s(problem: &Problem, server: usize) -> f64 {
    (0..problem.task_count()).map(|task| problem.seconds(task, server).unwrap_or(1e18)).sum()
}

/// Seconds that one server would take for the whole group.
fn whole_group_s(problem: &Problem, server: usize) -> f64 {
    let client = problem.client();
    let held = (0..problem.data().len()).filter(|datum| !problem.holders(*datum).is_empty());
    let bytes: u64 = held.map(|datum| problem.data()[datum].size_bytes).fold(0, u64::saturating_add);
    work_s(problem, server) + problem.link_seconds(client, server, bytes)
}
