//! The judge on small cases computed by hand; `oracle.rs` has plans with known makespans.

use std::collections::BTreeMap;

use crate::testing::{Build, grid, independent, perturbation};
use gridloom_base::SplitMix64;
use gridloom_base::limits::PARTS;
use gridloom_map::contention::*;
use gridloom_map::*;
use gridloom_perf::{Bottleneck, GridView, LinkEstimate};
use gridloom_workflows::{CLIENT, Case, Model, Servers, Workflow};

fn problem(workflow: &Workflow, servers: &Servers, model: Model) -> Problem {
    let case = Case { workflow, servers, model };
    Problem::new(&case.outline(), &case.grid(), CLIENT).unwrap().with_exact_figures()
}

#[test]
fn copies_of_a_real_group_go_the_same_way_in_turn_and_in_the_order_of_tasks() {
    let workflow = r#"{"tasks": [{"id": "a", "work_seconds": 1, "inputs": ["x"], "outputs": []},
                                 {"id": "b", "work_seconds": 1, "inputs": ["y"], "outputs": []},
                                 {"id": "c", "work_seconds": 1, "inputs": ["z"], "outputs": []}],
                       "files": {"x": 400000, "y": 100000, "z": 1000}}"#;
    let workflow = Workflow::parse(workflow, "w").unwrap();
    let servers = Servers::parse(r#"{"speed": [1, 1], "client_bytes_per_s": [1000, 1000]}"#, "s").unwrap();
    let case = Case { workflow: &workflow, servers: &servers, model: Model::M2 };
    let problem = Problem::new(&case.outline(), &case.grid(), CLIENT).unwrap();
    let starts = |order: [u32; 3]| {
        let choice = Choice { servers: vec![0; 3], order: order.to_vec(), sources: BTreeMap::new() };
        ContentionEvaluator::new(&problem).run(&choice, f64::INFINITY).unwrap().unwrap().start_s.clone()
    };
    // 400 s for x, then 100 s for y; z is small and travels beside them.
    assert_eq!(starts([0, 1, 2]), [400.0, 500.0, 501.0]);
    assert_eq!(starts([2, 1, 0]), [500.0, 100.0, 1.0]);
    let exact = problem.clone().with_exact_figures();
    let choice = Choice { servers: vec![0; 3], order: vec![2, 1, 0], sources: BTreeMap::new() };
    // As in recorded workflows, where all copies share.
    assert_eq!(
        ContentionEvaluator::new(&exact).run(&choice, f64::INFINITY).unwrap().unwrap().start_s,
        [501.0, 201.0, 3.0]
    );
}

#[test]
fn two_copies_share_the_clients_card_and_a_relay_passes_through_it() {
    let workflow = Workflow::parse(
        r#"{"tasks": [{"id": "a", "work_seconds": 1, "inputs": ["in"], "outputs": ["x"]},
                      {"id": "b", "work_seconds": 1, "inputs": ["in"], "outputs": []},
                      {"id": "c", "work_seconds": 1, "inputs": ["x"], "outputs": ["out"]}],
            "files": {"in": 10000, "x": 5000, "out": 1000}}"#,
        "w",
    );
    let workflow = workflow.unwrap();
    let servers = Servers::parse(r#"{"speed": [1, 1], "client_bytes_per_s": [1000, 500]}"#, "s").unwrap();
    let problem = problem(&workflow, &servers, Model::M2);
    let mut judge = ContentionEvaluator::new(&problem);
    let choice = Choice { servers: vec![0, 1, 1], order: vec![0, 1, 2], sources: BTreeMap::new() };
    let outcome = judge.run(&choice, f64::INFINITY).unwrap().unwrap().clone();
    // The NIC of 1,000 bytes/s serves two at 500 each until both have 10,000; x is sent at 1,000 to the client, at 500
    // from it, and the result at 500 to it.
    assert_eq!(outcome.start_s, [20.0, 20.0, 36.0]);
    assert_eq!(outcome.makespan_s, 39.0);
    let ways: Vec<(u32, u32)> = outcome.copies.iter().map(|copy| (copy.from, copy.to)).collect();
    assert_eq!(ways, [(2, 0), (2, 1), (0, 2), (2, 1), (1, 2)]);
    assert!(judge.run(&choice, 38.0).unwrap().is_none());
}

