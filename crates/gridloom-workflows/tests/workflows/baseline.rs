//! The published heuristics against an independent implementation of them, on recorded workflows, if these are available.

use std::path::Path;

use gridloom_map::{Problem, Spec};
use gridloom_workflows::{CLIENT, Case, Model, Servers, Workflow};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/workflows");

/// Heuristic, model, and keys of the makespan in the baseline.
const COMPARED: [(&str, Model, [&str; 2]); 5] = [
    ("heft", Model::M0, ["own_reimplementation", "Heft"]),
    ("cpop", Model::M0, ["own_reimplementation", "Cpop"]),
    ("min-min", Model::M0, ["own_reimplementation", "MinMin"]),
    ("max-min", Model::M0, ["own_reimplementation", "MaxMin"]),
    ("heft", Model::M1, ["m1", "heft_client_hosted_s"]),
];

#[test]
fn published_heuristics_have_the_makespans_of_the_baseline() {
    let Ok(text) = std::fs::read_to_string(Path::new(FOLDER).join("baseline.json")) else { return };
    let baseline: serde_json::Value = serde_json::from_str(&text).unwrap();
    let (mut compared, mut differ) = (0, Vec::new());
    for known in baseline["workflows"].as_array().unwrap() {
        let name = known["workflow"].as_str().unwrap();
        let text = std::fs::read_to_string(Path::new(FOLDER).join(format!("{name}.json"))).unwrap();
        let workflow = Workflow::parse(&text, name).unwrap();
        for platform in known["platforms"].as_array().unwrap() {
            let servers = Servers::parse(&platform["platform"].to_string(), name).unwrap();
            for (spec, model, [table, key]) in COMPARED {
                let case = Case { workflow: &workflow, servers: &servers, model };
                let problem = Problem::new(&case.outline(), &case.grid(), CLIENT).unwrap();
                let plan = Spec::parse(spec).unwrap().heuristic().unwrap().map(&problem).unwrap();
                let (found, expected) = (plan.makespan_s, platform[table][key].as_f64().unwrap());
                if (found - expected).abs() > 1e-6 * expected {
                    differ.push(format!("{spec} {model:?} {name} {}: {found} {expected}", platform["platform"]["k"]));
                }
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 400);
    assert!(differ.is_empty(), "{} differ\n{}", differ.len(), differ.join("\n"));
}
