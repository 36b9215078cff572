//! The kernel of a simulation: its clock, the queue of scheduled events, the flows, and the platform's profiles.
//!
//! The other parts of a simulation use the kernel to read the time, to queue future events ([`ScheduledEvent`]) and to
//! start flows ([`Purpose`]). [`Kernel::next`] returns the next event.
//!
//! **Order at one date:** profile changes, then ends of flows, then queued events in the order in which they were
//! queued, as in SimGrid.
//!
//! **Invariants.** `now` never decreases. The flow engine's time is never ahead of `now`, and at most a nanosecond
//! behind it when an action starts. So a chain of flows takes exactly the sum of its flows, without rounding.

use std::collections::BTreeMap;

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{NodeId, Time};
use gridloom_core::node::Input;
use gridloom_flow::{ActionId, Execution, FlowEngine, HostIndex, LinkIndex, Quantity, Timeline, Transfer};
use gridloom_platform::HostId;

use crate::instruments::Instruments;
use crate::observe::{Observation, TransferContents};
use crate::queue::{Queue, ns_up};
pub(crate) use crate::scheduled_event::{Purpose, ScheduledEvent};
use crate::trace::Trace;

/// The next event of a simulation.
#[derive(Debug)]
pub(crate) enum KernelEvent {
    /// Profiles change something; see [`Kernel::take_change`].
    Changes,
    /// Actions of the engine have ended.
    Ended(Vec<ActionId>),
    /// A queued event, with its sequence number.
    Due(u64, ScheduledEvent),
}

/// Clock, queue and flows.
#[derive(Debug)]
pub(crate) struct Kernel {
    now: Time,
    queue: Queue<ScheduledEvent>,
    engine: FlowEngine,
    purposes: BTreeMap<ActionId, Purpose>,
    /// The platform's future profile changes.
    timeline: Timeline,
    /// Number of queued events and actions that may resume a process.
    process_event_count: u64,
    instruments: Instruments,
}

