//! The judge of plans with contention against plans of recorded workflows whose makespans are known, where they are at hand.

use std::collections::BTreeMap;
use std::path::Path;

use gridloom_core::map::Problem;
use gridloom_core::map::contention::{Choice, Judge};
use gridloom_core::map::recorded::{CLIENT, Case, Model, Servers, Workflow};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/workflows");

fn read(file: &str) -> Option<serde_json::Value> {
    let path = Path::new(FOLDER).join(file);
    Some(serde_json::from_str(&std::fs::read_to_string(path).ok()?).unwrap())
}

#[test]
fn known_plans_have_their_makespans() {
    let (Some(plans), Some(baseline)) = (read("m2.json"), read("baseline.json")) else { return };
    let mut compared = 0;
    for plan in plans["plans"].as_array().unwrap() {
        let name = plan["workflow"].as_str().unwrap();
        let text = std::fs::read_to_string(Path::new(FOLDER).join(format!("{name}.json"))).unwrap();
        let workflow = Workflow::parse(&text, name).unwrap();
        let known = baseline["workflows"].as_array().unwrap().iter().find(|one| one["workflow"] == name).unwrap();
        let platform = known["platforms"].as_array().unwrap().iter().find(|one| one["platform"]["k"] == plan["k"]);
        let servers = Servers::parse(&platform.unwrap()["platform"].to_string(), name).unwrap();
        let case = Case { workflow: &workflow, servers: &servers, model: Model::M2 };
        let problem = Problem::new(&case.outline(), &case.grid(), CLIENT).unwrap();
        let place = |value: &serde_json::Value| match value.as_i64().unwrap() {
            -1 => problem.client() as u32,
            server => server as u32,
        };
        let tasks = &workflow.tasks;
        let chosen = tasks.iter().map(|task| place(&plan["assignment"][&task.id])).collect();
        let mut order: Vec<u32> = (0..tasks.len() as u32).collect();
        let start_s = |task: u32| plan["start_seconds"][&tasks[task as usize].id].as_f64().unwrap();
        order.sort_by(|a, b| {
            start_s(*a).total_cmp(&start_s(*b)).then(tasks[*a as usize].place.cmp(&tasks[*b as usize].place))
        });
        let mut sources = BTreeMap::new();
        for (file, by_server) in plan["sources"].as_object().unwrap() {
            let datum = workflow.files.iter().position(|one| one.name == *file).unwrap() as u32;
            for (server, source) in by_server.as_object().unwrap() {
                let to = match server.as_str() {
                    "-1" => problem.client() as u32,
                    number => number.parse().unwrap(),
                };
                sources.insert((datum, to), place(source));
            }
        }
        let choice = Choice { servers: chosen, order, sources };
        let expected = plan["makespan_seconds"].as_f64().unwrap();
        let mut judge = Judge::new(&problem);
        let found =
            judge.run(&choice, f64::INFINITY).unwrap_or_else(|error| panic!("{name} {}: {error}", plan["plan"]));
        let found = found.unwrap().makespan_s;
        assert!(
            (found - expected).abs() <= 1e-6 * expected,
            "{name} {} {}: {found} {expected}",
            plan["k"],
            plan["plan"]
        );
        compared += 1;
    }
    assert_eq!(compared, 112);
}
