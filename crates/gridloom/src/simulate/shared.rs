//! The simulated grid that the processes of a deployment share: one agent and its servers, with a client for each session.
//!
//! Its nodes are placed by the platform's host properties, as for a program without processes. The first process that opens a
//! session starts it. If faults affect one of its nodes, it starts at the beginning. If no process opens
//! a session, the run has no grid.
//!
//! **Invariant:** a session of a process belongs to it and waits in the process's own thread. Its client ends when the
//! session is closed, or when the process ends, whichever is first.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_base::{GroupId, NodeId};
use gridloom_platform::{HostId, Platform};
use gridloom_sim::Simulation;
use gridloom_sim::faults::{FaultTargets, Scenario};
use gridloom_sim::process::ProcessContext;

use super::{Roles, SimulateConfig, check_functions, check_route, schedule_faults, start_grid};
use crate::report::{GroupRecord, Report, ReportContext, timeline_html};
use crate::{Error, LocalConfig};

/// The state that the processes of a simulation share.
pub(crate) struct SharedSimGrid {
    pub(crate) config: SimulateConfig,
    platform: Arc<Platform>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    started: Option<StartedGrid>,
    ended: ClosedSessions,
}

struct StartedGrid {
    roles: Roles,
    /// Files that describe the servers' functions.
    functions: Vec<PathBuf>,
    names: BTreeMap<NodeId, String>,
}

/// Contributions of closed sessions to the report.
#[derive(Default)]
struct ClosedSessions {
    summaries: BTreeMap<GroupId, (String, f64, f64)>,
    groups: BTreeMap<GroupId, GroupRecord>,
    /// Slots of servers.
    slots: BTreeMap<NodeId, u32>,
}

impl SharedSimGrid {
    pub(crate) fn new(config: SimulateConfig, platform: Arc<Platform>) -> SharedSimGrid {
        SharedSimGrid { config, platform, state: Mutex::default() }
    }

    /// Returns the shared grid of the process that runs code on this thread.
    pub(crate) fn current() -> Option<(ProcessContext, Arc<SharedSimGrid>)> {
        let context = ProcessContext::current()?;
        let shared = context.common()?.clone().downcast::<SharedSimGrid>().ok()?;
        Some((context, shared))
    }

    /// Opens a client for a process. `local` is the grid that the program would have started itself.
    pub(crate) fn open(&self, context: &ProcessContext, local: Option<&LocalConfig>) -> Result<NodeId, Error> {
        let mut state = self.state();
        match &state.started {
            None => {
                let started = self.start(&mut context.simulation(), local)?;
                state.started = Some(started);
            }
            Some(started) => check_functions(&started.functions, local)?,
        }
        let started = state.started.as_mut().expect("it was started a moment ago");
        let host = context.host();
        check_route(&self.platform, host, started.roles.agent)?;
        for part in &started.roles.servers {
            check_route(&self.platform, host, part.host)?;
        }
        let spec = context.spec();
        let name = free_name(&context.simulation(), &format!("{}@{}", spec.function, spec.host));
        let client = context.add_client(&name);
        started.names.insert(client, name);
        Ok(client)
    }

    /// Schedules the scenario's faults, and starts the grid immediately if they affect one of its nodes. `clients`
    /// has the names and hosts of the processes that may become clients.
    pub(crate) fn schedule(
        &self,
        simulation: &mut Simulation,
        scenario: &Scenario,
        clients: Vec<(String, String)>,
    ) -> Result<(), Error> {
        let mut state = self.state();
        // A platform without a grid has no nodes for faults.
        let roles = Roles::new(&self.platform, None);
        let names = roles.as_ref().map_or(Ok(Vec::new()), |roles| roles.names(&self.platform))?;
        let grid: Vec<&str> = names.iter().map(String::as_str).collect();
        let nodes: Vec<&str> = grid.iter().copied().chain(clients.iter().map(|(name, _)| name.as_str())).collect();
        let hosts: Vec<&str> = self.platform.hosts().iter().map(|host| host.name.as_str()).collect();
        let links: Vec<&str> = self.platform.links().iter().map(|link| link.name.as_str()).collect();
        scenario.check(&nodes, &hosts, &links).map_err(|error| Error::Input(error.to_string()))?;
        for name in scenario.nodes().filter(|name| grid.contains(name)) {
            if let Some((process, _)) = clients.iter().find(|(_, host)| host == name) {
                gridloom_base::stderr_line!(
                    "gridloom: faults of '{name}' affect the grid's server of that name, not '{process}', which has \
                        its own name"
                );
            }
        }
        let mut field = FaultTargets { clients, ..FaultTargets::default() };
        // Random faults affect a grid if the platform defines one; otherwise processes, which may use no grid.
        let has_roles = self.platform.hosts().iter().any(|host| host.properties.contains_key("role"));
        let draws_grid = scenario.has_random_faults() && has_roles && roles.is_ok();
        if draws_grid || scenario.names(&grid, &hosts) {
            let roles = roles?;
            let host = |id: HostId| self.platform.hosts()[id.0 as usize].name.clone();
            let servers = roles.servers.iter().zip(&names[1..]);
            field.servers = servers.map(|(part, name)| (name.clone(), host(part.host))).collect();
            field.agent = (names[0].clone(), host(roles.agent));
            state.started = Some(self.start(simulation, None)?);
        }
        schedule_faults(simulation, scenario, &field, self.config.seed);
        Ok(())
    }

    fn start(&self, simulation: &mut Simulation, local: Option<&LocalConfig>) -> Result<StartedGrid, Error> {
        let config = self.config.clone().with_local(local);
        let roles = Roles::new(&self.platform, None)?;
        let names = start_grid(simulation, &config, &roles)?;
        Ok(StartedGrid { roles, functions: config.functions, names })
    }

    /// Called when a session is closed.
    pub(crate) fn closed(
        &self,
        summaries: BTreeMap<GroupId, (String, f64, f64)>,
        groups: BTreeMap<GroupId, GroupRecord>,
        slots: BTreeMap<NodeId, u32>,
    ) {
        let mut state = self.state();
        state.ended.summaries.extend(summaries);
        if self.config.timeline.is_some() {
            state.ended.groups.extend(groups);
            state.ended.slots.extend(slots);
        }
    }

    /// Names of all nodes; empty before the grid has started.
    pub(crate) fn names(&self) -> BTreeMap<NodeId, String> {
        self.state().started.as_ref().map(|started| started.names.clone()).unwrap_or_default()
    }

    /// Heuristic, predicted and simulated makespan of all groups of closed sessions, ordered by client and group.
    pub(crate) fn summaries(&self) -> Vec<(String, f64, f64)> {
        self.state().ended.summaries.values().cloned().collect()
    }

    /// Returns the timeline of all groups as a page.
    pub(crate) fn timeline(&self) -> String {
        let names = self.names();
        let state = self.state();
        let clients: Vec<NodeId> = state.ended.groups.keys().map(|group| group.client).collect();
        let records = state.ended.groups.values();
        let setting = ReportContext { clients: &clients, names: &names, slots: &state.ended.slots, is_simulated: true };
        timeline_html("Simulated groups", &Report::new("the program's heuristics", records, &setting))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name, with a number appended if a live client has it.
fn free_name(simulation: &Simulation, name: &str) -> String {
    let is_free = |name: &str| simulation.node_named(name).is_none_or(|node| simulation.is_dead(node));
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_string()).chain(numbered);
    names.find(|name| is_free(name)).expect("there are more numbers than nodes")
}
