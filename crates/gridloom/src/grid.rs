//! The grid as a program sees it: a handle for a session, from which functions, groups, objects and shared data are made.
//!
//! **Invariant:** it has no state. Everything is in the session, or in what is made here.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gridloom_base::{NodeId, Priority, TaskId};
use gridloom_core::node::Command;
use gridloom_core::node::message::{OutputPage, OutputQuery, ProgramWaits, ServerStatus};
use gridloom_idl::Signature;
use gridloom_net::segment::SegmentMut;
use gridloom_net::transfers::TransferProgress;
use gridloom_net::worker::initial::InitialArguments;
use gridloom_perf::{GridView, LinkReport, ServerView};

use crate::calibrate::{CalibrateConfig, Calibrated, CallObserver, Make, calibrate};
use crate::call::{Arg, Function, Handle, admit_argument, file_argument};
use crate::declared::Graph;
use crate::group::{GraphOptions, Group, Loop, declared, plan_of};
use crate::launch::{Mapping, Regroup};
use crate::local::LocalConfig;
use crate::object::{Object, class_named};
use crate::plan::PlanRecord;
use crate::session::{
    self, CONNECT_LIMIT, CallOutput, EndTaskAnswers, GangCallback, Session, Traffic, UnreadErrors, UsageReport,
};
use crate::shared_data::SharedData;
use crate::simulate::{SimulateConfig, SimulationReport};
use crate::{Error, Value, modules};

/// A session with a grid. Clones share it; dropping the last one closes it.
#[derive(Clone)]
pub struct Grid(Session);

/// Opens sessions.
impl Grid {
    /// Connects to the agent at `address` (`host:port`). Several addresses, separated by `+`, are tried in order: those of the
    /// agent in several networks, or those of the agent and its standby.
    ///
    /// # Errors
    /// If it cannot be reached, refuses, or does not answer.
    pub fn connect(address: &str) -> Result<Grid, Error> {
        Grid::connect_within(address, CONNECT_LIMIT)
    }

    /// Like [`Grid::connect`], with a time limit other than 15 s.
    ///
    /// # Errors
    /// As [`Grid::connect`].
    pub fn connect_within(address: &str, limit: Duration) -> Result<Grid, Error> {
        session::connect(address, limit).map(Grid)
    }

    /// Connects to those servers (`host:port`) without an agent: the session maps calls itself, from the servers' reports.
    /// Two such sessions do not know each other's reservations.
    ///
    /// Servers that answer are used; [`Grid::unreachable`] lists the others, which are dialled again while the
    /// session lasts.
    ///
    /// # Errors
    /// If an address is invalid; if none of them can be used, with the reason for each.
    pub fn connect_servers(servers: &[String]) -> Result<Grid, Error> {
        Grid::connect_servers_within(servers, CONNECT_LIMIT)
    }

    /// Like [`Grid::connect_servers`], with a time limit other than 15 s.
    ///
    /// # Errors
    /// As [`Grid::connect_servers`].
    pub fn connect_servers_within(servers: &[String], limit: Duration) -> Result<Grid, Error> {
        session::connect_servers(servers, limit).map(Grid)
    }

    /// Starts an embedded grid on this machine (one agent, some servers, separate processes on loopback) and connects
    /// to it. It ends with the session, in all circumstances.
    ///
    /// # Errors
    /// If a process cannot be started, or a function cannot be offered.
    pub fn local(config: LocalConfig) -> Result<Grid, Error> {
        session::local(config).map(Grid)
    }

    /// Opens a simulated grid on a platform, in virtual time.
    ///
    /// # Errors
    /// If the platform or the functions cannot be used.
    pub fn simulate(config: SimulateConfig) -> Result<Grid, Error> {
        session::simulate(config).map(Grid)
    }
}

