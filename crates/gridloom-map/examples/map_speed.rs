//! Measures the time and memory that mapping takes for layered graphs: `cargo run --release -p gridloom-map --example map_speed`.
//!
//! `map_speed short` shows the ratio of mapping time to predicted run time for small groups, from one call to a thousand.
//!
//! With four arguments, it measures one case: `map_speed HEURISTIC TASKS SERVERS WIDTH`. The memory shown is the peak of the
//! whole process so far (Linux), including graph and plan. To measure the memory of one case, run it alone.

use std::time::Instant;

use gridloom_base::{NodeId, SplitMix64};
use gridloom_map::{Outline, OutlineDatum, OutlineTask, Problem, Spec};
use gridloom_perf::{FunctionModel, GridView, LinkEstimate, ServerView};

const CLIENT: NodeId = NodeId(0);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|argument| argument == "short") {
        return short(arguments.get(1).map_or("auto", String::as_str));
    }
    println!(
        "{:>8} {:>8} {:>7} {:>12} {:>10} {:>10} {:>8} {:>8}",
        "tasks", "servers", "width", "heuristic", "seconds", "makespan", "/ bound", "MiB"
    );
    if let [spec, tasks, servers, width] = arguments.as_slice() {
        let number = |text: &String| text.parse().expect("tasks, servers and width are whole numbers");
        return measure(spec, number(tasks), number(servers), number(width));
    }
    for (tasks, servers) in [(100, 16), (5_373, 16), (10_000, 16), (50_000, 100), (100_000, 100), (200_000, 100)] {
        for width in [200, tasks] {
            for spec in ["heft", "heft[slack=0.05]", "cpop", "greedy", "mct"] {
                measure(spec, tasks, servers, width);
            }
        }
    }
    for spec in ["peft", "lookahead", "min-min", "max-min", "sufferage", "local", "anneal", "branch-and-bound"] {
        for width in [200, 5_373] {
            measure(spec, 5_373, 16, width);
        }
    }
    measure("heft", 500_000, 100, 200);
    measure("heft", 1_000_000, 100, 200);
}

/// Maps layers of `width` tasks and prints the time and memory used.
fn measure(spec: &str, tasks: usize, servers: usize, width: usize) {
    let (outline, grid) = (layers(tasks, width), grid(servers));
    let heuristic = Spec::parse(spec).and_then(|spec| spec.heuristic()).expect("the spec is known");
    let start = Instant::now();
    let problem = Problem::new(&outline, &grid, CLIENT).expect("the problem is good");
    let plan = heuristic.map(&problem).expect("the heuristic maps everything");
    let seconds = start.elapsed().as_secs_f64();
    if tasks <= 10_000 {
        plan.validate(&problem).expect("the plan is valid");
    }
    let ratio = plan.makespan_s / plan.lower_bound_s;
    println!(
        "{tasks:>8} {servers:>8} {width:>7} {spec:>12} {seconds:>10.3} {:>10.3} {ratio:>8.3} {:>8}",
        plan.makespan_s,
        peak_mib().map_or("?".into(), |mib| mib.to_string())
    );
}

/// Maps small groups of calls that take a tenth of a millisecond to a second each.
fn short(spec: &str) {
    let heuristic = Spec::parse(spec).and_then(|spec| spec.heuristic()).expect("the spec is known");
    println!("{:>6} {:>8} {:>10} {:>12} {:>12} {:>8}", "tasks", "servers", "call s", "makespan s", "mapping s", "part");
    for (tasks, servers) in [1, 7, 20, 100, 1000].into_iter().flat_map(|tasks| [(tasks, 4), (tasks, 16)]) {
        for seconds in [1e-4, 1e-3, 1e-2, 1e-1, 1.0] {
            let mut outline = layers(tasks, 4 + tasks / 10);
            outline.tasks.iter_mut().for_each(|task| task.work_flops = task.work_flops.map(|work| work * seconds));
            outline.data.iter_mut().for_each(|datum| datum.size_bytes = (datum.size_bytes as f64 * seconds) as u64);
            let mut grid = grid(servers);
            grid.client_links.iter_mut().for_each(|link| *link = LinkEstimate { latency_s: 5e-5, bandwidth: 1e9 });
            let (mut best_s, mut makespan_s) = (f64::INFINITY, 0.0);
            for _ in 0..3 {
                let start = Instant::now();
                let problem = Problem::new(&outline, &grid, CLIENT).expect("the problem is good");
                makespan_s = heuristic.map(&problem).expect("the heuristic maps everything").makespan_s;
                best_s = start.elapsed().as_secs_f64().min(best_s);
            }
            let part = best_s / makespan_s;
            println!("{tasks:>6} {servers:>8} {seconds:>10} {makespan_s:>12.6} {best_s:>12.6} {part:>8.4}");
        }
    }
}

/// Peak memory of this process so far.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? / 1024)
}

/// Layers of `width` tasks. Each task has two inputs from the layer before, and all tasks read one datum of the client.
fn layers(tasks: usize, width: usize) -> Outline {
    let mut rng = SplitMix64::new(1);
    let source = OutlineDatum {
        size_bytes: 100_000_000,
        producer: None,
        at: vec![CLIENT],
        wanted: false,
        name: None,
        method: Default::default(),
    };
    let mut outline = Outline { functions: vec!["m/f".into()], tasks: vec![], data: vec![source] };
    for task in 0..tasks {
        let layer = task / width;
        let mut inputs = vec![0];
        if layer > 0 {
            inputs.extend((0..2).map(|_| 1 + ((layer - 1) * width) as u32 + rng.below(width as u64) as u32));
        }
        inputs.sort_unstable();
        inputs.dedup();
        let work_flops = Some(1e9 * (0.5 + rng.unit()));
        outline.tasks.push(OutlineTask {
            function: 0,
            work_flops,
            bound_to: None,
            inputs,
            outputs: vec![task as u32 + 1],
        });
        let (size_bytes, wanted) = (1_000_000 + rng.below(20_000_000), task + width >= tasks);
        outline.data.push(OutlineDatum {
            size_bytes,
            producer: Some(task as u32),
            at: vec![],
            wanted,
            name: None,
            method: Default::default(),
        });
    }
    outline
}

fn grid(servers: usize) -> GridView {
    let mut rng = SplitMix64::new(2);
    let mut server = |number: usize| ServerView {
        node: NodeId(1 + number as u64),
        name: format!("s{number:03}"),
        address: String::new(),
        slots: 1 + (number % 4) as u32,
        stateless: false,
        memory_bytes: 1 << 40,
        speed_flops: Some(1e9 * (1.0 + rng.unit())),
        pace: 1.0,
        functions: [("m/f".to_owned(), FunctionModel::default())].into(),
        busy_s: vec![0.0; 1 + number % 4],
        release: String::new(),
        protocol: 0,
    };
    GridView {
        servers: (0..servers).map(&mut server).collect(),
        client_links: vec![LinkEstimate { latency_s: 1e-3, bandwidth: 1e8 }; servers],
        links: vec![vec![Some(LinkEstimate { latency_s: 1e-4, bandwidth: 1e9 }); servers]; servers],
        bottlenecks: Vec::new(),
    }
}
