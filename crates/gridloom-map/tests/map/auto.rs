//! What `auto` must achieve on graphs with known best plans, and which inputs it must not change.

use crate::testing::*;
use gridloom_base::SplitMix64;
use gridloom_map::*;

fn map(spec: &str, problem: &Problem) -> Plan {
    Spec::parse(spec).unwrap().heuristic().unwrap().map(problem).unwrap()
}

#[test]
fn small_graphs_are_near_their_best_without_contention() {
    let (mut ratios, mut worst) = (Vec::new(), 0.0f64);
    for seed in 0..500 {
        let mut rng = SplitMix64::new(77_000 + seed);
        let (tasks, grid) = (1 + rng.below(9) as usize, random_grid(&mut rng, 3));
        let outline = random_graph(&mut rng, tasks, 4);
        let problem = Problem::new(&outline, &grid, CLIENT).unwrap().without_contention();
        // The few graphs whose best plan is not found within this budget are skipped.
        let spec = Spec::parse("exhaustive[nodes=60000]").unwrap();
        let Ok(best) = spec.heuristic().unwrap().map(&problem) else { continue };
        if best.makespan_s > 0.0 {
            let plan = map("auto[steps=100000,slack=0]", &problem);
            plan.validate(&problem).unwrap();
            worst = worst.max(plan.makespan_s / best.makespan_s);
            ratios.push(plan.makespan_s / best.makespan_s);
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!(ratios.len() > 300, "of 500 the best is known of {}", ratios.len());
    assert!(mean < 1.03 && worst < 1.15, "{mean} times the best on average, {worst} at worst");
}

/// With contention the best plan is not known. Instead, all servers and orders are tried, with sources from the list scheduler.
#[test]
fn tiny_graphs_are_near_their_best_with_contention() {
    let (mut ratios, mut worst) = (Vec::new(), 0.0f64);
    for seed in 0..60 {
        let mut rng = SplitMix64::new(78_000 + seed);
        let (tasks, grid) = (1 + rng.below(5) as usize, random_grid(&mut rng, 3));
        let outline = random_graph(&mut rng, tasks, 4);
        let problem = Problem::new(&outline, &grid, CLIENT).unwrap();
        let (mut judge, mut lister) =
            (contention::ContentionEvaluator::new(&problem), contention::ListScheduler::new(&problem));
        let order: Vec<u32> = (0..tasks as u32).collect();
        let mut best_s = f64::INFINITY;
        for code in 0..3u32.pow(tasks as u32) {
            let servers: Vec<u32> = (0..tasks as u32).map(|task| code / 3u32.pow(task) % 3).collect();
            if (0..tasks).all(|task| problem.seconds(task, servers[task] as usize).is_some()) {
                let choice = lister.complete(&order, &servers);
                best_s = best_s.min(judge.run(&choice, f64::INFINITY).unwrap().unwrap().makespan_s);
            }
        }
        // Shorter ones are not searched.
        if best_s > 0.1 {
            let plan = map("auto[steps=1000000]", &problem);
            worst = worst.max(plan.makespan_s / best_s);
            ratios.push(plan.makespan_s / best_s);
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    // A plan that ends 5 % later and moves fewer bytes is as good.
    assert!(mean < 1.02 && worst < 1.051, "{mean} times the best on average, {worst} at worst");
}

#[test]
fn a_plan_has_the_times_of_copies_that_share() {
    let mut build = Build::new(1);
    let sources: Vec<u32> = (0..4).map(|_| build.source(100_000_000)).collect();
    for source in sources {
        build.task(0, 4e10, &[source], 8);
    }
    let outline = build.done();
    let all = grid(&[1e9; 4]);
    let problem = Problem::new(&outline, &all, CLIENT).unwrap();
    let shared = map("auto", &problem);
    shared.validate(&problem).unwrap();
    // Four copies of a second each share the client's NIC, so the last arrives after four seconds.
    assert!((shared.makespan_s - 44.0).abs() < 0.01, "{shared}");
    let alone = map("auto[contention=no]", &problem);
    assert!((alone.makespan_s - 41.0).abs() < 0.01, "{alone}");
    assert_eq!(map("auto", &problem.clone().without_contention()), alone);
}

/// One upload, then copies from server to server: a mapper that ignores contention does not find this.
#[test]
fn a_large_file_is_sent_over_the_slow_link_once() {
    let mut build = Build::new(1);
    let database = build.source(1_000_000_000);
    for _ in 0..40 {
        build.task(0, 1e10, &[database], 8);
    }
    let outline = build.done();
    let plan = map_group("auto[steps=3000000]", &outline, &grid(&[1e9; 4]), CLIENT).unwrap();
    let [sent, _, returned] = traffic(&plan);
    assert_eq!((sent, returned), (1, 40), "{plan}");
}
