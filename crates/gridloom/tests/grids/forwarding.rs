//! Servers forward data that they are still receiving, and plans account for it.

use crate::support;
use gridloom::{Grid, Value};

const KERNELS: &str = "Module kernels;\n\
    Define total(IN int n, IN double a[n], OUT double *s) CalcOrder 5000*n Calls \"C\" total(n, a, s);\n";
/// 64 MiB.
const ELEMENTS: u64 = 8 << 20;
const SERVERS: usize = 4;

#[test]
fn an_array_gets_to_all_servers_in_little_more_than_the_time_of_one_transfer() {
    let names: Vec<String> = (1..=SERVERS).map(|number| format!("server-{number}")).collect();
    let hosts: Vec<(&str, &str)> =
        [("client", "5Gf")].into_iter().chain(names.iter().map(|name| (&**name, "5Gf"))).collect();
    let platform = support::star(&hosts, "100Mbps", "100us");
    let grid = Grid::simulate(support::simulation("passing-on", &platform, KERNELS, &[])).unwrap();
    // The links have been measured by then.
    grid.advance(30.0);
    let total = grid.function("kernels/total").unwrap();
    let array = Value::from_f64(&[ELEMENTS], &vec![1.0; ELEMENTS as usize]);
    let group = grid.group("auto");
    let handles: Vec<_> = (0..SERVERS).map(|_| group.call(&total, [&array]).unwrap().one().unwrap()).collect();
    group.wait().unwrap();
    let report = group.report().unwrap();
    let (computing_s, one_s) = (5000.0 * ELEMENTS as f64 / 5e9, 8.0 * ELEMENTS as f64 / 12.5e6);
    let (predicted_s, measured_s) = (report.predicted_seconds - computing_s, report.measured_seconds - computing_s);
    println!(
        "all servers have it after {measured_s:.3} s, {predicted_s:.3} s predicted; one transfer takes {one_s:.3} s"
    );
    assert!(measured_s < 1.1 * one_s, "{measured_s} s, {predicted_s} s predicted, {one_s} s for one transfer");
    assert!((predicted_s / measured_s - 1.0).abs() < 0.1, "{predicted_s} s predicted, {measured_s} s measured");
    drop(handles);
}
