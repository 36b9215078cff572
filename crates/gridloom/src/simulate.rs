//! Simulated grids: which host of a platform plays which part, and what a run has to report.
//!
//! Host properties say who is what: `role` (`agent`, `server`, `client`, several of them with commas, or `none`),
//! `slots`, `functions` (names with commas; `*` at the end stands for any rest), `memory`, `plain` (`yes`), `name`.
//! Without them the first host is client and agent, and every other a server of all functions. A deployment file's
//! processes `agent`, `server` and `client`, with arguments such as `slots=2`, take their place.

mod bodies;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridloom_core::base::NodeId;
use gridloom_core::base::limits::STORE_BYTES_DEFAULT;
use gridloom_core::flow::NetworkModel;
use gridloom_core::idl::Definition;
use gridloom_core::map::SplitMix64;
use gridloom_core::node::world::ServerSpec;
use gridloom_core::platform::{HostId, Platform, deployment, units};
use gridloom_sim::faults::{Field, Scenario};
use gridloom_sim::process::Seat;
use gridloom_sim::{SimConfig, Simulation};
use serde::{Deserialize, Serialize};

use crate::local::program_path;
use crate::offer::{BUILTIN_LINALG, InlineBodies, load_offer};
use crate::process::Deployment;
use crate::shared::SharedGrid;
use crate::trace::Tracer;
use crate::{Error, LocalConfig, read_text};
use bodies::RealBodies;

/// Set by `gridloom simulate` for the program that it runs.
const VARIABLE: &str = "GRIDLOOM_SIMULATE";

/// Functions of a deployment's processes that are parts of the grid.
pub const GRID_PARTS: [&str; 3] = ["agent", "server", "client"];

/// What to simulate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SimulateConfig {
    /// Platform file.
    pub platform: PathBuf,
    /// Deployment file.
    #[serde(default)]
    pub deployment: Option<PathBuf>,
    /// Scenario of faults; its times count from the beginning of the simulation.
    #[serde(default)]
    pub faults: Option<PathBuf>,
    /// Files that say what the servers offer: `.idl`, `.py`, `builtin:linalg` and its like.
    #[serde(default)]
    pub functions: Vec<PathBuf>,
    /// Libraries for the `.idl` files, if bodies are run.
    #[serde(default)]
    pub libraries: Vec<PathBuf>,
    /// Run the bodies of tasks, so that results are real.
    #[serde(default)]
    pub execute: bool,
    /// For what is drawn at random.
    #[serde(default)]
    pub seed: u64,
    /// Network model by name; the default if `None`.
    #[serde(default)]
    pub network: Option<String>,
    /// Speed of this machine, for blocks that are measured on it, floating-point operations per second; measured if
    /// `None`.
    #[serde(default)]
    pub reference_flops: Option<f64>,
    /// What part of its host's speed a function makes use of, by name; others use it all.
    #[serde(default)]
    pub efficiencies: BTreeMap<String, f64>,
    /// Where the report goes at the end of the session.
    #[serde(default)]
    pub report: Option<PathBuf>,
    /// Where the timeline of all groups goes at the end of the session, as a page.
    #[serde(default)]
    pub timeline: Option<PathBuf>,
    /// Where the durations of measured blocks are written down.
    #[serde(default)]
    pub record: Option<PathBuf>,
    /// A file of such, which are charged instead of those that are measured.
    #[serde(default)]
    pub replay: Option<PathBuf>,
    /// Virtual seconds after which a run of processes ends, as a failure if any still runs.
    #[serde(default)]
    pub until: Option<f64>,
    /// Where what happens is written, for a viewer: in Paje's format if its name ends in `.paje`, otherwise in Chrome's.
    #[serde(default)]
    pub trace: Option<PathBuf>,
    /// BLAS library for `linalg/…`.
    #[serde(default)]
    pub blas: Option<PathBuf>,
    /// Python interpreter for Python functions.
    #[serde(default)]
    pub python: Option<PathBuf>,
    /// The `gridloom` program, for bodies.
    #[serde(default)]
    pub program: Option<PathBuf>,
}

