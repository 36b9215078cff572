//! Declared groups on a simulated grid.

use crate::support;
use gridloom::base::{Dtype, Meta};
use gridloom::{Arg, Error, Function, Graph, GraphOptions, Grid, Group, Handle, IntoArgs, Report, Value};

/// Two fast servers and a slow one.
fn star() -> String {
    support::star(&[("client", "1Gf"), ("fast-1", "20Gf"), ("fast-2", "20Gf"), ("slow", "5Gf")], "1GBps", "50us")
}

/// Functions beside the product.
const MORE: &str = r#"
Define norm(IN int n, IN double a[n][n], OUT double *r)
"size of a" CalcOrder 2*n^2 Calls "C" norm(n, a, r);
Define both(IN int n, IN double a[n][n], OUT double low[n][n], OUT double high[n][n])
"two of one" CalcOrder 5*n^3 Calls "C" both(n, a, low, high);
"#;

fn grid(test: &str) -> Grid {
    Grid::simulate(support::simulation(test, &star(), &format!("{}{MORE}", support::PRODUCT), &[])).unwrap()
}

fn square(extent: u64) -> Meta {
    Meta::array(Dtype::Float64, &[extent, extent])
}

fn matrix(extent: u64) -> Value {
    Value::placeholder(square(extent))
}

/// `count` steps of x := a x, each with the size of x.
fn steps(count: usize, extent: u64) -> Graph {
    let mut graph = Graph::new();
    let a = graph.input("a", square(extent)).unwrap();
    let mut x = graph.input("x", square(extent)).unwrap();
    for step in 1..=count {
        x = graph.call(&format!("x{step}"), "kernels/product", (&a, &x)).unwrap();
        graph.call(&format!("size{step}"), "kernels/norm", [&x]).unwrap();
    }
    graph
}

struct Program<'a> {
    group: &'a Group,
    product: Function,
    norm: Function,
}

