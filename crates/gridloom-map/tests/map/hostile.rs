//! Outlines, specs and figures arrive over sockets. Whatever they contain, mapping returns a valid plan or an error. It never
//! panics and never allocates memory out of proportion to the input.

use crate::testing::*;
use gridloom_base::{NodeId, SplitMix64};
use gridloom_map::*;
use gridloom_map::{OutlineDatum, OutlineTask};
use gridloom_perf::GridView;
use gridloom_perf::{LinkEstimate, Point};

const SPECS: [&str; 19] = [
    "heft",
    "heft[insertion=no,slack=0.05,polish=1000]",
    "cpop",
    "cpop[down=without]",
    "peft",
    "lookahead",
    "min-min",
    "max-min",
    "sufferage",
    "greedy",
    "mct",
    "round-robin",
    "random",
    "exhaustive[nodes=200]",
    "branch-and-bound[nodes=200]",
    "local[from=mct,steps=500]",
    "anneal[steps=500]",
    "auto[steps=20000]",
    "auto[contention=no,steps=20000]",
];

fn number(rng: &mut SplitMix64) -> f64 {
    const ODD: [f64; 12] = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -1.0,
        -0.0,
        0.0,
        f64::MIN_POSITIVE,
        5e-324,
        1e-300,
        1e17,
        1e300,
        f64::MAX,
    ];
    ODD[rng.below(ODD.len() as u64) as usize]
}

fn index(rng: &mut SplitMix64) -> u32 {
    if rng.below(4) == 0 { u32::MAX - rng.below(2) as u32 } else { rng.below(12) as u32 }
}

fn size(rng: &mut SplitMix64) -> u64 {
    [0, 1, 1 << 40, u64::MAX / 2, u64::MAX][rng.below(5) as usize]
}

fn spoil_outline(rng: &mut SplitMix64, outline: &mut Outline) {
    let task = rng.below(outline.tasks.len().max(1) as u64) as usize;
    let datum = rng.below(outline.data.len().max(1) as u64) as usize;
    let (index, size, number, choice) = (index(rng), size(rng), number(rng), rng.below(16));
    let nobody = OutlineDatum {
        size_bytes: size,
        producer: Some(index),
        at: vec![],
        wanted: true,
        name: None,
        method: Default::default(),
    };
    let loops =
        OutlineTask { function: index, work_flops: None, bound_to: None, inputs: vec![index], outputs: vec![index] };
    let (Some(task), Some(datum)) = (outline.tasks.get_mut(task), outline.data.get_mut(datum)) else {
        return outline.tasks.push(loops);
    };
    match choice {
        0 => task.function = index,
        1 => task.inputs.push(index),
        2 => task.outputs.push(index),
        3 => task.inputs.clear(),
        4 => task.outputs.clear(),
        5 => task.work_flops = None,
        6 | 7 => task.work_flops = Some(number),
        8 => datum.producer = Some(index),
        9 => datum.producer = None,
        10 => datum.at = vec![NodeId(100), CLIENT, NodeId(100), NodeId(u64::MAX)],
        11 | 12 => datum.size_bytes = size,
        13 => outline.data.push(nobody),
        14 => task.bound_to = Some(NodeId([0, 99, 100, 101, u64::MAX][index as usize % 5])),
        _ => outline.functions.truncate(1),
    }
}

fn point(rng: &mut SplitMix64) -> Point {
    Point { size: number(rng), seconds: number(rng), spread_s: 0.0, calls: 1 }
}

fn spoil_grid(rng: &mut SplitMix64, grid: &mut GridView) {
    let count = grid.servers.len();
    let at = rng.below(count.max(1) as u64) as usize;
    let (link, choice) = (LinkEstimate { latency_s: number(rng), bandwidth: number(rng) }, rng.below(12));
    let Some(server) = grid.servers.get_mut(at) else { return };
    match choice {
        0 => server.slots = [0, 7, u32::MAX][rng.below(3) as usize],
        1 => server.busy_s = vec![number(rng); 5],
        2 => server.busy_s.clear(),
        3 => server.speed_flops = Some(number(rng)),
        4 => server.functions.values_mut().for_each(|model| model.by_work.points = vec![point(rng), point(rng)]),
        5 => server.functions.values_mut().for_each(|model| model.by_work.points = vec![point(rng)]),
        6 => server.functions.values_mut().for_each(|model| model.by_bytes.points = vec![point(rng)]),
        7 => server.memory_bytes = size(rng),
        8 => server.node = NodeId(rng.below(3) + 99),
        9 => grid.client_links[at] = link,
        10 => grid.links.iter_mut().take(at).flatten().for_each(|other| *other = Some(link)),
        _ => drop(grid.links.pop()),
    }
}

#[test]
fn no_input_makes_mapping_panic() {
    let (mut mapped, mut refused) = (0, 0);
    for seed in 0..20_000 {
        let mut rng = SplitMix64::new(seed);
        let servers = 1 + rng.below(4) as usize;
        let (tasks, mut grid) = (rng.below(8) as usize, random_grid(&mut rng, servers));
        let mut outline = random_graph(&mut rng, tasks, 4);
        (0..rng.below(4)).for_each(|_| spoil_outline(&mut rng, &mut outline));
        (0..rng.below(3)).for_each(|_| spoil_grid(&mut rng, &mut grid));
        let problem = Problem::new(&outline, &grid, CLIENT);
        for spec in SPECS {
            match (&problem, map_group(spec, &outline, &grid, CLIENT)) {
                (Ok(problem), Ok(plan)) => {
                    plan.validate(problem).unwrap_or_else(|why| panic!("seed {seed}, {spec}: {why}\n{plan}"));
                    mapped += 1;
                }
                (Ok(_), Err(MapError::TooManyNodes { .. })) => {}
                (Err(why), Err(error)) => {
                    assert!(!error.to_string().is_empty() && error.to_string() == why.to_string());
                    refused += 1;
                }
                (_, found) => panic!("seed {seed}, {spec}: {found:?}"),
            }
        }
    }
    assert!(mapped > 20_000 && refused > 20_000, "{mapped} mapped, {refused} refused");
}

#[test]
fn no_spec_makes_parsing_panic() {
    const PARTS: [&str; 17] = [
        "heft",
        "random",
        "[",
        "]",
        "=",
        ",",
        "slack",
        "seed",
        "0.5",
        "-1",
        "18446744073709551616",
        "é",
        " ",
        "polish",
        "local[from=",
        "cpop",
        "]]",
    ];
    for seed in 0..20_000 {
        let mut rng = SplitMix64::new(seed);
        let text: String = (0..rng.below(9)).map(|_| PARTS[rng.below(PARTS.len() as u64) as usize]).collect();
        if let Ok(spec) = Spec::parse(&text) {
            assert_eq!(Spec::parse(&spec.to_string()).unwrap().to_string(), spec.to_string());
            drop(spec.heuristic());
        }
    }
}

#[test]
fn a_group_without_tasks_has_an_empty_plan() {
    for entry in HEURISTICS {
        let plan = map_group(entry.name, &Outline::default(), &grid(&[1e9, 1e9]), CLIENT).unwrap();
        assert_eq!((plan.tasks.len(), plan.transfers.len(), plan.makespan_s), (0, 0, 0.0), "{}", entry.name);
    }
}
