//! What is under a session: a node of a real grid, or a simulation.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gridloom_core::base::time::SECOND_NS;
use gridloom_core::base::{DatumId, NodeId, Time};
use gridloom_core::node::{Client, ClientConfig, Command, Event, Independent, IndependentConfig, Node, Role};
use gridloom_net::driver::{BoxMachine, NetConfig, NetNode};
use gridloom_net::identity::Secret;
use gridloom_net::payload::Payload;
use gridloom_net::segment::{Pool, SegmentMut};
use gridloom_sim::process::Seat;

use crate::shared::SharedGrid;
use crate::simulate::{SimulateConfig, Simulated, SimulationReport};
use crate::{Error, LocalConfig, Value};

/// A simulation in which a program waits without limit, and nothing but heartbeats has happened for so long, stands
/// still.
const STALL_NS: u64 = 30 * 24 * 3600 * SECOND_NS;
/// Memory that a client keeps warm.
const POOL_KEEP_BYTES: u64 = 1 << 30;

pub(crate) enum Backend {
    Net(Arc<NetNode>),
    Sim(Box<Sim>),
}

/// A client of a simulation.
pub(crate) struct Sim {
    simulated: Simulated,
    drive: Drive,
}

/// Who lets time move where the client waits.
enum Drive {
    /// It does, and has the turn to: whoever has it takes in what the step brought before another looks, so that nobody waits
    /// in vain for what a second thread of the program has just been given.
    Own(Mutex<()>),
    /// It belongs to a process, which gives its turn away.
    Process(Seat, Arc<SharedGrid>),
}

impl Backend {
    pub(crate) fn connect(address: &str) -> Result<Backend, Error> {
        let secret = Secret::from_env().map_err(|error| Error::Connect(error.to_string()))?;
        Backend::connect_with(address, &secret.unwrap_or_else(Secret::none))
    }

    pub(crate) fn connect_with(address: &str, secret: &Secret) -> Result<Backend, Error> {
        check_address(address).map_err(Error::Connect)?;
        let config = NetConfig { secret: secret.clone(), pool_keep_bytes: POOL_KEEP_BYTES, ..NetConfig::default() };
        let agent = address.to_string();
        let make = |id, _: &str| {
            let name = format!("client-{}", std::process::id());
            Node::Client(Box::new(Client::new(ClientConfig { id, name, agent })))
        };
        let node = NetNode::start(make, config).map_err(|error| Error::Connect(error.to_string()))?;
        Ok(Backend::Net(node))
    }

    /// A client with an agent of its own, for those servers.
    pub(crate) fn connect_servers(servers: &[String]) -> Result<Backend, Error> {
        for address in servers {
            check_address_of("a server", address).map_err(Error::Connect)?;
        }
        let secret = Secret::from_env().map_err(|error| Error::Connect(error.to_string()))?;
        let secret = secret.unwrap_or_else(Secret::none);
        let config = NetConfig { secret, pool_keep_bytes: POOL_KEEP_BYTES, ..NetConfig::default() };
        let make = |id, _: &str| {
            let name = format!("client-{}", std::process::id());
            let config = IndependentConfig { id, name: name.clone(), servers: servers.to_vec() };
            (Role::Client, name, Box::new(Independent::new(config)) as BoxMachine)
        };
        let node = NetNode::start_with(config, make).map_err(|error| Error::Connect(error.to_string()))?;
        Ok(Backend::Net(node))
    }

    pub(crate) fn simulate(config: SimulateConfig) -> Result<(Backend, usize), Error> {
        let (simulated, servers) = Simulated::new(config)?;
        Ok((Backend::Sim(Box::new(Sim { simulated, drive: Drive::Own(Mutex::new(())) })), servers))
    }

    /// A client of the grid that simulated processes share, if the code that runs on this thread is such a process.
    pub(crate) fn of_process(local: Option<&LocalConfig>) -> Option<Result<Backend, Error>> {
        let (seat, shared) = SharedGrid::current()?;
        let simulated = Simulated::of_process(&seat, &shared, local);
        Some(simulated.map(|simulated| Backend::Sim(Box::new(Sim { simulated, drive: Drive::Process(seat, shared) }))))
    }

