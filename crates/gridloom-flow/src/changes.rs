//! Changes while actions are running: speeds, bandwidths, latencies, and whether a link or host is on.
//!
//! ```text
//! speed      C = n s f, and b of each execution                     work continues at the new rate
//! bandwidth  C = bw, p += S/bw - S/old for each flow on the link     a flow keeps the bound of its start
//! latency    p += delta, b = min(ub, g / (2 lat)) for each           a latency phase keeps its length
//! off        all actions on it fail at once, and so do those started on it until it is on
//! ```
//!
//! The flows of a link are those that cross it or send acknowledgements over it. At a speed or bandwidth of 0, actions
//! make no progress until it changes again.
//!
//! **Difference from the reference.** In SimGrid, running actions ignore a capacity of 0. A flow in its latency phase
//! begins to share when a bandwidth or latency on its route changes.
//!
//! Source: SimGrid 4.1, `network_cm02` and `cpu_cas01`.

use super::engine::FlowEngine;
use super::resources::{HostIndex, LinkIndex};
use super::solver::{ConstraintIndex, VariableIndex};

impl FlowEngine {
    /// Returns the current latency of a link, seconds.
    pub fn latency_s(&self, link: LinkIndex) -> f64 {
        self.resources.link(link).latency_s
    }

    /// Multiplies a host's nominal speed by `scale` from now on.
    pub fn set_speed_scale(&mut self, host: HostIndex, scale: f64) {
        let state = &mut self.resources.hosts[host.0 as usize];
        state.scale = scale;
        let (constraint, capacity) = (state.constraint, state.capacity());
        self.resources.solver.set_capacity(constraint, capacity);
        for (slot, variable) in self.actions_on(constraint) {
            let bound = self.sharing[slot as usize].bound(&self.model, &self.resources);
            self.resources.solver.set_bound(variable, bound);
        }
    }

    /// Changes a link's bandwidth, bytes per second.
    pub fn set_bandwidth(&mut self, link: LinkIndex, bandwidth: f64) {
        let state = &mut self.resources.links[link.0 as usize];
        self.resources.solver.set_capacity(state.constraint, bandwidth);
        if bandwidth > 0.0 {
            let before = std::mem::replace(&mut state.bandwidth, bandwidth);
            let constraint = state.constraint;
            let weight = self.model.weight_bytes;
            if weight > 0.0 {
                self.shift_penalties(constraint, weight / bandwidth - weight / before);
            }
        }
    }

    /// Changes a link's latency, seconds.
    pub fn set_latency(&mut self, link: LinkIndex, latency_s: f64) {
        let state = &mut self.resources.links[link.0 as usize];
        let delta_s = latency_s - std::mem::replace(&mut state.latency_s, latency_s);
        let constraint = state.constraint;
        for (slot, variable) in self.actions_on(constraint) {
            let terms = &mut self.sharing[slot as usize];
            terms.add_latency(delta_s);
            let bound = terms.bound(&self.model, &self.resources);
            self.resources.solver.set_bound(variable, bound);
        }
        if !self.model.shares_evenly {
            self.shift_penalties(constraint, delta_s);
        }
    }

    pub fn set_link_on(&mut self, link: LinkIndex, on: bool) {
        let state = &mut self.resources.links[link.0 as usize];
        state.on = on;
        let constraint = state.constraint;
        if !on {
            self.fail_all(constraint);
        }
    }

    /// Turns a host's processor on or off. Its links are not affected.
    pub fn set_host_on(&mut self, host: HostIndex, on: bool) {
        let state = &mut self.resources.hosts[host.0 as usize];
        state.on = on;
        let constraint = state.constraint;
        if !on {
            self.fail_all(constraint);
        }
    }

    fn shift_penalties(&mut self, constraint: ConstraintIndex, delta: f64) {
        for (slot, variable) in self.actions_on(constraint) {
            let terms = &mut self.sharing[slot as usize];
            terms.penalty += delta;
            if self.resources.solver.penalty(variable) > 0.0 {
                self.resources.solver.set_penalty(variable, terms.penalty);
            }
        }
    }

    fn fail_all(&mut self, constraint: ConstraintIndex) {
        for (slot, _) in self.actions_on(constraint) {
            self.fail(slot);
        }
    }

    /// Returns the slots and variables of the actions on a constraint, in start order.
    fn actions_on(&self, constraint: ConstraintIndex) -> Vec<(u32, VariableIndex)> {
        let mut variables = Vec::new();
        self.resources.solver.variables_on(constraint, &mut variables);
        let mut found: Vec<_> = variables.into_iter().map(|variable| (self.owner(variable), variable)).collect();
        found.sort_unstable_by_key(|(slot, _)| self.serial_of(*slot));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Execution, NetworkModel, Outcome, Policy, Resources, Transfer};
    use super::*;

    fn links(count: u32) -> Vec<LinkIndex> {
        (0..count).map(LinkIndex).collect()
    }

    /// A host of two cores of 1 Gflop/s and two links of 1 MB/s and 10 ms.
    fn grid(model: NetworkModel) -> (FlowEngine, HostIndex) {
        let mut resources = Resources::new();
        let host = resources.add_host(1e9, 2);
        for _ in 0..2 {
            resources.add_link(1e6, 0.01, Policy::Shared);
        }
        (FlowEngine::new(resources, model), host)
    }

    /// Returns the dates and outcomes of all running actions, in completion order.
    fn ends(engine: &mut FlowEngine) -> Vec<(f64, Outcome)> {
        let mut completed = Vec::new();
        while let Some(date_s) = engine.next_event_s() {
            engine.advance_to(date_s, &mut completed);
        }
        completed.iter().map(|completion| (completion.date_s, completion.outcome)).collect()
    }

