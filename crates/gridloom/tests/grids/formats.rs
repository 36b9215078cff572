//! Names in the files and reports that a session writes. A test that fails here has found a changed file format: restore the
//! name with `#[serde(rename)]`, or change the format's number, its page and the list in `tests/formats`.

use crate::key_paths::key_paths;
use crate::support;
use gridloom::base::{ByteOrder, Dtype, Meta, Order};
use gridloom::{Graph, GraphArg, Grid, SimulationReport, Value};

fn assert_keys(format: &str, json: &str, expected: &str) {
    let found = key_paths(json);
    assert_eq!(found, expected, "the names in a {format} have changed; found:\n{found}");
}

fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

#[test]
fn the_names_in_plans_explanations_and_reports_are_fixed() {
    let platform = support::star(&[("client", "1Gf"), ("one", "10Gf"), ("two", "10Gf")], "1GBps", "50us");
    let grid = Grid::simulate(support::simulation("formats", &platform, support::PRODUCT, &[])).unwrap();
    let product = grid.function("kernels/product").unwrap();
    let matrix = || Value::placeholder(Meta::array(Dtype::Float64, &[500, 500]));
    let group = grid.group("heft");
    let made = group.call(&product, (matrix(), matrix())).unwrap().one().unwrap();
    let result = group.call(&product, (&made, matrix())).unwrap().one().unwrap();
    let plan = group.plan("heft").unwrap();
    assert_keys("plan", &plan.to_json(), include_str!("../formats/plan.keys"));
    assert_keys("plan record", &text(&plan), include_str!("../formats/plan_record.keys"));
    assert_keys("explanation", &text(&plan.explain(0).unwrap()), include_str!("../formats/explanation.keys"));
    assert_keys("critical path", &text(&plan.critical_path().unwrap()), include_str!("../formats/critical_path.keys"));
    result.get().unwrap();
    group.wait().unwrap();
    assert_keys("report", &text(&group.report().unwrap()), include_str!("../formats/report.keys"));
}

#[test]
fn the_names_in_graphs_are_fixed() {
    let mut graph = Graph::new();
    let shape = vec![2, 2];
    let matrix = Meta::Array { dtype: Dtype::Float64, byte_order: ByteOrder::NATIVE, order: Order::F, shape };
    let x = graph.input("x", matrix.clone()).unwrap();
    graph.input("t", Meta::Text { size_bytes: 4 }).unwrap();
    let by_name = [("b".to_string(), GraphArg::View(x.clone(), matrix))];
    let made = graph.call_named("y", "kernels/product", [GraphArg::Text("T".into())], &by_name, true).unwrap();
    graph.bind(&made, "one").unwrap();
    graph.want_result(&made).unwrap();
    assert_keys("graph", &graph.to_json(), include_str!("../formats/graph.keys"));
}

#[test]
fn the_names_in_reports_of_simulations_are_fixed() {
    let report = SimulationReport {
        seconds: 1.0,
        trace_hash: "0".into(),
        bytes_by_link: [("LINK".to_string(), 1.0)].into(),
        bytes_by_pair: [("PAIR".to_string(), 1)].into(),
        groups: vec![("heft".into(), 1.0, 1.0)],
        failure: Some("why".into()),
    };
    assert_keys("report of a simulation", &text(&report), include_str!("../formats/simulation_report.keys"));
}
