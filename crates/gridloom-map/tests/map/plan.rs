//! Plans as tables.

use gridloom_base::{Method, NodeId};
use gridloom_map::*;

#[test]
fn a_plan_prints_as_tables() {
    let plan = Plan {
        heuristic: "heft".into(),
        tasks: vec![Assignment { server: NodeId(10), start_s: 0.5, end_s: 1.5 }],
        transfers: vec![Transfer {
            datum: 0,
            from: NodeId(1),
            to: NodeId(10),
            size_bytes: 8,
            start_s: 0.0,
            end_s: 0.5,
            method: Method::Swarm,
        }],
        makespan_s: 1.5,
        lower_bound_s: 1.0,
        guesses: Vec::new(),
    };
    let expected = "\
plan by heft: 1 tasks, 1 transfers, 1.500000 s (at least 1.000000 s)
    task             server          start            end
       0                 na       0.500000       1.500000
   datum               from                 to          bytes          start            end
       0                 n1                 na              8       0.000000       0.500000 swarm
";
    assert_eq!(plan.to_string(), expected);
}