impl<'a> Program<'a> {
    fn new(grid: &Grid, group: &'a Group) -> Program<'a> {
        let function = |name| grid.function(name).unwrap();
        Program { group, product: function("kernels/product"), norm: function("kernels/norm") }
    }

    fn one(&self, function: &Function, args: impl IntoArgs) -> Result<Handle, Error> {
        self.group.call(function, args)?.one()
    }

    /// Makes the calls of [`steps`], and reads each size before the next step.
    fn run(&self, count: usize, a: &Value, x: &Value) -> Result<Handle, Error> {
        let mut last = None;
        for _ in 0..count {
            let x: Arg = last.as_ref().map_or_else(|| x.into(), |handle: &Handle| handle.into());
            let next = self.one(&self.product, (a, x))?;
            self.one(&self.norm, [&next])?.get()?;
            last = Some(next);
        }
        Ok(last.expect("there is a step"))
    }
}

fn on(report: &Report) -> Vec<&str> {
    let mut tasks: Vec<_> = report.tasks.iter().collect();
    tasks.sort_by_key(|task| task.task.parse::<u64>().unwrap());
    tasks.iter().map(|task| task.server.as_str()).collect()
}

fn planned_on(report: &Report) -> Vec<&str> {
    report.plans[0].tasks.iter().map(|task| task.server.as_str()).collect()
}

#[test]
fn calls_take_their_places_as_they_come() {
    let grid = grid("graph-places");
    let group =
        grid.group_of(&steps(4, 500), "heft", GraphOptions { is_strict: true, ..GraphOptions::default() }).unwrap();
    let program = Program::new(&grid, &group);
    program.run(4, &matrix(500), &matrix(500)).unwrap().get().unwrap();
    group.finish().unwrap();
    let report = group.report().unwrap();
    assert_eq!((report.plans.len(), report.tasks.len(), report.differences.len()), (1, 8, 0));
    assert_eq!(on(&report), planned_on(&report));
    // Both inputs are sent once; the last product and all sizes are returned.
    assert_eq!(report.client_bytes, 3 * 500 * 500 * 8 + 4 * 8);
    assert_eq!(report.predicted_seconds, report.plans[0].makespan_seconds);
    assert!(report.measured_seconds > 0.0 && report.measured_seconds < 1.5 * report.predicted_seconds, "{report}");
    let summaries = grid.simulation().unwrap().groups;
    assert_eq!((summaries.len(), summaries[0].2), (1, report.measured_seconds));
}

/// Independent calls may be made in any order; each runs on the server of its declared call.
#[test]
fn independent_calls_may_change_places() {
    let grid = grid("graph-order");
    let mut graph = Graph::new();
    let inputs: Vec<_> = (0..3).map(|i| graph.input(&format!("m{i}"), square(200 + 100 * i)).unwrap()).collect();
    for (i, input) in inputs.iter().enumerate() {
        graph.call(&format!("p{i}"), "kernels/product", (input, input)).unwrap();
    }
    let group =
        grid.group_of(&graph, "round-robin", GraphOptions { is_strict: true, ..GraphOptions::default() }).unwrap();
    let program = Program::new(&grid, &group);
    for i in [2, 0, 1] {
        let m = matrix(200 + 100 * i);
        program.one(&program.product, (&m, &m)).unwrap();
    }
    group.finish().unwrap();
    let report = group.report().unwrap();
    assert_eq!((on(&report), report.tasks.len()), (planned_on(&report), 3));
}

#[test]
fn differences_are_reported_and_everything_runs() {
    let grid = grid("graph-differs");
    let group = grid.group_of(&steps(3, 300), "heft", GraphOptions::default()).unwrap();
    let program = Program::new(&grid, &group);
    let (a, x, other) = (matrix(300), matrix(300), matrix(400));
    let x1 = program.one(&program.product, (&a, &x)).unwrap();
    // An additional call, on another datum of the graph.
    program.one(&program.norm, [&x]).unwrap();
    // Another extent.
    let x2 = program.one(&program.product, (&other, &other)).unwrap();
    program.one(&program.norm, [&x1]).unwrap().get().unwrap();
    group.call(&grid.function("kernels/both").unwrap(), [&x2]).unwrap()[1].get().unwrap();
    group.finish().unwrap();
    let told: Vec<String> = group.differences().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "call 2, of 'kernels/norm', is not 'size1' as declared: argument 'a' is input 'x', but was declared as the result 'x1'",
            "call 3, of 'kernels/product', is not 'x2' as declared: argument 'a' is not what was passed for it before (or it was changed), but was declared as input 'a'",
            "call 5, of 'kernels/both', was not declared: the next declared call is 'size2', of 'kernels/norm'",
            "'size2', a declared call of 'kernels/norm', was never made",
            "'x3', a declared call of 'kernels/product', was never made",
            "'size3', a declared call of 'kernels/norm', was never made",
        ]
    );
    let report = group.report().unwrap();
    assert_eq!((report.tasks.len(), report.tasks_failed, report.differences.len()), (5, 0, 6));
    // Calls that were not declared were mapped separately.
    assert_eq!(report.plans.len(), 4);
    assert!(report.to_string().contains("6 differences from the declared graph:\n  call 2"), "{report}");
}

/// A call of another size replaces the declared one: calls that read its result, of the declared size, still fit.
#[test]
fn what_follows_a_difference_still_fits() {
    let grid = grid("graph-after");
    let mut graph = Graph::new();
    let a = graph.input("a", square(300)).unwrap();
    let p = graph.call("p", "kernels/product", (&a, &a)).unwrap();
    graph.call("q", "kernels/product", (&p, &p)).unwrap();
    let group = grid.group_of(&graph, "heft", GraphOptions::default()).unwrap();
    let program = Program::new(&grid, &group);
    let p = program.one(&program.product, (matrix(300), matrix(300))).unwrap();
    program.one(&program.product, (&p, &p)).unwrap().get().unwrap();
    group.finish().unwrap();
    let told: Vec<String> = group.differences().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("call 1, of 'kernels/product', is not 'p' as declared: argument 'b'"), "{told:?}");
}

