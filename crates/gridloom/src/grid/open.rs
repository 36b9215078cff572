//! Opens a session: on a running grid, on an embedded one, or on a simulated one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use super::groups::Keeps;
use super::{CONNECT_LIMIT, Dropped, Inner, State};
use crate::attach::AttachConfig;
use crate::backend::{Backend, NetBackend, SimBackend};
use crate::group::Launches;
use crate::local::LocalProcesses;
use crate::object::ObjectCounts;
use crate::{Error, Grid, LocalConfig, SimulateConfig};

/// Number of sessions that this process has opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

impl Grid {
    /// Connects to the agent at `address` (`host:port`).
    ///
    /// # Errors
    /// If it cannot be reached, refuses, or does not answer.
    pub fn connect(address: &str) -> Result<Grid, Error> {
        if let Some(grid) = Grid::from_environment(None)? {
            return Ok(grid);
        }
        Grid::open(NetBackend::connect(address)?, None)
    }

    /// Starts an embedded grid on this machine (one agent, some servers, separate processes on loopback) and connects
    /// to it. It ends with the session, in all circumstances.
    ///
    /// # Errors
    /// If a process cannot be started, or a function cannot be offered.
    pub fn local(config: LocalConfig) -> Result<Grid, Error> {
        if let Some(grid) = Grid::from_environment(Some(&config))? {
            return Ok(grid);
        }
        let processes = LocalProcesses::start(&config)?;
        let backend = NetBackend::connect_with(&processes.address, &processes.secret, config.site(1))?;
        let grid = Grid::open(backend, Some(processes))?;
        grid.await_servers(config.servers)?;
        Ok(grid)
    }

    /// Opens a simulated grid on a platform, in virtual time.
    ///
    /// # Errors
    /// If the platform or the functions cannot be used.
    pub fn simulate(config: SimulateConfig) -> Result<Grid, Error> {
        let (backend, servers) = SimBackend::new(config)?;
        let grid = Grid::open(backend, None)?;
        grid.await_servers(servers)?;
        Ok(grid)
    }

    /// Under `gridloom simulate` and `gridloom testbed`, a grid that a program starts or connects to is always the simulated grid,
    /// or the testbed's. A simulated process gets a client in its own simulation.
    pub(super) fn from_environment(local: Option<&LocalConfig>) -> Result<Option<Grid>, Error> {
        if let Some(backend) = SimBackend::of_process(local) {
            let grid = Grid::open(backend?, None)?;
            // Servers that are down are not awaited.
            let known = grid.wait(Some(CONNECT_LIMIT), |state| {
                let alive = grid.0.backend.simulated().map_or(0, SimBackend::servers_alive);
                (state.directory.servers().servers.len() >= alive).then_some(())
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
        let grid = Grid::open(NetBackend::connect(&config.agent)?, None)?;
        grid.await_servers(config.servers)?;
        Ok(Some(grid))
    }

    pub(super) fn open(backend: impl Backend + 'static, processes: Option<LocalProcesses>) -> Result<Grid, Error> {
        let keeps = match backend.simulated() {
            None => Keeps::Nothing,
            Some(simulated) if simulated.timeline_path().is_none() => Keeps::Summaries,
            Some(_) => Keeps::Records,
        };
        let inner = Inner {
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            pid: std::process::id(),
            client: backend.client(),
            serial: AtomicU64::new(1),
            state: Mutex::new(State::new(keeps)),
            launches: Launches::default(),
            objects: ObjectCounts::default(),
            dropped: Mutex::new(Dropped::default()),
            modules: Mutex::default(),
            processes: Mutex::new(processes),
            listener: OnceLock::new(),
            backend: Box::new(backend),
        };
        let grid = Grid::new(inner);
        let connected = grid.wait(Some(CONNECT_LIMIT), |state| state.directory.is_connected());
        match connected {
            Ok(result) => result?,
            Err(error @ Error::Process(_)) => return Err(error),
            Err(_) => {
                let seconds = CONNECT_LIMIT.as_secs();
                return Err(Error::Connect(format!("the agent did not answer within {seconds} s")));
            }
        }
        Ok(grid)
    }

    fn await_servers(&self, count: usize) -> Result<(), Error> {
        self.wait(Some(CONNECT_LIMIT), |state| (state.directory.servers().servers.len() >= count).then_some(()))
            .map_err(|_| Error::Connect(format!("not all of the {count} servers registered")))
    }
}
