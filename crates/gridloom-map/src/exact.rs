//! Branch and bound for small groups, where the best plan does not depend on the order in which tasks are placed.
//!
//! A datum with one reader has one route. So has a datum with several readers if no detour over a copy is faster than the direct
//! link. Then a plan consists of servers and starts only, and can be built in order of start, each task after those placed
//! on its server before. Three rules keep the search short:
//!
//! 1. **Paths**: the remaining tasks cannot end before their longest path has, with exact times for placed tasks and no
//!    communication for the others.
//! 2. **Work**: the remaining tasks have to fit between the times at which slots are free and the end of the best plan known.
//!    With weights y(s) ≥ 0: Σ_t min_s y(s) p(t, s) ≤ Σ_slots y(s) · (end − free), as in [`super::bounds`].
//! 3. **Dominance**: take two partial plans of the same tasks, with the same servers for tasks whose results are still to be
//!    read. If one is nowhere later than the other, the other cannot lead to a better plan. For this rule to hold, no task
//!    starts before one that was placed earlier: its start is delayed, and starting it at once is tried in another order.
//!
//! Source: Land and Doig, *Econometrica* 28(3), 1960 (branch and bound); Kohler, Steiglitz, *Characterization and
//! theoretical comparison of branch-and-bound algorithms for permutation problems*, JACM 21(1), 1974 (dominance).

use std::collections::BTreeMap;

use super::bounds::speeds;
use super::pairs::Line;
use super::problem::Problem;

/// Maximum number of tasks: a set of tasks is stored in one word.
const TASKS_MAX: usize = 64;
/// Maximum number of partial plans kept for the dominance test: some 20 MB.
const KEPT_MAX: usize = 100_000;
/// A plan counts as earlier only if it ends earlier by more than this fraction.
const EARLIER: f64 = 1e-12;

/// A branch-and-bound search.
pub struct Exact<'p> {
    problem: &'p Problem,
    servers: usize,
    /// Seconds, indexed by task × server: run time; time to bring sources there; time to bring results to the client.
    seconds: Vec<f64>,
    outside_s: Vec<f64>,
    home_s: Vec<f64>,
    /// Makers of each task's inputs, with the index of the datum's transfer seconds in `ways`.
    makers: Vec<Vec<(usize, usize)>>,
    /// Transfer seconds by server × server, for each datum with a maker and readers.
    transfer_seconds: Vec<f64>,
    /// Each task's set of readers, and its set of makers.
    readers_of: Vec<u64>,
    makers_of: Vec<u64>,
    /// Weights of servers and, by task, its smallest weighted seconds, for both choices of weights.
    weights: [(Vec<f64>, Vec<f64>); 2],
    /// Server of each slot. Slots of a server are adjacent.
    slots: Vec<usize>,
    left: u64,
    kept: BTreeMap<(u64, Vec<u32>), Vec<Vec<f64>>>,
    kept_count: usize,
    bound_s: f64,
    best_s: f64,
    best: Option<Line>,
}

/// A partial plan.
#[derive(Clone)]
struct Partial {
    placed: u64,
    servers: Vec<u32>,
    end_s: Vec<f64>,
    /// Time from which each slot is free; ascending within a server.
    free_s: Vec<f64>,
    last_start_s: f64,
    /// End of all placed tasks, at the client if it wants their results.
    done_s: f64,
    order: Vec<u32>,
    bound_s: f64,
}

