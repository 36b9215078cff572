//! Files of recorded workflows, plans, declared graphs and simulations. The input is several texts, separated by zero bytes.

#![no_main]

use gridloom::{Graph, PlanRecord};
use gridloom_sim::{faults, replay};
use gridloom_workflows::{RecordedPlan, Servers, Workflow};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut texts = text.split('\0');
    let mut next = || texts.next().unwrap_or_default();
    let (first, second, third) = (next(), next(), next());
    if let (Ok(workflow), Ok(servers)) = (Workflow::parse(first, "w.json"), Servers::parse(second, "s.json")) {
        (0..workflow.tasks.len()).for_each(|task| _ = (workflow.outside_bytes(task), workflow.unread_bytes(task)));
        if let Ok(plan) = RecordedPlan::parse(third, "p.json", &workflow, &servers) {
            assert_eq!(plan.order(&workflow).len(), workflow.tasks.len());
        }
    }
    if let Ok(plan) = PlanRecord::parse("p.json", first) {
        let written = plan.to_json();
        assert_eq!(PlanRecord::parse("p.json", &written).expect("it was written").to_json(), written);
    }
    let _ =
        (Graph::parse("g.json", first), faults::Scenario::parse(first, "f"), replay::Scenario::parse(first, "s.json"));
});