impl SimulateConfig {
    /// What `gridloom simulate` set for this program, joined with what the program would have started itself.
    pub(crate) fn from_environment(local: Option<&LocalConfig>) -> Result<Option<SimulateConfig>, Error> {
        let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let config: SimulateConfig = serde_json::from_str(&text.to_string_lossy())
            .map_err(|error| Error::Input(format!("{VARIABLE} is no valid configuration: {error}")))?;
        Ok(Some(config.joined(local)))
    }

    /// Joined with what the program would have started itself.
    pub(crate) fn joined(mut self, local: Option<&LocalConfig>) -> SimulateConfig {
        if let Some(local) = local {
            self.functions.extend(local.functions.iter().cloned());
            self.libraries.extend(local.libraries.iter().cloned());
            self.blas = self.blas.or_else(|| local.blas.clone());
            self.python = self.python.or_else(|| local.python.clone());
            self.program = self.program.or_else(|| local.program.clone());
        }
        self
    }

    /// The value of the variable that makes a program run in this simulation, as `(name, value)`.
    ///
    /// # Errors
    /// If a path is not UTF-8.
    pub fn to_environment(&self) -> Result<(String, String), Error> {
        let text = serde_json::to_string(self).map_err(|_| {
            let paths =
                [&self.report, &self.timeline, &self.trace, &self.record, &self.replay, &self.faults, &self.deployment];
            let named =
                paths.into_iter().flatten().chain([&self.platform]).chain(&self.functions).chain(&self.libraries);
            let wrong = named.filter(|path| path.to_str().is_none()).map(|path| path.display().to_string()).next();
            let wrong = wrong.unwrap_or_else(|| "a path".into());
            Error::Input(format!("{wrong}: names of files and folders must be UTF-8 here; rename it, or link to it"))
        })?;
        Ok((VARIABLE.into(), text))
    }

    /// Reads and checks the platform and the deployment.
    ///
    /// # Errors
    /// With file, line and column.
    pub fn check(&self) -> Result<(), Error> {
        let platform = self.read_platform()?;
        self.read_faults()?;
        let Some(file) = &self.deployment else { return self.cast(&platform).map(|_| ()) };
        let processes = read_deployment(file)?;
        if processes.is_empty() {
            return Err(Error::Input(format!("{}: no process is deployed", file.display())));
        }
        let has = |part: &str| processes.iter().any(|process| process.function == part);
        let is_cast = processes.iter().all(|process| GRID_PARTS.contains(&process.function.as_str()));
        if is_cast && has("client") && has("server") {
            return self.cast(&platform).map(|_| ());
        }
        // Processes of the program, which knows its functions; or a grid without a part, which is told when it starts.
        Deployment::read(file)?.check_hosts(&platform)
    }

    pub(crate) fn read_platform(&self) -> Result<Platform, Error> {
        let text = read_text(&self.platform)?;
        let folder = self.platform.parent().map(PathBuf::from).unwrap_or_default();
        let mut load = |name: &str| read_text(&folder.join(name)).map_err(|error| error.to_string());
        Platform::parse(&text, &self.platform.display().to_string(), &mut load).map_err(|e| Error::Input(e.to_string()))
    }

    pub(crate) fn read_faults(&self) -> Result<Option<Scenario>, Error> {
        let Some(file) = &self.faults else { return Ok(None) };
        let scenario = Scenario::parse(&read_text(file)?, &file.display().to_string());
        scenario.map(Some).map_err(|error| Error::Input(error.to_string()))
    }

    /// What a simulation is told besides the platform.
    ///
    /// # Errors
    /// If there is no such network model, or a host's disk has a rate without sense.
    pub(crate) fn sim_config(&self, platform: &Platform) -> Result<SimConfig, Error> {
        let network = network_model(self.network.as_deref())?;
        let efficiencies = self.efficiencies.clone();
        let disks = disks(platform)?;
        Ok(SimConfig { seed: self.seed, network, efficiencies, disks, ..SimConfig::default() })
    }

    /// Who plays which part.
    fn cast(&self, platform: &Platform) -> Result<Cast, Error> {
        Cast::new(platform, self.deployment.as_deref())
    }
}

pub(crate) fn read_deployment(file: &Path) -> Result<Vec<deployment::Process>, Error> {
    deployment::parse(&read_text(file)?, &file.display().to_string()).map_err(|error| Error::Input(error.to_string()))
}

pub(crate) fn network_model(name: Option<&str>) -> Result<NetworkModel, Error> {
    match name {
        None => Ok(NetworkModel::default()),
        Some(name) => NetworkModel::by_name(name).map_err(|error| Error::Input(error.to_string())),
    }
}

