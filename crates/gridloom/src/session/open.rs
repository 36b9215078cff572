//! Opens a session: on a running grid, on an embedded one, or on a simulated one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gridloom_base::NodeId;
use gridloom_base::address::SEPARATOR;
use gridloom_base::dial::ConnectionFault;

use super::parts::{Dropped, Launches, ObjectCounts, Retention};
use super::{CONNECT_LIMIT, Inner, OptionalPriority, Session, State, await_models};
use crate::backend::{Backend, FunctionBackend, NetBackend, SimBackend};
use crate::local::{LocalConfig, LocalProcesses, StartProgress};
use crate::simulate::SimulateConfig;
use crate::testbed_grid::TestbedGridConfig;
use crate::{Error, log};

/// Number of sessions that this process has opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// Interval of the checks that the processes of the session's own grid still run.
const OWN_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Time after which a program that is connecting logs what it waits for.
const REPORT_AFTER: Duration = Duration::from_secs(5);

/// Connects to the agent at `address` (`host:port`).
///
/// # Errors
/// If it cannot be reached, refuses, or does not answer within the limit.
pub(crate) fn connect(address: &str, limit: Duration) -> Result<Session, Error> {
    if let Some(session) = from_environment(None)? {
        return Ok(session);
    }
    let began = Instant::now();
    let session = opened(NetBackend::connect(address, limit)?, None);
    await_agent(&session, address, limit.saturating_sub(began.elapsed()), limit)?;
    Ok(session)
}

/// Starts an embedded grid on this machine (one agent, some servers, separate processes on loopback) and connects
/// to it. It ends with the session, in all circumstances.
///
/// # Errors
/// If a process cannot be started, or a function cannot be offered.
pub(crate) fn local(config: LocalConfig) -> Result<Session, Error> {
    if let Some(session) = from_environment(Some(&config))? {
        return Ok(session);
    }
    let processes = LocalProcesses::start(&config)?;
    let backend = NetBackend::connect_with(&processes.address, &processes.keys, config.site(1))?;
    let session = opened(backend, Some(processes));
    let awaited = || match session.state_now().directory.agent_lost() {
        Some(error) => error.to_string(),
        None => "the agent has not answered yet".to_string(),
    };
    let is_slow = |fault: ConnectionFault| !fault.is_refusal();
    await_own(&session, awaited, |state| state.directory.is_connected(is_slow))??;
    let awaited = || "the agent does not know all servers yet".to_string();
    await_own(&session, awaited, |state| has_servers(state, config.servers))?;
    Ok(session)
}

/// Opens a simulated grid on a platform, in virtual time.
///
/// # Errors
/// If the platform or the functions cannot be used.
pub(crate) fn simulate(config: SimulateConfig) -> Result<Session, Error> {
    let (backend, servers) = SimBackend::new(config)?;
    let session = open_simulated(backend)?;
    await_servers(&session, servers)?;
    Ok(session)
}

