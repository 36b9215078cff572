//! Time over transfers and executions: each is an *action* whose work shrinks at the rate that the solver gives it.
//!
//! **Lazy.** A date of completion is `now + remaining / rate`, kept in a heap. A change marks the constraints that it
//! touches; before time moves on, the solver re-solves what is connected to them, and only an action whose rate then
//! differs has its remaining work reckoned and a new date.
//!
//! **Invariants.** Time never goes back. A running action's `remaining` is that at `since`, and its date in the heap is
//! `since + remaining / rate`, absent while the rate is 0. Actions that end at the same date are reported in order of
//! start. Dates within [`TIMING_S`] of each other fall together, as in SimGrid.
//!
//! **Not done.** Suspension, priorities, bandwidths and speeds that vary with time.
//!
//! Source: SimGrid 4.1, resource models and their lazy updates.

use super::cpu;
use super::heap::Heap;
use super::network::{CROSS_TRAFFIC_WEIGHT, NetworkModel};
use super::solver::{ConstraintIndex, Policy, Solver, VariableIndex};

/// Events closer than this are one.
pub const TIMING_S: f64 = 1e-9;
/// Work less than this is done.
const WORK_MIN: f64 = 1e-14;

/// A link, by order of [`Resources::add_link`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkIndex(pub u32);

/// A host, by order of [`Resources::add_host`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HostIndex(pub u32);

/// What there is to share.
#[derive(Clone, Debug, Default)]
pub struct Resources {
    solver: Solver,
    links: Vec<Link>,
    hosts: Vec<Host>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    constraint: ConstraintIndex,
    bandwidth: f64,
}

#[derive(Clone, Copy, Debug)]
struct Host {
    constraint: ConstraintIndex,
    speed_flops: f64,
}

/// A transfer or an execution, ordered by start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ActionId {
    serial: u64,
    slot: u32,
}

/// The end of an action.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Completion {
    /// When, seconds.
    pub date_s: f64,
    /// Which.
    pub action: ActionId,
}

/// The actions under way and the time.
#[derive(Clone, Debug)]
pub struct FlowEngine {
    model: NetworkModel,
    resources: Resources,
    now_s: f64,
    serial: u64,
    actions: Vec<Action>,
    free: Vec<u32>,
    /// Slot of the action behind each variable.
    owners: Vec<u32>,
    dates: Heap,
}

#[derive(Clone, Copy, Debug)]
struct Action {
    serial: u64,
    phase: Phase,
    variable: VariableIndex,
    /// Work done per unit of the variable's value.
    factor: f64,
    /// Work left at `since_s`, shrinking at `rate` from then.
    remaining: f64,
    rate: f64,
    since_s: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// The slot is free.
    Ended,
    /// Paying the latency; runs with that penalty afterwards. In the heap.
    Latency { penalty: f64 },
    /// Sharing. In the heap while its rate is positive.
    Running,
}

impl Resources {
    /// None yet.
    pub fn new() -> Resources {
        Resources::default()
    }

    /// Adds a link direction; bytes per second.
    pub fn add_link(&mut self, bandwidth: f64, policy: Policy) -> LinkIndex {
        let constraint = self.solver.add_constraint(bandwidth, policy);
        self.links.push(Link { constraint, bandwidth });
        LinkIndex(self.links.len() as u32 - 1)
    }

    /// Adds a host; floating-point operations per second of one core.
    pub fn add_host(&mut self, speed_flops: f64, cores: u32) -> HostIndex {
        let constraint = self.solver.add_constraint(cpu::capacity(speed_flops, cores), Policy::Shared);
        self.hosts.push(Host { constraint, speed_flops });
        HostIndex(self.hosts.len() as u32 - 1)
    }
}

impl FlowEngine {
    /// Nothing under way, at time 0.
    pub fn new(resources: Resources, model: NetworkModel) -> FlowEngine {
        FlowEngine {
            model,
            resources,
            now_s: 0.0,
            serial: 0,
            actions: Vec::new(),
            free: Vec::new(),
            owners: Vec::new(),
            dates: Heap::default(),
        }
    }