#[test]
fn a_strict_group_refuses_what_differs() {
    let grid = grid("graph-strict");
    let strict = || GraphOptions { is_strict: true, ..GraphOptions::default() };
    let group = grid.group_of(&steps(1, 300), "heft", strict()).unwrap();
    let program = Program::new(&grid, &group);
    let refused = program.one(&program.product, (matrix(200), matrix(200))).unwrap_err();
    assert!(matches!(&refused, Error::DiffersFromDeclared(_)), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("argument 'a' is float64[200, 200], but was declared as input 'a', float64[300, 300]")
    );
    // The refused call was not made: the declared call can still be made.
    program.one(&program.product, (matrix(300), matrix(300))).unwrap().get().unwrap();
    let missing = group.finish().unwrap_err().to_string();
    assert!(missing.contains("'size1', a declared call of 'kernels/norm', was never made"), "{missing}");
    assert_eq!(group.report().unwrap().tasks.len(), 1);
}

#[test]
fn optional_calls_may_never_come() {
    let grid = grid("graph-optional");
    let mut graph = Graph::new();
    let a = graph.input("a", square(100)).unwrap();
    let parts = graph.call("parts", "kernels/both", [&a]).unwrap();
    graph.call_named("more", "norm", [parts.result("high")], &[], true).unwrap();
    graph.want_result(&parts.result("low")).unwrap();
    let group = grid.group_of(&graph, "auto", GraphOptions { is_strict: true, ..GraphOptions::default() }).unwrap();
    let both = group.call(&grid.function("both").unwrap(), [matrix(100)]).unwrap();
    both[0].get().unwrap();
    group.finish().unwrap();
    assert_eq!(group.differences(), []);
}

/// An input that is already a result is planned where it is.
#[test]
fn inputs_may_be_results() {
    let grid = grid("graph-inputs");
    let before = grid.group("round-robin");
    let made: Vec<Handle> = (0..2)
        .map(|_| {
            Program::new(&grid, &before).one(&grid.function("product").unwrap(), (matrix(600), matrix(600))).unwrap()
        })
        .collect();
    let mut graph = Graph::new();
    let x = graph.input("x", square(600)).unwrap();
    graph.call("y", "kernels/product", (&x, &x)).unwrap();
    let follow =
        || GraphOptions { is_strict: true, inputs: vec![("x".into(), made[1].clone())], ..GraphOptions::default() };
    let group = grid.group_of(&graph, "heft", follow()).unwrap();
    let program = Program::new(&grid, &group);
    let y = program.one(&program.product, (&made[1], &made[1])).unwrap();
    group.finish().unwrap();
    assert_eq!(group.declared_plan().unwrap().transfers.iter().filter(|t| t.from == "client").count(), 0);
    drop(y);
    let refused = |inputs: Vec<(String, Handle)>, why: &str| {
        let error =
            grid.group_of(&graph, "heft", GraphOptions { inputs, ..GraphOptions::default() }).unwrap_err().to_string();
        assert!(error.contains(why), "'{error}' does not say '{why}'");
    };
    let small = Program::new(&grid, &before).one(&grid.function("product").unwrap(), (matrix(5), matrix(5))).unwrap();
    refused(vec![("z".into(), made[0].clone())], "'z' is given, but is not an input");
    refused(vec![("x".into(), small)], "input 'x' is float64[600, 600], but float64[5, 5] was given for it");
}

