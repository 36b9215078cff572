//! Recorded workflows against their known figures, if available: makespans of plans with contention, lower bounds, plain
//! GridRPC.

use std::path::Path;

use gridloom_workflows::{Case, Model, RecordedPlan, Servers, Workflow};
use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/workflows");

fn read(file: &str) -> Option<Value> {
    let path = Path::new(FOLDER).join(file);
    Some(serde_json::from_str(&std::fs::read_to_string(path).ok()?).unwrap())
}

fn workflow(name: &str) -> Workflow {
    let text = std::fs::read_to_string(Path::new(FOLDER).join(format!("{name}.json"))).unwrap();
    Workflow::parse(&text, name).unwrap()
}

fn assert_near(found: f64, known: &Value, of: &str) {
    let known = known.as_f64().unwrap();
    assert!((found - known).abs() <= 1e-6 * known, "{of}: {found}, known as {known}");
}

#[test]
fn known_plans_have_their_makespans() {
    let (Some(plans), Some(baseline)) = (read("m2.json"), read("baseline.json")) else { return };
    let mut compared = 0;
    for plan in plans["plans"].as_array().unwrap() {
        let name = plan["workflow"].as_str().unwrap();
        let workflow = workflow(name);
        let known = baseline["workflows"].as_array().unwrap().iter().find(|one| one["workflow"] == name).unwrap();
        let platform = known["platforms"].as_array().unwrap().iter().find(|one| one["platform"]["k"] == plan["k"]);
        let servers = Servers::parse(&platform.unwrap()["platform"].to_string(), name).unwrap();
        let case = Case { workflow: &workflow, servers: &servers, model: Model::M2 };
        let read = RecordedPlan::parse(&plan.to_string(), name, &workflow, &servers).unwrap();
        let found = case.evaluate(read).unwrap();
        assert_near(found.makespan_s, &plan["makespan_seconds"], &format!("{name} {} {}", plan["k"], plan["plan"]));
        // The plan written with it evaluates to the same result, bit for bit.
        assert_eq!(case.evaluate(found.plan.clone()).unwrap(), found);
        compared += 1;
    }
    assert_eq!(compared, 112);
}

#[test]
fn bounds_and_plain_calls_are_as_known() {
    let Some(baseline) = read("baseline.json") else { return };
    let mut compared = 0;
    for known in baseline["workflows"].as_array().unwrap() {
        let name = known["workflow"].as_str().unwrap();
        let workflow = workflow(name);
        for platform in known["platforms"].as_array().unwrap() {
            // The whole entry, with the platform under its name.
            let servers = Servers::parse(&platform.to_string(), name).unwrap();
            let case = |model| Case { workflow: &workflow, servers: &servers, model };
            assert_near(case(Model::M0).lower_bound_s(), &platform["lower_bounds"]["max"], name);
            assert_near(case(Model::M1).lower_bound_s(), &platform["m1"]["lower_bound_s"], name);
            assert_near(case(Model::M1).plain_s(), &platform["gridrpc_individual_mct"], name);
            compared += 1;
        }
    }
    assert_eq!(compared, 80);
}
