//! The session: one client of a grid, real or simulated.
//!
//! This file has [`Grid`], the single wait of a session, and its end; [`open`] has the functions that open a session.
//! The session's knowledge comes from events of the client's machine. It is split into parts with separate state that
//! do not know each other. Each part is a file, with the session's functions on it.
//!
//! **Invariant:** an event is processed once, under the session's lock. [`State::take_in`] passes it to the parts that it
//! concerns, and neither waits nor sends.

mod addresses;
mod begun;
mod call_backs;
mod calls;
mod data;
mod directory;
mod explained;
mod groups;
mod interrupt;
mod links;
mod modules;
mod names;
mod open;
mod output;
mod rows;

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use gridloom_base::{DatumId, GroupId, Meta, NodeId, TaskError, TaskId};
use gridloom_core::call::Saying;
use gridloom_core::graph::Terms;
use gridloom_core::node::{Command, Event, LogLine, NameCommand};
use gridloom_net::worker::nested;

use crate::backend::{Backend, SimBackend};
use crate::group::Launches;
use crate::local::LocalProcesses;
use crate::object::ObjectCounts;
use crate::plan::Basis;
use crate::report::{GroupRecord, Report, timeline_html};
use crate::{Error, Group, Mapping, SimulationReport, Value, log};
use addresses::Addresses;
use begun::Begins;
pub use begun::{BegunGet, BegunPut, BegunWait};
use call_backs::CallBacks;
pub use call_backs::{Asking, Callee};
pub use calls::CallEnd;
use calls::{Calls, Ends, Whose};
use data::Fetches;
use directory::Directory;
pub use explained::SharedExplained;
pub use groups::Unread;
use groups::{Groups, Keeps};
pub use interrupt::Interrupt;
use links::Links;
pub use links::Traffic;
use names::Asks;
pub use names::{PutOptions, SharedData, SharedName};
use output::Outputs;

/// Time limit for the agent's first answer to a session.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// A session with a grid. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub struct Grid(Arc<Inner>);

struct Inner {
    /// Identifies the session within this process.
    number: u64,
    /// The process that opened the session. A copy in a forked child does nothing.
    pid: u32,
    client: NodeId,
    serial: AtomicU64,
    state: Mutex<State>,
    launches: Launches,
    objects: ObjectCounts,
    dropped: Mutex<Dropped>,
    /// Modules that it has initialized.
    modules: Mutex<BTreeSet<String>>,
    backend: Box<dyn Backend>,
    /// Receives the output of calls.
    listener: OnceLock<Listener>,
    /// The embedded local grid's processes, ended with the session.
    processes: Mutex<Option<LocalProcesses>>,
}

/// Output of a call of the session while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Spoken {
    /// The name of its server.
    pub server: String,
    pub function: String,
    /// Identifies the call within the session.
    pub call: u64,
    pub saying: Saying,
}

type Listener = Box<dyn Fn(&Spoken) + Send + Sync>;

/// Log lines and output received together with answers.
#[derive(Default)]
struct Heard {
    lines: Vec<LogLine>,
    spoken: Vec<Spoken>,
}

/// Items that the program has dropped. They are released with the next command, so that dropping never blocks.
#[derive(Default)]
struct Dropped {
    /// Data of dropped handles.
    data: Vec<DatumId>,
    /// Declared groups with plans for which no more calls are made.
    plans: Vec<GroupId>,
    /// Groups that the program can no longer query; forgotten when the next group runs.
    groups: Vec<GroupId>,
    /// Requests about names.
    asks: Vec<u64>,
}

impl Grid {
    fn new(inner: Inner) -> Grid {
        Grid(Arc::new(inner))
    }

    /// Creates a group that records its calls, then maps them together. `mapping` is the name of a heuristic (`"auto"`
    /// is a good default), a plan from [`Group::plan`] or [`PlanRecord::load`], or a custom heuristic
    /// ([`Mapping::own`]).
    pub fn group(&self, mapping: impl Into<Mapping>) -> Group {
        Group::new(self.clone(), mapping.into())
    }

    /// The session's clock, seconds: since 1970 for real, virtual in simulation.
    pub fn now(&self) -> f64 {
        self.0.backend.now().seconds()
    }

    /// Process ids of the embedded local grid's servers, in order of their names; empty for other grids.
    pub fn server_processes(&self) -> Vec<u32> {
        self.0.processes.lock().expect("no panic while held").as_ref().map_or(Vec::new(), |p| p.server_processes())
    }

    /// Returns the report of a simulation; `None` for a real grid.
    pub fn simulation(&self) -> Option<SimulationReport> {
        self.absorb();
        self.0.simulation()
    }

    /// True if the content of values matters: false in simulations that run no bodies.
    pub(crate) fn has_content(&self) -> bool {
        self.0.backend.has_content()
    }

