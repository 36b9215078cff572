//! Loops whose bodies are groups that are delayed and mapped together, on a simulated grid.

use crate::support;
use gridloom::base::SplitMix64;
use gridloom::base::{Dtype, Meta};
use gridloom::{Arg, Error, Grid, Group, Handle, Loop, Regroup, Value};

/// Servers of three speeds.
fn star() -> String {
    support::star(
        &[("client", "1Gf"), ("fast", "40Gf"), ("good", "20Gf"), ("slow-1", "5Gf"), ("slow-2", "5Gf")],
        "1GBps",
        "100us",
    )
}

fn grid(test: &str) -> Grid {
    Grid::simulate(support::simulation(test, &star(), support::PRODUCT, &[])).unwrap()
}

fn matrix(extent: u64) -> Value {
    Value::placeholder(Meta::array(Dtype::Float64, &[extent, extent]))
}

fn product(grid: &Grid, group: &Group, a: impl Into<Arg>, b: impl Into<Arg>) -> Result<Handle, Error> {
    group.call(&grid.function("kernels/product")?, (a, b))?.one()
}

/// A body of the loop: the square of a square.
fn body(grid: &Grid, group: &Group, extent: u64) -> Handle {
    let m = matrix(extent);
    let square = product(grid, group, &m, &m).unwrap();
    product(grid, group, &square, &square).unwrap()
}

/// A slow server nearby, and two fast ones behind a slow link: moving data there pays off for several bodies, but not for one.
const FAR: &str = r#"
host = [
  { name = "client", speed = "1Gf" },
  { name = "near", speed = "5Gf" },
  { name = "far-1", speed = "50Gf" },
  { name = "far-2", speed = "40Gf" },
]
star = [
  { name = "here", hosts = ["client", "near"], bandwidth = "1GBps", latency = "50us" },
  { name = "there", hosts = ["far-1", "far-2"], bandwidth = "1GBps", latency = "50us" },
]
link = [{ name = "wan", bandwidth = "30MBps", latency = "5ms" }]
route = [{ from = "here", to = "there", links = ["wan"] }]
"#;

/// Seconds for 24 steps of two states, x := x x, of random extents; without a loop each body is launched by itself.
fn seconds(test: &str, regroup: Option<Regroup>, seed: u64) -> f64 {
    let grid = Grid::simulate(support::simulation(test, FAR, support::PRODUCT, &[])).unwrap();
    let rounds = regroup.map(|regroup| grid.regrouped("auto", regroup).unwrap());
    let mut random = SplitMix64::new(seed);
    let begin = grid.now();
    let mut states: Vec<Arg> = (0..2).map(|_| matrix(500 + random.below(400)).into()).collect();
    for _ in 0..24 {
        let group = rounds.as_ref().map_or_else(|| grid.group("auto"), Loop::group);
        for state in &mut states {
            *state = (&product(&grid, &group, state.clone(), state.clone()).unwrap()).into();
        }
        group.finish().unwrap();
    }
    for state in &states {
        if let Arg::Handle(state) = state {
            state.get().unwrap();
        }
    }
    grid.now() - begin
}

