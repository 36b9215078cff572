//! The state of all processes, and how it changes as virtual time moves.

use std::collections::{BTreeMap, VecDeque};

use gridloom_core::base::time::ns_to_seconds;
use gridloom_core::base::{NodeId, Time};
use gridloom_core::flow::{Execution, HostIndex};
use gridloom_core::platform::HostId;
use gridloom_core::process::{Incoming, PeerId, ProcessError, ProcessSpec};

use super::measures::Measured;
use super::sockets::Connection;
use crate::observe::{LetterName, Seen, State};
use crate::simulation::{Occurrence, Purpose, Simulation};

/// So many that wait are told.
const WAITING_TOLD: usize = 8;

/// A process of a simulation, in order of their making.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProcessId(pub u32);

/// What a process waits for.
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

/// All processes and their connections.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    pub(super) all: Vec<Process>,
    pub(crate) ready: VecDeque<ProcessId>,
    pub(super) listening: BTreeMap<(HostId, u16), ProcessId>,
    pub(super) connections: Vec<Connection>,
    /// Clients of the grid, by whom they are used.
    pub(super) clients: BTreeMap<NodeId, ProcessId>,
    /// How many things are under way that may let a process go on, but for what happens in the grid.
    pub(crate) pending: u64,
    /// Processes that start anew, each with the one in whose place it is.
    pub(super) reborn: Vec<(ProcessId, ProcessId)>,
    /// Letters that cannot move: nothing passes on their way.
    pub(super) stopped: Vec<LetterName>,
    pub(crate) idle: Idle,
    /// Faults to come that start processes anew.
    pub(crate) restarts_due: u64,
    /// Faults to come that turn hosts on.
    pub(crate) hosts_on_due: u64,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) spec: ProcessSpec,
    pub(crate) host: HostId,
    pub(crate) inbox: VecDeque<Incoming>,
    pub(crate) wait: Option<Wait>,
    pub(super) turn: u64,
    /// What it looks for when it receives: a type and perhaps a sender; empty for whatever it handles. Kept, so that
    /// saying it costs no memory.
    expected: (String, Option<PeerId>),
    /// Why it must return, once it must.
    pub(crate) end: Option<String>,
    /// What it has called since.
    pub(crate) calls_after_end: u32,
    pub(crate) is_over: bool,
    /// By number of peer: the connection and which end of it is ours.
    pub(super) peers: Vec<(u32, u8)>,
    /// What the last connect gave.
    pub(super) connected: Option<Result<PeerId, ProcessError>>,
    pub(super) next_port: u16,
    /// When it is to start.
    pub(super) start: Time,
    /// Whether it starts again with its host, and whether its host has taken it away.
    pub(super) restarts: bool,
    pub(super) is_felled: bool,
    /// Whether a fault has stopped it, and whether what it waited for has come meanwhile.
    pub(super) is_stopped: bool,
    pub(super) is_due: bool,
    /// Whether another has started in its place.
    pub(super) is_replaced: bool,
}

impl Process {
    /// Whether it ended with its host, and starts again with it.
    pub(super) fn waits_for_host(&self) -> bool {
        self.is_felled && self.restarts && !self.is_replaced
    }
}

/// How long nothing but time limits of processes has come to pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Idle {
    /// When something else did last.
    pub since: Time,
    /// How many have expired since then.
    pub limits: u64,
}

impl Simulation {
    /// A process on that host, which waits to be started.
    pub(crate) fn add_process(&mut self, host: HostId, spec: ProcessSpec, start: Time) -> ProcessId {
        let id = ProcessId(self.processes.all.len() as u32);
        self.processes.all.push(Process {
            spec,
            host,
            inbox: VecDeque::new(),
            wait: None,
            turn: 0,
            expected: Default::default(),
            end: None,
            calls_after_end: 0,
            is_over: false,
            peers: Vec::new(),
            connected: None,
            next_port: 49152,
            start,
            restarts: false,
            is_felled: false,
            is_stopped: false,
            is_due: false,
            is_replaced: false,
        });
        let spec = &self.processes.all[id.0 as usize].spec;
        self.trace.process(b'+', self.now, id.0);
        self.watch.see(self.now, || Seen::Process { process: id, spec, host });
        let turn = self.process_waits(id, Wait::Start);
        self.push_process(start, Occurrence::ProcessDue { process: id, turn });
        id
    }