impl Kernel {
    pub(crate) fn new(engine: FlowEngine, timeline: Timeline, instruments: Instruments) -> Kernel {
        let (queue, purposes) = (Queue::new(), BTreeMap::new());
        Kernel { now: Time::ZERO, queue, engine, purposes, timeline, process_event_count: 0, instruments }
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Advances the clock over a time without events.
    pub(crate) fn advance_clock(&mut self, at: Time) {
        self.now = self.now.max(at);
    }

    /// Returns the time of the next event.
    pub(crate) fn next_at(&mut self) -> Option<Time> {
        let flow_at = self.engine.next_event_s().map(|seconds| Time(ns_up(seconds)));
        let change_at = self.timeline.next_s().map(|seconds| Time(ns_up(seconds)));
        flow_at.into_iter().chain(self.queue.next_at()).chain(change_at).min()
    }

    /// Advances time to the next event and returns it.
    pub(crate) fn next(&mut self) -> Option<KernelEvent> {
        let flow_s = self.engine.next_event_s();
        let flow_at = flow_s.map(|seconds| Time(ns_up(seconds)));
        let queued_at = self.queue.next_at();
        if let Some(seconds) = self.timeline.next_s()
            && flow_s.is_none_or(|flow_s| seconds <= flow_s)
            && queued_at.is_none_or(|at| Time(ns_up(seconds)) <= at)
        {
            self.begin_changes(seconds);
            return Some(KernelEvent::Changes);
        }
        match (flow_s, queued_at) {
            (None, None) => None,
            (Some(seconds), queued) if queued.is_none_or(|at| flow_at <= Some(at)) => {
                let mut ended = Vec::new();
                self.engine.advance_to(seconds, &mut ended);
                self.advance_clock(Time(ns_up(seconds)));
                Some(KernelEvent::Ended(ended.into_iter().map(|completion| completion.action).collect()))
            }
            (_, Some(_)) => {
                let (at, sequence, occurrence) = self.queue.pop().expect("the queue has a next time");
                self.advance_clock(at);
                self.process_event_count -= u64::from(occurrence.may_resume_process());
                Some(KernelEvent::Due(sequence, occurrence))
            }
            (Some(_), None) => unreachable!("an empty queue leaves the flow"),
        }
    }

    /// Advances time to a date at which profiles change something.
    pub(crate) fn begin_changes(&mut self, seconds: f64) {
        self.engine.wait_until(seconds);
        self.advance_clock(Time(ns_up(seconds)));
    }

    /// Takes the next profile change that is due now.
    pub(crate) fn take_change(&mut self) -> Option<(Quantity, f64)> {
        let (quantity, value) = self.timeline.take_due(self.engine.now_s())?;
        self.record(|trace, now| trace.changed(now, &quantity, value));
        Some((quantity, value))
    }

    /// Reports whether a profile turns a host on later.
    pub(crate) fn will_turn_on(&self, host: HostId) -> bool {
        self.timeline.will_turn_on(HostIndex(host.0))
    }

    /// Queues an event. Returns its sequence number.
    pub(crate) fn push(&mut self, at: Time, occurrence: ScheduledEvent) -> u64 {
        self.process_event_count += u64::from(occurrence.may_resume_process());
        self.queue.push(at, occurrence)
    }

    /// Queues an input for delivery now.
    pub(crate) fn deliver(&mut self, node: NodeId, input: Input) {
        self.push(self.now, ScheduledEvent::Deliver { node, input: Box::new(input) });
    }

    /// Reports whether a queued event or a flow may resume a process.
    pub(crate) fn has_something_for_processes(&self) -> bool {
        self.process_event_count > 0
    }

    /// Reports whether a transfer, task or computation is in progress.
    pub(crate) fn has_flows(&self) -> bool {
        !self.purposes.is_empty()
    }

    /// Reports whether a profile or a fault will change something.
    pub(crate) fn has_changes(&self) -> bool {
        let is_fault = |occurrence: &ScheduledEvent| matches!(occurrence, ScheduledEvent::Strike(_));
        self.timeline.next_s().is_some() || self.queue.iter().any(is_fault)
    }

    pub(crate) fn start_transfer(&mut self, transfer: &Transfer<'_>, purpose: Purpose) -> ActionId {
        self.synchronise();
        let action = self.engine.start_transfer(transfer);
        self.begun(action, purpose)
    }

    pub(crate) fn start_execution(&mut self, host: HostIndex, amount: f64, purpose: Purpose) -> ActionId {
        self.synchronise();
        let action = self.engine.start_execution(&Execution::new(host, amount));
        self.begun(action, purpose)
    }

    fn begun(&mut self, action: ActionId, purpose: Purpose) -> ActionId {
        self.process_event_count += u64::from(purpose.is_of_process());
        self.purposes.insert(action, purpose);
        action
    }

    /// Takes the purpose of an action that has ended; `None` if it was cancelled while handling another action that
    /// ended at the same date.
    pub(crate) fn take_purpose(&mut self, action: ActionId) -> Option<Purpose> {
        let purpose = self.purposes.remove(&action)?;
        self.process_event_count -= u64::from(purpose.is_of_process());
        Some(purpose)
    }

    /// Cancels an action. If it ended while the engine caught up, its end is ignored.
    pub(crate) fn cancel(&mut self, action: ActionId) {
        self.take_purpose(action);
        self.synchronise();
        self.engine.cancel(action);
    }

    /// Cancels a flow. Returns the bytes that were left of it.
    pub(crate) fn cancel_with_rest(&mut self, action: ActionId) -> f64 {
        self.take_purpose(action);
        self.synchronise();
        self.engine.cancel_with_rest(action).unwrap_or(0.0)
    }

    /// Iterates over the running actions with their purposes.
    pub(crate) fn running_actions(&self) -> impl Iterator<Item = (ActionId, &Purpose)> {
        self.purposes.iter().map(|(action, purpose)| (*action, purpose))
    }

    /// Returns the purpose of a running action.
    pub(crate) fn purpose(&self, action: ActionId) -> Option<&Purpose> {
        self.purposes.get(&action)
    }

    /// Sets the rate of a processor or disk to `scale` times its described rate.
    pub(crate) fn set_speed_scale(&mut self, host: HostIndex, scale: f64) {
        self.synchronise();
        self.engine.set_speed_scale(host, scale);
    }

    /// A profile changes the bandwidth of a link.
    pub(crate) fn set_bandwidth(&mut self, link: LinkIndex, bandwidth: f64) {
        self.engine.set_bandwidth(link, bandwidth);
    }

    /// Changes the bandwidth of a link from now on.
    pub(crate) fn set_bandwidth_now(&mut self, link: LinkIndex, bandwidth: f64) {
        self.synchronise();
        self.engine.set_bandwidth(link, bandwidth);
    }

    /// A profile changes the latency of a link, seconds.
    pub(crate) fn set_latency(&mut self, link: LinkIndex, latency_s: f64) {
        self.engine.set_latency(link, latency_s);
    }

    /// Advances the engine to now before an action starts or is cancelled, unless it is within the nanosecond before.
    fn synchronise(&mut self) {
        if Time(ns_up(self.engine.now_s())) >= self.now {
            return;
        }
        let mut ended = Vec::new();
        self.engine.advance_to(ns_to_seconds(self.now.0), &mut ended);
        for completion in ended {
            self.queue.push(self.now, ScheduledEvent::Completed(completion.action));
        }
    }

    /// Adds an entry to the trace.
    pub(crate) fn record(&mut self, what: impl FnOnce(&mut Trace, Time)) {
        what(&mut self.instruments.trace, self.now);
    }

    /// Notifies the observer, if there is one.
    pub(crate) fn observe<'a>(&mut self, what: impl FnOnce() -> Observation<'a>) {
        self.instruments.watch.see(self.now, what);
    }

