//! Whole programs on simulated grids: the same state machines as for real, in virtual time.

use crate::support;
use std::sync::Barrier;
use std::time::Duration;

use gridloom::base::{Dtype, Meta};
use gridloom::{Error, Grid, Group, Handle, Report, SimulateConfig, Value};

fn star() -> String {
    support::star(
        &[("client", "1Gf"), ("server-1", "10Gf"), ("server-2", "10Gf"), ("server-3", "10Gf"), ("server-4", "10Gf")],
        "1GBps",
        "50us",
    )
}

fn config(test: &str, platform: &str) -> SimulateConfig {
    support::simulation(test, platform, support::PRODUCT, &[])
}

/// The product of eight matrices as a binary tree.
fn chain(grid: &Grid, n: u64, heuristic: &str) -> (Handle, Report) {
    let product = grid.function("kernels/product").unwrap();
    let matrix = || Value::placeholder(Meta::array(Dtype::Float64, &[n, n]));
    let group = grid.group(heuristic);
    let mut level: Vec<Handle> = Vec::new();
    for _ in 0..4 {
        level.push(group.call(&product, (matrix(), matrix())).unwrap().one().unwrap());
    }
    while level.len() > 1 {
        level =
            level.chunks(2).map(|pair| group.call(&product, (&pair[0], &pair[1])).unwrap().one().unwrap()).collect();
    }
    group.wait().unwrap();
    let last = level.remove(0);
    last.get().unwrap();
    (last, group.report().unwrap())
}

#[test]
fn a_group_moves_no_byte_that_it_need_not() {
    let grid = Grid::simulate(config("traffic", &star())).unwrap();
    let n = 1024;
    let (_, report) = chain(&grid, n, "heft[slack=0.05,polish=1000000]");
    assert_eq!((report.client_bytes, report.server_bytes), (9 * 8 * n * n, 3 * 8 * n * n), "{report}");
    assert_eq!(report.tasks.len(), 7);
    assert_eq!(report.tasks_failed, 0);
}

#[test]
fn the_same_seed_produces_the_same_trace() {
    let run = |name: &str| {
        let grid = Grid::simulate(config(name, &star())).unwrap();
        let (_, report) = chain(&grid, 512, "heft");
        (grid.simulation().unwrap(), report)
    };
    assert_eq!(run("same-a"), run("same-b"));
}

#[test]
fn a_program_runs_under_the_faults_of_a_scenario() {
    let run = |name: &str, faults: &str| {
        let mut config = config(name, &star());
        let file = config.platform.with_file_name("scenario.faults");
        std::fs::write(&file, faults).unwrap();
        config.faults = Some(file);
        let grid = Grid::simulate(config)?;
        let (_, report) = chain(&grid, 1024, "heft");
        assert_eq!(report.tasks_failed, 0);
        Ok::<f64, Error>(grid.simulation().unwrap().seconds)
    };
    let undisturbed = run("faults-none", "# nothing").unwrap();
    let slowed = ["server-1", "server-2", "server-3", "server-4"].map(|host| format!("at 0s slow {host} 0.01\n"));
    assert!(run("faults-slow", &slowed.concat()).unwrap() > 2.0 * undisturbed);
    let error = run("faults-unknown", "at 1s kill server-5").unwrap_err().to_string();
    assert!(
        error.contains("scenario.faults:1:12: no node is called 'server-5'; there are agent, server-1, "),
        "{error}"
    );
}

#[test]
fn the_prediction_is_near_the_simulated_time() {
    let grid = Grid::simulate(config("predicted", &star())).unwrap();
    let (_, report) = chain(&grid, 2048, "heft");
    let ratio = report.measured_seconds / report.predicted_seconds;
    assert!(
        (0.8..1.25).contains(&ratio),
        "predicted {} measured {}",
        report.predicted_seconds,
        report.measured_seconds
    );
}

