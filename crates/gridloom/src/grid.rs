//! The session: one client of a grid, real or simulated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use gridloom_core::base::time::ns_to_seconds;
use gridloom_core::base::{DatumId, GroupId, Meta, NodeId, TaskError, TaskId};
use gridloom_core::graph;
use gridloom_core::idl::{Signature, near_names};
use gridloom_core::map::MapBy;
use gridloom_core::node::message::TaskReport;
use gridloom_core::node::{Command, Event};
use gridloom_core::perf::{GridView, LinkReport};
use serde::Serialize;

use crate::attach::AttachConfig;
use crate::backend::Backend;
use crate::described::Place;
use crate::function::{Pending, Prepared};
use crate::local::LocalProcesses;
use crate::plan::Basis;
use crate::report::{Course, GroupRecord, PlanRecord, Report};
use crate::timeline::timeline_html;
use crate::{Error, Function, Group, LocalConfig, Mapping, SimulateConfig, SimulationReport, Value};

/// How long a session waits for its agent's first answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(15);

/// A session with a grid. Clones share it; the last one closes it.
#[derive(Clone)]
pub struct Grid(Arc<Inner>);

struct Inner {
    /// The process that made the session. A copy in a forked child does nothing.
    pid: u32,
    client: NodeId,
    serial: AtomicU64,
    state: Mutex<State>,
    /// Held while a group is launched, with the groups that it reads.
    launching: Mutex<()>,
    /// Released by handles that were dropped; sent with the next command, so that dropping never blocks.
    releases: Mutex<Vec<DatumId>>,
    /// Groups whose plan is not followed any more; told with the next command, for the same reason.
    unfollowed: Mutex<Vec<GroupId>>,
    /// Groups that nobody can ask about any more; forgotten when the next one runs, for the same reason.
    unasked: Mutex<Vec<GroupId>>,
    backend: Backend,
    /// The embedded local grid's processes, ended with the session.
    processes: Mutex<Option<LocalProcesses>>,
}

/// Bytes moved since the session began.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// Over links of the client, both ways.
    pub client_bytes: u64,
    /// Between servers.
    pub server_bytes: u64,
    /// By pair of names, sender first.
    pub by_link: BTreeMap<String, u64>,
}

/// Errors of calls in groups that the program did not read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unread {
    /// How many calls failed.
    pub count: usize,
    /// The first of their errors, in a line each.
    pub first: Vec<String>,
}

impl Unread {
    fn add(&mut self, record: &mut GroupRecord) {
        for line in record.untold() {
            self.count += 1;
            if self.first.len() < UNREAD_LINES_MAX {
                self.first.push(line);
            }
        }
        record.is_told = true;
    }
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Unread { count, first } = self;
        write!(f, "{count} call{} in groups failed, and nobody read why", if *count == 1 { "" } else { "s" })?;
        first.iter().try_for_each(|line| write!(f, "\n  {line}"))?;
        if *count > first.len() { write!(f, "\n  and {} more", count - first.len()) } else { Ok(()) }
    }
}

#[derive(Default)]
struct State {
    grid: Arc<GridView>,
    functions: Arc<Vec<Signature>>,
    has_directory: bool,
    agent_lost: Option<TaskError>,
    /// Plain calls under way; `Some` when ended.
    calls: BTreeMap<TaskId, Option<TaskReport>>,
    /// Calls whose results nobody will collect.
    abandoned: BTreeMap<TaskId, Vec<DatumId>>,
    /// Data that somebody waits for.
    gets: BTreeMap<DatumId, Asked>,
    groups: BTreeMap<GroupId, GroupRecord>,
    /// Of groups forgotten in a simulation, whose report tells of all.
    summaries: BTreeMap<GroupId, (String, f64, f64)>,
    /// Of groups that are forgotten.
    unread: Unread,
    group_of_task: BTreeMap<TaskId, GroupId>,
    group_of_datum: BTreeMap<DatumId, GroupId>,
    plans: BTreeMap<GroupId, Result<PlanRecord, TaskError>>,
    /// The answer to the last question for links.
    links: Option<Vec<LinkReport>>,
    names: BTreeMap<NodeId, String>,
    traffic: Traffic,
    log: Vec<String>,
}