    /// The time, seconds.
    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// Starts a transfer over these links, whose acknowledgements take nothing of any way back.
    pub fn start_transfer(&mut self, links: &[LinkIndex], latency_s: f64, size_bytes: f64) -> ActionId {
        self.start_transfer_and_return(links, &[], latency_s, size_bytes)
    }

    /// Starts a transfer over these links, with the way back for its acknowledgements. A transfer without links ends
    /// when its latency is paid.
    pub fn start_transfer_and_return(
        &mut self,
        links: &[LinkIndex],
        way_back: &[LinkIndex],
        latency_s: f64,
        size_bytes: f64,
    ) -> ActionId {
        let Resources { solver, links: table, .. } = &mut self.resources;
        let bandwidths = links.iter().map(|link| table[link.0 as usize].bandwidth);
        let penalty = self.model.penalty(latency_s, bandwidths.clone());
        let narrowest = bandwidths.fold(f64::INFINITY, f64::min);
        let variable = solver.add_variable(0.0, self.model.bound(latency_s, narrowest));
        for link in links {
            solver.attach(variable, table[link.0 as usize].constraint, 1.0);
        }
        if self.model.cross_traffic {
            for link in way_back {
                solver.attach(variable, table[link.0 as usize].constraint, CROSS_TRAFFIC_WEIGHT);
            }
        }
        let work = if links.is_empty() { 0.0 } else { size_bytes };
        let id = self.begin(variable, self.model.bandwidth_factor, work);
        let action = &mut self.actions[id.slot as usize];
        let phase_s = self.model.latency_phase_s(latency_s);
        if latency_s > 0.0 {
            action.phase = Phase::Latency { penalty };
            self.dates.set(id.slot, id.serial, self.now_s + phase_s);
        } else if action.remaining <= WORK_MIN {
            self.dates.set(id.slot, id.serial, self.now_s);
        } else {
            self.resources.solver.set_penalty(variable, penalty);
        }
        id
    }

    /// Starts an execution on one core of that host.
    pub fn start_execution(&mut self, host: HostIndex, work_flops: f64) -> ActionId {
        let Host { constraint, speed_flops } = self.resources.hosts[host.0 as usize];
        let solver = &mut self.resources.solver;
        let variable = solver.add_variable(0.0, cpu::bound(speed_flops));
        solver.attach(variable, constraint, 1.0);
        if work_flops > WORK_MIN {
            solver.set_penalty(variable, cpu::PENALTY);
        }
        let id = self.begin(variable, 1.0, work_flops);
        if work_flops <= WORK_MIN {
            self.dates.set(id.slot, id.serial, self.now_s);
        }
        id
    }

    /// Ends an action without completion; whether it was still under way.
    pub fn cancel(&mut self, id: ActionId) -> bool {
        let alive = self.is_running(id);
        if alive {
            self.end(id.slot);
        }
        alive
    }

    /// Whether an action has neither completed nor been cancelled.
    pub fn is_running(&self, id: ActionId) -> bool {
        let action = &self.actions[id.slot as usize];
        action.serial == id.serial && action.phase != Phase::Ended
    }

    /// The date at which something happens next if nothing is started or cancelled: an action completes, or a transfer's
    /// latency is paid and it begins to share.
    pub fn next_event_s(&mut self) -> Option<f64> {
        self.refresh();
        self.dates.first().map(|(date, _)| date.max(self.now_s))
    }

    /// Moves time on to `date_s` and appends what completes until then, in order.
    pub fn advance_to(&mut self, date_s: f64, completed: &mut Vec<Completion>) {
        loop {
            self.refresh();
            match self.dates.first() {
                Some((date, _)) if date <= date_s => self.fire(date.max(self.now_s), completed),
                Some(_) | None => break,
            }
        }
        self.now_s = self.now_s.max(date_s);
    }