#[test]
fn a_result_that_is_not_fetched_is_not_in_the_prediction() {
    let grid = Grid::simulate(config("unfetched", &star())).unwrap();
    let product = grid.function("kernels/product").unwrap();
    let n = 1024;
    let matrix = || Value::placeholder(Meta::array(Dtype::Float64, &[n, n]));
    let group = grid.group("auto");
    let result = group.call(&product, (matrix(), matrix())).unwrap().one().unwrap();
    group.wait().unwrap();
    let before = group.report().unwrap();
    let (home_s, way_s) = (before.plans[0].makespan_seconds, 8.0 * (n * n) as f64 / 1e9);
    assert!(before.predicted_seconds + 0.9 * way_s < home_s, "{} of {home_s}", before.predicted_seconds);
    let ratio = before.measured_seconds / before.predicted_seconds;
    assert!((0.8..1.25).contains(&ratio), "{before}");
    result.get().unwrap();
    assert_eq!(group.report().unwrap().predicted_seconds.to_bits(), home_s.to_bits());
}

#[test]
fn plain_calls_drag_everything_through_the_client() {
    let grid = Grid::simulate(config("plain", &star())).unwrap();
    let product = grid.function("product").unwrap();
    let n = 512;
    let matrix = || Value::placeholder(Meta::array(Dtype::Float64, &[n, n]));
    let mut level: Vec<Value> = (0..8).map(|_| matrix()).collect();
    while level.len() > 1 {
        let pending: Vec<_> =
            level.chunks(2).map(|pair| product.submit((&pair[0], &pair[1]), &[], None).unwrap()).collect();
        level = pending.into_iter().map(|call| call.wait().unwrap().one().unwrap()).collect();
    }
    let traffic = grid.traffic();
    assert_eq!((traffic.client_bytes, traffic.server_bytes), (21 * 8 * n * n, 0));
}

/// The star, with the first `plain` servers stateless.
fn star_with_plain(plain: usize) -> String {
    let made_plain = |text: String, number: usize| {
        let name = format!("name = \"server-{number}\"\n");
        text.replace(&name, &format!("{name}properties = {{ plain = \"yes\" }}\n"))
    };
    (1..=plain).fold(star(), made_plain)
}

#[test]
fn groups_on_stateless_servers_move_what_plain_calls_move_and_as_predicted() {
    let n = 1024;
    let matrix = 8 * n * n;
    for plain in 0..=4 {
        for heuristic in ["heft", "auto"] {
            let grid = Grid::simulate(config(&format!("plain-{plain}-{heuristic}"), &star_with_plain(plain))).unwrap();
            let (_, report) = chain(&grid, n, heuristic);
            assert_eq!(report.tasks_failed, 0);
            let ratio = report.measured_seconds / report.predicted_seconds;
            assert!((0.8..1.25).contains(&ratio), "{plain} plain, {heuristic}: {ratio}\n{report}");
            if plain == 4 {
                assert_eq!((report.client_bytes, report.server_bytes), (21 * matrix, 0), "{heuristic}\n{report}");
            }
        }
    }
}

#[test]
fn each_call_on_a_stateless_server_brings_what_it_reads() {
    let grid = Grid::simulate(config("plain-shared", &star_with_plain(4))).unwrap();
    let (n, calls) = (512, 12);
    let product = grid.function("product").unwrap();
    let matrix = || Value::placeholder(Meta::array(Dtype::Float64, &[n, n]));
    let held = grid.hold(&matrix());
    let group = grid.group("auto");
    let results: Vec<Handle> =
        (0..calls).map(|_| group.call(&product, (&held, matrix())).unwrap().one().unwrap()).collect();
    group.wait().unwrap();
    results.iter().for_each(|result| drop(result.get().unwrap()));
    assert_eq!(group.report().unwrap().client_bytes, 3 * calls * 8 * n * n);
}