/// A datum that was asked for. It is forgotten with the last who waits for it.
#[derive(Default)]
struct Asked {
    waiters: usize,
    /// Kept until each of them has seen it.
    answer: Option<Result<Meta, TaskError>>,
}

impl Grid {
    /// Connects to the agent at `address` (`host:port`).
    ///
    /// # Errors
    /// If it cannot be reached, refuses, or does not answer.
    pub fn connect(address: &str) -> Result<Grid, Error> {
        if let Some(grid) = Grid::from_environment(None)? {
            return Ok(grid);
        }
        Grid::open(Backend::connect(address)?, None)
    }

    /// Connects to those servers (`host:port`) without an agent: the session maps by itself, by what the servers tell it.
    /// Two such sessions do not know what the other has promised to whom.
    ///
    /// # Errors
    /// If one of them cannot be reached, or refuses.
    pub fn connect_servers(servers: &[String]) -> Result<Grid, Error> {
        if let Some(grid) = Grid::from_environment(None)? {
            return Ok(grid);
        }
        let addresses: BTreeSet<&String> = servers.iter().collect();
        if addresses.is_empty() {
            return Err(Error::Usage("no server is named; expected HOST:PORT of each".into()));
        }
        let grid = Grid::open(Backend::connect_servers(servers)?, None)?;
        let all =
            grid.wait(Some(CONNECT_PATIENCE), |state| (state.grid.servers.len() >= addresses.len()).then_some(()));
        match all {
            Ok(()) => Ok(grid),
            Err(Error::TimedOut { .. }) => {
                let (known, log) = (grid.servers().servers.len(), grid.take_log().join("; "));
                let log = if log.is_empty() { String::new() } else { format!(": {log}") };
                let seconds = CONNECT_PATIENCE.as_secs();
                let count = addresses.len();
                Err(Error::Connect(format!("{known} of {count} servers answered within {seconds} s{log}")))
            }
            Err(error) => Err(error),
        }
    }

    /// Starts an embedded grid on this machine (one agent, some servers, separate processes on loopback) and connects
    /// to it. It ends with the session, whatever happens.
    ///
    /// # Errors
    /// If a process cannot be started, or a function cannot be offered.
    pub fn local(config: LocalConfig) -> Result<Grid, Error> {
        if let Some(grid) = Grid::from_environment(Some(&config))? {
            return Ok(grid);
        }
        let processes = LocalProcesses::start(&config)?;
        let backend = Backend::connect_with(&processes.address, &processes.secret)?;
        let grid = Grid::open(backend, Some(processes))?;
        grid.await_servers(config.servers)?;
        Ok(grid)
    }

    /// A simulated grid on a described platform, in virtual time.
    ///
    /// # Errors
    /// If the platform or the functions cannot be used.
    pub fn simulate(config: SimulateConfig) -> Result<Grid, Error> {
        let (backend, servers) = Backend::simulate(config)?;
        let grid = Grid::open(backend, None)?;
        grid.await_servers(servers)?;
        Ok(grid)
    }

    /// Under `gridloom simulate` and `gridloom testbed`, whatever a program starts or connects to is the simulated grid,
    /// or the testbed's. A simulated process gets a client in its own simulation.
    fn from_environment(local: Option<&LocalConfig>) -> Result<Option<Grid>, Error> {
        if let Some(backend) = Backend::of_process(local) {
            let grid = Grid::open(backend?, None)?;
            // One that is down is not waited for.
            let known = grid.wait(Some(CONNECT_PATIENCE), |state| {
                let alive = grid.0.backend.servers_alive().unwrap_or_default();
                (state.grid.servers.len() >= alive).then_some(())
            });
            return match known {
                Err(Error::TimedOut { .. }) => Err(Error::Connect("not all servers registered".into())),
                known => known.map(|()| Some(grid)),
            };
        }
        if let Some(config) = SimulateConfig::from_environment(local)? {
            return Grid::simulate(config).map(Some);
        }
        let Some(config) = AttachConfig::from_environment(local)? else { return Ok(None) };
        let grid = Grid::open(Backend::connect(&config.agent)?, None)?;
        grid.await_servers(config.servers)?;
        Ok(Some(grid))
    }