/// Connects to those servers (`host:port`) without an agent: the session maps calls itself, from the servers' reports.
/// Two such sessions do not know each other's reservations.
///
/// Servers that answer are used; [`Grid::unreachable`](crate::Grid::unreachable) lists the others, which are dialled again while the
/// session lasts.
///
/// # Errors
/// If an address is invalid; if none of them can be used, with the reason for each.
pub(crate) fn connect_servers(servers: &[String], limit: Duration) -> Result<Session, Error> {
    if let Some(session) = from_environment(None)? {
        return Ok(session);
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
    let (began, whom) = (Instant::now(), servers.join(", "));
    let session = opened(NetBackend::connect_servers(&servers, limit)?, None);
    session.state().addresses.give(addresses, limit);
    // The session's own agent answers at once.
    await_agent(&session, &whom, limit.saturating_sub(began.elapsed()), limit)?;
    let left = limit.saturating_sub(began.elapsed());
    match wait_with_report(&session, &whom, left, limit, |state| state.has_addresses().then_some(())) {
        Ok(()) | Err(Error::TimedOut { .. }) => {}
        Err(error) => return Err(error),
    }
    let nodes: Vec<NodeId> = session.servers().servers.iter().map(|server| server.node).collect();
    if nodes.is_empty() {
        let one = |(address, why): &(String, String)| format!("cannot use the server at {address}: {why}");
        let all: Vec<String> = session.state_now().unreachable().iter().map(one).collect();
        return Err(Error::Connect(format!("{}; start one with 'gridloom serve --no-agent'", all.join("; "))));
    }
    await_models(&session, &nodes, limit)?;
    Ok(session)
}

/// Under `gridloom simulate` and `gridloom testbed`, a grid that a program starts or connects to is always the simulated grid,
/// or the testbed's. A simulated process gets a client in its own simulation, and so does a function that a simulated grid runs.
fn from_environment(local: Option<&LocalConfig>) -> Result<Option<Session>, Error> {
    if let Some(backend) = FunctionBackend::of_function() {
        return open_simulated(backend?).map(Some);
    }
    if let Some(backend) = SimBackend::of_process(local) {
        let session = open_simulated(backend?)?;
        // Servers that are down are not awaited.
        let known = session.wait(Some(CONNECT_LIMIT), |state| {
            let alive = session.0.backend.simulated().map_or(0, SimBackend::servers_alive);
            (state.directory.servers().servers.len() >= alive).then_some(())
        });
        return match known {
            Err(Error::TimedOut { .. }) => Err(Error::Connect("not all servers registered".into())),
            known => known.map(|()| Some(session)),
        };
    }
    if let Some(config) = SimulateConfig::from_environment(local)? {
        return simulate(config).map(Some);
    }
    let Some(config) = TestbedGridConfig::from_environment(local)? else { return Ok(None) };
    let session = opened(NetBackend::connect(&config.agent, CONNECT_LIMIT)?, None);
    await_agent(&session, &config.agent, CONNECT_LIMIT, CONNECT_LIMIT)?;
    await_servers(&session, config.servers)?;
    Ok(Some(session))
}

fn open_simulated(backend: impl Backend + 'static) -> Result<Session, Error> {
    let session = opened(backend, None);
    await_agent(&session, "the simulated agent", CONNECT_LIMIT, CONNECT_LIMIT)?;
    Ok(session)
}

fn opened(backend: impl Backend + 'static, processes: Option<LocalProcesses>) -> Session {
    let keeps = match backend.simulated() {
        None => Retention::Nothing,
        Some(simulated) if simulated.timeline_path().is_none() => Retention::Summaries,
        Some(_) => Retention::Records,
    };
    let inner = Inner {
        number: OPENED.fetch_add(1, Ordering::Relaxed),
        pid: std::process::id(),
        client: backend.client(),
        serial: AtomicU64::new(1),
        state: Mutex::new(State::new(keeps)),
        launches: Launches::default(),
        objects: ObjectCounts::default(),
        dropped: Dropped::default(),
        modules: Mutex::default(),
        processes: Mutex::new(processes),
        priority: OptionalPriority::default(),
        listener: OnceLock::new(),
        backend: Arc::new(backend),
    };
    Session(Arc::new(inner))
}

/// Time that a standby agent which has just taken over gives servers to register.
const SETTLES: Duration = Duration::from_secs(3);

/// Waits for the first answer of the agent at that address: `left` is the rest of the limit.
fn await_agent(session: &Session, address: &str, left: Duration, limit: Duration) -> Result<(), Error> {
    // A standby agent takes over within seconds.
    let has_standby = address.contains(SEPARATOR);
    let recovers = |fault: ConnectionFault| fault.may_recover() || has_standby && !fault.is_permanent();
    let is_connected = |state: &mut State| state.directory.is_connected(recovers);
    match wait_with_report(session, address, left, limit, is_connected) {
        Ok(result) => {
            result?;
            if has_standby {
                // A grid without servers is a grid, too.
                let _ = session.wait(Some(SETTLES.min(left)), |state| has_servers(state, 1));
            }
            Ok(())
        }
        Err(error @ Error::Process(_)) => Err(error),
        Err(_) => {
            let lost = session.state_now().directory.agent_lost().map(ToString::to_string);
            let silent = || {
                let seconds = limit.as_secs_f64();
                let remedy = ConnectionFault::Silent.agent_remedy();
                format!("cannot use the agent at {address}: it did not answer within the limit of {seconds} s{remedy}")
            };
            Err(Error::Connect(lost.unwrap_or_else(silent)))
        }
    }
}

/// Waits, and logs a long wait once. `left` is the rest of the limit.
fn wait_with_report<R>(
    session: &Session,
    address: &str,
    left: Duration,
    limit: Duration,
    mut done: impl FnMut(&mut State) -> Option<R>,
) -> Result<R, Error> {
    match session.wait(Some(left.min(REPORT_AFTER)), &mut done) {
        Err(Error::TimedOut { .. }) if left > REPORT_AFTER => {}
        result => return result,
    }
    let (waited, seconds) = (REPORT_AFTER.as_secs(), limit.as_secs_f64());
    log::warn(&format!("{address} has not answered for {waited} s; the connection fails after {seconds} s"));
    session.wait(Some(left - REPORT_AFTER), done)
}

/// Waits for the processes of the session's own grid as long as they run.
fn await_own<R>(
    session: &Session,
    awaited: impl Fn() -> String,
    mut done: impl FnMut(&mut State) -> Option<R>,
) -> Result<R, Error> {
    let mut progress = StartProgress::new();
    loop {
        match session.wait(Some(OWN_CHECK_INTERVAL), &mut done) {
            Err(Error::TimedOut { .. }) => {}
            result => return result,
        }
        let mut processes = session.0.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.as_mut().map_or(Ok(()), LocalProcesses::check_alive)?;
        progress.report(&awaited);
    }
}

fn has_servers(state: &State, count: usize) -> Option<()> {
    (state.directory.servers().servers.len() >= count).then_some(())
}

fn await_servers(session: &Session, count: usize) -> Result<(), Error> {
    session
        .wait(Some(CONNECT_LIMIT), |state| has_servers(state, count))
        .map_err(|_| Error::Connect(format!("not all of the {count} servers registered")))
}