#[test]
fn groups_run_where_few_servers_can_talk_and_some_are_plain() {
    // The client can reach all servers; the first two servers can reach each other.
    let hosts: String = (1..=4)
        .map(|number| {
            let plain = if number == 4 { "yes" } else { "no" };
            format!("[[host]]\nname = \"server-{number}\"\nspeed = \"10Gf\"\nproperties = {{ plain = \"{plain}\" }}\n")
        })
        .collect();
    let pairs = [("client", 1), ("client", 2), ("client", 3), ("client", 4), ("server-1", 2)];
    let ways: String = (0..)
        .zip(pairs)
        .map(|(number, (from, to))| {
            format!(
                "[[link]]\nname = \"way-{number}\"\nbandwidth = \"1GBps\"\nlatency = \"50us\"\nsharing = \"splitduplex\"\n\
                 [[route]]\nfrom = \"{from}\"\nto = \"server-{to}\"\nlinks = [\"way-{number}:up\"]\n"
            )
        })
        .collect();
    let platform = format!("[[host]]\nname = \"client\"\nspeed = \"1Gf\"\n{hosts}{ways}");
    for heuristic in ["heft", "auto", "round-robin"] {
        let grid = Grid::simulate(config(&format!("partly-{heuristic}"), &platform)).unwrap();
        let (_, report) = chain(&grid, 1024, heuristic);
        assert_eq!(report.tasks_failed, 0);
        let ratio = report.measured_seconds / report.predicted_seconds;
        assert!((0.8..1.25).contains(&ratio), "{heuristic}: {ratio}\n{report}");
        let straight = ["server-1 -> server-2", "server-2 -> server-1"];
        let is_known = |link: &String| link.contains("client") || straight.contains(&link.as_str());
        assert!(report.by_link.keys().all(is_known), "{report}");
    }
}

#[test]
fn arrays_of_many_gibibytes_are_only_sizes() {
    let big = star().replace("speed = \"10Gf\"", "speed = \"10Gf\"\nproperties = { memory = \"1TiB\" }");
    let grid = Grid::simulate(config("big", &big)).unwrap();
    let n = 50_000;
    let (handle, report) = chain(&grid, n, "heft");
    assert_eq!(handle.meta().size_bytes(), 8 * n * n);
    assert_eq!(report.client_bytes, 9 * 8 * n * n);
}

#[test]
fn a_hundred_thousand_calls_make_a_group() {
    let grid = Grid::simulate(config("many", &star())).unwrap();
    let product = grid.function("kernels/product").unwrap();
    let group = grid.group("heft");
    let matrix = Value::placeholder(Meta::array(Dtype::Float64, &[4, 4]));
    // A thousand chains of a hundred calls: dropped handles are released as soon as their readers have run.
    let mut last = Vec::new();
    for _ in 0..1000 {
        let mut handle = group.call(&product, (&matrix, &matrix)).unwrap().one().unwrap();
        for _ in 1..100 {
            handle = group.call(&product, (&handle, &matrix)).unwrap().one().unwrap();
        }
        last.push(handle);
    }
    group.wait().unwrap();
    let report = group.report().unwrap();
    assert_eq!((report.tasks.len(), report.tasks_failed), (100_000, 0));
    assert_eq!(last.pop().unwrap().get().unwrap().meta(), matrix.meta());
}

#[test]
fn threads_may_wait_for_the_same_result() {
    let grid = Grid::simulate(config("threads", &star())).unwrap();
    let product = grid.function("kernels/product").unwrap();
    let matrix = Value::placeholder(Meta::array(Dtype::Float64, &[64, 64]));
    for _ in 0..50 {
        let group = grid.group("heft");
        let handle = group.call(&product, (&matrix, &matrix)).unwrap().one().unwrap();
        let together = Barrier::new(8);
        std::thread::scope(|scope| {
            let get = || {
                together.wait();
                handle.get().map(|value| value.meta().clone())
            };
            let waiting: Vec<_> = (0..8).map(|_| scope.spawn(get)).collect();
            for one in waiting {
                assert_eq!(one.join().unwrap().unwrap(), *matrix.meta());
            }
        });
    }
}

