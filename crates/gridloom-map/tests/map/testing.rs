//! Graphs and grids for the tests.

use std::collections::BTreeMap;

use gridloom_base::{NodeId, SplitMix64};
use gridloom_map::Plan;
use gridloom_map::{Outline, OutlineDatum, OutlineTask};
use gridloom_perf::{ConcurrencyPoint, FunctionModel, GridView, LinkEstimate, Perturbation, ServerView};

/// The client of all test grids.
pub const CLIENT: NodeId = NodeId(0);

/// The spec for small groups with imprecise figures, which avoids unnecessary transfers.
pub const TIDY: &str = "heft[slack=0.05,polish=1000000]";

/// Builds an outline task by task.
#[derive(Default)]
pub struct Build(pub Outline);

impl Build {
    /// Starts a graph of tasks that call one function, or several if `functions` > 1.
    pub fn new(functions: usize) -> Build {
        let functions = (0..functions).map(|number| format!("m/f{number}")).collect();
        Build(Outline { functions, ..Outline::default() })
    }

    /// Adds a datum that the client holds.
    pub fn source(&mut self, size_bytes: u64) -> u32 {
        self.0.data.push(OutlineDatum {
            size_bytes,
            producer: None,
            at: vec![CLIENT],
            wanted: false,
            name: None,
            method: Default::default(),
        });
        self.0.data.len() as u32 - 1
    }

    /// Adds a task with one result.
    pub fn task(&mut self, function: u32, work: f64, inputs: &[u32], size_bytes: u64) -> u32 {
        let mut inputs = inputs.to_vec();
        inputs.sort_unstable();
        inputs.dedup();
        let (task, datum) = (self.0.tasks.len() as u32, self.0.data.len() as u32);
        self.0.data.push(OutlineDatum {
            size_bytes,
            producer: Some(task),
            at: vec![],
            wanted: false,
            name: None,
            method: Default::default(),
        });
        self.0.tasks.push(OutlineTask {
            function,
            work_flops: Some(work),
            bound_to: None,
            inputs,
            outputs: vec![datum],
        });
        datum
    }

    /// Marks every result that no task reads as wanted.
    pub fn done(mut self) -> Outline {
        let mut read = vec![false; self.0.data.len()];
        self.0.tasks.iter().flat_map(|task| &task.inputs).for_each(|input| read[*input as usize] = true);
        for (datum, read) in self.0.data.iter_mut().zip(read) {
            datum.wanted |= datum.producer.is_some() && !read;
        }
        self.0
    }
}

/// Product of 8 square matrices by a binary tree: 7 multiplications.
pub fn matrix_chain(order: u64) -> Outline {
    let mut build = Build::new(1);
    let (bytes, work) = (8 * order * order, 2.0 * (order as f64).powi(3));
    let mut level: Vec<u32> = (0..8).map(|_| build.source(bytes)).collect();
    while level.len() > 1 {
        level = level.chunks(2).map(|pair| build.task(0, work, pair, bytes)).collect();
    }
    build.done()
}

/// A source, `width` tasks that read it, and one task that reads their results.
pub fn fork_join(width: usize) -> Outline {
    let mut build = Build::new(1);
    let source = build.source(1 << 20);
    let first = build.task(0, 1e8, &[source], 1 << 20);
    let middle: Vec<u32> = (0..width).map(|_| build.task(0, 1e9, &[first], 1 << 18)).collect();
    build.task(0, 1e8, &middle, 1 << 10);
    build.done()
}

/// Tasks that read nothing and share nothing.
pub fn independent(tasks: usize, work: f64) -> Outline {
    let mut build = Build::new(1);
    (0..tasks).for_each(|_| {
        build.0.tasks.push(OutlineTask {
            function: 0,
            work_flops: Some(work),
            bound_to: None,
            inputs: vec![],
            outputs: vec![],
        })
    });
    build.done()
}

/// A random graph: up to three inputs each, from the sources and earlier tasks; some works and sizes are 0.
pub fn random_graph(rng: &mut SplitMix64, tasks: usize, functions: usize) -> Outline {
    let mut build = Build::new(functions);
    for _ in 0..2 {
        let size = rng.below(50_000_000);
        build.source(size);
    }
    for _ in 0..tasks {
        let inputs: Vec<u32> = (0..rng.below(4)).map(|_| rng.below(build.0.data.len() as u64) as u32).collect();
        let work = rng.below(20) as f64 * 1e8;
        let size_bytes = rng.below(3) * rng.below(50_000_000);
        build.task(rng.below(functions as u64) as u32, work, &inputs, size_bytes);
    }
    build.0.data.iter_mut().for_each(|datum| datum.wanted = rng.below(10) == 0);
    build.done()
}

