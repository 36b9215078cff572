//! Builds the flow engine and the timeline for a scenario's hosts, links and profiles.

use gridloom_flow::{FlowEngine, Policy, Reach, Resources, Timeline};

use super::scenario::{LinkPolicy, Scenario};

/// Builds them with no activity started. Changes at date 0 have been applied.
pub(super) fn build(scenario: &Scenario, reach: Reach) -> (FlowEngine, Timeline) {
    let mut resources = Resources::new();
    for link in &scenario.links {
        let policy = match link.policy {
            LinkPolicy::Shared => Policy::Shared,
            LinkPolicy::FatPipe => Policy::FatPipe,
        };
        resources.add_link(link.bandwidth, link.latency_s, policy);
    }
    for (speed_flops, cores) in &scenario.hosts {
        resources.add_host(*speed_flops, *cores);
    }
    let mut engine = FlowEngine::new(resources, scenario.model);
    engine.set_reach(reach);
    let mut timeline = Timeline::new();
    for profile in &scenario.profiles {
        timeline.add(profile.quantity, profile.events.clone(), profile.loop_after_s);
    }
    timeline.apply_due(&mut engine);
    (engine, timeline)
}
