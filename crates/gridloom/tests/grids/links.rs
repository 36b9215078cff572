//! What groups reveal about links while they run, and the consequences when a link gets slower.

use crate::support;
use gridloom::base::{Dtype, Meta};
use gridloom::{Grid, Handle, Report, Value};

/// A function beside the square.
const SUM: &str = "Define sum(IN int n, IN double a[n][n], OUT double *s) CalcOrder 2*n^3 Calls \"C\" sum(n, a, s);\n";

/// Three servers, with a separate link for each pair.
fn platform(profile: &str) -> String {
    let mut text = String::new();
    for host in ["client", "s-1", "s-2", "s-3"] {
        text += &format!("[[host]]\nname = '{host}'\nspeed = '5Gf'\n");
    }
    for (a, b) in
        [("client", "s-1"), ("client", "s-2"), ("client", "s-3"), ("s-1", "s-2"), ("s-1", "s-3"), ("s-2", "s-3")]
    {
        text += &format!("[[link]]\nname = '{a}-{b}'\nbandwidth = '40MBps'\nlatency = '1ms'\n");
        text += &format!("[[route]]\nfrom = '{a}'\nto = '{b}'\nlinks = ['{a}-{b}']\n");
    }
    text + profile
}

fn grid(test: &str, profile: &str) -> Grid {
    Grid::simulate(support::simulation(test, &platform(profile), &format!("{}{SUM}", support::SQUARE), &[])).unwrap()
}

/// `count` matrices of 8 MB, all made on the first server.
fn made_on_the_first(grid: &Grid, count: usize) -> Vec<Handle> {
    let product = grid.function("kernels/product").unwrap();
    let matrix = Value::placeholder(Meta::array(Dtype::Float64, &[1000, 1000]));
    let record = |group: &gridloom::Group| -> Vec<Handle> {
        (0..count).map(|_| group.call(&product, [&matrix]).unwrap().one().unwrap()).collect()
    };
    let draft = grid.group("heft");
    drop(record(&draft));
    let mut plan = draft.plan("heft").unwrap();
    for task in 0..count {
        plan = plan.moved(task, "s-1").unwrap();
    }
    draft.discard();
    let group = grid.group(&plan);
    let handles = record(&group);
    group.wait().unwrap();
    handles
}

/// The sum of each matrix, 0.4 s on any server; the data move from the first server to the others, 0.2 s each.
fn sums(grid: &Grid, matrices: &[Handle], heuristic: &str) -> Report {
    let sum = grid.function("kernels/sum").unwrap();
    let group = grid.group(heuristic);
    let results: Vec<_> = matrices.iter().map(|m| group.call(&sum, [m]).unwrap().one().unwrap()).collect();
    results.into_iter().for_each(|result| result.get().map(drop).unwrap());
    group.report().unwrap()
}

const COUNT: usize = 60;
/// Start of the sums, seconds.
const BEGIN: f64 = 60.0;

fn falls(at: f64) -> String {
    format!("[[profile]]\nlink = 's-1-s-2'\nkind = 'bandwidth'\nevents = [[0, 40e6], [{at}, 4e6]]\n")
}

#[test]
fn what_moves_over_a_link_is_learned() {
    let grid = grid("links-learned", "");
    let matrices = made_on_the_first(&grid, 12);
    sums(&grid, &matrices, "heft");
    grid.advance(1.0);
    let links = grid.links().unwrap();
    let link = |from: &str, to: &str| links.iter().find(|link| link.from == from && link.to == to);
    let to_second = link("sim://s-1", "sim://s-2").unwrap_or_else(|| panic!("{links:#?}"));
    assert!((to_second.link.bandwidth / 40e6 - 1.0).abs() < 0.1, "{to_second:?}");
    // Unused links are probed again: each was measured within two rounds of probes.
    grid.advance(180.0);
    let links = grid.links().unwrap();
    let between = links.iter().filter(|link| link.from.starts_with("sim://s-") && link.to.starts_with("sim://s-"));
    let ages: Vec<f64> = between.map(|link| link.age_s).collect();
    assert!(ages.len() == 6 && ages.iter().all(|age_s| *age_s < 130.0), "{links:#?}");
}

#[test]
fn what_is_left_is_mapped_again_when_a_link_falls_to_a_tenth() {
    let run = |test: &str, heuristic: &str| {
        let grid = grid(test, &falls(BEGIN + 2.0));
        let matrices = made_on_the_first(&grid, COUNT);
        grid.advance(BEGIN - grid.now());
        let report = sums(&grid, &matrices, heuristic);
        (report.measured_seconds, report.plans.len(), grid.simulation().unwrap().trace_hash)
    };
    let (seconds, plans, hash) = run("link-falls-a", "heft");
    // With hindsight: in 2 s ten inputs have reached the second server, which has processed five. 45 sums remain for
    // two servers that do one in 0.4 s each and one that has five inputs and receives another every 2 s.
    let ideal = 2.0 + 40.0 / (2.0 / 0.4 + 1.0 / 2.0);
    assert!(seconds < 1.35 * ideal, "{seconds} s, ideal {ideal} s");
    assert!((2..6).contains(&plans), "mapped {plans} times");
    assert_eq!(run("link-falls-b", "heft").2, hash);
}