/// Functions, groups, objects, values.
impl Grid {
    /// Returns a function by name (`module/function`, or `function` alone if only one module has it).
    ///
    /// # Errors
    /// If no server offers it; the message lists similar names.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        Function::named(&self.0, name)
    }

    /// Signatures of all offered functions, ordered by name.
    pub fn functions(&self) -> Arc<Vec<Signature>> {
        self.0.functions()
    }

    /// Sets the priority of the calls that this session makes from now on, except those of functions and groups with a priority of their own:
    /// see [`Function::with_priority`]. `None`, the default, is that of the call that this process runs, or 0 in a program.
    pub fn set_priority(&self, priority: Option<Priority>) {
        self.0.set_priority(priority);
    }

    /// Returns the priority that [`Grid::set_priority`] has set.
    pub fn priority(&self) -> Option<Priority> {
        self.0.priority()
    }

    /// Creates a group that records its calls, then maps them together. `mapping` is the name of a heuristic (`"auto"`
    /// is a good default), a plan from [`Group::plan`] or [`PlanRecord::load`], or a custom heuristic
    /// ([`Mapping::custom`]).
    pub fn group(&self, mapping: impl Into<Mapping>) -> Group {
        Group::new(&self.0, mapping.into())
    }

    /// Returns the agent's plan for a declared graph; nothing is run.
    ///
    /// # Errors
    /// If a function is not offered, a call does not fit its function, or the graph cannot be mapped.
    pub fn plan_of(&self, graph: &Graph, mapping: impl Into<Mapping>) -> Result<PlanRecord, Error> {
        plan_of(&self.0, graph, &mapping.into())
    }

    /// Creates a group with declared calls and maps it now. Each call runs as soon as it is made, at the planned place
    /// of the first matching declared call that was not made yet. So the program can look at results before the next
    /// call. After [`Group::finish`] no more calls are made.
    ///
    /// # Errors
    /// As for [`Grid::plan_of`]; also if the graph does not have a given input, or declares another size for it.
    pub fn group_of(&self, graph: &Graph, mapping: impl Into<Mapping>, options: GraphOptions) -> Result<Group, Error> {
        declared(&self.0, graph, mapping.into(), options)
    }

    /// Creates a loop with groups as its bodies; several of them are mapped together.
    ///
    /// # Errors
    /// If `mapping` is a plan, which belongs to a single group, or the number of bodies is out of range.
    pub fn regrouped(&self, mapping: impl Into<Mapping>, regroup: Regroup) -> Result<Loop, Error> {
        Loop::new(&self.0, mapping.into(), regroup)
    }

    /// Creates an object of the class (`module/class`, or `class` if no other module has it) on the chosen server.
    /// Without a choice it takes the server that has the fewest objects of this session relative to its slots and
    /// speed. Waits until `_initialize` has run, for which `limit` is the time limit.
    ///
    /// # Errors
    /// [`Error::UnknownClass`] if no server offers the class, or the chosen one does not; otherwise the error of `_initialize`.
    pub fn object(&self, class: &str, chosen: Option<NodeId>, limit: Option<Duration>) -> Result<Object, Error> {
        Object::create(&self.0, class, chosen, limit)
    }

    /// Returns the full name of a class that servers offer.
    ///
    /// # Errors
    /// [`Error::UnknownClass`] if no server offers it; the message lists similar names.
    pub fn class(&self, name: &str) -> Result<String, Error> {
        class_named(&self.0, name)
    }

    /// Returns the shared data: named data that every program of the user can find. They are stored on servers until
    /// they are deleted, independent of the program that put them. They are immutable: putting a name again makes a new
    /// version, and programs that read the old one keep it.
    pub fn shared(&self) -> SharedData<'_> {
        SharedData::new(&self.0)
    }

    /// Makes a value of the program a datum at the client, usable by any number of calls like a result, until the
    /// handle is dropped.
    pub fn hold(&self, value: &Value) -> Handle {
        Handle::put(&self.0, value)
    }

    /// Allocates a value in memory that servers on this machine can map. Fill it, then pass it as an argument without a copy.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    pub fn allocate(&self, size_bytes: u64) -> Result<SegmentMut, Error> {
        self.0.allocate(size_bytes)
    }

    /// Reads a file as the value of a function's argument.
    ///
    /// # Errors
    /// If the file cannot be read, or is too large to be sent.
    pub fn file_argument(&self, function: &str, argument: &str, path: &Path) -> Result<Value, Error> {
        file_argument(&self.0, function, argument, path)
    }

    /// Rejects an argument that is too large to be sent.
    ///
    /// # Errors
    /// [`Error::TooLarge`], with the size, the limit and the remedy.
    pub fn admit_argument(&self, function: &str, argument: &str, size_bytes: u64) -> Result<(), Error> {
        admit_argument(&self.0, function, argument, size_bytes)
    }

    /// Makes each worker run the function `Initialize` of a module, with these arguments, before the first call of its
    /// functions by this session, and again after the worker has restarted. The values that it sets in the module's
    /// `Globals` last from call to call. Other arguments may be set later. They are sent to all servers immediately,
    /// and stay until [`Grid::end_modules`].
    ///
    /// # Errors
    /// If the module has no such function, the arguments do not fit, it has results, or there is no agent, as in a simulation.
    pub fn initialize_module(&self, module: &str, args: &[Arg], named: &[(String, Arg)]) -> Result<(), Error> {
        modules::initialize(&self.0, module, args, named)
    }

    /// Deletes the arguments of all modules, before the session ends.
    pub fn end_modules(&self) {
        modules::end(&self.0);
    }

    /// Returns how a worker has to initialize a module for a client; `known` is the version that the worker has run.
    ///
    /// # Errors
    /// If that cannot be determined.
    pub fn initial(&self, client: NodeId, module: &str, known: Option<u64>) -> Result<Option<InitialArguments>, Error> {
        modules::initial(&self.0, client, module, known)
    }
}

