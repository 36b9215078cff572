//! The session: one client of a grid, real or simulated.

mod call_backs;
mod calls;
mod data;
mod ends;
mod groups;
mod objects;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use gridloom_core::base::{DatumId, GroupId, NodeId};
use gridloom_core::idl::{Signature, near_names};
use gridloom_core::node::Command;
use gridloom_core::perf::{GridView, LinkReport};
use serde::Serialize;

use crate::attach::AttachConfig;
use crate::backend::Backend;
use crate::group::Launches;
use crate::local::LocalProcesses;
use crate::report::Report;
use crate::timeline::timeline_html;
use crate::{Error, Function, Group, LocalConfig, Mapping, SimulateConfig, SimulationReport};
pub use call_backs::Callee;
pub use ends::CallEnd;
use state::State;
pub use state::Unread;

/// How long a session waits for its agent's first answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(15);

/// Sessions that this process has opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// A session with a grid. Clones share it; the last one closes it.
#[derive(Clone)]
pub struct Grid(Arc<Inner>);

struct Inner {
    /// Tells it from other sessions of this process.
    number: u64,
    /// The process that made the session. A copy in a forked child does nothing.
    pid: u32,
    client: NodeId,
    serial: AtomicU64,
    state: Mutex<State>,
    launches: Launches,
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
    /// Those that answer are used; of the others [`Grid::unreachable`] tells, and they are dialled again while the
    /// session lasts.
    ///
    /// # Errors
    /// If an address is none; if none of them can be used: why, for each.
    pub fn connect_servers(servers: &[String]) -> Result<Grid, Error> {
        if let Some(grid) = Grid::from_environment(None)? {
            return Ok(grid);
        }
        let addresses: BTreeSet<String> = servers.iter().map(|address| address.trim().to_string()).collect();
        if addresses.is_empty() {
            return Err(Error::Usage("no server is named; expected HOST:PORT of each".into()));
        }
        if addresses.contains("") {
            let why = "one of the servers' addresses is empty; expected HOST:PORT of each, with one comma between two";
            return Err(Error::Usage(why.into()));
        }
        let servers: Vec<String> = addresses.iter().cloned().collect();
        let grid = Grid::open(Backend::connect_servers(&servers)?, None)?;
        grid.state().given.clone_from(&addresses);
        let is_decided = |state: &mut State, address: &String| match state.ways.get(address) {
            Some(Ok(server)) => state.grid.server(*server).is_some(),
            Some(Err(_)) => true,
            None => false,
        };
        let all = grid.wait(Some(CONNECT_PATIENCE), |state| {
            addresses.iter().all(|address| is_decided(state, address)).then_some(())
        });
        if let Err(error) = all
            && !matches!(error, Error::TimedOut { .. })
        {
            return Err(error);
        }
        let nodes: Vec<NodeId> = grid.servers().servers.iter().map(|server| server.node).collect();
        if nodes.is_empty() {
            let one = |(address, why): &(String, String)| format!("cannot use the server at {address}: {why}");
            let all: Vec<String> = grid.unreachable().iter().map(one).collect();
            return Err(Error::Connect(format!("{}; start one with 'gridloom serve --no-agent'", all.join("; "))));
        }
        grid.await_models(&nodes)?;
        Ok(grid)
    }

