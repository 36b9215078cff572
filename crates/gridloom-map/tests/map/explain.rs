//! Explanations: alternatives of a task, deciding factors, the critical path.

use crate::testing::{Build, CLIENT, grid, matrix_chain};
use gridloom_base::NodeId;
use gridloom_map::*;

#[test]
fn the_server_where_it_is_comes_first_and_others_by_makespan() {
    let (outline, grid) = (matrix_chain(512), grid(&[1e9, 1e9, 4e9]));
    let problem = Problem::new(&outline, &grid, CLIENT).unwrap();
    let plan = gridloom_map::map_group("auto", &outline, &grid, CLIENT).unwrap();
    for task in 0..7 {
        let explained = explain(&ImposedPlan::of_plan(&plan, &problem), &problem, task).unwrap();
        let outcomes: Vec<&Outcome> = explained.alternatives.iter().map(|a| a.outcome.as_ref().unwrap()).collect();
        assert_eq!(problem.node(explained.server), plan.tasks[task].server);
        assert_eq!((outcomes[0].makespan_s, outcomes[0].end_s), (plan.makespan_s, plan.tasks[task].end_s));
        assert!(outcomes[1].makespan_s <= outcomes[2].makespan_s && outcomes.len() == 3);
    }
}

#[test]
fn the_bottleneck_is_reported() {
    let mut build = Build::new(1);
    let large = build.source(1_000_000_000);
    build.0.data[0].at = vec![NodeId(100)];
    build.task(0, 1e8, &[large], 8);
    let outline = build.done();
    let mut grid = grid(&[1e9, 1e9, 1e7]);
    grid.servers[2].functions.clear();
    let problem = Problem::new(&outline, &grid, CLIENT).unwrap();
    let plan = gridloom_map::map_group("heft", &outline, &grid, CLIENT).unwrap();
    let explained = explain(&ImposedPlan::of_plan(&plan, &problem), &problem, 0).unwrap();
    assert_eq!(explained.server, 0);
    let decides = |at: usize| explained.alternatives[at].outcome.as_ref().map(|outcome| outcome.decides);
    assert_eq!((decides(0), decides(1)), (Ok(DecidingFactor::Run), Ok(DecidingFactor::Inputs)));
    assert!(explained.alternatives[2].outcome.as_ref().unwrap_err().contains("does not offer"));
}

/// A short task and a long one. The short one would end sooner on the fast server, but the long one would wait for it.
#[test]
fn what_is_behind_a_task_is_the_reason_where_it_is() {
    let mut build = Build::new(1);
    build.task(0, 1e9, &[], 8);
    build.task(0, 8e9, &[], 8);
    let (outline, grid) = (build.done(), grid(&[1e9, 4e9]));
    let problem = Problem::new(&outline, &grid, CLIENT).unwrap();
    let given = ImposedPlan::of_places(&[0, 1], &problem);
    let explained = explain(&given, &problem, 0).unwrap();
    let [here, there] = [0, 1].map(|at| explained.alternatives[at].outcome.as_ref().unwrap());
    assert!(there.end_s < here.end_s && there.makespan_s > here.makespan_s, "{here:?} {there:?}");
    assert_eq!(there.decides, DecidingFactor::Successors);
}

#[test]
fn the_critical_path_spans_the_plan_without_gaps() {
    let (outline, grid) = (matrix_chain(512), grid(&[1e9, 1e9, 2e9]));
    let problem = Problem::new(&outline, &grid, CLIENT).unwrap();
    for heuristic in ["heft", "round-robin", "random[seed=3]", "mct"] {
        let plan = gridloom_map::map_group(heuristic, &outline, &grid, CLIENT).unwrap();
        let path = critical_path(&plan, &problem).unwrap();
        assert_eq!((path[0].start_s, path[path.len() - 1].end_s), (0.0, plan.makespan_s), "{heuristic}");
        assert!(path.windows(2).all(|pair| (pair[0].end_s - pair[1].start_s).abs() < 1e-9), "{heuristic}");
    }
}