/// Calls in progress.
impl Grid {
    /// Waits until `look` returns a result. It is called immediately, and then after every event. Its argument are the
    /// noted ends ([`PendingCall::note_end`](crate::PendingCall::note_end)) that were not reported yet: each is reported once,
    /// to the first thread that looks. It runs under the session's lock, so it must not call or drop anything of the
    /// session.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after `limit`; also if the session is closed.
    pub fn await_ends<R>(
        &self,
        limit: Option<Duration>,
        mut look: impl FnMut(&[TaskId]) -> Option<R>,
    ) -> Result<R, Error> {
        self.0.wait(limit, |state| look(&state.ends.take()))
    }

    /// Like [`Grid::await_ends`], for a thread that only watches for ends: a function that makes calls keeps its slot meanwhile,
    /// since it may compute in another thread.
    ///
    /// # Errors
    /// As for [`Grid::await_ends`].
    pub fn watch_ends<R>(
        &self,
        limit: Option<Duration>,
        mut look: impl FnMut(&[TaskId]) -> Option<R>,
    ) -> Result<R, Error> {
        self.0.wait_with(limit, || None::<()>, |state| look(&state.ends.take()))
    }

    /// Number of calls of the session that have not ended, plain and in launched groups.
    pub fn under_way(&self) -> usize {
        self.0.state_now().under_way()
    }

    /// Holds back deferred calls of these serial numbers that were not sent, or ends that; see [`Function::deferred`](crate::Function::deferred).
    /// Calls that were sent are not affected.
    pub fn hold_back(&self, serials: &[u64], is_held: bool) {
        let client = self.0.client();
        let tasks = serials.iter().map(|serial| TaskId { client, serial: *serial }).collect();
        self.0.command(Command::Hold { tasks, is_held });
    }