/// Two sites of three servers. Each pair of servers of different sites could have its own link, but all share one.
#[test]
fn what_several_links_share_is_crossed_once() {
    let mut build = Build::new(1);
    let shared = build.source(64 << 20);
    (0..6).for_each(|_| _ = build.task(0, 1e6, &[shared], 8));
    build.0.data[shared as usize].at = vec![grid(&[1e9]).servers[0].node];
    let mut grid = grid(&[1e9; 6]);
    let is_between = |(from, to): &(usize, usize)| (*from < 3) != (*to < 3);
    let pairs = || (0..6).flat_map(|from| (0..6).map(move |to| (from, to))).filter(is_between);
    for (from, to) in pairs() {
        grid.links[from][to] = Some(LinkEstimate { latency_s: 1e-4, bandwidth: 2e8 });
    }
    let crossings = |grid: &GridView| {
        let problem = Problem::new(&build.0, grid, CLIENT).unwrap();
        let choice = ListScheduler::new(&problem).complete(&[0, 1, 2, 3, 4, 5], &[0, 1, 2, 3, 4, 5]);
        let sources = choice.sources.iter().filter(|((datum, _), _)| *datum == shared);
        sources.filter(|((_, to), from)| is_between(&(**from as usize, *to as usize))).count()
    };
    assert!(crossings(&grid) > 1, "each has a way of its own");
    grid.bottlenecks = [true, false]
        .map(|outward| Bottleneck {
            pairs: pairs().filter(|(from, _)| (*from < 3) == outward).collect(),
            bandwidth: 2e8,
        })
        .to_vec();
    assert_eq!(crossings(&grid), 1);
}

/// Two sites of eight servers with a slow link between them. Each server has a datum and reads all: a NIC carries 15 of them, the
/// slow link eight.
#[test]
fn an_exchange_between_sites_crosses_the_slow_way_once() {
    const WIDTH: f64 = 12.5e6;
    for size_bytes in [4u64 << 20, 16 << 20] {
        let mut random = SplitMix64::new(size_bytes);
        let mut grid = grid(&[1e9; 16]);
        let is_between = |(from, to): &(usize, usize)| (*from < 8) != (*to < 8);
        let pairs = || (0..16).flat_map(|from| (0..16).map(move |to| (from, to)));
        for (from, to) in pairs() {
            let (latency_s, bandwidth) = if is_between(&(from, to)) {
                (1e-2, WIDTH / 2.0)
            } else {
                (1e-4, WIDTH * (0.95 + 0.05 * random.unit()))
            };
            grid.links[from][to] = Some(LinkEstimate { latency_s, bandwidth });
        }
        let one_way = |outward: bool| Bottleneck {
            pairs: pairs().filter(is_between).filter(|(from, _)| (*from < 8) == outward).collect(),
            bandwidth: WIDTH / 2.0,
        };
        grid.bottlenecks = [true, false].map(one_way).to_vec();
        let mut build = Build::new(1);
        let shared: Vec<u32> = (0..16).map(|_| build.source(size_bytes)).collect();
        for (datum, server) in shared.iter().zip(&grid.servers) {
            build.0.data[*datum as usize].at = vec![server.node];
        }
        for server in &grid.servers {
            for datum in &shared {
                build.task(0, 1e6, &[*datum], 8);
                build.0.tasks.last_mut().unwrap().bound_to = Some(server.node);
            }
        }
        let problem = Problem::new(&build.done(), &grid, CLIENT).unwrap();
        let plan = Spec::parse("auto").unwrap().heuristic().unwrap().map(&problem).unwrap();
        let place = |node| problem.place(node).unwrap();
        let crossed = plan
            .transfers
            .iter()
            .filter(|moved| moved.size_bytes == size_bytes && is_between(&(place(moved.from), place(moved.to))));
        let bound_s = 8.0 * size_bytes as f64 / (WIDTH / 2.0);
        assert_eq!(crossed.count(), 16, "each datum crosses once");
        assert!(plan.makespan_s < 1.05 * bound_s, "{} s, at least {bound_s} s", plan.makespan_s);
    }
}

