//! Imposed plans: reading back, rejection, and mapping again by a heuristic.

use crate::testing::{Build, CLIENT, grid, matrix_chain};
use gridloom_map::*;

fn problem() -> Problem {
    Problem::new(&matrix_chain(512), &grid(&[1e9, 1e9, 2e9]), CLIENT).unwrap()
}

#[test]
fn a_plan_given_again_is_the_same_plan() {
    let problem = problem();
    let again = |heuristic: &str, problem: &Problem| {
        let plan = map_group(heuristic, &matrix_chain(512), &grid(&[1e9, 1e9, 2e9]), CLIENT).unwrap();
        let again = ImposedPlan::of_plan(&plan, problem).plan(problem).unwrap();
        (again, Plan { heuristic: "given".into(), ..plan })
    };
    let (given, auto) = again("auto", &problem);
    assert_eq!((given.tasks, given.makespan_s), (auto.tasks, auto.makespan_s));
    // Three servers receive four pairs of inputs over one link of the client, which heft does not model.
    let (given, heft) = again("heft", &problem);
    assert_eq!((given.order(), given.makespan_s > 1.1 * heft.makespan_s), (heft.order(), true));
    let (given, heft) = again("heft", &problem.without_contention());
    assert_eq!(given, heft);
}

/// Three servers receive four pairs of inputs over one link of the client.
#[test]
fn an_agents_plan_has_times_with_contention_whatever_heuristic_makes_it() {
    let (outline, grid, problem) = (matrix_chain(512), grid(&[1e9, 1e9, 2e9]), problem());
    for heuristic in ["heft", "greedy_map", "cpop", "min-min", "sufferage", "round-robin", "mct", "local"] {
        let plan = MappingMethod::from(heuristic).map(&outline, &grid, CLIENT, Stop::default()).unwrap();
        plan.validate(&problem).unwrap_or_else(|why| panic!("{heuristic}: {why}"));
        let alone = map_group(heuristic, &outline, &grid, CLIENT).unwrap();
        let servers = |plan: &Plan| plan.tasks.iter().map(|task| task.server).collect::<Vec<_>>();
        assert_eq!((&plan.heuristic, servers(&plan)), (&alone.heuristic, servers(&alone)));
        let (longer, least) = (plan.makespan_s / alone.makespan_s, if heuristic == "heft" { 1.1 } else { 1.0 - 1e-9 });
        assert!(longer >= least, "{heuristic}: {} s, and {} s without contention", plan.makespan_s, alone.makespan_s);
    }
    let method = MappingMethod::from("auto");
    let auto = method.map(&outline, &grid, CLIENT, Stop::default()).unwrap();
    assert_eq!(auto, map_group("auto", &outline, &grid, CLIENT).unwrap());
}

#[test]
fn a_mismatch_reports_the_reason() {
    let problem = problem();
    let refused = |change: &dyn Fn(&mut ImposedPlan), why: &str| {
        let mut given = ImposedPlan::of_places(&[0; 7], &problem);
        change(&mut given);
        let found = given.plan(&problem).expect_err(why).to_string();
        assert!(found.contains(why), "'{found}' does not say '{why}'");
    };
    refused(&|given| given.tasks.truncate(6), "it has 6 tasks and the group 7: task 6 ('m/f0') is not in the plan");
    refused(&|given| given.tasks.push(given.tasks[0]), "task 7 ('m/f0') is not in the group");
    refused(&|given| given.functions[0] = "m/g".into(), "task 0 calls 'm/g' there and 'm/f0' in the group");
    refused(&|given| given.servers[0] = "desk".into(), "'desk', and there is none of that name; there are s0, s1, s2");
    refused(&|given| given.servers[0] = "server0".into(), "there is none of that name");
    refused(&|given| given.tasks[3].server = 9, "malformed");
    refused(&|given| given.order[3] = 77, "task 77, and there is none");
    refused(&|given| given.order[1] = 0, "task 0 twice");
    refused(&|given| given.order.truncate(6), "lacks task 6");
    refused(&|given| given.order.reverse(), "task 6 ('m/f0') before task");
    refused(&|given| given.fallback = "best".into(), "unknown heuristic 'best'");
    refused(
        &|given| {
            given.heuristic = "mine".into();
            given.order.clear();
        },
        "heuristic 'mine' returned an invalid plan",
    );
}

#[test]
fn servers_without_function_or_memory_are_refused() {
    let mut build = Build::new(2);
    let source = build.source(1000);
    build.task(0, 1e6, &[source], 8);
    let outline = build.done();
    let mut grid = grid(&[1e9, 1e9, 1e9]);
    grid.servers[0].functions.remove("m/f0");
    grid.servers[1].memory_bytes = 99;
    let problem = Problem::new(&outline, &grid, CLIENT).unwrap();
    let refused = |place| ImposedPlan::of_places(&[place], &problem).plan(&problem).unwrap_err().to_string();
    assert!(refused(0).ends_with("task 0 is on server 's0', which does not offer 'm/f0'"), "{}", refused(0));
    assert!(refused(1).ends_with("whose store has 99 bytes; its arguments and results need 1008"), "{}", refused(1));
    assert!(ImposedPlan::of_places(&[2], &problem).plan(&problem).is_ok());
}

#[test]
fn a_bound_task_is_refused_elsewhere() {
    let mut outline = matrix_chain(512);
    outline.tasks[3].bound_to = Some(gridloom_base::NodeId(101));
    let problem = Problem::new(&outline, &grid(&[1e9, 1e9, 2e9]), CLIENT).unwrap();
    let refused = ImposedPlan::of_places(&[0; 7], &problem).plan(&problem).unwrap_err().to_string();
    assert!(refused.ends_with("task 3 ('m/f0') is on server 's0', and is bound to 's1'"), "{refused}");
    assert!(ImposedPlan::of_places(&[0, 0, 0, 1, 0, 0, 0], &problem).plan(&problem).is_ok());
}

#[test]
fn what_is_left_is_mapped_by_a_heuristic() {
    let mut by = MappingMethod::Imposed(Box::new(ImposedPlan::of_places(&[0; 7], &problem())));
    assert!(matches!(by.take(), MappingMethod::Imposed(_)));
    assert_eq!(by.take(), MappingMethod::from("heft"));
    assert_eq!(by, MappingMethod::from("heft"));
}
