use super::testing::*;
use super::*;
use crate::perf::LinkEstimate;

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

#[test]
fn probe() {
    for noise in [0.0, 0.1, 0.2, 0.3, 0.4] {
        for spec in ["heft", "heft[slack=0]", "heft[slack=0,polish=0]"] {
            let mut hist = std::collections::BTreeMap::<String, usize>::new();
            let mut fast = 0;
            for seed in 0..1000 {
                let (outline, grid) = noisy(&mut SplitMix64::new(seed), noise);
                let plan = map_group(spec, &outline, &grid, CLIENT).unwrap();
                let used: std::collections::BTreeSet<_> = plan.tasks[..4].iter().map(|t| t.server).collect();
                let c = |f: bool, t: bool| {
                    plan.transfers.iter().filter(|m| (m.from == CLIENT) == f && (m.to == CLIENT) == t).count()
                };
                *hist
                    .entry(format!("{}/{}/{} on {}", c(true, false), c(false, false), c(false, true), used.len()))
                    .or_default() += 1;
                let s: Vec<f64> = grid.servers.iter().map(|s| s.speed_flops.unwrap()).collect();
                if s.iter().copied().fold(0.0, f64::max) > 2.0 * s.iter().copied().fold(f64::MAX, f64::min) {
                    fast += 1;
                }
            }
            println!("{noise} {spec} {hist:?} twice as fast: {fast}");
        }
    }
}

#[test]
fn oracle() {
    for noise in [0.1, 0.2, 0.3, 0.4] {
        // ratios of least makespan among plans 8/3/1 on 4 servers over heft's, heft[slack=0]'s, and the best of all orders-of-call
        let (mut over_heft, mut over_pure, mut over_best) = (vec![], vec![], vec![]);
        for seed in 0..200 {
            let (outline, grid) = noisy(&mut SplitMix64::new(seed), noise);
            let problem = Problem::new(&outline, &grid, CLIENT).unwrap();
            let heft = map_group("heft", &outline, &grid, CLIENT).unwrap().makespan_s;
            let pure = map_group("heft[slack=0]", &outline, &grid, CLIENT).unwrap().makespan_s;
            let (mut best, mut tidy) = (f64::MAX, f64::MAX);
            for code in 0..16384usize {
                let at: Vec<usize> = (0..7).map(|t| code >> (2 * t) & 3).collect();
                let mut s = Schedule::new(&problem);
                for t in 0..7 {
                    s.place(t, at[t]);
                }
                let plan = s.finish();
                best = best.min(plan.makespan_s);
                let all = (0..4).all(|x| at[..4].contains(&x));
                if all && plan.transfers.len() == 12 && plan.transfers.iter().filter(|m| m.from == CLIENT).count() == 8
                {
                    tidy = tidy.min(plan.makespan_s);
                }
            }
            over_heft.push(tidy / heft);
            over_pure.push(tidy / pure);
            over_best.push(tidy / best);
        }
        for (n, v) in [("heft", &mut over_heft), ("slack=0", &mut over_pure), ("best", &mut over_best)] {
            v.sort_by(f64::total_cmp);
            let within = |x: f64| v.iter().filter(|r| **r <= x).count();
            println!(
                "{noise} best 8/3/1 over {n}: min {:.3} median {:.3} p90 {:.3} max {:.3}; within 1%: {} 5%: {} 10%: {} of 200",
                v[0],
                v[100],
                v[180],
                v[199],
                within(1.01),
                within(1.05),
                within(1.1)
            );
        }
    }
}