    /// Records that a transfer begins. Returns its number.
    pub(crate) fn begin_transfer(&mut self, moved: TransferContents<'_>, size_bytes: u64, links: &[LinkIndex]) -> u64 {
        self.instruments.begins(self.now, moved, size_bytes, links)
    }

    pub(crate) fn instruments(&self) -> &Instruments {
        &self.instruments
    }

    pub(crate) fn instruments_mut(&mut self) -> &mut Instruments {
        &mut self.instruments
    }

    /// Iterates over the queued events, in no particular order.
    pub(crate) fn queued(&self) -> impl Iterator<Item = &ScheduledEvent> {
        self.queue.iter()
    }

    /// Reports whether debug builds should check the invariants now. They do so at intervals.
    pub(crate) fn is_check_due(&self) -> bool {
        self.queue.sequence().is_multiple_of(64)
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self) {
        let queued = self.queue.iter().filter(|occurrence| occurrence.may_resume_process()).count();
        let flowing = self.purposes.values().filter(|purpose| purpose.is_of_process()).count();
        assert_eq!(
            self.process_event_count,
            (queued + flowing) as u64,
            "the events that may resume a process are counted"
        );
        let engine_at = Time(ns_up(self.engine.now_s()));
        assert!(engine_at <= self.now, "the engine is at {engine_at}, ahead of {}", self.now);
        assert!(self.queue.next_at().is_none_or(|at| at >= self.now), "something is due before {}", self.now);
    }
}

#[cfg(test)]
mod tests {
    use gridloom_flow::{NetworkModel, Resources};

    use super::*;
    use crate::process::ProcessId;

    fn kernel() -> Kernel {
        let mut resources = Resources::new();
        let host = resources.add_host(1e9, 1);
        assert_eq!(host, HostIndex(0));
        Kernel::new(FlowEngine::new(resources, NetworkModel::default()), Timeline::new(), Instruments::new(1, 0))
    }

    fn computation(process: u32) -> Purpose {
        Purpose::Computation { process: ProcessId(process), turn: 0 }
    }

    #[test]
    fn what_ends_comes_before_what_is_due_at_the_same_time() {
        let mut kernel = kernel();
        let action = kernel.start_execution(HostIndex(0), 2e9, computation(0));
        kernel.push(Time(2_000_000_000), ScheduledEvent::TimeLimit);
        assert_eq!(kernel.next_at(), Some(Time(2_000_000_000)));
        assert!(matches!(kernel.next(), Some(KernelEvent::Ended(ended)) if ended == [action]));
        assert!(kernel.take_purpose(action).is_some() && kernel.take_purpose(action).is_none());
        assert!(matches!(kernel.next(), Some(KernelEvent::Due(_, ScheduledEvent::TimeLimit))));
        assert_eq!(kernel.now(), Time(2_000_000_000));
        assert!(kernel.next().is_none());
        kernel.check();
    }

    #[test]
    fn an_action_that_ends_while_another_begins_is_still_told() {
        let mut kernel = kernel();
        let first = kernel.start_execution(HostIndex(0), 1e9, computation(0));
        kernel.advance_clock(Time(1_000_000_000));
        kernel.start_execution(HostIndex(0), 1e9, computation(1));
        kernel.check();
        assert!(
            matches!(kernel.next(), Some(KernelEvent::Due(_, ScheduledEvent::Completed(action))) if action == first)
        );
        assert!(kernel.has_something_for_processes());
    }

    #[test]
    fn a_cancelled_action_never_ends() {
        let mut kernel = kernel();
        let action = kernel.start_execution(HostIndex(0), 1e9, computation(0));
        assert!(kernel.has_something_for_processes());
        kernel.cancel(action);
        assert!(!kernel.has_something_for_processes() && kernel.next().is_none());
        kernel.check();
    }
}