/// A host that is a server, with what it is to be like.
#[derive(Clone, Debug)]
pub struct Part {
    /// The host.
    pub host: HostId,
    /// What platform and deployment say of it.
    pub properties: BTreeMap<String, String>,
}

/// Which host of a platform plays which part.
#[derive(Clone, Debug)]
pub struct Cast {
    /// The agent's host.
    pub agent: HostId,
    /// The program's host.
    pub client: HostId,
    /// The servers.
    pub servers: Vec<Part>,
}

impl Cast {
    /// Who plays which part, by the deployment file if there is one, otherwise by the hosts' properties.
    ///
    /// # Errors
    /// If a part is missing, or a host or a role is unknown.
    pub fn new(platform: &Platform, deployment: Option<&Path>) -> Result<Cast, Error> {
        let cast = match deployment {
            Some(file) => {
                let processes = read_deployment(file)?;
                Cast::from_deployment(platform, &processes, &file.display().to_string())?
            }
            None => Cast::from_properties(platform)?,
        };
        cast.check_routes(platform)?;
        Ok(cast)
    }

    /// Who plays which part beside the processes of a program, which are the clients: by the deployment's processes
    /// `agent` and `server`, or else by the hosts' properties. `None` if neither names an agent or a server.
    ///
    /// # Errors
    /// As [`Cast::new`].
    pub fn beside_processes(
        platform: &Platform,
        parts: &[deployment::Process],
        file: &str,
    ) -> Result<Option<Cast>, Error> {
        let cast = match parts.first() {
            None if roles(platform)?.iter().flatten().any(|role| ["agent", "server"].contains(role)) => {
                Cast::from_properties(platform)?
            }
            None => return Ok(None),
            Some(first) => {
                // The agent is itself the client that every grid has here, unless a server has to stand in for it.
                let agent = parts.iter().find(|part| part.function == "agent").unwrap_or(first);
                let client = deployment::Process { function: "client".into(), ..agent.clone() };
                Cast::from_deployment(platform, &[parts, &[client]].concat(), file)?
            }
        };
        cast.check_routes(platform)?;
        Ok(Some(cast))
    }

    /// Whether the roles that the hosts' properties name are known.
    ///
    /// # Errors
    /// If one is not; the message names the host.
    pub fn check_roles(platform: &Platform) -> Result<(), Error> {
        roles(platform).map(drop)
    }

    /// Names of the agent and the servers.
    pub(crate) fn names(&self, platform: &Platform) -> Result<Vec<String>, Error> {
        let servers = self.servers.iter().map(|part| Ok(part.server(platform, &[])?.name));
        std::iter::once(Ok("agent".to_string())).chain(servers).collect()
    }

    /// The client and every server reach the agent, and each other; servers among themselves need not.
    fn check_routes(&self, platform: &Platform) -> Result<(), Error> {
        check_way(platform, self.client, self.agent)?;
        for server in &self.servers {
            check_way(platform, server.host, self.agent)?;
            check_way(platform, server.host, self.client)?;
        }
        Ok(())
    }

    fn from_properties(platform: &Platform) -> Result<Cast, Error> {
        let hosts = platform.hosts();
        if hosts.len() < 2 {
            return Err(Error::Input("a platform has at least two hosts: a client and a server".into()));
        }
        let roles = roles(platform)?;
        let with = |role: &str| roles.iter().position(|roles| roles.contains(&role));
        let client = with("client").unwrap_or(0);
        let agent = with("agent").unwrap_or(client);
        let named = with("server").is_some();
        let is_server = |index: usize| match named {
            true => roles[index].contains(&"server"),
            false => index != client && index != agent && roles[index].is_empty(),
        };
        let servers = (0..hosts.len())
            .filter(|index| is_server(*index))
            .map(|index| Part { host: HostId(index as u32), properties: hosts[index].properties.clone() });
        let servers: Vec<Part> = servers.collect();
        if servers.is_empty() {
            return Err(Error::Input("no host of the platform is a server".into()));
        }
        Ok(Cast { agent: HostId(agent as u32), client: HostId(client as u32), servers })
    }