    /// The numbers of groups, of their tasks and of their data that the session remembers: those that a group or a
    /// handle can still query, and those that have not ended.
    pub fn memory_counts(&self) -> (usize, usize, usize) {
        self.0.state_now().groups.counts()
    }

    /// Takes the unread errors of calls in groups: of groups that the program can no longer query, and with `all`
    /// of the other groups too. An error is read by [`Handle::get`], [`Group::wait`] or [`Group::report`] of
    /// its group. Errors still unread when the session ends are written to standard error.
    pub fn take_unread(&self, all: bool) -> UnreadErrors {
        self.0.process_events();
        self.0.without_dropped_groups().groups.take_unread(all)
    }

    /// Notifies the grid immediately of the data that the program has dropped. Otherwise this happens with the next
    /// call or request. Useful for a program that makes none for a long time.
    pub fn release_dropped(&self) {
        self.0.release_dropped();
    }

    /// Large values in transfer to or from this session: arguments and results.
    pub fn moving(&self) -> Vec<TransferProgress> {
        self.0.moving()
    }

    /// Sets a listener for the output of running calls of the session: text that Python functions print, and their progress.
    /// The thread that waits for results calls it; without a listener, servers keep the output in their logs.
    /// The first listener of a session stays; simulations have none.
    pub fn listen(&self, listener: impl Fn(&CallOutput) + Send + Sync + 'static) {
        self.0.listen(listener);
    }

    /// Answers a gang's request, so that it continues.
    pub fn answer(&self, asking: &GangCallback, text: Vec<u8>) {
        session::answer(&self.0, asking, text);
    }

    /// Stops running callbacks, and waits for the end of one in progress, unless that callback itself calls this.
    pub fn end_call_backs(&self) {
        session::end_call_backs(&self.0);
    }
}

/// Servers, links and time.
impl Grid {
    /// The known servers.
    pub fn servers(&self) -> Arc<GridView> {
        self.0.servers()
    }

    /// In a session without an agent: returns the servers that it was given and cannot use now, with the reasons.
    pub fn unreachable(&self) -> Vec<(String, String)> {
        self.0.state_now().unreachable()
    }

    /// Process ids of the embedded local grid's servers, in order of their names; empty for other grids.
    pub fn server_processes(&self) -> Vec<u32> {
        self.0.server_processes()
    }

