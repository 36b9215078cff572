//! Advances time over transfers and executions. Each is an *action*; its work shrinks at the rate that the solver computes.
//!
//! **Lazy updates.** A change marks the constraints that it touches. Before time advances, the solver recomputes the
//! part of the system that depends on them, so any number of changes at one date are solved once. An action limited by
//! a constraint ends by the constraint's clock in [`Clocks`], whose speed depends on the constraint's level only. An
//! action with a rate of its own ends at `now + remaining / rate`, which is kept in a heap.
//!
//! **Invariants.** Time never goes backwards. If an action has a rate of its own, `remaining` is its work at
//! `since_s`. Its date in the heap is `since_s + remaining / rate`, absent while the rate is 0. Actions that end at
//! the same date are reported in start order, failures before completions. Dates within [`TIMING_S`] of each other
//! count as the same date, as in SimGrid.
//!
//! **Not supported.** Suspension.
//!
//! Source: SimGrid 4.1, resource models and their lazy updates.

use super::clocks::Clocks;
use super::cpu::{self, Execution};
use super::heap::{Entry, Heap, Positions};
use super::network::{NetworkModel, Transfer};
use super::resources::Resources;
use super::sharing::Sharing;
use super::solver::{ConstraintIndex, Reach, VariableIndex};

/// Events closer together than this, in seconds, happen at the same date.
pub const TIMING_S: f64 = 1e-9;
/// Remaining work below this counts as done.
const WORK_MIN: f64 = 1e-14;

/// A transfer or an execution, ordered by start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ActionId {
    serial: u64,
    slot: u32,
}

impl ActionId {
    /// Returns a small number that no two running actions share; callers can use it to index their own data. An action
    /// started after a report of completions can reuse the slot of a completed action.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// How an action ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Its work is done.
    Done,
    /// A link or host that it needs is off.
    Failed,
}

/// The end of an action.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Completion {
    /// The date of the end, seconds.
    pub date_s: f64,
    pub action: ActionId,
    pub outcome: Outcome,
}