    /// Queues what may let a process go on.
    pub(crate) fn push_process(&mut self, at: Time, occurrence: Occurrence) {
        self.processes.pending += 1;
        self.queue.push(at, occurrence);
    }

    /// Whether a process that waits may ever go on, as far as can be told without looking at the grid's machines.
    pub(crate) fn may_wake(&self) -> bool {
        let waits = |id: &ProcessId| matches!(self.process(*id).wait, Some(Wait::Event { .. }));
        let is_late = |process: &Process| {
            let waits = matches!(process.wait, Some(Wait::Start)) || process.waits_for_host();
            waits && self.is_off(process.host) && self.timeline.will_turn_on(HostIndex(process.host.0))
        };
        self.processes.pending > 0
            || self.processes.clients.values().any(waits)
            || !self.off.is_empty() && self.processes.all.iter().any(is_late)
            || !self.processes.stopped.is_empty()
            || self.ways.hold_for_process()
    }

    pub(crate) fn process(&self, id: ProcessId) -> &Process {
        &self.processes.all[id.0 as usize]
    }

    pub(crate) fn process_mut(&mut self, id: ProcessId) -> &mut Process {
        &mut self.processes.all[id.0 as usize]
    }

    /// It blocks; the number of this time.
    pub(crate) fn process_waits(&mut self, id: ProcessId, wait: Wait) -> u64 {
        let what = match &wait {
            Wait::Incoming | Wait::Room { .. } | Wait::Connection { .. } | Wait::Event { .. } if self.watch.is_on() => {
                self.process_wait_text(id, &wait)
            }
            _ => String::new(),
        };
        self.watch.see(self.now, || {
            let state = match &wait {
                Wait::Start => State::Runs,
                Wait::Time => State::Sleeps,
                Wait::Computation { block, flops } => State::Computes { block: block.as_deref(), flops: *flops },
                Wait::Incoming | Wait::Room { .. } | Wait::Connection { .. } | Wait::Event { .. } => {
                    State::Waits { what: &what }
                }
            };
            Seen::State { process: id, state }
        });
        let process = self.process_mut(id);
        process.wait = Some(wait);
        process.turn += 1;
        process.turn
    }

    pub(crate) fn process_expects(&mut self, id: ProcessId, kind: Option<&str>, from: Option<PeerId>) {
        let (expected, peer) = &mut self.process_mut(id).expected;
        expected.clear();
        expected.push_str(kind.unwrap_or_default());
        *peer = from;
    }

    /// What a process waits for, in words.
    pub(crate) fn process_wait_text(&self, id: ProcessId, wait: &Wait) -> String {
        match wait {
            _ if self.is_stopped(id) => "somebody to let it go on: it was paused or hangs".into(),
            Wait::Incoming => match &self.process(id).expected {
                (kind, _) if kind.is_empty() => "a message".into(),
                (kind, None) => format!("a message '{kind}'"),
                (kind, Some(peer)) => format!("a message '{kind}' of {}", self.process_describe(id, *peer)),
            },
            Wait::Room { peer } => format!("{} to take what was sent to it", self.process_describe(id, *peer)),
            Wait::Connection { host, port } => format!("a connection to {host}:{port}"),
            Wait::Event { .. } => "a result of the grid".into(),
            Wait::Computation { .. } => "the end of its computation".into(),
            Wait::Start if self.is_off(self.process(id).host) => "its host to be on".into(),
            Wait::Start | Wait::Time => "its time".into(),
        }
    }

    /// Like [`Simulation::process_waits`], until then at the latest.
    pub(crate) fn process_waits_until(&mut self, id: ProcessId, wait: Wait, until: Option<Time>) {
        let turn = self.process_waits(id, wait);
        if let Some(until) = until {
            let at = until.max(self.now);
            self.push_process(at, Occurrence::ProcessDue { process: id, turn });
        }
    }

