//! Programs on simulated platforms that change: profiles of speeds, links and hosts.

use crate::support;
use gridloom::base::{Dtype, Meta};
use gridloom::{Arg, Grid, Report, Value};

fn platform() -> String {
    support::star(&[("client", "1Gf"), ("server-1", "2Gf"), ("server-2", "1Gf")], "100MBps", "1ms")
}

/// A grid on that platform, with additional files (name, text) beside it.
fn grid(test: &str, platform: &str, files: &[(&str, &str)]) -> Grid {
    Grid::simulate(support::simulation(test, platform, support::SQUARE, files)).unwrap()
}

/// The platform with a profile.
fn with(profile: &str) -> String {
    format!("{}[[profile]]\n{profile}\n", platform())
}

/// `count` products in a chain, each of 2 Gflop on 8 MB.
fn chain(grid: &Grid, count: usize) -> Report {
    let product = grid.function("kernels/product").unwrap();
    let group = grid.group("heft");
    let mut last = None;
    for _ in 0..count {
        let matrix = Value::placeholder(Meta::array(Dtype::Float64, &[1000, 1000]));
        let input = last.as_ref().map_or(Arg::from(&matrix), Arg::from);
        last = Some(group.call(&product, [input]).unwrap().one().unwrap());
    }
    last.unwrap().get().unwrap();
    group.report().unwrap()
}

#[test]
fn tasks_follow_the_speed_of_their_host() {
    let steady = chain(&grid("profile-none", &platform(), &[]), 1);
    assert_eq!(steady.tasks[0].server, "server-1");
    let taken = |report: &Report| report.tasks[0].end_seconds - report.tasks[0].start_seconds;
    assert!((taken(&steady) - 1.0).abs() < 1e-6, "{steady}");
    // At a quarter of its speed, the other server is measured to be faster.
    let slow = chain(&grid("profile-slow", &with("host = 'server-1'\nkind = 'speed'\nevents = [[0, 0.25]]"), &[]), 1);
    assert_eq!(slow.tasks[0].server, "server-2");
    // Slow while the task runs.
    let later = with("host = 'server-1'\nkind = 'speed'\nevents = [[0, 1], [1.2, 0.5]]");
    let later = chain(&grid("profile-slows", &later, &[]), 1);
    assert_eq!(later.tasks[0].server, "server-1");
    assert!(taken(&later) > 1.05 && taken(&later) < 2.0 + 1e-6, "{later}");
}

#[test]
fn data_follow_bandwidth_and_latency() {
    let steady = chain(&grid("profile-steady", &platform(), &[]), 1).measured_seconds;
    let narrow = "link = 'lan_link_client_UP'\nkind = 'bandwidth'\nevents = [[0, 10e6]]";
    let narrow = chain(&grid("profile-narrow", &with(narrow), &[]), 1).measured_seconds;
    assert!(narrow > steady + 0.6, "{steady} {narrow}");
    let far = "link = 'lan_link_client_UP'\nkind = 'latency'\nevents = [[0, 0.5]]";
    let far = chain(&grid("profile-far", &with(far), &[]), 1).measured_seconds;
    assert!(far > steady + 0.9, "{steady} {far}");
}

#[test]
fn a_host_that_is_off_loses_its_server_which_returns_with_it() {
    let profile = "host = 'server-1'\nkind = 'state'\nevents = [[3, 0], [20, 1]]";
    let run = |test: &str| {
        let grid = grid(test, &with(profile), &[]);
        let report = chain(&grid, 4);
        assert_eq!(report.lost_servers.len(), 1, "{report}");
        assert!(report.lost_servers[0].contains("its host is off"), "{:?}", report.lost_servers);
        assert_eq!(report.tasks.last().unwrap().server, "server-2");
        assert_eq!(report.tasks_failed, 0);
        assert_eq!(grid.servers().servers.len(), 1);
        grid.advance(20.0);
        assert_eq!(grid.servers().servers.len(), 2);
        assert_eq!(chain(&grid, 1).tasks[0].server, "server-1");
        grid.simulation().unwrap().trace_hash
    };
    assert_eq!(run("profile-off-a"), run("profile-off-b"));
}

#[test]
fn results_that_are_lost_after_the_end_are_reported_when_they_are_computed_again() {
    let profile = "host = 'server-1'\nkind = 'state'\nevents = [[20, 0]]";
    let grid = grid("profile-lost-later", &with(profile), &[]);
    let product = grid.function("kernels/product").unwrap();
    let group = grid.group("heft");
    let matrix = Value::placeholder(Meta::array(Dtype::Float64, &[1000, 1000]));
    let square = group.call(&product, [&matrix]).unwrap().one().unwrap();
    let fourth = group.call(&product, [&square]).unwrap().one().unwrap();
    group.wait().unwrap();
    let before = group.report().unwrap();
    assert_eq!((before.lost_servers.len(), before.tasks_again), (0, 0));
    assert!(before.tasks.iter().all(|task| task.server == "server-1"), "{before}");
    // Long enough for the loss to be noticed.
    grid.advance(100.0);
    assert_eq!(grid.servers().servers.len(), 1);
    fourth.get().unwrap();
    square.get().unwrap();
    let report = group.report().unwrap();
    assert_eq!((report.lost_servers.len(), report.tasks_again, report.tasks.len()), (1, 2, 4), "{report}");
    let told = report.to_string();
    assert!(told.starts_with("2 calls on 2 servers"), "{told}");
    assert!(told.contains("lost server server-1 (") && told.contains("2 calls ran again elsewhere"), "{told}");
}

