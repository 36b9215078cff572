//! What links share is noticed while groups run, and plans know of it from then on.

mod support;

use gridloom::{Grid, Handle, Report, Value};

const KERNELS: &str = "Module kernels;\n\
    Define make(IN int n, OUT double a[n][n]) CalcOrder n^2 Calls \"C\" make(n, a);\n\
    Define sum(IN int n, IN double a[n][n], OUT double *s) CalcOrder n^2 Calls \"C\" sum(n, a, s);\n";

/// Two sites of two servers, with a way of 20 MB/s between them; the cards are five times as wide.
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

/// A group of calls of one function, each on the server named.
fn on(grid: &Grid, function: &str, inputs: &[Value], handles: &[Handle], servers: &[&str]) -> (Vec<Handle>, Report) {
    let function = grid.function(function).unwrap();
    let record = |group: &gridloom::Group| -> Vec<Handle> {
        let call = |input: gridloom::Arg| group.call(&function, &[input]).unwrap().remove(0);
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

/// A matrix of 32 MB on each of those servers.
fn made(grid: &Grid, servers: &[&str]) -> Vec<Handle> {
    let order = Value::from(2000_i64);
    on(grid, "kernels/make", &vec![order; servers.len()], &[], servers).0
}

/// Predicted and measured seconds of the sums there of matrices that were made here.
fn sums(grid: &Grid, from: &[&str], to: &[&str]) -> (f64, f64) {
    let matrices = made(grid, from);
    let (_, report) = on(grid, "kernels/sum", &[], &matrices, to);
    (report.predicted_seconds, report.measured_seconds)
}

#[test]
fn a_backbone_is_noticed_and_plans_know_of_it() {
    let grid = Grid::simulate(support::simulation("bottleneck-backbone", &sites(), KERNELS, &[])).unwrap();
    // First probes go over the same way at the same time; by now each was repeated alone.
    grid.advance(30.0);
    let (predicted, measured) = sums(&grid, &["a-1", "a-2"], &["b-1", "b-2"]);
    assert!(measured > 1.8 * predicted, "nobody can know yet: {predicted} s, {measured} s {:#?}", grid.links());
    sums(&grid, &["a-1", "a-2"], &["b-1", "b-2"]);
    grid.advance(1.0);
    let (predicted, measured) = sums(&grid, &["a-1", "a-2"], &["b-1", "b-2"]);
    assert!((predicted / measured - 1.0).abs() < 0.1, "{predicted} s, {measured} s: {:#?}", grid.links().unwrap());
    // Within a site the cards are all there is.
    let (predicted, measured) = sums(&grid, &["a-1", "b-1"], &["a-2", "b-2"]);
    assert!((predicted / measured - 1.0).abs() < 0.1, "{predicted} s, {measured} s: {:#?}", grid.links().unwrap());
    let links = grid.links().unwrap();
    let shared: Vec<_> = links.iter().flat_map(|link| &link.shared).collect();
    assert!(!shared.is_empty() && shared.iter().all(|one| (one.bandwidth / 20e6 - 1.0).abs() < 0.2), "{shared:#?}");
}
