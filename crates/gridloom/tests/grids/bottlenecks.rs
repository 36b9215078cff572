//! Shared links are detected while groups run, and plans account for them from then on.

use crate::support;
use gridloom::{Grid, Handle, Report, Value};

const KERNELS: &str = "Module kernels;\n\
    Define make(IN int n, OUT double a[n][n]) CalcOrder n^2 Calls \"C\" make(n, a);\n\
    Define sum(IN int n, IN double a[n][n], OUT double *s) CalcOrder n^2 Calls \"C\" sum(n, a, s);\n\
    Define turn(IN int n, IN double a[n][n], OUT double b[n][n]) CalcOrder n^2 Calls \"C\" turn(n, a, b);\n";

/// Two sites with two servers each, connected by a backbone of 20 MB/s; network interfaces have five times that bandwidth.
fn sites() -> String {
    let mut text = String::new();
    for host in ["client", "a-1", "a-2", "b-1", "b-2"] {
        text += &format!("[[host]]\nname = '{host}'\nspeed = '5Gf'\n");
    }
    for (name, hosts) in [("a", "'client', 'a-1', 'a-2'"), ("b", "'b-1', 'b-2'")] {
        text += &format!("[[star]]\nname = '{name}'\nhosts = [{hosts}]\nbandwidth = '100MBps'\nlatency = '100us'\n");
    }
    text + "[[link]]\nname = 'wan'\nbandwidth = '20MBps'\nlatency = '2ms'\n[[connect]]\nfrom = 'a'\nto = 'b'\nlinks = ['wan']\n"
}

/// A group of calls of one function, each on the named server.
fn on(grid: &Grid, function: &str, inputs: &[Value], handles: &[Handle], servers: &[&str]) -> (Vec<Handle>, Report) {
    let function = grid.function(function).unwrap();
    let record = |group: &gridloom::Group| -> Vec<Handle> {
        let call = |input: gridloom::Arg| group.call(&function, [input]).unwrap().one().unwrap();
        inputs.iter().map(|value| call(value.into())).chain(handles.iter().map(|handle| call(handle.into()))).collect()
    };
    let draft = grid.group("heft");
    drop(record(&draft));
    let mut plan = draft.plan("heft").unwrap();
    for (task, server) in servers.iter().enumerate() {
        plan = plan.moved(task, server).unwrap();
    }
    draft.discard();
    let group = grid.group(&plan);
    let made = record(&group);
    group.wait().unwrap();
    (made, group.report().unwrap())
}

/// Makes a matrix of 32 MB on each of those servers.
fn made(grid: &Grid, servers: &[&str]) -> Vec<Handle> {
    let order = Value::from(2000_i64);
    on(grid, "kernels/make", &vec![order; servers.len()], &[], servers).0
}

/// Predicted and measured seconds of sums on `to` of matrices made on `from`.
fn sums(grid: &Grid, from: &[&str], to: &[&str]) -> (f64, f64) {
    let matrices = made(grid, from);
    let (_, report) = on(grid, "kernels/sum", &[], &matrices, to);
    (report.predicted_seconds, report.measured_seconds)
}

#[test]
fn a_way_between_sites_is_reckoned_with_and_then_known() {
    let grid = Grid::simulate(support::simulation("bottleneck-backbone", &sites(), KERNELS, &[])).unwrap();
    // The first probes share the backbone at the same time; by now each was repeated alone.
    grid.advance(30.0);
    let (predicted, measured) = sums(&grid, &["a-1", "a-2"], &["b-1", "b-2"]);
    assert!((predicted / measured - 1.0).abs() < 0.1, "{predicted} s, {measured} s {:#?}", grid.links());
    assert!(grid.links().unwrap().iter().all(|link| link.shared.is_empty()), "nothing was seen of it yet");
    sums(&grid, &["a-1", "a-2"], &["b-1", "b-2"]);
    grid.advance(1.0);
    let (predicted, measured) = sums(&grid, &["a-1", "a-2"], &["b-1", "b-2"]);
    assert!((predicted / measured - 1.0).abs() < 0.1, "{predicted} s, {measured} s: {:#?}", grid.links().unwrap());
    // Within a site only the network interfaces limit transfers.
    let (predicted, measured) = sums(&grid, &["a-1", "b-1"], &["a-2", "b-2"]);
    assert!((predicted / measured - 1.0).abs() < 0.1, "{predicted} s, {measured} s: {:#?}", grid.links().unwrap());
    let links = grid.links().unwrap();
    let shared: Vec<_> = links.iter().flat_map(|link| &link.shared).collect();
    assert!(!shared.is_empty() && shared.iter().all(|one| (one.bandwidth / 20e6 - 1.0).abs() < 0.2), "{shared:#?}");
}

/// Sends matrices of 8 MB to two servers and back: seconds, predicted and measured.
fn turned(grid: &Grid, matrices: usize) -> (f64, f64) {
    let turn = grid.function("kernels/turn").unwrap();
    let group = grid.group("auto");
    let call = |number: usize| {
        let matrix = Value::from_f64(&[1000, 1000], &vec![number as f64; 1_000_000]);
        group.call(&turn, [&matrix]).unwrap().one().unwrap()
    };
    let handles: Vec<Handle> = (0..matrices).map(call).collect();
    // Results are returned as they are made, while inputs are still being sent.
    group.launch().unwrap();
    handles.iter().for_each(|handle| handle.prefetch().unwrap());
    handles.iter().for_each(|handle| drop(handle.get().unwrap()));
    let report = group.report().unwrap();
    (report.predicted_seconds, report.measured_seconds)
}

#[test]
fn a_clients_link_that_serves_one_direction_at_a_time_is_noticed() {
    let mut text = String::from("[[host]]\nname = 'client'\nspeed = '5Gf'\n");
    for host in ["a-1", "a-2"] {
        text += &format!("[[host]]\nname = '{host}'\nspeed = '5Gf'\n");
    }
    text += "[[star]]\nname = 'site'\nhosts = ['a-1', 'a-2']\nbandwidth = '100MBps'\nlatency = '100us'\n\
             [[star]]\nname = 'home'\nhosts = ['client']\nbandwidth = '100MBps'\nlatency = '100us'\n\
             [[link]]\nname = 'dsl'\nbandwidth = '20MBps'\nlatency = '2ms'\nsharing = 'shared'\n\
             [[connect]]\nfrom = 'home'\nto = 'site'\nlinks = ['dsl']\n";
    let grid = Grid::simulate(support::simulation("bottleneck-client", &text, KERNELS, &[])).unwrap();
    grid.advance(30.0);
    let (predicted, measured) = turned(&grid, 12);
    assert!(measured > 1.4 * predicted, "nobody can know yet: {predicted} s, {measured} s {:#?}", grid.links());
    for _ in 0..3 {
        turned(&grid, 12);
    }
    grid.advance(1.0);
    let (predicted, measured) = turned(&grid, 12);
    assert!((predicted / measured - 1.0).abs() < 0.15, "{predicted} s, {measured} s: {:#?}", grid.links().unwrap());
}
