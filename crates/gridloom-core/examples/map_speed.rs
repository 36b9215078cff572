//! Seconds that mapping takes, for graphs of layers: `cargo run --release -p gridloom-core --example map_speed`.

use std::time::Instant;

use gridloom_core::base::NodeId;
use gridloom_core::graph::{Outline, OutlineDatum, OutlineTask};
use gridloom_core::map::{Problem, Spec, SplitMix64};
use gridloom_core::perf::{FunctionModel, GridView, LinkEstimate, ServerView};

const CLIENT: NodeId = NodeId(0);

fn main() {
    println!(
        "{:>8} {:>8} {:>7} {:>12} {:>10} {:>10} {:>8}",
        "tasks", "servers", "shape", "heuristic", "seconds", "makespan", "/ bound"
    );
    for (tasks, servers) in [(100, 16), (316, 16), (10_000, 16), (20_000, 100), (50_000, 100), (100_000, 100)] {
        for (shape, width) in [("layers", 200), ("wide", tasks)] {
            for spec in ["heft", "heft[slack=0]", "greedy", "mct"] {
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
                    "{tasks:>8} {servers:>8} {shape:>7} {spec:>12} {seconds:>10.3} {:>10.3} {ratio:>8.3}",
                    plan.makespan_s
                );
            }
        }
    }
}

/// Layers of `width` tasks, each with two inputs from the layer before and all reading one datum of the client.
fn layers(tasks: usize, width: usize) -> Outline {
    let mut rng = SplitMix64::new(1);
    let source = OutlineDatum { size_bytes: 100_000_000, producer: None, at: vec![CLIENT], wanted: false };
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
        outline.tasks.push(OutlineTask { function: 0, work_flops, inputs, outputs: vec![task as u32 + 1] });
        let (size_bytes, wanted) = (1_000_000 + rng.below(20_000_000), task + width >= tasks);
        outline.data.push(OutlineDatum { size_bytes, producer: Some(task as u32), at: vec![], wanted });
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
        plain: false,
        memory_bytes: 1 << 40,
        speed_flops: Some(1e9 * (1.0 + rng.unit())),
        functions: [("m/f".to_owned(), FunctionModel::default())].into(),
        busy_s: vec![0.0; 1 + number % 4],
    };
    GridView {
        servers: (0..servers).map(&mut server).collect(),
        client_links: vec![LinkEstimate { latency_s: 1e-3, bandwidth: 1e8 }; servers],
        links: vec![vec![Some(LinkEstimate { latency_s: 1e-4, bandwidth: 1e9 }); servers]; servers],
    }
}