    /// Advances virtual time at the client by `seconds`, as if it computed. Does nothing on a real grid.
    pub fn advance(&self, seconds: f64) {
        self.0.backend.advance(gridloom_base::time::seconds_to_ns(seconds));
    }

    /// Advances virtual time at the client by the time of `work_flops` operations on its host. Does nothing on a real grid.
    pub fn compute(&self, work_flops: f64) {
        if let Some(flops) = self.0.backend.client_flops() {
            self.advance(work_flops / flops);
        }
    }

    pub fn is_simulated(&self) -> bool {
        self.0.backend.simulated().is_some()
    }

    /// Allocates a value in memory that servers on this machine can map. Fill it, then pass it as an argument without a copy.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub fn allocate(&self, size_bytes: u64) -> Result<gridloom_net::segment::SegmentMut, Error> {
        self.0
            .backend
            .allocate(size_bytes)
            .map_err(|e| Error::Usage(format!("cannot allocate {size_bytes} bytes: {e}")))
    }

    /// The numbers of groups, of their tasks and of their data that the session remembers: those that a group or a
    /// handle can still query, and those that have not ended.
    pub fn remembered(&self) -> (usize, usize, usize) {
        self.absorb();
        self.state().groups.counts()
    }

    /// Takes the unread errors of calls in groups: of groups that the program can no longer query, and with `all`
    /// of the other groups too. An error is read by [`Handle::get`](crate::Handle::get), [`Group::wait`] or [`Group::report`] of
    /// its group. Errors still unread when the session ends are written to standard error.
    pub fn take_unread(&self, all: bool) -> Unread {
        self.absorb();
        self.without_dropped_groups().groups.take_unread(all)
    }

    // ---- used by functions, groups and handles

    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    pub(crate) fn client(&self) -> NodeId {
        self.0.client
    }

    pub(crate) fn next_serial(&self) -> u64 {
        self.0.serial.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn new_datum(&self) -> DatumId {
        DatumId { client: self.0.client, serial: self.next_serial() }
    }

    pub(crate) fn put(&self, datum: DatumId, value: &Value) {
        self.0.backend.put(datum, value);
    }

    pub(crate) fn forget_values(&self, data: Vec<DatumId>) {
        data.into_iter().for_each(|datum| self.0.backend.forget(datum));
    }

    pub(crate) fn objects(&self) -> &ObjectCounts {
        &self.0.objects
    }

    pub(crate) fn command(&self, command: Command) {
        self.commands(vec![command]);
    }

    /// Sends commands to the client's machine, after the commands for dropped items.
    fn commands(&self, commands: Vec<Command>) {
        let (data, plans, asks) = {
            let mut dropped = self.dropped();
            let Dropped { data, plans, asks, .. } = &mut *dropped;
            (std::mem::take(data), std::mem::take(plans), std::mem::take(asks))
        };
        let mut all: Vec<Command> = plans.into_iter().map(|group| Command::EndPlan { group }).collect();
        if !data.is_empty() {
            all.push(Command::Release { data });
        }
        all.extend(asks.into_iter().map(|ask| Command::Name { ask, command: NameCommand::Forget }));
        all.extend(commands);
        self.0.backend.commands(all);
    }

    /// Notifies the grid immediately of the data that the program has dropped. Otherwise this happens with the next
    /// call or request. Useful for a program that makes none for a long time.
    pub fn release_dropped(&self) {
        let has_dropped = {
            let dropped = self.dropped();
            !dropped.data.is_empty() || !dropped.asks.is_empty()
        };
        if has_dropped {
            self.commands(Vec::new());
        }
    }

    fn dropped(&self) -> MutexGuard<'_, Dropped> {
        self.0.dropped.lock().expect("no panic while held")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic while held")
    }

    /// Locks the state, after forgetting groups that the program can no longer query.
    fn without_dropped_groups(&self) -> MutexGuard<'_, State> {
        let groups = std::mem::take(&mut self.dropped().groups);
        let mut state = self.state();
        groups.into_iter().for_each(|group| state.groups.forget(group));
        state
    }

    /// Processes events, under the backend's lock. Log lines and output are collected in `heard`, to be passed on
    /// after the lock is released.
    fn take_in(&self, events: &mut VecDeque<Event>, heard: &mut Heard) -> MutexGuard<'_, State> {
        let mut state = self.state();
        for event in events.drain(..) {
            match event {
                Event::Log(line) => heard.lines.push(line),
                Event::Said { server, function, said } => {
                    heard.spoken.push(Spoken { server, function, call: said.task.serial, saying: said.saying });
                }
                Event::Named { ask, answer } if state.begins.has(ask) => {
                    let (has_ended, unread) = state.begins.on_answer(ask, answer);
                    if has_ended {
                        state.ends.on_end(TaskId { client: self.0.client, serial: ask });
                    }
                    unread.into_iter().for_each(|datum| self.release_later(datum));
                }
                Event::Named { ask, answer } => {
                    state.asks.on_answer(ask, answer).into_iter().for_each(|datum| self.release_later(datum));
                }
                event => {
                    state.take_in(event, self.0.client).into_iter().for_each(|datum| self.0.backend.forget(datum));
                }
            }
        }
        state
    }

    /// Processes pending events, without waiting.
    fn absorb(&self) {
        let mut heard = Heard::default();
        // Only waits report that the session is closed.
        let _ = self.0.backend.wait_until(Some(Duration::ZERO), &mut |events| {
            drop(self.take_in(events, &mut heard));
            false
        });
        self.hand_on(heard);
    }

    fn hand_on(&self, heard: Heard) {
        log::hand_on(heard.lines);
        if let Some(listener) = self.0.listener.get() {
            heard.spoken.iter().for_each(listener);
        }
    }

    /// Sets a listener for the output of running calls of the session: text that Python functions print, and their progress.
    /// The thread that waits for results calls it; without a listener, servers keep the output in their logs.
    /// The first listener of a session stays; simulations have none.
    pub fn listen(&self, listener: impl Fn(&Spoken) + Send + Sync + 'static) {
        if !self.is_simulated() {
            let _ = self.0.listener.set(Box::new(listener));
        }
    }

    /// The default options of its calls.
    pub(crate) fn terms(&self) -> Terms {
        Terms { depth: nested::depth(), tells: self.0.listener.get().is_some(), ..Terms::default() }
    }

    /// Waits until `done` finds its result in the state: the single wait of a session, real or simulated. In a simulation it
    /// also runs the program's callbacks, since virtual time stands still while the program does not wait.
    fn wait<R>(&self, limit: Option<Duration>, done: impl FnMut(&mut State) -> Option<R>) -> Result<R, Error> {
        // A function that makes calls itself releases its slot while it waits for them.
        self.wait_by(limit, nested::wait, done)
    }

    /// Like [`Grid::wait`]. Calls `begins` if the wait does not end at once, and drops its result when the wait ends.
    fn wait_by<R, W>(
        &self,
        limit: Option<Duration>,
        begins: impl Fn() -> Option<W>,
        mut done: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Error> {
        let runs_call_backs = self.is_simulated();
        let mut waiting = None;
        loop {
            let (mut found, mut heard) = (None, Heard::default());
            let waited = self.0.backend.wait_until(limit, &mut |events| {
                let mut state = self.take_in(events, &mut heard);
                let call = if runs_call_backs { state.call_backs.take() } else { None };
                found = call.map_or_else(|| done(&mut state).map(Ok), |call| Some(Err(call)));
                if found.is_none() && waiting.is_none() {
                    waiting = begins();
                }
                found.is_some()
            });
            self.hand_on(heard);
            waited?;
            match found.expect("a wait without an error ends when something is found") {
                Ok(found) => return Ok(found),
                Err((server, call, callee)) => self.run_call_back(server, call, &callee),
            }
        }
    }
}