    fn open(backend: Backend, processes: Option<LocalProcesses>) -> Result<Grid, Error> {
        let inner = Inner {
            pid: std::process::id(),
            client: backend.client(),
            serial: AtomicU64::new(1),
            state: Mutex::default(),
            launching: Mutex::default(),
            releases: Mutex::default(),
            unfollowed: Mutex::default(),
            unasked: Mutex::default(),
            processes: Mutex::new(processes),
            backend,
        };
        let grid = Grid(Arc::new(inner));
        let connected = grid.wait(Some(CONNECT_PATIENCE), |state| match &state.agent_lost {
            Some(error) => Some(Err(Error::Connect(error.to_string()))),
            None => state.has_directory.then_some(Ok(())),
        });
        match connected {
            Ok(result) => result?,
            Err(error @ Error::Process(_)) => return Err(error),
            Err(_) => {
                let seconds = CONNECT_PATIENCE.as_secs();
                return Err(Error::Connect(format!("the agent did not answer within {seconds} s")));
            }
        }
        Ok(grid)
    }

    fn await_servers(&self, count: usize) -> Result<(), Error> {
        self.wait(Some(CONNECT_PATIENCE), |state| (state.grid.servers.len() >= count).then_some(()))
            .map_err(|_| Error::Connect(format!("not all of the {count} servers registered")))
    }

    /// What the agent knows of the links between hosts, and of those to clients that are connected.
    ///
    /// # Errors
    /// If the agent does not answer.
    pub fn links(&self) -> Result<Vec<LinkReport>, Error> {
        self.state().links = None;
        self.command(Command::Links);
        self.wait(Some(CONNECT_PATIENCE), |state| state.links.take())
    }