    fn begin(&mut self, variable: VariableIndex, factor: f64, work: f64) -> ActionId {
        self.serial += 1;
        let (serial, since_s) = (self.serial, self.now_s);
        let action = Action { serial, phase: Phase::Running, variable, factor, remaining: work, rate: 0.0, since_s };
        let slot = self.free.pop().unwrap_or(self.actions.len() as u32);
        if slot as usize == self.actions.len() {
            self.actions.push(action);
        } else {
            self.actions[slot as usize] = action;
        }
        if variable.0 as usize >= self.owners.len() {
            self.owners.resize(variable.0 as usize + 1, u32::MAX);
        }
        self.owners[variable.0 as usize] = slot;
        ActionId { serial, slot }
    }

    fn end(&mut self, slot: u32) {
        let action = &mut self.actions[slot as usize];
        action.phase = Phase::Ended;
        self.resources.solver.remove_variable(action.variable);
        self.dates.remove(slot);
        self.free.push(slot);
    }

    /// Brings rates and dates up to date after changes.
    fn refresh(&mut self) {
        let solver = &mut self.resources.solver;
        if !solver.is_stale() {
            return;
        }
        solver.solve();
        for variable in solver.changed() {
            let slot = self.owners[variable.0 as usize];
            let action = &mut self.actions[slot as usize];
            let rate = action.factor * solver.value(*variable);
            if rate == action.rate {
                continue;
            }
            action.remaining -= action.rate * (self.now_s - action.since_s);
            if action.remaining <= WORK_MIN {
                action.remaining = 0.0;
            }
            (action.rate, action.since_s) = (rate, self.now_s);
            if rate > 0.0 {
                self.dates.set(slot, action.serial, self.now_s + action.remaining / rate);
            } else {
                self.dates.remove(slot);
            }
        }
    }

