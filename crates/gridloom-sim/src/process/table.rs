//! The table of all processes: their states, what they wait for, and which are ready to resume.
//!
//! **Invariant:** a process is in the ready queue, waiting, running, or ended. It is woken once for each wait. `turn`
//! counts the waits, so that a late event wakes nothing.

use std::collections::{BTreeMap, VecDeque};

use gridloom_base::time::ns_to_seconds;
use gridloom_base::{NodeId, Time};
use gridloom_flow::{ActionId, HostIndex};
use gridloom_platform::HostId;
use gridloom_process::{PeerId, ProcessSpec};

use super::id::ProcessId;
use super::measures::{BlockCharges, MeasuredBlock};
use crate::kernel::{Kernel, Purpose, ScheduledEvent};
use crate::observe::{Observation, State};

/// The condition for which a process waits.
#[derive(Clone, Debug)]
pub(crate) enum Wait {
    Start,
    Time,
    Incoming,
    Room { peer: PeerId },
    Connection { host: String, port: u16 },
    Computation { block: Option<String>, flops: f64 },
    Event { client: NodeId },
}

/// The period in which nothing but time limits of processes has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IdlePeriod {
    /// When anything else last happened.
    pub since: Time,
    /// Number of time limits that have expired since then.
    pub limits: u64,
}

#[derive(Default)]
pub(crate) struct Processes {
    all: Vec<Process>,
    ready: VecDeque<ProcessId>,
    /// Clients of the grid, each with the process that uses it.
    clients: BTreeMap<NodeId, ProcessId>,
    /// Restarted processes that have no stack yet, each with the process that it replaces.
    restarted: Vec<(ProcessId, ProcessId)>,
    idle: IdlePeriod,
    measures: Option<Box<dyn BlockCharges>>,
    /// Speed of the machine on which blocks of processes are measured, floating-point operations per second.
    reference_flops: f64,
    /// The reason why all processes had to end early.
    failure: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) spec: ProcessSpec,
    pub(crate) host: HostId,
    pub(crate) wait: Option<Wait>,
    turn: u64,
    /// What it receives: a message type and optionally a sender; an empty type for any message that it handles. Kept
    /// to avoid allocation.
    expected: (String, Option<PeerId>),
    /// The reason why it must return, once it must.
    end: Option<String>,
    /// Number of its calls since then.
    calls_after_end: u32,
    has_returned: bool,
    /// Its start time.
    start: Time,
    /// True if it restarts with its host.
    restarts: bool,
    /// True if it ended with its host.
    has_ended_with_host: bool,
    /// True if a fault has stopped it.
    is_stopped: bool,
    /// True if the event that it waits for has happened while it was stopped.
    is_due: bool,
    /// True if another process has replaced it.
    is_replaced: bool,
}

impl Process {
    /// Reports whether it ended with its host and restarts with it.
    fn waits_for_host(&self) -> bool {
        self.has_ended_with_host && self.restarts && !self.is_replaced
    }

    fn waits_to_start(&self) -> bool {
        matches!(self.wait, Some(Wait::Start))
    }

    /// Returns what it receives: a message type, if it expects one, and optionally a sender.
    pub(crate) fn expected(&self) -> (Option<&str>, Option<PeerId>) {
        let (kind, from) = &self.expected;
        (Some(kind.as_str()).filter(|kind| !kind.is_empty()), *from)
    }

    /// Reports whether its code has returned.
    pub(crate) fn is_over(&self) -> bool {
        self.has_returned
    }

    /// True if the process was asked to end.
    pub(crate) fn must_end(&self) -> bool {
        self.end.is_some()
    }

    /// Reports whether a fault has stopped it.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}

impl Processes {
    pub(crate) fn new(reference_flops: f64) -> Processes {
        Processes { reference_flops, ..Processes::default() }
    }

