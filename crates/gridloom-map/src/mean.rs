//! Means over the grid, used to rank tasks before their servers are known.

use super::problem::Problem;
use gridloom_perf::Size;

/// The mean of several links. Time is linear in size, so two numbers are enough.
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

    /// Each pair counts once, as the mean of its two directions.
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

    /// Returns the mean link from a server to the client.
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

    /// Seconds to move that many bytes.
    pub(super) fn seconds(&self, size_bytes: u64) -> f64 {
        self.latency_s + self.seconds_per_byte * size_bytes as f64
    }
}

/// Mean seconds of tasks over the servers that can run them.
///
/// If only speeds are known, the mean is computed from them and not from the seconds. Both are the same except for the last bit,
/// but tasks of equal work must have equal means, however their ranks are summed.
pub(super) struct MeanSeconds<'p> {
    problem: &'p Problem,
    /// Mean cost of each function over all servers that offer it.
    functions: Vec<MeanCost>,
}

/// Maximum seconds per operation. Keeps sums finite, whatever speed a server states.
const PER_FLOP_MAX_S: f64 = 1e300;

#[derive(Clone, Copy)]
struct MeanCost {
    /// `None` if some server has a model of the function.
    seconds_per_flop: Option<f64>,
    /// Smallest store of a server that offers the function.
    memory_bytes: u64,
}

impl<'p> MeanSeconds<'p> {
    /// Computes the means of all functions.
    pub(super) fn new(problem: &'p Problem) -> MeanSeconds<'p> {
        let functions = (0..problem.function_count()).map(|function| mean_cost(problem, function)).collect();
        MeanSeconds { problem, functions }
    }

    /// Mean seconds of a task over the servers that offer its function and can hold its data; of a bound task, on its server.
    pub(super) fn of(&self, task: usize) -> f64 {
        if let Some(server) = self.problem.bound_server(task) {
            return self.problem.seconds(task, server).expect("a task can run where it is bound to");
        }
        let (function, size, size_bytes) = self.problem.call(task);
        let MeanCost { seconds_per_flop, memory_bytes } = self.functions[function];
        if let (Size::Work(work), Some(seconds_per_flop)) = (size, seconds_per_flop)
            && size_bytes <= memory_bytes
        {
            return work * seconds_per_flop;
        }
        let offered = self.problem.servers().iter().zip(self.problem.costs_of(function));
        let able =
            offered.filter(|(server, _)| server.memory_bytes >= size_bytes).filter_map(|(_, cost)| cost.as_ref());
        mean(able.map(|cost| cost.seconds(size)))
    }
}

fn mean_cost(problem: &Problem, function: usize) -> MeanCost {
    let offered =
        || problem.servers().iter().zip(problem.costs_of(function)).filter_map(|(s, cost)| Some((s, cost.as_ref()?)));
    let rates: Option<Vec<f64>> = offered().map(|(_, cost)| Some(cost.per_flop_s()?.min(PER_FLOP_MAX_S))).collect();
    MeanCost {
        seconds_per_flop: rates.map(|rates| mean(rates.into_iter())),
        memory_bytes: offered().map(|(server, _)| server.memory_bytes).min().unwrap_or(u64::MAX),
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count.max(1))
}
