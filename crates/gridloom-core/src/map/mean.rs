//! Means over the grid, by which tasks are ranked before it is known where they run.

use super::problem::Problem;

/// Mean over links; time is linear in size, so two numbers are enough.
#[derive(Clone, Copy, Default)]
pub(super) struct MeanLink {
    latency_s: f64,
    seconds_per_byte: f64,
}

impl MeanLink {
    fn of(problem: &Problem, from: usize, to: usize) -> MeanLink {
        let link = problem.links_from(from)[to];
        MeanLink { latency_s: link.latency_s, seconds_per_byte: 1.0 / link.bandwidth }
    }

    fn mean(links: impl Iterator<Item = MeanLink>, count: usize) -> MeanLink {
        let sum = links.fold(MeanLink::default(), MeanLink::plus);
        let count = count as f64;
        MeanLink { latency_s: sum.latency_s / count, seconds_per_byte: sum.seconds_per_byte / count }
    }

    /// A pair counts once: the mean of its two ways.
    pub(super) fn between_servers(problem: &Problem) -> MeanLink {
        let client = problem.client();
        let way = |from, to| {
            let direct = MeanLink::of(problem, from, to);
            if direct.latency_s.is_finite() {
                return direct;
            }
            MeanLink::of(problem, from, client).plus(MeanLink::of(problem, client, to))
        };
        let pairs = (0..client).flat_map(|from| (from..client).map(move |to| (from, to)));
        let links = pairs.map(|(from, to)| MeanLink::mean([way(from, to), way(to, from)].into_iter(), 2));
        MeanLink::mean(links, client * (client + 1) / 2)
    }

    /// From a server to the client.
    pub(super) fn to_client(problem: &Problem) -> MeanLink {
        let client = problem.client();
        MeanLink::mean((0..client).map(|server| MeanLink::of(problem, server, client)), client)
    }

    fn plus(self, other: MeanLink) -> MeanLink {
        MeanLink {
            latency_s: self.latency_s + other.latency_s,
            seconds_per_byte: self.seconds_per_byte + other.seconds_per_byte,
        }
    }

    /// To move that much.
    pub(super) fn seconds(&self, size_bytes: u64) -> f64 {
        self.latency_s + self.seconds_per_byte * size_bytes as f64
    }
}

/// Mean seconds of tasks over the servers that can run them: mean overhead + work · mean of 1 / speed.
///
/// Not the mean of the seconds, which is the same but for the last bit: tasks of equal work must come out equal, however
/// their ranks are added up.
pub(super) struct MeanSeconds<'p> {
    problem: &'p Problem,
    /// By function, over all servers that offer it.
    functions: Vec<MeanCost>,
}

/// Keeps sums finite, whatever speed a server states.
const PER_FLOP_MAX_S: f64 = 1e300;

#[derive(Clone, Copy)]
struct MeanCost {
    overhead_s: f64,
    seconds_per_flop: f64,
    unstated_s: f64,
    /// Smallest store of a server that offers the function.
    memory_bytes: u64,
}

impl<'p> MeanSeconds<'p> {
    /// Computes those of all functions.
    pub(super) fn new(problem: &'p Problem) -> MeanSeconds<'p> {
        let functions = (0..problem.function_count()).map(|function| mean_cost(problem, function, 0)).collect();
        MeanSeconds { problem, functions }
    }

    /// Of a task.
    pub(super) fn of(&self, task: usize) -> f64 {
        let (function, work_flops, size_bytes) = self.problem.call(task);
        let mut cost = self.functions[function];
        if size_bytes > cost.memory_bytes {
            cost = mean_cost(self.problem, function, size_bytes);
        }
        work_flops.map_or(cost.unstated_s, |work| cost.overhead_s + work * cost.seconds_per_flop)
    }
}

/// Mean over the servers that offer a function and can hold that much.
fn mean_cost(problem: &Problem, function: usize, size_bytes: u64) -> MeanCost {
    let offered = problem.servers().iter().zip(problem.costs_of(function));
    let able = offered.filter(|(server, _)| server.memory_bytes >= size_bytes);
    let costs = able.filter_map(|(server, cost)| Some((server.memory_bytes, (*cost)?)));
    let none = MeanCost { overhead_s: 0.0, seconds_per_flop: 0.0, unstated_s: 0.0, memory_bytes: u64::MAX };
    let (sum, count) = costs.fold((none, 0u32), |(sum, count), (memory_bytes, cost)| {
        let sum = MeanCost {
            overhead_s: sum.overhead_s + cost.overhead_s,
            seconds_per_flop: sum.seconds_per_flop + (1.0 / cost.flops).min(PER_FLOP_MAX_S),
            unstated_s: sum.unstated_s + cost.unstated_s,
            memory_bytes: sum.memory_bytes.min(memory_bytes),
        };
        (sum, count + 1)
    });
    let count = f64::from(count.max(1));
    MeanCost {
        overhead_s: sum.overhead_s / count,
        seconds_per_flop: sum.seconds_per_flop / count,
        unstated_s: sum.unstated_s / count,
        ..sum
    }
}