/// Servers of these speeds, one slot each, that offer `m/f0` to `m/f3`; links between servers ten times faster than
/// those of the client.
pub fn grid(speeds: &[f64]) -> GridView {
    let names = (0..4).map(|number| (format!("m/f{number}"), FunctionModel::default()));
    let functions: BTreeMap<String, FunctionModel> = names.collect();
    let server = |(number, speed): (usize, &f64)| ServerView {
        node: NodeId(100 + number as u64),
        name: format!("s{number}"),
        address: String::new(),
        slots: 1,
        stateless: false,
        memory_bytes: 1 << 40,
        speed_flops: Some(*speed),
        pace: 1.0,
        functions: functions.clone(),
        busy_s: vec![0.0],
        release: String::new(),
        protocol: 0,
    };
    let count = speeds.len();
    GridView {
        servers: speeds.iter().enumerate().map(server).collect(),
        client_links: vec![LinkEstimate { latency_s: 1e-4, bandwidth: 1e8 }; count],
        links: vec![vec![Some(LinkEstimate { latency_s: 1e-4, bandwidth: 1e9 }); count]; count],
        bottlenecks: Vec::new(),
    }
}

/// A random grid: some servers are stateless, some pairs have no link, some functions are missing (never `m/f0` of the first
/// server, nor any of the last), some slots are busy. No direct link is slower than the route through the client.
pub fn random_grid(rng: &mut SplitMix64, servers: usize) -> GridView {
    let speeds: Vec<f64> = (0..servers).map(|_| 1e9 * (1.0 + 3.0 * rng.unit())).collect();
    let mut grid = grid(&speeds);
    for (number, server) in grid.servers.iter_mut().enumerate() {
        server.stateless = rng.below(5) == 0;
        server.slots = 1 + rng.below(3) as u32;
        server.busy_s = (0..server.slots).map(|slot| f64::from(slot) * rng.below(2) as f64 * rng.unit()).collect();
        if number + 1 < servers {
            let gone = format!("m/f{}", 1 + rng.below(4));
            server.functions.remove(&gone);
        }
    }
    for link in &mut grid.client_links {
        *link = LinkEstimate { latency_s: 1e-3 * rng.unit(), bandwidth: 1e7 + 1e8 * rng.unit() };
    }
    for from in 0..servers {
        for to in 0..servers {
            let (a, b) = (grid.client_links[from], grid.client_links[to]);
            let bandwidth = a.bandwidth.min(b.bandwidth) * (1.0 + 9.0 * rng.unit());
            let latency_s = (a.latency_s + b.latency_s) * rng.unit();
            grid.links[from][to] = (rng.below(4) > 0).then_some(LinkEstimate { latency_s, bandwidth });
        }
    }
    grid
}

/// The grid with more slots per server; most servers slow their tasks down side by side.
pub fn perturbed(rng: &mut SplitMix64, mut grid: GridView) -> GridView {
    for server in &mut grid.servers {
        server.slots += rng.below(4) as u32;
        server.busy_s.resize(server.slots as usize, 0.0);
        server.busy_s.sort_by(f64::total_cmp);
        for model in server.functions.values_mut() {
            if rng.below(4) > 0 {
                model.perturbation = perturbation(&[(2, 1.0 + rng.unit()), (4, 2.0 + 3.0 * rng.unit())]);
            }
        }
    }
    grid
}

/// Slowdown factors by the number of tasks side by side.
pub fn perturbation(points: &[(u32, f64)]) -> Perturbation {
    let point = |(tasks, factor): &(u32, f64)| ConcurrencyPoint { tasks: *tasks, factor: *factor, calls: 9 };
    Perturbation::new(points.iter().map(point).collect())
}

/// Number of transfers: client to server, server to server, server to client.
pub fn traffic(plan: &Plan) -> [usize; 3] {
    let count = |from: bool, to: bool| {
        plan.transfers.iter().filter(|moved| (moved.from == CLIENT) == from && (moved.to == CLIENT) == to).count()
    };
    [count(true, false), count(false, false), count(false, true)]
}
