//! Contract tests that every heuristic of the table must pass; plans that some must find; inputs that all must reject.

use crate::testing::*;
use gridloom_base::{NodeId, SplitMix64};
use gridloom_map::*;
use gridloom_perf::GridView;
use gridloom_perf::LinkEstimate;

fn plan(spec: &str, outline: &Outline, grid: &GridView) -> Plan {
    map_group(spec, outline, grid, CLIENT).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// Seconds of everything planned, one after another. A plan cannot take longer, since something is active at any time.
fn serial_seconds(plan: &Plan, grid: &GridView) -> f64 {
    let busy = grid.servers.iter().flat_map(|server| server.busy_s.iter().copied()).fold(0.0, f64::max);
    let tasks: f64 = plan.tasks.iter().map(|task| task.end_s - task.start_s).sum();
    let transfers: f64 = plan.transfers.iter().map(|moved| moved.end_s - moved.start_s).sum();
    busy + tasks + transfers
}

fn keeps_contract(name: &str, outline: &Outline, grid: &GridView) -> Plan {
    let first = plan(name, outline, grid);
    let problem = Problem::new(outline, grid, CLIENT).unwrap();
    first.validate(&problem).unwrap_or_else(|why| panic!("{name}: {why}\n{first}"));
    assert_eq!(first, plan(name, outline, grid), "{name}: same answer twice");
    assert_eq!(first.heuristic, name);
    assert!(first.makespan_s <= serial_seconds(&first, grid) * (1.0 + 1e-9), "{name}: no worse than serial\n{first}");
    first
}

/// The table without `exhaustive`, which is for tiny graphs only, and with small budgets, since each heuristic maps many graphs.
fn fast() -> impl Iterator<Item = &'static str> {
    let name = |entry: &'static HeuristicEntry| match entry.name {
        "exhaustive" => None,
        "branch-and-bound" => Some("branch-and-bound[nodes=300]"),
        "auto" => Some("auto[steps=100000]"),
        "local" => Some("local[steps=30000]"),
        "anneal" => Some("anneal[from=greedy,steps=30000]"),
        name => Some(name),
    };
    HEURISTICS.iter().filter_map(name)
}