    #[test]
    fn work_continues_at_the_new_speed() {
        let (mut engine, host) = grid(NetworkModel::WARM_TCP);
        engine.start_execution(&Execution::new(host, 2e9));
        engine.wait_until(1.0);
        engine.set_speed_scale(host, 0.25);
        assert_eq!(ends(&mut engine), [(5.0, Outcome::Done)]);
    }

    #[test]
    fn a_speed_of_nothing_stands_still_until_it_changes() {
        let (mut engine, host) = grid(NetworkModel::WARM_TCP);
        engine.start_execution(&Execution::new(host, 2e9));
        engine.wait_until(1.0);
        engine.set_speed_scale(host, 0.0);
        assert_eq!(engine.next_event_s(), None);
        engine.wait_until(3.0);
        engine.set_speed_scale(host, 1.0);
        assert_eq!(ends(&mut engine), [(4.0, Outcome::Done)]);
    }

    #[test]
    fn priorities_threads_and_bounds_share_the_cores() {
        let (mut engine, host) = grid(NetworkModel::WARM_TCP);
        let task = Execution::new(host, 1e9);
        // Two cores shared 3 to 1: a single thread can use at most 1 Gflop/s.
        engine.start_execution(&Execution { priority: 3.0, work_flops: 1e9, ..task });
        engine.start_execution(&Execution { priority: 1.0, work_flops: 1e9, ..task });
        assert_eq!(ends(&mut engine), [(1.0, Outcome::Done), (1.0, Outcome::Done)]);
        engine.start_execution(&Execution { threads: 2, ..task });
        engine.start_execution(&Execution { threads: 2, ..task });
        assert_eq!(ends(&mut engine), [(3.0, Outcome::Done), (3.0, Outcome::Done)]);
        engine.start_execution(&Execution { bound_flops: 0.25e9, ..task });
        assert_eq!(ends(&mut engine), [(7.0, Outcome::Done)]);
        for priority in [3.0, 1.0, 1.0, 1.0] {
            engine.start_execution(&Execution { priority, work_flops: 1e9, ..task });
        }
        // The first action gets one core. The other three get a third of the other core each until it ends, then two thirds.
        let rest = 7.0 + 1.0 + 2.0 / 3.0 / (2.0 / 3.0);
        let dates: Vec<f64> = ends(&mut engine).iter().map(|end| end.0).collect();
        assert!(dates.iter().zip([8.0, rest, rest, rest]).all(|(a, b)| (a - b).abs() < 1e-12), "{dates:?}");
    }

    #[test]
    fn a_wider_link_helps_only_up_to_the_bound_of_the_start() {
        let (mut engine, _) = grid(NetworkModel::WARM_TCP);
        for _ in 0..2 {
            engine.start_transfer(&Transfer::new(&links(1), 0.0, 2e6));
        }
        engine.wait_until(1.0);
        engine.set_bandwidth(LinkIndex(0), 4e6);
        assert_eq!(ends(&mut engine), [(2.5, Outcome::Done); 2]);
    }

    #[test]
    fn a_users_rate_is_met_exactly() {
        let (mut engine, _) = grid(NetworkModel::LV08);
        let transfer = Transfer { rate_max: 0.5e6, ..Transfer::new(&[LinkIndex(0)], 0.0, 1e6) };
        engine.start_transfer(&transfer);
        assert!((ends(&mut engine)[0].0 - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_longer_way_narrows_the_window() {
        let (mut engine, _) = grid(NetworkModel::CM02);
        engine.start_transfer(&Transfer::new(&links(1), 0.01, 1e6));
        engine.wait_until(0.01);
        engine.fire_due(&mut Vec::new());
        engine.set_latency(LinkIndex(0), 4.194304);
        assert_eq!(engine.latency_s(LinkIndex(0)), 4.194304);
        // From then on, g / (2 lat) = 0.5 MB/s.
        assert!((ends(&mut engine)[0].0 - 2.01).abs() < 1e-6);
    }

    #[test]
    fn what_is_off_fails_what_is_on_it_and_what_comes() {
        let (mut engine, host) = grid(NetworkModel::CM02);
        let way_back = [LinkIndex(1)];
        let transfer = Transfer { return_links: &way_back, ..Transfer::new(&[LinkIndex(0)], 0.01, 1e6) };
        engine.start_transfer(&transfer);
        engine.start_execution(&Execution::new(host, 1e9));
        engine.advance_to(0.5, &mut Vec::new());
        engine.set_link_on(LinkIndex(1), false);
        engine.set_host_on(host, false);
        engine.start_transfer(&transfer);
        engine.start_execution(&Execution::new(host, 1e9));
        assert_eq!(ends(&mut engine), [(0.5, Outcome::Failed); 4]);
        engine.set_link_on(LinkIndex(1), true);
        engine.set_host_on(host, true);
        engine.start_execution(&Execution::new(host, 1e9));
        assert_eq!(ends(&mut engine), [(1.5, Outcome::Done)]);
    }

    #[test]
    fn a_flow_in_its_latency_phase_fails_too() {
        let (mut engine, _) = grid(NetworkModel::LV08);
        engine.start_transfer(&Transfer::new(&links(2), 0.02, 1e6));
        engine.wait_until(0.1);
        engine.set_link_on(LinkIndex(1), false);
        assert_eq!(ends(&mut engine), [(0.1, Outcome::Failed)]);
    }
}