#[test]
fn bodies_that_are_mapped_together_end_sooner() {
    let (mut fixed, mut auto) = (Vec::new(), Vec::new());
    for seed in 0..6 {
        let alone_s = seconds("regroup-alone", None, seed);
        let fixed_s = seconds("regroup-fixed", Some(Regroup::Fixed(8)), seed);
        let auto_s = seconds("regroup-grows", Some(Regroup::Auto), seed);
        println!("seed {seed}: alone {alone_s:.4} s, eight together {fixed_s:.4} s, auto {auto_s:.4} s");
        fixed.push(fixed_s / alone_s);
        auto.push(auto_s / alone_s);
    }
    let mean = |ratios: &[f64]| (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    println!("of the time alone: eight together {:.3}, auto {:.3}", mean(&fixed), mean(&auto));
    assert!(mean(&fixed) < 0.9 && mean(&auto) < 0.8, "of the time alone: {fixed:?}, auto {auto:?}");
    // A single body may happen to be mapped just as well.
    assert!(auto.iter().all(|ratio| *ratio < 1.05), "of the time alone: {fixed:?}, auto {auto:?}");
}

#[test]
fn the_report_contains_how_many_were_sent_together() {
    let grid = grid("regroup-report");
    let rounds = grid.regrouped("heft", Regroup::Fixed(3)).unwrap();
    let mut groups = Vec::new();
    for _ in 0..7 {
        let group = rounds.group();
        body(&grid, &group, 100);
        group.finish().unwrap();
        groups.push(group);
    }
    assert_eq!(rounds.held(), 1);
    groups[0].wait().unwrap();
    assert_eq!(rounds.held(), 1, "it was launched before");
    let together: Vec<usize> = groups.iter().map(|group| group.report().unwrap().together).collect();
    assert_eq!(together, [3, 3, 3, 3, 3, 3, 1]);
    let report = groups[0].report().unwrap();
    assert_eq!((report.plans.len(), report.tasks.len()), (1, 6));
    assert!(report.to_string().contains("3 groups went together"), "{report}");
    assert_eq!((rounds.held(), grid.simulation().unwrap().groups.len()), (0, 3));
}

#[test]
fn sizes_double_while_the_plan_holds() {
    let grid = grid("regroup-doubles");
    let rounds = grid.regrouped("heft", Regroup::Auto).unwrap();
    let groups: Vec<(Group, Handle)> = (0..31)
        .map(|_| {
            let group = rounds.group();
            let result = body(&grid, &group, 300);
            group.finish().unwrap();
            (group, result)
        })
        .collect();
    assert_eq!(rounds.held(), 0);
    let together: Vec<usize> = groups.iter().map(|(group, _)| group.report().unwrap().together).collect();
    let expected: Vec<usize> = [1, 2, 4, 8, 16].iter().flat_map(|size| vec![*size; *size]).collect();
    assert_eq!(together, expected);
}

#[test]
fn requested_results_are_launched_immediately() {
    let grid = grid("regroup-asked");
    let rounds = grid.regrouped("heft", Regroup::Fixed(100)).unwrap();
    let first = rounds.group();
    let old = body(&grid, &first, 100);
    first.finish().unwrap();
    old.get().unwrap();
    assert_eq!(first.report().unwrap().together, 1);
    let second = rounds.group();
    let held = body(&grid, &second, 100);
    second.finish().unwrap();
    // Reading an earlier result does not launch it.
    old.get().unwrap();
    assert_eq!(rounds.held(), 1);
    // Another group that reads it launches it, and so does reading within a body.
    let other = grid.group("heft");
    product(&grid, &other, &held, &held).unwrap().get().unwrap();
    assert_eq!(rounds.held(), 0);
    let third = rounds.group();
    let within = body(&grid, &third, 100);
    within.get().unwrap();
    let after = product(&grid, &third, &within, &held).unwrap();
    third.finish().unwrap();
    assert_eq!(rounds.held(), 1);
    after.get().unwrap();
    assert_eq!((third.report().unwrap().plans.len(), rounds.held()), (2, 0));
}

/// A value that all bodies read is sent to each server once for the whole loop.
#[test]
fn what_all_bodies_read_goes_out_once() {
    let moved = |regroup: Regroup| {
        let grid = grid("regroup-shared");
        let rounds = grid.regrouped("round-robin", regroup).unwrap();
        let shared = matrix(400);
        let mut results = Vec::new();
        for _ in 0..8 {
            let group = rounds.group();
            results.push(product(&grid, &group, &shared, &shared).unwrap());
            group.finish().unwrap();
        }
        results.iter().for_each(|result| drop(result.get().unwrap()));
        grid.traffic().client_bytes
    };
    let size_bytes = 400 * 400 * 8;
    assert_eq!(moved(Regroup::Fixed(4)), (4 + 8) * size_bytes);
}

#[test]
fn dropping_a_loop_launches_what_is_held() {
    let grid = grid("regroup-dropped");
    let rounds = grid.regrouped("heft", Regroup::Fixed(9)).unwrap();
    let group = rounds.group();
    let result = body(&grid, &group, 100);
    group.finish().unwrap();
    drop((group, rounds));
    result.get().unwrap();
    drop(result);
    let last = grid.group("heft");
    product(&grid, &last, matrix(10), matrix(10)).unwrap();
    last.wait().unwrap();
    drop(last);
    grid.take_unread(true);
    assert_eq!(grid.memory_counts(), (0, 0, 0));
}

#[test]
fn a_body_is_cancelled_and_discarded_alone() {
    let grid = grid("regroup-cancel");
    let rounds = grid.regrouped("heft", Regroup::Fixed(3)).unwrap();
    let bodies: Vec<(Group, Handle)> = (0..3)
        .map(|number| {
            let group = rounds.group();
            let result = body(&grid, &group, 500);
            if number < 2 {
                group.finish().unwrap();
            }
            (group, result)
        })
        .collect();
    bodies[2].0.discard();
    assert!(matches!(bodies[2].1.get(), Err(Error::Discarded { .. })));
    assert_eq!(rounds.held(), 2);
    rounds.launch().unwrap();
    bodies[0].0.cancel();
    assert!(bodies[0].1.get().is_err());
    bodies[1].1.get().unwrap();
}

#[test]
fn what_makes_no_loop_is_refused() {
    let grid = grid("regroup-refused");
    let why = |regroup| grid.regrouped("heft", regroup).unwrap_err().to_string();
    assert!(why(Regroup::Fixed(0)).starts_with("0 bodies cannot be mapped together; give 1 to 256"));
    assert!(why(Regroup::Fixed(257)).starts_with("257 bodies"));
    let group = grid.group("heft");
    body(&grid, &group, 10);
    let plan = group.plan("heft").unwrap();
    let refused = grid.regrouped(&plan, Regroup::Auto).unwrap_err().to_string();
    assert!(refused.contains("a plan is for the calls of one group"), "{refused}");
}

/// Bodies that read results of any others, and whose results are read, dropped, discarded and interleaved, always end.
#[test]
fn nothing_waits_for_ever() {
    for seed in 0..40 {
        let grid = grid("regroup-random");
        let mut random = SplitMix64::new(seed);
        let loops: Vec<Loop> = [Regroup::Auto, Regroup::Fixed(1 + random.below(6) as usize)]
            .into_iter()
            .map(|regroup| grid.regrouped("heft", regroup).unwrap())
            .collect();
        let mut results: Vec<Handle> = vec![];
        let mut groups: Vec<Group> = vec![];
        for _ in 0..30 {
            let group = match random.below(5) {
                0 => grid.group("heft"),
                number => loops[number as usize % 2].group(),
            };
            let mut mine = Vec::new();
            for _ in 0..1 + random.below(3) {
                let mut argument = || match random.below(results.len() as u64 + 1) as usize {
                    0 => Arg::from(matrix(60)),
                    place => Arg::from(&results[place - 1]),
                };
                let (a, b) = (argument(), argument());
                match product(&grid, &group, a, b) {
                    Ok(handle) => mine.push(handle),
                    Err(Error::Discarded { .. }) => {}
                    Err(error) => panic!("seed {seed}: {error}"),
                }
                if random.below(8) == 0 && !mine.is_empty() {
                    let look = mine[random.below(mine.len() as u64) as usize].get();
                    assert!(matches!(look, Ok(_) | Err(Error::Discarded { .. })), "seed {seed}: {look:?}");
                }
            }
            match random.below(12) {
                0 => group.discard(),
                1 => group.wait().unwrap(),
                _ => group.finish().unwrap(),
            }
            results.extend(mine);
            if random.below(3) == 0 {
                groups.push(group);
            }
            if random.below(4) == 0 && !results.is_empty() {
                let place = random.below(results.len() as u64) as usize;
                results.swap_remove(place);
            }
        }
        for result in &results {
            let value = result.get();
            assert!(matches!(value, Ok(_) | Err(Error::Discarded { .. })), "seed {seed}: {value:?}");
        }
        for group in &groups {
            group.report().unwrap();
        }
        drop((results, groups, loops));
        let last = grid.group("heft");
        product(&grid, &last, matrix(10), matrix(10)).unwrap();
        last.wait().unwrap();
        drop(last);
        grid.take_unread(true);
        assert_eq!(grid.memory_counts(), (0, 0, 0), "seed {seed}");
    }
}