/// The state of a session.
#[derive(Default)]
struct State {
    directory: Directory,
    addresses: Addresses,
    calls: Calls,
    ends: Ends,
    fetches: Fetches,
    asks: Asks,
    begins: Begins,
    groups: Groups,
    links: Links,
    outputs: Outputs,
    call_backs: CallBacks,
    /// Running calls that wait for results of other calls.
    paused: BTreeSet<TaskId>,
}

impl State {
    fn new(keeps: Keeps) -> State {
        State { groups: Groups::new(keeps), ..State::default() }
    }

    /// Processes an event of the client. Returns data in the client's store that nothing needs any more.
    fn take_in(&mut self, event: Event, client: NodeId) -> Vec<DatumId> {
        match event {
            Event::Directory { grid, functions } => self.directory.on_directory(grid, functions, client),
            Event::AgentLost { address, why } => self.directory.on_agent_lost(TaskError::AgentLost { address, why }),
            Event::ModelsKnown { server } => self.directory.on_models(server),
            Event::Status { server, status } => self.directory.on_status(server, status),
            Event::Output { server, output } => self.outputs.on_answer(server, output),
            Event::Reached { address, server } => self.addresses.on_answer(address, Ok(server)),
            Event::NotReached { address, why } => self.addresses.on_answer(address, Err(why)),
            Event::Links { links } => self.links.on_answer(links),
            // Only servers receive this event.
            Event::Learned { .. } => {}
            Event::GroupPlanned { at, group, plan, tasks, data, names, map_ns, seen } => {
                let servers = self.directory.names();
                let record = |record: &mut GroupRecord| {
                    let mut plan = record.planned(at, &plan, &tasks, (&data, &names), map_ns, servers);
                    plan.basis = seen.map(|seen| Arc::new(Basis::new(seen, &tasks, &data)));
                    plan
                };
                self.groups.on_planned(group, record);
            }
            Event::PlanStale { group, .. } => self.groups.on_stale(group),
            Event::GroupNotMapped { group, error } => {
                self.groups.on_not_mapped(group, self.directory.with_lost_servers(error));
            }
            Event::GroupEnded { at, group } => self.groups.on_ended(group, at),
            Event::ServerLost { name, why, again, .. } => self.groups.on_server_lost(&name, &why, &again),
            Event::CallsBack { server, call } => self.call_backs.on_call(server, call),
            Event::Paused { task, waits: true } => _ = self.paused.insert(task),
            Event::Paused { task, waits: false } => _ = self.paused.remove(&task),
            Event::TaskEnded { at, server, mut report } => {
                report.outcome = report.outcome.map_err(|error| self.directory.with_lost_servers(error));
                self.call_backs.on_end(report.task);
                self.paused.remove(&report.task);
                self.ends.on_end(report.task);
                match self.calls.on_end(at, server, report) {
                    Whose::Call => {}
                    Whose::Abandoned(outputs) => return outputs,
                    Whose::Group(report) => self.groups.on_task_ended(at, server, report),
                }
            }
            Event::Transferred { at, report } => {
                self.links.on_transfer(&report, client, self.directory.names());
                self.groups.on_transferred(at, report);
            }
            Event::DatumHere { datum, meta } => self.on_datum(client, datum, Ok(meta)),
            Event::DatumLost { datum, error } => {
                self.on_datum(client, datum, Err(self.directory.with_lost_servers(error)));
            }
            // The session handles these itself.
            Event::Named { .. } | Event::Log(_) | Event::Said { .. } => {}
        }
        Vec::new()
    }

