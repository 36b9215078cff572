//! Calls that are bound to a server, plain and in groups, on a simulated grid.

use crate::support;
use gridloom::base::{Dtype, Meta, TaskError};
use gridloom::{Error, Function, Graph, GraphOptions, Grid, SimulateConfig, Value};

/// Two fast servers and a slow one, which no heuristic would choose freely.
fn config(test: &str, faults: &str) -> SimulateConfig {
    let hosts = [("client", "1Gf"), ("fast-1", "20Gf"), ("fast-2", "20Gf"), ("slow", "5Gf")];
    let star = support::star(&hosts, "1GBps", "50us");
    let config = support::simulation(test, &star, support::PRODUCT, &[("some.faults", faults)]);
    let file = config.platform.with_file_name("some.faults");
    SimulateConfig { faults: (!faults.is_empty()).then_some(file), ..config }
}

fn grid(test: &str, faults: &str) -> (Grid, Function, Function) {
    let grid = Grid::simulate(config(test, faults)).unwrap();
    let product = grid.function("kernels/product").unwrap();
    let slow = product.on("slow").unwrap();
    (grid, product, slow)
}

fn square(extent: u64) -> Meta {
    Meta::array(Dtype::Float64, &[extent, extent])
}

fn matrix(extent: u64) -> Value {
    Value::placeholder(square(extent))
}

/// x1 := a a, x2 := x1 a on the slow server, x3 := x2 a.
fn steps(extent: u64) -> Graph {
    let mut graph = Graph::new();
    let a = graph.input("a", square(extent)).unwrap();
    let mut x = a.clone();
    for step in 1..=3 {
        x = graph.call(&format!("x{step}"), "kernels/product", (&x, &a)).unwrap();
        if step == 2 {
            graph.bind(&x, "slow").unwrap();
        }
    }
    graph
}