    /// Of a session without an agent: servers that it was given and cannot use now, and why.
    pub fn unreachable(&self) -> Vec<(String, String)> {
        self.absorb();
        let state = self.state();
        let why = |(address, way): (&String, &Result<NodeId, String>)| match way {
            Ok(server) if state.grid.server(*server).is_some() => None,
            Ok(_) => Some((address.clone(), "it does not say what it offers, or is gone".to_string())),
            Err(why) => Some((address.clone(), why.clone())),
        };
        let silent = state.given.iter().filter(|address| !state.ways.contains_key(*address));
        let seconds = CONNECT_PATIENCE.as_secs();
        let silent = silent.map(|address| (address.clone(), format!("no answer within {seconds} s")));
        state.ways.iter().filter_map(why).chain(silent).collect()
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
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            pid: std::process::id(),
            client: backend.client(),
            serial: AtomicU64::new(1),
            state: Mutex::default(),
            launches: Launches::default(),
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

    /// Waits until what those servers have learned is known to the agent, and here. One that is gone is not waited for.
    pub(crate) fn await_models(&self, servers: &[NodeId]) -> Result<(), Error> {
        self.state().untold.extend(servers);
        servers.iter().for_each(|server| self.command(Command::Models { server: *server }));
        let known = self.wait(Some(CONNECT_PATIENCE), |state| {
            let is_here = |server: &NodeId| state.grid.server(*server).is_some();
            let is_untold = |server: &NodeId| state.untold.contains(server) && is_here(server);
            (state.agent_lost.is_some() || !servers.iter().any(is_untold)).then_some(())
        });
        servers.iter().for_each(|server| {
            self.state().untold.remove(server);
        });
        match known {
            // What was measured is told by its result; others learn it later.
            Err(Error::TimedOut { .. }) => Ok(()),
            known => known,
        }
    }

    /// The function of that name (`module/function`, or `function` alone if only one module has it).
    ///
    /// # Errors
    /// If no server offers it; the message lists names like it.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        self.absorb();
        let state = self.state();
        let exact = state.functions.iter().find(|signature| signature.name == name);
        let short = state.functions.iter().filter(|s| s.name.rsplit('/').next() == Some(name));
        let short: Vec<&Signature> = short.collect();
        let Some(signature) = exact.or(short.first().copied().filter(|_| short.len() == 1)) else {
            if short.len() > 1 {
                let all: Vec<String> = short.iter().map(|signature| format!("'{}'", signature.name)).collect();
                let near = format!(" by that name alone; there are {}: give the module, too", all.join(" and "));
                return Err(Error::UnknownFunction { name: name.to_string(), near });
            }
            let near = near_names(name, state.functions.iter().map(|signature| signature.name.as_str()));
            let near = match (near.is_empty(), state.functions.is_empty()) {
                (false, _) => format!("; did you mean {}?", near.join(" or ")),
                (true, false) => "; 'gridloom functions' lists what is offered".to_string(),
                (true, true) => "; no function is offered at all: start a server with 'gridloom serve'".to_string(),
            };
            return Err(Error::UnknownFunction { name: name.to_string(), near });
        };
        let signature = Arc::new(signature.clone());
        Ok(Function { grid: self.clone(), hash: signature.hash(), signature, only: None, place: None })
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

    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    pub(crate) fn client(&self) -> NodeId {
        self.0.client
    }

    pub(crate) fn next_serial(&self) -> u64 {
        self.0.serial.fetch_add(1, Ordering::Relaxed)
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

    pub(crate) fn command(&self, command: Command) {
        let mut commands = self.take_releases();
        commands.push(command);
        self.0.backend.commands(commands);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic while held")
    }

    /// Takes in what has happened so far, without waiting.
    fn absorb(&self) {
        let _ = self.wait_in_turn(Some(Duration::ZERO), |_| None::<()>);
    }

    /// Waits until `done` finds what it looks for in the state. In a simulation it runs what the program is called back for
    /// meanwhile.
    fn wait<R>(&self, patience: Option<Duration>, mut done: impl FnMut(&mut State) -> Option<R>) -> Result<R, Error> {
        if !self.is_simulated() {
            return self.wait_in_turn(patience, done);
        }
        loop {
            let found = self.wait_in_turn(patience, |state| match state.call_backs.take() {
                Some(call) => Some(Err(call)),
                None => done(state).map(Ok),
            })?;
            match found {
                Ok(found) => return Ok(found),
                Err((server, call, callee)) => self.run_call_back(server, call, &callee),
            }
        }
    }

    fn wait_in_turn<R>(
        &self,
        patience: Option<Duration>,
        mut done: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Error> {
        self.0.backend.wait(patience, |events| {
            let mut state = self.state();
            for event in events {
                state.absorb(event, self.0.client, &self.0.backend);
            }
            done(&mut state)
        })
    }
}

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
            gridloom_core::say!("gridloom: {why}");
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
            gridloom_core::say!("gridloom: {unread}");
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
        gridloom_core::say!("gridloom: cannot write the simulation's {what} to {}: {error}", path.display());
    }
}

impl std::fmt::Debug for Grid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grid(client {})", self.0.client)
    }
}
