//! Plain calls beyond `Function::call`: bound to a server, with ends reported as they happen, and with inputs after results.

use crate::support;
use std::time::Duration;

use gridloom::base::{Dtype, Meta, TaskError};
use gridloom::{Arg, Error, Function, Grid, PendingCall, Value};

/// As in LAPACK, a result is between the inputs.
const FUNCTIONS: &str = r#"
Module kernels;
Define solve(IN int n, INOUT double a[n][n], OUT int pivots[n], INOUT double b[n], OUT int *info)
"b := a^-1 b" CalcOrder 2*n^3/3 Calls "C" solve(n, a, pivots, b, info);
"#;

fn grid(test: &str) -> (Grid, Function) {
    let hosts = [("client", "1Gf"), ("server-1", "10Gf"), ("server-2", "10Gf"), ("server-3", "1Gf")];
    let platform = support::star(&hosts, "1GBps", "50us");
    let grid = Grid::simulate(support::simulation(test, &platform, FUNCTIONS, &[])).unwrap();
    let function = grid.function("kernels/solve").unwrap();
    (grid, function)
}

fn arguments() -> [Arg; 3] {
    let n = Value::scalar(Dtype::Int32, &100i32.to_ne_bytes());
    let array = |shape: &[u64]| Value::placeholder(Meta::array(Dtype::Float64, shape));
    [n.into(), array(&[100, 100]).into(), array(&[100]).into()]
}

#[test]
fn inputs_may_follow_results() {
    let (_grid, function) = grid("behind");
    let results = function.call(arguments()).unwrap();
    let shapes: Vec<String> = results.iter().map(|value| value.meta().to_string()).collect();
    assert_eq!(shapes, ["float64[100, 100]", "int32[100]", "float64[100]", "int32"]);
}

#[test]
fn calls_that_are_bound_run_on_their_server() {
    let (grid, function) = grid("bound");
    // The slowest server, which no heuristic would choose.
    let server = grid.servers().servers.iter().find(|server| server.name == "server-3").unwrap().node;
    let calls: Vec<PendingCall> = (0..5).map(|_| function.submit_on(server, arguments(), &[], None).unwrap()).collect();
    for call in calls {
        assert!(call.end().is_none());
        call.watch().wait(None).unwrap();
        let end = call.end().unwrap();
        assert_eq!(end.server.as_deref(), Some("server-3"));
        assert!(end.error.is_none() && end.run_s > 0.0);
        call.wait().unwrap();
    }
}

#[test]
fn ends_are_reported_once_and_only_of_calls_that_are_noted() {
    let (grid, function) = grid("ends");
    let submit = |limit| function.submit(arguments(), &[], limit).unwrap();
    let silent = submit(None);
    let noted = [submit(None), submit(Some(Duration::from_nanos(1)))];
    noted.iter().for_each(PendingCall::note_end);
    let mut told = Vec::new();
    grid.await_ends(None, |ended| {
        told.extend_from_slice(ended);
        (told.len() == noted.len()).then_some(())
    })
    .unwrap();
    told.sort_unstable();
    assert_eq!(told, [noted[0].task(), noted[1].task()]);
    assert!(matches!(noted[1].end().unwrap().error, Some(TaskError::DeadlineExceeded { .. })));
    silent.watch().wait(None).unwrap();
    // A call that has already ended is reported immediately, and then no others are.
    silent.note_end();
    let first = grid.await_ends(Some(Duration::ZERO), |ended| ended.first().copied());
    assert_eq!(first.unwrap(), silent.task());
    let none = grid.await_ends(Some(Duration::ZERO), |ended| ended.first().copied());
    assert!(matches!(none, Err(Error::TimedOut { .. })));
}
