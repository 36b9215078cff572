//! Results that declared calls read as arrays of another shape, on a simulated grid.

use crate::support;
use gridloom::base::{Dtype, Meta};
use gridloom::{Graph, GraphArg, GraphOptions, Grid, Value};

const NORM: &str = r#"
Define norm(IN int n, IN double x[n], OUT double *r)
"size of x" CalcOrder n Calls "C" norm(n, x, r);
"#;

fn grid(test: &str) -> Grid {
    let star = support::star(&[("client", "1Gf"), ("one", "20Gf"), ("two", "20Gf")], "1GBps", "50us");
    Grid::simulate(support::simulation(test, &star, &format!("{}{NORM}", support::PRODUCT), &[])).unwrap()
}

fn array(shape: &[u64]) -> Meta {
    Meta::array(Dtype::Float64, shape)
}

/// c := a a, read row after row.
fn graph(view: Meta) -> Graph {
    let mut graph = Graph::new();
    let a = graph.input("a", array(&[300, 300])).unwrap();
    let c = graph.call("c", "kernels/product", (&a, &a)).unwrap();
    graph.call("r", "kernels/norm", &[GraphArg::View(c, view)]).unwrap();
    graph
}

#[test]
fn a_result_is_read_in_another_shape_where_it_is() {
    let grid = grid("views-plan");
    let graph = graph(array(&[90_000]));
    assert_eq!(Graph::parse("g.json", &graph.to_json()).unwrap(), graph);
    let group = grid.group_of(&graph, "heft", GraphOptions { is_strict: true, ..GraphOptions::default() }).unwrap();
    let (product, norm) = (grid.function("product").unwrap(), grid.function("norm").unwrap());
    let a = Value::placeholder(array(&[300, 300]));
    let c = group.call(&product, (&a, &a)).unwrap().one().unwrap();
    let row = c.read_as(&array(&[90_000])).unwrap();
    group.call(&norm, [&row]).unwrap().one().unwrap().get().unwrap();
    group.finish().unwrap();
    let report = group.report().unwrap();
    // The matrix is sent once, and a number is returned.
    assert_eq!((report.differences.len(), report.client_bytes), (0, 300 * 300 * 8 + 8), "{report}");
}

#[test]
fn what_is_no_view_is_refused() {
    let grid = grid("views-refused");
    let refused = |view: Meta| grid.plan_of(&graph(view), "heft").unwrap_err().to_string();
    let rule = "a view is an array of as many elements of the same type as a call's result";
    for view in [array(&[89_999]), Meta::array(Dtype::Float32, &[90_000])] {
        let said = refused(view);
        assert!(said.contains("call 'r' reads 'c', ") && said.contains(rule), "{said}");
    }
    let mut of_input = Graph::new();
    let a = of_input.input("a", array(&[10, 10])).unwrap();
    of_input.call("r", "kernels/norm", &[GraphArg::View(a, array(&[100]))]).unwrap();
    assert!(grid.plan_of(&of_input, "heft").unwrap_err().to_string().contains(rule));
    let text = graph(array(&[90_000])).to_json().replace(r#""shape":[90000]"#, r#""shape":[0]"#);
    let said = Graph::parse("g.json", &text).unwrap_err().to_string();
    assert!(said.contains("input 'c' has the extent 0"), "{said}");
}
