//! A session: one client of a grid, real or simulated. The types of a program (functions, groups, handles, objects, shared
//! data) are above it, and a [`Grid`](crate::Grid) is a handle for it.
//!
//! | file | content |
//! |---|---|
//! | here | the session: its ids, its commands, the single wait, its end |
//! | [`state`] | its state, which routes events to the parts |
//! | [`parts`] | the parts, each with a state of its own |
//! | [`open`] | opens a session |
//! | [`requests`] | what operators ask the grid: models, statuses, links, output |
//! | [`call_backs`] | runs callbacks |
//! | [`interrupt`] | waits that another thread interrupts |

mod call_backs;
mod interrupt;
mod open;
mod parts;
mod requests;
mod state;

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gridloom_base::{DatumId, GroupId, Meta, NodeId, Priority, name_for};
use gridloom_core::graph::CallOptions;
use gridloom_core::node::{Command, Event};
use gridloom_idl::Signature;
use gridloom_net::descriptors::describe;
use gridloom_net::segment::SegmentMut;
use gridloom_net::transfers::TransferProgress;
use gridloom_net::worker::nested;
use gridloom_perf::GridView;

use crate::backend::{Backend, SimBackend, simulated_host_of};
use crate::local::LocalProcesses;
use crate::report::{Report, timeline_html};
use crate::simulate::SimulationReport;
use crate::{Error, Value, log};
pub(crate) use call_backs::{answer, end_call_backs, expect_asking, expect_call_backs};
pub use interrupt::Interrupt;
pub(crate) use open::{connect, connect_servers, local, simulate};
pub use parts::{CallbackHandler, EndTaskAnswers, GangCallback, Traffic, UnreadErrors};
use parts::{Dropped, Next};
pub(crate) use parts::{LaunchGroups, Launches, ObjectCounts};
pub use requests::UsageReport;
pub(crate) use requests::{await_models, end_tasks, links, statuses, take_output, usage, waits};
use state::Effects;
pub(crate) use state::State;
pub use state::{CallEnd, CallOutput};

/// Time limit for the agent's first answer to a session.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(15);

/// A session with a grid. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub(crate) struct Session(Arc<Inner>);

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
    dropped: Dropped,
    /// Modules that it has initialized.
    modules: Mutex<BTreeSet<String>>,
    backend: Arc<dyn Backend>,
    /// The priority of its calls, if the program has set one.
    priority: OptionalPriority,
    /// Receives the output of calls.
    listener: OnceLock<Listener>,
    /// The embedded local grid's processes, ended with the session.
    processes: Mutex<Option<LocalProcesses>>,
}

/// A priority that may be set at any time, or none.
#[derive(Debug)]
struct OptionalPriority(AtomicI64);

impl OptionalPriority {
    const NONE: i64 = i64::MAX;

    fn set(&self, priority: Option<Priority>) {
        self.0.store(priority.map_or(Self::NONE, |Priority(number)| number.into()), Ordering::Relaxed);
    }

    fn get(&self) -> Option<Priority> {
        i32::try_from(self.0.load(Ordering::Relaxed)).ok().map(Priority)
    }
}

impl Default for OptionalPriority {
    fn default() -> Self {
        OptionalPriority(AtomicI64::new(Self::NONE))
    }
}

type Listener = Box<dyn Fn(&CallOutput) + Send + Sync>;

impl Session {
    /// Identifies the session within this process.
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

    pub(crate) fn new_group(&self) -> GroupId {
        GroupId { client: self.0.client, serial: self.next_serial() }
    }

    /// The session's clock, seconds: since 1970 for real, virtual in simulation.
    pub(crate) fn now(&self) -> f64 {
        self.0.backend.now().seconds()
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.0.backend.is_simulated()
    }

    /// In a simulation: the server that runs the function that opened the session.
    pub(crate) fn own_server(&self) -> Option<NodeId> {
        self.0.backend.own_server()
    }

    /// True if the content of values matters: false in simulations that run no bodies.
    pub(crate) fn has_content(&self) -> bool {
        self.0.backend.has_content()
    }

    /// In a simulation: the host of the program, or of the server that runs the function.
    pub(crate) fn simulated_host(&self) -> Option<String> {
        if let Some(program) = self.0.backend.simulated() {
            return Some(program.host());
        }
        let server = self.own_server()?;
        let view = self.servers();
        view.server(server).map(|at| simulated_host_of(&view.servers[at].address).to_string())
    }

    /// Advances virtual time at the client, as if it computed. Does nothing on a real grid.
    pub(crate) fn advance(&self, seconds: f64, accessed_bytes: u64) {
        self.0.backend.advance(gridloom_base::time::seconds_to_ns(seconds), accessed_bytes);
    }

