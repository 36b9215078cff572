//! Interference between tasks on a server is noticed, and plans account for it.

use crate::support;
use gridloom::{Grid, Report, Value};

const KERNELS: &str = "Module kernels;\nDefine spin(IN int n, OUT double *s) CalcOrder n^3 Calls \"C\" spin(n, s);\n";

/// A server with two cores and four slots, and a client.
const PLATFORM: &str = "[[host]]\nname = 'client'\nspeed = '5Gf'\n\
    [[host]]\nname = 'narrow'\nspeed = '5Gf'\ncores = 2\nproperties = { slots = '4' }\n\
    [[star]]\nname = 'all'\nhosts = ['client', 'narrow']\nbandwidth = '1GBps'\nlatency = '100us'\n";

/// A group of that many calls of 0.2 s each.
fn spun(grid: &Grid, heuristic: &str, calls: usize) -> Report {
    let spin = grid.function("kernels/spin").unwrap();
    let group = grid.group(heuristic);
    (0..calls).for_each(|_| drop(group.call(&spin, [Value::from(1000_i64)]).unwrap()));
    group.wait().unwrap();
    group.report().unwrap()
}

#[track_caller]
fn is_within(report: &Report, part: f64) {
    let (predicted, measured) = (report.predicted_seconds, report.measured_seconds);
    assert!((predicted / measured - 1.0).abs() < part, "{predicted} s, {measured} s");
}

#[test]
fn plans_know_that_four_tasks_share_two_cores() {
    let grid = Grid::simulate(support::simulation("side-by-side", PLATFORM, KERNELS, &[])).unwrap();
    // The first call in each slot is a cold start.
    (0..8).for_each(|_| drop(spun(&grid, "heft", 1)));
    grid.advance(2.0);
    // Tasks were not measured side by side, but the server has two cores for four slots.
    is_within(&spun(&grid, "auto", 8), 0.05);
    grid.advance(2.0);
    for heuristic in ["auto", "heft"] {
        is_within(&spun(&grid, heuristic, 8), 0.05);
        is_within(&spun(&grid, heuristic, 1), 0.05);
    }
    // The last call has the server to itself.
    is_within(&spun(&grid, "auto", 5), 0.05);
    // Three calls on two cores take half as long again: between the known times of one and of four.
    is_within(&spun(&grid, "auto", 3), 0.15);
    let report = spun(&grid, "auto", 20);
    is_within(&report, 0.05);
    assert_eq!(report.plans.len(), 1, "nothing left its plan: {report:?}");
}
