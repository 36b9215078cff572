//! Searches for plans without contention, for groups in which each datum has at most one reader.
//!
//! Without contention a task starts when its server is free and its inputs are there. An input is sent directly from the place
//! where it was made. So one pass over the tasks in order gives the makespan. Annealing over servers and order starts from the
//! plans of other heuristics, in the order of their start times. The budget is in steps, not seconds: the same problem gives the
//! same plan.
//!
//! Source: Kirkpatrick, Gelatt, Vecchi, *Science* 220, 1983 (annealing).

use super::problem::Problem;
use gridloom_base::SplitMix64;

/// Temperatures at the start and at the end, as fractions of the makespan.
const HOT: f64 = 0.01;
const COLD: f64 = 0.00005;
/// Random changes for each assignment of servers: more find nothing.
const DRAWS_PER_ASSIGNMENT: u64 = 64;

/// Servers and order of tasks.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    pub servers: Vec<u32>,
    /// All tasks, each after those it depends on; each server runs its own in this order.
    pub order: Vec<u32>,
}

/// Evaluates lines.
pub trait Evaluate {
    /// Returns the makespan; infinite if it is above the limit.
    fn makespan(&mut self, line: &Line, limit_s: f64) -> f64;

    /// Work done so far, in steps of about equal duration.
    fn steps(&self) -> u64;
}

/// Computes makespans of lines in one pass over the tasks.
#[derive(Debug)]
pub struct PairsEvaluator {
    servers: usize,
    /// Run times, indexed by task × server.
    seconds: Vec<f64>,
    /// Range of each task's inputs in `inputs`.
    ranges: Vec<(u32, u32)>,
    /// Maker, or `OUTSIDE`, and bytes.
    inputs: Vec<(u32, f64)>,
    /// Bytes that each task sends to the client.
    to_client_bytes: Vec<f64>,
    /// Seconds per byte and latency, indexed by place × place.
    links: Vec<(f64, f64)>,
    /// Time from which each server is free.
    busy_s: Vec<f64>,
    start_s: Vec<f64>,
    end_s: Vec<f64>,
    free_s: Vec<f64>,
    steps: u64,
}

const OUTSIDE: u32 = u32::MAX;

impl PairsEvaluator {
    /// Builds the tables of a problem; `None` if a datum has several readers, a server has several slots, or a source
    /// is not at the client.
    pub fn new(problem: &Problem) -> Option<PairsEvaluator> {
        let (tasks, servers, client) = (problem.task_count(), problem.client(), problem.client());
        let is_simple = problem.data().iter().all(|datum| datum.readers <= 1)
            && problem.servers().iter().all(|server| server.slots == 1 || tasks == 1)
            && problem.is_complete();
        let at_client = |datum: usize| problem.holders(datum) == [client as u32];
        if !is_simple || !(0..problem.data().len()).all(|d| problem.data()[d].producer.is_some() || at_client(d)) {
            return None;
        }
        let mut pass = PairsEvaluator {
            servers,
            seconds: Vec::with_capacity(tasks * servers),
            ranges: Vec::with_capacity(tasks),
            inputs: Vec::new(),
            to_client_bytes: vec![0.0; tasks],
            links: Vec::new(),
            busy_s: problem.servers().iter().map(|server| server.busy_s[0]).collect(),
            start_s: vec![0.0; tasks],
            end_s: vec![0.0; tasks],
            free_s: vec![0.0; servers],
            steps: 0,
        };
        for task in 0..tasks {
            pass.seconds.extend((0..servers).map(|server| problem.seconds(task, server).unwrap_or(f64::INFINITY)));
            let first = pass.inputs.len() as u32;
            for datum in problem.inputs(task) {
                let facts = &problem.data()[*datum as usize];
                pass.inputs.push((facts.producer.unwrap_or(OUTSIDE), facts.size_bytes as f64));
            }
            pass.ranges.push((first, pass.inputs.len() as u32));
            let wanted = problem.outputs(task).iter().map(|datum| &problem.data()[*datum as usize]);
            pass.to_client_bytes[task] = wanted.filter(|datum| datum.wanted).map(|datum| datum.size_bytes as f64).sum();
        }
        for from in 0..=client {
            let links = problem.links_from(from).iter();
            pass.links.extend(links.map(|link| (1.0 / link.bandwidth, link.latency_s)));
        }
        Some(pass)
    }

    /// Start of each task in the last pass, seconds.
    pub fn start_s(&self) -> &[f64] {
        &self.start_s
    }
}

/// Additional steps for drawing and undoing a change.
const STEPS_OF_A_TRIAL: u64 = 12;

impl Evaluate for PairsEvaluator {
    fn steps(&self) -> u64 {
        self.steps
    }

    fn makespan(&mut self, line: &Line, limit_s: f64) -> f64 {
        self.free_s.copy_from_slice(&self.busy_s);
        self.steps += STEPS_OF_A_TRIAL;
        let places = self.servers + 1;
        let mut makespan_s = 0.0f64;
        for task in &line.order {
            let task = *task as usize;
            let server = line.servers[task] as usize;
            let mut ready_s = self.free_s[server];
            let (first, last) = self.ranges[task];
            for (maker, bytes) in &self.inputs[first as usize..last as usize] {
                let (from, since_s) = match *maker {
                    OUTSIDE => (self.servers, 0.0),
                    maker => (line.servers[maker as usize] as usize, self.end_s[maker as usize]),
                };
                let (per_byte, latency_s) = self.links[from * places + server];
                ready_s = ready_s.max(since_s + (latency_s + bytes * per_byte));
            }
            self.steps += u64::from(last - first) + 1;
            let end_s = ready_s + self.seconds[task * self.servers + server];
            (self.start_s[task], self.end_s[task], self.free_s[server]) = (ready_s, end_s, end_s);
            let (per_byte, latency_s) = self.links[server * places + self.servers];
            let home_s =
                if self.to_client_bytes[task] > 0.0 { latency_s + self.to_client_bytes[task] * per_byte } else { 0.0 };
            makespan_s = makespan_s.max(end_s + home_s);
            if makespan_s > limit_s {
                return f64::INFINITY;
            }
        }
        makespan_s
    }
}