impl<'p> Exact<'p> {
    /// Prepares to visit up to `nodes` partial plans. Returns `None` if plans depend on the order of placing, or there
    /// are too many tasks. No plan ends before `bound_s`.
    pub fn new(problem: &'p Problem, nodes: u64, bound_s: f64) -> Option<Exact<'p>> {
        let (tasks, servers) = (problem.task_count(), problem.client());
        if tasks > TASKS_MAX || !(0..problem.data().len()).all(|datum| has_fixed_arrival(problem, datum)) {
            return None;
        }
        let mut exact = Exact {
            problem,
            servers,
            seconds: vec![0.0; tasks * servers],
            outside_s: vec![0.0; tasks * servers],
            home_s: vec![0.0; tasks * servers],
            makers: vec![Vec::new(); tasks],
            transfer_seconds: Vec::new(),
            readers_of: vec![0; tasks],
            makers_of: vec![0; tasks],
            weights: [(vec![1.0; servers], Vec::new()), (speeds(problem), Vec::new())],
            slots: Vec::new(),
            left: nodes,
            kept: BTreeMap::new(),
            kept_count: 0,
            bound_s,
            best_s: f64::INFINITY,
            best: None,
        };
        for (server, facts) in problem.servers().iter().enumerate() {
            exact.slots.resize(exact.slots.len() + facts.slots as usize, server);
        }
        let mut way_of: BTreeMap<u32, usize> = BTreeMap::new();
        for task in 0..tasks {
            problem.seconds_by_server(task, &mut exact.seconds[task * servers..][..servers]);
            for datum in problem.inputs(task) {
                match problem.data()[*datum as usize].producer {
                    Some(maker) => {
                        let way = *way_of.entry(*datum).or_insert_with(|| exact.add_transfer_table(*datum));
                        exact.makers[task].push((maker as usize, way));
                        exact.makers_of[task] |= 1 << maker;
                        exact.readers_of[maker as usize] |= 1 << task;
                    }
                    None => exact.add_source(task, *datum as usize),
                }
            }
            for datum in problem.outputs(task).iter().map(|datum| &problem.data()[*datum as usize]) {
                for server in (0..servers).filter(|server| datum.wanted || problem.is_stateless(*server)) {
                    let home_s = &mut exact.home_s[task * servers + server];
                    *home_s = home_s.max(problem.link_seconds(server, servers, datum.size_bytes));
                }
            }
            for (weights, least) in &mut exact.weights {
                let weighted = exact.seconds[task * servers..][..servers].iter().zip(&*weights);
                let weighted = weighted.filter(|(seconds, _)| seconds.is_finite());
                least.push(weighted.map(|(seconds, weight)| seconds * weight).fold(f64::INFINITY, f64::min));
            }
        }
        Some(exact)
    }

    /// Searches for a line that ends before `known_s`. Returns true if the search was exhaustive.
    pub fn search(&mut self, known_s: f64) -> bool {
        self.best_s = known_s;
        let tasks = self.problem.task_count();
        let busy = self.problem.servers().iter().flat_map(|server| server.busy_s.iter().copied());
        let first = Partial {
            placed: 0,
            servers: vec![0; tasks],
            end_s: vec![0.0; tasks],
            free_s: busy.collect(),
            last_start_s: 0.0,
            done_s: 0.0,
            order: Vec::new(),
            bound_s: 0.0,
        };
        self.descend(&first).is_some()
    }

    /// Returns the best line found, if one ends before the known makespan.
    pub fn into_best(self) -> Option<Line> {
        self.best
    }

    /// Tries all continuations of a partial plan; `None` if the budget is used up.
    fn descend(&mut self, partial: &Partial) -> Option<()> {
        let tasks = self.problem.task_count();
        if partial.order.len() == tasks {
            (self.best_s, self.best) =
                (partial.done_s, Some(Line { servers: partial.servers.clone(), order: partial.order.clone() }));
            return Some(());
        }
        let mut next = Vec::new();
        for task in 0..tasks {
            if partial.placed >> task & 1 == 1 || self.makers_of[task] & !partial.placed != 0 {
                continue;
            }
            for server in (0..self.servers).filter(|server| self.seconds[task * self.servers + server].is_finite()) {
                self.left = self.left.checked_sub(1).filter(|_| !self.problem.is_stopped())?;
                let partial = self.place(partial, task, server);
                if partial.bound_s < self.best_s * (1.0 - EARLIER) {
                    next.push(partial);
                }
            }
        }
        next.sort_by(|a, b| a.bound_s.total_cmp(&b.bound_s).then(a.last_start_s.total_cmp(&b.last_start_s)));
        for partial in next {
            if partial.bound_s >= self.best_s * (1.0 - EARLIER) || self.best_s <= self.bound_s {
                break;
            }
            if !self.is_dominated(&partial) {
                self.descend(&partial)?;
            }
        }
        Some(())
    }

    fn place(&self, before: &Partial, task: usize, server: usize) -> Partial {
        let mut partial = before.clone();
        let (first, last) = self.slots_of(server);
        let ready_s = self.ready_s(before, task, server);
        let start_s = ready_s.max(before.free_s[first]).max(before.last_start_s);
        let end_s = start_s + self.seconds[task * self.servers + server];
        partial.placed |= 1 << task;
        partial.servers[task] = server as u32;
        partial.end_s[task] = end_s;
        if end_s > start_s {
            partial.free_s[first] = end_s;
            partial.free_s[first..last].sort_by(f64::total_cmp);
        }
        partial.last_start_s = start_s;
        partial.done_s = before.done_s.max(end_s + self.home_s[task * self.servers + server]);
        partial.order.push(task as u32);
        partial.bound_s = self.bound(&partial);
        partial
    }

    fn slots_of(&self, server: usize) -> (usize, usize) {
        (self.slots.partition_point(|slot| *slot < server), self.slots.partition_point(|slot| *slot <= server))
    }

    /// Time at which a task's inputs are at a server, counting only makers that are placed.
    fn ready_s(&self, partial: &Partial, task: usize, server: usize) -> f64 {
        let mut ready_s = self.outside_s[task * self.servers + server];
        for (maker, way) in &self.makers[task] {
            if partial.placed >> maker & 1 == 1 {
                let from = partial.servers[*maker] as usize;
                let way_s = self.transfer_seconds[way + from * self.servers + server];
                ready_s = ready_s.max(partial.end_s[*maker] + way_s);
            }
        }
        ready_s
    }

    /// Returns a lower bound on the makespan of a partial plan; infinite if it cannot be better than the best known.
    fn bound(&self, partial: &Partial) -> f64 {
        let (tasks, servers) = (self.problem.task_count(), self.servers);
        let free_s = |slot: usize| partial.free_s[slot].max(partial.last_start_s);
        for (weights, least) in &self.weights {
            let left = (0..tasks).filter(|task| partial.placed >> task & 1 == 0).map(|task| least[task]).sum::<f64>();
            let room = |slot: usize| weights[self.slots[slot]] * (self.best_s - free_s(slot)).max(0.0);
            if left > (0..self.slots.len()).map(room).sum::<f64>() {
                return f64::INFINITY;
            }
        }
        let mut bound_s = partial.done_s.max(self.bound_s);
        let mut end_s = partial.end_s.clone();
        for task in (0..tasks).filter(|task| partial.placed >> task & 1 == 0) {
            let later = self.makers[task].iter().filter(|(maker, _)| partial.placed >> maker & 1 == 0);
            let later_s = later.map(|(maker, _)| end_s[*maker]).fold(partial.last_start_s, f64::max);
            let (mut ends_s, mut done_s) = (f64::INFINITY, f64::INFINITY);
            let mut slot = 0;
            for server in 0..servers {
                let first = slot;
                while self.slots.get(slot) == Some(&server) {
                    slot += 1;
                }
                let at = task * servers + server;
                if self.seconds[at].is_finite() {
                    let start_s = self.ready_s(partial, task, server).max(later_s).max(partial.free_s[first]);
                    let end_s = start_s + self.seconds[at];
                    (ends_s, done_s) = (ends_s.min(end_s), done_s.min(end_s + self.home_s[at]));
                }
            }
            end_s[task] = ends_s;
            bound_s = bound_s.max(done_s);
            if bound_s >= self.best_s {
                return f64::INFINITY;
            }
        }
        bound_s
    }

    /// True if a partial plan seen before dominates this one. If not, stores this one.
    fn is_dominated(&mut self, partial: &Partial) -> bool {
        let tasks = self.problem.task_count();
        let is_open = |task: &usize| partial.placed >> task & 1 == 1 && self.readers_of[*task] & !partial.placed != 0;
        let open: Vec<usize> = (0..tasks).filter(is_open).collect();
        let key = (partial.placed, open.iter().map(|task| partial.servers[*task]).collect());
        let mut times: Vec<f64> = vec![partial.last_start_s, partial.done_s];
        // Tasks start no earlier than the last start, so a slot that is free before then counts as free at it.
        times.extend(partial.free_s.iter().map(|free_s| free_s.max(partial.last_start_s)));
        times.extend(open.iter().map(|task| partial.end_s[*task]));
        let others = self.kept.entry(key).or_default();
        let is_no_later = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| a <= b);
        if others.iter().any(|other| is_no_later(other, &times)) {
            return true;
        }
        if self.kept_count < KEPT_MAX {
            let before = others.len();
            others.retain(|other| !is_no_later(&times, other));
            self.kept_count = self.kept_count + 1 + others.len() - before;
            others.push(times);
        }
        false
    }