    /// The function of that name (`module/function`, or `function` alone if only one module has it).
    ///
    /// # Errors
    /// If no server offers it; the message lists names like it.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        self.absorb();
        let state = self.state();
        let exact = state.functions.iter().find(|signature| signature.name == name);
        let mut short = state.functions.iter().filter(|s| s.name.rsplit('/').next() == Some(name));
        let found = exact.or_else(|| short.next().filter(|_| short.next().is_none()));
        let Some(signature) = found else {
            let near = near_names(name, state.functions.iter().map(|signature| signature.name.as_str()));
            let near = match (near.is_empty(), state.functions.is_empty()) {
                (false, _) => format!("; did you mean {}?", near.join(" or ")),
                (true, false) => "; 'gridloom functions' lists what is offered".to_string(),
                (true, true) => "; no function is offered at all: start a server with 'gridloom serve'".to_string(),
            };
            return Err(Error::UnknownFunction { name: name.to_string(), near });
        };
        let signature = Arc::new(signature.clone());
        Ok(Function { grid: self.clone(), hash: signature.hash(), signature })
    }

    /// Signatures of all functions offered, in order of name.
    pub fn functions(&self) -> Arc<Vec<Signature>> {
        self.absorb();
        self.state().functions.clone()
    }

    /// The servers as known.
    pub fn servers(&self) -> Arc<GridView> {
        self.absorb();
        self.state().grid.clone()
    }

    /// A group whose calls are recorded, then mapped together: by the heuristic of that name (`"auto"` is the one to take if in doubt), by a plan that
    /// [`Group::plan`] made or [`PlanRecord::load`] read, or by a heuristic of your own ([`Mapping::own`]).
    pub fn group(&self, mapping: impl Into<Mapping>) -> Group {
        Group::new(self.clone(), mapping.into())
    }

    /// Bytes moved since the session began.
    pub fn traffic(&self) -> Traffic {
        self.absorb();
        self.state().traffic.clone()
    }

    /// The session's clock, seconds: since 1970 for real, virtual in simulation.
    pub fn now(&self) -> f64 {
        self.0.backend.now().seconds()
    }

    /// Process identifiers of the embedded local grid's servers, in order of their names; empty for other grids.
    pub fn server_processes(&self) -> Vec<u32> {
        self.0.processes.lock().expect("no panic while held").as_ref().map_or(Vec::new(), |p| p.server_processes())
    }

    /// What a simulation has to report; `None` for a real grid.
    pub fn simulation(&self) -> Option<SimulationReport> {
        self.absorb();
        self.0.simulation()
    }

    /// Whether the content of values matters: not where no body runs.
    pub(crate) fn has_content(&self) -> bool {
        self.0.backend.has_content()
    }

    /// Virtual time passes at the client: it computes for so long. Nothing happens on a real grid.
    pub fn advance(&self, seconds: f64) {
        self.0.backend.advance(gridloom_core::base::time::seconds_to_ns(seconds));
    }

    /// Whether this grid is simulated.
    pub fn is_simulated(&self) -> bool {
        self.0.backend.is_simulated()
    }

    /// A value in memory that servers on this machine can map: fill it, then pass it as an argument without a copy.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn allocate(&self, size_bytes: u64) -> Result<gridloom_net::segment::SegmentMut, Error> {
        self.0
            .backend
            .allocate(size_bytes)
            .map_err(|e| Error::Usage(format!("cannot allocate {size_bytes} bytes: {e}")))
    }

    /// Lines that the client's machine logged since the last call.
    pub fn take_log(&self) -> Vec<String> {
        self.absorb();
        std::mem::take(&mut self.state().log)
    }

    /// How many groups, tasks of groups and data of groups the session remembers: those about which a group or a handle
    /// can still ask, and those that have not ended.
    pub fn remembered(&self) -> (usize, usize, usize) {
        self.absorb();
        let state = self.state();
        (state.groups.len(), state.group_of_task.len(), state.group_of_datum.len())
    }

    /// Takes the errors of calls in groups that nobody read: of groups about which nobody can ask any more, and with `all`
    /// of the others too. An error is read by [`Handle::get`](crate::Handle::get), [`Group::wait`] or [`Group::report`] of
    /// its group. What is left when the session ends is written to standard error.
    pub fn take_unread(&self, all: bool) -> Unread {
        self.absorb();
        let unasked = std::mem::take(&mut *self.0.unasked.lock().expect("no panic while held"));
        let mut state = self.state();
        unasked.into_iter().for_each(|group| state.forget_group(group, &self.0.backend));
        state.take_unread(all)
    }

    // ---- used by functions, groups and handles

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
        for datum in data {
            self.0.backend.forget(datum);
        }
    }

    /// `calibrates` is the server on which the call is to be measured, if it is.
    pub(crate) fn send_call(
        &self,
        prepared: Prepared,
        limit: Option<Duration>,
        calibrates: Option<NodeId>,
    ) -> Result<Pending, Error> {
        let Prepared { task, values, outputs } = prepared;
        let mut sources = Vec::with_capacity(values.len());
        for (datum, value) in &values {
            self.put(*datum, value);
            sources.push((*datum, value.meta.clone()));
        }
        let id = task.id;
        self.state().calls.insert(id, None);
        let limit_ns = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.command(Command::Call { task, sources, limit_ns, calibrates });
        Ok(Pending { grid: self.clone(), task: id, outputs, collected: false })
    }

    pub(crate) fn call_ended(&self, task: TaskId) -> bool {
        self.absorb();
        self.state().calls.get(&task).is_none_or(Option::is_some)
    }

    /// Waits until one of these calls has ended, or the time is up.
    pub(crate) fn await_any(&self, tasks: &[TaskId], limit: Duration) -> Result<(), Error> {
        let has_ended = |state: &State| tasks.iter().any(|task| state.calls.get(task).is_none_or(Option::is_some));
        match self.wait(Some(limit), |state| has_ended(state).then_some(())) {
            Err(Error::TimedOut { .. }) => Ok(()),
            other => other,
        }
    }

    /// Seconds that a call ran that has ended, whose results are dropped; the call itself while it is under way.
    pub(crate) fn take_seconds(&self, pending: Pending) -> Result<Result<f64, TaskError>, Pending> {
        self.absorb();
        let ended = self.state().calls.get(&pending.task).and_then(|ended| {
            ended.as_ref().map(|report| {
                report.outcome.as_ref().map(|_| ns_to_seconds(report.timing.run_ns.max(1))).map_err(Clone::clone)
            })
        });
        // Dropping it gives the results up.
        ended.ok_or(pending)
    }

    pub(crate) fn await_call(&self, task: TaskId, limit: Option<Duration>) -> Result<(), Error> {
        self.wait(limit, |state| state.calls.get(&task).is_none_or(Option::is_some).then_some(()))
    }

    pub(crate) fn wait_call(&self, task: TaskId, outputs: &[(DatumId, Meta)]) -> Result<Vec<Value>, Error> {
        let report = self.wait(None, |state| match state.calls.get(&task) {
            Some(Some(_)) => state.calls.remove(&task).flatten().map(Some),
            Some(None) => None,
            None => Some(None),
        })?;
        let report = report.ok_or_else(|| Error::Usage("the call's result was collected already".into()))?;
        let results = report.outcome?;
        let mut values = Vec::with_capacity(outputs.len());
        for (datum, _) in outputs {
            let described = results.iter().find(|(made, _)| made == datum).map(|(_, meta)| meta.clone());
            let value = self.0.backend.take(*datum).or_else(|| described.map(Value::placeholder));
            values.push(value.ok_or_else(|| Error::Usage(format!("result {datum} is not in the client's store")))?);
        }
        Ok(values)
    }

    pub(crate) fn abandon_call(&self, task: TaskId, outputs: &[(DatumId, Meta)]) {
        let mut state = self.state();
        match state.calls.remove(&task) {
            Some(Some(_)) => {
                drop(state);
                outputs.iter().for_each(|(datum, _)| self.0.backend.forget(*datum));
            }
            Some(None) => {
                state.abandoned.insert(task, outputs.iter().map(|(datum, _)| *datum).collect());
            }
            None => {}
        }
    }

    pub(crate) fn cancel(&self, tasks: Vec<TaskId>) {
        self.command(Command::Cancel { tasks });
    }

    pub(crate) fn cancel_group(&self, group: GroupId) {
        let tasks = self.state().groups.get(&group).map(|record| record.unfinished()).unwrap_or_default();
        self.cancel(tasks);
    }

    pub(crate) fn plan(&self, group: graph::Group, heuristic: MapBy) -> Result<PlanRecord, Error> {
        let id = group.id;
        let plan = self.ask_for_plan(group, heuristic, false);
        self.state().groups.remove(&id);
        plan
    }

    /// The same for a group whose calls will come one by one, until [`Grid::end_plan`]. It is remembered for the report.
    pub(crate) fn plan_to_follow(&self, group: graph::Group, heuristic: MapBy) -> Result<PlanRecord, Error> {
        let id = group.id;
        let plan = self.ask_for_plan(group, heuristic, true);
        let mut state = self.state();
        match &plan {
            Ok(_) => state.groups.get_mut(&id).expect("inserted to ask for it").only_planned(),
            Err(_) => drop(state.groups.remove(&id)),
        }
        plan
    }

    fn ask_for_plan(&self, group: graph::Group, heuristic: MapBy, is_followed: bool) -> Result<PlanRecord, Error> {
        let id = group.id;
        let functions = group.tasks.iter().map(|task| (task.id, task.function.clone())).collect();
        self.state().groups.insert(id, GroupRecord::new(functions));
        self.command(Command::Plan { group, heuristic, is_followed });
        Ok(self.wait(None, |state| state.plans.remove(&id))??)
    }

    /// No more calls come that follow the plan of that group, nor any that read those values.
    pub(crate) fn end_plan(&self, group: GroupId, values: Vec<DatumId>) {
        self.end_plan_later(group, values);
        self.0.backend.commands(self.take_releases());
    }

    /// The same, told with the next command.
    pub(crate) fn end_plan_later(&self, group: GroupId, values: Vec<DatumId>) {
        self.0.unfollowed.lock().expect("no panic while held").push(group);
        self.0.releases.lock().expect("no panic while held").extend(values);
    }

    pub(crate) fn launching(&self) -> MutexGuard<'_, ()> {
        self.0.launching.lock().expect("no panic while held")
    }

    pub(crate) fn run(&self, group: graph::Group, heuristic: MapBy, release: Vec<DatumId>) {
        self.note(&group, None);
        let mut commands = self.take_releases();
        commands.push(Command::Run { group, heuristic });
        commands.push(Command::Release { data: release });
        self.0.backend.commands(commands);
    }

    /// Runs a call where the plan of another group has it.
    pub(crate) fn run_at(&self, group: graph::Group, place: Place, heuristic: MapBy, plan: GroupId) {
        self.note(&group, Some(plan));
        let Place { server, from } = place;
        self.command(Command::Follow { group, server, from, heuristic });
    }

    /// What happens to the group from now on is noted for its report.
    fn note(&self, group: &graph::Group, plan: Option<GroupId>) {
        let functions: BTreeMap<TaskId, String> =
            group.tasks.iter().map(|task| (task.id, task.function.clone())).collect();
        let unasked = std::mem::take(&mut *self.0.unasked.lock().expect("no panic while held"));
        let mut state = self.state();
        unasked.into_iter().for_each(|group| state.forget_group(group, &self.0.backend));
        let mut record = GroupRecord::new(functions);
        record.follows = plan.and_then(|plan| Some((plan, state.groups.get(&plan)?.planned_at()?)));
        for task in &group.tasks {
            state.group_of_task.insert(task.id, group.id);
        }
        let made = group.tasks.iter().flat_map(|task| &task.outputs).map(|output| output.datum);
        for datum in made.chain(group.sources.keys().copied()) {
            state.group_of_datum.entry(datum).or_insert_with(|| {
                record.data.push(datum);
                group.id
            });
        }
        state.groups.insert(group.id, record);
    }

    pub(crate) fn get(&self, datum: DatumId, limit: Option<Duration>) -> Result<Value, Error> {
        // Whoever waits sees the same answer, also the one that another's question brought.
        self.state().gets.entry(datum).or_default().waiters += 1;
        self.command(Command::Get { datum });
        let asked = |state: &State| state.gets.get(&datum).and_then(|asked| asked.answer.clone());
        let answer = self.wait(limit, |state| asked(state));
        let mut state = self.state();
        state.seen(datum);
        if let Ok(Err(error)) = &answer {
            // Also the failure that this one follows from.
            let root = match error {
                TaskError::DependencyFailed { task, .. } => state.group_of_task.get(task).copied(),
                _ => None,
            };
            for group in state.group_of_datum.get(&datum).copied().into_iter().chain(root) {
                if let Some(record) = state.groups.get_mut(&group) {
                    record.is_told = true;
                }
            }
        }
        drop(state);
        let meta = answer??;
        // The store keeps it while the handle lives, so that it need not come twice.
        Ok(self.0.backend.value(datum).unwrap_or_else(|| Value::placeholder(meta)))
    }

    /// Has a datum brought here as soon as it is made.
    pub(crate) fn prefetch(&self, datum: DatumId) {
        self.command(Command::Get { datum });
    }

    pub(crate) fn release_later(&self, datum: DatumId) {
        self.0.releases.lock().expect("no panic while held").push(datum);
    }

    /// The program knows of failures in these groups.
    pub(crate) fn told(&self, groups: &[GroupId]) {
        let mut state = self.state();
        for group in groups {
            if let Some(record) = state.groups.get_mut(group) {
                record.is_told = true;
            }
        }
    }

    pub(crate) fn forget_groups_later(&self, groups: Vec<GroupId>) {
        self.0.unasked.lock().expect("no panic while held").extend(groups);
    }

    /// Waits until the group's tasks have ended, however they did.
    pub(crate) fn await_group(&self, group: GroupId) -> Result<(), Error> {
        self.wait(None, |state| state.groups.get(&group).is_none_or(GroupRecord::has_ended).then_some(()))
    }

    pub(crate) fn wait_group(&self, group: GroupId) -> Result<(), Error> {
        self.await_group(group)?;
        match self.state().groups.get(&group).and_then(GroupRecord::first_error) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    pub(crate) fn report(&self, heuristic: &str, parts: &[GroupId]) -> Report {
        self.absorb();
        let state = self.state();
        let records = parts.iter().filter_map(|part| state.groups.get(part));
        Report::new(heuristic, records, &[self.0.client], &state.names)
    }

    /// How a group went that was mapped, so far.
    pub(crate) fn course(&self, group: GroupId) -> Option<Course> {
        self.absorb();
        self.state().groups.get(&group).and_then(GroupRecord::course)
    }

    fn take_releases(&self) -> Vec<Command> {
        let data = std::mem::take(&mut *self.0.releases.lock().expect("no panic while held"));
        let ended = std::mem::take(&mut *self.0.unfollowed.lock().expect("no panic while held"));
        let mut commands: Vec<Command> = ended.into_iter().map(|group| Command::EndPlan { group }).collect();
        if !data.is_empty() {
            commands.push(Command::Release { data });
        }
        commands
    }

    fn command(&self, command: Command) {
        let mut commands = self.take_releases();
        commands.push(command);
        self.0.backend.commands(commands);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic while held")
    }

    /// Takes in what has happened so far, without waiting.
    fn absorb(&self) {
        let _ = self.wait(Some(Duration::ZERO), |_| None::<()>);
    }

    /// Waits until `done` finds what it looks for in the state.
    fn wait<R>(&self, patience: Option<Duration>, mut done: impl FnMut(&mut State) -> Option<R>) -> Result<R, Error> {
        self.0.backend.wait(patience, |events| {
            let mut state = self.state();
            for event in events {
                state.absorb(event, self.0.client, &self.0.backend);
            }
            done(&mut state)
        })
    }
}

