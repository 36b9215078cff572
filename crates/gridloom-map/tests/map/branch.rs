//! The two exact searches against each other.

use crate::testing::{Build, CLIENT, random_grid};
use gridloom_base::SplitMix64;
use gridloom_map::parts::*;
use gridloom_map::*;
use gridloom_map::{Outline, OutlineDatum};

/// A graph in which each datum has one reader, or is sent to the client.
fn graph_of_pairs(rng: &mut SplitMix64, tasks: usize) -> Outline {
    let mut outline = Build::new(4).done();
    for task in 0..tasks {
        let mut inputs = Vec::new();
        for maker in 0..task {
            if rng.below(3) > 0 {
                continue;
            }
            inputs.push(outline.data.len() as u32);
            outline.tasks[maker].outputs.push(outline.data.len() as u32);
            let (size_bytes, producer) = (rng.below(3) * rng.below(50_000_000), Some(maker as u32));
            outline.data.push(OutlineDatum {
                size_bytes,
                producer,
                at: vec![],
                wanted: false,
                name: None,
                method: Default::default(),
            });
        }
        let source = OutlineDatum {
            size_bytes: rng.below(9_000_000),
            producer: None,
            at: vec![CLIENT],
            wanted: false,
            name: None,
            method: Default::default(),
        };
        let result = OutlineDatum { producer: Some(task as u32), at: vec![], wanted: true, ..source.clone() };
        let (input, output) = (outline.data.len() as u32, outline.data.len() as u32 + 1);
        outline.data.extend([source, result]);
        inputs.push(input);
        outline.tasks.push(gridloom_map::OutlineTask {
            function: rng.below(4) as u32,
            work_flops: Some(rng.below(20) as f64 * 1e8),
            bound_to: None,
            inputs,
            outputs: vec![output],
        });
    }
    outline
}

#[test]
fn both_searches_find_the_same() {
    let mut compared = 0;
    for seed in 0..150 {
        let mut rng = SplitMix64::new(seed);
        let (tasks, servers) = (rng.below(6) as usize, 1 + rng.below(3) as usize);
        let (outline, grid) = (graph_of_pairs(&mut rng, tasks), random_grid(&mut rng, servers));
        let problem = Problem::new(&outline, &grid, CLIENT).unwrap();
        let bound_s = lower_bound(&problem);
        let mut slow = Search { problem: &problem, left: 3_000_000, best: None, bound_s };
        // A poor plan, so that much can be improved.
        slow.offer(map_group("round-robin", &outline, &grid, CLIENT).unwrap());
        let known_s = slow.best_s();
        slow.descend(&Schedule::new(&problem), None, 0).expect("the budget is enough");
        let mut exact = Exact::new(&problem, 1_000_000, bound_s).expect("there is one way for each datum");
        assert!(exact.search(known_s));
        let found_s = exact.into_best().map_or(known_s, |line| plan_of(&problem, &line, false).makespan_s);
        assert!((found_s - slow.best_s()).abs() <= 1e-9 * found_s, "seed {seed}: {found_s} s, {} s", slow.best_s());
        compared += u32::from(found_s < known_s * (1.0 - 1e-9));
    }
    assert!(compared > 30, "only {compared} were better than what was known");
}