    /// Returns the current status of each server, ordered by name; `None` for one that does not answer within `limit`.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn statuses(&self, limit: Duration) -> Result<Vec<(ServerView, Option<ServerStatus>)>, Error> {
        session::statuses(&self.0, limit)
    }

    /// Logs what this program waits for, from whom and since when.
    pub fn log_waits(&self) {
        self.0.command(Command::LogWaits);
    }

    /// Returns what the programs of the grid wait for, as reported by their clients, the longest waits first. Only programs
    /// that have had no event for some seconds are listed. The list is empty if the agent does not answer within `limit`.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn waits(&self, limit: Duration) -> Result<Vec<ProgramWaits>, Error> {
        session::waits(&self.0, limit)
    }

    /// Returns what users have used on these days, which are numbers of days since 1970-01-01, UTC. Administrators see all users,
    /// others only themselves.
    ///
    /// # Errors
    /// If the agent does not answer within `limit`, or does not permit this user to see the other one.
    pub fn usage(&self, days: (u32, u32), user: Option<String>, limit: Duration) -> Result<UsageReport, Error> {
        session::usage(&self.0, days, user, limit)
    }

    /// Waits until the models of all servers are known here, but no longer than `limit`. On a simulated grid models arrive with
    /// virtual time, and this does not wait.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn wait_for_models(&self, limit: Duration) -> Result<(), Error> {
        let servers: Vec<NodeId> = self.servers().servers.iter().map(|server| server.node).collect();
        if self.is_simulated() || servers.is_empty() { Ok(()) } else { session::await_models(&self.0, &servers, limit) }
    }

    /// Measures a function on its servers, each while it is otherwise idle, until the model of its time is as exact as
    /// requested, or the time is over. `make` makes the arguments; without it they are random. `tell` receives each
    /// measured call.
    ///
    /// # Errors
    /// If the function, a server or a size is unknown, or no arguments can be made. A call that fails ends the
    /// calibration of its server, and its error is part of that server's result.
    pub fn calibrate(
        &self,
        function: &str,
        config: &CalibrateConfig,
        make: Option<&mut Make<'_>>,
        tell: &mut CallObserver<'_>,
    ) -> Result<Vec<Calibrated>, Error> {
        calibrate(&self.0, function, config, make, tell)
    }

    /// Returns the agent's knowledge of the links between hosts, and of those to connected clients.
    ///
    /// # Errors
    /// If the agent does not answer.
    pub fn links(&self) -> Result<Vec<LinkReport>, Error> {
        session::links(&self.0)
    }

    /// Bytes moved since the session began.
    pub fn traffic(&self) -> Traffic {
        self.0.state_now().links.traffic().clone()
    }

    /// Requests the output of functions from a server. Repeat the request after [`Grid::take_output`] has returned the
    /// answer, or if none arrives: a server whose connection is lost forgets the request.
    pub fn ask_output(&self, server: NodeId, query: OutputQuery) {
        self.0.command(Command::Output { server, query });
    }

    /// Takes the received answers; waits for at least one, but no longer than `limit`.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn take_output(&self, limit: Duration) -> Result<BTreeMap<NodeId, OutputPage>, Error> {
        session::take_output(&self.0, limit)
    }

    /// Ends tasks on servers: their programs receive a cancellation. Only administrators of the grid may end tasks of other
    /// users. Returns for each server that answers within `limit` whether it ends the task, or why it does not.
    ///
    /// # Errors
    /// If the session is closed.
    pub fn end_tasks(&self, tasks: &[(NodeId, TaskId)], limit: Duration) -> Result<EndTaskAnswers, Error> {
        session::end_tasks(&self.0, tasks, limit)
    }

    /// The session's clock, seconds: since 1970 for real, virtual in simulation.
    pub fn now(&self) -> f64 {
        self.0.now()
    }

    pub fn is_simulated(&self) -> bool {
        self.0.is_simulated()
    }

    /// True if the content of values matters: false in simulations that run no bodies.
    pub fn has_content(&self) -> bool {
        self.0.has_content()
    }

    /// Returns the host of the program, or of the function's server, in a simulation; `None` for a real grid.
    pub fn simulated_host(&self) -> Option<String> {
        self.0.simulated_host()
    }

    /// Returns the report of a simulation; `None` for a real grid.
    pub fn simulation(&self) -> Option<SimulationReport> {
        self.0.simulation()
    }

    /// Advances virtual time at the client by `seconds`, as if it computed. Does nothing on a real grid.
    pub fn advance(&self, seconds: f64) {
        self.0.advance(seconds, 0);
    }

    /// Advances virtual time at the client by the time of `work_flops` operations on its host. Does nothing on a real grid.
    pub fn compute(&self, work_flops: f64) {
        self.compute_on(work_flops, 0);
    }

    /// Like [`Grid::compute`], for a computation that accesses `accessed_bytes` of the program's memory once. On a host that
    /// pages, it also takes the time to exchange the pages that are not in memory.
    pub fn compute_on(&self, work_flops: f64, accessed_bytes: u64) {
        if let Some(flops) = self.0.client_flops() {
            self.0.advance(work_flops / flops, accessed_bytes);
        }
    }

    /// States how many bytes the program holds in memory itself, besides the values of its calls. They count on a simulated
    /// host that pages, until they are stated again. Does nothing on a real grid.
    pub fn hold_memory(&self, size_bytes: u64) {
        self.0.hold_memory(size_bytes);
    }
}

impl std::fmt::Debug for Grid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grid(client {})", self.0.client())
    }
}
