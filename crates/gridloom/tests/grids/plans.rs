//! Plans imposed on groups, and custom heuristics, on a simulated grid.

use crate::support;
use std::path::PathBuf;

use gridloom::base::{Dtype, Meta};
use gridloom::map::{MapError, Plan, Problem, Schedule};
use gridloom::{Error, Grid, Group, Handle, Mapping, PlanRecord, Value};

fn star() -> String {
    support::star(&[("client", "1Gf"), ("near", "10Gf"), ("far", "10Gf")], "1GBps", "50us")
}

fn grid(test: &str) -> Grid {
    Grid::simulate(support::simulation(test, &star(), support::PRODUCT, &[])).unwrap()
}

/// Records two products and their product.
fn record(grid: &Grid, group: &Group) -> Handle {
    let product = grid.function("kernels/product").unwrap();
    let matrix = || Value::placeholder(Meta::array(Dtype::Float64, &[500, 500]));
    let first = || group.call(&product, (matrix(), matrix())).unwrap().one().unwrap();
    group.call(&product, (first(), first())).unwrap().one().unwrap()
}

fn servers(plan: &PlanRecord) -> Vec<&str> {
    plan.tasks.iter().map(|task| task.server.as_str()).collect()
}

#[test]
fn a_plan_is_saved_edited_and_run() {
    let grid = grid("plan-given");
    let group = grid.group("heft");
    let result = record(&grid, &group);
    let plan = group.plan("heft").unwrap();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("plan-given/plan.json");
    plan.save(&path).unwrap();
    assert_eq!(PlanRecord::load(&path).unwrap(), plan);
    let moved = plan.moved(0, "far").unwrap().moved(1, "near").unwrap().moved(2, "far").unwrap();
    assert_eq!((servers(&moved), moved.heuristic.as_str()), (vec!["far", "near", "far"], "given"));
    group.discard();
    drop(result);

    let group = grid.group(&moved);
    let result = record(&grid, &group);
    assert_eq!(group.plan(&moved).unwrap().makespan_seconds, moved.makespan_seconds);
    result.get().unwrap();
    let report = group.report().unwrap();
    assert_eq!(
        (servers(&report.plans[0]), report.plans[0].hash.as_str()),
        (vec!["far", "near", "far"], moved.hash.as_str())
    );
}

#[test]
fn a_plan_without_its_makespan_is_predicted_from_its_problem() {
    let grid = grid("plan-null");
    let group = grid.group("heft");
    let _result = record(&grid, &group);
    let plan = group.plan("heft").unwrap();
    group.discard();
    let text = plan.to_json();
    let makespan = format!("\"makespan_seconds\": {:?}", plan.makespan_seconds);
    assert!(text.contains(&makespan), "{text}");
    let unknown = text.replace(&makespan, "\"makespan_seconds\": null");
    let known = PlanRecord::parse("plan.json", &unknown).unwrap();
    // The same prediction as for any imposed plan.
    let same = plan.moved(0, &plan.tasks[0].server).unwrap();
    assert!(known.has_times() && servers(&known) == servers(&plan), "{known:?}");
    assert_eq!((known.makespan_seconds, &known.tasks), (same.makespan_seconds, &same.tasks));
    // Without the problem the times stay unknown.
    let (head, _) = unknown.split_once(",\n\"problem\"").unwrap();
    assert!(!PlanRecord::parse("plan.json", &format!("{head}\n}}")).unwrap().has_times());
}

#[test]
fn negative_times_are_refused() {
    let grid = grid("plan-negative");
    let group = grid.group("heft");
    let _result = record(&grid, &group);
    let plan = group.plan("heft").unwrap();
    group.discard();
    let refused = |change: &dyn Fn(&mut PlanRecord), expected: &str| {
        let mut changed = plan.clone();
        change(&mut changed);
        let error = PlanRecord::parse("plan.json", &changed.to_json()).unwrap_err().to_string();
        assert_eq!(error, format!("plan.json: {expected}; it must be 0 or above"));
    };
    refused(&|plan| plan.makespan_seconds = -1e308, "'makespan_seconds' is -1e308");
    refused(&|plan| plan.lower_bound_seconds = -1.0, "'lower_bound_seconds' is -1.0");
    refused(&|plan| plan.map_seconds = -1.0, "'map_seconds' is -1.0");
    refused(&|plan| plan.tasks[1].start_seconds = -0.5, "task 1: 'start_seconds' is -0.5");
    refused(&|plan| plan.tasks[2].end_seconds = -2.0, "task 2: 'end_seconds' is -2.0");
    refused(&|plan| plan.transfers[0].start_seconds = -0.25, "transfer 0: 'start_seconds' is -0.25");
}

#[test]
fn a_closure_maps_a_group() {
    let grid = grid("plan-own");
    let in_turn = Mapping::custom("in-turn", |problem: &Problem| {
        let mut schedule = Schedule::new(problem);
        for task in 0..problem.task_count() {
            schedule.place(task, task % problem.servers().len());
        }
        Ok(schedule.finish())
    });
    let group = grid.group(in_turn);
    record(&grid, &group).get().unwrap();
    let report = group.report().unwrap();
    assert_eq!((servers(&report.plans[0]), report.heuristic.as_str()), (vec!["far", "near", "far"], "in-turn"));
}

#[test]
fn a_heuristic_that_fails_is_named() {
    let grid = grid("plan-bad");
    let refused = |mapping: Mapping, expected: &str| {
        let group = grid.group(mapping);
        let result = record(&grid, &group);
        let error = group.launch().unwrap_err().to_string();
        assert!(error.contains(expected), "'{error}' does not say '{expected}'");
        assert!(matches!(result.get(), Err(Error::Discarded { .. })));
    };
    let none = |_: &Problem| Err(MapError::Failed { why: "not today".into() });
    refused(Mapping::custom("none", none), "heuristic 'none': not today");
    let early = |problem: &Problem| -> Result<Plan, MapError> {
        let mut schedule = Schedule::new(problem);
        (0..problem.task_count()).for_each(|task| schedule.place(task, 0));
        let mut plan = schedule.finish();
        plan.tasks[2].start_s = 0.0;
        Ok(plan)
    };
    refused(Mapping::custom("early", early), "heuristic 'early' returned an invalid plan: task 2 takes");
}