/// The running actions and the current time.
#[derive(Clone, Debug)]
pub struct FlowEngine {
    pub(super) model: NetworkModel,
    pub(super) resources: Resources,
    now_s: f64,
    serial: u64,
    actions: Vec<Action>,
    /// Current penalty and bound of each action.
    pub(super) sharing: Vec<Sharing>,
    free: Vec<u32>,
    /// The slot of the action that owns each variable.
    owners: Vec<u32>,
    /// Ends of latency phases, and of actions with rates of their own.
    dates: Heap,
    places: Positions,
    /// Ends of all other actions.
    clocks: Clocks,
    /// Failures that are not yet reported.
    failures: Vec<Completion>,
    /// Dates, serial numbers and slots of actions that end in [`FlowEngine::fire_due`]; kept to avoid allocation.
    ending: Vec<(f64, u64, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct Action {
    serial: u64,
    /// Work done per unit of the variable's value.
    factor: f64,
    /// Work left at `since_s`, which shrinks at `rate` from then. If a constraint limits the action, its clock keeps
    /// the remaining work instead.
    remaining: f64,
    rate: f64,
    since_s: f64,
    /// The constraint that limits this action, and the action's work per unit of that constraint's clock.
    limited_by: Option<(ConstraintIndex, f64)>,
    variable: VariableIndex,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The slot is free.
    Ended,
    /// The flow is in the latency phase, and done when that ends. It is in the heap.
    LatencyOnly,
    /// The flow is in the latency phase, and shares bandwidth afterwards. It is in the heap.
    Latency,
    /// The flow shares bandwidth. It is in the heap while it has a positive rate of its own, or on a clock.
    Running,
}

impl FlowEngine {
    /// Creates an engine at time 0 with no actions.
    pub fn new(resources: Resources, model: NetworkModel) -> FlowEngine {
        FlowEngine {
            model,
            resources,
            now_s: 0.0,
            serial: 0,
            actions: Vec::new(),
            sharing: Vec::new(),
            free: Vec::new(),
            owners: Vec::new(),
            dates: Heap::default(),
            places: Positions::default(),
            clocks: Clocks::default(),
            failures: Vec::new(),
            ending: Vec::new(),
        }
    }

    /// Limits how far changes propagate to match SimGrid 4.1, so that dates agree where SimGrid differs from the model.
    pub fn set_reach(&mut self, reach: Reach) {
        self.resources.solver.set_reach(reach);
    }

    pub fn now_s(&self) -> f64 {
        self.now_s
    }

    /// Starts a transfer. One without links ends when its latency phase ends. If a link is off, the transfer fails immediately.
    pub fn start_transfer(&mut self, transfer: &Transfer<'_>) -> ActionId {
        let FlowEngine { model, resources, .. } = self;
        let return_links = if model.cross_traffic { transfer.return_links } else { &[] };
        let off = transfer.links.iter().chain(return_links).any(|link| !resources.link(*link).on);
        let terms = Sharing::of_transfer(model, resources, transfer);
        let bound = terms.bound(model, resources);
        let table = &resources.links;
        let elements = model.link_weights(transfer.links, return_links).chain(transfer.beside.iter().copied());
        let elements = elements.map(|(link, weight)| (table[link.0 as usize].constraint, weight));
        let is_latency_only = transfer.links.is_empty();
        let at_once = transfer.latency_s <= 0.0 && !is_latency_only;
        let penalty = if at_once && !off { model.penalty_without_latency() } else { 0.0 };
        let variable = resources.solver.add_variable(penalty, bound, elements);
        let work = if is_latency_only { 0.0 } else { transfer.size_bytes };
        let factor = model.bandwidth_factor;
        let latency_s = (model.latency_phase_s(transfer.latency_s) - transfer.latency_passed_s).max(0.0);
        let id = self.begin(variable, factor, work, terms);
        if off {
            self.fail(id.slot);
        } else if !at_once {
            self.actions[id.slot()].phase = if is_latency_only { Phase::LatencyOnly } else { Phase::Latency };
            self.dates.set(&mut self.places, id.slot, id.serial, self.now_s + latency_s);
        }
        id
    }

    /// Starts an execution. If the host is off, the execution fails immediately.
    pub fn start_execution(&mut self, execution: &Execution) -> ActionId {
        let host = *self.resources.host(execution.host);
        let bound = cpu::bound(&host, execution.threads, execution.bound_flops);
        let penalty = if host.on { execution.penalty() } else { 0.0 };
        let variable = self.resources.solver.add_variable(penalty, bound, [(host.constraint, 1.0)]);
        let work = f64::from(execution.threads) * execution.work_flops;
        let id = self.begin(variable, 1.0, work, Sharing::of_execution(execution));
        if !host.on {
            self.fail(id.slot);
        }
        id
    }

    /// Cancels an action. Returns true if it was still running.
    pub fn cancel(&mut self, id: ActionId) -> bool {
        let alive = self.is_running(id);
        if alive {
            self.end(id.slot);
            self.free.push(id.slot);
        }
        alive
    }

    /// Cancels an action like [`FlowEngine::cancel`]. Returns its remaining work if it was still running.
    pub fn cancel_with_rest(&mut self, id: ActionId) -> Option<f64> {
        if !self.is_running(id) {
            return None;
        }
        self.solve();
        let action = &mut self.actions[id.slot()];
        let rest = match (action.phase, action.limited_by.take()) {
            (Phase::Running, Some((constraint, scale))) => scale * self.clocks.leave(constraint.0, id.slot, self.now_s),
            (Phase::Running, None) => action.remaining - action.rate * (self.now_s - action.since_s),
            (Phase::Ended | Phase::LatencyOnly | Phase::Latency, _) => action.remaining,
        };
        self.cancel(id);
        Some(rest.max(0.0))
    }

    /// Reports whether an action has neither ended nor been cancelled.
    pub fn is_running(&self, id: ActionId) -> bool {
        let action = &self.actions[id.slot()];
        action.serial == id.serial && action.phase != Phase::Ended
    }

    /// Returns the date of the next event if nothing is started, changed or cancelled before: an action ends, or a
    /// transfer's latency phase ends and it begins to share.
    pub fn next_event_s(&mut self) -> Option<f64> {
        if !self.failures.is_empty() {
            return Some(self.now_s);
        }
        self.solve();
        self.next_date_s().map(|date_s| date_s.max(self.now_s))
    }

    /// Advances time to `date_s` and appends the actions that end until then, in order.
    pub fn advance_to(&mut self, date_s: f64, completed: &mut Vec<Completion>) {
        loop {
            self.solve();
            match self.next_date_s() {
                Some(date) if date <= date_s => {
                    self.now_s = date.max(self.now_s);
                    self.fire_due(completed);
                }
                Some(_) | None => break,
            }
        }
        self.take_failures(completed);
        self.now_s = self.now_s.max(date_s);
    }

    /// Advances time to `date_s` without firing events; no event may be due before. Changes made then take effect
    /// before actions that end at the same date.
    pub fn wait_until(&mut self, date_s: f64) {
        self.solve();
        let next = self.next_date_s().unwrap_or(f64::INFINITY);
        assert!(next >= date_s || next <= self.now_s, "an event is due at {next}, before {date_s}");
        self.now_s = self.now_s.max(date_s);
    }

    /// Fires all events that are due now, by the rates before any change made now. Appends the actions that ended.
    pub fn fire_due(&mut self, completed: &mut Vec<Completion>) {
        self.take_failures(completed);
        let mut ending = std::mem::take(&mut self.ending);
        while let Some(Entry { key: date_s, serial, slot }) = self.dates.first().copied() {
            if date_s - self.now_s >= TIMING_S {
                break;
            }
            self.dates.remove(&mut self.places, slot);
            let action = &mut self.actions[slot as usize];
            match action.phase {
                Phase::Latency => {
                    (action.phase, action.since_s) = (Phase::Running, self.now_s);
                    let (variable, penalty) = (action.variable, self.sharing[slot as usize].penalty);
                    self.resources.solver.set_penalty(variable, penalty);
                }
                Phase::LatencyOnly | Phase::Running => ending.push((date_s, serial, slot)),
                Phase::Ended => unreachable!("an ended action is not in the heap"),
            }
        }
        while let Some(first) = self.clocks.first().filter(|first| first.date_s - self.now_s < TIMING_S) {
            self.clocks.leave(first.constraint, first.slot, self.now_s);
            self.actions[first.slot as usize].limited_by = None;
            ending.push((first.date_s, first.serial, first.slot));
        }
        ending.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // Variables that begin to share are added before those of ended actions are removed, as in the reference.
        for (_, _, slot) in ending.drain(..) {
            completed.push(self.completion(slot, Outcome::Done));
            self.end(slot);
            self.free.push(slot);
        }
        self.ending = ending;
    }

    /// Appends the actions that failed since the last report, without advancing time.
    pub fn take_failures(&mut self, completed: &mut Vec<Completion>) {
        self.free.extend(self.failures.iter().map(|failure| failure.action.slot));
        completed.append(&mut self.failures);
    }

    /// Returns the slot of the action that owns a variable.
    pub(super) fn owner(&self, variable: VariableIndex) -> u32 {
        self.owners[variable.0 as usize]
    }

    /// Returns an action's serial number, which increases in start order.
    pub(super) fn serial_of(&self, slot: u32) -> u64 {
        self.actions[slot as usize].serial
    }

    /// Ends an action now as a failure. Its slot is free again once the failure is reported.
    pub(super) fn fail(&mut self, slot: u32) {
        self.failures.push(self.completion(slot, Outcome::Failed));
        self.end(slot);
    }

    fn completion(&self, slot: u32, outcome: Outcome) -> Completion {
        let serial = self.actions[slot as usize].serial;
        Completion { date_s: self.now_s, action: ActionId { serial, slot }, outcome }
    }

    fn begin(&mut self, variable: VariableIndex, factor: f64, work: f64, terms: Sharing) -> ActionId {
        self.serial += 1;
        let (serial, since_s) = (self.serial, self.now_s);
        let phase = Phase::Running;
        let action = Action { serial, phase, variable, factor, remaining: work, rate: 0.0, since_s, limited_by: None };
        let slot = self.free.pop().unwrap_or(self.actions.len() as u32);
        if slot as usize == self.actions.len() {
            self.actions.push(action);
            self.sharing.push(terms);
        } else {
            (self.actions[slot as usize], self.sharing[slot as usize]) = (action, terms);
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
        if let Some((constraint, _)) = action.limited_by.take() {
            self.clocks.leave(constraint.0, slot, self.now_s);
        }
        self.dates.remove(&mut self.places, slot);
    }

    /// Updates rates and dates after changes.
    fn solve(&mut self) {
        let solver = &mut self.resources.solver;
        if !solver.is_stale() {
            return;
        }
        solver.solve();
        // Advance the clocks to now first, before any action leaves or joins them.
        for constraint in solver.releveled() {
            self.clocks.set_level(*constraint, solver.level(ConstraintIndex(*constraint)), self.now_s);
        }
        for at in 0..self.resources.solver.changed().len() {
            self.reschedule(self.resources.solver.changed()[at]);
        }
    }

    /// Updates an action's remaining work and its end date after a change.
    fn reschedule(&mut self, variable: VariableIndex) {
        let FlowEngine { now_s, resources, owners, actions, dates, places, clocks, .. } = self;
        let (solver, now_s, slot) = (&resources.solver, *now_s, owners[variable.0 as usize]);
        let action = &mut actions[slot as usize];
        action.remaining = match action.limited_by {
            Some((constraint, scale)) => scale * clocks.leave(constraint.0, slot, now_s),
            None => action.remaining - action.rate * (now_s - action.since_s),
        };
        if action.remaining <= WORK_MIN {
            action.remaining = 0.0;
        }
        let holder = solver.bottleneck(variable);
        action.limited_by = holder.map(|constraint| (constraint, action.factor / solver.penalty(variable)));
        action.rate = if holder.is_some() { 0.0 } else { action.factor * solver.value(variable) };
        action.since_s = now_s;
        if action.rate > 0.0 {
            dates.set(places, slot, action.serial, now_s + action.remaining / action.rate);
        } else {
            dates.remove(places, slot);
        }
        if let Some((constraint, scale)) = action.limited_by {
            clocks.join(constraint.0, slot, action.serial, action.remaining / scale, now_s);
        }
    }

    /// Returns the date of the next event by the current rates.
    fn next_date_s(&self) -> Option<f64> {
        let (own, held) = (self.dates.first().map(|entry| entry.key), self.clocks.first().map(|first| first.date_s));
        match (own, held) {
            (Some(own), Some(held)) => Some(own.min(held)),
            (own, held) => own.or(held),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LinkIndex, Policy};
    use super::*;

    fn grid(bandwidths: &[f64], model: NetworkModel) -> (FlowEngine, Vec<LinkIndex>) {
        let mut resources = Resources::new();
        let links = bandwidths.iter().map(|bandwidth| resources.add_link(*bandwidth, 0.0, Policy::Shared)).collect();
        (FlowEngine::new(resources, model), links)
    }

    /// Returns the completion dates of all running actions, in start order.
    fn dates(engine: &mut FlowEngine) -> Vec<f64> {
        let mut completed = Vec::new();
        while let Some(date) = engine.next_event_s() {
            engine.advance_to(date, &mut completed);
        }
        completed.sort_by_key(|completion| completion.action);
        completed.iter().map(|completion| completion.date_s).collect()
    }

    #[test]
    fn a_transfer_without_links_and_latency_ends_now_beside_other_changes() {
        let mut resources = Resources::new();
        let host = resources.add_host(1e9, 1);
        let mut engine = FlowEngine::new(resources, NetworkModel::default());
        for latency_s in [0.0, 0.5] {
            let begin_s = engine.now_s();
            engine.start_execution(&Execution::new(host, 1e9));
            engine.start_transfer(&Transfer::new(&[], latency_s, 1e6));
            engine.start_execution(&Execution::new(host, 1e9));
            assert_eq!(dates(&mut engine), [begin_s + 2.0, begin_s + latency_s, begin_s + 2.0]);
        }
    }

    #[test]
    fn a_lone_transfer_takes_latency_and_size_over_bandwidth() {
        let (mut engine, links) = grid(&[1e6, 2e6], NetworkModel::WARM_TCP);
        engine.start_transfer(&Transfer::new(&links, 0.5, 3e6));
        assert_eq!(dates(&mut engine), [3.5]);
    }

    #[test]
    fn cm02_and_lv08_alone_follow_their_formulas() {
        let (mut engine, links) = grid(&[1e6], NetworkModel::CM02);
        engine.start_transfer(&Transfer::new(&links, 0.5, 1e6));
        assert_eq!(dates(&mut engine), [1.5]);
        let (mut engine, links) = grid(&[1e6], NetworkModel::LV08);
        engine.start_transfer(&Transfer { return_links: &links, ..Transfer::new(&links, 0.01, 1e6) });
        let expected = 13.01 * 0.01 + 1e6 / (0.97 * 1e6 / 1.05);
        assert!((dates(&mut engine)[0] - expected).abs() < 1e-12);
    }

    #[test]
    fn two_transfers_share_until_one_ends() {
        let (mut engine, links) = grid(&[1e6], NetworkModel::WARM_TCP);
        engine.start_transfer(&Transfer::new(&links, 0.0, 1e6));
        engine.start_transfer(&Transfer::new(&links, 0.0, 2e6));
        assert_eq!(dates(&mut engine), [2.0, 3.0]);
    }

    #[test]
    fn a_transfer_shares_only_after_its_latency() {
        let (mut engine, links) = grid(&[1e6], NetworkModel::WARM_TCP);
        engine.start_transfer(&Transfer::new(&links, 0.0, 2e6));
        engine.start_transfer(&Transfer::new(&links, 1.0, 1e6));
        assert_eq!(dates(&mut engine), [3.0, 3.0]);
    }

    #[test]
    fn a_bottleneck_on_one_link_leaves_the_rest_of_the_other() {
        let (mut engine, links) = grid(&[2e6, 10e6], NetworkModel::WARM_TCP);
        engine.start_transfer(&Transfer::new(&links, 0.0, 2e6));
        engine.start_transfer(&Transfer::new(&links[1..], 0.0, 8e6));
        assert_eq!(dates(&mut engine), [1.0, 1.0]);
    }

    #[test]
    fn a_fat_pipe_is_not_shared() {
        let mut resources = Resources::new();
        let pipe = resources.add_link(1e6, 0.0, Policy::FatPipe);
        let mut engine = FlowEngine::new(resources, NetworkModel::WARM_TCP);
        engine.start_transfer(&Transfer::new(&[pipe], 0.0, 1e6));
        engine.start_transfer(&Transfer::new(&[pipe], 0.0, 2e6));
        assert_eq!(dates(&mut engine), [1.0, 2.0]);
    }

    #[test]
    fn tasks_have_a_core_each_until_cores_run_out() {
        let mut resources = Resources::new();
        let host = resources.add_host(1e9, 2);
        let mut engine = FlowEngine::new(resources, NetworkModel::WARM_TCP);
        engine.start_execution(&Execution::new(host, 1e9));
        assert_eq!(dates(&mut engine), [1.0]);
        for _ in 0..4 {
            engine.start_execution(&Execution::new(host, 1e9));
        }
        assert_eq!(dates(&mut engine), [3.0; 4]);
    }

    #[test]
    fn cancelling_frees_the_share() {
        let (mut engine, links) = grid(&[1e6], NetworkModel::WARM_TCP);
        let first = engine.start_transfer(&Transfer::new(&links, 0.0, 2e6));
        engine.start_transfer(&Transfer::new(&links, 0.0, 2e6));
        engine.advance_to(1.0, &mut Vec::new());
        assert!(engine.cancel(first));
        assert!(!engine.cancel(first));
        assert_eq!(dates(&mut engine), [2.5]);
    }

    #[test]
    fn nothing_to_move_takes_the_latency_or_no_time() {
        let (mut engine, links) = grid(&[1e6], NetworkModel::WARM_TCP);
        let host = engine.resources.add_host(1e9, 1);
        engine.start_transfer(&Transfer::new(&links, 0.25, 0.0));
        engine.start_transfer(&Transfer::new(&links, 0.0, 0.0));
        engine.start_transfer(&Transfer::new(&[], 0.5, 1e6));
        engine.start_execution(&Execution::new(host, 0.0));
        assert_eq!(dates(&mut engine), [0.25, 0.0, 0.5, 0.0]);
    }

    #[test]
    fn advancing_past_many_dates_reports_each_at_its_own() {
        let (mut engine, links) = grid(&[1e6], NetworkModel::WARM_TCP);
        let actions = [1e6, 2e6].map(|size| engine.start_transfer(&Transfer::new(&links, 0.0, size)));
        let mut completed = Vec::new();
        engine.advance_to(10.0, &mut completed);
        let expected = [(2.0, actions[0]), (3.0, actions[1])].map(|(date_s, action)| Completion {
            date_s,
            action,
            outcome: Outcome::Done,
        });
        assert_eq!(completed, expected);
        assert_eq!((engine.now_s(), engine.next_event_s()), (10.0, None));
    }
}
