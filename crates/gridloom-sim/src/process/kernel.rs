//! The state of all processes, and how it changes as virtual time moves.

use std::collections::{BTreeMap, VecDeque};

use gridloom_core::base::limits::{DIAL_NS_MAX, SEND_BYTES_MAX};
use gridloom_core::base::time::ns_to_seconds;
use gridloom_core::base::{NodeId, Time};
use gridloom_core::flow::{Execution, HostIndex, Transfer};
use gridloom_core::platform::HostId;
use gridloom_core::process::{Incoming, Letter, PeerId, ProcessError, ProcessSpec};

use super::measures::Measured;
use crate::faults::Way;
use crate::links::Path;
use crate::observe::{LetterName, Moved, Seen, State};
use crate::profiles::HOST_IS_OFF;
use crate::simulation::{Occurrence, Purpose, Simulation};

/// So many that wait are told.
const WAITING_TOLD: usize = 8;

/// A process of a simulation, in order of their making.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ProcessId(pub u32);

/// The letter behind a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LetterFlow {
    name: LetterName,
    transfer: u64,
}

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
    all: Vec<Process>,
    pub(crate) ready: VecDeque<ProcessId>,
    listening: BTreeMap<(HostId, u16), ProcessId>,
    connections: Vec<Connection>,
    /// Clients of the grid, by whom they are used.
    clients: BTreeMap<NodeId, ProcessId>,
    /// How many things are under way that may let a process go on, but for what happens in the grid.
    pub(crate) pending: u64,
    /// Processes that start anew, each with the one in whose place it is.
    pub(super) reborn: Vec<(ProcessId, ProcessId)>,
    /// Letters that cannot move: nothing passes on their way.
    stopped: Vec<LetterName>,
    pub(crate) idle: Idle,
    /// Faults to come that start processes anew.
    pub(crate) restarts_due: u64,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) spec: ProcessSpec,
    pub(crate) host: HostId,
    pub(crate) inbox: VecDeque<Incoming>,
    pub(crate) wait: Option<Wait>,
    turn: u64,
    /// What it looks for when it receives: a type and perhaps a sender; empty for whatever it handles. Kept, so that
    /// saying it costs no memory.
    expected: (String, Option<PeerId>),
    /// Why it must return, once it must.
    pub(crate) end: Option<String>,
    /// What it has called since.
    pub(crate) calls_after_end: u32,
    pub(crate) is_over: bool,
    /// By number of peer: the connection and which end of it is ours.
    peers: Vec<(u32, u8)>,
    /// What the last connect gave.
    connected: Option<Result<PeerId, ProcessError>>,
    next_port: u16,
    /// When it is to start.
    start: Time,
    /// Whether it starts again with its host, and whether its host has taken it away.
    pub(super) restarts: bool,
    is_felled: bool,
    /// Whether a fault has stopped it, and whether what it waited for has come meanwhile.
    is_stopped: bool,
    is_due: bool,
    /// Whether another has started in its place.
    is_replaced: bool,
}

/// How long nothing but time limits of processes has come to pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Idle {
    /// When something else did last.
    pub since: Time,
    /// How many have expired since then.
    pub limits: u64,
}

#[derive(Debug)]
struct Connection {
    ends: [End; 2],
}

