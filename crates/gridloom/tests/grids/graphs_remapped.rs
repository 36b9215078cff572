//! The remaining calls of declared groups are mapped again, on a simulated grid.

use crate::support;
use gridloom::base::{Dtype, Meta};
use gridloom::{Arg, Error, Function, Graph, GraphOptions, Grid, Group, Handle, Report, Value};

/// A fast server, slowed down from 1.5 s on, and another one.
const SLOWS: &str = "[[profile]]\nhost = 'fast'\nkind = 'speed'\nevents = [[0, 1], [1.5, 0.05]]\n";

const STEPS: usize = 40;

const HOSTS: [(&str, &str); 3] = [("client", "1Gf"), ("fast", "20Gf"), ("other", "10Gf")];

fn grid(test: &str, profile: &str) -> Grid {
    let platform = format!("{}{profile}", support::star(&HOSTS, "1GBps", "50us"));
    Grid::simulate(support::simulation(test, &platform, support::SQUARE, &[])).unwrap()
}

fn square() -> Meta {
    Meta::array(Dtype::Float64, &[1000, 1000])
}

/// A chain of squares, each of 2 Gflop.
fn chain(count: usize) -> Graph {
    let mut graph = Graph::new();
    let mut x = graph.input("x", square()).unwrap();
    for step in 1..=count {
        x = graph.call(&format!("x{step}"), "kernels/product", [&x]).unwrap();
    }
    graph
}

struct Program {
    grid: Grid,
    group: Group,
    product: Function,
    last: Option<Handle>,
}

impl Program {
    fn new(grid: Grid, mapping: impl Into<gridloom::Mapping>, count: usize) -> Program {
        let group = grid.group_of(&chain(count), mapping, GraphOptions::default()).unwrap();
        let product = grid.function("kernels/product").unwrap();
        Program { grid, group, product, last: None }
    }

    /// Makes the next call, and waits for its end.
    fn step(&mut self) {
        let x = Value::placeholder(square());
        let input = self.last.as_ref().map_or(Arg::from(&x), Arg::from);
        let call = self.group.submit(&self.product, [input], &[]).unwrap();
        self.last = Some(call.results()[0].clone());
        call.wait().unwrap();
    }

    fn report(&self) -> Report {
        self.last.as_ref().unwrap().get().unwrap();
        self.group.finish().unwrap();
        let report = self.group.report().unwrap();
        assert!(report.differences.is_empty(), "{report}");
        report
    }
}

fn on(report: &Report) -> Vec<&str> {
    let mut tasks: Vec<_> = report.tasks.iter().collect();
    tasks.sort_by_key(|task| task.task.parse::<u64>().unwrap());
    tasks.iter().map(|task| task.server.as_str()).collect()
}

#[test]
fn the_rest_goes_where_it_is_faster_now() {
    let steady = Program::new(grid("again-steady", ""), "heft", STEPS);
    let run = |mut program: Program| {
        (0..STEPS).for_each(|_| program.step());
        program.report()
    };
    let report = run(steady);
    assert_eq!((on(&report), report.plans.len()), (vec!["fast"; STEPS], 1));
    let report = run(Program::new(grid("again-slows", SLOWS), "heft", STEPS));
    let servers = on(&report);
    assert_eq!((servers[0], *servers.last().unwrap()), ("fast", "other"), "{report}");
    assert!(report.plans.len() > 1 && report.plans[0].tasks.len() == STEPS, "{report}");
    assert!(report.plans.last().unwrap().tasks.iter().all(|task| task.server == "other"), "{report}");
    // Not mapped again at every call.
    assert!(report.plans.len() < 5, "{report}");
}

#[test]
fn a_plan_that_was_given_stays() {
    let simulated = grid("again-given", SLOWS);
    let plan = simulated.plan_of(&chain(STEPS), "heft").unwrap();
    let mut program = Program::new(simulated, plan, STEPS);
    (0..STEPS).for_each(|_| program.step());
    assert_eq!(on(&program.report()), vec!["fast"; STEPS]);
}

#[test]
fn the_program_may_request_it() {
    let mut program = Program::new(grid("again-asked", ""), "heft", 6);
    program.step();
    program.step();
    let plan = program.group.map_again().unwrap();
    assert_eq!(plan.tasks.len(), 4);
    // Existing results stay where they are: they need not move.
    assert!(plan.transfers.iter().all(|moved| moved.to == "client"), "{plan}");
    (0..4).for_each(|_| program.step());
    let none = program.group.map_again().unwrap_err();
    assert!(matches!(&none, Error::Usage(why) if why.contains("no call of the group is left")), "{none}");
    let report = program.report();
    assert_eq!((report.plans.len(), report.tasks.len()), (2, 6));
    let undescribed = program.grid.group("heft").map_again().unwrap_err();
    assert!(matches!(undescribed, Error::Usage(_)));
}

/// Calls in progress keep their servers busy.
#[test]
fn calls_in_progress_count() {
    let grid = grid("again-busy", "");
    let mut graph = Graph::new();
    let x = graph.input("x", square()).unwrap();
    (0..6).for_each(|step| drop(graph.call(&format!("y{step}"), "kernels/product", [&x]).unwrap()));
    let group = grid.group_of(&graph, "heft", GraphOptions::default()).unwrap();
    let product = grid.function("kernels/product").unwrap();
    let value = Value::placeholder(square());
    let planned = group.declared_plan().unwrap();
    let on_fast = planned.tasks.iter().filter(|task| task.server == "fast").count();
    assert_eq!(on_fast, 4);
    let calls: Vec<_> = (0..4).map(|_| group.submit(&product, [&value], &[]).unwrap()).collect();
    let again = group.map_again().unwrap();
    // On an idle grid, 'fast' would get both, or the first.
    let rest: Vec<&str> = again.tasks.iter().map(|task| task.server.as_str()).collect();
    let before: Vec<&str> = planned.tasks[4..].iter().map(|task| task.server.as_str()).collect();
    assert_eq!(rest, before, "{again}");
    drop(calls);
    assert!(again.tasks.iter().all(|task| task.start_seconds > 0.05), "{again}");
}