#[test]
fn a_link_that_is_off_is_a_cut() {
    // The result waits until the link works again; the server is not considered lost within that time.
    let profile = "link = 'lan_link_server-1_UP'\nkind = 'state'\nevents = [[0.9, 0], [4, 1]]";
    let grid = grid("profile-cut", &with(profile), &[]);
    let report = chain(&grid, 1);
    assert_eq!((report.lost_servers.len(), report.tasks_failed), (0, 0));
    assert!(grid.now() > 4.0 && grid.now() < 5.0, "{}", grid.now());
}

#[test]
fn a_client_whose_host_is_off_reports_it() {
    let grid = grid("profile-client", &with("host = 'client'\nkind = 'state'\nevents = [[3, 0]]"), &[]);
    let product = grid.function("kernels/product").unwrap();
    grid.advance(5.0);
    let matrix = Value::placeholder(Meta::array(Dtype::Float64, &[1000, 1000]));
    let error = product.call([&matrix]).unwrap_err().to_string();
    assert_eq!(error, "the simulated client is gone: its host is off");
}

#[test]
fn simgrids_files_name_profiles_beside_them() {
    let platform = "<?xml version='1.0'?><!DOCTYPE platform SYSTEM 'https://simgrid.org/simgrid.dtd'>\n\
        <platform version='4.1'><zone id='z' routing='Full'>\n\
        <host id='client' speed='1Gf'/><host id='server' speed='2Gf' speed_file='server.speed' state_file='server.state'/>\n\
        <link id='l' bandwidth='100MBps' latency='1ms' bandwidth_file='l.bandwidth' latency_file='l.latency'\n\
              state_file='l.state'/>\n\
        <route src='client' dst='server'><link_ctn id='l'/></route></zone></platform>\n";
    let files = [
        ("server.speed", "0 0.5\n"),
        ("server.state", "0 1\n100 0\n"),
        ("l.bandwidth", "0 50000000\n"),
        ("l.latency", "0 0.1\n"),
        ("l.state", "0 1\n1.5 0\n5 1\n"),
    ];
    let grid = grid("profile-xml", platform, &files);
    let report = chain(&grid, 1);
    // At 1 Gflop/s it takes two seconds; then the link is off.
    assert!((report.tasks[0].end_seconds - report.tasks[0].start_seconds - 2.0).abs() < 1e-6, "{report}");
    assert!(grid.now() > 5.16 && grid.now() < 8.0, "{}", grid.now());
    grid.advance(100.0);
    assert!(grid.servers().servers.is_empty());
}

/// `count` independent products of 2 Gflop.
fn many(grid: &Grid, count: usize, heuristic: &str) -> Report {
    let product = grid.function("kernels/product").unwrap();
    let group = grid.group(heuristic);
    let matrix = Value::placeholder(Meta::array(Dtype::Float64, &[1000, 1000]));
    let results: Vec<_> = (0..count).map(|_| group.call(&product, [&matrix]).unwrap().one().unwrap()).collect();
    results.into_iter().for_each(|result| result.get().map(drop).unwrap());
    group.report().unwrap()
}

/// Two servers of 2 Gflop/s on a fast network; the first falls to a quarter of its speed 20 s after the start.
fn slows_down() -> String {
    let fast = platform().replace("speed = \"1Gf\"", "speed = \"2Gf\"").replace("100MBps", "10GBps");
    format!("{fast}[[profile]]\nhost = 'server-1'\nkind = 'speed'\nevents = [[0, 1], [20, 0.25]]\n")
}

#[test]
fn what_is_left_is_mapped_again_when_a_server_slows_down() {
    let run = |test: &str| {
        let grid = grid(test, &slows_down(), &[]);
        many(&grid, 8, "heft");
        grid.advance(15.0 - grid.now());
        // 40 s of work for two servers; after 5 s one has a quarter of its speed left: 5 s + 30 s / 1.25.
        let report = many(&grid, 40, "heft");
        (report.measured_seconds, report.plans.len(), grid.simulation().unwrap().trace_hash)
    };
    let (seconds, plans, hash) = run("slows-a");
    let ideal = 5.0 + 30.0 / 1.25;
    assert!(seconds < 1.15 * ideal, "{seconds} s, ideal {ideal} s");
    assert!((2..8).contains(&plans), "mapped {plans} times");
    assert_eq!(run("slows-b").2, hash);
}

#[test]
fn a_plan_that_was_not_made_from_times_is_kept() {
    let grid = grid("slows-kept", &slows_down(), &[]);
    many(&grid, 8, "heft");
    grid.advance(15.0 - grid.now());
    let report = many(&grid, 40, "round-robin");
    assert_eq!(report.plans.len(), 1);
    assert!(report.measured_seconds > 50.0, "{}", report.measured_seconds);
}