/// `exhaustive` models complete copies only. With contention, `auto` also has servers forward data that they are still receiving,
/// and can end earlier.
fn whole_copies(name: &'static str) -> &'static str {
    if name.starts_with("auto") { "auto[steps=100000,contention=no]" } else { name }
}

fn disconnected(mut grid: GridView) -> GridView {
    grid.links.iter_mut().flatten().for_each(|link| *link = None);
    grid
}

#[test]
fn all_keep_the_contract_on_regular_graphs() {
    let mut some_plain = grid(&[1e9, 2e9, 3e9, 2e9]);
    some_plain.servers[1].stateless = true;
    let mut many_slots = grid(&[1e9, 2e9]);
    many_slots.servers[0].slots = 5;
    let grids = [grid(&[1e9]), grid(&[1e9; 4]), disconnected(grid(&[1e9, 2e9, 4e9])), some_plain, many_slots];
    for grid in &grids {
        for outline in [matrix_chain(512), fork_join(1), fork_join(30), independent(50, 1e9), independent(0, 1e9)] {
            for name in fast() {
                keeps_contract(name, &outline, grid);
            }
        }
    }
}

#[test]
fn all_keep_the_contract_on_random_graphs() {
    for seed in 0..150 {
        let mut rng = SplitMix64::new(seed);
        let servers = 1 + rng.below(8) as usize;
        let (tasks, grid) = (rng.below(60) as usize, random_grid(&mut rng, servers));
        let outline = random_graph(&mut rng, tasks, 4);
        fast().for_each(|name| drop(keeps_contract(name, &outline, &grid)));
        for spec in ["heft[insertion=no]", "heft[slack=0.05]", "heft[slack=0.05,polish=3700]", "random[seed=5]"] {
            keeps_contract(spec, &outline, &grid);
        }
    }
}

#[test]
fn all_keep_the_contract_where_tasks_disturb_one_another() {
    for seed in 0..60 {
        let mut rng = SplitMix64::new(3000 + seed);
        let servers = 1 + rng.below(6) as usize;
        let (tasks, grid) = (rng.below(60) as usize, random_grid(&mut rng, servers));
        let (grid, outline) = (perturbed(&mut rng, grid), random_graph(&mut rng, tasks, 4));
        for name in fast() {
            let plan = keeps_contract(name, &outline, &grid);
            assert!(plan.makespan_s >= plan.lower_bound_s * (1.0 - 1e-9), "seed {seed}, {name}: {plan}");
        }
    }
}

/// Binds two of five tasks to the last server but one that can run it, or to any other, whether or not a heuristic
/// would choose it.
fn bound(rng: &mut SplitMix64, mut outline: Outline, grid: &GridView) -> Outline {
    let problem = Problem::new(&outline, grid, CLIENT).unwrap();
    for (number, task) in outline.tasks.iter_mut().enumerate() {
        let able: Vec<usize> =
            (0..problem.servers().len()).filter(|server| problem.seconds(number, *server).is_some()).collect();
        let server = able[rng.below(able.len() as u64) as usize];
        task.bound_to = (rng.below(5) < 2).then(|| problem.node(server));
    }
    outline
}

#[test]
fn all_keep_bound_tasks_on_their_servers() {
    let mut elsewhere = 0;
    for seed in 0..60 {
        let mut rng = SplitMix64::new(4000 + seed);
        let (servers, tasks) = (1 + rng.below(6) as usize, rng.below(40) as usize);
        let grid = random_grid(&mut rng, servers);
        let free = random_graph(&mut rng, tasks, 4);
        let outline = bound(&mut rng, free.clone(), &grid);
        for name in fast() {
            let plan = keeps_contract(name, &outline, &grid);
            let chosen = map_group(name, &free, &grid, CLIENT).unwrap();
            for (number, task) in outline.tasks.iter().enumerate() {
                let Some(only) = task.bound_to else { continue };
                assert_eq!(plan.tasks[number].server, only, "seed {seed}, {name}: task {number}\n{plan}");
                elsewhere += u32::from(chosen.tasks[number].server != only);
            }
        }
    }
    assert!(elsewhere > 1000, "only {elsewhere} tasks would have run elsewhere");
}

#[test]
fn nothing_beats_exhaustive_where_tasks_are_bound() {
    for seed in 0..30 {
        let mut rng = SplitMix64::new(5000 + seed);
        let (servers, tasks) = (1 + rng.below(3) as usize, rng.below(6) as usize);
        let grid = random_grid(&mut rng, servers);
        let free = random_graph(&mut rng, tasks, 4);
        let outline = bound(&mut rng, free, &grid);
        let best = keeps_contract("exhaustive[nodes=3000000]", &outline, &grid).makespan_s;
        for name in fast().map(whole_copies) {
            let makespan_s = plan(name, &outline, &grid).makespan_s;
            assert!(best <= makespan_s * (1.0 + 1e-9), "seed {seed}: {name} takes {makespan_s} s, exhaustive {best} s");
        }
    }
}

#[test]
fn nothing_beats_exhaustive_and_heft_is_near() {
    let mut ratios = Vec::new();
    for seed in 0..60 {
        let mut rng = SplitMix64::new(1000 + seed);
        let servers = 1 + rng.below(3) as usize;
        let (tasks, grid) = (rng.below(6) as usize, random_grid(&mut rng, servers));
        let outline = random_graph(&mut rng, tasks, 4);
        let best = keeps_contract("exhaustive[nodes=3000000]", &outline, &grid).makespan_s;
        for name in fast().map(whole_copies) {
            let makespan_s = plan(name, &outline, &grid).makespan_s;
            assert!(best <= makespan_s * (1.0 + 1e-9), "seed {seed}: {name} takes {makespan_s} s, exhaustive {best} s");
        }
        let heft = plan("heft", &outline, &grid).makespan_s;
        assert!(heft <= best * 1.5 + 1e-9, "seed {seed}: heft takes {heft} s, the best is {best} s");
        if best > 0.0 {
            ratios.push(heft / best);
        }
    }
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!(mean < 1.02, "heft takes {mean} times the best on average");
}

#[test]
fn improvers_are_never_worse_than_what_they_start_from() {
    let mut better = [0, 0];
    for seed in 0..60 {
        let mut rng = SplitMix64::new(2000 + seed);
        let servers = 1 + rng.below(5) as usize;
        let (tasks, grid) = (rng.below(40) as usize, random_grid(&mut rng, servers));
        let outline = random_graph(&mut rng, tasks, 4);
        for from in ["heft", "mct", "random", "local[from=greedy,steps=9000]"] {
            let start_s = plan(from, &outline, &grid).makespan_s;
            for (number, name) in ["local", "anneal"].into_iter().enumerate() {
                let spec = format!("{name}[from={from},steps=50000]");
                let end_s = keeps_contract(&spec, &outline, &grid).makespan_s;
                assert!(end_s <= start_s, "seed {seed}: {spec} makes {end_s} s of {start_s} s");
                better[number] += u32::from(end_s < 0.999 * start_s);
            }
        }
    }
    assert!(better.into_iter().all(|count| count > 120), "{better:?} of 240 are better");
}

/// The acceptance case: 8 matrices are sent, P2, P4 and Q2 are moved, 1 matrix is returned: the client's link carries 9 of 21.
#[test]
fn a_chain_of_matrices_moves_what_it_must() {
    let outline = matrix_chain(2048);
    for speeds in [[10e9; 4], [10e9, 10.3e9, 9.8e9, 10.1e9]] {
        let grid = grid(&speeds);
        assert_eq!(traffic(&plan(TIDY, &outline, &grid)), [8, 3, 1]);
        assert_eq!(traffic(&plan("mct", &outline, &grid)), [14, 0, 7]);
    }
    let star = disconnected(grid(&[10e9; 4]));
    assert_eq!(traffic(&plan(TIDY, &outline, &star)), [8 + 3, 0, 3 + 1]);
    let (heft, mct) = (plan(TIDY, &outline, &grid(&[10e9; 4])), plan("mct", &outline, &grid(&[10e9; 4])));
    assert!(heft.makespan_s < 0.85 * mct.makespan_s, "{} s, plain {} s", heft.makespan_s, mct.makespan_s);
}

#[test]
fn a_datum_that_all_read_goes_to_each_server_once() {
    let mut build = crate::testing::Build::new(1);
    let database = build.source(1 << 30);
    (0..40).for_each(|_| {
        build.task(0, 1e10, &[database], 8);
    });
    let outline = build.done();
    assert_eq!(traffic(&plan("greedy", &outline, &grid(&[1e9; 4]))), [4, 0, 40]);
    let mut far = grid(&[1e9; 4]);
    far.client_links[1..].iter_mut().for_each(|link| link.bandwidth = 1e6);
    assert_eq!(traffic(&plan("greedy", &outline, &far)), [1, 3, 40], "the others have it from the first");
    assert_eq!(traffic(&plan("mct", &outline, &grid(&[1e9; 4]))), [40, 0, 40]);
}

/// Section 2.1 of the SmartGridRPC paper. The servers run 2 and 1 operations per second. In call order, the task of 1 operation
/// would take the fast server, and the task of 4 would end there after 0.5 + 2 = 2.5 s. By size, the fast server gets the task of
/// 4 (2 s), and the slow one the task of 1 (1 s, not 2 + 0.5). The tasks of the second level (6 and 8) are placed by size as well:
/// the task of 8 waits for 2 s and ends on the fast server at 6 s (on the slow one at 10 s), the task of 6 ends on the slow one
/// at 8 s (on the fast one at 9 s).
#[test]
fn greedy_maps_ready_tasks_in_order_of_size() {
    let mut build = crate::testing::Build::new(1);
    let small = build.task(0, 1.0, &[], 0);
    let large = build.task(0, 4.0, &[], 0);
    build.task(0, 6.0, &[small, large], 0);
    build.task(0, 8.0, &[small, large], 0);
    let mut grid = grid(&[2.0, 1.0]);
    grid.client_links.iter_mut().chain(grid.links.iter_mut().flatten().flatten()).for_each(|link| link.latency_s = 0.0);
    let plan = plan("greedy_map", &build.done(), &grid);
    let (fast, slow) = (grid.servers[0].node, grid.servers[1].node);
    let placed: Vec<(NodeId, f64, f64)> =
        plan.tasks.iter().map(|task| (task.server, task.start_s, task.end_s)).collect();
    assert_eq!(placed, [(slow, 0.0, 1.0), (fast, 0.0, 2.0), (slow, 2.0, 8.0), (fast, 2.0, 6.0)]);
}

#[test]
fn data_at_a_server_are_read_there() {
    let mut build = crate::testing::Build::new(1);
    let held = build.source(1 << 30);
    build.0.data[0].at = vec![gridloom_base::NodeId(102)];
    build.task(0, 1e8, &[held], 8);
    let outline = build.done();
    let plan = plan("heft", &outline, &grid(&[1e9, 1e9, 1e9]));
    assert_eq!((plan.tasks[0].server.0, traffic(&plan)), (102, [0, 0, 1]));
}

/// A gap before a task that waits for its data is filled by a short task; without insertion it stays empty.
#[test]
fn insertion_fills_gaps() {
    let mut build = crate::testing::Build::new(1);
    let (large, small) = (build.source(400_000_000), build.source(8));
    build.task(0, 5e9, &[large], 8);
    build.task(0, 1e9, &[small], 8);
    let outline = build.done();
    let makespan_s = |spec| plan(spec, &outline, &grid(&[1e9])).makespan_s;
    assert!(makespan_s("heft") < 9.1 && makespan_s("heft[insertion=no]") > 9.9);
}

#[test]
fn a_plan_that_was_changed_is_refused() {
    let (outline, grid) = (matrix_chain(512), grid(&[1e9; 4]));
    let problem = Problem::new(&outline, &grid, CLIENT).unwrap();
    let good = plan(TIDY, &outline, &grid);
    let refused = |change: &dyn Fn(&mut Plan), why: &str| {
        let mut bad = good.clone();
        change(&mut bad);
        let found = bad.validate(&problem).expect_err(why);
        assert!(found.contains(why), "'{found}' does not say '{why}'");
    };
    refused(&|plan| plan.tasks.truncate(6), "it has 6 tasks");
    refused(&|plan| plan.tasks[0].server = CLIENT, "not a server of the grid");
    refused(&|plan| plan.tasks[0].end_s += 1.0, "was given");
    refused(&|plan| plan.tasks[1] = plan.tasks[0], "runs 2 tasks");
    refused(&|plan| plan.transfers = plan.transfers.split_off(1), "is not at server");
    refused(&|plan| plan.transfers.truncate(11), "does not reach the client");
    refused(&|plan| plan.transfers[0].size_bytes = 1, "not 1");
    refused(&|plan| plan.transfers[0].end_s = 0.0, "it takes");
    refused(&|plan| plan.transfers[0].from = plan.tasks[6].server, "");
    refused(&|plan| plan.transfers.reverse(), "not in order");
    refused(&|plan| plan.makespan_s *= 2.0, "its makespan");
    refused(&|plan| plan.lower_bound_s *= 2.0, "below the bound");
}

#[test]
fn a_group_that_cannot_be_mapped_reports_the_reason() {
    let fails = |change: &dyn Fn(&mut Outline, &mut GridView)| {
        let (mut outline, mut grid) = (matrix_chain(512), grid(&[1e9; 2]));
        change(&mut outline, &mut grid);
        Problem::new(&outline, &grid, CLIENT).expect_err("the problem is bad").to_string()
    };
    let says = |text: String, part: &str| assert!(text.contains(part), "'{text}' does not say '{part}'");
    says(fails(&|_, grid| *grid = GridView::default()), "no server is known");
    says(fails(&|outline, _| outline.functions[0] = "m/gone".into()), "no server offers function 'm/gone'");
    says(fails(&|_, grid| grid.servers.iter_mut().for_each(|s| s.memory_bytes = 99)), "has 99 bytes");
    says(fails(&|outline, _| outline.tasks.swap(0, 6)), "must come after those they depend on");
    says(fails(&|outline, _| outline.tasks[0].inputs[1] = 9), "task 0 reads datum 9, which task 1 makes");
    says(fails(&|outline, _| outline.tasks[0].inputs[1] = 8), "datum 8, which task 0 makes");
    says(fails(&|outline, _| outline.tasks[0].inputs[1] = 0), "twice");
    says(fails(&|outline, _| outline.tasks[0].inputs[1] = 77), "datum 77, and there is none");
    says(fails(&|outline, _| outline.tasks[0].function = 7), "function number 7");
    says(fails(&|outline, _| outline.tasks[3].outputs.clear()), "maker does not list it");
    for work in [f64::NAN, -1.0, f64::INFINITY] {
        says(fails(&|outline, _| outline.tasks[2].work_flops = Some(work)), "task 2 ('m/f0') states a work of");
    }
    says(fails(&|outline, _| outline.data[0].at.clear()), "datum 0 is neither made");
    let on = |node| {
        move |outline: &mut Outline, _: &mut GridView| outline.tasks[2].bound_to = Some(gridloom_base::NodeId(node))
    };
    says(fails(&on(77)), "task 2 ('m/f0') is bound to server");
    says(fails(&on(CLIENT.0)), "which is not in the grid: it runs on no other");
    let with = |change: &dyn Fn(&mut GridView)| {
        fails(&|outline, grid| {
            on(101)(outline, grid);
            change(grid);
        })
    };
    says(with(&|grid| grid.servers[1].functions.clear()), "task 2 is on server 's1', which does not offer 'm/f0'");
    says(
        with(&|grid| grid.servers[1].memory_bytes = 99),
        "task 2 ('m/f0') is on server 's1', whose store has 99 bytes",
    );
    says(fails(&|_, grid| grid.servers[1].node = CLIENT), "two nodes");
    says(fails(&|_, grid| grid.servers[1].slots = 0), "server 's1' cannot be used: it has 0 slots");
    says(fails(&|_, grid| grid.servers[1].speed_flops = Some(f64::NAN)), "server 's1'");
    says(fails(&|_, grid| grid.servers[1].busy_s = vec![f64::NAN]), "busy for NaN s");
    says(fails(&|_, grid| grid.client_links.truncate(1)), "one entry for each of the 2 servers");
    let dead = LinkEstimate { latency_s: 0.0, bandwidth: 0.0 };
    says(fails(&|_, grid| grid.client_links[0] = dead), "link between 'the client' and 's0'");
    says(fails(&|_, grid| grid.links[1][0] = Some(dead)), "link between 's1' and 's0'");
}

#[test]
fn a_search_without_end_is_refused_or_cut_short() {
    let outline = independent(30, 1e9);
    keeps_contract("branch-and-bound[nodes=1000]", &outline, &grid(&[1e9, 1.1e9, 1.7e9]));
    let error = map_group("exhaustive[nodes=1000]", &outline, &grid(&[1e9, 1.1e9, 1.7e9]), CLIENT);
    assert_eq!(error, Err(MapError::TooManyNodes { tasks: 30, servers: 3, budget: 1000 }));
}

/// Stops at the given number of queries.
fn stop_after(questions: u32) -> Stop {
    let asked = std::sync::atomic::AtomicU32::new(0);
    Stop::when(move || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= questions)
}

#[test]
fn all_end_when_they_are_stopped() {
    let (outline, grid) = (fork_join(60), grid(&[1e9, 2e9, 3e9, 2e9]));
    let map = |spec: &str, stop| MappingMethod::from(spec).map(&outline, &grid, CLIENT, stop);
    for entry in HEURISTICS {
        assert_eq!(map(entry.name, stop_after(0)), Err(MapError::Stopped), "{}", entry.name);
        assert_eq!(map(entry.name, stop_after(1)), Err(MapError::Stopped), "{}", entry.name);
    }
    // A search that has its first plan returns it, or a better one.
    for spec in ["anneal[steps=10000000000000000]", "local[steps=10000000000000000]", "auto[steps=10000000000000000]"] {
        let asks_of_heft = outline.tasks.len() as u32;
        for questions in [asks_of_heft, asks_of_heft + 1, asks_of_heft + 100, 100_000] {
            let plan = map(spec, stop_after(questions)).unwrap_or_else(|error| panic!("{spec}, {questions}: {error}"));
            plan.validate(&Problem::new(&outline, &grid, CLIENT).unwrap()).unwrap();
            assert!(plan.makespan_s <= map("heft", Stop::NEVER).unwrap().makespan_s * 1.05, "{spec}, {questions}");
        }
    }
}