    fn on_datum(&mut self, client: NodeId, datum: DatumId, arrival: Result<Meta, TaskError>) {
        for serial in self.begins.on_datum(datum, &arrival) {
            self.ends.on_end(TaskId { client, serial });
        }
        self.fetches.on_answer(datum, arrival);
    }

    /// Asserts the invariants of each part.
    fn check(&self) {
        self.directory.check();
        self.calls.check();
        self.ends.check();
        self.begins.check();
        self.fetches.check();
        self.groups.check();
        self.call_backs.check();
    }
}

impl Inner {
    fn simulation(&self) -> Option<SimulationReport> {
        let mut report = self.backend.simulated()?.report();
        let state = self.state.lock().expect("no panic while held");
        report.groups = state.groups.summaries().into_values().collect();
        Some(report)
    }

    /// Writes the results of a simulation: its report and its timeline, or both to the run of processes that it is part of.
    fn end_simulation(&self, simulated: &SimBackend) {
        let failure = simulated.finish();
        if let Some(why) = &failure {
            // Logged, for the reason given at `write`.
            log::error(why);
        }
        if let (Some(path), Some(mut report)) = (simulated.report_path(), self.simulation()) {
            report.failure = failure;
            write(path, "report", &serde_json::to_string(&report).expect("a report of names and numbers"));
        }
        let mut state = self.state.lock().expect("no panic while held");
        if let Some(shared) = simulated.shared() {
            shared.closed(state.groups.summaries(), state.groups.take_records(), state.directory.take_slots());
        } else if let Some(path) = simulated.timeline_path() {
            let (records, clients) = (state.groups.records().values(), [self.client]);
            let report = Report::new("the program's heuristics", records, &state.directory.setting(&clients, true));
            write(path, "timeline", &timeline_html("Simulated groups", &report));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            std::mem::forget(self.processes.get_mut().ok().and_then(Option::take));
            return;
        }
        let state = self.state.get_mut().expect("no panic while held");
        if cfg!(debug_assertions) && !std::thread::panicking() {
            state.check();
        }
        let unread = state.groups.take_unread(true);
        if let Some(simulated) = self.backend.simulated() {
            self.end_simulation(simulated);
        }
        if unread.count > 0 {
            log::warn(&unread.to_string());
        }
        self.backend.close();
        if let Some(processes) = self.processes.get_mut().expect("no panic while held").take() {
            processes.stop();
        }
    }
}

/// Writes a file at the end of a session. The program can no longer receive errors, so they are logged.
fn write(path: &Path, what: &str, text: &str) {
    if let Err(error) = std::fs::write(path, text) {
        log::error(&format!("cannot write the simulation's {what} to {}: {error}", path.display()));
    }
}

impl std::fmt::Debug for Grid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grid(client {})", self.0.client)
    }
}