    pub(crate) fn client(&self) -> NodeId {
        match self {
            Backend::Net(node) => node.id(),
            Backend::Sim(sim) => sim.simulated.client,
        }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, Backend::Sim(_))
    }

    /// Whether functions' bodies run.
    pub(crate) fn has_content(&self) -> bool {
        match self {
            Backend::Net(_) => true,
            Backend::Sim(sim) => sim.simulated.executes,
        }
    }

    pub(crate) fn now(&self) -> Time {
        match self {
            Backend::Net(node) => node.now(),
            Backend::Sim(sim) => sim.simulated.simulation().now(),
        }
    }

    pub(crate) fn advance(&self, ns: u64) {
        match self {
            Backend::Net(_) => {}
            Backend::Sim(sim) => match &sim.drive {
                Drive::Own(_) => sim.simulated.simulation().advance(ns),
                Drive::Process(seat, _) => {
                    let until = sim.simulated.simulation().now() + ns;
                    // A process that has to end is told so by what it calls next.
                    let _ = seat.sleep_until(until);
                }
            },
        }
    }

    /// How many servers of a grid that processes share have not ended; `None` for other grids.
    pub(crate) fn servers_alive(&self) -> Option<usize> {
        match self {
            Backend::Sim(sim) if matches!(sim.drive, Drive::Process(..)) => {
                Some(sim.simulated.simulation().servers_alive())
            }
            Backend::Sim(_) | Backend::Net(_) => None,
        }
    }

    pub(crate) fn allocate(&self, size_bytes: u64) -> io::Result<SegmentMut> {
        match self {
            Backend::Net(node) => node.store().pool().allocate(size_bytes),
            Backend::Sim(_) => Pool::new(0).allocate(size_bytes),
        }
    }

    pub(crate) fn put(&self, datum: DatumId, value: &Value) {
        match self {
            Backend::Net(node) => {
                let payload = value.payload.clone().unwrap_or_else(|| zeros(value.meta.size_bytes()));
                node.store().put(datum, value.meta.clone(), payload);
            }
            Backend::Sim(sim) => {
                let Simulated { client, executes, .. } = sim.simulated;
                let bytes = value.payload.as_ref().filter(|_| executes).map(|payload| payload.bytes().into());
                sim.simulated.simulation().put(client, datum, value.meta.clone(), bytes);
            }
        }
    }

    /// The value, which stays in the store.
    pub(crate) fn value(&self, datum: DatumId) -> Option<Value> {
        match self {
            Backend::Net(node) => node.store().get(&datum).map(|(meta, payload)| Value::of(meta, payload)),
            Backend::Sim(sim) => {
                let (meta, bytes) = sim.simulated.simulation().value(sim.simulated.client, datum)?;
                Some(match bytes {
                    Some(bytes) => Value::of(meta, Payload::Inline(bytes)),
                    None => Value::placeholder(meta),
                })
            }
        }
    }

    /// The value, taken out of the store.
    pub(crate) fn take(&self, datum: DatumId) -> Option<Value> {
        let value = self.value(datum);
        self.forget(datum);
        value
    }

    pub(crate) fn forget(&self, datum: DatumId) {
        match self {
            Backend::Net(node) => {
                node.store().remove(&datum);
            }
            Backend::Sim(sim) => {
                sim.simulated.simulation().remove(sim.simulated.client, datum);
            }
        }
    }

    pub(crate) fn commands(&self, commands: Vec<Command>) {
        match self {
            Backend::Net(node) => node.commands(commands),
            Backend::Sim(sim) => {
                let mut simulation = sim.simulated.simulation();
                for command in commands {
                    simulation.command(sim.simulated.client, command);
                }
            }
        }
    }

    /// Hands over events until `take` has what it looks for, or the patience is at its end.
    pub(crate) fn wait<R>(
        &self,
        patience: Option<Duration>,
        mut take: impl FnMut(Vec<Event>) -> Option<R>,
    ) -> Result<R, Error> {
        match self {
            Backend::Net(node) => {
                // Past what a clock can count there is no limit.
                let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
                let found = node.wait(deadline, |queue: &mut VecDeque<Event>| take(queue.drain(..).collect()));
                found.ok_or_else(|| match (node.is_forked(), node.is_closed()) {
                    (true, _) => {
                        Error::Usage("the session belongs to the process that forked this one; open another".into())
                    }
                    // Whoever only looks, with no time to wait, has to learn it, too.
                    (false, true) => Error::Connect("the session is closed".into()),
                    (false, false) => timed_out(patience),
                })
            }
            Backend::Sim(sim) => match &sim.drive {
                Drive::Own(turn) => sim.step_until(turn, patience, take),
                Drive::Process(seat, _) => sim.wait_in(seat, patience, take),
            },
        }
    }

    pub(crate) fn simulation_report(&self) -> Option<SimulationReport> {
        match self {
            Backend::Net(_) => None,
            Backend::Sim(sim) => Some(sim.simulated.report()),
        }
    }

    /// Where a simulation's report is to be written at the end.
    pub(crate) fn report_path(&self) -> Option<PathBuf> {
        match self {
            Backend::Net(_) => None,
            Backend::Sim(sim) => sim.simulated.report_path.clone(),
        }
    }

    /// Where a simulation's timeline is to be written at the end.
    pub(crate) fn timeline_path(&self) -> Option<PathBuf> {
        match self {
            Backend::Net(_) => None,
            Backend::Sim(sim) => sim.simulated.timeline_path.clone(),
        }
    }

    /// Completes what a simulation writes while it runs; why it cannot.
    pub(crate) fn finish(&self) -> Option<String> {
        match self {
            Backend::Net(_) => None,
            Backend::Sim(sim) => match sim.drive {
                Drive::Own(_) => sim.simulated.simulation().finish().err(),
                // The run does.
                Drive::Process(..) => None,
            },
        }
    }

    pub(crate) fn close(&self) {
        match self {
            Backend::Net(node) => node.stop(),
            Backend::Sim(sim) => {
                if let Drive::Process(..) = sim.drive {
                    sim.simulated.simulation().close(sim.simulated.client);
                }
            }
        }
    }

    /// The grid that the session shares with those of other processes, which gets what the session leaves for the report.
    pub(crate) fn shared(&self) -> Option<&SharedGrid> {
        match self {
            Backend::Sim(sim) => match &sim.drive {
                Drive::Process(_, shared) => Some(shared),
                Drive::Own(_) => None,
            },
            Backend::Net(_) => None,
        }
    }
}

