//! The chain of eight matrices on four equal servers, with noisy measurements.

use std::collections::BTreeSet;

use crate::testing::*;
use gridloom_base::SplitMix64;
use gridloom_map::contention::{ContentionEvaluator, ListScheduler};
use gridloom_map::*;
use gridloom_perf::GridView;
use gridloom_perf::LinkEstimate;

/// Enough steps for seven products, regardless of their predicted time.
const AUTO: &str = "auto[steps=2000000]";

/// Order 1024 to 2048, 0.05 to 0.6 s per product; links 1 to 5 GB/s, each ±50 %; latencies 20 to 100 µs; rates as given.
fn noisy(rng: &mut SplitMix64, rate_noise: f64) -> (Outline, GridView) {
    let order = 1024 + rng.below(1025);
    let rate = 28e9 + 14e9 * rng.unit();
    let mut around = |middle: f64, noise: f64| middle * (1.0 - noise + 2.0 * noise * rng.unit());
    let speeds: [f64; 4] = std::array::from_fn(|_| around(rate, rate_noise));
    let mut grid = grid(&speeds);
    let (client, server) = (around(3e9, 0.67), around(3e9, 0.67));
    for link in grid.client_links.iter_mut() {
        *link = LinkEstimate { latency_s: around(60e-6, 0.67), bandwidth: around(client, 0.5) };
    }
    for link in grid.links.iter_mut().flatten() {
        *link = Some(LinkEstimate { latency_s: around(60e-6, 0.67), bandwidth: around(server, 0.5) });
    }
    (matrix_chain(order), grid)
}

/// Number of servers that compute the first four products.
fn first_servers(plan: &Plan) -> usize {
    plan.tasks[..4].iter().map(|task| task.server).collect::<BTreeSet<_>>().len()
}

/// Servers of all plans that use four servers for the first products and move 8 + 3 + 1 matrices: every assignment of the first
/// products, with every later product at one of its inputs.
fn tidy_plans() -> Vec<[usize; 7]> {
    let mut plans = Vec::new();
    for code in 0..256usize {
        let first: Vec<usize> = (0..4).map(|task| code >> (2 * task) & 3).collect();
        if (0..4).any(|server| !first.contains(&server)) {
            continue;
        }
        for side in 0..8usize {
            let (left, right) = (first[side & 1], first[2 + (side >> 1 & 1)]);
            let at = [first[0], first[1], first[2], first[3], left, right, [left, right][side >> 2]];
            plans.push(at);
        }
    }
    plans
}

/// Smallest makespan of those plans.
fn best_tidy_s(problem: &Problem) -> f64 {
    let makespan_s = |at: &[usize; 7]| {
        let mut schedule = Schedule::new(problem);
        at.iter().enumerate().for_each(|(task, server)| schedule.place(task, *server));
        schedule.finish().makespan_s
    };
    tidy_plans().iter().map(makespan_s).fold(f64::INFINITY, f64::min)
}

/// The same with contention.
fn best_tidy_judged_s(problem: &Problem) -> f64 {
    let (mut judge, mut lister) = (ContentionEvaluator::new(problem), ListScheduler::new(problem));
    let makespan_s = |at: &[usize; 7]| {
        let choice = lister.complete(&[0, 1, 2, 3, 4, 5, 6], &at.map(|server| server as u32));
        judge.run(&choice, f64::INFINITY).unwrap().unwrap().makespan_s
    };
    tidy_plans().iter().map(makespan_s).fold(f64::INFINITY, f64::min)
}

/// The servers differ by noise only, as when four equal ones are measured one after another. Exactly the data that the binary
/// tree needs move, and all four servers are used.
#[test]
fn small_noise_changes_nothing() {
    for seed in 10_000..10_200 {
        let (outline, grid) = noisy(&mut SplitMix64::new(seed), 0.1);
        let plan = map_group(TIDY, &outline, &grid, CLIENT).unwrap();
        assert_eq!((traffic(&plan), first_servers(&plan)), ([8, 3, 1], 4), "seed {seed}\n{plan}");
    }
}

/// With rates that differ by up to 2.3 times, using all four servers is not always best. The client's link never carries more
/// than it must. If the plan is not the tidy one, it moves less, or ends before the best tidy one.
#[test]
fn large_noise_wastes_nothing() {
    let (mut tidy, mut over_tidy) = (0, Vec::new());
    for seed in 10_000..10_200 {
        let (outline, grid) = noisy(&mut SplitMix64::new(seed), 0.4);
        let problem = Problem::new(&outline, &grid, CLIENT).unwrap();
        let plan = map_group(TIDY, &outline, &grid, CLIENT).unwrap();
        plan.validate(&problem).unwrap();
        let [sent, between, returned] = traffic(&plan);
        assert_eq!((sent, returned), (8, 1), "seed {seed}\n{plan}");
        assert!(between <= 3 || plan.makespan_s < best_tidy_s(&problem), "seed {seed}: moves for nothing\n{plan}");
        let unmended_s = map_group("heft[slack=0.05]", &outline, &grid, CLIENT).unwrap().makespan_s;
        assert!(plan.makespan_s <= 1.05 * unmended_s * (1.0 + 1e-9), "seed {seed}: ends later than before\n{plan}");
        over_tidy.push(plan.makespan_s / best_tidy_s(&problem));
        tidy += u32::from(between == 3 && first_servers(&plan) == 4);
    }
    let mean = over_tidy.iter().sum::<f64>() / 200.0;
    assert!(mean < 1.01, "on average {mean} times as long as the best tidy plan");
    assert!(tidy >= 100, "only {tidy} of 200 move 8 + 3 + 1 over four servers");
}

/// The same with `auto`, where all copies share the client's NIC.
#[test]
fn small_noise_changes_nothing_for_auto() {
    for seed in 10_000..10_040 {
        let (outline, grid) = noisy(&mut SplitMix64::new(seed), 0.1);
        let problem = Problem::new(&outline, &grid, CLIENT).unwrap();
        let plan = map_group(AUTO, &outline, &grid, CLIENT).unwrap();
        plan.validate(&problem).unwrap();
        assert_eq!((traffic(&plan), first_servers(&plan)), ([8, 3, 1], 4), "seed {seed}\n{plan}");
        let ratio = plan.makespan_s / best_tidy_judged_s(&problem);
        assert!(ratio < 1.02, "seed {seed}: {ratio} times as long as the best tidy plan\n{plan}");
    }
}

#[test]
fn large_noise_wastes_nothing_by_auto() {
    let (mut tidy, mut over_tidy) = (0, Vec::new());
    for seed in 10_000..10_040 {
        let (outline, grid) = noisy(&mut SplitMix64::new(seed), 0.4);
        let problem = Problem::new(&outline, &grid, CLIENT).unwrap();
        let plan = map_group(AUTO, &outline, &grid, CLIENT).unwrap();
        plan.validate(&problem).unwrap();
        let [sent, between, returned] = traffic(&plan);
        assert_eq!((sent, returned), (8, 1), "seed {seed}\n{plan}");
        let ratio = plan.makespan_s / best_tidy_judged_s(&problem);
        assert!(between <= 3 || ratio < 1.0, "seed {seed}: moves for nothing\n{plan}");
        over_tidy.push(ratio);
        tidy += u32::from(between == 3 && first_servers(&plan) == 4);
    }
    let mean = over_tidy.iter().sum::<f64>() / over_tidy.len() as f64;
    assert!(mean < 1.0, "on average {mean} times as long as the best tidy plan");
    assert!(tidy >= 20, "only {tidy} of 40 move 8 + 3 + 1 over four servers");
}
