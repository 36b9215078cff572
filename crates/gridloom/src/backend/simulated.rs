//! A client of a simulation, in virtual time.
//!
//! In a program's own simulation, time advances when its client waits. In the simulation of a deployment's processes many clients
//! share one grid ([`SharedSimGrid`]), and a client that waits yields its process's turn.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gridloom_base::address::host_of;
use gridloom_base::time::SECOND_NS;
use gridloom_base::{DatumId, NodeId, Time};
use gridloom_core::node::{Command, Event};
use gridloom_net::payload::Payload;
use gridloom_net::segment::{Pool, SegmentMut};
use gridloom_net::transfers::TransferProgress;
use gridloom_sim::Simulation;
use gridloom_sim::process::ProcessContext;

use super::{Backend, timed_out};
use crate::simulate::{SharedSimGrid, SimulateConfig, SimulationReport, host_memory_bytes, start_simulation};
use crate::{Error, LocalConfig, Value};

/// A simulation with a client of its grid.
pub(crate) struct SimBackend {
    simulation: Arc<Mutex<Simulation>>,
    client: NodeId,
    executes: bool,
    report_path: Option<PathBuf>,
    timeline_path: Option<PathBuf>,
    names: BTreeMap<NodeId, String>,
    drive: Drive,
}

/// The part that advances time while the client waits.
enum Drive {
    /// The client itself. The thread that holds the lock steps the simulation and processes the events of a step before another
    /// thread checks. So no thread keeps waiting for something that another one has already received.
    Own(Mutex<()>),
    /// The run of all processes; the context is that of the client's process.
    Process(ProcessContext, Arc<SharedSimGrid>),
}

impl SimBackend {
    /// Creates a simulation for one client. Returns it with its number of servers.
    pub(crate) fn new(config: SimulateConfig) -> Result<(SimBackend, usize), Error> {
        let (simulation, client, names) = start_simulation(&config)?;
        // All nodes but the agent and the client.
        let servers = names.len() - 2;
        let backend = SimBackend {
            simulation: Arc::new(Mutex::new(simulation)),
            client,
            executes: config.execute,
            report_path: config.report,
            timeline_path: config.timeline,
            names,
            drive: Drive::Own(Mutex::new(())),
        };
        Ok((backend, servers))
    }

    /// Creates a client of the grid that simulated processes share; `None` if the code on this thread is not such a process.
    pub(crate) fn of_process(local: Option<&LocalConfig>) -> Option<Result<SimBackend, Error>> {
        let (context, shared) = SharedSimGrid::current()?;
        Some(shared.open(&context, local).map(|client| SimBackend {
            simulation: context.shared_simulation(),
            client,
            executes: shared.config.execute,
            // The run writes the report.
            report_path: None,
            timeline_path: shared.config.timeline.clone(),
            names: shared.names(),
            drive: Drive::Process(context, shared),
        }))
    }

    /// Number of servers that have not ended.
    pub(crate) fn servers_alive(&self) -> usize {
        self.simulation().servers_alive()
    }

    /// The name of the client's host.
    pub(crate) fn host(&self) -> String {
        self.simulation().host_of(self.client).to_string()
    }

    /// Makes the report, without the session's groups.
    pub(crate) fn report(&self) -> SimulationReport {
        SimulationReport::new(&self.simulation(), &self.names)
    }

    /// The file for the report.
    pub(crate) fn report_path(&self) -> Option<&PathBuf> {
        self.report_path.as_ref()
    }

    /// The file for the timeline.
    pub(crate) fn timeline_path(&self) -> Option<&PathBuf> {
        self.timeline_path.as_ref()
    }

    /// Completes the files that the simulation writes while it runs. Returns the error if that fails.
    pub(crate) fn finish(&self) -> Option<String> {
        match self.drive {
            Drive::Own(_) => self.simulation().finish().err(),
            // The run does this.
            Drive::Process(..) => None,
        }
    }

    /// The grid that the session shares with those of other processes; it collects the session's part of the report.
    pub(crate) fn shared(&self) -> Option<&SharedSimGrid> {
        match &self.drive {
            Drive::Process(_, shared) => Some(shared),
            Drive::Own(_) => None,
        }
    }

    fn simulation(&self) -> MutexGuard<'_, Simulation> {
        self.simulation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next event of the client, if there is one by `until`.
    fn step(&self, until: Time) -> Option<Event> {
        let mut simulation = self.simulation();
        // A dead client receives no further events.
        let until = if simulation.is_dead(self.client) { simulation.now() } else { until };
        simulation.next_event(self.client, Some(until))
    }

    /// Returns an error if virtual time stands still.
    fn check_time(&self) -> Result<(), Error> {
        let simulation = self.simulation();
        match simulation.standstill() {
            None => Ok(()),
            Some(why) => Err(Error::Stalled { seconds: simulation.now().seconds(), waiting: why.to_string() }),
        }
    }

    fn check_alive(&self) -> Result<(), Error> {
        match self.simulation().why_dead(self.client) {
            None => Ok(()),
            Some(why) => Err(Error::Connect(format!("the simulated client is gone: {why}"))),
        }
    }
}

impl Backend for SimBackend {
    fn client(&self) -> NodeId {
        self.client
    }