impl Sim {
    fn step_until<R>(
        &self,
        turn: &Mutex<()>,
        patience: Option<Duration>,
        mut take: impl FnMut(Vec<Event>) -> Option<R>,
    ) -> Result<R, Error> {
        let client = self.simulated.client;
        let ns = patience.map_or(STALL_NS, |patience| u64::try_from(patience.as_nanos()).unwrap_or(STALL_NS));
        let deadline = self.simulated.simulation().now() + ns;
        loop {
            let _turn = turn.lock().expect("no panic while held");
            if let Some(found) = take(Vec::new()) {
                return Ok(found);
            }
            let event = {
                let mut simulation = self.simulated.simulation();
                // Nothing more will come to who is dead.
                let deadline = if simulation.is_dead(client) { simulation.now() } else { deadline };
                simulation.next_event(client, Some(deadline))
            };
            let Some(event) = event else {
                self.check_alive()?;
                if patience.is_some() {
                    return Err(timed_out(patience));
                }
                let seconds = self.simulated.simulation().now().seconds();
                let waiting = "the program waits for something that will not come".to_string();
                return Err(Error::Stalled { seconds, waiting });
            };
            if let Some(found) = take(vec![event]) {
                return Ok(found);
            }
        }
    }

    fn wait_in<R>(
        &self,
        seat: &Seat,
        patience: Option<Duration>,
        mut take: impl FnMut(Vec<Event>) -> Option<R>,
    ) -> Result<R, Error> {
        let after = |limit: Duration| {
            let ns = u64::try_from(limit.as_nanos()).unwrap_or(STALL_NS).min(STALL_NS);
            self.simulated.simulation().now() + ns
        };
        let until = patience.map(after);
        if let Some(found) = take(Vec::new()) {
            return Ok(found);
        }
        loop {
            match seat.next_event(self.simulated.client, until)? {
                Some(event) => {
                    if let Some(found) = take(vec![event]) {
                        return Ok(found);
                    }
                }
                None => {
                    self.check_alive()?;
                    return Err(timed_out(patience));
                }
            }
        }
    }

    fn check_alive(&self) -> Result<(), Error> {
        let simulation = self.simulated.simulation();
        match simulation.why_dead(self.simulated.client) {
            None => Ok(()),
            Some(why) => Err(Error::Connect(format!("the simulated client is gone: {why}"))),
        }
    }
}

/// Refuses what cannot be an address of an agent, whatever runs where.
///
/// # Errors
/// In words, with what is expected.
pub fn check_address(address: &str) -> Result<(), String> {
    check_address_of("an agent", address)
}

fn check_address_of(whom: &str, address: &str) -> Result<(), String> {
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(port)) if port > 0 => Ok(()),
        _ => Err(format!("'{address}' is no address of {whom}; expected HOST:PORT, such as 127.0.0.1:7711")),
    }
}

fn timed_out(patience: Option<Duration>) -> Error {
    Error::TimedOut { limit_seconds: patience.unwrap_or_default().as_secs_f64() }
}

fn zeros(size_bytes: u64) -> Payload {
    Payload::Inline(vec![0; size_bytes as usize].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_looks_learns_that_the_session_is_closed() {
        // Nobody is there; that takes a while to be found out.
        let backend = Backend::connect_with("127.0.0.1:1", &Secret::none()).unwrap();
        let look = || backend.wait(Some(Duration::ZERO), |_| None::<()>).unwrap_err();
        assert!(matches!(look(), Error::TimedOut { .. }));
        backend.close();
        assert!(matches!(look(), Error::Connect(why) if why.contains("closed")));
    }
}