    fn from_deployment(platform: &Platform, processes: &[deployment::Process], file: &str) -> Result<Cast, Error> {
        let (mut agent, mut client, mut servers) = (None, None, Vec::new());
        for process in processes {
            let Some(host) = platform.host(&process.host) else {
                return Err(Error::Input(format!("{file}: the platform has no host '{}'", process.host)));
            };
            match process.function.as_str() {
                "agent" => agent = Some(host),
                "client" => client = Some(host),
                "server" => {
                    let mut properties = platform.hosts()[host.0 as usize].properties.clone();
                    properties.extend(process.properties.clone());
                    let arguments = process.arguments.iter().filter_map(|argument| argument.split_once('='));
                    properties.extend(arguments.map(|(key, value)| (key.to_string(), value.to_string())));
                    servers.push(Part { host, properties });
                }
                other => {
                    let known = "agent, server or client; processes of the program open a grid within their functions";
                    return Err(Error::Input(format!("{file}: unknown function '{other}'; expected {known}")));
                }
            }
        }
        let client =
            client.ok_or_else(|| Error::Input(format!("{file}: no process is the client, which a grid needs")))?;
        if servers.is_empty() {
            return Err(Error::Input(format!("{file}: no process is a server, which a grid needs")));
        }
        Ok(Cast { agent: agent.unwrap_or(client), client, servers })
    }
}

/// Whether two hosts of a grid reach each other.
pub(crate) fn check_way(platform: &Platform, one: HostId, other: HostId) -> Result<(), Error> {
    let name = |host: HostId| &platform.hosts()[host.0 as usize].name;
    let missing = [(one, other), (other, one)].into_iter().find(|(from, to)| platform.route(*from, *to).is_err());
    match missing.filter(|_| one != other) {
        None => Ok(()),
        Some((from, to)) => Err(Error::Input(format!(
            "the platform has no route from '{}' to '{}', which a grid needs: the client, the agent and every server \
             have to reach each other; add links, or give one of them the role none",
            name(from),
            name(to)
        ))),
    }
}

/// Whether the servers of a simulated grid that runs already offer what a program would have started its own with.
pub(crate) fn check_functions(offered: &[PathBuf], local: Option<&LocalConfig>) -> Result<(), Error> {
    for file in local.map_or(&[][..], |local| &local.functions) {
        let is_offered = |known: &PathBuf| known == file || known.canonicalize().ok() == file.canonicalize().ok();
        if !offered.iter().any(is_offered) {
            let file = file.display();
            return Err(Error::Usage(format!(
                "{file}: the simulated servers run already, and do not offer it; name it with 'gridloom simulate \
                 --functions {file}', or in the first local() of the program"
            )));
        }
    }
    Ok(())
}

/// Starts the agent and the servers of a grid; their names. Bodies are run if the configuration says so.
pub(crate) fn populate(
    simulation: &mut Simulation,
    config: &SimulateConfig,
    cast: &Cast,
) -> Result<BTreeMap<NodeId, String>, Error> {
    let platform = simulation.platform().clone();
    let python = config.python.clone().unwrap_or_else(|| PathBuf::from("python3"));
    let mut files = config.functions.clone();
    if !files.iter().any(|file| file.as_os_str() == BUILTIN_LINALG) {
        files.insert(0, PathBuf::from(BUILTIN_LINALG));
    }
    let bodies = if config.execute { InlineBodies::Compile } else { InlineBodies::Unused };
    let named: Vec<PathBuf> = config.blas.iter().chain(&config.libraries).cloned().collect();
    let mut offer = load_offer(&files, &python, &named, bodies)?;
    let new = |library: &&PathBuf| !offer.libraries.contains(library);
    let libraries: Vec<PathBuf> = config.libraries.iter().filter(new).cloned().collect();
    offer.libraries.extend(libraries);
    let mut specs = Vec::with_capacity(cast.servers.len());
    for part in &cast.servers {
        specs.push((part.host, part.server(&platform, &offer.definitions)?));
    }
    if config.execute {
        let program = program_path(config.program.as_deref());
        simulation.set_bodies(Box::new(RealBodies::new(&offer, program, python)?));
    }
    let mut names = BTreeMap::new();
    names.insert(simulation.add_agent(cast.agent, "agent"), "agent".to_string());
    for (host, spec) in specs {
        let name = spec.name.clone();
        names.insert(simulation.add_server(host, spec), name);
    }
    Ok(names)
}