/// Returns the best line that the budget finds from some initial lines, and its makespan.
///
/// # Panics
/// If there are no initial lines.
pub fn anneal(problem: &Problem, pass: &mut impl Evaluate, start: &[Line], budget: u64, seed: u64) -> (Line, f64) {
    let mut random = SplitMix64::new(seed);
    let judged = start.iter().map(|line| (line.clone(), pass.makespan(line, f64::INFINITY)));
    let mut best = judged.min_by(|a, b| a.1.total_cmp(&b.1)).expect("some line to start with");
    let (mut current, mut current_s) = best.clone();
    let (from, tasks, servers) = (pass.steps(), current.order.len() as u64, problem.client() as u64);
    if tasks == 0 {
        return best;
    }
    let mut at: Vec<u32> = vec![0; tasks as usize];
    let place = |order: &[u32], at: &mut [u32]| {
        order.iter().enumerate().for_each(|(index, task)| at[*task as usize] = index as u32);
    };
    place(&current.order, &mut at);
    let mut readers: Vec<Vec<u32>> = vec![Vec::new(); tasks as usize];
    for task in 0..tasks as usize {
        for datum in problem.inputs(task) {
            if let Some(maker) = problem.data()[*datum as usize].producer {
                readers[maker as usize].push(task as u32);
            }
        }
    }
    // Draws are bounded too: with one server and one order nothing is ever evaluated, and a tiny group has few lines, all of which
    // are soon drawn.
    let draws_max = budget.min(servers.saturating_pow(tasks.min(64) as u32).saturating_mul(DRAWS_PER_ASSIGNMENT));
    let mut draws = 0;
    while pass.steps() - from < budget && draws < draws_max && !problem.is_stopped() {
        draws += 1;
        let done = (pass.steps() - from) as f64 / budget as f64;
        let temperature = HOT * (COLD / HOT).powf(done) * current_s;
        let limit_s = current_s - temperature * random.unit().max(1e-300).ln();
        let task = random.below(tasks) as usize;
        let before = current.servers[task];
        match random.below(16) {
            0..7 => {
                let to = random.below(servers) as u32;
                if to == before || problem.seconds(task, to as usize).is_none() {
                    continue;
                }
                current.servers[task] = to;
                let found_s = pass.makespan(&current, limit_s);
                if found_s <= limit_s {
                    current_s = found_s;
                } else {
                    current.servers[task] = before;
                }
            }
            7..11 => {
                let other = random.below(tasks) as usize;
                let theirs = current.servers[other];
                let is_able = |task: usize, server: u32| problem.seconds(task, server as usize).is_some();
                if theirs == before || !is_able(task, theirs) || !is_able(other, before) {
                    continue;
                }
                current.servers.swap(task, other);
                let found_s = pass.makespan(&current, limit_s);
                if found_s <= limit_s {
                    current_s = found_s;
                } else {
                    current.servers.swap(task, other);
                }
            }
            // A task with its neighbours, or all tasks of a server, move together.
            kind @ (11 | 12) => {
                let to = random.below(servers) as u32;
                let makers = problem.inputs(task).iter().filter_map(|datum| problem.data()[*datum as usize].producer);
                let mut moved: Vec<u32> = match kind {
                    11 => makers.chain(readers[task].iter().copied()).chain([task as u32]).collect(),
                    _ => (0..tasks as u32).filter(|other| current.servers[*other as usize] == before).collect(),
                };
                moved.sort_unstable();
                moved.dedup();
                let is_able = |task: &u32| problem.seconds(*task as usize, to as usize).is_some();
                moved.retain(|task| current.servers[*task as usize] != to && is_able(task));
                if moved.is_empty() {
                    continue;
                }
                let servers_before: Vec<u32> = moved.iter().map(|task| current.servers[*task as usize]).collect();
                moved.iter().for_each(|task| current.servers[*task as usize] = to);
                let found_s = pass.makespan(&current, limit_s);
                if found_s <= limit_s {
                    current_s = found_s;
                } else {
                    moved
                        .iter()
                        .zip(servers_before)
                        .for_each(|(task, server)| current.servers[*task as usize] = server);
                }
            }
            _ => {
                let here = at[task] as usize;
                let makers = problem.inputs(task).iter().filter_map(|datum| problem.data()[*datum as usize].producer);
                let first = makers.map(|maker| at[maker as usize] as usize + 1).max().unwrap_or(0);
                let last = readers[task].iter().map(|reader| at[*reader as usize] as usize).min();
                let last = last.unwrap_or(tasks as usize) - 1;
                let to = first + random.below((last - first + 1) as u64) as usize;
                if to == here {
                    continue;
                }
                let turn = |order: &mut [u32], from: usize, to: usize| {
                    if to < from { order[to..=from].rotate_right(1) } else { order[from..=to].rotate_left(1) }
                };
                turn(&mut current.order, here, to);
                let found_s = pass.makespan(&current, limit_s);
                if found_s <= limit_s {
                    current_s = found_s;
                    let (low, high) = (here.min(to), here.max(to));
                    for index in low..=high {
                        at[current.order[index] as usize] = index as u32;
                    }
                } else {
                    turn(&mut current.order, to, here);
                }
            }
        }
        if current_s < best.1 {
            best = (current.clone(), current_s);
        }
    }
    best
}