    fn now(&self) -> Time {
        self.simulation().now()
    }

    fn has_content(&self) -> bool {
        self.executes
    }

    fn advance(&self, ns: u64, accessed_bytes: u64) {
        let ns = ns.saturating_add(self.simulation().paging_ns(self.client, accessed_bytes));
        match &self.drive {
            Drive::Own(_) => self.simulation().advance(ns),
            Drive::Process(context, _) => {
                let until = self.now() + ns;
                // If the process has to end, its next call returns the error.
                let _ = context.sleep_until(until);
            }
        }
    }

    fn hold_memory(&self, size_bytes: u64) {
        self.simulation().hold(self.client, size_bytes);
    }

    fn memory_bytes(&self) -> Option<u64> {
        let simulation = self.simulation();
        let platform = simulation.platform();
        let host = platform.host(simulation.host_of(self.client))?;
        host_memory_bytes(platform, host).ok()?
    }

    fn caller(&self) -> Option<Box<str>> {
        None
    }

    fn client_flops(&self) -> Option<f64> {
        Some(self.simulation().flops_of(self.client))
    }

    fn allocate(&self, size_bytes: u64) -> io::Result<SegmentMut> {
        Pool::new(0).allocate(size_bytes)
    }

    fn put(&self, datum: DatumId, value: &Value) {
        let bytes = value.payload.as_ref().filter(|_| self.executes).map(|payload| payload.bytes().into());
        self.simulation().put(self.client, datum, value.meta.clone(), bytes);
    }

    fn value(&self, datum: DatumId) -> Option<Value> {
        let (meta, bytes) = self.simulation().value(self.client, datum)?;
        Some(match bytes {
            Some(bytes) => Value::from_checked(meta, Payload::Inline(bytes)),
            None => Value::placeholder(meta),
        })
    }

    fn transfers(&self) -> Vec<TransferProgress> {
        Vec::new()
    }

    fn remove(&self, datum: DatumId) {
        self.simulation().remove(self.client, datum);
    }

    fn commands(&self, commands: Vec<Command>) {
        let mut simulation = self.simulation();
        commands.into_iter().for_each(|command| simulation.command(self.client, command));
    }

    fn wait_until(
        &self,
        limit: Option<Duration>,
        take: &mut dyn FnMut(&mut VecDeque<Event>) -> bool,
    ) -> Result<(), Error> {
        let begin = self.now();
        let after = |limit: Duration| begin + u64::try_from(limit.as_nanos()).unwrap_or(STALL_NS);
        let until = limit.map(after);
        let (mut last_event, mut stalls_at) = (begin, until.unwrap_or(begin + STALL_NS));
        let mut events = VecDeque::new();
        loop {
            let (_turn, event) = match &self.drive {
                Drive::Own(turn) => {
                    let turn = turn.lock().expect("no panic while held");
                    if take(&mut events) {
                        return Ok(());
                    }
                    (Some(turn), self.step(stalls_at.min(self.now() + CHECK_NS)))
                }
                Drive::Process(context, _) => {
                    if take(&mut events) {
                        return Ok(());
                    }
                    (None, context.next_event(self.client, until)?)
                }
            };
            let Some(event) = event else {
                self.check_alive()?;
                self.check_time()?;
                if until.is_none() {
                    let simulation = self.simulation();
                    let (now, latest) = (simulation.now(), last_event + CHANGES_NS_MAX);
                    if simulation.has_flows() || (simulation.has_changes() && now < latest) {
                        stalls_at = now + STALL_NS;
                    }
                }
                if matches!(self.drive, Drive::Own(_)) && self.now() < stalls_at {
                    continue;
                }
                return Err(match (limit, &self.drive) {
                    (None, Drive::Own(_)) => {
                        let hours = STALL_NS / (3600 * SECOND_NS);
                        let waiting = format!(
                            "the program is waiting, but only heartbeats have happened in {hours} h of virtual time; \
                             give the wait a time limit"
                        );
                        Error::Stalled { seconds: self.now().seconds(), waiting }
                    }
                    (limit, _) => timed_out(limit),
                });
            };
            events.push_back(event);
            last_event = self.now();
            stalls_at = until.unwrap_or(last_event + STALL_NS);
            if take(&mut events) {
                return Ok(());
            }
        }
    }

    /// Does nothing: a wait checks again after each event, and each minute of virtual time.
    fn wake(&self) {}

    fn close(&self) {
        if let Drive::Process(..) = self.drive {
            self.simulation().close(self.client);
        }
    }

    fn simulated(&self) -> Option<&SimBackend> {
        Some(self)
    }
}

/// If a program waits without limit and no transfer, task, profile or fault has been pending for this long, the simulation
/// is stalled: only heartbeats are left.
const STALL_NS: u64 = 24 * 3600 * SECOND_NS;
/// Maximum virtual time for which a program waits for changes by profiles and faults, because a profile may loop forever.
const CHANGES_NS_MAX: u64 = 30 * STALL_NS;
/// Maximum virtual time before a wait checks whether it has to end: a few milliseconds of real time.
const CHECK_NS: u64 = 60 * SECOND_NS;

/// Returns the host of a simulated node's address.
pub(crate) fn simulated_host_of(address: &str) -> &str {
    host_of(address).trim_start_matches("sim://")
}