    /// Everything that happens at `date_s`.
    fn fire(&mut self, date_s: f64, completed: &mut Vec<Completion>) {
        self.now_s = date_s;
        while let Some((date, slot)) = self.dates.first() {
            if date - date_s >= TIMING_S {
                break;
            }
            let action = &mut self.actions[slot as usize];
            match action.phase {
                Phase::Latency { penalty } if action.remaining > WORK_MIN => {
                    (action.phase, action.since_s) = (Phase::Running, date_s);
                    self.resources.solver.set_penalty(action.variable, penalty);
                    self.dates.remove(slot);
                }
                Phase::Latency { .. } | Phase::Running => {
                    completed.push(Completion { date_s, action: ActionId { serial: action.serial, slot } });
                    self.end(slot);
                }
                Phase::Ended => unreachable!("an ended action is not in the heap"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(bandwidths: &[f64], model: NetworkModel) -> (FlowEngine, Vec<LinkIndex>) {
        let mut resources = Resources::new();
        let links = bandwidths.iter().map(|bandwidth| resources.add_link(*bandwidth, Policy::Shared)).collect();
        (FlowEngine::new(resources, model), links)
    }

    /// Dates of completion, by order of start, of all that is under way.
    fn dates(engine: &mut FlowEngine) -> Vec<f64> {
        let mut completed = Vec::new();
        while let Some(date) = engine.next_event_s() {
            engine.advance_to(date, &mut completed);
        }
        completed.sort_by_key(|completion| completion.action);
        completed.iter().map(|completion| completion.date_s).collect()
    }

    #[test]
    fn a_lone_transfer_takes_latency_and_size_over_bandwidth() {
        let (mut engine, links) = grid(&[1e6, 2e6], NetworkModel::PLAIN);
        engine.start_transfer(&links, 0.5, 3e6);
        assert_eq!(dates(&mut engine), [3.5]);
    }

    #[test]
    fn cm02_and_lv08_alone_follow_their_formulas() {
        let (mut engine, links) = grid(&[1e6], NetworkModel::CM02);
        engine.start_transfer(&links, 0.5, 1e6);
        assert_eq!(dates(&mut engine), [1.5]);
        let (mut engine, links) = grid(&[1e6], NetworkModel::LV08);
        engine.start_transfer_and_return(&links, &links, 0.01, 1e6);
        let expected = 13.01 * 0.01 + 1e6 / (0.97 * 1e6 / 1.05);
        assert!((dates(&mut engine)[0] - expected).abs() < 1e-12);
    }

    #[test]
    fn two_transfers_share_until_one_ends() {
        let (mut engine, links) = grid(&[1e6], NetworkModel::PLAIN);
        engine.start_transfer(&links, 0.0, 1e6);
        engine.start_transfer(&links, 0.0, 2e6);
        assert_eq!(dates(&mut engine), [2.0, 3.0]);
    }

    #[test]
    fn a_transfer_shares_only_after_its_latency() {
        let (mut engine, links) = grid(&[1e6], NetworkModel::PLAIN);
        engine.start_transfer(&links, 0.0, 2e6);
        engine.start_transfer(&links, 1.0, 1e6);
        assert_eq!(dates(&mut engine), [3.0, 3.0]);
    }

    #[test]
    fn a_bottleneck_on_one_link_leaves_the_rest_of_the_other() {
        let (mut engine, links) = grid(&[2e6, 10e6], NetworkModel::PLAIN);
        engine.start_transfer(&links, 0.0, 2e6);
        engine.start_transfer(&links[1..], 0.0, 8e6);
        assert_eq!(dates(&mut engine), [1.0, 1.0]);
    }

    #[test]
    fn a_fat_pipe_is_not_shared() {
        let mut resources = Resources::new();
        let pipe = resources.add_link(1e6, Policy::FatPipe);
        let mut engine = FlowEngine::new(resources, NetworkModel::PLAIN);
        engine.start_transfer(&[pipe], 0.0, 1e6);
        engine.start_transfer(&[pipe], 0.0, 2e6);
        assert_eq!(dates(&mut engine), [1.0, 2.0]);
    }

    #[test]
    fn tasks_have_a_core_each_until_cores_run_out() {
        let mut resources = Resources::new();
        let host = resources.add_host(1e9, 2);
        let mut engine = FlowEngine::new(resources, NetworkModel::PLAIN);
        engine.start_execution(host, 1e9);
        assert_eq!(dates(&mut engine), [1.0]);
        for _ in 0..4 {
            engine.start_execution(host, 1e9);
        }
        assert_eq!(dates(&mut engine), [3.0; 4]);
    }

    #[test]
    fn cancelling_frees_the_share() {
        let (mut engine, links) = grid(&[1e6], NetworkModel::PLAIN);
        let first = engine.start_transfer(&links, 0.0, 2e6);
        engine.start_transfer(&links, 0.0, 2e6);
        engine.advance_to(1.0, &mut Vec::new());
        assert!(engine.cancel(first));
        assert!(!engine.cancel(first));
        assert_eq!(dates(&mut engine), [2.5]);
    }

    #[test]
    fn nothing_to_move_takes_the_latency_or_no_time() {
        let (mut engine, links) = grid(&[1e6], NetworkModel::PLAIN);
        let host = engine.resources.add_host(1e9, 1);
        engine.start_transfer(&links, 0.25, 0.0);
        engine.start_transfer(&links, 0.0, 0.0);
        engine.start_transfer(&[], 0.5, 1e6);
        engine.start_execution(host, 0.0);
        assert_eq!(dates(&mut engine), [0.25, 0.0, 0.5, 0.0]);
    }

    #[test]
    fn advancing_past_many_dates_reports_each_at_its_own() {
        let (mut engine, links) = grid(&[1e6], NetworkModel::PLAIN);
        let actions = [1e6, 2e6].map(|size| engine.start_transfer(&links, 0.0, size));
        let mut completed = Vec::new();
        engine.advance_to(10.0, &mut completed);
        let expected = [(2.0, actions[0]), (3.0, actions[1])].map(|(date_s, action)| Completion { date_s, action });
        assert_eq!(completed, expected);
        assert_eq!((engine.now_s(), engine.next_event_s()), (10.0, None));
    }
}