#[test]
fn a_call_has_ended_while_its_result_stays() {
    let grid = grid("graph-submitted");
    let graph = steps(1, 600);
    let unwanted = GraphOptions { not_fetched: vec![gridloom::GraphRef::named("x1")], ..GraphOptions::default() };
    let group = grid.group_of(&graph, "heft", unwanted).unwrap();
    let product = grid.function("kernels/product").unwrap();
    let call = group.submit(&product, (matrix(600), matrix(600)), &[]).unwrap();
    assert!(call.end().is_none());
    call.note_end();
    let told = grid.await_ends(None, |ended| ended.contains(&call.task()).then_some(())).is_ok();
    assert!(told && call.end().unwrap().error.is_none());
    call.wait_within(None).unwrap();
    // The number that nothing reads has to be sent to the client, but not the matrix.
    let moved = |report: &Report| report.transfers.iter().filter(|moved| moved.to == "client").count();
    assert_eq!(moved(&group.report().unwrap()), 0);
    let planned = &group.declared_plan().unwrap().transfers;
    assert!(planned.iter().all(|moved| moved.to != "client" || moved.size_bytes == 8), "{planned:?}");
    let plain = grid.group("heft");
    let error = plain.submit(&product, (matrix(6), matrix(6)), &[]).unwrap_err().to_string();
    assert!(error.contains("declared group"), "{error}");
}

#[test]
fn nothing_is_remembered_afterwards() {
    let grid = grid("graph-forgotten");
    for _ in 0..3 {
        let group = grid.group_of(&steps(2, 200), "heft", GraphOptions::default()).unwrap();
        drop(Program::new(&grid, &group).run(2, &matrix(200), &matrix(200)).unwrap());
        group.finish().unwrap();
        group.wait().unwrap();
    }
    // A group whose calls are never made, and which is not finished.
    drop(grid.group_of(&steps(2, 200), "heft", GraphOptions::default()).unwrap());
    let last = grid.group("heft");
    Program::new(&grid, &last).run(1, &matrix(10), &matrix(10)).unwrap();
    last.wait().unwrap();
    drop(last);
    grid.take_unread(true);
    assert_eq!(grid.memory_counts(), (0, 0, 0));
}

#[test]
fn a_plan_can_be_given_and_shown() {
    let grid = grid("graph-plan");
    let graph = steps(2, 400);
    let plan = grid.plan_of(&graph, "heft").unwrap();
    assert!(plan.explain(0).is_ok() && plan.gantt_svg().unwrap().contains("<svg"));
    let moved = plan.moved(2, "slow").unwrap();
    let group = grid.group_of(&graph, &moved, GraphOptions { is_strict: true, ..GraphOptions::default() }).unwrap();
    Program::new(&grid, &group).run(2, &matrix(400), &matrix(400)).unwrap();
    group.finish().unwrap();
    let report = group.report().unwrap();
    assert_eq!((on(&report)[2], on(&report)), ("slow", planned_on(&report)));
}

#[test]
fn a_group_that_cannot_be_mapped_reports_the_reason() {
    let grid = grid("graph-unmapped");
    let refused = |graph: &Graph, why: &str| {
        let error = grid.group_of(graph, "heft", GraphOptions::default()).unwrap_err().to_string();
        assert!(error.contains(why), "'{error}' does not say '{why}'");
    };
    let mut graph = Graph::new();
    let a = graph.input("a", square(100)).unwrap();
    graph.call("p", "kernels/produkt", (&a, &a)).unwrap();
    refused(&graph, "call 'p': no server offers function 'kernels/produkt'; did you mean kernels/product?");
    let mut graph = Graph::new();
    let a = graph.input("a", square(100)).unwrap();
    let b = graph.input("b", square(200)).unwrap();
    graph.call("p", "product", (&a, &b)).unwrap();
    refused(&graph, "call 'p': ");
    let mut graph = Graph::new();
    let a = graph.input("a", square(100)).unwrap();
    let parts = graph.call("parts", "both", [&a]).unwrap();
    graph.call("n", "norm", [&parts]).unwrap();
    refused(&graph, "call 'n' reads 'parts'; results of 'parts' are 'parts.high', 'parts.low'");
}