    /// The memory that the program can use, if it is known.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.0.backend.memory_bytes()
    }

    /// Sets the bytes that the program holds itself. Does nothing on a real grid.
    pub(crate) fn hold_memory(&self, size_bytes: u64) {
        self.0.backend.hold_memory(size_bytes);
    }

    /// The user of the call for which this session acts, if it is that of a function.
    pub(crate) fn caller(&self) -> Option<Box<str>> {
        self.0.backend.caller()
    }

    /// Speed of the client's host, operations per second; `None` on a real grid.
    pub(crate) fn client_flops(&self) -> Option<f64> {
        self.0.backend.client_flops()
    }

    /// Process ids of the embedded local grid's servers, in order of their names; empty for other grids.
    pub(crate) fn server_processes(&self) -> Vec<u32> {
        self.0.processes.lock().expect("no panic while held").as_ref().map_or(Vec::new(), |p| p.server_processes())
    }

    /// The known servers.
    pub(crate) fn servers(&self) -> Arc<GridView> {
        self.process_events();
        self.state().directory.servers().clone()
    }

    /// Signatures of all offered functions, ordered by name.
    pub(crate) fn functions(&self) -> Arc<Vec<Signature>> {
        self.process_events();
        self.state().directory.functions().clone()
    }

    // ---- its parts

    /// Locks the state.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic while held")
    }

    /// Locks the state, after processing pending events.
    pub(crate) fn state_now(&self) -> MutexGuard<'_, State> {
        self.process_events();
        self.state()
    }

    /// Locks the state, after forgetting groups that the program can no longer query.
    pub(crate) fn without_dropped_groups(&self) -> MutexGuard<'_, State> {
        let groups = self.0.dropped.take_groups();
        let mut state = self.state();
        groups.into_iter().for_each(|group| state.groups.forget(group));
        state
    }

    pub(crate) fn launches(&self) -> &Launches {
        &self.0.launches
    }

    pub(crate) fn objects(&self) -> &ObjectCounts {
        &self.0.objects
    }

    /// Locks the names of the modules that the session has initialized.
    pub(crate) fn modules(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- the client's store

    /// Allocates memory for a value, which servers on this machine can map.
    pub(crate) fn allocate(&self, size_bytes: u64) -> Result<SegmentMut, Error> {
        self.0.backend.allocate(size_bytes).map_err(|error| Error::NoMemory { size_bytes, why: describe(&error) })
    }

    pub(crate) fn put(&self, datum: DatumId, value: &Value) {
        self.0.backend.put(datum, value);
    }

    /// Returns a value in the client's store, without removing it.
    pub(crate) fn value(&self, datum: DatumId) -> Option<Value> {
        self.0.backend.value(datum)
    }

    /// Returns a value that has arrived; a placeholder where values have no content.
    pub(crate) fn value_here(&self, datum: DatumId, meta: Meta) -> Value {
        self.value(datum).unwrap_or_else(|| Value::placeholder(meta))
    }

    pub(crate) fn forget_values(&self, data: Vec<DatumId>) {
        data.into_iter().for_each(|datum| self.0.backend.remove(datum));
    }

    /// Large values in transfer to or from this session: arguments and results.
    pub(crate) fn moving(&self) -> Vec<TransferProgress> {
        self.0.backend.transfers()
    }

    // ---- commands

    pub(crate) fn command(&self, command: Command) {
        self.commands(vec![command]);
    }

    /// Sends commands to the client's machine, after the commands for dropped items.
    pub(crate) fn commands(&self, commands: Vec<Command>) {
        let mut all = self.0.dropped.take_commands();
        all.extend(commands);
        self.0.backend.commands(all);
    }

    /// Notifies the grid immediately of the data that the program has dropped.
    pub(crate) fn release_dropped(&self) {
        if self.0.dropped.has_any() {
            self.commands(Vec::new());
        }
    }

    /// Releases a datum with the next command.
    pub(crate) fn release_later(&self, datum: DatumId) {
        self.0.dropped.add_datum(datum);
    }

    /// Drops a request about a name that nobody waits for any more, with the next command.
    pub(crate) fn forget_later(&self, request: u64) {
        self.0.dropped.add_request(request);
    }

    /// Forgets a group that the program can no longer query, when the next group runs.
    pub(crate) fn forget_group_later(&self, group: GroupId) {
        self.0.dropped.add_group(group);
    }

    /// Ends the plan of that group with the next command: no more calls follow it, or read those values.
    pub(crate) fn end_plan_later(&self, group: GroupId, values: Vec<DatumId>) {
        self.0.dropped.add_plan(group, values);
    }

    /// Like [`Session::end_plan_later`], but now.
    pub(crate) fn end_plan(&self, group: GroupId, values: Vec<DatumId>) {
        self.end_plan_later(group, values);
        self.commands(Vec::new());
    }

    /// The default options of its calls.
    pub(crate) fn call_options(&self) -> CallOptions {
        CallOptions {
            depth: nested::depth(),
            program: nested::program(),
            user: self.caller(),
            wants_output: self.0.listener.get().is_some(),
            priority: self.0.priority.get().unwrap_or_else(nested::priority),
            ..CallOptions::default()
        }
    }

    /// Sets the priority of the calls that it makes from now on; `None` for that of the call that this process runs.
    pub(crate) fn set_priority(&self, priority: Option<Priority>) {
        self.0.priority.set(priority);
    }

    /// Returns the priority of its calls, if it is set.
    pub(crate) fn priority(&self) -> Option<Priority> {
        self.0.priority.get()
    }

    /// Shortens the names in errors that a function gets: those of the user for whom it acts.
    fn with_short_names(&self, event: Event) -> Event {
        match event {
            Event::NameResult { request, answer: Err(error) } => {
                let shorten = |user: &str| error.map_names(|name| name_for(user, name).to_string());
                Event::NameResult { request, answer: Err(shorten(&self.caller().unwrap_or_default())) }
            }
            event => event,
        }
    }

    /// Sets a listener for the output of running calls; the first one stays. Simulations have none.
    pub(crate) fn listen(&self, listener: impl Fn(&CallOutput) + Send + Sync + 'static) {
        if !self.is_simulated() {
            let _ = self.0.listener.set(Box::new(listener));
        }
    }

    // ---- events and waits

    /// Processes events, under the backend's lock. `effects` collects log lines and output, to be passed on after the
    /// lock is released.
    fn take_in(&self, events: &mut VecDeque<Event>, effects: &mut Effects) -> MutexGuard<'_, State> {
        let mut state = self.state();
        for event in events.drain(..) {
            state.take_in(self.with_short_names(event), self.0.client, effects);
        }
        self.forget_values(std::mem::take(&mut effects.forgotten));
        effects.released.drain(..).for_each(|datum| self.release_later(datum));
        state
    }

    /// Processes pending events, without waiting.
    pub(crate) fn process_events(&self) {
        let mut effects = Effects::default();
        // Only waits report that the session is closed.
        let _ = self.0.backend.wait_until(Some(Duration::ZERO), &mut |events| {
            drop(self.take_in(events, &mut effects));
            false
        });
        self.hand_on(effects);
    }

    fn hand_on(&self, effects: Effects) {
        log::hand_on(effects.lines);
        if let Some(listener) = self.0.listener.get() {
            effects.outputs.iter().for_each(listener);
        }
    }

    /// Waits until `done` finds its result in the state: the single wait of a session, real or simulated. In a simulation it
    /// also runs the program's callbacks, since virtual time stands still while the program does not wait.
    pub(crate) fn wait<R>(
        &self,
        limit: Option<Duration>,
        done: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Error> {
        // A function that makes calls itself releases its slot while it waits for them.
        self.wait_with(limit, nested::wait, done)
    }

    /// Like [`Session::wait`], but ends if an [`Interrupt`] of this thread is set.
    pub(crate) fn wait_unless_interrupted<R>(
        &self,
        limit: Option<Duration>,
        mut done: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Error> {
        let Some(interrupt) = Interrupt::current() else { return self.wait(limit, done) };
        interrupt.begin_wait(&self.0.backend);
        self.wait(limit, |state| match done(state) {
            Some(found) => Some(Ok(found)),
            None => interrupt.is_set().then_some(Err(Error::Interrupted)),
        })?
    }

    /// Like [`Session::wait`]. Calls `on_wait` if the wait does not end at once, and drops its result when the wait ends.
    pub(crate) fn wait_with<R, W>(
        &self,
        limit: Option<Duration>,
        on_wait: impl Fn() -> Option<W>,
        mut done: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Error> {
        let runs_call_backs = self.is_simulated();
        let mut waiting = None;
        loop {
            let (mut found, mut effects) = (None, Effects::default());
            let waited = self.0.backend.wait_until(limit, &mut |events| {
                let mut state = self.take_in(events, &mut effects);
                let call = if runs_call_backs { state.call_backs.take() } else { None };
                found = call.map_or_else(|| done(&mut state).map(Ok), |call| Some(Err(call)));
                if found.is_none() && waiting.is_none() {
                    waiting = on_wait();
                }
                found.is_some()
            });
            self.hand_on(effects);
            waited?;
            match found.expect("a wait without an error ends when something is found") {
                Ok(found) => return Ok(found),
                Err((server, call, callee)) => call_backs::run(self, server, call, &callee),
            }
        }
    }

    /// Returns the report of a simulation; `None` for a real grid.
    pub(crate) fn simulation(&self) -> Option<SimulationReport> {
        self.process_events();
        self.0.simulation()
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
            let report =
                Report::new("the program's heuristics", records, &state.directory.report_context(&clients, true));
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

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session(client {})", self.0.client)
    }
}