    /// What it waits for has come, if it waits for such.
    pub(super) fn wake_if(&mut self, id: ProcessId, is_it: impl FnOnce(&Wait) -> bool) {
        let now = self.now;
        let process = &mut self.processes.all[id.0 as usize];
        if process.wait.as_ref().is_some_and(is_it) {
            self.processes.idle = Idle { since: now, limits: 0 };
            if process.is_stopped {
                process.is_due = true;
                return;
            }
            process.wait = None;
            self.trace.process(b'>', now, id.0);
            self.watch.see(self.now, || Seen::State { process: id, state: State::Runs });
            self.processes.ready.push_back(id);
        }
    }

    pub(crate) fn on_process_due(&mut self, id: ProcessId, turn: u64) {
        let process = self.process(id);
        // Who was to start while its host is off starts with it.
        let is_late = matches!(process.wait, Some(Wait::Start)) && self.is_off(process.host);
        if process.turn == turn && !is_late {
            let is_limit =
                !matches!(process.wait, Some(Wait::Start | Wait::Computation { .. } | Wait::Connection { .. }));
            let idle = self.processes.idle;
            self.wake_if(id, |_| true);
            if is_limit {
                self.processes.idle = Idle { limits: idle.limits + 1, ..idle };
            }
        }
    }

    /// A client has an event.
    pub(crate) fn wake_for_event(&mut self, node: NodeId) {
        if let Some(process) = self.processes.clients.get(&node) {
            self.wake_if(*process, |wait| matches!(wait, Wait::Event { client } if *client == node));
        }
    }

    /// Starts a client that a process uses.
    pub(crate) fn add_client_of(&mut self, id: ProcessId, name: &str) -> NodeId {
        let client = self.add_client(self.process(id).host, name);
        self.processes.clients.insert(client, id);
        client
    }

    /// Those of that name, `function@host`, that no other has replaced.
    pub(crate) fn processes_named(&self, name: &str) -> Vec<ProcessId> {
        let is_it = |process: &Process| {
            let spec = &process.spec;
            let rest = name.strip_prefix(&*spec.function).and_then(|rest| rest.strip_prefix('@'));
            !process.is_replaced && rest == Some(&*spec.host)
        };
        let all = self.processes.all.iter().enumerate().filter(|(_, process)| is_it(process));
        all.map(|(index, _)| ProcessId(index as u32)).collect()
    }

    /// Processes that have not ended and what each waits for, in words; some of them if there are many.
    pub fn waiting(&self) -> Vec<String> {
        let left = self.processes.all.iter().enumerate().filter(|(_, process)| !process.is_over);
        let mut told: Vec<String> = Vec::new();
        for (index, process) in left {
            if told.len() == WAITING_TOLD {
                told.push("others".into());
                break;
            }
            let what = process.wait.as_ref().map(|wait| self.process_wait_text(ProcessId(index as u32), wait));
            let what = what.unwrap_or_else(|| "its turn".into());
            told.push(format!("{}@{} (waits for {what})", process.spec.function, process.spec.host));
        }
        told
    }

    /// What the time of a measured block is charged as; `None` if that is not known, and the simulation has failed.
    pub(crate) fn process_measured(&mut self, id: ProcessId, block: &str, real_ns: u64) -> Option<f64> {
        let flops = ns_to_seconds(real_ns) * self.config.reference_flops;
        let Some(mut measures) = self.measures.take() else { return Some(flops) };
        let spec = &self.process(id).spec;
        let charged = measures.charge(&Measured { process: id, spec, block, real_ns, flops });
        self.measures = Some(measures);
        charged.map_err(|why| self.fail(why)).ok()
    }

    pub(crate) fn process_computes(&mut self, id: ProcessId, block: Option<&str>, flops: f64) {
        self.trace.computes(self.now, id.0, flops);
        let turn = self.process_waits(id, Wait::Computation { block: block.map(str::to_string), flops });
        self.synchronise();
        let host = HostIndex(self.process(id).host.0);
        let action = self.engine.start_execution(&Execution::new(host, flops));
        self.purposes.insert(action, Purpose::Computation { process: id, turn });
        self.processes.pending += 1;
    }
}