#[test]
fn a_wait_may_have_a_limit() {
    let grid = Grid::simulate(config("limit", &star())).unwrap();
    let product = grid.function("kernels/product").unwrap();
    let matrix = Value::placeholder(Meta::array(Dtype::Float64, &[1000, 1000]));
    let group = grid.group("heft");
    let handle = group.call(&product, (&matrix, &matrix)).unwrap().one().unwrap();
    let begin = grid.now();
    let told = handle.get_within(Duration::from_millis(10)).unwrap_err();
    assert!(matches!(told, Error::TimedOut { limit_seconds } if limit_seconds == 0.01), "{told}");
    assert!((grid.now() - begin - 0.01).abs() < 1e-6, "time passes while somebody waits");
    assert_eq!(handle.get().unwrap().meta(), matrix.meta());
    let call = product.submit((&matrix, &matrix), &[], None).unwrap();
    assert!(matches!(call.watch().wait(Some(Duration::from_millis(10))), Err(Error::TimedOut { .. })));
    assert_eq!(call.wait().unwrap()[0].meta(), matrix.meta());
}

#[test]
fn a_call_that_never_ran_reports_the_reason() {
    let grid = Grid::simulate(config("discarded", &star())).unwrap();
    let product = grid.function("kernels/product").unwrap();
    let matrix = Value::placeholder(Meta::array(Dtype::Float64, &[4, 4]));
    let record = |group: &Group| group.call(&product, (&matrix, &matrix)).unwrap().one().unwrap();
    let says = |handle: &Handle| handle.get().unwrap_err().to_string();
    let group = grid.group("heft");
    let ran = record(&group);
    group.wait().unwrap();
    let never = record(&group);
    group.discard_because("the sky fell");
    assert_eq!(says(&never), "the call of 'kernels/product' never ran: the sky fell");
    assert_eq!(ran.get().unwrap().meta(), matrix.meta());
    let told = group.call(&product, (&never, &ran)).unwrap_err();
    assert!(matches!(told, Error::Discarded { .. }), "{told}");
    assert_eq!(group.recorded(), 0);
    let dropped = record(&grid.group("heft"));
    assert!(says(&dropped).ends_with("never ran: its group was dropped before it was launched"), "{}", says(&dropped));
}

#[test]
fn a_store_that_is_too_small_is_reported_by_function() {
    let small = star().replace("speed = \"10Gf\"", "speed = \"10Gf\"\nproperties = { memory = \"1MiB\" }");
    let grid = Grid::simulate(config("small", &small)).unwrap();
    let product = grid.function("kernels/product").unwrap();
    let matrix = Value::placeholder(Meta::array(Dtype::Float64, &[400, 400]));
    let told = product.call((&matrix, &matrix)).unwrap_err().to_string();
    assert!(told.contains("a call of 'kernels/product' needs 3840000 bytes for its arguments and results"), "{told}");
}

#[test]
fn groups_that_nobody_can_ask_about_are_forgotten() {
    let grid = Grid::simulate(config("forgotten", &star())).unwrap();
    let product = grid.function("kernels/product").unwrap();
    let matrix = Value::placeholder(Meta::array(Dtype::Float64, &[4, 4]));
    let run = || {
        let group = grid.group("heft");
        let mut handle = group.call(&product, (&matrix, &matrix)).unwrap().one().unwrap();
        for _ in 1..100 {
            handle = group.call(&product, (&handle, &matrix)).unwrap().one().unwrap();
        }
        group.launch().unwrap();
        (group, handle)
    };
    for _ in 0..50 {
        run().1.get().unwrap();
        let (groups, tasks, data) = grid.memory_counts();
        assert!(groups <= 2 && tasks <= 200 && data <= 202, "{groups} groups, {tasks} tasks, {data} data");
    }
    // A handle keeps its group's record, which may be needed to explain an error; so does the group, for its report.
    let (group, handle) = run();
    drop(group);
    handle.get().unwrap();
    let (kept, _) = run();
    kept.wait().unwrap();
    run().1.get().unwrap();
    assert_eq!(grid.memory_counts().0, 3);
    assert_eq!(kept.report().unwrap().tasks.len(), 100);
    assert_eq!(grid.simulation().unwrap().groups.len(), 53, "a simulation's report tells of all groups");
    drop((handle, kept));
    run().1.get().unwrap();
    assert_eq!(grid.memory_counts().0, 1);
}
