//! Results that are prefetched to the client or to servers, on a simulated grid.

use crate::support;
use gridloom::base::{Dtype, Meta};
use gridloom::{Arg, Error, Graph, GraphOptions, Grid, Group, Handle, Regroup, Value};

/// A product of two matrices takes 0.2 s, and the transfer of a matrix to the client 80 ms.
const EXTENT: u64 = 1000;
const BYTES: u64 = 8 * EXTENT * EXTENT;

fn pair() -> String {
    support::star(&[("client", "1Gf"), ("server", "10Gf")], "100MBps", "50us")
}

fn grid(test: &str) -> Grid {
    Grid::simulate(support::simulation(test, &pair(), support::PRODUCT, &[])).unwrap()
}

fn matrix() -> Value {
    Value::placeholder(Meta::array(Dtype::Float64, &[EXTENT, EXTENT]))
}

fn product(grid: &Grid, group: &Group, a: impl Into<Arg>, b: impl Into<Arg>) -> Handle {
    group.call(&grid.function("kernels/product").unwrap(), (a, b)).unwrap().one().unwrap()
}

/// A chain of results, each read by the next call.
fn chain(grid: &Grid, group: &Group) -> [Handle; 3] {
    let m = matrix();
    let first = product(grid, group, &m, &m);
    let second = product(grid, group, &first, &m);
    let third = product(grid, group, &second, &m);
    [first, second, third]
}

/// The time to get it now, virtual seconds.
fn seconds_to_get(grid: &Grid, handle: &Handle) -> f64 {
    let begin = grid.now();
    assert_eq!(handle.get().unwrap().meta(), matrix().meta());
    grid.now() - begin
}

/// Bytes received by the client.
fn brought_bytes(grid: &Grid) -> u64 {
    grid.traffic().by_link.get("server -> client").copied().unwrap_or(0)
}

#[test]
fn a_result_arrives_while_other_tasks_run() {
    let run = |test: &str, is_prefetched: bool| {
        let grid = grid(test);
        let group = grid.group("heft");
        let [first, _second, third] = chain(&grid, &group);
        if is_prefetched {
            first.prefetch().unwrap();
        }
        group.wait().unwrap();
        (seconds_to_get(&grid, &first), seconds_to_get(&grid, &third))
    };
    let (asked_s, _) = run("prefetch-not", false);
    assert!(asked_s > 0.08, "{asked_s} s: it is brought when it is asked for");
    let (asked_s, last_s) = run("prefetch", true);
    assert_eq!(asked_s, 0.0, "it is here");
    assert!(last_s > 0.08, "{last_s} s: only what was asked for is brought");
}

#[test]
fn a_result_arrives_once_however_often_it_is_requested() {
    let grid = grid("prefetch-twice");
    let group = grid.group("heft");
    let m = matrix();
    let handle = product(&grid, &group, &m, &m);
    for _ in 0..3 {
        handle.prefetch().unwrap();
    }
    assert!(seconds_to_get(&grid, &handle) > 0.2);
    assert_eq!(brought_bytes(&grid), BYTES);
    // It has arrived, and stays.
    handle.prefetch().unwrap();
    assert_eq!(seconds_to_get(&grid, &handle), 0.0);
    assert_eq!(brought_bytes(&grid), BYTES);
}

#[test]
fn a_prefetch_returns_at_once_and_launches_what_was_recorded() {
    let grid = grid("prefetch-launches");
    let group = grid.group("heft");
    let m = matrix();
    let handle = product(&grid, &group, &m, &m);
    let begin = grid.now();
    handle.prefetch().unwrap();
    assert_eq!((grid.now() - begin, group.recorded()), (0.0, 0));
    // Recording continues.
    let next = product(&grid, &group, &handle, &m);
    assert_eq!(group.recorded(), 1);
    next.get().unwrap();
    assert_eq!(seconds_to_get(&grid, &handle), 0.0);
}