#[test]
fn one_upload_serves_all_servers_that_can_talk() {
    let tasks: Vec<String> = (0..8)
        .map(|number| format!(r#"{{"id": "t{number}", "work_seconds": 40, "inputs": ["in"], "outputs": []}}"#))
        .collect();
    let text = format!(r#"{{"tasks": [{}], "files": {{"in": 100000}}}}"#, tasks.join(","));
    let workflow = Workflow::parse(&text, "w").unwrap();
    let servers = r#"{"speed": [1, 1], "client_bytes_per_s": [1000, 1000], "direct_bytes_per_s": {"0-1": 100000}}"#;
    let servers = Servers::parse(servers, "s").unwrap();
    let problem = problem(&workflow, &servers, Model::M2);
    let order: Vec<u32> = (0..8).collect();
    let halves = Choice { servers: vec![0, 1, 0, 1, 0, 1, 0, 1], order, sources: BTreeMap::new() };
    let mut judge = ContentionEvaluator::new(&problem);
    // Two uploads over the client's NIC.
    assert_eq!(judge.run(&halves, f64::INFINITY).unwrap().unwrap().makespan_s, 360.0);
    let circle = Choice { sources: BTreeMap::from([((0, 0), 1), ((0, 1), 0)]), ..halves.clone() };
    assert_eq!(judge.run(&circle, f64::INFINITY), Err(ChoiceError::NeverArrives { datum: 0, place: 0 }));
    let (choice, makespan_s) = search(&problem, &[halves], 200_000, 1);
    assert_eq!(makespan_s, 261.0);
    assert_eq!(judge.run(&choice, f64::INFINITY).unwrap().unwrap().makespan_s, makespan_s);
}

#[test]
fn concurrent_tasks_slow_each_other_down() {
    let mut grid = grid(&[1e9]);
    (grid.servers[0].slots, grid.servers[0].busy_s) = (3, vec![0.0, 0.0, 4.0]);
    let outline = independent(4, 2e9);
    let model = grid.servers[0].functions.get_mut("m/f0").unwrap();
    model.perturbation = perturbation(&[(2, 2.0), (3, 3.0)]);
    let problem = Problem::new(&outline, &grid, crate::testing::CLIENT).unwrap();
    let choice = Choice { servers: vec![0; 4], order: vec![0, 1, 2, 3], sources: BTreeMap::new() };
    let outcome = ContentionEvaluator::new(&problem).run(&choice, f64::INFINITY).unwrap().unwrap().clone();
    // Another group's task runs until 4. Until then each task has a third, so that 4/3 of each are done. From then on
    // three of this group's tasks run; the first two have 2/3 left, the third 2: 2 s more at a third, then two at a
    // half, and the last alone.
    assert_eq!(outcome.start_s, [0.0, 0.0, 4.0, 6.0]);
    let ends = [6.0, 6.0, 4.0 + 2.0 + 2.0 * 4.0 / 3.0, 0.0];
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(near(outcome.end_s[0], ends[0]) && near(outcome.end_s[1], ends[1]), "{:?}", outcome.end_s);
    assert!(near(outcome.end_s[2], ends[2]), "{:?}", outcome.end_s);
    assert!(near(outcome.makespan_s, ends[2] + 2.0 / 3.0), "{:?}", outcome.end_s);
}

#[test]
fn what_runs_on_slots_that_are_not_needed_disturbs_too() {
    let mut grid = grid(&[1e9]);
    (grid.servers[0].slots, grid.servers[0].busy_s) = (4, vec![0.0, 100.0, 100.0, 3.0]);
    let model = grid.servers[0].functions.get_mut("m/f0").unwrap();
    model.perturbation = perturbation(&[(3, 3.0), (4, 4.0)]);
    let ends = |tasks: usize| {
        let problem = Problem::new(&independent(tasks, 1e9), &grid, crate::testing::CLIENT).unwrap();
        let order: Vec<u32> = (0..tasks as u32).collect();
        let choice = Choice { servers: vec![0; tasks], order, sources: BTreeMap::new() };
        let outcome = ContentionEvaluator::new(&problem).run(&choice, f64::INFINITY).unwrap().unwrap().clone();
        outcome.end_s
    };
    // A quarter of its processors for three seconds, then a third.
    assert_eq!(ends(1), [3.75]);
    // The second starts when a slot is free.
    let both = ends(2);
    assert!((both[0] - 4.0).abs() < 1e-9 && both[1] > both[0], "{both:?}");
}

const SIZE_BYTES: u64 = 2 * PARTS.forwarded_bytes_min();

/// Three tasks that read one large datum of the client, on three servers with links of 1 MB/s between them.
fn one_datum_for_three(client_bytes_per_s: u64) -> (Workflow, Servers) {
    let task = |name| format!(r#"{{"id": "{name}", "work_seconds": 100, "inputs": ["x"], "outputs": []}}"#);
    let tasks = ["a", "b", "c"].map(task).join(",");
    let workflow = Workflow::parse(&format!(r#"{{"tasks": [{tasks}], "files": {{"x": {SIZE_BYTES}}}}}"#), "w").unwrap();
    let (up, direct) = (client_bytes_per_s, 1_000_000);
    let servers = format!(
        r#"{{"speed": [1, 1, 1], "client_bytes_per_s": [{up}, {up}, {up}],
            "direct_bytes_per_s": {{"0-1": {direct}, "0-2": {direct}, "1-2": {direct}}}}}"#
    );
    (workflow, Servers::parse(&servers, "s").unwrap())
}

#[test]
fn servers_forward_data_that_they_are_still_receiving() {
    for client_bytes_per_s in [1_000_000, 500_000] {
        let (workflow, servers) = one_datum_for_three(client_bytes_per_s);
        let case = Case { workflow: &workflow, servers: &servers, model: Model::M2 };
        let problem = Problem::new(&case.outline(), &case.grid(), CLIENT).unwrap();
        let chain = Choice {
            servers: vec![0, 1, 2],
            order: vec![0, 1, 2],
            sources: BTreeMap::from([((0, 0), 3), ((0, 1), 0), ((0, 2), 1)]),
        };
        let mut judge = ContentionEvaluator::new(&problem);
        let outcome = judge.run(&chain, f64::INFINITY).unwrap().unwrap().clone();
        let (first_s, part_s) =
            (SIZE_BYTES as f64 / client_bytes_per_s as f64, PARTS.part_bytes(SIZE_BYTES) as f64 / 1e6);
        for (number, start_s) in outcome.start_s.iter().enumerate() {
            let expected_s = first_s + number as f64 * part_s;
            assert!((start_s - expected_s).abs() < 1e-6, "{start_s} for {expected_s}");
        }
        // The search finds it too, and the result is a valid plan whose critical path leads back to the client.
        let (found, found_s) = search(&problem, &[], 100_000, 1);
        assert!(found_s <= outcome.makespan_s * (1.0 + 1e-9), "{found_s} with {:?}", found.sources);
        let plan = Spec::parse("auto").unwrap().heuristic().unwrap().map(&problem).unwrap();
        assert!((plan.makespan_s - found_s).abs() < 1e-6);
        let path = critical_path(&plan, &problem).unwrap();
        assert!(path.len() >= 3 && path[0].start_s == 0.0, "{path:?}");
        // In recorded workflows only a complete copy is forwarded.
        let exact = problem.with_exact_figures();
        let outcome = ContentionEvaluator::new(&exact).run(&chain, f64::INFINITY).unwrap().unwrap().clone();
        assert!((outcome.start_s[2] - first_s - 2.0 * SIZE_BYTES as f64 / 1e6).abs() < 1e-6);
    }
}