impl State {
    /// Of all groups that ran, forgotten or not.
    fn all_summaries(&self) -> BTreeMap<GroupId, (String, f64, f64)> {
        let mut groups = self.summaries.clone();
        groups.extend(self.groups.iter().filter_map(|(id, group)| Some((*id, group.summary()?))));
        self.groups.values().for_each(|group| lengthen(&mut groups, group));
        groups
    }

    /// An answer for all who wait for it; nobody may, if they gave up.
    fn answered(&mut self, datum: DatumId, answer: Result<Meta, TaskError>) {
        if let Some(asked) = self.gets.get_mut(&datum) {
            asked.answer = Some(answer);
        }
    }

    /// One of those who waited has the answer, or gives up.
    fn seen(&mut self, datum: DatumId) {
        let asked = self.gets.get_mut(&datum).expect("who waits is counted");
        asked.waiters -= 1;
        if asked.waiters == 0 {
            self.gets.remove(&datum);
        }
    }

    /// Nobody can ask about the group any more: it is forgotten when it has ended.
    fn forget_group(&mut self, group: GroupId, backend: &Backend) {
        let Some(record) = self.groups.get_mut(&group) else { return };
        if !record.has_ended() {
            record.is_unasked = true;
            return;
        }
        self.unread.add(record);
        // The page that is written at the end shows all groups.
        if backend.timeline_path().is_some() {
            return;
        }
        let record = self.groups.remove(&group).expect("found above");
        if backend.is_simulated() {
            self.summaries.extend(record.summary().map(|summary| (group, summary)));
            lengthen(&mut self.summaries, &record);
        }
        for datum in &record.data {
            self.group_of_datum.remove(datum);
        }
        for task in record.tasks() {
            self.group_of_task.remove(task);
        }
    }