fn is_lost<T: std::fmt::Debug>(result: Result<T, Error>) {
    match result {
        Err(Error::Task(error @ TaskError::ServerLost { .. })) => {
            let told = error.to_string();
            assert!(told.starts_with("server 'slow' was lost ("), "{told}");
            assert!(
                told.ends_with("the call of 'kernels/product' is bound to it, for example by on('slow')"),
                "{told}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bound_call_has_its_place_in_the_plan() {
    let (grid, product, slow) = grid("bound-plan", "");
    for heuristic in ["auto", "heft", "round-robin", "min-min"] {
        let follow = GraphOptions { is_strict: true, ..GraphOptions::default() };
        let group = grid.group_of(&steps(500), heuristic, follow).unwrap();
        let a = matrix(500);
        let x1 = group.call(&product, (&a, &a)).unwrap().one().unwrap();
        let x2 = group.call(&slow, (&x1, &a)).unwrap().one().unwrap();
        let x3 = group.call(&product, (&x2, &a)).unwrap().one().unwrap();
        x3.get().unwrap();
        group.finish().unwrap();
        let report = group.report().unwrap();
        let planned: Vec<&str> = report.plans[0].tasks.iter().map(|task| task.server.as_str()).collect();
        assert_eq!((planned.len(), planned[1]), (3, "slow"), "{report}");
        let mut ran: Vec<_> = report.tasks.iter().collect();
        ran.sort_by_key(|task| task.task.parse::<u64>().unwrap());
        assert_eq!(ran.iter().map(|task| task.server.as_str()).collect::<Vec<_>>(), planned);
        // Data between the calls stay on the servers: the client sends the input and receives the last result.
        let sent = report.client_bytes / (500 * 500 * 8);
        assert!((2..=4).contains(&sent) && report.server_bytes > 0, "{report}");
    }
}

#[test]
fn a_call_that_is_bound_otherwise_is_another() {
    let (grid, product, _) = grid("bound-differs", "");
    let group = grid.group_of(&steps(300), "heft", GraphOptions::default()).unwrap();
    let a = matrix(300);
    let x1 = group.call(&product, (&a, &a)).unwrap().one().unwrap();
    let fast = product.on("fast-2").unwrap();
    let x2 = group.call(&fast, (&x1, &a)).unwrap().one().unwrap();
    group.call(&product, (&x2, &a)).unwrap().one().unwrap().get().unwrap();
    group.finish().unwrap();
    let differences: Vec<String> = group.differences().iter().map(ToString::to_string).collect();
    let why = "is not 'x2' as declared: it is bound to 'fast-2', but was declared as bound to 'slow'";
    assert!(differences.len() == 1 && differences[0].contains(why), "{differences:?}");
    assert!(group.report().unwrap().tasks.iter().any(|task| task.server == "fast-2"));
}

#[test]
fn recorded_groups_and_plain_calls_keep_to_the_server_too() {
    let (grid, product, slow) = grid("bound-group", "");
    let a = matrix(400);
    for heuristic in ["auto", "mct", "random"] {
        let group = grid.group(heuristic);
        let first = group.call(&slow, (&a, &a)).unwrap().one().unwrap();
        let last = group.call(&product, (&first, &a)).unwrap().one().unwrap();
        last.get().unwrap();
        let report = group.report().unwrap();
        assert!(report.tasks.iter().any(|task| task.server == "slow"), "{report}");
    }
    let pending = slow.submit((&a, &a), &[], None).unwrap();
    pending.watch().wait(None).unwrap();
    assert_eq!(pending.end().unwrap().server.as_deref(), Some("slow"));
}

#[test]
fn graphs_in_files_name_the_server() {
    let graph = steps(100);
    assert!(graph.to_json().contains(r#""on":"slow""#), "{}", graph.to_json());
    assert_eq!(Graph::parse("g.json", &graph.to_json()).unwrap(), graph);
    let (grid, product, _) = grid("bound-file", "");
    let other = Graph::parse("g.json", &graph.to_json().replace("slow", "slwo")).unwrap();
    let refused = grid.plan_of(&other, "heft").unwrap_err().to_string();
    let why = "call 'x2': kernels/product: there is no server 'slwo' for it; did you mean slow?";
    assert!(refused.contains(why), "{refused}");
    let input = graph.clone().bind(&gridloom::GraphRef::named("a"), "slow").unwrap_err().to_string();
    assert!(input.contains("'a' is bound to server 'slow', but is not a call"), "{input}");
    assert!(product.on("nowhere").unwrap_err().to_string().contains("there is no server 'nowhere'"));
}

/// A call that only the lost server may run fails, and so do its readers; everything else in the group continues.
#[test]
fn a_bound_call_fails_with_its_server() {
    for heuristic in ["auto", "heft"] {
        let (grid, product, slow) = grid("bound-lost", "at 4s kill slow\n");
        let a = matrix(3000);
        let group = grid.group(heuristic);
        let bound = group.call(&slow, (&a, &a)).unwrap().one().unwrap();
        let reader = group.call(&product, (&bound, &a)).unwrap().one().unwrap();
        let free = group.call(&product, (&a, &a)).unwrap().one().unwrap();
        let last = group.call(&product, (&free, &a)).unwrap().one().unwrap();
        group.launch().unwrap();
        is_lost(bound.get());
        let nested = reader.get().unwrap_err();
        assert!(matches!(nested, Error::Task(TaskError::DependencyFailed { .. })), "{nested}");
        last.get().unwrap();
        // Nor does it run later: the server is not in the grid.
        let group = grid.group(heuristic);
        let bound = group.call(&slow, (&a, &a)).unwrap().one().unwrap();
        let free = group.call(&product, (&a, &a)).unwrap().one().unwrap();
        is_lost(bound.get());
        free.get().unwrap();
        is_lost(slow.call((&a, &a)));
    }
}

/// A result that only the lost server had is not recomputed elsewhere.
#[test]
fn a_bound_calls_result_is_lost_with_its_server() {
    let (grid, product, slow) = grid("bound-result", "at 4s kill slow\n");
    let (a, large) = (matrix(200), matrix(3500));
    let group = grid.group("heft");
    let bound = group.call(&slow, (&a, &a)).unwrap().one().unwrap();
    let long = group.call(&product, (&large, &large)).unwrap().one().unwrap();
    long.get().unwrap();
    assert!(grid.now() > 4.5, "{} s", grid.now());
    is_lost(bound.get());
}

#[test]
fn a_chain_of_bound_calls_is_lost_as_a_whole() {
    let (grid, _, slow) = grid("bound-chain", "at 1s kill slow\n");
    let group = grid.group("heft");
    let a = matrix(3000);
    let x1 = group.call(&slow, (&a, &a)).unwrap().one().unwrap();
    let x2 = group.call(&slow, (&x1, &a)).unwrap().one().unwrap();
    let x3 = group.call(&slow, (&x2, &a)).unwrap().one().unwrap();
    group.launch().unwrap();
    for result in [x1, x2, x3] {
        assert!(matches!(
            result.get(),
            Err(Error::Task(TaskError::ServerLost { .. } | TaskError::DependencyFailed { .. }))
        ));
    }
}