    fn add_transfer_table(&mut self, datum: u32) -> usize {
        let first = self.transfer_seconds.len();
        let size_bytes = self.problem.data()[datum as usize].size_bytes;
        for from in 0..self.servers {
            self.transfer_seconds.extend((0..self.servers).map(|to| self.problem.route_seconds(from, to, size_bytes)));
        }
        first
    }

    fn add_source(&mut self, task: usize, datum: usize) {
        let (problem, client) = (self.problem, self.servers);
        let size_bytes = problem.data()[datum].size_bytes;
        let nearest_s = |to: usize| {
            let ways = problem.holders(datum).iter().map(|from| problem.link_seconds(*from as usize, to, size_bytes));
            ways.fold(f64::INFINITY, f64::min)
        };
        for server in 0..self.servers {
            let direct_s = nearest_s(server);
            let there_s = if direct_s.is_finite() {
                direct_s
            } else {
                nearest_s(client) + problem.link_seconds(client, server, size_bytes)
            };
            let outside_s = &mut self.outside_s[task * self.servers + server];
            *outside_s = outside_s.max(there_s);
        }
    }
}

/// True if the arrival of a datum at each place does not depend on earlier placements: it has only one reader, or no detour over
/// another place is faster than the direct link.
fn has_fixed_arrival(problem: &Problem, datum: usize) -> bool {
    let facts = &problem.data()[datum];
    if facts.readers + u32::from(facts.wanted) <= 1 {
        return true;
    }
    let places = problem.client() + 1;
    let seconds = |from, to| problem.link_seconds(from, to, facts.size_bytes);
    let is_straight = |from, to| (0..places).all(|over| seconds(from, to) <= seconds(from, over) + seconds(over, to));
    problem.is_complete() && (0..places).all(|from| (0..places).all(|to| is_straight(from, to)))
}