    fn take_unread(&mut self, all: bool) -> Unread {
        if all {
            self.groups.values_mut().for_each(|record| self.unread.add(record));
        }
        std::mem::take(&mut self.unread)
    }

    fn absorb(&mut self, event: Event, client: NodeId, backend: &Backend) {
        match event {
            Event::Directory { grid, functions } => {
                for server in &grid.servers {
                    self.names.insert(server.node, server.name.clone());
                }
                self.names.entry(client).or_insert_with(|| "client".to_string());
                self.grid = grid;
                self.functions = functions;
                self.has_directory = true;
                self.agent_lost = None;
            }
            Event::Links { links } => self.links = Some(links),
            // A server's.
            Event::Learned { .. } => {}
            Event::AgentLost { address, why } => self.agent_lost = Some(TaskError::AgentLost { address, why }),
            Event::GroupPlanned { at, group, plan, tasks, data, map_ns, seen } => {
                let names = &self.names;
                let record = self.groups.get_mut(&group);
                if let Some(record) = record {
                    let mut plan = record.planned(at, &plan, &tasks, &data, map_ns, names);
                    plan.basis = seen.map(|seen| Arc::new(Basis::new(seen, &tasks, &data)));
                    // Only a group that was asked to be planned is waited for here; the entry of another is dropped
                    // with its record.
                    if !self.group_of_task.contains_key(tasks.first().unwrap_or(&TaskId { client, serial: 0 })) {
                        self.plans.insert(group, Ok(plan));
                    }
                }
            }
            Event::GroupNotMapped { group, error } => {
                self.plans.insert(group, Err(error));
            }
            Event::TaskEnded { at, server, report } => {
                if let Some(ended) = self.calls.get_mut(&report.task) {
                    *ended = Some(report);
                } else if let Some(outputs) = self.abandoned.remove(&report.task) {
                    outputs.iter().for_each(|datum| backend.forget(*datum));
                } else if let Some(record) =
                    self.group_of_task.get(&report.task).and_then(|group| self.groups.get_mut(group))
                {
                    record.task_ended(at, server, report);
                }
            }
            Event::Transferred { at, report } => {
                let is_client = report.from == client || report.to == client;
                let total = if is_client { &mut self.traffic.client_bytes } else { &mut self.traffic.server_bytes };
                *total += report.size_bytes;
                let name = |node: &NodeId| self.names.get(node).cloned().unwrap_or_else(|| node.to_string());
                let link = format!("{} -> {}", name(&report.from), name(&report.to));
                *self.traffic.by_link.entry(link).or_default() += report.size_bytes;
                if let Some(record) =
                    self.group_of_datum.get(&report.datum).and_then(|group| self.groups.get_mut(group))
                {
                    record.transferred(at, report);
                }
            }
            Event::GroupEnded { at, group } => {
                if let Some(record) = self.groups.get_mut(&group) {
                    record.ended(at);
                    if record.is_unasked {
                        self.forget_group(group, backend);
                    }
                }
            }
            Event::DatumHere { datum, meta } => self.answered(datum, Ok(meta)),
            Event::DatumLost { datum, error } => self.answered(datum, Err(error)),
            Event::ServerLost { name, why, again, .. } => {
                let groups: BTreeSet<GroupId> =
                    again.iter().filter_map(|task| self.group_of_task.get(task)).copied().collect();
                for group in groups {
                    if let Some(record) = self.groups.get_mut(&group) {
                        let count = again.iter().filter(|task| self.group_of_task.get(task) == Some(&group)).count();
                        record.server_lost(&name, &why, count);
                    }
                }
            }
            Event::Log(line) => {
                if self.log.len() < LOG_LINES_MAX {
                    self.log.push(line);
                }
            }
        }
    }
}