#[derive(Debug)]
struct End {
    process: ProcessId,
    peer: PeerId,
    /// The port that was dialled, on the listening end.
    port: u16,
    open: bool,
    /// Letters from this end that have not been handed over, in order; whether each has arrived.
    sent: VecDeque<(Letter, bool)>,
    /// Number of the first of them.
    first: u64,
    bytes: u64,
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
        let changes = || self.timeline.next_s().is_some();
        let is_late = |process: &Process| matches!(process.wait, Some(Wait::Start));
        self.processes.pending > 0
            || self.processes.clients.values().any(waits)
            || !self.off.is_empty() && changes() && self.processes.all.iter().any(is_late)
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
    fn wake_if(&mut self, id: ProcessId, is_it: impl FnOnce(&Wait) -> bool) {
        let now = self.now;
        let process = &mut self.processes.all[id.0 as usize];
        if process.wait.as_ref().is_some_and(is_it) {
            self.processes.idle = Idle { since: now, limits: 0 };
            if process.is_stopped {
                process.is_due = true;
                return;
            }
            process.wait = None;
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

    /// The processes of a host that is off end.
    pub(crate) fn fell_processes(&mut self, host: HostId) {
        for index in 0..self.processes.all.len() {
            let process = &self.processes.all[index];
            if process.host == host && !process.is_over && !matches!(process.wait, Some(Wait::Start)) {
                let process = ProcessId(index as u32);
                self.process_mut(process).is_felled = true;
                self.kill_process(process, HOST_IS_OFF);
            }
        }
    }

    /// A host is on again: those that were to start meanwhile do, and others start anew.
    pub(crate) fn raise_processes(&mut self, host: HostId) {
        for index in 0..self.processes.all.len() {
            let now = self.now;
            let process = &mut self.processes.all[index];
            if process.host != host {
                continue;
            }
            if std::mem::take(&mut process.is_felled) && process.restarts {
                let spec = process.spec.clone();
                let anew = self.add_process(host, spec, now);
                self.process_mut(anew).restarts = true;
                self.process_mut(ProcessId(index as u32)).is_replaced = true;
                self.processes.reborn.push((anew, ProcessId(index as u32)));
            } else if process.start <= now {
                self.wake_if(ProcessId(index as u32), |wait| matches!(wait, Wait::Start));
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

    /// The clients of a process that is gone are gone too.
    fn end_clients(&mut self, id: ProcessId, why: &str) {
        let own = self.processes.clients.iter().filter(|(_, owner)| **owner == id);
        let own: Vec<NodeId> = own.map(|(client, _)| *client).collect();
        own.into_iter().for_each(|client| self.end(client, why));
    }

    /// A process is killed: its clients die with it, whatever its code still does.
    pub(crate) fn kill_process(&mut self, id: ProcessId, why: &str) {
        if self.process(id).is_over {
            return;
        }
        self.end_process(id, why);
        self.end_clients(id, why);
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

    /// A process does nothing until it may go on; what comes waits. A computation that is under way goes on to its end.
    pub(crate) fn stop_process(&mut self, id: ProcessId) {
        self.process_mut(id).is_stopped = true;
    }

    /// It goes on.
    pub(crate) fn resume_process(&mut self, id: ProcessId) {
        let process = self.process_mut(id);
        process.is_stopped = false;
        if std::mem::take(&mut process.is_due) {
            self.wake_if(id, |_| true);
        }
    }

    /// Whether a fault has stopped it, for ever as nothing can happen any more.
    pub(crate) fn is_stopped(&self, id: ProcessId) -> bool {
        self.process(id).is_stopped
    }

    /// A process is killed and starts anew.
    pub(crate) fn restart_process(&mut self, id: ProcessId) {
        let process = self.process(id);
        let (host, spec, restarts, now) = (process.host, process.spec.clone(), process.restarts, self.now);
        self.kill_process(id, "the process was killed");
        let anew = self.add_process(host, spec, now);
        self.process_mut(anew).restarts = restarts;
        self.process_mut(id).is_replaced = true;
        self.processes.reborn.push((anew, id));
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

    /// The time is over that the run was given.
    pub(crate) fn on_until(&mut self) {
        let left = self.waiting();
        if !left.is_empty() {
            let seconds = self.now.seconds();
            self.fail(format!("the run was to end at {seconds} s, and processes still ran: {}", left.join(", ")));
        }
    }

    /// It must return: whatever it calls fails from now on.
    pub(crate) fn end_process(&mut self, id: ProcessId, why: &str) {
        self.process_mut(id).is_stopped = false;
        if matches!(self.process(id).wait, Some(Wait::Computation { .. })) {
            self.stop_computing(id);
        }
        self.process_mut(id).end.get_or_insert_with(|| why.to_string());
        self.wake_if(id, |_| true);
    }

    fn stop_computing(&mut self, id: ProcessId) {
        let is_its = |purpose: &Purpose| matches!(purpose, Purpose::Computation { process, .. } if *process == id);
        let own = self.purposes.iter().find(|(_, purpose)| is_its(purpose)).map(|(action, _)| *action);
        if let Some(action) = own {
            self.synchronise();
            self.engine.cancel(action);
            self.purposes.remove(&action);
            self.processes.pending -= 1;
        }
    }

    /// The simulation cannot go on as it should: every process must return.
    pub(crate) fn fail(&mut self, why: String) {
        for index in 0..self.processes.all.len() as u32 {
            self.end_process(ProcessId(index), "the simulation has failed");
        }
        self.failure.get_or_insert(why);
    }

    /// What nobody can watch must not go on.
    pub(crate) fn fail_if_unseen(&mut self) {
        if let Some(why) = self.watch.failure.take() {
            self.fail(why);
        }
    }

    pub(crate) fn kill_process_at(&mut self, id: ProcessId, at: Time) {
        self.push_process(at, Occurrence::ProcessKilled { process: id });
    }

    /// Its code has returned.
    pub(crate) fn process_over(&mut self, id: ProcessId) {
        let process = self.process_mut(id);
        process.is_over = true;
        process.inbox.clear();
        self.processes.listening.retain(|_, listener| *listener != id);
        self.end_clients(id, "the process has ended");
        self.processes.clients.retain(|_, owner| *owner != id);
        let peers = 0..self.process(id).peers.len() as u64;
        for peer in peers {
            self.process_close(id, PeerId(peer));
        }
    }

    // ---- sockets

    pub(crate) fn process_listen(&mut self, id: ProcessId, port: u16) -> Result<u16, ProcessError> {
        let host = self.process(id).host;
        let port = match port {
            0 => {
                let process = self.process_mut(id);
                process.next_port += 1;
                let first = process.next_port;
                (first..=u16::MAX).find(|port| !self.processes.listening.contains_key(&(host, *port))).unwrap_or(0)
            }
            port => port,
        };
        match self.processes.listening.get(&(host, port)) {
            Some(other) => {
                let function = &self.process(*other).spec.function;
                let why = format!("process '{function}' listens there");
                Err(ProcessError::CannotListen { host: self.process(id).spec.host.clone(), port, why })
            }
            None => {
                self.processes.listening.insert((host, port), id);
                Ok(port)
            }
        }
    }

    /// Begins to connect; the outcome comes after a round trip.
    pub(crate) fn process_dials(&mut self, id: ProcessId, name: &str, port: u16) -> Result<(), ProcessError> {
        let Some(host) = self.platform.host(name) else {
            let some: Vec<&str> = self.platform.hosts().iter().take(8).map(|host| host.name.as_str()).collect();
            return Err(ProcessError::NoSuchHost { host: name.into(), known: some.join(", ") });
        };
        let here = self.process(id).host;
        let cannot = |why: String| ProcessError::CannotConnect { host: name.into(), port, why };
        let there = self.paths.between(here, host).map_err(cannot)?;
        let back = self.paths.between(host, here).map_err(cannot)?;
        let round_trip_ns = there.frame_latency_ns + back.frame_latency_ns;
        self.process_waits(id, Wait::Connection { host: name.into(), port });
        let dialled = Occurrence::ProcessDialled { process: id, host, name: name.into(), port };
        self.push_process(self.now + round_trip_ns, dialled);
        Ok(())
    }

    pub(crate) fn on_process_dialled(&mut self, id: ProcessId, host: HostId, name: String, port: u16) {
        let here = self.process(id).host;
        if self.is_way_lost((here, host)) || self.is_way_lost((host, here)) {
            let why = "no answer".to_string();
            let process = self.process_mut(id);
            process.connected = Some(Err(ProcessError::CannotConnect { host: name, port, why }));
            let turn = process.turn;
            return self.push_process(self.now + DIAL_NS_MAX, Occurrence::ProcessDue { process: id, turn });
        }
        let outcome = match self.processes.listening.get(&(host, port)).copied() {
            None => {
                Err(ProcessError::CannotConnect { host: name, port, why: "connection refused: nobody listens".into() })
            }
            Some(listener) => Ok(self.join(id, listener, port)),
        };
        self.process_mut(id).connected = Some(outcome);
        self.wake_if(id, |wait| matches!(wait, Wait::Connection { .. }));
    }

    pub(crate) fn process_connected(&mut self, id: ProcessId) -> Option<Result<PeerId, ProcessError>> {
        self.process_mut(id).connected.take()
    }

    fn join(&mut self, dialler: ProcessId, listener: ProcessId, port: u16) -> PeerId {
        let number = self.processes.connections.len() as u32;
        let ends = [(dialler, 0), (listener, port)].map(|(process, port)| {
            let peer = PeerId(self.process(process).peers.len() as u64 + u64::from(process == dialler && port > 0));
            End { process, peer, port, open: true, sent: VecDeque::new(), first: 0, bytes: 0 }
        });
        for (side, end) in ends.iter().enumerate() {
            self.process_mut(end.process).peers.push((number, side as u8));
        }
        let peer = ends[0].peer;
        self.processes.connections.push(Connection { ends });
        peer
    }

    fn end_of(&mut self, id: ProcessId, peer: PeerId) -> (u32, u8) {
        self.process(id).peers[peer.0 as usize]
    }

    pub(crate) fn process_describe(&self, id: ProcessId, peer: PeerId) -> String {
        let Some((connection, side)) = self.process(id).peers.get(peer.0 as usize) else { return "nobody".into() };
        let other = &self.processes.connections[*connection as usize].ends[1 - *side as usize];
        let spec = &self.process(other.process).spec;
        match other.port {
            0 => format!("{}@{}", spec.function, spec.host),
            port => format!("{}@{}:{port}", spec.function, spec.host),
        }
    }

    /// Sends; false if the sender has to wait first.
    pub(crate) fn process_send(&mut self, id: ProcessId, peer: PeerId, letter: &Letter) -> Result<bool, ProcessError> {
        let (connection, side) = self.end_of(id, peer);
        let ends = &self.processes.connections[connection as usize].ends;
        let (ours, theirs) = (&ends[side as usize], &ends[1 - side as usize]);
        if !ours.open || !theirs.open {
            let why = if ours.open { "the other side has closed it" } else { "it was closed here" };
            return Err(ProcessError::Closed { peer: self.process_describe(id, peer), why: why.into() });
        }
        if ours.bytes > SEND_BYTES_MAX {
            return Ok(false);
        }
        let receiver = theirs.process;
        let end = &mut self.processes.connections[connection as usize].ends[side as usize];
        let name = LetterName { connection, end: side, number: end.first + end.sent.len() as u64 };
        end.sent.push_back((letter.clone(), false));
        end.bytes += letter.payload.len() as u64;
        self.watch.see(self.now, || Seen::Sent { name, from: id, to: receiver, letter });
        self.move_letter(name);
        self.trace.letter(self.now, id.0, &letter.kind, &letter.payload);
        self.processes.idle = Idle { since: self.now, limits: 0 };
        Ok(true)
    }

    /// A letter that was sent begins to move, or waits for its way.
    fn move_letter(&mut self, name: LetterName) {
        let (here, there) = self.way_of(name);
        if self.is_way_lost((here, there)) {
            return self.processes.stopped.push(name);
        }
        let path = self.paths.between(here, there).expect("there was a way when they connected");
        let end = &self.processes.connections[name.connection as usize].ends[name.end as usize];
        let letter = &end.sent[(name.number - end.first) as usize].0;
        let size_bytes = (letter.payload.len() + letter.kind.len()) as u64 + self.config.message_overhead_bytes;
        let kind = letter.kind.clone();
        self.synchronise();
        let transfer = Transfer::new(&path.links, path.latency_s, size_bytes as f64);
        let action = self.engine.start_transfer(&Transfer { way_back: &path.way_back, ..transfer });
        let transfer = self.begins(Moved::Letter { name, kind: &kind }, size_bytes, &path.links);
        self.purposes.insert(action, Purpose::Letter(LetterFlow { name, transfer }));
        self.processes.pending += 1;
    }

    /// Stops the letters on some ways; they begin anew when something passes there again.
    pub(crate) fn stop_letters(&mut self, is_on: impl Fn(Way, &Path) -> bool) {
        let mut stopped = Vec::new();
        for (action, purpose) in &self.purposes {
            if let Purpose::Letter(flow) = purpose {
                stopped.push((*action, *flow));
            }
        }
        for (action, LetterFlow { name, transfer }) in stopped {
            let way = self.way_of(name);
            let path = self.paths.between(way.0, way.1).expect("there was a way when they connected");
            if is_on(way, &path) {
                self.synchronise();
                self.engine.cancel(action);
                self.purposes.remove(&action);
                self.processes.pending -= 1;
                self.watch.see(self.now, || Seen::TransferEnds { transfer });
                self.processes.stopped.push(name);
            }
        }
    }

    /// Something passes again on some way: letters that wait for theirs look whether it is that.
    pub(crate) fn move_letters(&mut self) {
        for name in std::mem::take(&mut self.processes.stopped) {
            self.move_letter(name);
        }
    }

    fn way_of(&self, name: LetterName) -> Way {
        let ends = &self.processes.connections[name.connection as usize].ends;
        let host = |end: usize| self.process(ends[end].process).host;
        (host(name.end as usize), host(1 - name.end as usize))
    }

    /// A letter has arrived: it and those behind it that have are handed over.
    pub(crate) fn on_letter(&mut self, LetterFlow { name: flow, transfer }: LetterFlow) {
        self.watch.see(self.now, || Seen::TransferEnds { transfer });
        let ends = &mut self.processes.connections[flow.connection as usize].ends;
        let [first, second] = ends;
        let (from, to) = if flow.end == 0 { (first, second) } else { (second, first) };
        from.sent[(flow.number - from.first) as usize].1 = true;
        let mut letters = Vec::new();
        let mut name = LetterName { number: from.first, ..flow };
        while from.sent.front().is_some_and(|(_, arrived)| *arrived) {
            let (letter, _) = from.sent.pop_front().expect("seen a moment ago");
            from.first += 1;
            from.bytes -= letter.payload.len() as u64;
            letters.push(letter);
        }
        let (sender, sender_peer, receiver, peer, open) = (from.process, from.peer, to.process, to.peer, to.open);
        let is_last = from.sent.is_empty() && !from.open;
        if letters.is_empty() {
            return;
        }
        if open {
            for letter in &letters {
                self.watch.see(self.now, || Seen::Received { name, to: receiver, kind: &letter.kind });
                name.number += 1;
            }
            let incoming = letters.into_iter().map(|letter| Incoming::Letter { from: peer, letter });
            self.process_mut(receiver).inbox.extend(incoming);
            self.wake_if(receiver, |wait| matches!(wait, Wait::Incoming));
        }
        self.wake_if(sender, |wait| matches!(wait, Wait::Room { peer } if *peer == sender_peer));
        if is_last {
            self.tell_closed(flow.connection, 1 - flow.end);
        }
    }

    /// The end closes: the other hears of it behind the last letter, after the latency.
    pub(crate) fn process_close(&mut self, id: ProcessId, peer: PeerId) {
        let Some((connection, side)) = self.process(id).peers.get(peer.0 as usize).copied() else { return };
        let ends = &mut self.processes.connections[connection as usize].ends;
        if !std::mem::replace(&mut ends[side as usize].open, false) || !ends[1 - side as usize].open {
            return;
        }
        let is_empty = ends[side as usize].sent.is_empty();
        let other = ends[1 - side as usize].process;
        if is_empty {
            let (here, there) = (self.process(id).host, self.process(other).host);
            let latency_ns = self.paths.between(here, there).map_or(0, |path| path.frame_latency_ns);
            self.push_process(self.now + latency_ns, Occurrence::ProcessClosed { connection, end: 1 - side });
        }
    }

    pub(crate) fn process_is_closed(&self, id: ProcessId, peer: PeerId) -> bool {
        let process = self.process(id);
        let is_open = process.peers.get(peer.0 as usize).is_some_and(|(connection, side)| {
            self.processes.connections[*connection as usize].ends[*side as usize].open
        });
        !is_open && !process.inbox.iter().any(|incoming| incoming.peer() == peer)
    }

    /// Word comes to that end that the other is closed, if anything passes.
    pub(crate) fn on_process_closed(&mut self, connection: u32, end: u8) {
        let way = self.way_of(LetterName { connection, end: 1 - end, number: 0 });
        match self.is_way_lost(way) {
            true => self.hold_on(way, Occurrence::ProcessClosed { connection, end }),
            false => self.tell_closed(connection, end),
        }
    }

    /// That end hears that the other is closed.
    pub(crate) fn tell_closed(&mut self, connection: u32, end: u8) {
        let told = &self.processes.connections[connection as usize].ends[end as usize];
        if !told.open {
            return;
        }
        let (process, peer) = (told.process, told.peer);
        let why = format!("{} has closed it", self.process_describe(process, peer));
        self.processes.connections[connection as usize].ends[end as usize].open = false;
        self.process_mut(process).inbox.push_back(Incoming::Closed { peer, why });
        self.wake_if(process, |wait| matches!(wait, Wait::Incoming));
        self.wake_if(process, |wait| matches!(wait, Wait::Room { peer: waiting } if *waiting == peer));
    }

    // ---- computing

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
