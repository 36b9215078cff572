//! Makespans by one pass, compared with the model, and annealing.

use gridloom_map::pairs::*;
use gridloom_map::*;
use gridloom_workflows::{CLIENT, Case, Model, Servers, Workflow};

#[test]
fn a_pass_has_the_times_of_the_model_and_annealing_finds_what_is_better() {
    let text = r#"{"tasks": [{"id": "a", "work_seconds": 4, "inputs": ["in"], "outputs": ["x"]},
                             {"id": "b", "work_seconds": 4, "inputs": ["in"], "outputs": ["y"]},
                             {"id": "c", "work_seconds": 2, "inputs": ["x", "y"], "outputs": ["out"]}],
                   "files": {"in": 1000, "x": 500, "y": 500, "out": 100}}"#;
    let workflow = Workflow::parse(text, "w").unwrap();
    let servers = Servers::parse(r#"{"speed": [2, 1], "client_bytes_per_s": [1000, 1000]}"#, "s").unwrap();
    let case = Case { workflow: &workflow, servers: &servers, model: Model::M1 };
    let problem = Problem::new(&case.outline(), &case.grid(), CLIENT).unwrap();
    let mut pass = PairsEvaluator::new(&problem).unwrap();
    let slow = Line { servers: vec![1, 1, 1], order: vec![0, 1, 2] };
    // 1 s for the input, then 10 s of work, then 0.1 s to the client.
    assert_eq!(pass.makespan(&slow, f64::INFINITY), 11.1);
    assert_eq!(pass.makespan(&slow, 11.0), f64::INFINITY);
    // b's result takes a second through the client, and arrives long after a has ended.
    let both = Line { servers: vec![0, 1, 0], ..slow.clone() };
    assert_eq!(pass.makespan(&both, f64::INFINITY), 7.1);
    assert_eq!(pass.start_s(), [1.0, 1.0, 6.0]);
    let (line, makespan_s) = anneal(&problem, &mut pass, &[slow], 10_000, 1);
    assert_eq!((line.servers, makespan_s), (vec![0, 0, 0], 6.1));
}