/// A call that took its place in a group's plan counts into that group's time.
fn lengthen(summaries: &mut BTreeMap<GroupId, (String, f64, f64)>, record: &GroupRecord) {
    let Some(((plan, start), end)) = record.follows.zip(record.last_end()) else { return };
    if let Some((_, _, measured_s)) = summaries.get_mut(&plan) {
        *measured_s = measured_s.max(end.seconds() - start.seconds());
    }
}

/// Lines kept for [`Grid::take_log`].
const LOG_LINES_MAX: usize = 10_000;
/// Errors that are told of calls that nobody asked about; the others are counted.
const UNREAD_LINES_MAX: usize = 10;

impl Inner {
    fn simulation(&self) -> Option<SimulationReport> {
        let mut report = self.backend.simulation_report()?;
        let state = self.state.lock().expect("no panic while held");
        report.groups = state.all_summaries().into_values().collect();
        Some(report)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            std::mem::forget(self.processes.get_mut().ok().and_then(Option::take));
            return;
        }
        let unread = self.state.get_mut().expect("no panic while held").take_unread(true);
        let failure = self.backend.finish();
        if let Some(why) = &failure {
            // As in `write`.
            eprintln!("gridloom: {why}");
        }
        if let (Some(path), Some(mut report)) = (self.backend.report_path(), self.simulation()) {
            report.failure = failure;
            write(&path, "report", &serde_json::to_string(&report).expect("a report of names and numbers"));
        }
        if let Some(shared) = self.backend.shared() {
            let state = self.state.get_mut().expect("no panic while held");
            shared.closed(state.all_summaries(), std::mem::take(&mut state.groups));
        } else if let Some(path) = self.backend.timeline_path() {
            let state = self.state.get_mut().expect("no panic while held");
            let report = Report::new("the program's heuristics", state.groups.values(), &[self.client], &state.names);
            write(&path, "timeline", &timeline_html("Simulated groups", &report));
        }
        if unread.count > 0 {
            eprintln!("gridloom: {unread}");
        }
        self.backend.close();
        if let Some(processes) = self.processes.get_mut().expect("no panic while held").take() {
            processes.stop();
        }
    }
}

/// There is nobody left to give an error to: it goes to standard error.
fn write(path: &std::path::Path, what: &str, text: &str) {
    if let Err(error) = std::fs::write(path, text) {
        eprintln!("gridloom: cannot write the simulation's {what} to {}: {error}", path.display());
    }
}

impl std::fmt::Debug for Grid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grid(client {})", self.0.client)
    }
}