#[test]
fn a_body_that_is_delayed_is_launched() {
    let grid = grid("prefetch-held");
    let rounds = grid.regrouped("heft", Regroup::Fixed(8)).unwrap();
    let group = rounds.group();
    let m = matrix();
    let handle = product(&grid, &group, &m, &m);
    group.finish().unwrap();
    assert_eq!(rounds.held(), 1);
    handle.prefetch().unwrap();
    assert_eq!(rounds.held(), 0);
    handle.get().unwrap();
}

#[test]
fn a_call_that_fails_is_reported_by_get() {
    let small = pair().replace("\"10Gf\"", "\"10Gf\"\nproperties = { memory = \"1MiB\" }");
    let grid = Grid::simulate(support::simulation("prefetch-fails", &small, support::PRODUCT, &[])).unwrap();
    let fails = || {
        let group = grid.group("heft");
        let [.., last] = chain(&grid, &group);
        last.prefetch().unwrap();
        (group, last)
    };
    let (group, handle) = fails();
    assert!(matches!(handle.get(), Err(Error::Task(_))));
    // Also after the failure.
    handle.prefetch().unwrap();
    assert!(matches!(handle.get(), Err(Error::Task(_))));
    drop((group, handle));
    assert_eq!(grid.take_unread(true).count, 0, "it was read");
    let (group, handle) = fails();
    grid.advance(1.0);
    drop((group, handle));
    assert!(grid.take_unread(true).count > 0, "a prefetch reads nothing");
}

#[test]
fn a_call_that_never_runs_is_reported() {
    let grid = grid("prefetch-discarded");
    let group = grid.group("heft");
    let m = matrix();
    let handle = product(&grid, &group, &m, &m);
    group.discard_because("the sky fell");
    let told = handle.prefetch().unwrap_err().to_string();
    assert_eq!(told, "the call of 'kernels/product' never ran: the sky fell");
}

#[test]
fn a_result_that_is_dropped_is_not_brought() {
    let grid = grid("prefetch-dropped");
    let group = grid.group("heft");
    let [first, _second, third] = chain(&grid, &group);
    first.prefetch().unwrap();
    drop(first);
    third.get().unwrap();
    assert_eq!(brought_bytes(&grid), BYTES, "only the last");
}

/// A declared call reads a result of another server: the result is transferred while the program does other work.
#[test]
fn what_a_declared_call_will_read_goes_there_at_once() {
    let machines = support::star(&[("client", "1Gf"), ("one", "10Gf"), ("two", "10Gf")], "100MBps", "50us");
    let simulation = support::simulation("prefetch-described", &machines, support::PRODUCT, &[]);
    let grid = Grid::simulate(simulation).unwrap();
    let mut graph = Graph::new();
    let a = graph.input("a", matrix().meta().clone()).unwrap();
    let p = graph.call("p", "kernels/product", (&a, &a)).unwrap();
    let q = graph.call("q", "kernels/product", (&p, &p)).unwrap();
    graph.want_result(&q).unwrap();
    let group = grid.group_of(&graph, "round-robin", GraphOptions::default()).unwrap();
    let m = matrix();
    let first = product(&grid, &group, &m, &m);
    first.prefetch().unwrap();
    grid.advance(2.0);
    let between = || grid.traffic().by_link.get("one -> two").copied().unwrap_or(0);
    assert_eq!(between(), BYTES, "it is there before the call that reads it");
    let second = product(&grid, &group, &first, &first);
    let run_s = seconds_to_get(&grid, &second) - BYTES as f64 / 100e6;
    assert!((0.2..0.21).contains(&run_s), "{run_s} s: the call and the way of its result");
    group.finish().unwrap();
    assert_eq!((between(), group.differences().len()), (BYTES, 0));
    let report = group.report().unwrap();
    let hops: Vec<_> = report.transfers.iter().map(|way| (way.from.as_str(), way.to.as_str())).collect();
    assert!(hops.contains(&("one", "two")) && report.tasks.len() == 2, "{report}");
}