/// Rates of the disks that hosts' property `disk` describes, bytes per second.
fn disks(platform: &Platform) -> Result<BTreeMap<HostId, f64>, Error> {
    let described =
        (0..).zip(platform.hosts()).filter_map(|(number, host)| Some((HostId(number), host.properties.get("disk")?)));
    let rate = |(host, text): (HostId, &String)| match units::bandwidth(text) {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok((host, rate)),
        _ => {
            let name = &platform.hosts()[host.0 as usize].name;
            let why = format!("host '{name}' has disk = '{text}'; expected the rate of its disk, such as 200MBps");
            Err(Error::Input(platform.error_of(host, why).to_string()))
        }
    };
    described.map(rate).collect()
}

/// The roles of each host.
fn roles(platform: &Platform) -> Result<Vec<Vec<&str>>, Error> {
    let mut all = Vec::with_capacity(platform.hosts().len());
    for (number, host) in (0..).zip(platform.hosts()) {
        let roles: Vec<&str> =
            host.properties.get("role").into_iter().flat_map(|text| text.split(',')).map(str::trim).collect();
        if let Some(wrong) = roles.iter().find(|role| !["agent", "server", "client", "none"].contains(role)) {
            let name = &host.name;
            let known = "agent, server, client or none";
            let why = format!("host '{name}' has the role '{wrong}'; expected {known}");
            return Err(Error::Input(platform.error_of(HostId(number), why).to_string()));
        }
        all.push(roles);
    }
    Ok(all)
}

impl Part {
    /// The server that the host is to run; it offers those of the definitions that the host's properties name.
    ///
    /// # Errors
    /// If a property has no sense; the message names host, property and value.
    pub fn server(&self, platform: &Platform, definitions: &[Definition]) -> Result<ServerSpec, Error> {
        let host = &platform.hosts()[self.host.0 as usize];
        let wrong = |key: &str, value: &str, expected: &str| {
            let why = format!("host '{}' has {key} = '{value}'; expected {expected}", host.name);
            Error::Input(platform.error_of(self.host, why).to_string())
        };
        let slots = match self.properties.get("slots") {
            None => host.cores,
            Some(text) => match text.parse() {
                Ok(slots) if slots > 0 => slots,
                _ => return Err(wrong("slots", text, "a whole number of at least 1")),
            },
        };
        let memory_bytes = match self.properties.get("memory") {
            None => STORE_BYTES_DEFAULT,
            Some(text) => units::size(text).map_err(|_| wrong("memory", text, "bytes, such as 4GiB"))? as u64,
        };
        let plain = match self.properties.get("plain").map(String::as_str) {
            None | Some("no" | "false") => false,
            Some("yes" | "true") => true,
            Some(text) => return Err(wrong("plain", text, "yes or no")),
        };
        let functions = match self.properties.get("functions") {
            None => definitions.to_vec(),
            Some(list) => {
                let patterns: Vec<&str> = list.split(',').map(str::trim).collect();
                let matches = |name: &str| {
                    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                        Some(start) => name.starts_with(start),
                        None => name == *pattern,
                    })
                };
                definitions.iter().filter(|definition| matches(&definition.signature.name)).cloned().collect()
            }
        };
        let name = self.properties.get("name").unwrap_or(&host.name).clone();
        Ok(ServerSpec { name, slots, plain, memory_bytes, functions })
    }
}

/// A simulation with a client of its grid.
pub(crate) struct Simulated {
    simulation: Arc<Mutex<Simulation>>,
    pub(crate) client: NodeId,
    pub(crate) executes: bool,
    pub(crate) report_path: Option<PathBuf>,
    pub(crate) timeline_path: Option<PathBuf>,
    names: BTreeMap<NodeId, String>,
}

impl Simulated {
    /// A simulation for one client, and its number of servers.
    pub(crate) fn new(config: SimulateConfig) -> Result<(Simulated, usize), Error> {
        let platform = Arc::new(config.read_platform()?);
        let cast = config.cast(&platform)?;
        let mut simulation = Simulation::new(platform.clone(), config.sim_config(&platform)?);
        if let Some(file) = &config.trace {
            simulation.watch(Box::new(Tracer::create(file, platform.clone())?));
        }
        let mut names = populate(&mut simulation, &config, &cast)?;
        let client = simulation.add_client(cast.client, "client");
        names.insert(client, "client".to_string());
        if let Some(scenario) = config.read_faults()? {
            schedule(&mut simulation, &scenario, &cast, config.seed)?;
        }
        let simulation = Arc::new(Mutex::new(simulation));
        let (executes, report_path, timeline_path) = (config.execute, config.report, config.timeline);
        Ok((Simulated { simulation, client, executes, report_path, timeline_path, names }, cast.servers.len()))
    }