    /// Adds a process on a host. It waits to be started.
    pub(crate) fn add(&mut self, kernel: &mut Kernel, host: HostId, spec: ProcessSpec, start: Time) -> ProcessId {
        let id = ProcessId(self.all.len() as u32);
        kernel.record(|trace, now| trace.process(b'+', now, id.0));
        kernel.observe(|| Observation::Process { process: id, spec: &spec, host });
        self.all.push(Process {
            spec,
            host,
            wait: None,
            turn: 0,
            expected: Default::default(),
            end: None,
            calls_after_end: 0,
            has_returned: false,
            start,
            restarts: false,
            has_ended_with_host: false,
            is_stopped: false,
            is_due: false,
            is_replaced: false,
        });
        let turn = self.wait(kernel, id, Wait::Start, "");
        kernel.push(start, ScheduledEvent::ProcessDue { process: id, turn });
        id
    }

    pub(crate) fn process(&self, id: ProcessId) -> &Process {
        &self.all[id.0 as usize]
    }

    fn process_mut(&mut self, id: ProcessId) -> &mut Process {
        &mut self.all[id.0 as usize]
    }

    /// Iterates over the processes whose code has not returned.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        self.with_ids().filter(|(_, process)| !process.has_returned)
    }

    fn with_ids(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        (0..).map(ProcessId).zip(&self.all)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ProcessId> + use<> {
        (0..self.all.len() as u32).map(ProcessId)
    }

    /// Returns the processes with the name `function@host` that were not replaced.
    pub(crate) fn named(&self, name: &str) -> Vec<ProcessId> {
        let is_it = |process: &Process| {
            let spec = &process.spec;
            let rest = name.strip_prefix(&*spec.function).and_then(|rest| rest.strip_prefix('@'));
            !process.is_replaced && rest == Some(&*spec.host)
        };
        self.with_ids().filter(|(_, process)| is_it(process)).map(|(id, _)| id).collect()
    }

    /// Returns the first ready process.
    pub(crate) fn first_ready(&self) -> Option<ProcessId> {
        self.ready.front().copied()
    }

    /// Removes and returns the first ready process.
    pub(crate) fn take_ready(&mut self) -> Option<ProcessId> {
        self.ready.pop_front()
    }

    pub(crate) fn idle(&self) -> IdlePeriod {
        self.idle
    }

    /// Records that something other than a time limit has happened.
    pub(crate) fn note_activity(&mut self, now: Time) {
        self.idle = IdlePeriod { since: now, limits: 0 };
    }

    /// Blocks a process. `what` describes what it waits for if it is an event from outside. Returns the number of this wait.
    pub(crate) fn wait(&mut self, kernel: &mut Kernel, id: ProcessId, wait: Wait, what: &str) -> u64 {
        kernel.observe(|| {
            let state = match &wait {
                Wait::Start => State::Runs,
                Wait::Time => State::Sleeps,
                Wait::Computation { block, flops } => State::Computes { block: block.as_deref(), flops: *flops },
                Wait::Incoming | Wait::Room { .. } | Wait::Connection { .. } | Wait::Event { .. } => {
                    State::Waits { what }
                }
            };
            Observation::State { process: id, state }
        });
        let process = self.process_mut(id);
        process.wait = Some(wait);
        process.turn += 1;
        process.turn
    }

    /// Limits the current wait of a process to the given time.
    pub(crate) fn limit_wait(&self, kernel: &mut Kernel, id: ProcessId, at: Time) {
        let turn = self.process(id).turn;
        kernel.push(at.max(kernel.now()), ScheduledEvent::ProcessDue { process: id, turn });
    }

    pub(crate) fn expect(&mut self, id: ProcessId, kind: Option<&str>, from: Option<PeerId>) {
        let (expected, peer) = &mut self.process_mut(id).expected;
        expected.clear();
        expected.push_str(kind.unwrap_or_default());
        *peer = from;
    }

    /// Wakes a process if it waits for such an event.
    pub(crate) fn wake_if(&mut self, kernel: &mut Kernel, id: ProcessId, is_it: impl FnOnce(&Wait) -> bool) {
        let process = &mut self.all[id.0 as usize];
        if !process.wait.as_ref().is_some_and(is_it) {
            return;
        }
        self.idle = IdlePeriod { since: kernel.now(), limits: 0 };
        if process.is_stopped {
            process.is_due = true;
            return;
        }
        process.wait = None;
        kernel.record(|trace, now| trace.process(b'>', now, id.0));
        kernel.observe(|| Observation::State { process: id, state: State::Runs });
        self.ready.push_back(id);
    }

    /// Handles the end of a time limit, a sleep or a computation. `is_off` is true if the host of the process is off.
    pub(crate) fn on_time_limit(&mut self, kernel: &mut Kernel, id: ProcessId, turn: u64, is_off: bool) {
        let process = self.process(id);
        // A process whose start time falls into a period in which its host is off starts with the host.
        let is_late = process.waits_to_start() && is_off;
        if process.turn != turn || is_late {
            return;
        }
        let is_limit = !matches!(process.wait, Some(Wait::Start | Wait::Computation { .. } | Wait::Connection { .. }));
        let idle = self.idle;
        self.wake_if(kernel, id, |_| true);
        if is_limit {
            self.idle = IdlePeriod { limits: idle.limits + 1, ..idle };
        }
    }

    /// Registers a client of the grid that a process uses.
    pub(crate) fn add_client(&mut self, id: ProcessId, client: NodeId) {
        self.clients.insert(client, id);
    }

    /// Returns the clients of a process.
    pub(crate) fn clients_of(&self, id: ProcessId) -> Vec<NodeId> {
        self.clients.iter().filter(|(_, owner)| **owner == id).map(|(client, _)| *client).collect()
    }

    /// Wakes the process that waits for an event of this client.
    pub(crate) fn wake_for_event(&mut self, kernel: &mut Kernel, node: NodeId) {
        if let Some(process) = self.clients.get(&node).copied() {
            self.wake_if(kernel, process, |wait| matches!(wait, Wait::Event { client } if *client == node));
        }
    }

    /// Reports whether a process waits for an event of the grid.
    pub(crate) fn wait_for_events(&self) -> bool {
        self.clients.values().any(|id| matches!(self.process(*id).wait, Some(Wait::Event { .. })))
    }

    /// Reports whether a process waits to start or restart on a host for which `is_it` returns true.
    pub(crate) fn wait_for_host(&self, is_it: impl Fn(HostId) -> bool) -> bool {
        self.all.iter().any(|process| (process.waits_to_start() || process.waits_for_host()) && is_it(process.host))
    }

    /// Reports whether a process that ended with its host restarts with it, on a host for which `is_it` returns true.
    pub(crate) fn restart_with_host(&self, is_it: impl Fn(HostId) -> bool) -> bool {
        self.all.iter().any(|process| process.waits_for_host() && is_it(process.host))
    }

    pub(crate) fn set_measures(&mut self, measures: Box<dyn BlockCharges>) {
        self.measures = Some(measures);
    }

    /// Returns the charge for a measured block, floating-point operations.
    ///
    /// # Errors
    /// A message if it is unknown or cannot be recorded.
    pub(crate) fn charge(&mut self, id: ProcessId, block: &str, real_ns: u64) -> Result<f64, String> {
        let flops = ns_to_seconds(real_ns) * self.reference_flops;
        let Some(measures) = &mut self.measures else { return Ok(flops) };
        let spec = &self.all[id.0 as usize].spec;
        measures.charge(&MeasuredBlock { process: id, spec, block, real_ns, flops })
    }

    /// Ends the recording of measured blocks. Nothing can fail afterwards.
    ///
    /// # Errors
    /// The reason why processes had to end early, or the failure of the measures, or else `watched`.
    pub(crate) fn finish(&mut self, watched: Result<(), String>) -> Result<(), String> {
        let measured = self.measures.take().map_or(Ok(()), |mut measures| measures.finish());
        self.failure.take().map_or(measured.and(watched), Err)
    }

    /// Makes a process compute; `block` names the measured block, if it is one.
    pub(crate) fn compute(&mut self, kernel: &mut Kernel, id: ProcessId, block: Option<&str>, flops: f64) {
        kernel.record(|trace, now| trace.computes(now, id.0, flops));
        let turn = self.wait(kernel, id, Wait::Computation { block: block.map(str::to_string), flops }, "");
        let host = HostIndex(self.process(id).host.0);
        kernel.start_execution(host, flops, Purpose::Computation { process: id, turn });
    }

    /// Makes a process return: its calls fail from now on.
    pub(crate) fn end(&mut self, kernel: &mut Kernel, id: ProcessId, why: &str) {
        kernel.record(|trace, now| trace.process(b'x', now, id.0));
        let process = self.process_mut(id);
        process.is_stopped = false;
        let computes = matches!(process.wait, Some(Wait::Computation { .. }));
        process.end.get_or_insert_with(|| why.to_string());
        if computes && let Some(action) = computation_of(kernel, id) {
            kernel.cancel(action);
        }
        self.wake_if(kernel, id, |_| true);
    }

    /// Counts a call of a process. If it must return, returns the reason and the number of its calls since then.
    pub(crate) fn call(&mut self, id: ProcessId) -> Option<(String, u32)> {
        let process = self.process_mut(id);
        let why = process.end.clone()?;
        process.calls_after_end += 1;
        Some((why, process.calls_after_end))
    }

    /// Fails the simulation: every process must return.
    pub(crate) fn fail(&mut self, kernel: &mut Kernel, why: String) {
        for id in self.ids() {
            self.end(kernel, id, "the simulation has failed");
        }
        self.failure.get_or_insert(why);
    }

    /// Stops a process until it is resumed. Its events wait. A computation in progress continues to its end.
    pub(crate) fn stop(&mut self, id: ProcessId) {
        self.process_mut(id).is_stopped = true;
    }

    /// Resumes a stopped process.
    pub(crate) fn resume(&mut self, kernel: &mut Kernel, id: ProcessId) {
        let process = self.process_mut(id);
        process.is_stopped = false;
        if std::mem::take(&mut process.is_due) {
            self.wake_if(kernel, id, |_| true);
        }
    }

    /// Records that a process's code has returned and its clients are gone.
    pub(crate) fn on_returned(&mut self, id: ProcessId) {
        self.process_mut(id).has_returned = true;
        self.clients.retain(|_, owner| *owner != id);
    }

    /// Sets whether a process restarts with its host.
    pub(crate) fn set_restarts(&mut self, id: ProcessId, restarts: bool) {
        self.process_mut(id).restarts = restarts;
    }

    /// Reports whether a process restarts with its host.
    pub(crate) fn restarts(&self, id: ProcessId) -> bool {
        self.process(id).restarts
    }

    /// Records that a process has replaced another and needs a stack.
    pub(crate) fn replace(&mut self, before: ProcessId, anew: ProcessId) {
        self.process_mut(before).is_replaced = true;
        self.restarted.push((anew, before));
    }

    /// Takes the restarted processes, each with the one that it replaces.
    pub(crate) fn take_restarted(&mut self) -> Vec<(ProcessId, ProcessId)> {
        std::mem::take(&mut self.restarted)
    }

    /// Handles a host that goes off. Returns the processes that must end with it.
    pub(crate) fn end_with_host(&mut self, host: HostId) -> Vec<ProcessId> {
        let ends = |process: &Process| process.host == host && !process.has_returned && !process.waits_to_start();
        let here: Vec<ProcessId> = self.with_ids().filter(|(_, process)| ends(process)).map(|(id, _)| id).collect();
        here.iter().for_each(|id| self.process_mut(*id).has_ended_with_host = true);
        here
    }

    /// Handles a process whose host is on again. Returns the process to start in its place, if any. A process whose
    /// start was due meanwhile is started.
    pub(crate) fn start_with_host(&mut self, kernel: &mut Kernel, id: ProcessId) -> Option<ProcessSpec> {
        let process = self.process_mut(id);
        let starts_anew = process.waits_for_host();
        process.has_ended_with_host = false;
        if starts_anew {
            return Some(process.spec.clone());
        }
        if process.start <= kernel.now() {
            self.wake_if(kernel, id, |wait| matches!(wait, Wait::Start));
        }
        None
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check(&self) {
        for id in &self.ready {
            assert!(self.process(*id).wait.is_none(), "{id:?} is ready but waits");
        }
        for (id, process) in self.with_ids() {
            assert!(process.wait.is_none() || !process.has_returned, "{id:?} has ended but waits");
        }
    }
}

/// Returns the action in which a process computes.
fn computation_of(kernel: &Kernel, id: ProcessId) -> Option<ActionId> {
    let is_its = |purpose: &Purpose| matches!(purpose, Purpose::Computation { process, .. } if *process == id);
    kernel.running_actions().find(|(_, purpose)| is_its(purpose)).map(|(action, _)| action)
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