#[test]
fn files_are_read_as_written() {
    let mut graph = steps(2, 300);
    let text = graph.input("text", Meta::Text { size_bytes: 12 }).unwrap();
    let args =
        [text.into(), 2.into(), 0.5.into(), gridloom::GraphArg::Truth(true), gridloom::GraphArg::Text("x".into())];
    let made = graph.call_named("c", "m/f", &args, &[("k".into(), 3.into())], true).unwrap();
    graph.want_result(&made.result("y")).unwrap();
    assert_eq!(Graph::parse("g.json", &graph.to_json()).unwrap(), graph);
}

#[test]
fn hostile_files_are_refused_with_a_reason() {
    let refused = |inputs: &str, calls: &str, why: &str| {
        let text = format!("{{\"format\": \"gridloom graph 1\", \"inputs\": [{inputs}], \"calls\": [{calls}]}}");
        let error = Graph::parse("g.json", &text).expect_err(why).to_string();
        assert!(error.starts_with("g.json") && error.contains(why), "'{error}' does not say '{why}'");
    };
    let a = r#"{"name": "a", "type": "float64", "shape": [4]}"#;
    let call = |name: &str, reads: &str| format!(r#"{{"name": "{name}", "function": "f", "args": ["{reads}"]}}"#);
    let circle = [call("p", "q"), call("q", "r"), call("r", "p")].join(",");
    refused(a, &circle, "cycle: 'p' reads 'q', which reads 'r', which reads 'p'; one of them has to be first");
    refused(a, &call("p", "p"), "cycle: 'p' reads 'p'");
    refused(a, &[call("p", "q"), call("q", "a")].join(","), "call 'p' reads 'q', which follows it");
    refused(
        a,
        &call("p", "aa"),
        "call 'p' reads 'aa', which is neither an input nor a call before it; did you mean a?",
    );
    refused(a, &call("a", "a"), "two inputs or calls are named 'a'");
    refused(a, &call("a.b", "a"), "'a.b' cannot be a name");
    refused(a, r#"{"name": "p", "function": "f", "args": [null]}"#, "call 'p' has the argument null; it is");
    refused(
        a,
        r#"{"name": "p", "function": "f", "arg": []}"#,
        "'arg' is unknown here; known are 'name', 'function', 'args'",
    );
    let extent = |extent: &str| format!(r#"{{"name": "a", "type": "float64", "shape": [{extent}]}}"#);
    refused(&extent("0"), "", "input 'a' has the extent 0; it must be an integer of at least 1");
    refused(&extent("-3"), "", "the extent -3; it");
    refused(&extent("2.5"), "", "the extent 2.5; it");
    refused(&extent("1e400"), "", "g.json:1:");
    refused(&extent("NaN"), "", "g.json:1:");
    refused(&extent("4294967296, 4294967296, 2"), "", "more than 2^64 bytes");
    refused(r#"{"name": "a", "type": "float63"}"#, "", "of type 'float63'; there are bool, int8");
    refused(r#"{"name": "a", "type": "text"}"#, "", "has no 'size_bytes'; add its length");
    refused(r#"{"name": "a", "type": "text", "size_bytes": -1}"#, "", "the size -1");
    let other = Graph::parse("g.json", r#"{"format": "gridloom graph 9", "nodes": []}"#).unwrap_err().to_string();
    assert_eq!(other, "g.json: its format is 'gridloom graph 9'; this version reads 'gridloom graph 1'");
    let plan = Graph::parse("g.json", r#"{"format": "gridloom plan 1"}"#).unwrap_err().to_string();
    assert!(plan.contains("its format is 'gridloom plan 1'"), "{plan}");
    let nan = Graph::new().call("p", "f", [f64::NAN]).unwrap_err().to_string();
    assert!(nan.contains("call 'p' has the number NaN; declare a finite one"), "{nan}");
}