    /// A process's client, opened in the grid that the processes share.
    pub(crate) fn of_process(
        seat: &Seat,
        shared: &SharedGrid,
        local: Option<&LocalConfig>,
    ) -> Result<Simulated, Error> {
        let client = shared.open(seat, local)?;
        Ok(Simulated {
            simulation: seat.shared_simulation(),
            client,
            executes: shared.config.execute,
            // The report is the run's.
            report_path: None,
            timeline_path: shared.config.timeline.clone(),
            names: shared.names(),
        })
    }

    pub(crate) fn simulation(&self) -> MutexGuard<'_, Simulation> {
        self.simulation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn report(&self) -> SimulationReport {
        SimulationReport::new(&self.simulation(), &self.names)
    }
}

impl SimulationReport {
    /// What a simulation says; groups are its sessions'.
    pub(crate) fn new(simulation: &Simulation, names: &BTreeMap<NodeId, String>) -> SimulationReport {
        let name = |node: &NodeId| names.get(node).cloned().unwrap_or_else(|| node.to_string());
        let by_pair = simulation.bytes_by_pair().iter();
        SimulationReport {
            seconds: simulation.now().seconds(),
            trace_hash: format!("{:016x}", simulation.trace_hash()),
            bytes_by_link: simulation.bytes_by_link().into_iter().filter(|(_, bytes)| *bytes > 0.0).collect(),
            bytes_by_pair: by_pair.map(|((from, to), n)| (format!("{} -> {}", name(from), name(to)), *n)).collect(),
            groups: Vec::new(),
            failure: None,
        }
    }
}

/// Has a scenario's faults strike; what it draws at random spares the last server and the client.
fn schedule(simulation: &mut Simulation, scenario: &Scenario, cast: &Cast, seed: u64) -> Result<(), Error> {
    let platform = simulation.platform().clone();
    let host = |id: HostId| platform.hosts()[id.0 as usize].name.clone();
    let names = simulation.names();
    let servers: Vec<(String, String)> = cast
        .servers
        .iter()
        .map(|part| host(part.host))
        .zip(&names[1..])
        .map(|(host, name)| (name.to_string(), host))
        .collect();
    let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
    let hosts: Vec<&str> = platform.hosts().iter().map(|host| host.name.as_str()).collect();
    let links: Vec<&str> = platform.links().iter().map(|link| link.name.as_str()).collect();
    scenario.check(&nodes, &hosts, &links).map_err(|error| Error::Input(error.to_string()))?;
    let agent = ("agent".to_string(), host(cast.agent));
    let field = Field { agent, servers, clients: vec![("client".to_string(), host(cast.client))] };
    strike(simulation, scenario, &field, seed);
    Ok(())
}

/// Has a scenario's faults strike; if some are drawn, all are told.
pub(crate) fn strike(simulation: &mut Simulation, scenario: &Scenario, field: &Field, seed: u64) {
    let strikes = scenario.strikes(field, &mut SplitMix64::new(seed), simulation.now());
    if scenario.draws() {
        for strike in &strikes {
            gridloom_core::say!("gridloom: fault (seed {seed}): {strike}");
        }
    }
    simulation.schedule(strikes);
}

/// What a simulated run has to report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimulationReport {
    /// Virtual seconds at the end.
    pub seconds: f64,
    /// Sums up everything that happened, in order: equal for equal programs, platforms and seeds.
    pub trace_hash: String,
    /// Bytes of data over each link of the platform.
    pub bytes_by_link: BTreeMap<String, f64>,
    /// Bytes of data by pair of nodes, sender first.
    pub bytes_by_pair: BTreeMap<String, u64>,
    /// Groups in order: heuristic, predicted and simulated makespan in seconds.
    pub groups: Vec<(String, f64, f64)>,
    /// Why the files that were to be written while it ran are not complete, if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}
